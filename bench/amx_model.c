/*
 * Predicts how fast the kernels of AMX are on a machine that has it, by running them here: their own machine code, with
 * its tile instructions and memory accesses going through a model of a core and its caches (amx_model/model.h).
 *
 *     ninja -C build benches && build/amx_model [-v] [-o] [-l MiB of L3] [part of a case's name]
 *
 * One of two threads is run, the other is thought of as doing the same: what it would have packed comes from L3. For each
 * case: milliseconds, the share of the peak of tiles (of bytes read at 15 GB/s where there are few rows), and where the
 * rest of the time goes, in % of all: waiting for sums (chain), loads from L1, L2, L3 and memory, lines that were
 * fetched ahead too late, stores, and instructions that are no loads. -v adds the functions it is spent in. -o lets loads
 * from L2 overlap those from L1 (model_overlap): without it the figures are cautious.
 *
 * Not modelled: the translation of addresses (weights and scratch have large pages), what hardware fetches ahead by itself
 * beyond the rates above, stores that a load waits for, frequency, and the other thread's use of L3 and memory.
 * Tiles hold no numbers here, so that branches on results go the way of zeros.
 */
#include "amx_model/model.h"
#include "compile/kernel.h"
#include "cpu/kernels/kernels.h"
#include "graph/graph.h"
#include "graph/panels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, THREADS = 2 };

static bool verbose;
static int64_t l3_bytes = 16 << 20;
static const char *only = "";

/* There is no other thread to wait for. */
void kernel_sync(const KernelArgs *args)
{
    (void)args;
}

static void *allocate(size_t bytes)
{
    size_t whole = (bytes + 2 * HUGE_PAGE) / HUGE_PAGE * HUGE_PAGE;
    char *p = aligned_alloc(HUGE_PAGE, whole);
    if (!p) {
        fprintf(stderr, "amx_model: no memory\n");
        exit(1);
    }
    madvise(p, whole, MADV_HUGEPAGE);
    memset(p, 0, whole);
    return p;
}

static const Cost columns[] = {COST_PRODUCTS, COST_L1,   COST_L2,     COST_L3,
                               COST_MEMORY,   COST_LATE, COST_STORES, COST_VECTORS};

static void print_function(const ModelTimes *t, int function, double all)
{
    printf("  %-58s|", t->name[function]);
    for (int i = 0; i < COST_COUNT; i++)
        printf(" %5.1f", 100 * (double)t->function[function][columns[i]] / all);
    printf("\n");
}

static void print_times(const char *what, const ModelTimes *t, double useful)
{
    double all = (double)t->picoseconds;
    printf("%-44s %9.3f %5.1f |", what, all * 1e-9, 100 * useful / all);
    for (int i = 0; i < COST_COUNT; i++)
        printf(" %5.1f", 100 * (double)t->lost[columns[i]] / all);
    printf(" | %6.2f\n", (double)t->bytes / all * 1e3);
    for (int i = 0; verbose && i < MODEL_FUNCTIONS && t->name[i]; i++)
        print_function(t, i, all);
}

static const Kernel *find(const Kernel *table, const Op *op)
{
    while (table->name && table->match && !table->match(op))
        table++;
    return table->name ? table : NULL;
}

/* Weights in panels come from memory; what else there is, a model has just used. */
static bool panel_of_weight(const Op *op, int operand)
{
    cvn_dtype dtype = op->operand[operand]->type.dtype;
    return (op->kind == OP_LINEAR || op->kind == OP_LINEAR_INT8) && operand > 0 &&
           op->operand[operand]->type.rank > 3 && dtype != CVN_F32;
}

/* Runs the operation that makes v; `operations` of the peak are what is useful of it: multiply-adds of both threads, in
   tiles; or 0: bytes are. */
