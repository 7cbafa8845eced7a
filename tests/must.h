/* For tests of functions that return an error: one that must not fail. */
#ifndef CVN_TESTS_MUST_H
#define CVN_TESTS_MUST_H

#include "base/err.h"
#include "unit.h"

static inline void must(int code, const cvn_err *err)
{
    if (code != CVN_OK)
        fail_msg("%s", err->message);
}

#endif
