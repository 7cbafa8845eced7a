/* cblas_sgemm. */
#include "peers/peers.h"

#include <cblas.h>
#include <stdlib.h>

typedef struct Product {
    int m, k, n;
    float *a, *b, *c;
} Product;

static void run(void *context)
{
    const Product *p = context;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->m, p->n, p->k, 1, p->a, p->k, p->b,
                p->k, 0, p->c, p->n);
}

static float *numbers(int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++)
        x[i] = 0.0625f;
    return x;
}

double peer_openblas(int threads, cvn_dtype dtype, int64_t m, int64_t k, int64_t n)
{
    if (dtype != CVN_F32)
        return -1;
    openblas_set_num_threads(threads);
    Product p = {(int)m, (int)k, (int)n, numbers(m * k), numbers(n * k), numbers(m * n)};
    double seconds = p.a && p.b && p.c ? peer_seconds(run, &p) : -1;
    free(p.a);
    free(p.b);
    free(p.c);
    return seconds;
}
