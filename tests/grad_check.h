/*
 * Gradients against central differences.
 *
 * A trial is a graph under construction, with data for its parameters. grad_check makes a loss of its
 * results, each element with a random weight, and compares, for random directions u,
 *
 *     (loss(x + h u) - loss(x - h u)) / 2h     with     sum of gradient * u
 *
 * both computed by the interpreter. On several devices the loss is the sum of theirs.
 */
#ifndef CVN_TESTS_GRAD_CHECK_H
#define CVN_TESTS_GRAD_CHECK_H

#include "grad/grad.h"
#include "graph/interp/interp.h"
#include "random_graph.h"
#include "unit.h"

enum { TRIAL_PARAMETERS = 12, TRIAL_DEVICES = 4 };

typedef struct Trial {
    cvn_graph *g;
    uint64_t random;
    int n_devices;
    void *data[TRIAL_DEVICES][TRIAL_PARAMETERS]; /* heap */
    cvn_value *wrt[TRIAL_PARAMETERS];            /* [n_wrt]: the parameters of floats */
    int n_wrt;
    double step, tolerance;
    const char *what;
} Trial;

static bool grad_seen[OP_COUNT]; /* kinds that were in a graph that was checked */

static inline double trial_number(Trial *t, double low, double high)
{
    return low + (high - low) * (double)(splitmix(&t->random) >> 11) * 0x1p-53;
}

static inline Trial trial_new(const char *what, int seed)
{
    Trial t = {.random = (uint64_t)seed, .n_devices = 1, .step = 1e-5, .tolerance = 1e-6};
    t.g = cvn_graph_new(what, NULL);
    t.what = what;
    assert_non_null(t.g);
    return t;
}

static inline cvn_value *trial_parameter(Trial *t, cvn_type type)
{
    char name[16];
    snprintf(name, sizeof name, "p%d", t->g->n_parameters);
    assert_true(t->g->n_parameters < TRIAL_PARAMETERS);
    cvn_value *v = cvn_parameter(t->g, name, type);
    if (t->g->err.code)
        fail_msg("%s: %s", t->what, t->g->err.message);
    return v;
}

/* A parameter of floats with elements in [low, high). */
static inline cvn_value *trial_real(Trial *t, cvn_type type, double low, double high)
{
    int p = t->g->n_parameters;
    cvn_value *v = t->wrt[t->n_wrt++] = trial_parameter(t, type);
    for (int d = 0; d < t->n_devices; d++) {
        t->data[d][p] = calloc(cvn_type_bytes(&type) + 8, 1);
        for (int64_t i = 0; i < cvn_type_elements(&type); i++)
            element_set(type.dtype, t->data[d][p], i, trial_number(t, low, high));
    }
    return v;
}

/* A parameter of integers with elements in [low, high]. */
static inline cvn_value *trial_whole(Trial *t, cvn_type type, int low, int high)
{
    int p = t->g->n_parameters;
    cvn_value *v = trial_parameter(t, type);
    for (int d = 0; d < t->n_devices; d++) {
        t->data[d][p] = calloc(cvn_type_bytes(&type) + 8, 1);
        for (int64_t i = 0; i < cvn_type_elements(&type); i++)
            element_set(type.dtype, t->data[d][p], i, low + draw(&t->random, high - low + 1));
    }
    return v;
}

/* The sum of all elements, each with a weight, as f64. */
static inline cvn_value *trial_weigh(Trial *t, cvn_value *v)
{
    cvn_graph *g = t->g;
    int dims[CVN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    cvn_type type = v->type;
    type.dtype = CVN_F64;
    double *weight = calloc((size_t)cvn_type_elements(&type) + 1, sizeof *weight);
    for (int64_t i = 0; i < cvn_type_elements(&type); i++)
        weight[i] = trial_number(t, -1, 1);
    cvn_value *w = cvn_constant(g, type, weight);
    free(weight);
    if (v->type.dtype != CVN_F64)
        v = cvn_convert(g, v, CVN_F64);
    return cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, v, w), type.rank, dims);
}

static inline double trial_dot(const cvn_type *type, const void *a, const double *b, double *size)
{
    double sum = 0;
    for (int64_t i = 0; i < cvn_type_elements(type); i++) {
        sum += element_get(type->dtype, a, i) * b[i];
        *size += fabs(element_get(type->dtype, a, i) * b[i]);
    }
    return sum;
}

