/*
 * Holds every kernel that takes an operation to the interpreter's function.
 *
 * Each kernel of this machine (all instruction sets, best to portable) that matches is run on 1, 2
 * and 3 threads. Buffers end at a page that cannot be touched, so a read or write past the end is a
 * crash; they are aligned only as their elements are, because their sizes are odd. The result must
 * be near the reference, and the same bits for any number of threads. Kernels that work in place
 * are run so, too.
 */
#ifndef CVN_TESTS_KERNEL_CHECK_H
#define CVN_TESTS_KERNEL_CHECK_H

#include "base/threads.h"
#include "compile/region_plan.h"
#include "cpu/registry.h"
#include "graph/interp/interp.h"
#include "graph/region.h"
#include "splitmix.h"
#include "unit.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHECK_THREADS = 3, CHECK_OPERANDS = 16 };

/* Bytes that end where a page without access begins. */
typedef struct Guarded {
    void *map;
    size_t mapped;
    void *data; /* [bytes] */
    size_t bytes;
} Guarded;

static inline Guarded guarded_new(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    Guarded g = {.bytes = bytes, .mapped = (bytes + page - 1) / page * page + page};
    g.map = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    assert_int_equal(mprotect((char *)g.map + g.mapped - page, page, PROT_NONE), 0);
    g.data = (char *)g.map + g.mapped - page - bytes;
    return g;
}

static inline void guarded_free(Guarded *g)
{
    munmap(g->map, g->mapped);
}

/* Repeatable numbers for the tests: uniform in [0, 1). */
static uint64_t check_state = 1;

static inline double check_uniform(void)
{
    check_state = check_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(check_state >> 11) * 0x1p-53;
}

/* Fills a tensor: floats in [low, high), integers among the whole numbers there, bools 0 or 1. */
static inline void check_fill(const cvn_type *type, void *data, double low, double high)
{
    int64_t n = cvn_type_elements(type);
    for (int64_t i = 0; i < n; i++) {
        double x = low + (high - low) * check_uniform();
        bool whole = type->dtype >= CVN_I32;
        element_set(type->dtype, data, i,
                    type->dtype == CVN_BOOL ? check_uniform() < 0.5
                    : whole                 ? floor(x)
                                            : x);
    }
}

/* What activations and weights are made of. */
static const cvn_dtype check_floats[] = {CVN_F32, CVN_BF16, CVN_F16};

/* How far a result may be off, of its own size: a unit in the last place, and in f32, which sums are made in, a few. */
static inline double check_ulp(cvn_dtype dtype)
{
    return dtype == CVN_BF16 ? 0x1.01p-7 : dtype == CVN_F16 ? 0x1.01p-10 : 4e-6;
}

/* What is checked: an operation of a graph, its inputs, and how near a result must be. */
typedef struct Check {
    cvn_graph *g;
    const Op *op;
    const Op *region; /* which op runs, on the same operands; or NULL */
    Guarded in[CHECK_OPERANDS];
    double absolute, relative; /* |got - want| <= absolute + relative * |want| */
    int kernels;               /* how many kernels were run */
} Check;

static inline Check check_begin(void)
{
    cvn_err err = {0};
    Check c = {.g = cvn_graph_new("check", &err)};
    assert_non_null(c.g);
    return c;
}

/* A parameter of the graph. */
static inline cvn_value *check_parameter(Check *c, cvn_type type)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", c->g->n_parameters);
    return cvn_parameter(c->g, name, type);
}

/* All kernels of this machine. */
static inline const KernelSet *check_backend(void)
{
    const KernelSet *all = NULL;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
        if (cpu_kernels_of((CpuIsa)isa))
            all = cpu_kernels_of((CpuIsa)isa);
    assert_non_null(all);
    return all;
}

