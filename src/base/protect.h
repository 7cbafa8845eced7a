/*
 * Where memory ends. Most of what is built lies in arenas (base/arena.h), and code that builds does not ask of each
 * small piece whether it came: where an arena cannot grow, all that is being built is given up at once, up to the
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
 * holds something else, which it would free at its end, says so while it holds it:
 *
 *     StrBuf text = {0};
 *     Held held;
 *     hold(&held, strbuf_release, &text);                  released when all is given up, too
 *     … arena_alloc(…) …
 *     held_release(&held);                                 or held_keep, when somebody else owns it from now on
 *
 * Held things are a stack: what was held last is released or kept first, before the function returns. (An arena of one
 * function is held by itself: arena_begin.) Calls are protected, and things held, by threads: what is given up never
 * crosses from one to another, and takes no lock along.
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

/* Gives up, for want of so many bytes. Somebody must be protected. */
_Noreturn void protect_give_up(size_t bytes);

typedef struct Held {
    void (*release)(void *what);
    void *what;
    struct Held *before; /* what this thread held before */
} Held;

/* A Held stays where it is as long as it holds. */
void hold(Held *held, void (*release)(void *what), void *what);
void held_release(Held *held);
void held_keep(Held *held);

/* Held until its block is left, wherever that is; once in a block. */
#define HELD(release, what)                                                                        \
    SCOPED(held_release) Held held_here;                                                           \
    hold(&held_here, release, what)

#endif
