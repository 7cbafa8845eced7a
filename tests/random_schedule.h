/*
 * Random graphs in which collectives can be brought forward and put off: of parameters, of what prepares them, of what
 * was computed just now and long ago, and of each other; some parameters are written. Any schedule must give their
 * bits, whatever carries the bytes.
 */
#ifndef TESTS_RANDOM_SCHEDULE_H
#define TESTS_RANDOM_SCHEDULE_H

#include "mesh_support.h"

enum { SCHEDULE_SIDE = 12, SCHEDULE_ELEMENTS = SCHEDULE_SIDE * SCHEDULE_SIDE };

/* One of the values made so far; the later ones more often. */
static inline cvn_value *schedule_pick(uint64_t *state, cvn_value *const *made, int n)
{
    int back = draw(state, 2) ? draw(state, n) : draw(state, n < 6 ? n : 6);
    return made[n - 1 - back];
}

/* Makes a square of one or two; the number of devices divides its side. */
static inline cvn_value *schedule_piece(cvn_graph *g, uint64_t *state, cvn_value *x, cvn_value *y,
                                        int devices)
{
    static const int64_t flat[] = {SCHEDULE_ELEMENTS}, square[] = {SCHEDULE_SIDE, SCHEDULE_SIDE};
    static const int swap[] = {1, 0};
    int64_t ids[SCHEDULE_SIDE], pairs[2 * SCHEDULE_SIDE];
    char name[24];
    for (int i = 0; i < devices; i++) {
        ids[i] = pairs[2 * i] = i;
        pairs[2 * i + 1] = (i + 1) % devices;
    }
    switch (draw(state, 13)) {
    case 0: /* parameters may be made anywhere */
        snprintf(name, sizeof name, "p%d", g->n_parameters);
        return cvn_parameter(g, name, CVN_TYPE(CVN_F32, SCHEDULE_SIDE, SCHEDULE_SIDE));
    case 1:
        return cvn_convert(g, cvn_convert(g, x, CVN_BF16), CVN_F32);
    case 2:
        return cvn_transpose(g, x, swap);
    case 3:
        return cvn_reshape(g, cvn_reshape(g, x, 1, flat), 2, square);
    case 4:
        x = cvn_all_gather(g, x, 0, 1, devices, ids);
        return cvn_slice_axis(g, x, 0, 5, 5 + SCHEDULE_SIDE);
    case 5:
        x = cvn_all_gather(g, cvn_convert(g, x, CVN_BF16), 1, 1, devices, ids);
        return cvn_convert(g, cvn_slice_axis(g, x, 1, 3, 3 + SCHEDULE_SIDE), CVN_F32);
    case 6:
        return cvn_all_reduce(g, x, CVN_SUM, 1, devices, ids);
    case 7:
        x = cvn_reduce_scatter(g, x, CVN_MAX, 0, 1, devices, ids);
        return cvn_all_gather(g, x, 0, 1, devices, ids);
    case 8:
        return cvn_reshape(g, cvn_all_to_all(g, x, 0, 1, 1, devices, ids), 2, square);
    case 9:
        return cvn_collective_permute(g, x, devices, pairs);
    case 10:
        return cvn_tanh(g, cvn_einsum(g, "ij,jk->ik", x, y));
    default:
        return cvn_tanh(g, cvn_add(g, x, y));
    }
}

static inline cvn_graph *random_schedule(uint64_t seed, int devices)
{
    enum { PIECES = 40 };
    cvn_graph *g = cvn_graph_new("random", NULL);
    cvn_value *made[PIECES] = {
        cvn_parameter(g, "x", CVN_TYPE(CVN_F32, SCHEDULE_SIDE, SCHEDULE_SIDE))};
    for (int n = 1; n < PIECES; n++) {
        cvn_value *x = schedule_pick(&seed, made, n), *y = schedule_pick(&seed, made, n);
        made[n] = schedule_piece(g, &seed, x, y, devices);
    }
    for (int i = 0; i < g->n_parameters; i++)
        if (draw(&seed, 3) == 0)
            cvn_output_into(g, schedule_pick(&seed, made, PIECES), g->parameter[i]);
    for (int i = 0; i < 3; i++)
        cvn_output(g, schedule_pick(&seed, made, PIECES));
    return g;
}

