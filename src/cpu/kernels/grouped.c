/*
 * Products by group (grouped.h), on the products that stand.
 *
 *     grouped_linear    the tiles and loops of linear.c: x is laid out by sorted slots, and the work is one list of pieces over all
 *                       active groups, some panels of one of them each, which whoever is free takes. No thread waits for a group;
 *                       of few rows, as in decoding, the bytes of the chosen groups alone are read
 *     grouped_dot       the packed products of gemm.c: a piece is some rows of one group times all of its matrix
 *     grouped_outer     the same: a piece is some rows of one group's result
 *
 * A row's sums are in the order of k whatever is beside it: it has the same bits in any batch, at any place, with groups here or
 * on other devices.
 */
#include "cpu/kernels/grouped.h"

#include "base/num.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "graph/grouped.h"

#include <string.h>

/* ---- slots by group ---- */

int64_t grouped_number(const Op *op)
{
    if (op->kind == OP_GROUPED_LINEAR)
        return op->operand[1]->type.dim[0] / linear_weight(op, 0).panels;
    return op->kind == OP_GROUPED_DOT ? op->operand[1]->type.dim[0] : op->result[0]->type.dim[0];
}

static int64_t slots_of(const Op *op)
{
    return cvn_type_elements(grouped_groups(op));
}

size_t groups_bytes(const Op *op, int64_t n)
{
    return num_padded((size_t)(slots_of(op) + 3 * (n + 1)) * sizeof(int32_t), CACHE_LINE);
}

/* An index of u32 that does not fit i32 is none of a group either. */
static bool is_group(int32_t group, int64_t n)
{
    return group >= 0 && group < n;
}

Groups groups_sort(const KernelArgs *args, int64_t n, void *scratch)
{
    const int32_t *group = args->in[grouped_operand(args->op)];
    const int64_t slots = slots_of(args->op);
    int32_t *slot = scratch, *next = slot + slots, *active = next + n + 1, *first = active + n + 1;
    Groups g = {.n = n, .slots = slots, .slot = slot, .active_group = active, .first = first};
    memset(next, 0, (size_t)n * sizeof *next);
    for (int64_t i = 0; i < slots; i++)
        if (is_group(group[i], n))
            next[group[i]]++;
    for (int64_t e = 0; e < n; e++) {
        const int32_t count = next[e];
        next[e] = (int32_t)g.sorted;
        if (count) {
            active[g.active] = (int32_t)e;
            first[g.active++] = (int32_t)g.sorted;
        }
        g.sorted += count;
    }
    first[g.active] = (int32_t)g.sorted;
    for (int64_t i = 0; i < slots; i++)
        if (is_group(group[i], n))
            slot[next[group[i]]++] = (int32_t)i;
    return g;
}

int64_t groups_none(const KernelArgs *args, int64_t n, int64_t last)
{
    const int32_t *group = args->in[grouped_operand(args->op)];
    int64_t begin, end;
    kernel_share(slots_of(args->op), 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = num_max(begin, last + 1); i < end; i++)
        if (!is_group(group[i], n))
            return i;
    return -1;
}

int64_t groups_take(const KernelArgs *args, int64_t n, int64_t *last)
{
    int64_t next = *last < 0 ? args->thread : *last + args->n_threads;
    if (args->tail && args->n_threads > 1)
        next = n ? kernel_take(args, 0, n) : -1;
    *last = next;
    return next < n ? next : -1;
}

/* ---- grouped_linear ---- */

/* Panels of a piece: so few that there are PIECES for each thread, if there are that many; whole blocks. */
static int64_t panels_of_piece(const LinearLoops *l, const Groups *g)
{
    enum { PIECES = 8 };
    const int64_t panels = l->jobs;
    const int64_t share = g->active * panels / (l->args->n_threads * PIECES);
    const int64_t blocks = num_max(share / LINEAR_BLOCK, 1);
    return num_min(blocks * LINEAR_BLOCK, panels);
}

/* Operands as those of a linear with the weights of one group. */
static void operands_of_group(const KernelArgs *args, const LinearLoops *l, int64_t group,
                              const void **in)
{
    const Op *op = args->op;
    for (int i = 0; i < l->weights; i++) {
        const LinearWeight *w = &l->weight[i];
        const int q = linear_operand(op, i);
        in[q] = (const char *)args->in[q] + (size_t)(group * w->panels) * w->panel_bytes;
        if (w->groups)
            in[q + 1] = (const char *)args->in[q + 1] +
                        cvn_dtype_bytes(w->scale_dtype, group * w->panels * w->groups * PANEL_ROWS);
    }
}

