/*
 * Other programs, run without a shell, by the name that the PATH has.
 *
 *     const char *const line[] = {"sha256sum", "-", NULL};
 *     child_run(line, &(Child){.feed = write_file, .context = path, .out = &text}, &status, err)
 */
#ifndef CVN_CLI_CHILD_H
#define CVN_CLI_CHILD_H

#include "base/err.h"
#include "base/strbuf.h"

#include <stdbool.h>

typedef struct Child {
    /* Writes the child's standard input to `to`; NULL: it has none. That the child no longer reads is no error. */
    int (*feed)(void *context, int to, cvn_err *err);
    void *context;
    StrBuf *out; /* its standard output is added; NULL: it goes where ours for errors goes */
    bool quiet;  /* what it says of errors is thrown away */
} Child;

/* Whether there is a program of this name. */
bool child_exists(const char *name);

/* Runs argv, ended by NULL, and waits. *status is its exit status, 128 and the signal where one ended it. CVN_EIO where it cannot
   be run. Input is written whole before output is read: a child writes little until it has read all. */
int child_run(const char *const *argv, const Child *child, int *status, cvn_err *err);

#endif
