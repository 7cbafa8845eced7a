/*
 * Runs a graph in shards, all devices side by side in the interpreter, and compares with the same
 * graph run whole: what the tests of the partitioner are made of.
 */
#ifndef TESTS_SHARD_RUN_H
#define TESTS_SHARD_RUN_H

#include "graph/interp/interp.h"
#include "graph/text/text.h"
#include "shard/partition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Partitions, after propagation; 0 or the error. */
static inline int shard_make(const cvn_graph *g, const Mesh *mesh, cvn_graph **local,
                             PartitionReport *report, cvn_err *err)
{
    ShardResult r;
    int code = shard_propagate(g, mesh, &r, err);
    if (code)
        return code;
    code = shard_partition(g, mesh, &r, local, report, err);
    shard_result_free(&r);
    if (code == CVN_OK && (code = graph_verify(*local, err))) {
        cvn_graph_free(*local);
        partition_report_free(report);
    }
    return code;
}

/* Runs the local graph on all devices. inputs [n_parameters], whole; outputs [n_outputs], whole,
   each to be freed. */
static inline int shard_run(const cvn_graph *local, const Mesh *mesh, const PartitionReport *r,
                            const void *const *inputs, void **outputs, cvn_err *err)
{
    int n = mesh->n_devices, n_in = r->n_parameters, n_out = r->n_outputs;
    void **in = calloc((size_t)(n * n_in) + 1, sizeof *in);
    void **out = calloc((size_t)(n * n_out) + 1, sizeof *out);
    const void **part = calloc((size_t)n, sizeof *part);
    if (!in || !out || !part)
        abort();
    for (int d = 0; d < n; d++)
        for (int i = 0; i < n_in; i++) {
            const PartitionTensor *t = &r->parameter[i];
            in[d * n_in + i] = calloc(cvn_type_bytes(&t->local) + 1, 1);
            shard_scatter(mesh, &t->sharding, &t->global, inputs[i], d, in[d * n_in + i]);
        }
    int code = interp_run(local, n, (const void *const *)in, out, err);
    for (int i = 0; i < n_out; i++) {
        const PartitionTensor *t = &r->output[i];
        outputs[i] = calloc(cvn_type_bytes(&t->global) + 1, 1);
        for (int d = 0; d < n; d++)
            part[d] = out[d * n_out + i];
        if (code == CVN_OK)
            shard_gather(mesh, &t->sharding, &t->global, part, outputs[i]);
    }
    for (int i = 0; i < n * n_in; i++)
        free(in[i]);
    for (int i = 0; i < n * n_out; i++)
        free(out[i]);
    free(part);
    free(in);
    free(out);
    return code;
}

/* The largest difference between two tensors, over the largest element of the first; infinite where
   one is a number and the other is not. */
static inline double shard_difference(const cvn_type *type, const void *a, const void *b)
{
    double worst = 0, scale = 0;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double x = element_get(type->dtype, a, i), y = element_get(type->dtype, b, i);
        if (isfinite(x) && fabs(x) > scale)
            scale = fabs(x);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        double difference = fabs(x - y);
        worst = isnan(difference) ? INFINITY : fmax(worst, difference);
    }
    return worst > 0 ? worst / fmax(scale, 1e-6) : 0;
}

static inline void shard_print(const char *title, const cvn_graph *g)
{
    StrBuf out = {0};
    graph_print(&out, g);
    fprintf(stderr, "---- %s\n%s", title, out.text);
    strbuf_free(&out);
}

#endif
