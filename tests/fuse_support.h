/*
 * For the tests of fusion: backends that fuse nothing, and a runner that counts what a plan has and gives its outputs. What
 * fusing must not change is the bits, on every instruction set and by any number of threads.
 */
#ifndef CVN_TESTS_FUSE_SUPPORT_H
#define CVN_TESTS_FUSE_SUPPORT_H

#include "base/float16.h"
#include "compile/fuse.h"
#include "compile/fused.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/kernels/fusion_whole.h"
#include "cpu/registry.h"
#include "graph/graph.h"
#include "plan_verify.h"
#include "unit.h"

/* Fuses nothing. */
static inline KernelSet plain_of(const KernelSet *best)
{
    KernelSet plain = *best;
    plain.accepts = NULL;
    return plain;
}

static inline uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* What a run gives: the outputs, one after the other. */
typedef struct Ran {
    char *data;
    size_t bytes;
    int n_steps, n_fusions, n_programs;
    int n_epilogues; /* products with a fusion as their epilogue */
    WholeKind whole; /* what the last program of a region is known as, or WHOLE_COUNT */
    uint64_t hash;   /* and its hash */
    int64_t floats;  /* the most elements that an f32 result of a step has */
    size_t arena_bytes;
} Ran;

/* On what the parameters hold; those that outputs go into are written. */
static inline Ran run_on(const cvn_graph *g, const KernelSet *backend, int threads, void *const *at)
{
    cvn_err err = {0};
    Plan *plan;
    CompileOptions options = {.backend = backend, .n_threads = threads};
    must(compile_verified(g, &options, &plan, &err), &err);
    Device *device = device_new(threads, backend, &err);
    assert_non_null(device);
    void **out = calloc((size_t)plan->n_outputs + 1, sizeof *out);
    must(executor_run(device, plan, at, out, &err), &err);
    Ran ran = {.n_steps = plan->n_steps, .arena_bytes = plan->arena_bytes, .whole = WHOLE_COUNT};
    for (int i = 0; i < plan->n_steps; i++) {
        const Op *op = plan->step[i].op;
        const TileProgram *program = kernel_fused(op)->program[0];
        ran.n_fusions += op->kind == OP_REGION;
        if (op->kind == OP_REGION)
            ran.whole = whole_find(program), ran.hash = program->hash;
        ran.n_epilogues += op->kind == OP_DOT_GENERAL && program;
        ran.n_programs += strncmp(plan->step[i].kernel, "region.", 7) == 0;
        for (int k = 0; k < plan->step[i].op->n_results; k++) {
            const cvn_type *type = &plan->step[i].op->result[k]->type;
            int64_t n = type->dtype == CVN_F32 ? cvn_type_elements(type) : 0;
            ran.floats = n > ran.floats ? n : ran.floats;
        }
    }
    for (int i = 0; i < plan->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&plan->output[i].type);
        ran.data = realloc(ran.data, ran.bytes + bytes);
        memcpy(ran.data + ran.bytes, out[i], bytes);
        ran.bytes += bytes;
    }
    free(out);
    device_free(device);
    plan_free(plan);
    return ran;
}

/* Of random numbers; of parameters of one element, which may be divisors, above 0. That of the given name is `value`. */
static inline Ran run_with(const cvn_graph *g, const KernelSet *backend, int threads,
                           const char *name, float value)
{
    void **at = calloc((size_t)g->n_parameters + 1, sizeof *at);
    uint32_t state = 7;
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *parameter = g->parameter[i];
        size_t bytes = cvn_type_bytes(&parameter->type);
        at[i] = aligned_alloc(64, (bytes + 63) / 64 * 64);
        bool half = parameter->type.dtype == CVN_BF16;
        bool given = name && strcmp(parameter->name, name) == 0;
        size_t n = bytes / (half ? 2 : 4);
        for (size_t k = 0; k < n; k++) {
            float x = (float)next(&state) * 0x1p-23f - (n > 1 ? 1.0f : 0.0f);
            x = given ? value : x;
            if (half)
                ((uint16_t *)at[i])[k] = bf16_from_f32(x);
            else
                ((float *)at[i])[k] = x;
        }
    }
    Ran ran = run_on(g, backend, threads, at);
    for (int i = 0; i < g->n_parameters; i++)
        free(at[i]);
    free(at);
    return ran;
}

static inline Ran run(const cvn_graph *g, const KernelSet *backend, int threads)
{
    return run_with(g, backend, threads, NULL, 0);
}

/* What else must hold of a plan beside the one that is not fused. */
typedef void FusedCheck(const void *context, const char *isa, const Ran *apart, const Ran *fused);

/* Fused, a graph gives the bits that it gives apart, on every instruction set and by 1 to 4 threads. */
static inline void check_fused(const cvn_graph *g, FusedCheck *check, const void *context)
{
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        const char *name = cpu_isa_name((CpuIsa)isa);
        const KernelSet plain = plain_of(backend);
        Ran apart = run(g, &plain, 2);
        for (int threads = 1; threads <= 4; threads++) {
            Ran fused = run(g, backend, threads);
            check(context, name, &apart, &fused);
            if (apart.bytes != fused.bytes || memcmp(apart.data, fused.data, fused.bytes) != 0)
                fail_msg("%s, %d threads: other bits", name, threads);
            free(fused.data);
        }
        free(apart.data);
    }
}

#endif
