/*
 * Kernels against what the machine can do: matrix products and attention, with the share of the ceiling that
 * bounds them. The ceilings, read bandwidth and multiply-adds per second, are measured first, in the same run on
 * the same threads, because neighbours make machines vary.
 *
 *     bench_kernels [threads] [products|linear|attention|choice] [part of a kernel's name, of choice; dtype, of others]
 *
 * Times are medians. A product of m rows counts 2 m n k operations and the bytes of its weights; weights are
 * larger than the caches. `choice` prints the table of src/cpu/kernels/choice.c as it should be on this machine. Where oneDNN or OpenBLAS is installed, its time stands below ours. CARAVAN_CPU=avx2 (avx512, portable) measures a lower level.
 */
#include "cpu/ceilings.h"
#include "cpu/kernels/choice.h"
#include "cpu/registry.h"
#include "graph/blocks.h"
#include "graph/graph.h"
#include "graph/panels.h"
#include "peers/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { VECTOR = 64, HUGE_PAGE = 2 << 20 };

static const char *const no_memory = "bench_kernels: no memory";

static void *allocate(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : VECTOR; /* as weights and ceilings have them */
    size_t rounded = (bytes + unit - 1) / unit * unit;
    void *p = aligned_alloc(unit, rounded);
    if (!p) {
        fprintf(stderr, "%s\n", no_memory);
        exit(1);
    }
    if (unit == HUGE_PAGE)
        madvise(p, rounded, MADV_HUGEPAGE);
    return p;
}

typedef struct Run {
    const Kernel *kernel;
    KernelArgs args;
} Run;

static void run_kernel(void *context, int thread, int n_threads)
{
    const Run *run = context;
    KernelArgs args = run->args;
    args.thread = thread;
    args.n_threads = n_threads;
    args.isa = run->kernel->isa;
    run->kernel->run(&args);
}

/* Numbers near 1 / 16, or whole ones for integers: what they are does not matter, but that they are normal. */
static void *make_data(const cvn_type *type)
{
    size_t bytes = cvn_type_bytes(type);
    void *data = allocate(bytes + 1);
    static const uint32_t f32 = 0x3d800000, bf16 = 0x3d803d80;
    uint32_t word = type->dtype == CVN_F32 ? f32 : type->dtype == CVN_BF16 ? bf16 : 0;
    for (size_t i = 0; i + 4 <= bytes; i += 4)
        memcpy((char *)data + i, &word, 4);
    return data;
}

/* Median seconds of a kernel with the operation that makes v. inputs: for those that matter, NULL for numbers. */
static double time_kernel(Pool *pool, const Kernel *kernel, const cvn_value *v,
                          const void *const *inputs)
{
    enum { OPERANDS = 7 };
    const Op *op = v->def;
    Run run = {.kernel = kernel};
    const void *in[OPERANDS];
    void *made[OPERANDS] = {NULL}, *out[OP_MOST_RESULTS] = {NULL};
    for (int i = 0; i < op->n_results; i++)
        out[i] = allocate(cvn_type_bytes(&op->result[i]->type) + 1);
    for (int i = 0; i < op->n_operands; i++)
        in[i] = inputs && inputs[i] ? inputs[i] : (made[i] = make_data(&op->operand[i]->type));
    size_t bytes = kernel_scratch(run.kernel, op, pool_threads(pool));
    void *scratch = allocate(bytes + 1);
    const size_t tails = (size_t)pool_threads(pool) * sizeof(KernelTail);
    KernelTail *tail = allocate(tails);
    memset(tail, 0, tails);
    run.args = (KernelArgs){.op = op,
                            .in = in,
                            .out = out,
                            .scratch = scratch,
                            .barrier = pool_barrier(pool),
                            .tail = tail};
    enum { REPEATS = 7 };
    double sample[REPEATS];
    pool_run(pool, run_kernel, &run);
    for (int i = 0; i < REPEATS; i++) {
        int64_t begin = clock_ns();
        run.args.turn++;
        pool_run(pool, run_kernel, &run);
        sample[i] = (double)(clock_ns() - begin) * 1e-9;
    }
    double seconds = median(sample, REPEATS);
    for (int i = 0; i < op->n_operands; i++)
        free(made[i]);
    for (int i = 0; i < op->n_results; i++)
        free(out[i]);
    free(scratch);
    free(tail);
    return seconds;
}

