/* Plans: the programs of an engine or a trainer are made on a back end that only adds up, and their numbers are collected. */
#include "sim/plan.h"

#include "base/map.h"
#include "base/num.h"
#include "base/threads.h"
#include "serve/steps.h"
#include "sim/stages.h"
#include "train/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const sim_role_names[SIM_ROLE_COUNT] = {
    [SIM_WEIGHT] = "weights",
    [SIM_ROUNDED] = "weights in bf16",
    [SIM_OPTIMIZER] = "optimizer state",
    [SIM_CACHE] = "KV cache",
    [SIM_INPUT] = "inputs",
    [SIM_ACTIVATION] = "activations",
};

/* A plan that is being made. */
typedef struct Sim {
    const SimAsk *ask;
    SimAnswer *answer;
    Steps steps; /* of an engine; of training the model holds */
    ParamList params;
    ShardResult shardings; /* of the graph that is looked at */
    TimedFor chip;
    int stage, stages, micro; /* of training: which one, of how many; micro-batches */
    Map rows;                 /* what tensors have in common, as text -> index in answer->tensor */
} Sim;

/* ---- tensors ---- */

static SimRole role_of(const cvn_value *v)
{
    static const SimRole roles[ROLE_RESIDENT] = {
        [ROLE_NONE] = SIM_INPUT,     [ROLE_WEIGHT] = SIM_WEIGHT,       [ROLE_TRAINED] = SIM_WEIGHT,
        [ROLE_ADAPTER] = SIM_WEIGHT, [ROLE_SLOT] = SIM_OPTIMIZER,      [ROLE_ROUNDED] = SIM_ROUNDED,
        [ROLE_SUM] = SIM_OPTIMIZER,  [ROLE_TOTAL] = SIM_OPTIMIZER,     [ROLE_CACHE] = SIM_CACHE,
        [ROLE_PEER] = SIM_OPTIMIZER, [ROLE_BOUNDARY] = SIM_ACTIVATION, [ROLE_KEPT] = SIM_ACTIVATION,
    };
    return v->role < ROLE_RESIDENT ? roles[v->role] : SIM_INPUT;
}

/* "exp_avg.layers.3.q" -> "exp_avg.q"; "cache.3.k" -> "cache.k". */
static const char *kind_of(Sim *s, const cvn_value *v)
{
    Arena *arena = &s->answer->rt.arena;
    const char *name = v->def->attr.name;
    int i = v->role == ROLE_SLOT ? v->index / OPTIMIZER_MAX_SLOTS : v->index;
    if (v->role == ROLE_CACHE)
        return arena_printf(arena, "cache.%s", strrchr(name, '.') + 1);
    if (v->role == ROLE_KEPT)
        return "kept";
    if (role_of(v) == SIM_INPUT || v->role == ROLE_ADAPTER || v->role == ROLE_BOUNDARY ||
        i >= s->params.n)
        return arena_string(arena, name);
    const Param *p = &s->params.param[i];
    int before = (int)(strlen(name) - strlen(p->name));
    return arena_printf(arena, "%.*s%s", before, name, param_kind_name(p->kind));
}

/* Why v is split: the operations back to a mark, "dot_general from rms_norm, mark on tokens". */
static const char *chain(Sim *s, const cvn_value *v)
{
    enum { MOST_LINKS = 6 };
    StrBuf text = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &text);
    const ShardOrigin *o = s->shardings.origin[v->id];
    for (int i = 0; o; i++) {
        strbuf_puts(&text, i ? ", " : "");
        if (o->kind == ORIGIN_MARK) {
            strbuf_printf(&text, "mark on %s", v->name ? v->name : op_info[v->def->kind].name);
            break;
        }
        if (i == MOST_LINKS) {
            strbuf_puts(&text, "…");
            break;
        }
        strbuf_printf(&text, "%s%s", o->op ? op_info[o->op->kind].name : "output",
                      o->kind == ORIGIN_EXCHANGE ? " (partial sums scattered)" : "");
        v = o->from;
        o = shard_origin_before(&s->shardings, o);
    }
    const char *kept = arena_string(&s->answer->rt.arena, text.text ? text.text : "");
    cleanup_run(&cleanup);
    return kept;
}

