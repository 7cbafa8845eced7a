/* What devices can do at most: the figures that measured speeds are held against. */
#ifndef CVN_RUN_CEILINGS_H
#define CVN_RUN_CEILINGS_H

#include "caravan/dtype.h"

#include <stddef.h>

typedef struct Ceilings {
    double bandwidth;  /* bytes per second that all threads together read from memory */
    double flops_f32;  /* operations per second of the kernels' level; a multiply-add is two */
    double flops_bf16; /* the same with bf16 operands and f32 sums */
    /* The same with operands of 8 bits, where the kernels multiply such; else as flops_f32. */
    double flops_int8;
} Ceilings;

/* Of products of that type: bf16, i8, or else f32. */
double ceilings_flops(const Ceilings *ceilings, cvn_dtype dtype);

/* All of them times so much: of so many devices together. */
void ceilings_scale(Ceilings *ceilings, double times);

/* Sorts n numbers, least first; and their median, for which they are sorted. */
void sort_numbers(double *number, size_t n);
double median(double *sample, int n);

#endif
