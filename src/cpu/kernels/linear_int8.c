/* The loops around the tiles of linear_int8.h, and the kernels. */
#include "cpu/kernels/linear_int8.h"

#include "cpu/kernels/choice.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "graph/linear.h"
#include "graph/panels.h"

#include <string.h>

enum { CHUNK_BYTES = 512 << 10 }; /* of x, which lie in L2 */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A product, and where its parts are in scratch. */
typedef struct Product {
    int64_t m, k;
    int64_t stride; /* of rows in the copy: an odd number of cache lines, or a tile's rows would all
                       want the same few places of the L1 cache */
    LinearWeight weight;
    int32_t *sum; /* [m] */
    int8_t *copy; /* [m][stride] */
} Product;

static Product product_of(const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    Product p = {.k = x->dim[x->rank - 1], .m = cvn_type_elements(&op->operand[1]->type)};
    p.weight = linear_int8_weight(op);
    p.stride = (p.k + 63) / 64 * 64;
    p.stride += p.stride / 64 % 2 ? 0 : 64;
    return p;
}

bool linear_int8_match(const Op *op)
{
    return tile_dtype(op->result[0]->type.dtype);
}

static size_t sum_bytes(const Product *p)
{
    return (size_t)(p->m * 4 + 63) / 64 * 64;
}

size_t linear_int8_scratch(const Op *op, int n_threads)
{
    Product p = product_of(op);
    (void)n_threads;
    return sum_bytes(&p) + (size_t)(p.m * p.stride);
}

/* Rows with zeros behind them, and their sums. */
static void copy_rows(const Product *p, const Int8Isa *isa, const KernelArgs *args)
{
    int64_t begin, end;
    const int8_t *x = args->in[0];
    kernel_share(p->m, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        int8_t *to = p->copy + r * p->stride;
        memcpy(to, x + r * p->k, (size_t)p->k);
        memset(to + p->k, 0, (size_t)(p->stride - p->k));
        p->sum[r] = isa->sum ? isa->sum(to, p->k) : 0;
    }
    kernel_sync(args);
}

/* One tile's sums become results: first times the weight's scale, then times the row's. */
static void write_tile(const Int8Isa *isa, const Product *p, const KernelArgs *args, int64_t m0,
                       int64_t rows, int64_t panel, const int32_t *c)
{
    const float *scale = (const float *)args->in[3] + panel * PANEL_ROWS;
    const uint16_t *row_scale = (const uint16_t *)args->in[1] + m0; /* bf16 */
    int64_t n0 = panel * PANEL_ROWS, columns = least(PANEL_ROWS, p->weight.n - n0);
    cvn_dtype dtype = args->op->result[0]->type.dtype;
    if (isa->write && columns == PANEL_ROWS && dtype != CVN_F16) {
        char *out = (char *)args->out[0] + cvn_dtype_bytes(dtype, m0 * p->weight.n + n0);
        isa->write(&(Int8Out){(int)rows, c, scale, row_scale, dtype, out, p->weight.n});
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        float y[PANEL_ROWS], step = bf16_to_f32(row_scale[r]);
        int64_t at = (m0 + r) * p->weight.n + n0;
        for (int j = 0; j < PANEL_ROWS; j++)
            y[j] = (float)c[r * PANEL_ROWS + j] * scale[j] * step;
        tile_write(dtype, args->out[0], at, columns, y);
    }
}

/* Asks for the lines of a panel that are the share of rows [r, r + step) of `rows`, for the L2 cache. */
static inline __attribute__((always_inline)) void fetch(const char *at, int64_t lines, int64_t r,
                                                        int64_t rows, int64_t step)
{
    for (int64_t i = lines * r / rows, last = lines * least(r + step, rows) / rows; i < last; i++)
        __builtin_prefetch(at + i * 64, 0, 2);
}