static void add_tensor(Sim *s, SimRole role, const char *kind, const cvn_value *v, double bytes)
{
    SimAnswer *a = s->answer;
    const Sharding *sharding = &s->shardings.sharding[v->id];
    StrBuf key = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &key);
    sharding_print(&key, &a->rt.mesh, sharding);
    const char *spec = arena_string(&a->rt.arena, key.text ? key.text : "");
    strbuf_printf(&key, " %d %s ", (int)role, kind);
    type_print(&key, &v->type);
    uint64_t *at = key.failed ? NULL : map_get(&s->rows, key.text, key.length);
    if (!at) {
        a->tensor = arena_more(&a->rt.arena, a->tensor, (size_t)a->n_tensors, sizeof *a->tensor);
        at = map_put(&s->rows, key.text, key.length, NULL);
        *at = (uint64_t)a->n_tensors;
        SimTensor *t = &a->tensor[a->n_tensors++];
        *t = (SimTensor){
            .role = role, .kind = kind, .type = v->type, .spec = spec, .origin = chain(s, v)};
        for (int d = 0; d < v->type.rank; d++)
            t->shards[d] = (int)axes_size(&sharding->dim[d].axes);
    }
    a->tensor[*at].count++;
    a->tensor[*at].device_bytes += bytes;
    cleanup_run(&cleanup);
}

/* Results that the field gives names to: of products, attention, norms and look-ups. */
static bool is_activation(const Op *op)
{
    return op->kind == OP_DOT_GENERAL || op->kind == OP_ATTENTION || op->kind == OP_RMS_NORM ||
           op->kind == OP_GATHER;
}

static void add_tensors(Sim *s, const cvn_graph *g, const Program *p)
{
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        const Buffer *b = p->buffer[i];
        if (s->ask->task == SIM_TRAIN && b && b->executable != p->executable)
            continue; /* of a program before */
        add_tensor(s, role_of(v), kind_of(s, v), v,
                   p->buffer[i] ? (double)p->buffer[i]->bytes * p->buffer[i]->held
                                : (double)cvn_type_bytes(&p->report.parameter[i].local));
    }
    for (const Op *op = g->first; op; op = op->next) {
        if (!is_activation(op))
            continue;
        const cvn_value *v = op->result[0];
        const cvn_type local = sharding_local(&s->shardings.sharding[v->id], &v->type);
        add_tensor(s, SIM_ACTIVATION, op_info[op->kind].name, v, (double)cvn_type_bytes(&local));
    }
}

/* ---- work ---- */

/* The position in a text of an operation's queries. */
static int64_t first_position(const SimAsk *ask)
{
    return ask->task == SIM_DECODE ? ask->context - 1 : 0;
}

static int64_t last_position(const SimAsk *ask)
{
    return ask->task == SIM_DECODE ? ask->context - 1 : ask->seq - 1;
}

/* 2 operations per weight and token forward and twice that backward, and causal attention. */
static double model_flops(const SimAsk *ask)
{
    const Model *c = ask->model;
    double tokens = (double)(ask->batch * (ask->task == SIM_DECODE ? 1 : ask->seq));
    int64_t first = first_position(ask), last = last_position(ask);
    double attention = 4 * tokens * model_attention_pairs(c, first, last);
    double forward = 2 * (double)model_size(c).matmul_params * tokens + attention;
    return ask->task == SIM_TRAIN ? 3 * forward : forward;
}

static void note_interpreted(SimAnswer *a, const Plan *plan)
{
    StrBuf names = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &names);
    a->n_interpreted = plan_fallbacks(plan, &names);
    a->interpreted = arena_string(&a->rt.arena, names.text ? names.text : "");
    cleanup_run(&cleanup);
}

static void add_timed(Timed *sum, const Timed *more, int times)
{
    sum->seconds += more->seconds * times;
    sum->exposed += more->exposed * times;
    sum->in_flight += more->in_flight * times;
    cost_add(&sum->cost, &more->cost, times);
    sum->span = more->span;
    sum->n_spans = more->n_spans;
}