void grouped_loops_run(LinearLoops *l, const Groups *g,
                       void (*fit)(LinearLoops *loops, int64_t rows))
{
    enum { MOST_OPERANDS = LINEAR_OPERANDS + LINEAR_WEIGHTS * TILE_OPERANDS };
    const KernelArgs *args = l->args;
    const void *in[MOST_OPERANDS];
    KernelArgs own = *args;
    const int64_t panels = l->jobs, each = panels_of_piece(l, g);
    const int64_t pieces = num_pieces(panels, each);
    memcpy(in, args->in, (size_t)args->op->n_operands * sizeof *in);
    own.in = in;
    l->args = &own;
    l->place = g->slot;
    for (int64_t last = -1, i; (i = groups_take(args, g->active * pieces, &last)) >= 0;) {
        const int64_t a = i / pieces, begin = i % pieces * each,
                      end = num_min(begin + each, panels);
        operands_of_group(args, l, g->active_group[a], in);
        fit(l, g->first[a + 1] - g->first[a]);
        for (int64_t m0 = g->first[a]; m0 < g->first[a + 1]; m0 += l->chunk)
            linear_loops_panels(l, begin, end, m0, num_min(l->chunk, g->first[a + 1] - m0));
    }
    l->args = args;
}

/* ---- grouped_dot and grouped_outer ---- */

enum {
    ROWS = 128 /* of a piece of grouped_dot */,
    COLUMNS = 64 /* rows of a piece of grouped_outer */
};

/* A matrix that lies in memory as rows of so many elements; `across` counts its columns as rows of the product. */
static GemmOperand matrix(cvn_dtype dtype, int64_t rows, int64_t columns, int64_t stride,
                          bool across)
{
    const GemmDims down = {rows > 1, {rows}, {stride}}, along = {columns > 1, {columns}, {1}};
    return (GemmOperand){.dtype = dtype, .row = across ? along : down, .k = across ? down : along};
}

/* So many rows of x times the matrix of their group. */
static Gemm dot_product(const Op *op, int64_t m)
{
    const cvn_type *w = &op->operand[1]->type;
    const bool across = op->attr.axis == 1;
    const int64_t k = w->dim[op->attr.axis], n = w->dim[3 - op->attr.axis];
    return (Gemm){.batch = 1,
                  .m = m,
                  .n = n,
                  .k = k,
                  .a = matrix(w->dtype, m, k, k, false),
                  .b = matrix(w->dtype, w->dim[1], w->dim[2], w->dim[2], across),
                  .out = op->result[0]->type.dtype};
}

/* Rows [0, m) of a group's result, of `slots` outer products. */
static Gemm outer_product(const Op *op, int64_t m, int64_t slots)
{
    const cvn_type *y = &op->result[0]->type;
    const cvn_dtype dtype = op->operand[0]->type.dtype;
    return (Gemm){.batch = 1,
                  .m = m,
                  .n = y->dim[2],
                  .k = slots,
                  .a = matrix(dtype, slots, m, y->dim[1], true),
                  .b = matrix(dtype, slots, y->dim[2], y->dim[2], true),
                  .out = y->dtype};
}

/* Bytes of a row of operand i, and of a result's. */
static size_t row_bytes(const cvn_type *type)
{
    return cvn_dtype_bytes(type->dtype, type->dim[type->rank - 1]);
}

/* Rows of operand i of the slots, one behind the other. */
static void gather_rows(const KernelArgs *args, int i, const int32_t *slot, int64_t n, char *to)
{
    const Op *op = args->op;
    const cvn_type *groups = grouped_groups(op);
    const int64_t share = grouped_has_slots(op, i) ? 1 : groups->dim[groups->rank - 1];
    const size_t bytes = row_bytes(&op->operand[i]->type);
    for (int64_t r = 0; r < n; r++)
        memcpy(to + (size_t)r * bytes,
               (const char *)args->in[i] + (size_t)(slot[r] / share) * bytes, bytes);
}

