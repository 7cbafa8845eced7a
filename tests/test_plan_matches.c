/*
 * What is planned is what runs: the programs of engines and trainers communicate and hold, on every mesh and in every layout, what a plan of
 * them says; and the back end that counts is a back end like another.
 */
#include "model/presets.h"
#include "model_make.h"
#include "part.h"
#include "serve/list.h"
#include "serve/synthetic.h"
#include "sim/plan.h"
#include "train/trainer.h"
#include "unit.h"

#include <math.h>

static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
static const char *const meshes[] = {"",       "data=2",  "model=2",        "data=2,model=2",
                                     "data=4", "model=4", "data=2,model=3", "data=6"};

/* ---- engines ---- */

enum {
    CONTEXT = 16
}; /* the engine then has one length of sections: as long; and what training takes of a row */

typedef struct Case {
    const Model *config;
    cvn_dtype dtype;
    const char *mesh, *layout;
    int rows;
} Case;

static OptimizerOptions optimizer(const Model *config)
{
    return optimizer_defaults(OPTIMIZER_ADAMW, model_size(config).params);
}

static cvn_engine *open_engine(const Case *c, cvn_model **model)
{
    cvn_err err = {0};
    cvn_engine_options options = cvn_engine_defaults();
    cvn_engine *engine = NULL;
    options.slots = c->rows;
    options.context = CONTEXT;
    options.threads = 1;
    options.mesh = *c->mesh ? c->mesh : NULL;
    options.layout = c->layout;
    if (model_synthetic(c->config, c->dtype, model, &err) ||
        cvn_engine_new(*model, &options, &engine, &err))
        fail_msg("%s, %s: %s", c->mesh, c->layout, err.message);
    return engine;
}

static void plan(const Case *c, SimTask task, SimAnswer *answer)
{
    cvn_err err = {0};
    const SimAsk ask = {.model = c->config,
                        .mesh = c->mesh,
                        .layout = c->layout,
                        .task = task,
                        .batch = c->rows,
                        .seq = CONTEXT,
                        .context = CONTEXT,
                        .compute = c->dtype,
                        .train = {.clip = 1, .optimizer = optimizer(c->config)},
                        .device = backends[0]};
    if (sim_plan(&ask, answer, &err))
        fail_msg("%s, %s: %s", c->mesh, c->layout, err.message);
    if (answer->n_interpreted)
        fail_msg("%s, %s: there is no kernel for %s", c->mesh, c->layout, answer->interpreted);
}

static void same_communication(const Case *c, const CommTable *got, const SimAnswer *want)
{
    if (got->n != want->n_collectives)
        fail_msg("%s, %s: %d kinds of collectives ran, %d were planned", c->mesh, c->layout, got->n,
                 want->n_collectives);
    for (int i = 0; i < want->n_collectives; i++) {
        const CountedCollective *w = &want->collective[i];
        const CommRow *row = NULL;
        for (int j = 0; j < got->n; j++)
            if (got->row[j].kind == w->kind && strcmp(got->row[j].axes, w->axes) == 0)
                row = &got->row[j];
        if (!row || row->count != w->count || fabs(row->bytes - w->bytes) > 1e-9 * w->bytes)
            fail_msg("%s, %s: of %s along %s %lld of %.17g bytes ran, %lld of %.17g were planned",
                     c->mesh, c->layout, op_info[w->kind].name, w->axes,
                     row ? (long long)row->count : 0, row ? row->bytes : 0, (long long)w->count,
                     w->bytes);
    }
}

static void same_bytes(const Case *c, const char *what, double got, double want)
{
    if (got != want)
        fail_msg("%s, %s, %d rows: %.0f bytes of %s, %.0f were planned", c->mesh, c->layout,
                 c->rows, got, what, want);
}

static double input_bytes(const Program *p)
{
    double bytes = 0;
    for (int i = 0; i < p->signature.n_parameters; i++)
        bytes += p->buffer[i] ? 0 : (double)cvn_type_bytes(&p->report.parameter[i].local);
    return bytes;
}