/* It runs so many times; `main`: what takes the most memory. */
static int add_up(Sim *s, const cvn_graph *g, const Program *p, int times, bool main, cvn_err *err)
{
    SimAnswer *a = s->answer;
    Runtime *rt = &a->rt;
    if (s->ask->task == SIM_TRAIN)
        stage_hold(rt, stage_kept(s->stage, s->stages, s->micro), s->ask->train.remat);
    for (int i = 0; i < times; i++)
        if (rt->backend->run(rt->devices, p->executable, p->argument, NULL, err))
            return err->code;
    const Counts *counts = counting_counts(rt->devices);
    add_tensors(s, g, p);
    a->collective = counts->collective;
    a->n_collectives = counts->n_collectives;
    a->compiled = main ? p->info.compiled : a->compiled;
    a->operations = counts->operations;
    a->steps = counts->steps;
    a->flops = counts->flops - counts->unseen_flops;
    add_timed(&a->timed, &counts->timed, times);
    a->model_flops = model_flops(s->ask);
    a->n_conflicts = s->shardings.n_conflicts;
    a->n_involuntary = p->report.n_involuntary;
    runtime_memory(rt, &a->memory);
    a->kept = (double)(runtime_role_bytes(rt, ROLE_KEPT) + runtime_role_bytes(rt, ROLE_BOUNDARY));
    double spared = a->memory.temporaries - a->memory.constants;
    spared = spared < s->ask->on_chip ? spared : s->ask->on_chip;
    a->memory.temporaries -= spared;
    a->memory.total -= spared;
    a->gradients = s->ask->task == SIM_TRAIN ? a->memory.weights : 0;
    if (p->info.plan && main) {
        peak_find(p->info.plan, &rt->arena, &a->peak);
        note_interpreted(a, p->info.plan);
    }
    return CVN_OK;
}

/* ---- programs ---- */

static void free_program(void *program)
{
    program_free(program);
}

/* The program of a graph, which is freed; perhaps what comes of it: of so many runs, 0: nothing. `main` as in add_up. */
static int make(Sim *s, cvn_graph *g, ProgramOptions options, int counts, bool main, cvn_err *err)
{
    Program program = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, free_program, &program);
    options.shardings = &s->shardings;
    s->chip.first = first_position(s->ask);
    s->chip.last = last_position(s->ask);
    counting_positions(s->answer->rt.devices, s->chip.first, s->chip.last);
    s->chip.at = s->ask->task == SIM_DECODE ? (int32_t)s->ask->context - 1 : 0;
    if (!counts) /* only how caches lie is wanted of it */
        s->chip.clock = NULL;
    int code = g ? program_make(&program, &s->answer->rt, g, &options, err) : err->code;
    if (code == CVN_OK && counts)
        code = add_up(s, g, &program, counts, main, err);
    shard_result_free(&s->shardings);
    cleanup_run(&cleanup);
    cvn_graph_free(g);
    return code;
}

static int make_engine(Sim *s, cvn_err *err)
{
    const SimAsk *ask = s->ask;
    int64_t bucket[CVN_MAX_BUCKETS];
    int buckets = steps_buckets(ask->context, bucket);
    int64_t largest = bucket[buckets - 1];
    bool decodes = ask->task == SIM_DECODE;
    s->steps.context = ask->context;
    largest = decodes || !ask->chip ? largest : num_max(largest, ask->seq);
    TRY(steps_room(&s->steps, &s->answer->rt, largest, ask->kv_memory, err));
    ModelStep step = steps_decode(&s->steps);
    int code =
        make(s, model_step(ask->model, &step, err), steps_options(&s->steps), decodes, true, err);
    if (code || decodes)
        return code;
    int times = 1;
    step = steps_chunk(&s->steps, ask->batch, ask->seq);
    if (!ask->chip) { /* serve/list.h */
        const bool lists = s->answer->rt.info.chunk_invariant && !*ask->mesh;
        int64_t rows = lists ? 1 : steps_shards(&s->answer->rt), size = bucket[0];
        int64_t tokens = lists ? ask->batch * ask->seq : ask->seq;
        for (int i = 1; size < tokens && i < buckets; i++)
            size = bucket[i];
        times = (int)(num_pieces(tokens, size) * (lists ? 1 : num_pieces(ask->batch, rows)));
        step = lists ? steps_chunk(&s->steps, size, 1) : steps_chunk(&s->steps, rows, size);
        step.wanted = lists && size > s->steps.slots ? s->steps.slots : 0;
    }
    s->chip.clock = ask->clock;
    code = make(s, model_step(ask->model, &step, err), steps_options(&s->steps), times, true, err);
    s->answer->operations /= times; /* of a graph, … */
    s->answer->steps /= times;      /* … and of its plan */
    return code;
}