static double run_case(const char *what, const Kernel *table, const cvn_value *v,
                       const void *const *inputs, double operations, bool print)
{
    const Op *op = v->def;
    const Kernel *kernel = find(table, op);
    const void *in[16] = {NULL};
    void *made[16] = {NULL}, *out[OP_MOST_RESULTS] = {NULL};
    if (!kernel) {
        printf("%-44s no kernel of AMX takes it\n", what);
        return 0;
    }
    for (int i = 0; i < op->n_results; i++)
        out[i] = allocate(cvn_type_bytes(&op->result[i]->type));
    for (int i = 0; i < op->n_operands; i++)
        in[i] = inputs && inputs[i] ? inputs[i]
                                    : (made[i] = allocate(cvn_type_bytes(&op->operand[i]->type)));
    void *scratch = allocate(kernel->scratch ? kernel->scratch(op, THREADS) : 0);
    KernelArgs args = {.op = op, .in = in, .out = out, .scratch = scratch, .n_threads = THREADS};
    model_begin(l3_bytes, 0);
    for (int i = 0; i < op->n_operands; i++)
        if (!panel_of_weight(op, i))
            model_warm(in[i], cvn_type_bytes(&op->operand[i]->type));
    model_warm(out[0], cvn_type_bytes(&op->result[0]->type));
    model_begin(l3_bytes, 1);
    kernel->run(&args);
    ModelTimes t = model_end();
    double useful = operations / THREADS / 8192 * PRODUCT_PS;
    if (operations == 0)
        useful = (double)t.bytes / 15 * 1e3;
    if (print)
        print_times(what, &t, useful);
    for (int i = 0; i < op->n_operands; i++)
        free(made[i]);
    for (int i = 0; i < op->n_results; i++)
        free(out[i]);
    free(scratch);
    return (double)t.picoseconds * 1e-12;
}

static bool wanted(const char *what)
{
    return strstr(what, only) != NULL;
}

static cvn_graph *graph(void)
{
    cvn_graph *g = cvn_graph_new("model", NULL);
    if (!g)
        exit(1);
    return g;
}

/* ---- products of two values: training, and weights in rows ---- */

static double product(const char *equation, cvn_type a, cvn_type b, cvn_dtype out,
                      double operations)
{
    char what[64];
    snprintf(what, sizeof what, "%s %lld x %lld, %lld x %lld", equation, (long long)a.dim[0],
             (long long)a.dim[1], (long long)b.dim[0], (long long)b.dim[1]);
    if (!wanted(what))
        return 0;
    cvn_graph *g = graph();
    cvn_value *x = cvn_parameter(g, "a", a), *y = cvn_parameter(g, "b", b);
    double s = run_case(what, dot_kernels_amx, cvn_einsum_as(g, equation, x, y, out), NULL,
                        operations, true);
    cvn_graph_free(g);
    return s;
}

#define BF16(...) CVN_TYPE(CVN_BF16, __VA_ARGS__)

/* The three products of a weight [n, k] with m tokens, as a training step has them. */
static double training(int64_t m, int64_t k, int64_t n)
{
    double operations = (double)m * (double)k * (double)n;
    return product("mk,nk->mn", BF16(m, k), BF16(n, k), CVN_BF16, operations) +
           product("mn,nk->mk", BF16(m, n), BF16(n, k), CVN_BF16, operations) +
           product("mn,mk->nk", BF16(m, n), BF16(m, k), CVN_F32, operations);
}

/* ---- products with weights in panels ---- */

typedef struct LinearCase {
    int64_t m, k, n;
    int weights;
    bool swiglu, norm, residual, int8; /* int8: x is brought to 8 bits */
} LinearCase;

static double linear(cvn_dtype dtype, const LinearCase *c)
{
    enum { GROUP = 64 };
    char what[80];
    snprintf(what, sizeof what, "linear %s%s %lld x %lld x %lld%s%s%s", cvn_dtype_name(dtype),
             c->int8 ? " x i8" : "", (long long)c->m, (long long)c->k, (long long)c->n * c->weights,
             c->swiglu ? " swiglu" : "", c->norm ? " norm" : "", c->residual ? " residual" : "");
    if (!wanted(what))
        return 0;
    cvn_graph *g = graph();
    cvn_dtype rows = c->norm ? CVN_F32 : CVN_BF16, to = c->residual ? CVN_F32 : CVN_BF16;
    cvn_linear_spec spec = {
        .contract = 1, .n_weights = c->weights, .swiglu = c->swiglu, .int8 = c->int8, .eps = 1e-5};
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(rows, c->m, c->k)), *out[3];
    for (int i = 0; i < c->weights; i++) {
        int64_t groups = dtype == CVN_I4 ? c->k / GROUP : 1;
        spec.q[i] = cvn_parameter(g, "q", panel_type(dtype, c->n, c->k));
        if (panel_scaled(dtype))
            spec.scale[i] = cvn_parameter(
                g, "s", panel_scale_type(dtype == CVN_I4 ? CVN_BF16 : CVN_F32, c->n, groups));
        spec.type[i] = CVN_TYPE(to, c->m, c->n);
    }
    if (c->norm)
        spec.norm = cvn_parameter(g, "norm", BF16(c->k));
    if (c->residual)
        spec.residual = cvn_parameter(g, "r", CVN_TYPE(CVN_F32, c->m, c->n));
    cvn_linear(g, x, &spec, out);
    /* x in 8 and 4 bits has two bytes for each number: two products of tiles, each of twice the numbers */
    double operations = (double)c->m * (double)c->k * (double)c->n * c->weights;
    const Kernel *table = dtype == CVN_BF16 ? linear_float_kernels_amx : linear_kernels_amx;
    if (c->int8) {
        table = linear_int8_kernels_amx;
        operations /= 2;
    }
    double s = run_case(what, table, out[0], NULL, c->m > 64 ? operations : 0, true);
    cvn_graph_free(g);
    return s;
}