/* What a device of the engine's has for these two programs alone; `other` may be NULL. */
static void same_memory(const Case *c, const cvn_engine *e, const Program *p, const Program *other,
                        const DeviceMemory *want)
{
    DeviceMemory got;
    runtime_memory(&e->rt, &got);
    same_bytes(c, "weights", got.weights, want->weights);
    same_bytes(c, "cache", got.kv_cache, want->kv_cache);
    double constants = (double)p->info.constant_bytes,
           temporaries = (double)p->info.temporary_bytes;
    double inputs = input_bytes(p);
    if (other) {
        constants += (double)other->info.constant_bytes;
        temporaries = fmax(temporaries, (double)other->info.temporary_bytes);
        inputs = fmax(inputs, input_bytes(other));
    }
    same_bytes(c, "constants", constants, want->constants);
    same_bytes(c, "temporaries", temporaries + constants, want->temporaries);
    same_bytes(c, "inputs", inputs, want->inputs);
    same_bytes(c, "all", got.weights + got.kv_cache + inputs + temporaries + constants,
               want->total);
}

static CommTable taken(const cvn_engine *e, const CommTable *before)
{
    CommTable table;
    e->rt.backend->communication(e->rt.devices, &table);
    comm_table_since(&table, before);
    return table;
}

/* The program of lists of so many tokens, of which so many are a row. */
static const Program *program_of(const cvn_engine *e, int64_t tokens, int64_t row)
{
    int i = 0;
    while (e->lists->size[i].tokens != tokens || e->lists->size[i].row != row)
        assert_true(++i < e->lists->n);
    return &e->lists->step[SAMPLE_GREEDY][i];
}

static const Program *decode_of_all(const cvn_engine *e)
{
    return program_of(e, e->options.slots, 1);
}

static void check_decode(const Case *c, cvn_engine *e)
{
    cvn_err err = {0};
    SimAnswer want;
    CommTable before;
    plan(c, SIM_DECODE, &want);
    e->rt.backend->communication(e->rt.devices, &before);
    for (int slot = 0; slot < c->rows; slot++)
        e->slots.length[slot] = true;
    must(engine_decode(e, &err), &err);
    CommTable got = taken(e, &before);
    same_communication(c, &got, &want);
    const Program *decode = decode_of_all(e);
    same_memory(c, e, decode, NULL, &want.memory);
    assert_true(counting_counts(want.rt.devices)->flops == decode->info.flops);
    assert_int_equal(want.operations, decode->info.n_operations);
    assert_int_equal(want.steps, decode->info.n_steps);
    sim_answer_free(&want);
}

/* Of each shard a slot reads at a time. */
static void check_prefill(const Case *c, cvn_engine *e)
{
    cvn_err err = {0};
    SimAnswer want;
    CommTable before;
    const int32_t tokens[CONTEXT] = {0};
    const cvn_request request = {.prompt = tokens, .n_prompt = CONTEXT, .sampling = {.top_p = 1}};
    SlotPrompt prompt = {.slot = 0, .request = &request};
    plan(c, SIM_PREFILL, &want);
    e->rt.backend->communication(e->rt.devices, &before);
    for (; prompt.slot < c->rows / e->shards; prompt.slot++) {
        engine_begin_slot(e, prompt.slot, &request, 0, 0);
        must(engine_prefill(e, &prompt, 1, NULL, &err), &err);
        engine_reset_slot(e, prompt.slot);
    }
    CommTable got = taken(e, &before);
    same_communication(c, &got, &want);
    const Program *prefill = program_of(e, CONTEXT * e->shards, e->chunk_invariant ? 1 : CONTEXT);
    same_memory(c, e, prefill, decode_of_all(e), &want.memory);
    assert_true(counting_counts(want.rt.devices)->flops ==
                prefill->info.flops * (c->rows / e->shards));
    sim_answer_free(&want);
}