static void run_gemm(const KernelArgs *args, const Gemm *gemm, const void *a, const void *b,
                     void *out, void *scratch)
{
    const void *const in[] = {a, b};
    KernelArgs own = *args;
    own.in = in;
    own.out = &out;
    own.scratch = scratch;
    own.thread = 0;
    own.n_threads = 1;
    own.tail = NULL;
    gemm_run(args->isa, gemm, &own);
}

static bool match_dense(const Kernel *kernel, const Op *op)
{
    const GemmIsa *isa = kernel->isa;
    const cvn_dtype in = op->operand[0]->type.dtype, out = op->result[0]->type.dtype;
    return (in == isa->source || (in == CVN_F16 && isa->source == CVN_F32)) &&
           (out == CVN_F32 || out == CVN_BF16 || out == CVN_F16) && slots_of(op) < INT32_MAX;
}

/* What a thread has in scratch, one behind the other. */
typedef struct DotScratch {
    size_t groups, a, c, gemm, all;
} DotScratch;

static DotScratch dot_scratch(const GemmIsa *isa, const Op *op)
{
    const Gemm gemm = dot_product(op, num_min(ROWS, num_max(slots_of(op), 1)));
    DotScratch s = {.groups = groups_bytes(op, grouped_number(op)),
                    .a = num_padded(ROWS * row_bytes(&op->operand[0]->type), CACHE_LINE),
                    .c = num_padded(ROWS * row_bytes(&op->result[0]->type), CACHE_LINE),
                    .gemm = num_padded(gemm_scratch(isa, &gemm, 1), CACHE_LINE)};
    s.all = s.groups + s.a + s.c + s.gemm;
    return s;
}

static size_t scratch_dot(const Kernel *kernel, const Op *op, int n_threads)
{
    return dot_scratch(kernel->isa, op).all * (size_t)n_threads;
}

/* The active group that piece i is of, pieces being counted through all of them; *i becomes its number there. */
static int64_t group_of_piece(const Groups *g, int64_t rows, int64_t *i)
{
    for (int64_t a = 0; a < g->active; a++) {
        const int64_t own = num_pieces(g->first[a + 1] - g->first[a], rows);
        if (*i < own)
            return a;
        *i -= own;
    }
    return -1;
}

static void run_dot(const KernelArgs *args)
{
    const Op *op = args->op;
    const DotScratch s = dot_scratch(args->isa, op);
    char *own = (char *)args->scratch + s.all * (size_t)args->thread;
    char *x = own + s.groups, *y = x + s.a;
    const cvn_type *w = &op->operand[1]->type;
    const size_t matrix_bytes = cvn_dtype_bytes(w->dtype, w->dim[1] * w->dim[2]);
    const size_t bytes = row_bytes(&op->result[0]->type);
    const Groups g = groups_sort(args, w->dim[0], own);
    int64_t pieces = 0;
    for (int64_t a = 0; a < g.active; a++)
        pieces += num_pieces(g.first[a + 1] - g.first[a], ROWS);
    for (int64_t slot = -1; (slot = groups_none(args, g.n, slot)) >= 0;)
        memset((char *)args->out[0] + (size_t)slot * bytes, 0, bytes);
    for (int64_t last = -1, i; (i = groups_take(args, pieces, &last)) >= 0;) {
        const int64_t a = group_of_piece(&g, ROWS, &i), from = g.first[a] + i * ROWS;
        const int64_t rows = num_min(ROWS, g.first[a + 1] - from);
        const Gemm gemm = dot_product(op, rows);
        gather_rows(args, 0, g.slot + from, rows, x);
        run_gemm(args, &gemm, x,
                 (const char *)args->in[1] + (size_t)g.active_group[a] * matrix_bytes, y, y + s.c);
        for (int64_t r = 0; r < rows; r++)
            memcpy((char *)args->out[0] + (size_t)g.slot[from + r] * bytes, y + (size_t)r * bytes,
                   bytes);
    }
}

/* What all threads have in scratch, the rows of both operands by sorted slots, and then each. */
typedef struct OuterScratch {
    size_t a, b, groups, gemm, each;
} OuterScratch;

static OuterScratch outer_scratch(const GemmIsa *isa, const Op *op)
{
    const int64_t slots = slots_of(op), n = op->result[0]->type.dim[1];
    const Gemm gemm = outer_product(op, num_min(COLUMNS, n), slots);
    OuterScratch s = {.a = num_padded((size_t)slots * row_bytes(&op->operand[0]->type), CACHE_LINE),
                      .b = num_padded((size_t)slots * row_bytes(&op->operand[1]->type), CACHE_LINE),
                      .groups = groups_bytes(op, grouped_number(op)),
                      .gemm = num_padded(gemm_scratch(isa, &gemm, 1), CACHE_LINE)};
    s.each = s.groups + s.gemm;
    return s;
}

