/*
 * The copies of weights in the type of products, which the update writes beside the weights: that no step converts a
 * weight, that the copies are the weights rounded whatever a step was, on one device and on meshes, and that a state
 * that was filled anew has new ones.
 */
#include "graph/graph.h"
#include "io/convert.h"
#include "learn.h"
#include "tiny_llama.h"
#include "train/trainer.h"
#include "unit.h"

#include <math.h>
#include <stddef.h>

enum { BATCH = 6, SEQ = 8 };

static bool is_copy(const cvn_value *v)
{
    return strncmp(v->def->attr.name, PARAM_ROUNDED, strlen(PARAM_ROUNDED)) == 0;
}

/* Copies among the parameters of a graph; fails where it converts a parameter to what enters products. */
static int copies_of(TrainGraph kind, const Model *config, const TrainStepOptions *options)
{
    cvn_err err = {0};
    cvn_graph *g = train_graph(kind, config, options, &err);
    int n = 0;
    if (!g)
        fail_msg("%s", err.message);
    for (const Op *op = g->first; op; op = op->next) {
        bool of_weight = op->kind == OP_CONVERT && op->operand[0]->def->kind == OP_PARAMETER &&
                         op->operand[0]->type.rank > 1 && op->operand[0]->type.dtype == CVN_F32;
        Arena arena;
        must(arena_init(&arena, &err), &err);
        if (of_weight && graph_uses(g, &arena)[op->result[0]->id] && options->lora.rank == 0)
            fail_msg("'%s' is converted", op->operand[0]->def->attr.name);
        arena_free(&arena);
    }
    for (int i = 0; i < g->n_parameters; i++)
        n += is_copy(g->parameter[i]);
    cvn_graph_free(g);
    return n;
}

static void no_step_converts_a_weight(void **state)
{
    static const TrainGraph graphs[] = {TRAIN_STEP, TRAIN_GRADIENT, TRAIN_UPDATE, TRAIN_EVALUATE};
    for (int model = 0; model < TINY_LLAMAS; model++)
        for (int i = 0; i < 4 * REMAT_POLICY_COUNT; i++) {
            Model *config = tiny_llama_config(&tiny_llamas[model]);
            TrainStepOptions o = {.batch = 2,
                                  .seq = 8,
                                  .compute = CVN_BF16,
                                  .remat = (RematPolicy)(i / 4),
                                  .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, 20000)};
            int matrices =
                (int)(7 * model_layers(config) + 1); /* and the head, which the table may be */
            assert_int_equal(copies_of(graphs[i % 4], config, &o), matrices);
            o.compute = CVN_F32;
            assert_int_equal(copies_of(graphs[i % 4], config, &o), 0);
            o.compute = CVN_BF16;
            o.lora = (LoraOptions){.rank = 2, .alpha = 4, .targets = 1u << PARAM_Q};
            assert_int_equal(copies_of(graphs[i % 4], config, &o), 0);
        }
}

static void check_copies(const Trainer *t, const char *what)
{
    const Runtime *rt = &t->stage->rt;
    int n_copies = 0;
    for (int d = 0; d < rt->info.n_local; d++)
        for (int i = 0; i < t->state.n_weights; i++) {
            const Buffer *weight = runtime_buffer(rt, ROLE_TRAINED, i);
            const Buffer *copy = runtime_buffer(rt, ROLE_ROUNDED, i);
            int64_t n = copy ? cvn_type_elements(&weight->local) : 0;
            if (!copy)
                continue;
            assert_int_equal(cvn_type_elements(&copy->local), n);
            uint16_t *want = calloc((size_t)n + 1, sizeof *want);
            io_encode(CVN_BF16, buffer_address(rt, weight, d), n, want);
            if (memcmp(want, buffer_address(rt, copy, d), (size_t)n * sizeof *want) != 0)
                fail_msg("%s: the copy of %s on device %d is not that of the weight", what,
                         t->state.params.param[i].name, d);
            free(want);
            n_copies++;
        }
    assert_true(n_copies >= 7 * rt->info.n_local);
}

static void fill_batch(uint64_t seed, int vocab, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = draw(&seed, vocab);
        targets[i] = tokens[i] * 3 % vocab;
    }
}

/* One step on the batch of a number; the loss. */
static double step_on(Trainer *t, uint64_t seed, bool updates)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], starts[BATCH * SEQ] = {0};
    TrainReport report;
    cvn_err err = {0};
    fill_batch(seed, (int)model_vocab(t->model), tokens, targets);
    must(trainer_step(t, &(TrainBatch){.tokens = tokens, .targets = targets, .starts = starts},
                      &report, &err),
         &err);
    assert_true(report.updated == updates);
    return report.loss;
}