/* Seconds of the steps that were planned so far, or operations where there is no chip. */
static double spent(const SimAnswer *a)
{
    return a->timed.seconds > 0 ? a->timed.seconds : a->flops;
}

/* Of a stage, each program as often as a step runs it. */
static int make_training(Sim *s, cvn_err *err)
{
    static const TrainGraph whole[] = {TRAIN_STEP}, parts[] = {TRAIN_GRADIENT, TRAIN_UPDATE},
                            staged[] = {TRAIN_FORWARD, TRAIN_GRADIENT, TRAIN_SQUARES, TRAIN_UPDATE};
    const TrainGraph *kinds = s->stages > 1 ? staged : s->micro > 1 ? parts : whole;
    int n = s->stages > 1 ? 4 : s->micro > 1 ? 2 : 1;
    SimAnswer *a = s->answer;
    TrainStepOptions step = s->ask->train;
    const ProgramOptions options = {
        .mark = layout_mark, .context = &s->steps.model, .layout = s->ask->layout};
    step.batch = s->ask->batch / s->micro;
    step.seq = s->ask->seq;
    step.compute = s->ask->compute;
    step.stage = s->stage;
    step.stages = s->stages;
    a->stage = arena_array(&a->rt.arena, (size_t)s->stages, sizeof *a->stage);
    for (int i = 0; i < n; i++) {
        bool each = kinds[i] == TRAIN_FORWARD || kinds[i] == TRAIN_GRADIENT;
        double before = spent(a);
        if (kinds[i] == TRAIN_FORWARD && s->stage == s->stages - 1)
            continue;
        TRY(make(s, train_graph(kinds[i], s->ask->model, &step, err), options, each ? s->micro : 1,
                 kinds[i] == TRAIN_STEP || kinds[i] == TRAIN_GRADIENT, err));
        double one = (spent(a) - before) / s->micro;
        if (each)
            *(kinds[i] == TRAIN_FORWARD ? &a->stage[s->stage].forward
                                        : &a->stage[s->stage].gradient) = one;
    }
    a->stage[s->stage].memory = a->memory.total;
    const Buffer *leaves = runtime_buffer(&a->rt, ROLE_BOUNDARY, STAGE_LEAVES);
    a->boundary = leaves ? (double)leaves->bytes : 0;
    return CVN_OK;
}

static int make_either(void *of, cvn_err *err)
{
    Sim *s = of;
    params_list(&s->params, s->ask->model, &s->answer->rt.arena);
    map_init(&s->rows, &s->answer->rt.arena);
    return s->ask->task == SIM_TRAIN ? make_training(s, err) : make_engine(s, err);
}

