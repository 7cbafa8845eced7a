/*
 * A helper thread: it does one task beside the threads that compute, and whoever needs the result waits for it:
 *
 *     helper_start(helper, make_masks, rows);    on the helper thread
 *     …                                          whatever does not need the masks, on any thread
 *     helper_wait(helper);                       the masks are made
 *
 * Waking the thread takes up to 30 us: a shorter task is better done at once.
 */
#ifndef CVN_BASE_HELPER_H
#define CVN_BASE_HELPER_H

#include "base/err.h"

typedef struct HelperThread HelperThread;

/* NULL with *err set where the system refuses a thread. */
HelperThread *helper_new(cvn_err *err);
/* Waits for its task, and ends the thread. NULL is allowed. */
void helper_free(HelperThread *helper);

/* Starts the task fn(context). The task before it must have been waited for. */
void helper_start(HelperThread *helper, void (*fn)(void *context), void *context);

/* Returns when the task has returned, at once if none was started; what it wrote is seen then. Several threads may wait, each several times. */
void helper_wait(HelperThread *helper);

#endif
