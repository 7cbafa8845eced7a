/*
 * A thread beside those that compute, for what is wanted by the time they come to it:
 *
 *     spare_start(spare, make_masks, rows);      on the spare thread
 *     …                                          whatever does not need them, on any thread
 *     spare_wait(spare);                         they are made
 *
 * Waking it takes up to 30 us, so what takes less is better done at once.
 */
#ifndef CVN_BASE_SPARE_H
#define CVN_BASE_SPARE_H

#include "base/err.h"

typedef struct Spare Spare;

/* NULL with *err set where the system refuses a thread. */
Spare *spare_new(cvn_err *err);
/* Waits for what it does, and ends it. NULL is allowed. */
void spare_free(Spare *spare);

/* Begins fn(context). What was begun before must have been waited for. */
void spare_start(Spare *spare, void (*fn)(void *context), void *context);

/* Returns when that has returned, at once if nothing was begun; what it wrote is seen then. Any threads may wait, and again. */
void spare_wait(Spare *spare);

#endif
