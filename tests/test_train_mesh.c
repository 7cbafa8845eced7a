/*
 * A trainer on a mesh against the trainer on one device: losses, gradient norms and weights of several steps, for
 * each layout on meshes of 1 to 8 devices, with both optimizers, with and without micro-batches, on models whose sizes
 * the meshes do not divide. With CARAVAN_TEST_LONG all combinations, else a part of them.
 */
#include "learn.h"
#include "model_make.h"
#include "tiny_llama.h"
#include "train/trainer.h"

#include <math.h>
#include <stddef.h>

enum { BATCH = 6, SEQ = 8 };

static TrainerOptions options_of(OptimizerKind optimizer, int64_t micro_batch)
{
    TrainerOptions o = learn_options(optimizer, CVN_F32, BATCH, micro_batch, SEQ);
    o.z_loss = 1e-4;
    return o;
}

static void fill_batch(uint64_t seed, int vocab, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = draw(&seed, vocab);
        bool learnt = draw(&seed, 7) > 0;
        targets[i] = learnt ? tokens[i] * 3 % vocab : -1;
    }
}

enum { MOST_STEPS = 64 };

typedef struct Curve {
    double loss[MOST_STEPS], norm[MOST_STEPS], evaluated;
} Curve;

static void train(const Model *config, TrainerOptions o, const char *mesh, const char *layout,
                  int steps, Curve *curve)
{
    Trainer t;
    cvn_err err = {0};
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ], starts[BATCH * SEQ];
    TrainBatch batch = {.tokens = tokens, .targets = targets, .starts = starts};
    for (int i = 0; i < BATCH * SEQ; i++) /* two documents in a row */
        starts[i] = i % SEQ < SEQ / 3 ? 0 : SEQ / 3;
    o.mesh = mesh;
    o.layout = layout;
    if (trainer_open(&t, config, &o, &err) || trainer_random(&t, 7, &err))
        fail_msg("%s on %s: %s", layout, mesh, err.message);
    for (int i = 0; i < steps; i++) {
        TrainReport report;
        fill_batch((uint64_t)(i % 4), (int)model_vocab(config), tokens, targets);
        if (trainer_step(&t, &batch, &report, &err))
            fail_msg("%s on %s: %s", layout, mesh, err.message);
        assert_true(report.updated);
        curve->loss[i] = report.loss;
        curve->norm[i] = report.grad_norm;
    }
    double sum = 0, count = 0;
    fill_batch(99, (int)model_vocab(config), tokens, targets);
    if (trainer_evaluate(&t, &batch, &sum, &count, &err))
        fail_msg("%s on %s: %s", layout, mesh, err.message);
    curve->evaluated = sum / count;
    trainer_close(&t);
}

static void compare(const Curve *a, const Curve *b, int steps, double tolerance, const char *mesh,
                    const char *layout, const char *what)
{
    for (int i = 0; i <= steps; i++) {
        double x = i < steps ? a->loss[i] : a->evaluated, y = i < steps ? b->loss[i] : b->evaluated;
        if (!(fabs(x - y) <= tolerance * fabs(x)))
            fail_msg("%s, %s on %s: step %d has the loss %.9g, on one device %.9g", what, layout,
                     mesh, i + 1, y, x);
        if (i < steps && !(fabs(a->norm[i] - b->norm[i]) <= 10 * tolerance * fabs(a->norm[i])))
            fail_msg("%s, %s on %s: step %d has the norm %.9g, on one device %.9g", what, layout,
                     mesh, i + 1, b->norm[i], a->norm[i]);
    }
}

static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
static const char *const meshes[] = {"data=1",         "data=2",         "model=3",
                                     "data=2,model=2", "data=3,model=2", "data=2,model=4"};

