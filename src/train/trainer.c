#include "train/trainer.h"

#include "base/bytes.h"
#include "base/capacity.h"
#include "base/rng.h"
#include "model/forward.h"
#include "model/layouts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool accumulates(const TrainerOptions *o)
{
    return o->micro_batch < o->batch;
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
                              .remat = remat,
                              .optimizer = o->optimizer,
                              .lora = o->lora,
                              .beta = o->beta,
                              .dropout = o->dropout,
                              .exact = o->exact};
}

/* Whether there is a program that only evaluates: else the one that adds up gradients does. */
static bool evaluates_alone(const TrainerOptions *o)
{
    const TrainStepOptions step = step_options(o, REMAT_NONE);
    return o->evaluates && (!accumulates(o) || train_drops(&step));
}

static int compile_one(Trainer *t, TrainGraph kind, RematPolicy remat, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    const TrainStepOptions step = step_options(o, remat);
    Program *p = &t->program[kind];
    program_free(p); /* of another policy */
    TRY(train_program(p, &t->rt, kind, t->model, &step, o->layout, err));
    for (int i = 0; i < OPTIMIZER_MAX_SCALARS; i++)
        program_bind(p, ROLE_SCALAR, i, &t->scalar[i]);
    return CVN_OK;
}

/* ---- memory ---- */

static size_t bytes_between(const Trainer *t, Role first, Role last)
{
    size_t bytes = 0;
    for (int role = (int)first; role <= (int)last; role++)
        bytes += runtime_role_bytes(&t->rt, (Role)role);
    return bytes;
}

/* The temporary memory of one device: the maximum over the programs that there are. */
static size_t temporary_bytes(const Trainer *t)
{
    size_t most = 0;
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        if (t->program[i].info.temporary_bytes > most)
            most = t->program[i].info.temporary_bytes;
    return most;
}

/* The most sequences at once that are likely to fit, for a message: what is computed grows with their number, and their
 * gradients are kept, each as its weight lies. 0: none, or as many as there are now. */
