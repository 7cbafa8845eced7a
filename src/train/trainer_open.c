/* Opening a trainer: what its options say is checked, its programs are compiled, its memory is counted and taken. */
#include "train/trainer.h"

#include "base/bytes.h"
#include "base/capacity.h"
#include "base/rng.h"
#include "base/threads.h"
#include "model/forward.h"
#include "model/layouts.h"
#include "train/stages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether gradients are added up, and weights updated from their sums. */
static bool accumulates(const Trainer *t)
{
    return t->options.micro_batch < t->options.batch || t->stages > 1;
}

static int check_options(TrainerOptions *o, const Model *config, cvn_err *err)
{
    if (o->micro_batch == 0)
        o->micro_batch = o->batch;
    if (o->batch < 1 || o->seq < 1)
        return err_set(err, CVN_EINVAL, "a batch has at least 1 sequence of 1 token");
    if (o->micro_batch < 1 || o->batch % o->micro_batch)
        return err_set(err, CVN_EINVAL,
                       "a batch of %" PRId64 " cannot be divided into micro-batches of %" PRId64,
                       o->batch, o->micro_batch);
    if (o->batch > INT32_MAX || o->seq > INT32_MAX || o->batch * o->seq > INT32_MAX / 4)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " sequences of %" PRId64 " tokens are too many for a step; give "
                       "a smaller --batch or --seq",
                       o->batch, o->seq);
    if (o->seq > model_longest_context(config))
        return err_set(err, CVN_EINVAL,
                       "sequences of %" PRId64 " tokens exceed the model's context of %" PRId64
                       "; lower --seq",
                       o->seq, model_longest_context(config));
    if (!model_has_hf_pairs(config))
        return err_set(err, CVN_EINVAL, "the model's rotary pairs are not in Hugging Face's order");
    TRY(optimizer_check(&o->optimizer, err));
    TRY(schedule_check(&o->schedule, err));
    if (o->compute != CVN_F32 && o->compute != CVN_BF16)
        return err_set(err, CVN_EUNSUPPORTED, "cannot compute in %s; use f32 or bf16",
                       cvn_dtype_name(o->compute));
    const DropoutRates *drop = &o->dropout;
    if (!(drop->attention >= 0 && drop->attention < 1 && drop->hidden >= 0 && drop->hidden < 1))
        return err_set(err, CVN_EINVAL, "dropout rates must be from 0 to below 1");
    if (!(o->clip >= 0 && o->z_loss >= 0 && o->beta >= 0))
        return err_set(err, CVN_EINVAL, "clip, z-loss and beta must not be negative");
    if (o->beta > 0 && (o->batch % 2 || o->micro_batch % 2))
        return err_set(
            err, CVN_EINVAL,
            "a preference pair is two sequences; give an even --batch and --micro-batch");
    if (o->beta > 0 && o->z_loss > 0)
        return err_set(err, CVN_EINVAL, "--dpo does not support --z-loss");
    if (!(o->routers.balance >= 0 && o->routers.z >= 0 && o->routers.bias >= 0))
        return err_set(err, CVN_EINVAL,
                       "router-loss, router-z-loss and router-bias must not be negative");
    if (o->routers.bias > 0 && (o->lora.rank > 0 || !model_has_corrections(config)))
        return err_set(
            err, CVN_EINVAL, "router-bias moves the corrections by which experts are chosen, %s",
            o->lora.rank > 0 ? "which --lora does not train" : "and this model has none");
    return CVN_OK;
}

int train_program(Program *program, Runtime *rt, TrainGraph kind, const Model *config,
                  const TrainStepOptions *step, const char *layout, cvn_err *err)
{
    ModelLayout lies = {config, layout};
    const ProgramOptions options = {.mark = layout_mark, .context = &lies, .layout = layout};
    SCOPED(graph_release) cvn_graph *g = train_graph(kind, config, step, err);
    if (!g)
        return err->code;
    return program_make(program, rt, g, &options, err);
}

static TrainStepOptions step_options(const TrainerOptions *o, RematPolicy remat)
{
    return (TrainStepOptions){.batch = o->micro_batch,
                              .seq = o->seq,
                              .compute = o->compute,
                              .clip = o->clip,
                              .z_loss = o->z_loss,
                              .routers = o->routers,
                              .remat = remat,
                              .optimizer = o->optimizer,
                              .lora = o->lora,
                              .beta = o->beta,
                              .dropout = o->dropout,
                              .exact = o->exact};
}

