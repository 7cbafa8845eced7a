/*
 * A trainer whose model is divided into stages against the trainer of one device: losses, gradient norms and what is evaluated, with and
 * without micro-batches, alone and beside other axes; and the order of a step's tasks.
 */
#include "learn.h"
#include "model/layouts.h"
#include "model_make.h"
#include "scratch.h"
#include "sim/plan.h"
#include "sim/stages.h"
#include "tiny_llama.h"
#include "train/stages.h"

#include <math.h>

enum { BATCH = 4, SEQ = 8, STEPS = 3 };

typedef struct Curve {
    double loss[STEPS], norm[STEPS], evaluated;
} Curve;

/* Two documents in a row, and targets that are not learned. */
static void fill_batch(uint64_t seed, int vocab, TrainBatch *batch)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        batch->tokens[i] = draw(&seed, vocab);
        batch->targets[i] = draw(&seed, 7) > 0 ? batch->tokens[i] * 3 % vocab : -1;
        batch->starts[i] = i % SEQ < SEQ / 3 ? 0 : SEQ / 3;
    }
}

static void open_on(Trainer *t, const Model *model, TrainerOptions o, const char *mesh,
                    const char *layout)
{
    cvn_err err = {0};
    o.mesh = mesh;
    o.layout = layout;
    if (trainer_open(t, model, &o, &err))
        fail_msg("%s on %s: %s", layout ? layout : "no layout", mesh ? mesh : "one device",
                 err.message);
}

static void steps_of(Trainer *t, int steps, Curve *curve)
{
    TrainBatch batch;
    cvn_err err = {0};
    int vocab = (int)model_vocab(t->model);
    must(train_batch_new(&batch, BATCH, SEQ, &err), &err);
    for (int i = 0; i < steps; i++) {
        TrainReport report;
        fill_batch((uint64_t)t->state.saved.step, vocab, &batch);
        must(trainer_step(t, &batch, &report, &err), &err);
        assert_true(report.updated);
        curve->loss[i] = report.loss;
        curve->norm[i] = report.grad_norm;
    }
    double sum = 0, count = 0;
    fill_batch(99, vocab, &batch);
    must(trainer_evaluate(t, &batch, &sum, &count, &err), &err);
    curve->evaluated = sum / count;
    train_batch_free(&batch);
}

static void train(const Model *model, const TrainerOptions *o, const char *mesh, const char *layout,
                  Curve *curve)
{
    Trainer t;
    cvn_err err = {0};
    open_on(&t, model, *o, mesh, layout);
    must(trainer_random(&t, 7, &err), &err);
    steps_of(&t, STEPS, curve);
    trainer_close(&t);
}

static void compare(const Curve *a, const Curve *b, double tolerance, const char *what)
{
    for (int i = 0; i <= STEPS; i++) {
        double x = i < STEPS ? a->loss[i] : a->evaluated, y = i < STEPS ? b->loss[i] : b->evaluated;
        if (!(fabs(x - y) <= tolerance * fabs(x)))
            fail_msg("%s: step %d has the loss %.9g, on one device %.9g", what, i + 1, y, x);
        if (i < STEPS && !(fabs(a->norm[i] - b->norm[i]) <= 10 * tolerance * fabs(a->norm[i])))
            fail_msg("%s: step %d has the norm %.9g, on one device %.9g", what, i + 1, b->norm[i],
                     a->norm[i]);
    }
}

static Model *model_of(int which)
{
    return model_with(tiny_llama_config(&tiny_llamas[which]), "'num_hidden_layers': 5");
}

static TrainerOptions options_of(OptimizerKind optimizer, int64_t micro_batch)
{
    TrainerOptions o = learn_options(optimizer, CVN_F32, BATCH, micro_batch, SEQ);
    o.z_loss = 1e-4;
    return o;
}