static double linear_int8(int64_t m, int64_t k, int64_t n)
{
    char what[64];
    snprintf(what, sizeof what, "linear_int8 %lld x %lld x %lld", (long long)m, (long long)k,
             (long long)n);
    if (!wanted(what))
        return 0;
    cvn_graph *g = graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I8, m, k));
    cvn_value *step = cvn_parameter(g, "step", BF16(m, 1));
    cvn_value *q = cvn_parameter(g, "q", panel_type(CVN_I8, n, k));
    cvn_value *scale = cvn_parameter(g, "scale", panel_scale_type(CVN_F32, n, 1));
    double operations = (double)m * (double)k * (double)n / 2;
    double s = run_case(what, linear_int8_kernels_amx,
                        cvn_linear_int8(g, x, step, q, scale, CVN_TYPE(CVN_BF16, m, n)), NULL,
                        operations, true);
    cvn_graph_free(g);
    return s;
}

/* ---- attention ---- */

typedef struct AttentionCase {
    int64_t batch, seq, context, heads, kv_heads, head_dim;
    bool gradient;
} AttentionCase;

static double attention(const AttentionCase *c)
{
    char what[80];
    snprintf(what, sizeof what, "attention%s %lld x %lld of %lld, %lld/%lld of %lld",
             c->gradient ? " gradient" : "", (long long)c->batch, (long long)c->seq,
             (long long)c->context, (long long)c->heads, (long long)c->kv_heads,
             (long long)c->head_dim);
    if (!wanted(what))
        return 0;
    cvn_graph *g = graph();
    cvn_type cache = BF16(c->batch, c->kv_heads, c->context, c->head_dim);
    cvn_type queries = BF16(c->batch, c->seq, c->heads, c->head_dim);
    cvn_value *q = cvn_parameter(g, "q", queries), *out[3];
    cvn_value *k = cvn_parameter(g, "k", cache), *v = cvn_parameter(g, "v", cache);
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, c->batch));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, c->batch));
    int32_t starts[8], lengths[8];
    for (int i = 0; i < 8; i++) {
        starts[i] = (int32_t)(c->context - c->seq);
        lengths[i] = (int32_t)c->seq;
    }
    const void *inputs[] = {NULL, NULL, NULL, starts, lengths, NULL};
    if (c->gradient)
        cvn_attention_backward(g, q, k, v, start, length, NULL, cvn_parameter(g, "dy", queries),
                               0.125, out);
    else
        out[0] = cvn_attention(g, q, k, v, start, length, NULL, 0.125);
    double keys = (double)c->seq * ((double)c->context - (double)(c->seq - 1) / 2);
    double operations = (double)(c->batch * c->heads * c->head_dim) * keys * (c->gradient ? 5 : 2);
    double s = run_case(what, c->gradient ? attention_backward_kernels_amx : attention_kernels_amx,
                        out[0], inputs, operations, true);
    cvn_graph_free(g);
    return s;
}

/* ---- a prompt and a decode step of llama3.2-1b ---- */

enum { LAYERS = 16, WIDTH = 2048, KV = 512, INNER = 8192, VOCAB = 128256 };

/* Products of a layer: q, k and v as one of their summed width. */
static double layer(cvn_dtype dtype, bool int8, int64_t m)
{
    return linear(dtype, &(LinearCase){m, WIDTH, WIDTH + 2 * KV, 1, .norm = true, .int8 = int8}) +
           linear(dtype, &(LinearCase){m, WIDTH, WIDTH, 1, .residual = true, .int8 = int8}) +
           linear(dtype,
                  &(LinearCase){m, WIDTH, INNER, 2, .swiglu = true, .norm = true, .int8 = int8}) +
           linear(dtype, &(LinearCase){m, INNER, WIDTH, 1, .residual = true, .int8 = int8});
}

