/*
 * Programs that are compiled whole: that the optimizer's are, on every instruction set, and that they change no bit,
 * whatever is chosen and however many elements are left over.
 */
#include "fuse_support.h"

#include "model/presets.h"
#include "model_make.h"
#include "train/step.h"

#include <math.h>

enum {
    ROWS = 131, /* no multiple of a vector */
    MANY = 983, /* of which copies are written past the caches */
    COLUMNS = 67
};

/* One tensor's update, with the choice not to make it, as the row of the table that it is. */
static cvn_graph *update_graph(WholeKind kind, int64_t rows)
{
    cvn_graph *g = cvn_graph_new("update", NULL);
    const Param param = {
        .name = "w", .rank = 2, .dims = {rows, COLUMNS}, .file_rank = 2, .n = rows * COLUMNS};
    const OptimizerOptions options = optimizer_defaults(OPTIMIZER_ADAMW, 1000000);
    const Optimizer *adamw = &optimizers[OPTIMIZER_ADAMW];
    cvn_type type = CVN_TYPE(CVN_F32, rows, COLUMNS);
    cvn_value *scalar[OPTIMIZER_MAX_SCALARS];
    for (int i = 0; i < adamw->n_scalars; i++)
        scalar[i] = cvn_parameter(g, adamw->scalar[i], cvn_scalar(CVN_F32));
    cvn_value *scale = cvn_parameter(g, "scale", cvn_scalar(CVN_F32));
    bool half = kind == WHOLE_ADAMW_HALF;
    cvn_value *d = cvn_parameter(g, "d", CVN_TYPE(half ? CVN_BF16 : CVN_F32, rows, COLUMNS));
    d = half ? cvn_convert(g, d, CVN_F32) : d;
    OptimizerUpdate u = {.g = g,
                         .options = &options,
                         .param = &param,
                         .scalar = scalar,
                         .weight = cvn_parameter(g, "w", type),
                         .gradient = cvn_multiply(g, d, cvn_broadcast_to(g, scale, &type)),
                         .state = {cvn_parameter(g, "m", type), cvn_parameter(g, "v", type)}};
    cvn_value *copy =
        kind == WHOLE_ADAMW ? NULL : cvn_parameter(g, "c", CVN_TYPE(CVN_BF16, rows, COLUMNS));
    cvn_value *updated = cvn_is_finite(g, scale);
    adamw->update(&u);
    cvn_value *weight = cvn_select(g, updated, u.new_weight, u.weight);
    cvn_output_into(g, weight, u.weight);
    if (copy)
        cvn_output_into(g, cvn_convert(g, weight, CVN_BF16), copy);
    for (int k = 0; k < 2; k++)
        cvn_output_into(g, cvn_select(g, updated, u.new_state[k], u.state[k]), u.state[k]);
    return g;
}

static void an_update_is_compiled_whole_and_changes_no_bit(void **state)
{
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        const KernelSet plain = plain_of(backend);
        for (int i = 0; i < 12 * (WHOLE_ADAMW_HALF + 1); i++) {
            WholeKind wanted = (WholeKind)(i / 12);
            float scale = i & 1 ? 0.5f : (float)INFINITY; /* whether the update is made */
            cvn_graph *g = update_graph(wanted, i / 6 & 1 ? MANY : ROWS);
            Ran apart = run_with(g, &plain, 1, "scale", scale);
            Ran whole = run_with(g, backend, 1 + i / 2 % 3, "scale", scale);
            assert_int_equal(apart.whole, WHOLE_COUNT);
            if (whole.whole != wanted)
                fail_msg("%s: update %d is not compiled whole; its hash is 0x%llx",
                         cpu_isa_name((CpuIsa)isa), (int)wanted, (unsigned long long)whole.hash);
            assert_int_equal(apart.bytes, whole.bytes);
            if (memcmp(apart.data, whole.data, whole.bytes) != 0)
                fail_msg("%s: other bits when compiled whole", cpu_isa_name((CpuIsa)isa));
            free(apart.data);
            free(whole.data);
            cvn_graph_free(g);
        }
    }
}

/* As the steps of training have them: with clipping and without, from gradients or their sums. */
static void steps_of_training_have_updates_that_are_compiled_whole(void **state)
{
    Model *config = model_preset("stories260k");
    cvn_err err = {0};
    for (int i = 0; i < 8; i++) {
        bool half = i & 1 && !(i & 4);
        TrainStepOptions o = {.batch = 1,
                              .seq = 64,
                              .compute = i & 1 ? CVN_BF16 : CVN_F32,
                              .clip = i & 2 ? 1 : 0,
                              .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, 260000)};
        cvn_graph *g = train_graph(i & 4 ? TRAIN_UPDATE : TRAIN_STEP, config, &o, &err);
        CompileOptions options = {.backend = cpu_kernels(), .n_threads = 2};
        Plan *plan;
        int n = 0;
        assert_non_null(g);
        assert_int_equal(compile_graph(g, &options, &plan, &err), CVN_OK);
        for (int s = 0; s < plan->n_steps; s++) {
            const Op *op = plan->step[s].op;
            if (op->kind != OP_REGION || op->n_results < 3)
                continue;
            WholeKind kind = whole_find(op->fused->program[0]);
            n += kind == (half ? WHOLE_ADAMW_HALF : i & 1 ? WHOLE_ADAMW_ROUNDED : WHOLE_ADAMW);
        }
        if (n < 3 * model_layers(config))
            fail_msg("%d updates of step %d are compiled whole", n, i);
        plan_free(plan);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_is_compiled_whole_and_changes_no_bit),
        cmocka_unit_test(steps_of_training_have_updates_that_are_compiled_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