/* Stages alone add everything as one device does: so they have its bits, but for an embedding that is the head, too. */
static void training_in_stages_is_training_on_one_device(void **state)
{
    static const struct {
        const char *mesh, *layout;
    } on[] = {
        {"stage=2", "pp"},
        {"stage=4", "pp"},
        {"stage=5", "pp"},
        {"data=2,stage=2", "fsdp+pp"},
        {"data=2,stage=2", "dp+pp"},
        {"stage=2,model=2", "tp+pp"},
        {"stage=2,model=2", "2d+pp"},
        {"stage=2,model=2", "tp-scatter+pp"},
        {"context=2,stage=2", "cp+pp"},
        {"data=2,stage=2,model=2", "2d+pp"},
    };
    for (int which = 0; which < TINY_LLAMAS; which++)
        for (int64_t micro = 1; micro <= BATCH; micro *= 2) {
            const Model *model = model_of(which);
            TrainerOptions o =
                options_of((OptimizerKind)((which + micro) % OPTIMIZER_COUNT), micro);
            Curve alone, other;
            train(model, &o, NULL, NULL, &alone);
            for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
                char what[128];
                bool bits = i < 3 && which != TINY_TIED &&
                            micro < BATCH; /* the batch at once is another graph */
                snprintf(what, sizeof what, "%s, %d rows at once, %s on %s",
                         tiny_llamas[which].name, (int)micro, on[i].layout, on[i].mesh);
                train(model, &o, on[i].mesh, on[i].layout, &other);
                compare(&alone, &other, bits ? 0 : 1e-6, what);
            }
        }
}

/* What is dropped, computed again, rounded, adapted or sent to experts is so in stages, too: the same bits. */
static void ways_to_train_are_the_same_in_stages(void **state)
{
    static const struct {
        const char *what, *family; /* settings of its config.json */
        RematPolicy remat;
        cvn_dtype compute;
        double dropout;
        int rank; /* of adapters */
    } ways[] = {
        {"bf16", "", REMAT_NONE, CVN_BF16, 0, 0},
        {"recomputed blocks", "", REMAT_BLOCK, CVN_F32, 0, 0},
        {"recomputed in part, bf16", "", REMAT_SELECTIVE, CVN_BF16, 0, 0},
        {"dropout", "", REMAT_BLOCK, CVN_F32, 0.3, 0},
        {"adapters", "", REMAT_NONE, CVN_F32, 0, 2},
        {"windows", "'model_type': 'ministral', 'sliding_window': 3", REMAT_NONE, CVN_F32, 0, 0},
        {"Gemma 2",
         "'model_type': 'gemma2', 'sliding_window': 4, 'attn_logit_softcapping': 1.5, "
         "'tie_word_embeddings': true",
         REMAT_SELECTIVE, CVN_F32, 0, 0},
        {"experts",
         "'model_type': 'mixtral', 'num_local_experts': 4, 'num_experts_per_tok': 2, "
         "'sliding_window': null",
         REMAT_NONE, CVN_F32, 0, 0},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int stages = 2; stages <= 4; stages += 2) {
            Model *model = model_of(TINY_GQA);
            TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH / 4);
            Curve alone, other;
            char mesh[32];
            if (ways[i].family[0])
                model = model_with(model, "%s", ways[i].family);
            o.remat = ways[i].remat;
            o.compute = ways[i].compute;
            o.dropout.hidden = o.dropout.attention = ways[i].dropout;
            o.lora.rank = ways[i].rank;
            o.lora.alpha = 2;
            o.lora.targets = ways[i].rank ? 1ull << PARAM_Q | 1ull << PARAM_V : 0;
            snprintf(mesh, sizeof mesh, "stage=%d", stages);
            train(model, &o, NULL, NULL, &alone);
            train(model, &o, mesh, "pp", &other);
            other.evaluated = alone.evaluated; /* of a program of its own */
            compare(&alone, &other, model_shape(model).tied ? 1e-6 : 0, ways[i].what);
        }
}

static const char *const places[] = {NULL,     "stage=2",        "stage=5", "data=2,stage=2",
                                     "data=2", "stage=2,model=2"};
enum { PLACES = sizeof places / sizeof *places };

