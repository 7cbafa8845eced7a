#include "base/protect.h"

#include <assert.h>
#include <setjmp.h>

typedef struct Protected {
    jmp_buf back;
    struct Protected *outer; /* the protected call that this one is in, or NULL */
    Cleanup *cleanup;        /* the innermost cleanup when it began */
    const char *doing;
    cvn_err *err;
} Protected;

static _Thread_local Protected *innermost;
static _Thread_local Cleanup *cleanup_top;

int protect(int (*run)(void *of, cvn_err *err), void *of, const char *doing, cvn_err *err)
{
    cvn_err unseen = {0};
    err = err ? err : &unseen;
    Protected here = {.outer = innermost, .cleanup = cleanup_top, .doing = doing, .err = err};
    if (_setjmp(here.back))
        return here.err->code;
    innermost = &here;
    int code = run(of, here.err);
    innermost = here.outer;
    if (!innermost)
        cleanup_top = NULL;
    return code;
}

bool protected_here(void)
{
    return innermost != NULL;
}

void protect_abandon(size_t bytes)
{
    Protected *to = innermost;
    assert(to && "a call that allocates is protected");
    err_set(
        to->err, CVN_EMEM,
        "out of memory while %s: the system refused %zu KiB more; raise 'ulimit -v' or add memory",
        to->doing, bytes / 1024 + (bytes % 1024 != 0));
    while (cleanup_top != to->cleanup)
        cleanup_run(cleanup_top);
    innermost = to->outer;
    _longjmp(to->back, 1);
}

void cleanup_push(Cleanup *cleanup, void (*release)(void *what), void *what)
{
    *cleanup = (Cleanup){.release = release, .what = what, .before = cleanup_top};
    if (innermost)
        cleanup_top = cleanup;
}

void cleanup_cancel(Cleanup *cleanup)
{
    Cleanup **at = &cleanup_top;
    while (*at && *at != cleanup)
        at = &(*at)->before;
    if (*at)
        *at = cleanup->before;
}

void cleanup_run(Cleanup *cleanup)
{
    cleanup_cancel(cleanup);
    cleanup->release(cleanup->what);
}