static void training_on_a_mesh_is_training_on_one_device(void **state)
{
    enum { STEPS = 3 };
    bool all = getenv("CARAVAN_TEST_LONG") != NULL;
    for (int model = 0; model < TINY_LLAMAS; model++)
        for (int k = 0; k < OPTIMIZER_COUNT; k++)
            for (int micro = 0; micro < 2; micro++) {
                Model *config = tiny_llama_config(&tiny_llamas[model]);
                TrainerOptions o = options_of((OptimizerKind)k, micro ? BATCH / 2 : BATCH);
                Curve alone, mesh;
                char what[64];
                snprintf(what, sizeof what, "%s with %s, %d at once", tiny_llamas[model].name,
                         optimizers[k].name, micro ? BATCH / 2 : BATCH);
                train(config, o, NULL, NULL, STEPS, &alone);
                for (int l = 0; l < 6; l++)
                    for (int m = 0; m < 6; m++) {
                        if (!all && (l + 2 * m + 3 * model + 5 * k + 7 * micro) % 12)
                            continue;
                        train(config, o, meshes[m], layouts[l], STEPS, &mesh);
                        compare(&alone, &mesh, STEPS, 1e-5, meshes[m], layouts[l], what);
                    }
            }
}

/* Queries of a later part of a sequence count their windows and chunks from where they are. */
static void windows_are_the_same_on_meshes(void **state)
{
    enum { STEPS = 3 };
    static const char *const on[][2] = {{"data=2", "dp"},
                                        {"model=3", "tp"},
                                        {"data=2,model=2", "2d"},
                                        {"data=3,model=2", "tp-scatter"},
                                        {"data=2,model=4", "fsdp+tp"}};
    static const char *const limits[] = {
        "'model_type': 'ministral', 'sliding_window': null",
        "'model_type': 'ministral', 'sliding_window': 3",
        "'model_type': 'gemma2', 'sliding_window': 4, 'attn_logit_softcapping': 1.5",
        "'model_type': 'ministral', 'sliding_window': 2, 'layer_types': ['sliding_attention', "
        "'full_attention']"};
    Curve curve[4], mesh;
    for (int k = 0; k < 4; k++) {
        Model *config =
            model_with(tiny_llama_config(&tiny_llamas[k % TINY_LLAMAS]), "%s", limits[k]);
        TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH);
        train(config, o, NULL, NULL, STEPS, &curve[k]);
        for (size_t m = 0; m < sizeof on / sizeof *on && k; m++) {
            train(config, o, on[m][0], on[m][1], STEPS, &mesh);
            compare(&curve[k], &mesh, STEPS, 1e-5, on[m][0], on[m][1], "windows");
        }
    }
    Model *config = tiny_llama_config(&tiny_llamas[1 % TINY_LLAMAS]);
    train(config, options_of(OPTIMIZER_ADAMW, BATCH), NULL, NULL, STEPS, &mesh);
    assert_true(fabs(mesh.loss[0] - curve[1].loss[0]) > 1e-6); /* they count */
}

/* What is dropped is the same however the work is divided, and nothing is when validating. */
static void dropout_is_the_same_on_meshes_and_in_parts(void **state)
{
    enum { STEPS = 3 };
    static const struct {
        const char *mesh, *layout;
        int micro_batch, threads;
        RematPolicy remat;
    } ways[] = {
        {NULL, NULL, BATCH, 3, REMAT_NONE},
        {NULL, NULL, BATCH / 3, 1, REMAT_BLOCK},
        {NULL, NULL, BATCH, 1, REMAT_SELECTIVE},
        {"data=2", "dp", BATCH, 1, REMAT_NONE},
        {"model=3", "tp", BATCH, 1, REMAT_NONE},
        {"data=2,model=2", "2d", BATCH / 3, 1, REMAT_NONE},
        {"data=2,model=4", "fsdp+tp", BATCH, 1, REMAT_BLOCK},
        {"data=3,model=2", "tp-scatter", BATCH, 1, REMAT_NONE},
    };
    for (int kind = 0; kind < 4; kind++) {
        const Model *config = tiny_llama_config(&tiny_llamas[kind % TINY_LLAMAS]);
        TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH);
        Curve plain, alone, other;
        train(config, o, NULL, NULL, STEPS, &plain);
        o.dropout.attention = kind == 1 ? 0 : 0.3;
        o.dropout.hidden = kind == 2 ? 0 : 0.2;
        train(config, o, NULL, NULL, STEPS, &alone);
        for (int i = 0; i < STEPS; i++)
            assert_true(fabs(alone.loss[i] - plain.loss[i]) > 1e-4);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            o.micro_batch = ways[w].micro_batch;
            o.threads = ways[w].threads;
            o.remat = ways[w].remat;
            train(config, o, ways[w].mesh, ways[w].layout, STEPS, &other);
            if (o.micro_batch < BATCH) /* which it looks at fewer rows of */
                other.evaluated = alone.evaluated;
            compare(&alone, &other, STEPS, 1e-5, ways[w].mesh ? ways[w].mesh : "one device",
                    ways[w].layout ? ways[w].layout : "no layout", "dropout");
            if (!ways[w].mesh && ways[w].micro_batch == BATCH)
                assert_memory_equal(alone.loss, other.loss, STEPS * sizeof *other.loss);
        }
        /* Of the same weights validation says the same. */
        o = options_of(OPTIMIZER_ADAMW, BATCH / 2);
        o.dropout.hidden = 0.5;
        train(config, o, NULL, NULL, 0, &other);
        o.dropout.hidden = 0;
        train(config, o, NULL, NULL, 0, &alone);
        assert_true(fabs(other.evaluated - alone.evaluated) < 1e-6);
    }
}

