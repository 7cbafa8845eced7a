/*
 * For the tests of devices that work together: graphs of random collectives, run on a group of devices and by the
 * interpreter, and compared bit for bit. Inputs are a function of the seed and the device's number, so that every
 * process of a mesh can compute what all devices should get.
 */
#ifndef CVN_TESTS_MESH_SUPPORT_H
#define CVN_TESTS_MESH_SUPPORT_H

#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/registry.h"
#include "graph/interp/interp.h"
#include "plan_verify.h"
#include "random_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of group_size of the ids 0 … n - 1, in random order. */
static inline void random_groups(uint64_t *state, int n, int64_t *groups)
{
    for (int i = 0; i < n; i++)
        groups[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = draw(state, i + 1);
        int64_t id = groups[i];
        groups[i] = groups[j];
        groups[j] = id;
    }
}

/* A random divisor of n. */
static inline int random_divisor(uint64_t *state, int n)
{
    int d;
    do
        d = 1 + draw(state, n);
    while (n % d);
    return d;
}

/* A reducer that the dtype has. */
static inline cvn_reduce random_reducer(uint64_t *state, cvn_dtype dtype)
{
    static const cvn_reduce number[] = {CVN_SUM, CVN_SUM, CVN_PRODUCT, CVN_MAX, CVN_MIN};
    static const cvn_reduce truth[] = {CVN_ALL, CVN_ANY};
    return dtype == CVN_BOOL ? truth[draw(state, 2)] : number[draw(state, 5)];
}

/* x through a collective of this kind. */
static inline cvn_value *add_collective(cvn_graph *g, uint64_t *state, OpKind kind, cvn_value *x,
                                        int n_devices, int group_size)
{
    int64_t groups[2 * 64];
    random_groups(state, n_devices, groups);
    if (x->type.dtype == CVN_I4 && (kind == OP_ALL_REDUCE || kind == OP_REDUCE_SCATTER))
        kind = OP_ALL_TO_ALL; /* i4 cannot be reduced */
    int n_groups = n_devices / group_size, axis = draw(state, x->type.rank);
    cvn_reduce reduce = random_reducer(state, x->type.dtype);
    while (x->type.dim[axis] % group_size) /* dimensions begin as multiples; most stay so */
        if (++axis == x->type.rank)
            return x;
    switch (kind) {
    case OP_ALL_REDUCE:
        return cvn_all_reduce(g, x, reduce, n_groups, group_size, groups);
    case OP_ALL_GATHER:
        return cvn_all_gather(g, x, axis, n_groups, group_size, groups);
    case OP_REDUCE_SCATTER:
        return cvn_reduce_scatter(g, x, reduce, axis, n_groups, group_size, groups);
    case OP_ALL_TO_ALL:
        return cvn_all_to_all(g, x, axis, draw(state, x->type.rank), n_groups, group_size, groups);
    default: { /* each device sends to one and gets from one, but for some pairs that are left out */
        int64_t pairs[2 * 64], to[64];
        int n = draw(state, n_devices + 1);
        random_groups(state, n_devices, to);
        for (int i = 0; i < n; i++) {
            pairs[2 * i] = groups[i];
            pairs[2 * i + 1] = to[i];
        }
        return cvn_collective_permute(g, x, n, pairs);
    }
    }
}

/* One collective, or several after each other when chain > 1. */
static inline cvn_graph *collective_graph(uint64_t seed, OpKind kind, cvn_dtype dtype,
                                          int n_devices, int group_size, int chain)
{
    static const OpKind kinds[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL,
                                   OP_COLLECTIVE_PERMUTE};
    cvn_graph *g = cvn_graph_new("collective", NULL);
    cvn_type type = {.dtype = dtype, .rank = 1 + draw(&seed, 3)};
    for (int d = 0; d < type.rank; d++)
        type.dim[d] = group_size * (1 + draw(&seed, d == 0 ? 9 : 3));
    cvn_value *x = cvn_parameter(g, "x", type);
    for (int i = 0; i < chain; i++) {
        x = add_collective(g, &seed, i ? kinds[draw(&seed, 5)] : kind, x, n_devices, group_size);
        if (cvn_graph_check(g, NULL) || cvn_type_elements(&x->type) > 100000)
            break;
        if (chain > 1 && draw(&seed, 2) && dtype != CVN_BOOL && dtype != CVN_I4)
            x = cvn_add(g, x, x);
        if (draw(&seed, 3) == 0)
            cvn_output(g, x);
    }
    cvn_output(g, x);
    if (draw(&seed, 2))
        cvn_output(g, cvn_partition_id(g));
    return g;
}