static void llama(cvn_dtype dtype, bool int8, int64_t m, bool prompt)
{
    double seconds = LAYERS * layer(dtype, int8, m), head = 0, parameters = LAYERS * 60.8e6;
    if (prompt)
        seconds += LAYERS * attention(&(AttentionCase){1, m, m, 32, 8, 64, false});
    else
        head = linear(dtype, &(LinearCase){m, WIDTH, VOCAB, 1, .norm = true});
    seconds += prompt ? 525e6 / (dtype == CVN_BF16 ? 1 : 2) / 30e9 : head; /* one row: its bytes */
    double peak = 2.0 * THREADS * 8192 / (PRODUCT_PS * 1e-12);
    if (*only)
        return;
    printf("  llama3.2-1b %s%s, %s of %lld: %.1f ms, %.0f tokens/s", cvn_dtype_name(dtype),
           int8 ? ", x i8" : "", prompt ? "prompt" : "batch", (long long)m, seconds * 1e3,
           (double)m / seconds);
    if (prompt)
        printf(", %.0f%% of the peak of bf16 by its products alone",
               100 * 2 * parameters * (double)m / seconds / peak);
    printf("\n");
}

static const char *const group[] = {"products", "linear", "attention",
                                    "prompts",  "decode", "training"};

static void run_group(int i)
{
    if (i == 0) {
        product("mk,nk->mn", BF16(2048, 2048), BF16(2048, 2048), CVN_F32, 0x1p33);
        product("mk,nk->mn", BF16(512, 4096), BF16(11008, 4096), CVN_F32, 512.0 * 4096 * 11008);
        linear_int8(2048, 2048, 2048);
        linear_int8(512, 4096, 11008);
    } else if (i == 1) {
        for (int d = 0; d < 3; d++) {
            static const cvn_dtype dtype[] = {CVN_BF16, CVN_I8, CVN_I4};
            linear(dtype[d], &(LinearCase){512, 2048, 8192, .weights = 1});
            linear(dtype[d], &(LinearCase){512, 8192, 2048, .weights = 1});
            linear(dtype[d], &(LinearCase){2048, 2048, 8192, .weights = 1});
        }
    } else if (i == 2) {
        attention(&(AttentionCase){1, 512, 512, 32, 8, 64, false});
        attention(&(AttentionCase){1, 2048, 2048, 32, 8, 64, false});
        attention(&(AttentionCase){1, 2048, 2048, 8, 8, 128, false});
        attention(&(AttentionCase){2, 1024, 1024, 12, 12, 64, false});
        attention(&(AttentionCase){2, 1024, 1024, 12, 12, 64, true});
        attention(&(AttentionCase){1, 2048, 2048, 8, 8, 128, true});
    } else if (i == 3) {
        llama(CVN_BF16, false, 512, true);
        llama(CVN_BF16, false, 2048, true);
        llama(CVN_I8, false, 512, true);
        llama(CVN_I8, true, 512, true);
    } else if (i == 4) {
        llama(CVN_I8, false, 32, false);
        llama(CVN_I8, true, 32, false);
        llama(CVN_I8, false, 16, false);
        llama(CVN_BF16, false, 32, false);
    } else {
        double s = 12 * (4 * training(2048, 768, 768) + 3 * training(2048, 768, 2048)) +
                   training(2048, 768, 32000);
        if (!*only)
            printf("  products of a step of stories110m, 2,048 tokens: %.0f ms\n", s * 1e3);
    }
}

int main(int argc, char **argv)
{
    int chosen = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0)
            verbose = true;
        else if (strcmp(argv[i], "-o") == 0)
            model_overlap = 1;
        else if (strcmp(argv[i], "-l") == 0 && i + 1 < argc)
            l3_bytes = strtol(argv[++i], NULL, 10) << 20;
        else
            only = argv[i];
    }
    for (int i = 0; i < (int)(sizeof group / sizeof *group); i++)
        if (strcmp(only, group[i]) == 0)
            chosen = i;
    if (chosen >= 0)
        only = "";
    model_begin(l3_bytes, 0); /* already for what asks kernels whether they match */
    for (int i = 0; i <= 1024; i++)
        model_above[i] = (uint32_t)((pow(1 + pow((double)i / 1024, 3.5), 1 / 3.5) - 1) * (1 << 20));
    printf("%-44s %9s %5s | %5s %5s %5s %5s %5s %5s %5s %5s | %6s\n", "", "ms", "peak%", "chain",
           "L1", "L2", "L3", "mem", "late", "store", "instr", "GB/s");
    for (int i = 0; i < (int)(sizeof group / sizeof *group); i++)
        if (chosen < 0 || i == chosen)
            run_group(i);
    return 0;
}
