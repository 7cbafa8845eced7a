#include "base/protect.h"

#include <assert.h>
#include <setjmp.h>

typedef struct Protected {
    jmp_buf back;
    struct Protected *outer; /* the protected call that this one is in, or NULL */
    Held *held;              /* what was held when it began */
    const char *doing;
    cvn_err *err;
} Protected;

static _Thread_local Protected *innermost;
static _Thread_local Held *held_last;

int protect(int (*run)(void *of, cvn_err *err), void *of, const char *doing, cvn_err *err)
{
    cvn_err unseen = {0};
    err = err ? err : &unseen;
    Protected here = {.outer = innermost, .held = held_last, .doing = doing, .err = err};
    if (_setjmp(here.back))
        return here.err->code;
    innermost = &here;
    int code = run(of, here.err);
    innermost = here.outer;
    if (!innermost)
        held_last = NULL;
    return code;
}

bool protected_here(void)
{
    return innermost != NULL;
}

void protect_give_up(size_t bytes)
{
    Protected *to = innermost;
    assert(to && "a call that allocates is protected");
    err_set(
        to->err, CVN_EMEM,
        "memory ran out while %s: the system refused %zu KiB more; raise 'ulimit -v', or give it "
        "more memory",
        to->doing, bytes / 1024 + (bytes % 1024 != 0));
    while (held_last != to->held)
        held_release(held_last);
    innermost = to->outer;
    _longjmp(to->back, 1);
}

void hold(Held *held, void (*release)(void *what), void *what)
{
    *held = (Held){.release = release, .what = what, .before = held_last};
    if (innermost)
        held_last = held;
}

void held_keep(Held *held)
{
    Held **at = &held_last;
    while (*at && *at != held)
        at = &(*at)->before;
    if (*at)
        *at = held->before;
}

void held_release(Held *held)
{
    held_keep(held);
    held->release(held->what);
}
