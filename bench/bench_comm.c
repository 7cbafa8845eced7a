/*
 * Bytes and time of each collective, over all devices: threads
 * of this process, or processes where a launcher has started it.
 *
 *     bench_comm [devices per process] [KiB per device]
 *     mpirun -n 4 bench_comm 1 1024
 *
 * Times are medians of a run of 8 collectives after each other, per collective. Bandwidth is what
 * one device takes from others (2 S (n - 1) / n bytes for an all_reduce of S) over that time.
 */
#include "comm/account.h"
#include "comm/cluster.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/registry.h"

#include <stdio.h>
#include <stdlib.h>

enum { CHAIN = 8, REPEATS = 11 };

static const OpKind kinds[] = {OP_ALL_REDUCE, OP_REDUCE_SCATTER, OP_ALL_GATHER, OP_ALL_TO_ALL,
                               OP_COLLECTIVE_PERMUTE};

/* CHAIN collectives of the same operand, each with a result of its own. */
static cvn_graph *make_graph(OpKind kind, cvn_dtype dtype, int n, int64_t elements)
{
    int64_t groups[128], pairs[256];
    cvn_graph *g = cvn_graph_new("bench", NULL);
    elements -= elements % n;
    for (int i = 0; i < CHAIN; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        cvn_value *x = cvn_parameter(g, name, CVN_TYPE(dtype, elements));
        for (int d = 0; d < n; d++) {
            groups[d] = pairs[2 * d] = d;
            pairs[2 * d + 1] = (d + 1) % n;
        }
        cvn_value *y = kind == OP_ALL_REDUCE ? cvn_all_reduce(g, x, CVN_SUM, 1, n, groups)
                       : kind == OP_REDUCE_SCATTER
                           ? cvn_reduce_scatter(g, x, CVN_SUM, 0, 1, n, groups)
                       : kind == OP_ALL_GATHER ? cvn_all_gather(g, x, 0, 1, n, groups)
                       : kind == OP_ALL_TO_ALL ? cvn_all_to_all(g, x, 0, 0, 1, n, groups)
                                               : cvn_collective_permute(g, x, n, pairs);
        cvn_output(g, y);
    }
    return g;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of one collective. */
static double measure(DeviceGroup *group, const Plan *plan, void *const *parameters)
{
    double seconds[REPEATS];
    cvn_err err = {0};
    for (int i = -1; i < REPEATS; i++) {
        int64_t begin = clock_ns();
        if (group_run(group, plan, parameters, NULL, &err)) {
            fprintf(stderr, "bench_comm: %s\n", err.message);
            exit(1);
        }
        if (i >= 0)
            seconds[i] = (double)(clock_ns() - begin) * 1e-9 / CHAIN;
    }
    qsort(seconds, REPEATS, sizeof *seconds, by_value);
    return seconds[REPEATS / 2];
}

static int bench(DeviceGroup *group, OpKind kind, cvn_dtype dtype, int64_t bytes, bool prints)
{
    Comm *comm = group->comm;
    cvn_graph *g = make_graph(kind, dtype, comm_size(comm), bytes * 8 / cvn_dtype_bits(dtype));
    CompileOptions options = {.backend = cpu_kernels(),
                              .n_threads = device_threads(group->device[0])};
    Plan *plan = NULL;
    cvn_err err = {0};
    if (compile_graph(g, &options, &plan, &err)) {
        fprintf(stderr, "bench_comm: %s\n", err.message);
        return 1;
    }
    int n = comm_local(comm);
    void **parameters = calloc((size_t)(n * plan->n_parameters), sizeof *parameters);
    for (int i = 0; i < n * plan->n_parameters; i++)
        parameters[i] = calloc(1, (size_t)bytes);
    CommTable before, after;
    comm_table(comm, &before);
    double seconds = measure(group, plan, parameters);
    comm_table(comm, &after);
    double moved =
        (comm_table_sum(&after).bytes - comm_table_sum(&before).bytes) / (CHAIN * (REPEATS + 1));
    if (prints)
        printf("%-20s %-5s %10.0f bytes %10.1f us %8.2f GB/s per device\n", op_info[kind].name,
               cvn_dtype_name(dtype), moved, seconds * 1e6, moved / seconds * 1e-9);
    for (int i = 0; i < n * plan->n_parameters; i++)
        free(parameters[i]);
    free(parameters);
    plan_free(plan);
    cvn_graph_free(g);
    return 0;
}

int main(int argc, char **argv)
{
    int n_local = argc > 1 ? (int)strtol(argv[1], NULL, 10) : transport_launched() ? 1 : 4;
    int64_t bytes = 1024 * (argc > 2 ? strtol(argv[2], NULL, 10) : 1024);
    cvn_err err = {0};
    Cluster *cluster = NULL;
    ClusterOptions options = {.settings = "bench_comm"};
    int rc = transport_launched() ? cluster_open(&options, &cluster, &err) : CVN_OK;
    Comm *comm = rc ? NULL : comm_new(n_local, cluster ? cluster_transport(cluster) : NULL, &err);
    DeviceGroup *group = comm ? group_new(comm, 0, NULL, &err) : NULL;
    if (!group || comm_size(comm) > 128) {
        fprintf(stderr, "bench_comm: %s\n", group ? "at most 128 devices" : err.message);
        return 1;
    }
    bool prints = !cluster || cluster_rank(cluster) == 0;
    if (prints)
        printf("%d devices, %d in each of %d processes, %d threads each, %lld KiB per device\n",
               comm_size(comm), n_local, comm_size(comm) / n_local,
               device_threads(group->device[0]), (long long)bytes / 1024);
    for (int k = 0; k < 5 && !rc; k++)
        rc = bench(group, kinds[k], CVN_F32, bytes, prints) ||
             bench(group, kinds[k], CVN_BF16, bytes, prints);
    group_free(group);
    comm_free(comm);
    cluster_close(cluster);
    return rc;
}