/* What is saved on one mesh goes on on any other, as if it had never been elsewhere. */
static void runs_move_between_meshes_with_and_without_stages(void **state)
{
    for (int which = TINY_GQA; which <= TINY_TIED; which++) {
        const Model *model = model_of(which);
        TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH / 2);
        Curve alone;
        train(model, &o, NULL, NULL, &alone);
        for (int from = 0; from < PLACES; from++) {
            char name[64];
            Trainer t;
            Curve begin = {0};
            cvn_err err = {0};
            CheckpointOptions options = {.config = model};
            snprintf(name, sizeof name, "moves-%d-%d", which, from);
            open_on(&t, model, o, places[from], layout_for(places[from] ? places[from] : "", true));
            must(trainer_random(&t, 7, &err), &err);
            steps_of(&t, 1, &begin);
            file_make_folder(in_scratch(name), &err);
            must(checkpoint_write(in_scratch(name), &t.state.saved, &options, &err), &err);
            trainer_close(&t);
            for (int to = from % 2; to < PLACES; to += 2) {
                char folder[512], what[128];
                Checkpoint checkpoint;
                Curve end = {{0}, {0}, 0}, all = begin;
                snprintf(folder, sizeof folder, "%s/step-00000001", in_scratch(name));
                must(checkpoint_open(&checkpoint, folder, &err), &err);
                open_on(&t, model, o, places[to], layout_for(places[to] ? places[to] : "", true));
                must(trainer_restore(&t, &checkpoint, &err), &err);
                checkpoint_close(&checkpoint);
                steps_of(&t, STEPS - 1, &end);
                trainer_close(&t);
                for (int i = 1; i < STEPS; i++) {
                    all.loss[i] = end.loss[i - 1];
                    all.norm[i] = end.norm[i - 1];
                }
                all.evaluated = end.evaluated;
                snprintf(what, sizeof what, "%s, from %s to %s", tiny_llamas[which].name,
                         places[from] ? places[from] : "one device",
                         places[to] ? places[to] : "one device");
                compare(&alone, &all, 1e-6, what);
            }
        }
    }
}

/* Each micro-batch goes forward once and back once, after it; what waits is what stage_kept says; and channels that hold one tensor
   are enough. */
static void tasks_are_in_an_order_that_ends(void **state)
{
    enum { MOST = 8, MICRO = 16 };
    StageTask task[MOST][2 * MICRO];
    for (int n = 1; n <= MOST; n++)
        for (int micro = 1; micro <= MICRO; micro++) {
            int count[MOST], at[MOST] = {0}, forward[MOST + 1] = {0}, back[MOST + 1] = {0};
            for (int s = 0; s < n; s++) {
                count[s] = stage_tasks(s, n, micro, task[s]);
                assert_int_equal(count[s], s == n - 1 ? micro : 2 * micro);
                int begun = 0, ended = 0;
                for (int i = 0; i < count[s]; i++) {
                    bool ends = task[s][i].kind == TRAIN_GRADIENT;
                    assert_int_equal(task[s][i].micro, ends ? ended : begun);
                    begun += !ends || s == n - 1;
                    assert_true(begun - ended <= stage_kept(s, n, micro));
                    ended += ends;
                    assert_true(ended <= begun);
                }
            }
            for (bool moved = true; moved;) {
                moved = false;
                for (int s = 0; s < n; s++) {
                    if (at[s] == count[s])
                        continue;
                    bool ends = task[s][at[s]].kind == TRAIN_GRADIENT, last = s == n - 1;
                    bool takes = s > 0 && (!ends || last), takes_back = ends && !last;
                    if ((takes && !forward[s]) || (takes_back && !back[s + 1]) ||
                        (!ends && forward[s + 1]) || (ends && s && back[s]))
                        continue;
                    forward[s] -= takes;
                    back[s + 1] -= takes_back;
                    forward[s + 1] += !ends;
                    back[s] += ends && s;
                    at[s]++;
                    moved = true;
                }
            }
            for (int s = 0; s < n; s++)
                if (at[s] != count[s])
                    fail_msg("%d stages, %d micro-batches: stage %d waits for ever", n, micro, s);
        }
}