/* The graph so far, which makes v [n] of its parameters, is the body of a region; what a plan has for it is what to check. */
static inline void check_region(Check *c, cvn_value *const *v, int n)
{
    cvn_graph *g = check_begin().g;
    cvn_value *operand[CHECK_OPERANDS];
    for (int i = 0; i < n; i++)
        cvn_output(c->g, v[i]);
    for (int i = 0; i < c->g->n_parameters; i++)
        operand[i] = cvn_parameter(g, c->g->parameter[i]->name, c->g->parameter[i]->type);
    OpAttr attr = {.body = body_copy(g, c->g)};
    c->region = graph_add(g, OP_REGION, &attr, c->g->n_parameters, operand, NULL)->def;
    c->op = region_plan(check_backend(), c->region, &g->arena, &g->n_values);
    assert_non_null(c->op);
    for (int i = 0; i < c->op->n_operands; i++)
        assert_ptr_equal(c->op->operand[i], operand[i]);
    cvn_graph_free(c->g);
    c->g = g;
}

/* The operation that makes v [n] is the one to check, or where that reads others, all of them; makes its inputs, in [-1, 1). */
static inline void check_inputs_of(Check *c, cvn_value *const *v, int n)
{
    cvn_err err = {0};
    must(cvn_graph_check(c->g, &err), &err);
    c->op = v[0]->def;
    bool alone = true;
    for (int i = 0; i < c->op->n_operands; i++)
        alone = alone && c->op->operand[i]->def->kind == OP_PARAMETER;
    if (!alone)
        check_region(c, v, n);
    for (int i = 0; i < c->op->n_operands; i++) {
        const cvn_type *type = &c->op->operand[i]->type;
        c->in[i] = guarded_new(cvn_type_bytes(type));
        check_fill(type, c->in[i].data, -1, 1);
    }
}

static inline void check_inputs(Check *c, cvn_value *v)
{
    check_inputs_of(c, &v, 1);
}

static inline void check_end(Check *c)
{
    for (int i = 0; i < c->op->n_operands; i++)
        guarded_free(&c->in[i]);
    cvn_graph_free(c->g);
}

typedef struct CheckRun {
    const Kernel *kernel;
    KernelArgs args;
} CheckRun;

static inline void check_thread(void *context, int thread, int n_threads)
{
    CheckRun *run = context;
    KernelArgs args = run->args;
    args.thread = thread;
    args.n_threads = n_threads;
    args.isa = run->kernel->isa;
    run->kernel->run(&args);
}

/* A pool of n threads, 1 <= n <= CHECK_THREADS, that lives as long as the test. */
static inline Pool *check_pool(int n)
{
    static Pool *pools[CHECK_THREADS + 1];
    cvn_err err = {0};
    if (!pools[n])
        pools[n] = pool_new(n, &err);
    assert_non_null(pools[n]);
    return pools[n];
}

/* Runs a kernel; results are written to out. */
static inline void check_run(const Check *c, const Kernel *kernel, Pool *pool,
                             const void *const *in, void *const *out)
{
    size_t bytes = kernel_scratch(kernel, c->op, pool_threads(pool));
    size_t rounded = (bytes + 63) / 64 * 64;
    void *scratch = bytes ? aligned_alloc(64, rounded) : NULL;
    if (scratch)
        memset(scratch, 0xff, rounded); /* NaN wherever a kernel trusts it */
    CheckRun run = {
        kernel,
        {.op = c->op, .in = in, .out = out, .scratch = scratch, .barrier = pool_barrier(pool)}};
    pool_run(pool, check_thread, &run);
    free(scratch);
}

static inline void check_near(const Check *c, const Kernel *kernel, int threads, int result,
                              const void *got, const void *want)
{
    const cvn_type *type = &c->op->result[result]->type;
    for (int64_t i = 0; i < cvn_type_elements(type); i++) {
        double g = element_get(type->dtype, got, i), w = element_get(type->dtype, want, i);
        bool near = fabs(g - w) <= c->absolute + c->relative * fabs(w);
        if (!(near || g == w || (isnan(g) && isnan(w)))) {
            char text[TYPE_TEXT];
            fail_msg("%s on %d threads: element %lld of result %d %s is %.9g, not %.9g",
                     kernel->name, threads, (long long)i, result,
                     type_text(type, text, sizeof text), g, w);
        }
    }
}