/* The same of the kernel that is taken. */
static double time_op(Pool *pool, const cvn_value *v, const void *const *inputs, const char **name)
{
    const Kernel *kernel = kernel_find(cpu_kernels(), v->def);
    *name = kernel->name;
    return time_kernel(pool, kernel, v, inputs);
}

static void print_row(const char *what, const char *kernel, double seconds, double operations,
                      double bytes, double peak, const Ceilings *c)
{
    printf("%-37s %-33s %9.3f ms %8.1f GFLOP/s %3.0f%% %7.1f GB/s %3.0f%%\n", what, kernel,
           seconds * 1e3, operations / seconds * 1e-9, 100 * operations / seconds / peak,
           bytes / seconds * 1e-9, 100 * bytes / seconds / c->bandwidth);
}

static void bench_product(Pool *pool, const Ceilings *c, cvn_dtype dtype, int64_t m, int64_t k,
                          int64_t n)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("bench", &err);
    if (!g) {
        fprintf(stderr, "%s\n", no_memory);
        exit(1);
    }
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, m, k));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(dtype, n, k));
    const char *name = "";
    double seconds = time_op(pool, cvn_einsum_as(g, "mk,nk->mn", x, w, CVN_F32), NULL, &name);
    char what[64];
    snprintf(what, sizeof what, "%lld x %lld x %lld %s", (long long)m, (long long)k, (long long)n,
             cvn_dtype_name(dtype));
    double operations = 2.0 * (double)m * (double)n * (double)k;
    double bytes = (double)cvn_type_bytes(cvn_value_type(w));
    double peak = dtype == CVN_BF16 ? c->flops_bf16 : c->flops_f32;
    print_row(what, name, seconds, operations, bytes, peak, c);
    for (const Peer *peer = peers; peer->name; peer++) {
        double theirs = peer->product(pool_threads(pool), dtype, m, k, n);
        if (theirs > 0)
            print_row("", peer->name, theirs, operations, bytes, peak, c);
    }
    cvn_graph_free(g);
}

/* x [m, k] times weights of n rows in panels, or in panels of blocks; int8: x is brought to 8 bits. */
static void bench_linear(Pool *pool, const Ceilings *c, cvn_dtype dtype, BlockKind blocks,
                         bool int8, int64_t m, int64_t k, int64_t n)
{
    enum { GROUP = 64 };
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("bench", &err);
    if (!g) {
        fprintf(stderr, "%s\n", no_memory);
        exit(1);
    }
    bool is_i4 = dtype == CVN_I4;
    cvn_dtype x_dtype = dtype == CVN_F32 ? CVN_F32 : CVN_BF16;
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(x_dtype, m, k));
    cvn_type panels = blocks ? block_panel_type(blocks, n, k) : panel_type(dtype, n, k);
    cvn_value *q = cvn_parameter(g, "q", panels), *scale = NULL;
    cvn_type scales = panel_scale_type(is_i4 ? CVN_BF16 : CVN_F32, n, is_i4 ? k / GROUP : 1);
    if (panel_scaled(dtype) && !blocks)
        scale = cvn_parameter(g, "scale", scales);
    cvn_linear_spec spec = {.contract = 1,
                            .n_weights = 1,
                            .int8 = int8,
                            .blocks = blocks ? block_names[blocks] : NULL,
                            .q = {q},
                            .scale = {scale},
                            .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *y;
    cvn_linear(g, x, &spec, &y);
    const char *name = "";
    double seconds = time_op(pool, y, NULL, &name);
    char what[64];
    snprintf(what, sizeof what, "%lld x %lld x %lld %s%s", (long long)m, (long long)k, (long long)n,
             blocks ? block_names[blocks] : cvn_dtype_name(dtype), int8 ? ", x in 8 bits" : "");
    double bytes = (double)cvn_type_bytes(cvn_value_type(q));
    bytes += scale ? (double)cvn_type_bytes(&scales) : 0;
    print_row(what, name, seconds, 2.0 * (double)m * (double)n * (double)k, bytes,
              ceilings_flops(c, int8 ? CVN_I8 : x_dtype), c);
    cvn_graph_free(g);
}

/* Attention, or its gradient: the last `seq` of `context` positions; counts the products that causality leaves, of
   which the gradient has five (one of them again). */
typedef struct AttentionBench {
    int64_t batch, seq, context, heads, kv_heads, head_dim;
    bool gradient;
} AttentionBench;

