/* What every test begins with: cmocka, and of C's headers those that it wants before it and that most tests use. */
#ifndef CVN_TESTS_UNIT_H
#define CVN_TESTS_UNIT_H

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka hands every test a state, which next to none has. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* For functions that return an error: one that must not fail. */
static inline void must(int code, const cvn_err *err)
{
    if (code != CVN_OK)
        fail_msg("%s", err->message);
}

#endif