static int64_t fitting_micro_batch(const Trainer *t, size_t state, size_t temporary)
{
    const TrainerOptions *o = &t->options;
    size_t kept = bytes_between(t, ROLE_TRAINED, ROLE_ADAPTER);
    double room = (double)o->memory_limit - (double)state - (double)kept;
    for (int64_t micro = o->micro_batch - 1; micro > 0; micro--)
        if (o->batch % micro == 0 && micro % t->rt.mesh.n_devices == 0 &&
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
    size_t sums = bytes_between(t, ROLE_SUM, ROLE_TOTAL);
    size_t temporary = temporary_bytes(t) * (size_t)t->rt.info.n_local;
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

/* The policy asked for, or the cheapest whose plan fits. */
static int compile_within(Trainer *t, cvn_err *err)
{
    RematPolicy *policy = &t->options.remat;
    bool choose = *policy == REMAT_POLICY_COUNT, parts = accumulates(&t->options);
    for (*policy = choose ? REMAT_NONE : *policy;; (*policy)++) {
        cvn_err here = {0};
        if (!compile_one(t, parts ? TRAIN_GRADIENT : TRAIN_STEP, *policy, &here) &&
            !(parts && compile_one(t, TRAIN_UPDATE, REMAT_NONE, &here)) && !check_memory(t, &here))
            return CVN_OK;
        if (here.code != CVN_EMEM || !choose || *policy == REMAT_POLICY_COUNT - 1)
            return err_set(err, here.code, "%s", here.message);
    }
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
    if (opening->checks)
        return CVN_OK;
    const RuntimeOptions runtime = {.mesh = o->mesh,
                                    .devices = {.device = o->device,
                                                .cluster = o->cluster,
                                                .threads = o->threads,
                                                .dump_dir = o->dump_dir,
                                                .portable = o->portable,
                                                .blocking = o->blocking}};
    Runtime *rt = &t->rt;
    if (arena_init(&t->arena, err) || runtime_open(rt, &runtime, err) || compile_within(t, err))
        return err->code;
    if (evaluates_alone(o) && compile_one(t, TRAIN_EVALUATE, REMAT_NONE, err))
        return err->code;
    if (o->beta > 0 && compile_one(t, TRAIN_SCORE, REMAT_NONE, err))
        return err->code;
    /* The programs with a batch are marked alike, but each is asked. */
    t->key = arena_array(&t->arena, 2 * (size_t)o->batch, sizeof *t->key);
    t->need = arena_array(&t->arena, (size_t)o->micro_batch, sizeof *t->need);
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        for (int role = ROLE_TOKENS; role <= ROLE_STARTS; role++)
            for (int64_t r = 0; r < o->micro_batch; r++)
                t->need[r] |= program_needs_row(&t->program[i], (Role)role, 0, r);
    for (int role = ROLE_WEIGHT; role < ROLE_RESIDENT; role++)
        TRY(runtime_allocate(rt, (Role)role, err));
    TRY(rt->backend->reserve(rt->devices, temporary_bytes(t), err));
    return train_state_place(&t->state, rt, err);
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
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        program_free(&t->program[i]);
    runtime_close(&t->rt);
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

bool trainer_needs(const Trainer *t, int64_t row)
{
    return t->need[row % t->options.micro_batch];
}

/* ---- steps ---- */

/* On the rows from number `first` on; batch is NULL for a program without. */
static int run(Trainer *t, TrainGraph kind, const TrainBatch *batch, int64_t first, cvn_err *err)
{
    Program *p = &t->program[kind];
    int64_t at = first * t->options.seq;
    if (batch) {
        program_bind(p, ROLE_TOKENS, 0, batch->tokens + at);
        program_bind(p, ROLE_TARGETS, 0, batch->targets + at);
        program_bind(p, ROLE_STARTS, 0, batch->starts + at);
        program_bind(p, ROLE_REFERENCE, 0, batch->reference ? batch->reference + first : NULL);
        program_bind(p, ROLE_KEY, 0, t->key + 2 * first);
    }
    return program_run(p, err);
}

static int clear_sums(Trainer *t, cvn_err *err)
{
    for (Buffer *b = t->rt.first; b; b = b->next)
        if ((b->role == ROLE_SUM || b->role == ROLE_TOTAL) && buffer_clear(&t->rt, b, err))
            return err->code;
    return CVN_OK;
}

/* All micro-batches of a step, then the update. */
static int run_accumulated(Trainer *t, const TrainBatch *batch, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    cvn_err ignored = {0};
    int code = CVN_OK;
    for (int64_t i = 0; i < o->batch && !code; i += o->micro_batch)
        code = run(t, TRAIN_GRADIENT, batch, i, err);
    code = code ? code : run(t, TRAIN_UPDATE, NULL, 0, err);
    if (code)
        clear_sums(t, &ignored);
    return code;
}

/* A key for each sequence that the run takes, by which its elements are dropped. */
static void make_keys(Trainer *t)
{
    const CheckpointState *saved = &t->state.saved;
    const RngKey key = rng_key(saved->seed, "dropout");
    for (int64_t row = 0; row < t->options.batch; row++) {
        uint64_t at = (uint64_t)(saved->position + row);
        rng_threefry2x32(key.word, (const uint32_t[]){(uint32_t)(at >> 32), (uint32_t)at},
                         t->key + 2 * row);
    }
}

int trainer_step(Trainer *t, const TrainBatch *batch, TrainReport *report, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    CheckpointState *saved = &t->state.saved;
    double factor = schedule_factor(&o->schedule, saved->step + 1);
    optimizers[o->optimizer.kind].scalars(&o->optimizer, *t->state.updates + 1, factor, t->scalar);
    make_keys(t);
    TRY(accumulates(o) ? run_accumulated(t, batch, err) : run(t, TRAIN_STEP, batch, 0, err));
    TrainGraph last = accumulates(o) ? TRAIN_UPDATE : TRAIN_STEP;
    const float *got = program_output(&t->program[last], ROLE_REPORT, 0);
    double count = got[TRAIN_COUNT] > 0 ? (double)got[TRAIN_COUNT] : 1;
    *report = (TrainReport){.loss = (double)got[TRAIN_SUM] / count,
                            .z = (double)got[TRAIN_Z] / count,
                            .lr = (double)t->scalar[0],
                            .grad_norm = (double)got[TRAIN_NORM],
                            .tokens = (double)got[TRAIN_COUNT],
                            .updated = got[TRAIN_UPDATED] > 0};
    *t->state.updates += report->updated;
    saved->step++;
    saved->tokens += o->batch * o->seq;
    saved->position += o->batch;
    return CVN_OK;
}

int trainer_score(Trainer *t, const TrainBatch *batch, float *out, cvn_err *err)
{
    if (!t->program[TRAIN_SCORE].rt)
        return err_set(err, CVN_EINVAL, "the trainer was opened without preference pairs");
    TRY(run(t, TRAIN_SCORE, batch, 0, err));
    memcpy(out, program_output(&t->program[TRAIN_SCORE], ROLE_REPORT, 0),
           (size_t)t->options.micro_batch * sizeof *out);
    return CVN_OK;
}

int trainer_evaluate(Trainer *t, const TrainBatch *batch, double *sum, double *count, cvn_err *err)
{
    if (!t->options.evaluates)
        return err_set(err, CVN_EINVAL, "the trainer was opened without evaluation");
    float got[TRAIN_TOTALS];
    TrainGraph kind = evaluates_alone(&t->options) ? TRAIN_EVALUATE : TRAIN_GRADIENT;
    TRY(run(t, kind, batch, 0, err));
    const float *report = program_output(&t->program[kind], ROLE_REPORT, 0);
    const Buffer *total = runtime_buffer(&t->rt, ROLE_TOTAL, 0);
    if (report)
        memcpy(got, report, sizeof got);
    else if (t->rt.backend->download(t->rt.devices, total->memory[0], 0, sizeof got, got, err) ||
             clear_sums(t, err))
        return err->code;
    *sum += (double)got[TRAIN_SUM];
    *count += (double)got[TRAIN_COUNT];
    return CVN_OK;
}