/* What a stage takes, on the mesh that it has. */
static int plan_stage(const SimAsk *ask, const LayoutStages *stages, int stage, SimAnswer *a,
                      cvn_err *err)
{
    const RuntimeOptions options = {.backend = &counting_backend,
                                    .mesh = stages->mesh,
                                    .devices = {.described = ask->device,
                                                .device = ask->name,
                                                .topology = ask->topology,
                                                .save = ask->save,
                                                .threads = ask->threads,
                                                .blocking = ask->blocking}};
    *a = (SimAnswer){0};
    if (runtime_open(&a->rt, &options, err))
        return err->code;
    Sim s = {.ask = ask,
             .answer = a,
             .stage = stage,
             .stages = stages->n,
             .micro = ask->micro_batch ? (int)(ask->batch / ask->micro_batch) : 1,
             .chip = {.spans = ask->spans, .clock = ask->clock},
             .steps = {.model = {ask->model, ask->layout},
                       .slots = ask->batch,
                       .compute = ask->compute,
                       .kv_int8 = ask->kv_int8,
                       .int8_inputs = ask->int8_inputs}};
    if (ask->chip) {
        cost_model(&s.chip.model, ask->chip);
        if (ask->task == SIM_TRAIN)
            cost_sustained(&s.chip.model);
        counting_time_for(a->rt.devices, &s.chip);
    }
    a->micro = s.micro;
    return protect(make_either, &s, "planning", err);
}

/* The time of a step, of what its stages take; *a is one of them, which takes `own` for itself. */
static int add_stages(const SimAsk *ask, SimAnswer *a, const SimStage *stage, int n, cvn_err *err)
{
    SCOPED(scoped_free) StageTimes *times = calloc((size_t)n, sizeof *times);
    double hop = 0, own = a->timed.seconds, micro = 0;
    if (!times)
        return err_set(err, CVN_EMEM, "no memory for the times of stages");
    for (int s = 0; s < n; s++) {
        a->stage[s] = stage[s];
        times[s] = (StageTimes){stage[s].forward, stage[s].gradient};
        micro =
            a->stage[s].memory == a->memory.total ? stage[s].forward + stage[s].gradient : micro;
    }
    if (ask->chip) {
        CostModel chip;
        cost_model(&chip, ask->chip);
        hop = cost_collective(&chip, COST_PERMUTE, 2, a->rt.mesh.n_devices, a->boundary).seconds;
    }
    double all = stages_seconds(n, a->micro, times, hop, &a->bubble);
    if (all < 0)
        return err_set(err, CVN_EMEM, "no memory for the times of stages");
    if (ask->chip) /* what comes behind all micro-batches is added */
        a->timed.seconds = all + own - micro * a->micro;
    a->n_stages = n;
    a->devices = n * a->rt.mesh.n_devices;
    return CVN_OK;
}

int sim_plan(const SimAsk *ask, SimAnswer *a, cvn_err *err)
{
    double begin = clock_seconds();
    SCOPED(arena_free) Arena arena = {0};
    LayoutStages stages = {1, NULL, ask->mesh, 1};
    *a = (SimAnswer){0};
    if (ask->micro_batch && ask->batch % ask->micro_batch)
        return err_set(err, CVN_EINVAL,
                       "a batch of %lld cannot be divided into micro-batches of %lld",
                       (long long)ask->batch, (long long)ask->micro_batch);
    TRY(arena_begin(&arena, err));
    if (ask->task == SIM_TRAIN)
        TRY(layout_stages(ask->layout, ask->mesh, &arena, &stages, err));
    if (stages.n > model_layers(ask->model))
        return err_set(err, CVN_EINVAL, "%lld layers cannot be divided into %d stages; give fewer",
                       (long long)model_layers(ask->model), stages.n);
    SimStage *stage = arena_array(&arena, (size_t)stages.n, sizeof *stage);
    for (int s = 0; s < stages.n; s++) {
        SimAnswer one;
        int code = plan_stage(ask, &stages, s, &one, err);
        if (!code && ask->task == SIM_TRAIN)
            stage[s] = one.stage[s];
        bool largest = s == 0 || one.memory.total > a->memory.total;
        double boundary = fmax(a->boundary, one.boundary);
        if (largest) {
            sim_answer_free(a);
            *a = one;
        } else {
            sim_answer_free(&one);
        }
        a->boundary = boundary;
        TRY(code);
    }
    a->n_stages = 1;
    a->devices = a->rt.mesh.n_devices;
    if (stages.n > 1)
        TRY(add_stages(ask, a, stage, stages.n, err));
    a->seconds = clock_seconds() - begin;
    return CVN_OK;
}

void sim_answer_free(SimAnswer *answer)
{
    runtime_close(&answer->rt);
    *answer = (SimAnswer){0};
}
