/*
 * What the machine can do (run/ceilings.h). Measured anew in the run that uses it, on the same threads, because
 * neighbours make machines vary.
 */
#ifndef CVN_CPU_CEILINGS_H
#define CVN_CPU_CEILINGS_H

#include "base/threads.h"
#include "run/ceilings.h"

/* Reads of memory, to be measured in turns with something that is held against them: what memory gives changes within
   seconds where others use it too. */
typedef struct ReadProbe ReadProbe;

/* On the threads of a pool, which stays the caller's. */
int read_probe_new(Pool *pool, ReadProbe **out, cvn_err *err);
void read_probe_free(ReadProbe *probe); /* NULL is allowed */

/* Bytes per second of about so many seconds, of one pass over the probe's memory at least. Afterwards caches hold
   nothing of use. */
double read_probe_run(ReadProbe *probe, double seconds);

/* Operations per second that all threads together do for about so many seconds (10 ms at least). */
double peak_run(Pool *pool, cvn_dtype dtype, double seconds);

#endif