static void bench_attention(Pool *pool, const Ceilings *c, cvn_dtype dtype, const AttentionBench *b)
{
    enum { ROWS_MOST = 64 };
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("bench", &err);
    if (!g) {
        fprintf(stderr, "%s\n", no_memory);
        exit(1);
    }
    cvn_type cache = CVN_TYPE(dtype, b->batch, b->kv_heads, b->context, b->head_dim);
    cvn_type scales = CVN_TYPE(CVN_BF16, b->batch, b->kv_heads, b->context, 1);
    cvn_dtype q_dtype = dtype == CVN_I8 ? CVN_BF16 : dtype;
    cvn_type queries = CVN_TYPE(q_dtype, b->batch, b->seq, b->heads, b->head_dim);
    cvn_value *q = cvn_parameter(g, "q", queries);
    cvn_value *k = cvn_parameter(g, "k", cache), *v = cvn_parameter(g, "v", cache);
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, b->batch));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, b->batch));
    int32_t starts[ROWS_MOST], lengths[ROWS_MOST];
    for (int64_t i = 0; i < b->batch; i++) {
        starts[i] = (int32_t)(b->context - b->seq);
        lengths[i] = (int32_t)b->seq;
    }
    const void *inputs[] = {NULL, NULL, NULL, starts, lengths, NULL, NULL};
    const char *name = "";
    cvn_value *out[4];
    cvn_attention_spec spec = {.scale = 0.125};
    if (dtype == CVN_I8) {
        spec.k_scale = cvn_parameter(g, "ks", scales);
        spec.v_scale = cvn_parameter(g, "vs", scales);
    }
    if (b->gradient)
        cvn_attention_backward(g, q, k, v, start, length, cvn_parameter(g, "dy", queries), &spec,
                               out);
    else
        out[0] = cvn_attention(g, q, k, v, start, length, &spec);
    double seconds = time_op(pool, out[0], inputs, &name);
    char what[64];
    snprintf(what, sizeof what, "%lld x %lld of %lld, %lld/%lld of %lld %s", (long long)b->batch,
             (long long)b->seq, (long long)b->context, (long long)b->heads, (long long)b->kv_heads,
             (long long)b->head_dim, cvn_dtype_name(dtype));
    double keys = (double)b->seq * ((double)b->context - (double)(b->seq - 1) / 2);
    double pairs = (double)(b->batch * b->heads * b->head_dim) * keys;
    print_row(what, name, seconds, (b->gradient ? 10 : 4) * pairs,
              2.0 * (double)cvn_type_bytes(&cache),
              dtype == CVN_BF16 ? c->flops_bf16 : c->flops_f32, c);
    cvn_graph_free(g);
}

static void bench_products(Pool *pool, const Ceilings *c)
{
    printf("\nproducts, rows x sum x columns, weights [columns, sum]\n");
    static const cvn_dtype dtypes[] = {CVN_BF16, CVN_F32};
    static const int64_t rows[] = {1, 4, 8, 32, 128, 512};
    for (int d = 0; d < 2; d++)
        for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
            bench_product(pool, c, dtypes[d], rows[m], 2048, 16384);
    for (int d = 0; d < 2; d++) {
        bench_product(pool, c, dtypes[d], 2048, 2048, 2048);
        bench_product(pool, c, dtypes[d], 512, 4096, 11008);
    }
}

static void bench_linears(Pool *pool, const Ceilings *c, const char *only)
{
    printf("\nlinear, rows x sum x columns, weights in panels\n");
    static const cvn_dtype dtypes[] = {CVN_BF16, CVN_F32, CVN_I8, CVN_I4, CVN_I8};
    static const int64_t columns[] = {32768, 16384, 65536, 65536,
                                      65536}; /* more than the caches hold */
    static const int64_t rows[] = {1, 2, 4, 8, 12, 16, 32, 33, 64, 512};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t m = 0;
             m < sizeof rows / sizeof *rows && strstr(cvn_dtype_name(dtypes[d]), only); m++)
            bench_linear(pool, c, dtypes[d], BLOCK_NONE, d == 4, rows[m], 2048, columns[d]);
    for (int kind = 1; kind < BLOCK_KINDS; kind++)
        for (size_t m = 0;
             m < 2 * (sizeof rows / sizeof *rows) && strcmp(block_names[kind], only) == 0; m++)
            bench_linear(pool, c, CVN_I8, (BlockKind)kind, m % 2, rows[m / 2], 2048, 65536);
}