/* Whether there is a program that only evaluates: else the one that adds up gradients does. */
static bool evaluates_alone(const Trainer *t)
{
    const TrainStepOptions step = step_options(&t->options, REMAT_NONE);
    return t->options.evaluates && (!accumulates(t) || train_drops(&step) || t->stages > 1);
}

/* In every stage that has such a graph. */
static int compile_one(Trainer *t, TrainGraph kind, RematPolicy remat, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    TrainStepOptions step = step_options(o, remat);
    step.stages = t->stages;
    for (int k = 0; k < t->n_stages; k++) {
        TrainStage *stage = &t->stage[k];
        Program *p = &stage->program[kind];
        program_free(p); /* of another policy */
        step.stage = stage->number;
        if (kind == TRAIN_FORWARD && stage->number == t->stages - 1)
            continue;
        TRY(train_program(p, &stage->rt, kind, t->model, &step, o->layout, err));
        for (int i = 0; i < OPTIMIZER_MAX_SCALARS; i++)
            program_bind(p, ROLE_SCALAR, i, &t->scalar[i]);
        program_bind(p, ROLE_SUMS, 0, t->sums);
    }
    return CVN_OK;
}

/* ---- memory ---- */

static size_t bytes_between(const Trainer *t, Role first, Role last)
{
    size_t bytes = 0;
    for (int role = (int)first; role <= (int)last; role++)
        for (int k = 0; k < t->n_stages; k++)
            bytes += runtime_role_bytes(&t->stage[k].rt, (Role)role);
    return bytes;
}

/* The temporary memory of a device of a stage: the maximum over the programs that there are. */
static size_t temporary_of(const TrainStage *stage)
{
    size_t most = 0;
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        if (stage->program[i].info.temporary_bytes > most)
            most = stage->program[i].info.temporary_bytes;
    return most;
}

/* Of all devices that are here, with what is between stages and waits in them. */
static size_t temporary_bytes(const Trainer *t)
{
    size_t bytes = bytes_between(t, ROLE_BOUNDARY, ROLE_KEPT);
    for (int k = 0; k < t->n_stages; k++)
        bytes += (size_t)t->stage[k].rt.info.n_local * temporary_of(&t->stage[k]);
    return bytes;
}

/* The most sequences at once that are likely to fit, for a message: what is computed grows with their number, and their
 * gradients are kept, each as its weight lies. 0: none, or as many as there are now. */
static int64_t fitting_micro_batch(const Trainer *t, size_t state, size_t temporary)
{
    const TrainerOptions *o = &t->options;
    size_t kept = bytes_between(t, ROLE_TRAINED, ROLE_ADAPTER);
    double room = (double)o->memory_limit - (double)state - (double)kept;
    for (int64_t micro = o->micro_batch - 1; micro > 0; micro--)
        if (o->batch % micro == 0 && micro % t->stage->rt.mesh.n_devices == 0 &&
            1.05 * (double)temporary / (double)o->micro_batch * (double)micro <= room)
            return micro;
    return 0;
}

static const char *other_optimizer(const TrainerOptions *o)
{
    return o->optimizer.kind == OPTIMIZER_ADAFACTOR ? "" : ", or --optimizer adafactor";
}

/* Refuses before anything is allocated. */
static int check_memory(Trainer *t, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    size_t state = bytes_between(t, ROLE_WEIGHT, ROLE_ROUNDED);
    size_t sums = bytes_between(t, ROLE_SUM, ROLE_PEER);
    size_t temporary = temporary_bytes(t);
    t->bytes = state + sums + temporary;
    if (t->bytes <= o->memory_limit)
        return CVN_OK;
    char try[64] = "";
    int64_t micro = fitting_micro_batch(t, state, temporary);
    if (micro > 0)
        snprintf(try, sizeof try, "try --micro-batch %" PRId64 ", or ", micro);
    return err_set(
        err, CVN_EMEM,
        "training needs %s (weights and optimizer %s, accumulated gradients %s, activations %s), "
        "but the limit is %s; %suse a smaller model, --batch or --seq%s",
        bytes_text((double)t->bytes).text, bytes_text((double)state).text,
        bytes_text((double)sums).text, bytes_text((double)temporary).text,
        bytes_text((double)o->memory_limit).text, try, other_optimizer(o));
}

