/*
 * What the machine can do: the figures that measured speeds are held against. Measured anew in the run that
 * uses them, on the same threads, because neighbours make machines vary.
 */
#ifndef CVN_CPU_CEILINGS_H
#define CVN_CPU_CEILINGS_H

#include "base/threads.h"
#include "caravan/dtype.h"

typedef struct Ceilings {
    double bandwidth;  /* bytes per second that all threads together read from memory */
    double flops_f32;  /* operations per second of the kernels' level; a multiply-add is two */
    double flops_bf16; /* the same with bf16 operands and f32 sums */
    double
        flops_int8; /* the same with operands of 8 bits, where the kernels multiply such; else as flops_f32 */
} Ceilings;

/* Takes about a second. */
int ceilings_measure(Pool *pool, Ceilings *out, cvn_err *err);

/* Reads of memory, to be measured in turns with something that is held against them: what memory gives changes within
   seconds where others use it too. */
typedef struct ReadProbe ReadProbe;

/* On the threads of a pool, which stays the caller's. */
int read_probe_new(Pool *pool, ReadProbe **out, cvn_err *err);
void read_probe_free(ReadProbe *probe); /* NULL is allowed */

/* Bytes per second of about so many seconds, of one pass over the probe's memory at least. Afterwards caches hold
   nothing of use. */
double read_probe_run(ReadProbe *probe, double seconds);

/* Operations per second that all threads together do for about so many seconds (10 ms at least): one sample of
   ceilings_flops, for measuring in turns, like reads. */
double peak_run(Pool *pool, cvn_dtype dtype, double seconds);

/* Of products of that type: bf16, i8, or else f32. */
double ceilings_flops(const Ceilings *ceilings, cvn_dtype dtype);

/* The median of n numbers, which are sorted on the way. */
double median(double *sample, int n);

/* Median seconds of running fn on all threads. */
double median_seconds(Pool *pool, PoolFn *fn, void *context);

#endif