/* Runs at x + h u; u may be NULL. Outputs are [n_devices][1 + n_wrt]. Returns the loss. */
static inline double trial_run(const Trial *t, double h, double *const *u, void **outputs)
{
    int n = t->g->n_parameters;
    void *moved[TRIAL_DEVICES * TRIAL_PARAMETERS] = {NULL};
    for (int d = 0; d < t->n_devices; d++) {
        for (int p = 0, w = 0; p < n; p++) {
            const cvn_type *type = &t->g->parameter[p]->type;
            void *copy = moved[d * n + p] = calloc(cvn_type_bytes(type) + 8, 1);
            memcpy(copy, t->data[d][p], cvn_type_bytes(type));
            if (w == t->n_wrt || t->wrt[w] != t->g->parameter[p])
                continue;
            for (int64_t i = 0; u && i < cvn_type_elements(type); i++)
                element_set(type->dtype, copy, i,
                            element_get(type->dtype, copy, i) + h * u[d * t->n_wrt + w][i]);
            w++;
        }
    }
    cvn_err err = {0};
    if (interp_run(t->g, t->n_devices, (const void *const *)moved, outputs, &err))
        fail_msg("%s: %s", t->what, err.message);
    double loss = 0;
    for (int d = 0; d < t->n_devices; d++)
        loss += element_get(t->g->output[0].value->type.dtype, outputs[d * (1 + t->n_wrt)], 0);
    for (int i = 0; i < t->n_devices * n; i++)
        free(moved[i]);
    return loss;
}

static inline void trial_free_outputs(const Trial *t, void **outputs)
{
    for (int i = 0; i < t->n_devices * (1 + t->n_wrt); i++)
        free(outputs[i]);
}

/* The slope along one random direction, of all inputs or (only >= 0) of one of them. */
static inline void trial_direction(Trial *t, void *const *outputs, int only)
{
    double *u[TRIAL_DEVICES * TRIAL_PARAMETERS], slope = 0, size = 0;
    void *scrap[TRIAL_DEVICES * (1 + TRIAL_PARAMETERS)];
    for (int d = 0; d < t->n_devices; d++) {
        for (int w = 0; w < t->n_wrt; w++) {
            const cvn_type *type = &t->wrt[w]->type;
            int64_t n = cvn_type_elements(type);
            double *along = u[d * t->n_wrt + w] = calloc((size_t)n + 1, sizeof *along);
            for (int64_t i = 0; i < n; i++)
                along[i] = only < 0 || only == w ? trial_number(t, -1, 1) : 0;
            slope += trial_dot(type, outputs[d * (1 + t->n_wrt) + 1 + w], along, &size);
        }
    }
    double more = trial_run(t, t->step, u, scrap);
    trial_free_outputs(t, scrap);
    double less = trial_run(t, -t->step, u, scrap);
    trial_free_outputs(t, scrap);
    double difference = (more - less) / (2 * t->step);
    if (!(fabs(difference - slope) <= t->tolerance * (size + 1e-3)))
        fail_msg("%s: the slope in a direction of input %d is %.12g, but the gradient says %.12g",
                 t->what, only, difference, slope);
    for (int i = 0; i < t->n_devices * t->n_wrt; i++)
        free(u[i]);
}

static inline void trial_free(Trial *t)
{
    for (int d = 0; d < t->n_devices; d++)
        for (int p = 0; p < t->g->n_parameters; p++)
            free(t->data[d][p]);
    cvn_graph_free(t->g);
}

/* Ends a trial: appends loss and gradients, compares, frees. */
static inline void grad_check(Trial *t, int n, cvn_value *const *results)
{
    cvn_err err = {0};
    cvn_value *loss = cvn_splat(t->g, cvn_scalar(CVN_F64), 0), *gradient[TRIAL_PARAMETERS];
    for (int i = 0; i < n; i++)
        loss = cvn_add(t->g, loss, trial_weigh(t, results[i]));
    if (cvn_graph_check(t->g, &err))
        fail_msg("%s: %s", t->what, err.message);
    for (const Op *op = t->g->first; op; op = op->next)
        grad_seen[op->kind] = true;
    if (graph_gradient(t->g, loss, t->n_wrt, t->wrt, gradient, &err))
        fail_msg("%s: %s", t->what, err.message);
    cvn_output(t->g, loss);
    for (int i = 0; i < t->n_wrt; i++)
        cvn_output(t->g, gradient[i]);
    if (graph_verify(t->g, &err))
        fail_msg("%s: %s", t->what, err.message);
    void *outputs[TRIAL_DEVICES * (1 + TRIAL_PARAMETERS)];
    trial_run(t, 0, NULL, outputs);
    trial_direction(t, outputs, -1);
    for (int w = 0; w < t->n_wrt; w++)
        trial_direction(t, outputs, w);
    trial_free_outputs(t, outputs);
    trial_free(t);
}

static inline void grad_check_one(Trial *t, cvn_value *result)
{
    grad_check(t, 1, &result);
}

#endif