static void check_engine(Case c)
{
    cvn_model *model;
    cvn_engine *e = open_engine(&c, &model);
    if (!e->chunk_invariant || c.rows == 1) /* else prompts share a list */
        check_prefill(&c, e);
    check_decode(&c, e);
    assert_int_equal(cvn_engine_free(e, NULL), CVN_OK);
    cvn_model_free(model);
}

static void an_engine_takes_what_was_planned(void **state)
{
    Model *config = model_preset("tiny");
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            for (int rows = *meshes[m] ? 4 : 1; rows <= 4 && in_part(l + m, 1); rows += 3)
                check_engine(
                    (Case){config, m % 2 ? CVN_BF16 : CVN_F32, meshes[m], layouts[l], rows});
}

static void a_quantized_engine_takes_what_was_planned(void **state)
{
    Model *config = model_preset("tiny");
    model_set_quant(config, (QuantScheme){.kind = QUANT_INT8});
    check_engine((Case){config, CVN_BF16, "", "2d", 1});
    check_engine((Case){config, CVN_BF16, "data=2,model=2", "2d", 3});
    check_engine((Case){config, CVN_BF16, "model=2", "tp", 2});
}

/* ---- training ---- */

static void check_training(const Case *c)
{
    const TrainerOptions options = {.batch = c->rows,
                                    .seq = CONTEXT,
                                    .compute = c->dtype,
                                    .clip = 1,
                                    .optimizer = optimizer(c->config),
                                    .schedule = {.steps = 1},
                                    .threads = 1,
                                    .mesh = c->mesh,
                                    .layout = c->layout};
    cvn_err err = {0};
    Trainer t;
    TrainBatch batch;
    TrainReport report;
    CommTable got;
    SimAnswer want;
    DeviceMemory memory;
    plan(c, SIM_TRAIN, &want);
    assert_int_equal(train_batch_new(&batch, c->rows, CONTEXT, &err), CVN_OK);
    if (trainer_open(&t, c->config, &options, &err) || trainer_random(&t, 1, &err) ||
        trainer_step(&t, &batch, &report, &err))
        fail_msg("%s, %s: %s", c->mesh, c->layout, err.message);
    t.stage->rt.backend->communication(t.stage->rt.devices, &got);
    same_communication(c, &got, &want);
    runtime_memory(&t.stage->rt, &memory);
    same_bytes(c, "weights", memory.weights, want.memory.weights);
    same_bytes(c, "rounded weights", memory.rounded_weights, want.memory.rounded_weights);
    same_bytes(c, "optimizer", memory.optimizer, want.memory.optimizer);
    same_bytes(c, "inputs", memory.inputs, want.memory.inputs);
    same_bytes(c, "temporaries", memory.temporaries, want.memory.temporaries);
    same_bytes(c, "all", memory.total, want.memory.total);
    assert_true(counting_counts(want.rt.devices)->flops == t.stage->program[TRAIN_STEP].info.flops);
    sim_answer_free(&want);
    train_batch_free(&batch);
    trainer_close(&t);
}

static void a_trainer_takes_what_was_planned(void **state)
{
    Model *config = model_preset("tiny");
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            if (in_part(l + m, 1))
                check_training(
                    &(Case){config, m % 2 ? CVN_BF16 : CVN_F32, meshes[m], layouts[l], 12});
}

/* ---- work ---- */

static double work(SimTask task, int64_t seq, int64_t context, SimAnswer *a)
{
    cvn_err err = {0};
    SimAsk ask = {.mesh = "",
                  .layout = "2d",
                  .task = task,
                  .batch = 2,
                  .seq = seq,
                  .context = context,
                  .compute = CVN_BF16};
    ask.model = model_preset("stories15m");
    must(sim_plan(&ask, a, &err), &err);
    const SimAnswer kept = *a;
    sim_answer_free(a);
    a->model_flops = kept.model_flops;
    return kept.flops;
}

