/*
 * Running out of memory. Most of what is built lies in arenas (base/arena.h), and code that builds does not check each
 * small allocation: where an arena cannot grow, all that is being built is abandoned at once, up to the
 * nearest protected call, which returns an error as any other:
 *
 *     static int read_all(void *of, cvn_err *err)          allocates at will, and calls who does
 *
 *     t->arena …                                           made before, freed by the owner in any case
 *     code = protect(read_all, t, "reading a tokenizer", err);
 *     if (code)
 *         tokenizer_free(t);
 *
 * So whoever owns an arena protects what fills it, and frees it afterwards, filled or not. A function in between that
 * owns something else, which it would free at its end, registers a cleanup for it:
 *
 *     StrBuf text = {0};
 *     Cleanup cleanup;
 *     cleanup_push(&cleanup, strbuf_release, &text);       also released where a protected call is abandoned
 *     … arena_alloc(…) …
 *     cleanup_run(&cleanup);                               or cleanup_cancel, when somebody else owns it from now on
 *
 * Cleanups are a stack of their thread: the one pushed last is run or cancelled first, before its function returns. (An
 * arena of one function has a cleanup of its own: arena_begin.) Calls are abandoned within one thread only,
 * and hold no lock where that can happen.
 */
#ifndef CVN_BASE_PROTECT_H
#define CVN_BASE_PROTECT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* What run(of, err) returns; or CVN_EMEM, with a sentence that says what was being done ("reading a tokenizer"). Where err is
   NULL, run has one that nobody sees. */
int protect(int (*run)(void *of, cvn_err *err), void *of, const char *doing, cvn_err *err);

/* Whether a call of this thread is protected now. */
bool protected_here(void);

/* Abandons the innermost protected call, for want of so many bytes. There must be one. */
_Noreturn void protect_abandon(size_t bytes);

typedef struct Cleanup {
    void (*release)(void *what);
    void *what;
    struct Cleanup *before; /* the one that this thread pushed before */
} Cleanup;

/* Pushes a cleanup, which stays at its address until it is run or cancelled. */
void cleanup_push(Cleanup *cleanup, void (*release)(void *what), void *what);
/* Pops it, and calls release(what). */
void cleanup_run(Cleanup *cleanup);
/* Pops it without: what it would have released has another owner. */
void cleanup_cancel(Cleanup *cleanup);

/* A cleanup that is run when its block is left, wherever that is; once in a block. */
#define CLEANUP(release, what)                                                                     \
    SCOPED(cleanup_run) Cleanup cleanup_here;                                                      \
    cleanup_push(&cleanup_here, release, what)

#endif