/* One kernel: 1 … CHECK_THREADS threads, and in place. */
static inline void check_kernel(Check *c, const Kernel *kernel, void *const *want)
{
    const Op *op = c->op;
    Guarded out[CHECK_THREADS][OP_MOST_RESULTS];
    const void *in[CHECK_OPERANDS];
    for (int i = 0; i < op->n_operands; i++)
        in[i] = c->in[i].data;
    for (int t = 0; t < CHECK_THREADS; t++) {
        Pool *pool = check_pool(t + 1);
        void *data[OP_MOST_RESULTS];
        for (int r = 0; r < op->n_results; r++) {
            out[t][r] = guarded_new(cvn_type_bytes(&op->result[r]->type));
            memset(out[t][r].data, 0x5a, out[t][r].bytes);
            data[r] = out[t][r].data;
        }
        check_run(c, kernel, pool, in, data);
        for (int r = 0; r < op->n_results; r++) {
            check_near(c, kernel, t + 1, r, data[r], want[r]);
            if (memcmp(data[r], out[0][r].data, out[t][r].bytes) != 0)
                fail_msg("%s: other bits on %d threads than on one", kernel->name, t + 1);
        }
        for (int i = 0; i < op->n_operands; i++) {
            if (!(kernel->in_place & 1u << i) ||
                !cvn_type_equal(&op->operand[i]->type, &op->result[0]->type))
                continue;
            const void *same[CHECK_OPERANDS];
            memcpy(same, in, sizeof same);
            memcpy(data[0], in[i], out[t][0].bytes);
            same[i] = data[0];
            check_run(c, kernel, pool, same, data);
            check_near(c, kernel, t + 1, 0, data[0], want[0]);
        }
    }
    for (int t = 0; t < CHECK_THREADS; t++)
        for (int r = 0; r < op->n_results; r++)
            guarded_free(&out[t][r]);
}

/* Runs every kernel that takes the operation against the interpreter. At least `least` must. */
static inline void check_kernels(Check *c, int least)
{
    const Op *op = c->op;
    const KernelSet *all = check_backend();
    const void *in[CHECK_OPERANDS];
    void *want[OP_MOST_RESULTS];
    for (int i = 0; i < op->n_operands; i++)
        in[i] = c->in[i].data;
    for (int r = 0; r < op->n_results; r++) {
        want[r] = malloc(cvn_type_bytes(&op->result[r]->type) + 1);
        assert_non_null(want[r]);
    }
    interp_op(c->region ? c->region : op, in, want);
    for (int k = 0; k < all->n_kernels; k++) {
        const Kernel *kernel = all->kernel[k];
        if (!kernel_matches(kernel, op))
            continue;
        check_kernel(c, kernel, want);
        c->kernels++;
    }
    for (int r = 0; r < op->n_results; r++)
        free(want[r]);
    assert_true(c->kernels >= least);
}

/* First keys of queries, which their positions limit where these begin at `start`. */
typedef enum FirstKeys {
    FIRST_NONE,      /* there is no such operand */
    FIRST_DOCUMENTS, /* of 7 positions each; the first one began in the cache */
    FIRST_ITSELF,    /* every query sees one key only */
    FIRST_ANY,       /* anywhere up to the query; some negative */
    FIRST_COUNT
} FirstKeys;

static inline void check_fill_first(FirstKeys how, int64_t rows, int64_t seq, const int32_t *start,
                                    int64_t context, int32_t *first)
{
    uint64_t state = 5;
    for (int64_t i = 0; i < rows * seq; i++) {
        int64_t s = i % seq, here = start[i / seq] + s, n = here < context ? here : context - 1;
        if (how == FIRST_DOCUMENTS)
            n = s < 7 ? 0 : here - s % 7 < context ? here - s % 7 : context - 1;
        if (how == FIRST_ANY)
            n = n < 0 ? n : (int64_t)(splitmix(&state) % (uint64_t)(n + 4)) - 3;
        first[i] = (int32_t)n;
    }
}

#endif