static size_t scratch_outer(const Kernel *kernel, const Op *op, int n_threads)
{
    const OuterScratch s = outer_scratch(kernel->isa, op);
    return s.a + s.b + s.each * (size_t)n_threads;
}

static void run_outer(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *y = &op->result[0]->type;
    const OuterScratch s = outer_scratch(args->isa, op);
    char *a = args->scratch, *b = a + s.a, *own = b + s.b + s.each * (size_t)args->thread;
    const size_t bytes[2] = {row_bytes(&op->operand[0]->type), row_bytes(&op->operand[1]->type)};
    const Groups g = groups_sort(args, y->dim[0], own);
    int64_t begin, end, next = 0;
    kernel_share(g.sorted, 1, args->thread, args->n_threads, &begin, &end);
    gather_rows(args, 0, g.slot + begin, end - begin, a + (size_t)begin * bytes[0]);
    gather_rows(args, 1, g.slot + begin, end - begin, b + (size_t)begin * bytes[1]);
    kernel_sync(args);
    const int64_t pieces = num_pieces(y->dim[1], COLUMNS);
    int32_t *active = args->n_threads ? (int32_t *)(void *)own + g.slots
                                      : NULL; /* of all groups; -1: it has none */
    for (int64_t e = 0; e < g.n; e++)
        active[e] = next < g.active && g.active_group[next] == e ? (int32_t)next++ : -1;
    for (int64_t last = -1, i; (i = groups_take(args, g.n * pieces, &last)) >= 0;) {
        const int64_t e = i / pieces, n0 = i % pieces * COLUMNS;
        const int64_t m = num_min(COLUMNS, y->dim[1] - n0);
        char *out =
            (char *)args->out[0] + cvn_dtype_bytes(y->dtype, (e * y->dim[1] + n0) * y->dim[2]);
        if (active[e] < 0) {
            memset(out, 0, cvn_dtype_bytes(y->dtype, m * y->dim[2]));
            continue;
        }
        const int64_t from = g.first[active[e]], slots = g.first[active[e] + 1] - from;
        const Gemm gemm = outer_product(op, m, slots);
        run_gemm(args, &gemm,
                 a + (size_t)from * bytes[0] + cvn_dtype_bytes(op->operand[0]->type.dtype, n0),
                 b + (size_t)from * bytes[1], out, own + s.groups);
    }
}

#define DENSE_ROWS(text, of)                                                                       \
    {.name = "grouped_dot." text,                                                                  \
     .kind = OP_GROUPED_DOT,                                                                       \
     .isa = &gemm_##of,                                                                            \
     .match_isa = match_dense,                                                                     \
     .scratch_isa = scratch_dot,                                                                   \
     .run = run_dot},                                                                              \
    {                                                                                              \
        .name = "grouped_outer." text, .kind = OP_GROUPED_OUTER, .isa = &gemm_##of,                \
        .match_isa = match_dense, .scratch_isa = scratch_outer, .run = run_outer                   \
    }

#define GROUPED_ROWS(text, set)                                                                    \
    {                                                                                              \
        DENSE_ROWS(text ".f32", f32_##set), DENSE_ROWS(text ".bf16", bf16_##set),                  \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

const Kernel grouped_kernels_portable[] = GROUPED_ROWS("portable", portable);
const Kernel grouped_kernels_portable_same[] = GROUPED_ROWS("portable.same", portable_same);

#if defined(CVN_HAVE_AVX2)
const Kernel grouped_kernels_avx2[] = GROUPED_ROWS("avx2", avx2);
const Kernel grouped_kernels_avx2_same[] = GROUPED_ROWS("avx2.same", avx2_same);
#endif

#if defined(CVN_HAVE_AVX512)
const Kernel grouped_kernels_avx512[] = GROUPED_ROWS("avx512", avx512);
const Kernel grouped_kernels_avx512_same[] = GROUPED_ROWS("avx512.same", avx512_same);

const Kernel grouped_kernels_avx512_bf16[] = {
    DENSE_ROWS("avx512.bf16dot", bf16_avx512_bf16),
    {0},
};
#endif