/* Runs a plan twice on the group; outputs and parameters of devices [first, first + n) afterwards, to be freed. */
static inline float *schedule_run(DeviceGroup *group, const Plan *plan, int first, int n,
                                  cvn_err *err)
{
    enum { N = SCHEDULE_ELEMENTS };
    Comm *comm = group->comm;
    int np = plan->n_parameters, no = plan->n_outputs, own = comm_first(comm);
    int n_local = comm_local(comm);
    float *inputs = calloc((size_t)(n_local * np) * N + 1, sizeof *inputs), *at;
    float *bits = calloc((size_t)(n * (np + no)) * N, sizeof *bits);
    void **in = calloc((size_t)(n_local * np) + 1, sizeof *in);
    void **out = calloc((size_t)(n_local * no) + 1, sizeof *out);
    int rc = CVN_OK;
    for (int i = 0; i < n_local * np; i++) {
        in[i] = inputs + (size_t)i * N;
        for (int k = 0; k < N; k++) /* numbers that stay in range */
            inputs[i * N + k] = (float)(((own * np + i) * 37 + k * 11) % 64 - 32) / 64;
    }
    for (int step = 0; step < 2 && !rc; step++)
        rc = group_run(group, plan, in, out, err);
    at = bits;
    for (int i = (first - own) * no; !rc && i < (first - own + n) * no; i++, at += N)
        memcpy(at, out[i], N * sizeof *at);
    for (int i = (first - own) * np; !rc && i < (first - own + n) * np; i++, at += N)
        memcpy(at, in[i], N * sizeof *at);
    free(inputs);
    free(in);
    free(out);
    if (rc)
        free(bits);
    return rc ? NULL : bits;
}

/* Runs a random graph without overlap on one group and with overlap on both, of as many devices, of which `second`
   may have a part in this process. 0 when the devices that both have here get the same bits; *split counts. */
static inline int schedule_check(DeviceGroup *reference, DeviceGroup *second, uint64_t seed,
                                 int *split, char *why, size_t size)
{
    static const Link links[] = {{0, 0}, {1e-9, 0}, {1e-7, 1e9}, {1e-3, 1e9}};
    DeviceGroup *const groups[] = {reference, reference, second};
    Comm *comm = second->comm;
    int first = comm_first(comm), n = comm_local(comm), rc = 0;
    cvn_graph *g = random_schedule(seed, comm_size(comm));
    size_t bytes = (size_t)(n * (g->n_parameters + g->n_outputs)) * SCHEDULE_ELEMENTS * 4;
    float *want = NULL;
    cvn_err err = {0};
    for (int i = 0; i < 3 && !rc; i++) {
        Plan *plan = NULL;
        CompileOptions options = {.backend = cpu_kernels(),
                                  .n_threads = device_threads(groups[i]->device[0]),
                                  .blocking = i == 0,
                                  .link = links[seed % 4]};
        float *got = NULL;
        if (!cvn_graph_check(g, &err) && !compile_verified(g, &options, &plan, &err))
            got = schedule_run(groups[i], plan, first, n, &err);
        for (int k = 0; got && k < plan->n_steps; k++)
            *split += plan->step[k].phase == STEP_START;
        rc = !got || (want && memcmp(want, got, bytes) != 0);
        if (rc)
            snprintf(why, size, "%s", got ? "other bits with overlap" : err.message);
        plan_free(plan);
        if (want || rc)
            free(got);
        else
            want = got;
    }
    free(want);
    cvn_graph_free(g);
    return rc;
}

#endif