void linear_int8_run(const Int8Isa *isa, const KernelArgs *args)
{
    Product p = product_of(args->op);
    if (p.m == 0)
        return;
    p.sum = args->scratch;
    p.copy = (int8_t *)args->scratch + sum_bytes(&p);
    copy_rows(&p, isa, args);
    int64_t begin, end, bytes = isa->chunk ? isa->chunk : CHUNK_BYTES;
    int64_t chunk = bytes / p.stride / isa->rows * isa->rows;
    chunk = chunk < isa->rows ? isa->rows : chunk;
    kernel_share(p.weight.panels, 1, args->thread, args->n_threads, &begin, &end);
    int32_t c[LINEAR_INT8_PANELS][LINEAR_INT8_ROWS * PANEL_ROWS] __attribute__((aligned(64)));
    int64_t most = isa->panels ? isa->panels : 1, panel_bytes = p.weight.units * PANEL_BYTES;
    if (isa->enter)
        isa->enter();
    for (int64_t m0 = 0; m0 < p.m; m0 += chunk)
        for (int64_t panel = begin, rows = least(chunk, p.m - m0); panel < end; panel += most)
            for (int64_t r = 0; r < rows; r += isa->rows) {
                const char *q = (const char *)args->in[2] + panel * panel_bytes;
                Int8Tile t = {.rows = (int)least(isa->rows, rows - r),
                              .panels = (int)least(most, end - panel),
                              .q_stride = panel_bytes,
                              .c_stride = LINEAR_INT8_ROWS * PANEL_ROWS,
                              .x = p.copy + (m0 + r) * p.stride,
                              .stride = p.stride,
                              .sum = p.sum + m0 + r,
                              .q = (const int8_t *)q,
                              .units = p.weight.units,
                              .c = c[0]};
                int64_t ahead = isa->chunk ? least(most, end - panel - t.panels) : 0;
                for (int64_t i = 0; i < ahead; i++)
                    fetch(q + (most + i) * panel_bytes, p.weight.units, r, rows, isa->rows);
                isa->tile(&t);
                for (int i = 0; i < t.panels; i++)
                    write_tile(isa, &p, args, m0 + r, t.rows, panel + i, c[i]);
            }
    if (isa->leave)
        isa->leave();
}

static void run_portable(const KernelArgs *args)
{
    linear_int8_run(&linear_int8_portable, args);
}

const Kernel linear_int8_kernels_portable[] = {
    {.name = "linear_int8.portable",
     .kind = OP_LINEAR_INT8,
     .match = linear_int8_match,
     .scratch = linear_int8_scratch,
     .run = run_portable},
    {0},
};

#if defined(CVN_HAVE_AVX2)
static void run_avx2(const KernelArgs *args)
{
    linear_int8_run(&linear_int8_avx2, args);
}

const Kernel linear_int8_kernels_avx2[] = {
    {.name = "linear_int8.avx2",
     .kind = OP_LINEAR_INT8,
     .match = linear_int8_match,
     .scratch = linear_int8_scratch,
     .run = run_avx2},
    {0},
};
#endif

#if defined(CVN_HAVE_AVX512)
static void run_avx512(const KernelArgs *args)
{
    linear_int8_run(&linear_int8_avx512, args);
}

const Kernel linear_int8_kernels_avx512_vnni[] = {
    {.name = "linear_int8.avx512.vnni",
     .kind = OP_LINEAR_INT8,
     .match = linear_int8_match,
     .scratch = linear_int8_scratch,
     .run = run_avx512},
    {0},
};
#endif

#if defined(CVN_HAVE_AMX)
static void run_amx(const KernelArgs *args)
{
    linear_int8_run(&linear_int8_amx, args);
}

static bool match_amx(const Op *op)
{
    return linear_int8_match(op) &&
           choice_takes("linear_int8.amx", cvn_type_elements(&op->operand[1]->type));
}

const Kernel linear_int8_kernels_amx[] = {
    {.name = "linear_int8.amx",
     .kind = OP_LINEAR_INT8,
     .match = match_amx,
     .scratch = linear_int8_scratch,
     .run = run_amx},
    {0},
};
#endif
