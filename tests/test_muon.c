/* Muon of a stack of experts: each matrix moves as it would alone, whichever of its sides is the longer one. */
#include "graph/graph.h"
#include "graph/interp/interp.h"
#include "splitmix.h"
#include "train/optimizer.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

enum { EXPERTS = 3, LONG = 9, SHORT = 5, ELEMENTS = LONG * SHORT };

/* The weights and momenta of `experts` matrices after a step; 0: of one that belongs to none. */
static void step(int64_t experts, int64_t rows, int64_t columns, const float *const in[3],
                 float *weight, float *momentum)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("muon", &err);
    const OptimizerOptions options = optimizer_defaults(OPTIMIZER_MUON, 1000);
    const int64_t matrices = experts ? experts : 1, n = matrices * rows * columns;
    Param p = {.kind = experts ? PARAM_EXPERT_UP : PARAM_UP,
               .experts = experts,
               .rank = experts ? 3 : 2,
               .dims = {experts ? experts : rows, experts ? rows : columns, columns},
               .file_rank = 2,
               .file_dims = {matrices * rows, columns},
               .n = n};
    const cvn_type type = cvn_type_make(CVN_F32, p.rank, p.dims);
    cvn_value *rate = cvn_splat(g, cvn_scalar(CVN_F32), 0.5);
    cvn_value *const scalar[OPTIMIZER_MAX_SCALARS] = {rate, rate, rate, rate};
    OptimizerUpdate u = {.g = g,
                         .options = &options,
                         .param = &p,
                         .compute = CVN_F32,
                         .scalar = scalar,
                         .weight = cvn_parameter(g, "w", type),
                         .gradient = cvn_parameter(g, "g", type),
                         .state = {cvn_parameter(g, "m", type)}};
    optimizer_muon_update(&u);
    cvn_output(g, u.new_weight);
    cvn_output(g, u.new_state[0]);
    void *out[2] = {NULL};
    if (cvn_graph_check(g, &err) || interp_run_one(g, (const void *const *)in, out, &err))
        fail_msg("%s", err.message);
    memcpy(weight, out[0], (size_t)n * sizeof *weight);
    memcpy(momentum, out[1], (size_t)n * sizeof *momentum);
    free(out[0]);
    free(out[1]);
    cvn_graph_free(g);
}

static void check(int64_t rows, int64_t columns)
{
    float in[3][EXPERTS * ELEMENTS], all[2][EXPERTS * ELEMENTS], one[2][ELEMENTS];
    double moved = 0;
    uint64_t seed = 7;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < EXPERTS * ELEMENTS; i++)
            in[k][i] = (float)(draw(&seed, 2001) - 1000) / 1000.0F *
                       (float)(1 + i / ELEMENTS * 10); /* experts of other lengths */
    step(EXPERTS, rows, columns, (const float *const[]){in[0], in[1], in[2]}, all[0], all[1]);
    for (int e = 0; e < EXPERTS; e++) {
        const int at = e * ELEMENTS;
        step(0, rows, columns, (const float *const[]){in[0] + at, in[1] + at, in[2] + at}, one[0],
             one[1]);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < ELEMENTS; i++)
                if (!(fabsf(all[k][at + i] - one[k][i]) <= 1e-5F * (1 + fabsf(one[k][i]))))
                    fail_msg("expert %d, element %d: %g, alone %g", e, i, (double)all[k][at + i],
                             (double)one[k][i]);
        for (int i = 0; i < ELEMENTS; i++)
            moved += fabs((double)one[0][i] - (double)in[0][at + i]);
    }
    assert_true(moved > 1);
}

static void experts_move_as_they_would_alone(void **state)
{
    (void)state;
    check(SHORT, LONG);
    check(LONG, SHORT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(experts_move_as_they_would_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
