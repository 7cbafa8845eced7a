/* Steps are measured one by one, and a clock's seconds are what a simulated step takes. */
#include "cpu/registry.h"
#include "cpu/steps.h"
#include "model/presets.h"
#include "model_make.h"
#include "plan_verify.h"
#include "sim/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static Plan *small_plan(int threads)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("small", &err);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 8, 64));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 32, 64));
    cvn_value *y = cvn_tanh(g, cvn_einsum_as(g, "mk,nk->mn", x, w, CVN_F32));
    cvn_output(g, cvn_multiply(g, y, y));
    const CompileOptions options = {.backend = cpu_kernels(), .n_threads = threads};
    Plan *plan;
    if (compile_verified(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    cvn_graph_free(g);
    return plan;
}

static void every_step_takes_time(void **state)
{
    (void)state;
    for (int devices = 1; devices <= 2; devices++) {
        cvn_err err = {0};
        double seconds[64];
        Plan *plan = small_plan(1);
        assert_true(plan->n_steps > 0 && plan->n_steps < 64);
        if (steps_measure(plan, devices, 0, seconds, &err))
            fail_msg("%s", err.message);
        for (int i = 0; i < plan->n_steps; i++)
            assert_true(seconds[i] > 0 && seconds[i] < 60);
        plan_free(plan);
    }
}

typedef struct Ticks {
    int plans, steps;
    int32_t at;
} Ticks;

static int tick(void *context, const Plan *plan, int32_t at, double *seconds, cvn_err *err)
{
    Ticks *t = context;
    (void)err;
    t->plans++;
    t->steps = plan->n_steps;
    t->at = at;
    for (int i = 0; i < plan->n_steps; i++)
        seconds[i] = 1;
    return CVN_OK;
}

static int broken(void *context, const Plan *plan, int32_t at, double *seconds, cvn_err *err)
{
    (void)context, (void)plan, (void)at, (void)seconds;
    return err_set(err, CVN_EMEM, "the clock is broken");
}

static int simulate(SimTask task, const StepClock *clock, Timed *timed, cvn_err *err)
{
    SimAnswer a;
    SimAsk ask = {.mesh = "",
                  .layout = "dp",
                  .task = task,
                  .batch = 2,
                  .seq = task == SIM_DECODE ? 1 : 32,
                  .context = 64,
                  .compute = CVN_BF16,
                  .chip = chip_find("h100_sxm"),
                  .clock = clock,
                  .device = backends[0],
                  .threads = 1};
    ask.model = model_preset("tiny");
    ask.train.clip = 1;
    ask.train.optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(ask.model).params);
    int code = sim_plan(&ask, &a, err);
    *timed = a.timed;
    sim_answer_free(&a);
    return code;
}

static void a_step_takes_what_its_clock_says(void **state)
{
    (void)state;
    for (int task = SIM_TRAIN; task <= SIM_DECODE; task++) {
        cvn_err err = {0};
        Ticks ticks = {0};
        Timed timed;
        const StepClock clock = {tick, &ticks};
        if (simulate((SimTask)task, &clock, &timed, &err))
            fail_msg("%s", err.message);
        assert_int_equal(ticks.plans, 1); /* of the program that was asked for alone */
        assert_true(timed.seconds == ticks.steps && timed.cost.seconds == timed.seconds);
        assert_int_equal(ticks.at, task == SIM_DECODE ? 63 : 0);
    }
}

static void a_clock_that_fails_is_an_error(void **state)
{
    (void)state;
    cvn_err err = {0};
    Timed timed;
    const StepClock clock = {broken, NULL};
    assert_int_equal(simulate(SIM_DECODE, &clock, &timed, &err), CVN_EMEM);
    assert_string_equal(err.message, "the clock is broken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_step_takes_time),
                                       cmocka_unit_test(a_step_takes_what_its_clock_says),
                                       cmocka_unit_test(a_clock_that_fails_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