static void fifty_steps_are_the_same_curve_and_the_same_bits_again(void **state)
{
    Model *config = tiny_llama_config(&tiny_llamas[TINY_GQA]);
    TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH);
    Curve alone, mesh, again;
    train(config, o, NULL, NULL, 50, &alone);
    train(config, o, "data=2,model=2", "2d", 50, &mesh);
    train(config, o, "data=2,model=2", "2d", 50, &again);
    compare(&alone, &mesh, 50, 1e-4, "data=2,model=2", "2d", "50 steps");
    assert_memory_equal(mesh.loss, again.loss, 50 * sizeof *mesh.loss);
    assert_memory_equal(mesh.norm, again.norm, 50 * sizeof *mesh.norm);
    assert_true(alone.loss[49] < 0.6 * alone.loss[0]);
}

/* Drawn shard by shard, put together they are the bits that one device draws. */
static void weights_in_shards_are_those_of_one_device(void **state)
{
    for (int i = 0; i < TINY_LLAMAS * 6 * 6; i++) {
        const char *mesh = meshes[i / 6 % 6], *layout = layouts[i % 6];
        Model *config = tiny_llama_config(&tiny_llamas[i / 36]);
        TrainerOptions o = options_of(OPTIMIZER_ADAFACTOR, BATCH);
        Trainer one, t;
        cvn_err err = {0};
        if (i % 5)
            continue;
        must(trainer_open(&one, config, &o, &err), &err);
        must(trainer_random(&one, 7, &err), &err);
        o.mesh = mesh;
        o.layout = layout;
        must(trainer_open(&t, config, &o, &err), &err);
        must(trainer_random(&t, 7, &err), &err);
        const Runtime *rt = &t.stage->rt;
        const void **part = calloc((size_t)rt->info.n_local, sizeof *part);
        for (int w = 0; w < t.state.n_weights; w++) {
            const Buffer *tensor = runtime_buffer(rt, ROLE_TRAINED, w);
            size_t bytes = cvn_type_bytes(&tensor->type);
            void *whole = calloc(1, bytes);
            for (int d = 0; d < rt->info.n_local; d++)
                part[d] = buffer_address(rt, tensor, d);
            shard_gather(&rt->mesh, &tensor->sharding, &tensor->type, part, whole);
            if (memcmp(whole, one.state.saved.tensor[w].data, bytes) != 0)
                fail_msg("%s by %s: %s was drawn differently", mesh, layout,
                         one.state.saved.tensor[w].name);
            free(whole);
        }
        free(part);
        trainer_close(&t);
        trainer_close(&one);
    }
}