/* The programs of a step. */
static int compile_step(Trainer *t, RematPolicy policy, cvn_err *err)
{
    if (!accumulates(t))
        return compile_one(t, TRAIN_STEP, policy, err);
    if (t->stages > 1)
        TRY(compile_one(t, TRAIN_FORWARD, policy, err));
    TRY(compile_one(t, TRAIN_GRADIENT, policy, err));
    if (t->stages > 1)
        TRY(compile_one(t, TRAIN_SQUARES, policy, err));
    return compile_one(t, TRAIN_UPDATE, policy, err);
}

/* The policy asked for, or the cheapest whose plan fits. */
static int compile_within(Trainer *t, cvn_err *err)
{
    RematPolicy *policy = &t->options.remat;
    bool choose = *policy == REMAT_POLICY_COUNT;
    for (*policy = choose ? REMAT_NONE : *policy;; (*policy)++) {
        cvn_err here = {0};
        int code = compile_step(t, *policy, &here);
        for (int k = 0; k < t->n_stages; k++) {
            TrainStage *stage = &t->stage[k];
            stage_hold(&stage->rt,
                       stage_kept(stage->number, t->stages,
                                  (int)(t->options.batch / t->options.micro_batch)),
                       *policy);
        }
        if (!code && !check_memory(t, &here))
            return CVN_OK;
        if (here.code != CVN_EMEM || !choose || *policy == REMAT_POLICY_COUNT - 1)
            return err_set(err, here.code, "%s", here.message);
    }
}

/* Of devices of a stage. */
static void note_needed(Trainer *t, const TrainStage *stage)
{
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        for (int role = ROLE_TOKENS; role <= ROLE_STARTS && stage->program[i].rt; role++)
            for (int64_t r = 0; r < t->options.micro_batch; r++)
                t->need[r] |= program_needs_row(&stage->program[i], (Role)role, 0, r);
}

/* Into how many stages the model is divided, and what cannot be done so. */
static int find_stages(Trainer *t, LayoutStages *out, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    int64_t layers = model_layers(t->model);
    TRY(layout_stages(o->layout, o->mesh ? o->mesh : "", &t->arena, out, err));
    t->stages = out->n;
    t->stage_axis = out->axis;
    if (out->n > layers)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " layers cannot be divided into %d stages; give fewer", layers,
                       out->n);
    if (out->n > 1 && o->beta > 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "--dpo does not support stages; leave their axis out of --mesh");
    return CVN_OK;
}

/* The runtimes of the stages that are here. */
static int open_stages(Trainer *t, const LayoutStages *stages, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    int first;
    Cluster *part;
    int n = stages_here(o->cluster, stages->n, &first, &part, err);
    if (n < 1)
        return err->code;
    t->part = part == o->cluster ? NULL : part;
    t->stage = arena_array(&t->arena, (size_t)n, sizeof *t->stage);
    RuntimeOptions runtime = {.mesh = stages->mesh,
                              .devices = {.device = o->device,
                                          .cluster = part,
                                          .threads = o->threads,
                                          .dump_dir = o->dump_dir,
                                          .portable = o->portable,
                                          .blocking = o->blocking}};
    if (n > 1 && !o->threads) {
        int devices = n * stages->devices / cluster_size(part);
        runtime.devices.threads = (threads_available() + devices - 1) / devices;
    }
    for (; t->n_stages < n; t->n_stages++) {
        TrainStage *stage = &t->stage[t->n_stages];
        stage->number = first + t->n_stages;
        if (runtime_open(&stage->rt, &runtime, err)) {
            runtime_close(&stage->rt);
            return err->code;
        }
    }
    return CVN_OK;
}

typedef struct Opening {
    Trainer *t;
    const Model *config;
    const TrainerOptions *options;
    bool checks; /* and nothing more */
} Opening;