static void near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * want)
        fail_msg("%.17g, expected %.17g", got, want);
}

static void attention_counts_what_its_queries_see(void **state)
{
    SimAnswer a;
    Model *c = model_preset("stories15m");
    double key = 2 * 4.0 * model_attention_pairs(c, 0, 0); /* of two rows */
    /* However long a cache could get, a prefill looks at what is before each token. */
    near(work(SIM_PREFILL, 64, 16384, &a), work(SIM_PREFILL, 64, 64, &a));
    assert_true(work(SIM_PREFILL, 64, 16384, &a) < 1.01 * a.model_flops + 1e9);
    near(work(SIM_DECODE, 1, 300, &a) - work(SIM_DECODE, 1, 200, &a), 100 * key);
}

/* ---- the contract ---- */

static int nobody_reads(void *context, const Box *box, void *out, cvn_err *err)
{
    (void)context, (void)box, (void)out;
    return err_set(err, CVN_EINVAL, "a weight was read");
}

/* y = x w over 4096 devices: nothing is of the size of the mesh. */
static void four_thousand_devices_are_counted_like_one(void **state)
{
    cvn_err err = {0};
    Runtime rt;
    const RuntimeOptions options = {
        .backend = &counting_backend, .mesh = "model=4096", .devices.described = backends[0]};
    assert_int_equal(runtime_open(&rt, &options, &err), CVN_OK);
    assert_int_equal(rt.info.n_local, 1);
    cvn_graph *g = cvn_graph_new("product", NULL);
    cvn_value *x = graph_role(cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 8, 8192)), ROLE_TOKENS, 0);
    cvn_value *w = graph_role(cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 8192, 16)), ROLE_WEIGHT, 0);
    cvn_mark_sharding(g, w, &(cvn_spec){.rank = 2, .dim = {{.n = 1, .axis = {"model"}}}});
    cvn_output(g, cvn_einsum(g, "ik,kj->ij", x, w));
    graph_output_role(g, ROLE_LOGITS, 0);
    Program p;
    float input[1] = {0}; /* whole and not looked at */
    must(program_make(&p, &rt, g, &(ProgramOptions){.whole_inputs = true}, &err), &err);
    assert_true(program_bind(&p, ROLE_TOKENS, 0, input));
    Buffer *b = runtime_buffer(&rt, ROLE_WEIGHT, 0);
    assert_int_equal(b->bytes, 2 * 16 * sizeof(float));
    const Source source = {.read = nobody_reads};
    assert_int_equal(buffer_fill(&rt, b, &source, &err), CVN_OK);
    assert_int_equal(runtime_reserve(&rt, &err), CVN_OK);
    DeviceMemory memory;
    runtime_memory(&rt, &memory);
    const Counts *counts = counting_counts(rt.devices);
    assert_true((double)counts->bytes == memory.total - memory.inputs - memory.constants);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(program_run(&p, &err), CVN_OK);
        assert_true(counts->flops == i * p.info.flops && p.info.flops > 0);
    }
    const float *y = program_output(&p, ROLE_LOGITS, 0);
    for (int i = 0; i < 8 * 16; i++)
        assert_true(y[i] == 0);
    CommTable table;
    rt.backend->communication(rt.devices, &table);
    assert_int_equal(table.n, 1);
    assert_string_equal(table.row[0].axes, "model");
    assert_int_equal(table.row[0].count, 3);
    assert_int_equal(counts->collective[0].devices, 4096);
    assert_int_equal(rt.backend->compilations(rt.devices), 1);
    program_free(&p);
    cvn_graph_free(g);
    runtime_close(&rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_takes_what_was_planned),
        cmocka_unit_test(a_quantized_engine_takes_what_was_planned),
        cmocka_unit_test(a_trainer_takes_what_was_planned),
        cmocka_unit_test(attention_counts_what_its_queries_see),
        cmocka_unit_test(four_thousand_devices_are_counted_like_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
