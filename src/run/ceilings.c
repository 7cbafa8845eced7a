#include "run/ceilings.h"

#include <stdlib.h>

double ceilings_flops(const Ceilings *ceilings, cvn_dtype dtype)
{
    if (dtype == CVN_I8)
        return ceilings->flops_int8;
    return dtype == CVN_BF16 ? ceilings->flops_bf16 : ceilings->flops_f32;
}

void ceilings_scale(Ceilings *c, double times)
{
    c->bandwidth *= times;
    c->flops_f32 *= times;
    c->flops_bf16 *= times;
    c->flops_int8 *= times;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_numbers(double *number, size_t n)
{
    qsort(number, n, sizeof *number, compare);
}

double median(double *sample, int n)
{
    sort_numbers(sample, (size_t)n);
    return n % 2 ? sample[n / 2] : (sample[n / 2 - 1] + sample[n / 2]) / 2;
}
