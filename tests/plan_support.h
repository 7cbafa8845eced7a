/*
 * For the tests of plans: backends that provoke lowering, an executor too simple to be wrong, and random graphs
 * with the outputs that are hard (parameters, constants, views, swaps, the same value twice).
 */
#ifndef CVN_TESTS_PLAN_SUPPORT_H
#define CVN_TESTS_PLAN_SUPPORT_H

#include "base/threads.h"
#include "compile/lower.h"
#include "compile/pipeline.h"
#include "cpu/registry.h"
#include "graph/interp/interp.h"
#include "random_graph.h"

#include <stdlib.h>
#include <string.h>

/* ---- a backend that allows everything a kernel may allow ---- */

static inline size_t eager_scratch(const Op *op, int n_threads)
{
    size_t bytes = 0;
    (void)n_threads;
    for (int i = 0; i < op->n_results; i++)
        bytes += (cvn_type_bytes(&op->result[i]->type) + 63) / 64 * 64;
    return bytes;
}

/* The interpreter's result, by way of scratch, so that it may go over any operand. Thread 0 computes, all threads
   copy their part; or thread 0 does it all. */
static inline void eager_kernel(const KernelArgs *args)
{
    const Op *op = args->op;
    void *result[8];
    char *scratch = args->scratch;
    for (int i = 0; i < op->n_results; i++) {
        result[i] = scratch;
        scratch += (cvn_type_bytes(&op->result[i]->type) + 63) / 64 * 64;
    }
    if (args->thread == 0)
        interp_op(op, args->in, result);
    if (op->kind % 2) /* as in eager_backend: odd kinds are for all threads */
        kernel_sync(args);
    for (int i = 0; i < op->n_results; i++) {
        int64_t begin, end, n = (int64_t)cvn_type_bytes(&op->result[i]->type);
        int n_threads = op->kind % 2 ? args->n_threads : 1;
        kernel_share(n, 4, args->thread, n_threads, &begin, &end);
        if (begin < end)
            memcpy((char *)args->out[i] + begin, (char *)result[i] + begin, (size_t)(end - begin));
    }
}

typedef struct EagerBackend {
    KernelSet backend;
    Kernel kernel[OP_COUNT];
    const Kernel *table[OP_COUNT];
} EagerBackend;

/* A kernel for every operation that takes scratch and may write over every operand. */
static inline const KernelSet *eager_backend(EagerBackend *eager)
{
    for (int i = 0; i < OP_COUNT; i++) {
        eager->kernel[i] = (Kernel){.name = "eager",
                                    .kind = (OpKind)i,
                                    .scratch = eager_scratch,
                                    .run = eager_kernel,
                                    .in_place = ~0u,
                                    .single = i % 2 == 0};
        eager->table[i] = &eager->kernel[i];
    }
    eager->backend = (KernelSet){
        .name = "eager", .kernel = eager->table, .n_kernels = OP_COUNT, .fallback = cpu_fallback};
    return &eager->backend;
}

static const KernelSet interpreter_backend = {.name = "interpreter", .fallback = cpu_fallback};

/* ---- one operation after the other, each result in memory of its own, on one thread ---- */

static inline void run_op_alone(const KernelSet *backend, const Op *op, void **memory)
{
    const Kernel *kernel = lower_kernel(backend, op);
    size_t bytes = kernel ? kernel_scratch(kernel, op, 1) : 0;
    void *scratch = bytes ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;
    const void **in = calloc((size_t)op->n_operands + 1, sizeof *in);
    void *out[8] = {0};
    size_t result_bytes = 0;
    for (int i = 0; i < op->n_operands; i++)
        in[i] = memory[op->operand[i]->id];
    for (int i = 0; i < op->n_results; i++) {
        size_t n = cvn_type_bytes(&op->result[i]->type);
        out[i] = memory[op->result[i]->id] = aligned_alloc(64, (n + 64) / 64 * 64);
        result_bytes += n;
    }
    Barrier barrier;
    barrier_init(&barrier, 1);
    KernelArgs args = {.op = op,
                       .in = in,
                       .out = out,
                       .scratch = scratch,
                       .barrier = &barrier,
                       .n_threads = 1,
                       .isa = kernel ? kernel->isa : NULL};
    if (result_bytes)
        (kernel ? kernel->run : backend->fallback)(&args);
    free(in);
    free(scratch);
}

/* outputs [g->n_outputs], each to be freed. */
static inline void run_alone(const cvn_graph *g, const KernelSet *backend, void *const *inputs,
                             void **outputs)
{
    void **memory = calloc((size_t)g->n_values + 1, sizeof *memory);
    for (int i = 0; i < g->n_parameters; i++)
        memory[g->parameter[i]->id] = inputs[i];
    for (const Op *op = g->first; op; op = op->next)
        if (op->kind != OP_PARAMETER)
            run_op_alone(backend, op, memory);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_value *v = g->output[i].value;
        size_t bytes = cvn_type_bytes(&v->type);
        outputs[i] = malloc(bytes + 1);
        memcpy(outputs[i], memory[v->id], bytes);
    }
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results && op->kind != OP_PARAMETER; i++)
            free(memory[op->result[i]->id]);
    free(memory);
}

/* ---- random graphs ---- */

static inline bool into_is_free(const cvn_graph *g, const cvn_value *parameter)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i].into == parameter)
            return false;
    return true;
}

/* Adds outputs that are anything at all, some of them into parameters. */
static inline void add_hard_outputs(cvn_graph *g, uint64_t seed)
{
    int n = draw(&seed, 8);
    for (const Op *op = g->first; op && n > 0; op = op->next) {
        if (draw(&seed, 4))
            continue;
        n--;
        cvn_value *v = op->result[draw(&seed, op->n_results)], *into = NULL;
        for (int p = 0; p < g->n_parameters; p++)
            if (cvn_type_equal(&g->parameter[p]->type, &v->type) &&
                into_is_free(g, g->parameter[p]) && draw(&seed, 3))
                into = g->parameter[p];
        if (into)
            cvn_output_into(g, v, into);
        else
            cvn_output(g, v);
    }
}

/* Of every eight one is of what is fused, on tensors that are large enough for tile programs, and one on small ones. */
static inline cvn_graph *hard_graph(uint64_t seed)
{
    int64_t rows = seed % 8 == 7 ? RANDOM_ROWS : seed % 8 == 3 ? 1 + (int64_t)(seed / 8 % 31) : 0;
    RandomOptions options = {.n_ops = 5 + (int)(seed % 40),
                             .n_parameters = 2 + (int)(seed % 7),
                             .most_elements = rows ? 4 * rows * RANDOM_COLUMNS : 300,
                             .rows = rows,
                             .composites = seed % 3 == 0,
                             .into = true};
    cvn_graph *g = random_graph(seed, &options);
    if (g)
        add_hard_outputs(g, seed);
    return g;
}

#endif