static void bench_attentions(Pool *pool, const Ceilings *c, const char *only)
{
    printf("\nattention and its gradient, rows x positions of context, heads / KV heads of "
           "head_dim\n");
    static const cvn_dtype dtypes[] = {CVN_BF16, CVN_F32, CVN_I8};
    static const AttentionBench benches[] = {
        {1, 1, 32768, 32, 8, 64, false},    {16, 1, 2048, 32, 8, 64, false},
        {1, 1, 4096, 32, 8, 64, false},     {1, 1, 4096, 32, 8, 128, false},
        {1, 1, 4096, 8, 8, 128, false},     {1, 512, 512, 32, 8, 64, false},
        {1, 512, 4096, 32, 8, 64, false},   {1, 2048, 2048, 32, 8, 64, false},
        {1, 2048, 2048, 32, 8, 128, false}, {2, 1024, 1024, 12, 12, 64, false},
        {2, 1024, 1024, 12, 12, 64, true},  {1, 2048, 2048, 32, 8, 128, true},
    };
    for (int d = 0; d < 3; d++)
        for (size_t i = 0; i < sizeof benches / sizeof *benches; i++)
            if (strstr(cvn_dtype_name(dtypes[d]), only) &&
                !(dtypes[d] == CVN_I8 && benches[i].gradient))
                bench_attention(pool, c, dtypes[d], &benches[i]);
}

/* ---- which kernel is taken with how many rows ---- */

enum { CHOICE_SUM = 2048, CHOICE_COLUMNS = 16384, CHOICE_GROUP = 64 };

/* A product of m rows that a kernel of this name takes, if it takes m rows. */
static cvn_value *choice_product(cvn_graph *g, const Kernel *kernel, int64_t m)
{
    enum { COLUMNS = CHOICE_COLUMNS, SUM = CHOICE_SUM };
    cvn_type y = CVN_TYPE(CVN_F32, m, COLUMNS);
    if (kernel->kind == OP_DOT_GENERAL) {
        cvn_dtype dtype = strstr(kernel->name, "f32") ? CVN_F32 : CVN_BF16;
        return cvn_einsum_as(g, "mk,nk->mn", cvn_parameter(g, "x", CVN_TYPE(dtype, m, SUM)),
                             cvn_parameter(g, "w", CVN_TYPE(dtype, COLUMNS, SUM)), CVN_F32);
    }
    cvn_dtype dtype = strstr(kernel->name, "int4") ? CVN_I4 : CVN_I8;
    BlockKind blocks = strstr(kernel->name, "blocks") ? BLOCK_Q4_K : BLOCK_NONE;
    int64_t groups = dtype == CVN_I4 ? SUM / CHOICE_GROUP : 1;
    cvn_type panels =
        blocks ? block_panel_type(blocks, COLUMNS, SUM) : panel_type(dtype, COLUMNS, SUM);
    cvn_value *q = cvn_parameter(g, "q", panels), *out[3], *scale = NULL;
    if (!blocks)
        scale = cvn_parameter(g, "s", panel_scale_type(CVN_F32, COLUMNS, groups));
    if (kernel->kind == OP_LINEAR_INT8)
        return panel_linear_int8(g,
                                 (cvn_value *[]){cvn_parameter(g, "x", CVN_TYPE(CVN_I8, m, SUM)),
                                                 cvn_parameter(g, "xs", CVN_TYPE(CVN_BF16, m, 1)),
                                                 q, scale},
                                 y);
    cvn_linear_spec spec = {.contract = 1,
                            .n_weights = 1,
                            .int8 = strstr(kernel->name, "rows8"),
                            .blocks = blocks ? block_names[blocks] : NULL,
                            .q = {q},
                            .scale = {scale},
                            .type = {y}};
    cvn_linear(g, cvn_parameter(g, "x", CVN_TYPE(CVN_BF16, m, SUM)), &spec, out);
    return out[0];
}