/* The options with their defaults, and the list of the state, which needs no devices; then everything else. */
static int open_all(void *of, cvn_err *err)
{
    const Opening *opening = of;
    const Model *config = opening->config;
    Trainer *t = opening->t;
    *t = (Trainer){.options = *opening->options};
    TrainerOptions *o = &t->options;
    TRY(check_options(o, config, err));
    o->layout = o->layout ? o->layout : "2d";
    o->memory_limit = o->memory_limit ? o->memory_limit : capacity_memory();
    const TrainStateOptions state = {o->optimizer, o->lora, o->compute};
    TRY(train_state_init(&t->state, config, &state, err));
    t->model = model_copy(config, &t->state.arena);
    /* What a device of a mesh holds of it is known when the step was cut. */
    if (t->state.bytes > o->memory_limit && !(o->mesh && *o->mesh))
        return err_set(err, CVN_EMEM,
                       "training needs %s for weights and optimizer alone, but the limit is %s; "
                       "use a smaller model%s",
                       bytes_text((double)t->state.bytes).text,
                       bytes_text((double)o->memory_limit).text, other_optimizer(o));
    LayoutStages stages;
    TRY(arena_init(&t->arena, err));
    TRY(find_stages(t, &stages, err));
    if (opening->checks)
        return CVN_OK;
    TRY(open_stages(t, &stages, err));
    TRY(compile_within(t, err));
    if (evaluates_alone(t) && compile_one(t, TRAIN_EVALUATE, REMAT_NONE, err))
        return err->code;
    if (o->beta > 0 && compile_one(t, TRAIN_SCORE, REMAT_NONE, err))
        return err->code;
    /* The programs with a batch are marked alike, but each is asked. */
    t->key = arena_array(&t->arena, 2 * (size_t)o->batch, sizeof *t->key);
    t->need = arena_array(&t->arena, (size_t)o->micro_batch, sizeof *t->need);
    TRY(stages_allocate(t, err));
    const Runtime **rt = arena_array(&t->arena, (size_t)t->n_stages, sizeof *rt);
    for (int k = 0; k < t->n_stages; k++) {
        TrainStage *stage = &t->stage[k];
        rt[k] = &stage->rt;
        note_needed(t, stage);
        for (int role = ROLE_WEIGHT; role < ROLE_RESIDENT; role++)
            TRY(runtime_allocate(&stage->rt, (Role)role, err));
        TRY(stage->rt.backend->reserve(stage->rt.devices, temporary_of(stage), err));
    }
    TRY(stages_link(t, err));
    return train_state_place(&t->state,
                             &(StateStages){rt, t->n_stages, t->stage->number, t->stages}, err);
}

int trainer_check(const Model *config, const TrainerOptions *options, cvn_err *err)
{
    Trainer t = {0};
    int code =
        protect(open_all, &(Opening){&t, config, options, true}, "listing a trainer's state", err);
    trainer_close(&t);
    return code;
}

int trainer_open(Trainer *t, const Model *config, const TrainerOptions *options, cvn_err *err)
{
    *t = (Trainer){0};
    int code =
        protect(open_all, &(Opening){t, config, options, false}, "building the training step", err);
    if (code)
        trainer_close(t);
    return code;
}

void trainer_close(Trainer *t)
{
    stages_unlink(t);
    for (int k = 0; k < t->n_stages; k++) {
        for (int i = 0; i < TRAIN_GRAPHS; i++)
            program_free(&t->stage[k].program[i]);
        runtime_close(&t->stage[k].rt);
    }
    cluster_part_free(t->part);
    train_state_free(&t->state);
    arena_free(&t->arena);
    *t = (Trainer){0};
}

int train_batch_new(TrainBatch *batch, int64_t rows, int64_t seq, cvn_err *err)
{
    int64_t n = rows * seq;
    *batch = (TrainBatch){calloc((size_t)n, sizeof(int32_t)), calloc((size_t)n, sizeof(int32_t)),
                          calloc((size_t)n, sizeof(int32_t)), calloc((size_t)rows, sizeof(float))};
    if (batch->tokens && batch->targets && batch->starts && batch->reference)
        return CVN_OK;
    return err_set(err, CVN_EMEM, "no memory for a batch of %" PRId64 " tokens", n);
}

void train_batch_free(TrainBatch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    free(batch->starts);
    free(batch->reference);
    *batch = (TrainBatch){0};
}
