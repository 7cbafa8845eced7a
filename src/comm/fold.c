/*
 * Reductions over the members of a group, element by element. A block of elements is brought
 * through all members while it stays in cache, in f64 or 64-bit integers, and rounded at the end.
 *
 * A sum of floats starts at -0, which unlike +0 changes no number: a group of one gets back what it gave.
 */
#include "comm/comm_impl.h"

#include "base/num.h"
#include "graph/wide.h"

void fold_run(cvn_dtype dtype, cvn_reduce kind, const StridedBox *from, int64_t n_from, int64_t row,
              int64_t column, int64_t n, void *to, int64_t to_at)
{
    const double start =
        kind == CVN_SUM && dtype_is_float(dtype) ? -0.0 : reduce_neutral(kind, dtype);
    for (int64_t done = 0; done < n; done += WIDE) {
        int64_t block = num_min(n - done, WIDE);
        Wide sum, x;
        wide_fill(dtype, start, block, &sum);
        for (int64_t j = 0; j < n_from; j++) {
            int64_t at = from[j].at + row * from[j].stride[0] + column + done;
            wide_read(dtype, from[j].base, at, 1, block, &x);
            wide_reduce(kind, dtype, &sum, 0, 1, &x, block);
        }
        wide_write(dtype, to, to_at + done, 1, block, &sum);
    }
}