/* Steps, of which the third is none because a norm is infinite for a while; the losses of the others. */
static void train(const Model *config, TrainerOptions o, const char *mesh, const char *layout,
                  double loss[4])
{
    Trainer t;
    cvn_err err = {0};
    char what[96];
    o.mesh = mesh;
    o.layout = layout;
    snprintf(what, sizeof what, "%s, %d at once, %s on %s", optimizers[o.optimizer.kind].name,
             (int)o.micro_batch, layout ? layout : "alone", mesh ? mesh : "one device");
    must(trainer_open(&t, config, &o, &err), &err);
    must(trainer_random(&t, 7, &err), &err);
    int norm = 1; /* the first layer's, whole on every device */
    assert_int_equal(t.state.params.param[norm].kind, PARAM_ATTN_NORM);
    for (int i = 0; i < 5; i++) {
        for (int d = 0; d < t.stage->rt.info.n_local; d++) {
            float *weight =
                buffer_address(&t.stage->rt, runtime_buffer(&t.stage->rt, ROLE_TRAINED, norm), d);
            static float kept;
            if (i == 2)
                kept = weight[3];
            weight[3] = i == 2 ? INFINITY : i == 3 ? kept : weight[3];
        }
        double got = step_on(&t, (uint64_t)i, i != 2);
        if (i != 2)
            loss[i - (i > 2)] = got;
        check_copies(&t, what);
    }
    trainer_close(&t);
}

static void copies_are_the_weights_rounded_after_every_step(void **state)
{
    static const char *const meshes[] = {NULL, "data=2", "model=3", "data=2,model=2"};
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    for (int model = 0; model < TINY_LLAMAS; model++)
        for (int i = model % 2; i < 4 * OPTIMIZER_COUNT; i += 2) {
            Model *config = tiny_llama_config(&tiny_llamas[model]);
            int64_t micro = i & 1 ? BATCH / 2 : BATCH;
            TrainerOptions o = learn_options((OptimizerKind)(i / 4), CVN_BF16, BATCH, micro, SEQ);
            double alone[4], meshed[4];
            o.remat = i & 2 ? REMAT_BLOCK : REMAT_NONE;
            train(config, o, NULL, NULL, alone);
            for (int l = 0; l < 6; l++) {
                const char *mesh = meshes[1 + (l + i + model) % 3];
                if ((l + 5 * i + model) % 6)
                    continue;
                train(config, o, mesh, layouts[l], meshed);
                for (int k = 0; k < 4; k++)
                    if (!(fabs(alone[k] - meshed[k]) < 2e-2))
                        fail_msg("%s on %s: loss %g, on one device %g", layouts[l], mesh, meshed[k],
                                 alone[k]);
            }
        }
}

/* A trainer that has trained and is filled anew begins as if it were new. */
static void weights_that_are_filled_anew_are_rounded_anew(void **state)
{
    Model *config = tiny_llama_config(&tiny_llamas[TINY_GQA]);
    for (int i = 0; i < 2; i++) {
        TrainerOptions o = learn_options(OPTIMIZER_ADAFACTOR, CVN_BF16, BATCH, BATCH, SEQ);
        Trainer t;
        cvn_err err = {0};
        o.mesh = i ? "data=2" : NULL;
        o.layout = "fsdp";
        must(trainer_open(&t, config, &o, &err), &err);
        must(trainer_random(&t, 7, &err), &err);
        double first = step_on(&t, 1, true), second = step_on(&t, 1, true);
        assert_true(first != second);
        must(trainer_random(&t, 7, &err), &err);
        assert_true(step_on(&t, 1, true) == first);
        must(trainer_random(&t, 8, &err), &err);
        int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], starts[BATCH * SEQ] = {0};
        fill_batch(1, (int)model_vocab(config), tokens, targets);
        TrainBatch batch = {.tokens = tokens, .targets = targets, .starts = starts};
        double sum = 0, count = 0; /* evaluating reads the copies, too */
        must(trainer_evaluate(&t, &batch, &sum, &count, &err), &err);
        assert_true(fabs(sum / count - step_on(&t, 1, true)) < 1e-3); /* a step rounds its logits */
        trainer_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_converts_a_weight),
        cmocka_unit_test(copies_are_the_weights_rounded_after_every_step),
        cmocka_unit_test(weights_that_are_filled_anew_are_rounded_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