/* Stages that take as long as each other wait for (S - 1) / (M + S - 1) of the time, whatever of theirs is the forward pass. */
static void the_bubble_is_that_of_theory(void **state)
{
    for (int n = 1; n <= 8; n++)
        for (int micro = n; micro <= 32; micro *= 2) {
            StageTimes times[8];
            double bubble, theory = (n - 1.0) / (micro + n - 1.0);
            for (int s = 0; s < n; s++)
                times[s] = s == n - 1 ? (StageTimes){0, 3} : (StageTimes){1, 2};
            double seconds = stages_seconds(n, micro, times, 0, &bubble);
            assert_true(fabs(seconds - 3 * (micro + n - 1)) < 1e-9);
            assert_true(fabs(bubble - theory) < 1e-9);
            assert_true(stages_seconds(n, micro, times, 0.5, &bubble) >= seconds);
        }
}

/* What a plan says that each stage needs is what a trainer takes. */
static void a_trainer_in_stages_takes_what_was_planned(void **state)
{
    const Model *model = model_of(TINY_TIED);
    TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH / 4);
    cvn_err err = {0};
    Trainer t;
    SimAnswer plan;
    o.z_loss = 0;
    o.evaluates = false;
    const SimAsk ask = {.model = model,
                        .mesh = "data=1,stage=4",
                        .layout = "pp",
                        .task = SIM_TRAIN,
                        .batch = BATCH,
                        .seq = SEQ,
                        .micro_batch = o.micro_batch,
                        .context = SEQ,
                        .compute = CVN_F32,
                        .device = backends[0],
                        .train = {.clip = 1, .optimizer = o.optimizer},
                        .threads = 1};
    must(sim_plan(&ask, &plan, &err), &err);
    open_on(&t, model, o, "data=1,stage=4", "pp");
    assert_int_equal(plan.n_stages, 4);
    assert_int_equal(plan.devices, 4);
    assert_int_equal(plan.micro, 4);
    for (int s = 0; s < 4; s++) {
        DeviceMemory memory;
        runtime_memory(&t.stage[s].rt, &memory);
        assert_true(fabs(memory.total - plan.stage[s].memory) < 1);
        assert_true(s == 0 || plan.stage[s].gradient > 0);
    }
    assert_true(fabs(plan.boundary - (double)(SEQ * model_width(model) * 4)) < 1);
    assert_true(plan.bubble > 0.3 && plan.bubble < 0.6);
    /* The first stage sends a tensor for each micro-batch, and the gradient of the embedding that is the head. */
    CommTable table;
    TrainReport report;
    TrainBatch batch;
    must(train_batch_new(&batch, BATCH, SEQ, &err), &err);
    must(trainer_random(&t, 7, &err), &err);
    fill_batch(3, (int)model_vocab(model), &batch);
    must(trainer_step(&t, &batch, &report, &err), &err);
    trainer_communication(&t, &table);
    assert_int_equal(table.n, 1);
    assert_string_equal(table.row[0].axes, "stage");
    assert_int_equal(table.row[0].count, 4 + 1);
    assert_true(fabs(table.row[0].bytes - 4 * plan.boundary -
                     (double)(4 * model_vocab(model) * model_width(model))) < 1);
    train_batch_free(&batch);
    trainer_close(&t);
    sim_answer_free(&plan);
}

static void what_stages_cannot_do_is_refused(void **state)
{
    const Model *model = model_of(TINY_GQA);
    TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH);
    cvn_err err = {0};
    Trainer t;
    o.mesh = "stage=6";
    o.layout = "pp";
    assert_int_equal(trainer_open(&t, model, &o, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "5 layers cannot be divided into 6 stages"));
    o.mesh = "stage=2:1,0";
    err = (cvn_err){0};
    assert_int_equal(trainer_open(&t, model, &o, &err), CVN_EUNSUPPORTED);
    o.mesh = "stage=2";
    o.beta = 0.1;
    o.z_loss = 0;
    err = (cvn_err){0};
    assert_int_equal(trainer_open(&t, model, &o, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "--dpo"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_in_an_order_that_ends),
        cmocka_unit_test(the_bubble_is_that_of_theory),
        cmocka_unit_test(a_trainer_in_stages_takes_what_was_planned),
        cmocka_unit_test(what_stages_cannot_do_is_refused),
        cmocka_unit_test(runs_move_between_meshes_with_and_without_stages),
        cmocka_unit_test(training_in_stages_is_training_on_one_device),
        cmocka_unit_test(ways_to_train_are_the_same_in_stages),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