/* The kernel that is taken instead with as many rows as the table's row leaves to others. */
static const Kernel *other_kernel(const Kernel *kernel, const RowChoice *row)
{
    const KernelSet *backend = cpu_kernels();
    cvn_graph *g = cvn_graph_new("other", NULL);
    if (!g)
        return NULL;
    const Op *op = choice_product(g, kernel, row->from > 1 ? row->from - 1 : row->to + 1)->def;
    const Kernel *found = NULL;
    for (int i = 0, below = 0; i < backend->n_kernels && !found; i++) {
        below |= backend->kernel[i] == kernel;
        if (below && kernel_matches(backend->kernel[i], op))
            found = backend->kernel[i];
    }
    cvn_graph_free(g);
    return found;
}

/* Times a kernel and what is taken in its place; prints its row of the table. */
static void bench_choice(Pool *pool, const Kernel *kernel, const RowChoice *row)
{
    static const int64_t rows[] = {1, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    enum { COUNT = sizeof rows / sizeof *rows };
    const Kernel *other = other_kernel(kernel, row);
    if (!other)
        return;
    bool few = row->from == 0;
    int64_t from = 0, to = 0;
    printf("    /* rows %s / %s, ms:", kernel->name, other->name);
    for (int i = 0; i < COUNT; i++) {
        cvn_graph *g = cvn_graph_new("choice", NULL);
        if (!g)
            return;
        const cvn_value *y = choice_product(g, kernel, rows[i]);
        double ours = time_kernel(pool, kernel, y, NULL);
        double theirs = time_kernel(pool, other, y, NULL);
        printf("%s%lld %.2f / %.2f", i % 5 ? ", " : "\n       ", (long long)rows[i], ours * 1e3,
               theirs * 1e3);
        if (few && ours <= theirs && (i == 0 || to == rows[i - 1]))
            to = rows[i];
        if (!few && ours > theirs)
            from = 0;
        else if (!few && from == 0)
            from = rows[i];
        cvn_graph_free(g);
    }
    if (few)
        printf(" */\n    {\"%s\", 0, %lld}, /* now %lld */\n", kernel->name, (long long)to,
               (long long)row->to);
    else
        printf(" */\n    {\"%s\", %lld, ALL}, /* now %lld */\n", kernel->name, (long long)from,
               (long long)row->from);
}

static void bench_choices(Pool *pool, const char *part)
{
    const KernelSet *backend = cpu_kernels();
    printf("\nrow_choices of this machine: rows that a kernel is the faster one with\n");
    for (int i = 0; i < row_choices_count; i++)
        for (int k = 0; k < backend->n_kernels; k++)
            if (strcmp(backend->kernel[k]->name, row_choices[i].kernel) == 0 &&
                strstr(row_choices[i].kernel, part))
                bench_choice(pool, backend->kernel[k], &row_choices[i]);
}

int main(int argc, char **argv)
{
    cvn_err err = {0};
    int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    Pool *pool = pool_new(threads, &err);
    if (!pool) {
        fprintf(stderr, "bench_kernels: %s\n", err.message);
        return 1;
    }
    ReadProbe *probe;
    if (read_probe_new(pool, &probe, &err)) {
        fprintf(stderr, "bench_kernels: %s\n", err.message);
        return 1;
    }
    read_probe_run(probe, 0);
    Ceilings c = {.bandwidth = read_probe_run(probe, 0.3),
                  .flops_f32 = peak_run(pool, CVN_F32, 0.3),
                  .flops_bf16 = peak_run(pool, CVN_BF16, 0.3),
                  .flops_int8 = peak_run(pool, CVN_I8, 0.3)};
    read_probe_free(probe);
    printf(
        "%d threads, %s: reads %.1f GB/s, f32 %.1f GFLOP/s, bf16 %.1f GFLOP/s, int8 %.1f GOP/s\n",
        pool_threads(pool), cpu_kernels()->name, c.bandwidth * 1e-9, c.flops_f32 * 1e-9,
        c.flops_bf16 * 1e-9, c.flops_int8 * 1e-9);

    const char *only = argc > 2 ? argv[2] : "";
    if (!*only || strcmp(only, "products") == 0)
        bench_products(pool, &c);
    if (!*only || strcmp(only, "linear") == 0)
        bench_linears(pool, &c, argc > 3 ? argv[3] : "");
    if (!*only || strcmp(only, "attention") == 0)
        bench_attentions(pool, &c, argc > 3 ? argv[3] : "");
    if (strcmp(only, "choice") == 0)
        bench_choices(pool, argc > 3 ? argv[3] : "");
    pool_free(pool);
    return 0;
}