/* As a process with only some of the devices would have it. */
static void a_process_reads_the_rows_of_its_devices(void **state)
{
    static const struct {
        const char *mesh, *layout;
        int n_local, rows[4]; /* of 6, by each process */
    } cases[] = {
        {"data=2,model=2", "2d", 1, {3, 3, 3, 3}},
        {"data=2,model=2", "2d", 2, {3, 3}},
        {"data=4", "fsdp", 1, {2, 2, 2, 0}},
        {"data=3", "dp", 1, {2, 2, 2}},
        {"model=2", "tp", 1, {6, 6}},
        {"dcn=2,data=2", "dp", 2, {4, 2}},
        {"data=2,model=2", "tp-scatter", 2, {6, 6}},
        {"data=2", "dp", 2, {6}},
    };
    Model *config = tiny_llama_config(&tiny_llamas[TINY_GQA]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Trainer t;
        cvn_err err = {0};
        TrainerOptions o = options_of(OPTIMIZER_ADAMW, BATCH);
        o.mesh = cases[i].mesh;
        o.layout = cases[i].layout;
        must(trainer_open(&t, config, &o, &err), &err);
        Runtime part = t.stage->rt;
        Program program = t.stage->program[TRAIN_STEP];
        bool read[BATCH] = {false};
        program.rt = &part;
        part.info.n_local = cases[i].n_local;
        for (; part.info.first < t.stage->rt.info.n_local; part.info.first += part.info.n_local) {
            int n = 0;
            for (int r = 0; r < BATCH; r++) {
                bool need = program_needs_row(&program, ROLE_TOKENS, 0, r);
                assert_true(program_needs_row(&program, ROLE_TARGETS, 0, r) == need);
                assert_true(program_needs_row(&program, ROLE_STARTS, 0, r) == need);
                n += need;
                read[r] = read[r] || need;
            }
            if (n != cases[i].rows[part.info.first / part.info.n_local])
                fail_msg("%s on %s: device %d and %d more read %d rows", o.layout, o.mesh,
                         part.info.first, part.info.n_local - 1, n);
        }
        for (int r = 0; r < BATCH; r++)
            assert_true(read[r] && trainer_needs(&t, r));
        trainer_close(&t);
    }
}

/* Bytes of the state of one device, and of what a step needs besides, of a model of large layers and few tokens. */
static void measure(int64_t layers, const char *mesh, size_t *state, size_t *step)
{
    Model *config = tiny_llama_config(&tiny_llamas[TINY_MHA]);
    config = model_with(config,
                        "'hidden_size': 192, 'num_attention_heads': 8, 'num_key_value_heads': 8, "
                        "'head_dim': 24, 'intermediate_size': 512, 'num_hidden_layers': %d",
                        (int)layers);
    TrainerOptions o = options_of(OPTIMIZER_ADAMW, 4);
    Trainer t;
    cvn_err err = {0};
    o.batch = 4;
    o.seq = 4;
    o.evaluates = false;
    o.mesh = mesh;
    o.layout = "fsdp";
    must(trainer_open(&t, config, &o, &err), &err);
    *state = 0;
    for (int role = 0; role < ROLE_RESIDENT; role++)
        *state += runtime_role_bytes(&t.stage->rt, (Role)role) / (size_t)t.stage->rt.info.n_local;
    *step = t.stage->program[TRAIN_STEP].info.temporary_bytes;
    trainer_close(&t);
}

static void fsdp_holds_its_part_and_gathers_a_layer(void **state)
{
    size_t whole, part, step, less, more;
    const size_t layer = (4 * 192 * 192 + 3 * 192 * 512) * sizeof(float);
    measure(8, NULL, &whole, &step);
    for (int n = 2; n <= 8; n *= 2) {
        char mesh[32];
        snprintf(mesh, sizeof mesh, "data=%d", n);
        measure(2, mesh, &part, &less);
        measure(8, mesh, &part, &more);
        /* Norms are whole on every device: 17 of them, and two averages of each. */
        if (part > whole / (size_t)n + 17 * 3 * (192 * sizeof(float) + 64))
            fail_msg("%d devices hold %zu bytes each of %zu", n, part, whole);
        /* Six layers more are held in parts: their gradients, and what the update needs besides. */
        print_message(
            "%d devices: state %zu of %zu; step %zu with 2 layers, %zu with 8; a layer %zu\n", n,
            part, whole, less, more, layer);
        if (more > less + 6 * 2 * layer / (size_t)n + 2 * layer)
            fail_msg("%d devices: a step needs %zu bytes with 2 layers, %zu with 8", n, less, more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_on_a_mesh_is_training_on_one_device),
        cmocka_unit_test(weights_in_shards_are_those_of_one_device),
        cmocka_unit_test(a_process_reads_the_rows_of_its_devices),
        cmocka_unit_test(fsdp_holds_its_part_and_gathers_a_layer),
        cmocka_unit_test(windows_are_the_same_on_meshes),
        cmocka_unit_test(dropout_is_the_same_on_meshes_and_in_parts),
        cmocka_unit_test(fifty_steps_are_the_same_curve_and_the_same_bits_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