/* [n_devices * n_parameters], to be freed with random_free. */
static inline void **mesh_inputs(const cvn_graph *g, uint64_t seed, int n_devices)
{
    int n = g->n_parameters;
    void **inputs = calloc((size_t)(n_devices * n) + 1, sizeof *inputs);
    for (int d = 0; d < n_devices; d++) {
        void **own = random_inputs(g, seed + (uint64_t)d * 7919, seed % 5 == 0);
        memcpy(inputs + d * n, own, (size_t)n * sizeof *own);
        free(own);
    }
    return inputs;
}

/* Runs g on the group and by the interpreter; 0 when every device of this process got the same bits, else -1 with a
   sentence. */
static inline int mesh_check(DeviceGroup *group, const cvn_graph *g, uint64_t seed, char *why,
                             size_t size)
{
    Comm *comm = group->comm;
    int n_devices = comm_size(comm), n_local = comm_local(comm), rc = -1;
    CompileOptions options = {.backend = cpu_kernels(),
                              .n_threads = device_threads(group->device[0])};
    cvn_err err = {0};
    Plan *plan = NULL;
    if (cvn_graph_check(g, &err) || compile_verified(g, &options, &plan, &err)) {
        snprintf(why, size, "%s", err.message);
        return -1;
    }
    int np = plan->n_parameters, no = plan->n_outputs;
    void **inputs = mesh_inputs(g, seed, n_devices);
    void **want = calloc((size_t)(n_devices * no) + 1, sizeof *want);
    void **got = calloc((size_t)(n_local * no) + 1, sizeof *got);
    if (interp_run(g, n_devices, (const void *const *)inputs, want, &err) ||
        group_run(group, plan, inputs + comm_first(comm) * np, got, &err)) {
        snprintf(why, size, "%s", err.message);
        goto done;
    }
    for (int i = 0; i < n_local * no; i++) {
        const cvn_type *type = &plan->output[i % no].type;
        int64_t at = random_difference(type, got[i], want[comm_first(comm) * no + i]);
        if (at < 0)
            continue;
        snprintf(why, size, "device %d, output %d (%s): element %d is %g and should be %g",
                 comm_first(comm) + i / no, i % no, cvn_dtype_name(type->dtype), (int)at,
                 element_get(type->dtype, got[i], at),
                 element_get(type->dtype, want[comm_first(comm) * no + i], at));
        goto done;
    }
    rc = 0;
done:
    random_free(inputs, n_devices * np);
    random_free(want, n_devices * no);
    free(got);
    plan_free(plan);
    return rc;
}

/* Every collective, dtype and group size on this group, `repeats` times, and chains of them. */
static inline int mesh_check_all(DeviceGroup *group, int repeats, char *why, size_t size)
{
    static const OpKind kinds[] = {OP_ALL_REDUCE, OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_TO_ALL,
                                   OP_COLLECTIVE_PERMUTE};
    int n = comm_size(group->comm);
    uint64_t seed = 1;
    for (int repeat = 0; repeat < repeats; repeat++)
        for (int k = 0; k < 5; k++)
            for (int dtype = 0; dtype < CVN_DTYPE_COUNT; dtype++)
                for (int size_ = 1; size_ <= n; size_++, seed++) {
                    if (n % size_)
                        continue;
                    cvn_graph *g = collective_graph(seed, kinds[k], (cvn_dtype)dtype, n, size_,
                                                    1 + (int)(seed % 3));
                    char reason[256] = "";
                    int rc = mesh_check(group, g, seed, reason, sizeof reason);
                    cvn_graph_free(g);
                    if (rc) {
                        snprintf(why, size, "seed %d, %s of %s, %d devices in groups of %d: %s",
                                 (int)seed, op_info[kinds[k]].name,
                                 cvn_dtype_name((cvn_dtype)dtype), n, size_, reason);
                        return rc;
                    }
                }
    return 0;
}

#endif
