#include "train/trainer.h"

#include "base/bytes.h"
#include "base/num.h"
#include "base/room.h"
#include "comm/account.h"
#include "graph/graph.h"
#include "io/convert.h"
#include "io/save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static bool accumulates(const TrainerOptions *o)
{
    return o->micro_batch < o->batch;
}

static int check_options(TrainerOptions *o, const LlamaConfig *config, cvn_err *err)
{
    if (o->micro_batch == 0)
        o->micro_batch = o->batch;
    if (o->batch < 1 || o->seq < 1)
        return err_set(err, CVN_EINVAL, "a batch has at least 1 sequence of 1 token");
    if (o->micro_batch < 1 || o->batch % o->micro_batch)
        return err_set(err, CVN_EINVAL,
                       "a batch of %" PRId64 " does not divide into micro-batches of %" PRId64,
                       o->batch, o->micro_batch);
    if (o->batch > INT32_MAX || o->seq > INT32_MAX || o->batch * o->seq > INT32_MAX / 4)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " sequences of %" PRId64 " tokens are too many for a step; give "
                       "a smaller --batch or --seq",
                       o->batch, o->seq);
    if (o->seq > config->max_context)
        return err_set(err, CVN_EINVAL,
                       "sequences of %" PRId64 " tokens exceed the model's context of %" PRId64
                       "; lower --seq",
                       o->seq, config->max_context);
    if (config->rope_interleaved)
        return err_set(err, CVN_EINVAL, "the model's rotary pairs are not in Hugging Face's order");
    int code = optimizer_check(&o->optimizer, err);
    if (code == CVN_OK)
        code = schedule_check(&o->schedule, err);
    if (code == CVN_OK && o->compute != CVN_F32 && o->compute != CVN_BF16)
        code = err_set(err, CVN_EUNSUPPORTED, "cannot compute in %s; use f32 or bf16",
                       cvn_dtype_name(o->compute));
    if (code == CVN_OK && !(o->clip >= 0 && o->z_loss >= 0))
        code = err_set(err, CVN_EINVAL, "clip and z-loss are numbers from 0 up");
    return code;
}

static int compile_one(Trainer *t, TrainGraph kind, RematPolicy remat, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    TrainProgram *program = &t->program[kind];
    TrainStepOptions step = {.batch = o->micro_batch,
                             .seq = o->seq,
                             .compute = o->compute,
                             .clip = o->clip,
                             .z_loss = o->z_loss,
                             .remat = remat,
                             .optimizer = o->optimizer,
                             .lora = o->lora};
    cvn_graph *g = train_graph(kind, &t->config, &step, err);
    if (!g)
        return err->code;
    int code = CVN_OK;
    if (t->mesh) {
        cvn_graph *local;
        if (!program->mesh)
            program->mesh = arena_alloc(&t->arena, sizeof *program->mesh);
        train_mesh_step_free(program->mesh); /* of another policy */
        code = train_mesh_cut(t->mesh, g, program->mesh, &local, err);
        cvn_graph_free(g);
        if (code)
            return code;
        g = local;
    }
    code = cache_get(&t->cache, g, &program->plan, err);
    cvn_graph_free(g);
    return code;
}

static int compile_step(Trainer *t, RematPolicy remat, cvn_err *err)
{
    if (!accumulates(&t->options))
        return compile_one(t, TRAIN_STEP, remat, err);
    int code = compile_one(t, TRAIN_GRADIENT, remat, err);
    return code ? code : compile_one(t, TRAIN_UPDATE, REMAT_NONE, err);
}

static void *named_scalar(Trainer *t, const char *name)
{
    const Optimizer *optimizer = &optimizers[t->options.optimizer.kind];
    for (int i = 0; i < optimizer->n_scalars; i++)
        if (strcmp(optimizer->scalar[i], name) == 0)
            return &t->scalar[i];
    return NULL;
}

/* Addresses in the order that step.h promises: weights, slots, rounded, accumulators; tokens, targets, starts and scalars go
 * by name; what has none of these names is frozen, in its order. */
static void bind(Trainer *t, TrainGraph kind)
{
    TrainProgram *program = &t->program[kind];
    const Plan *plan = program->plan;
    bool updates = kind == TRAIN_STEP || kind == TRAIN_UPDATE;
    bool accumulators = kind == TRAIN_GRADIENT || kind == TRAIN_UPDATE;
    int n = 0, n_weights = t->state.n_weights;
    int n_saved = updates ? t->state.saved.n - 1 : n_weights;
    for (; n < n_saved; n++)
        program->param[n] = t->state.saved.tensor[n].data;
    for (int i = 0; i < n_weights; i++)
        if (t->state.rounded[i].name)
            program->param[n++] = t->state.rounded[i].data;
    char *sum = t->accumulators;
    for (int i = 0; accumulators && i <= n_weights; i++) {
        program->param[n] = sum;
        sum += num_padded(plan->parameter[n++].bytes, CACHE_LINE);
    }
    for (int frozen = 0; n < plan->n_parameters; n++) {
        const char *name = plan->parameter[n].name;
        if (strcmp(name, "tokens") == 0) {
            program->tokens = n;
            n += 2; /* targets, starts */
        } else if (!(program->param[n] = named_scalar(t, name)))
            program->param[n] = t->state.frozen[frozen++].data;
    }
}

/* Of a mesh only the inputs are given by the host; the sums are looked at on its first device here. */
static int bind_mesh(Trainer *t, TrainProgram *program, cvn_err *err)
{
    const Plan *plan = program->plan;
    for (int i = 0; i < plan->n_parameters; i++) {
        const char *name = plan->parameter[i].name;
        if (strcmp(name, "tokens") == 0)
            program->tokens = i;
        program->param[i] =
            strcmp(name, "total") == 0 ? t->mesh->data[t->mesh->n - 1] : named_scalar(t, name);
    }
    return train_mesh_bind(t->mesh, plan, program->mesh, &t->arena, err);
}

/* The tables of addresses of all programs that there are. */
static int bind_all(Trainer *t, cvn_err *err)
{
    int code = CVN_OK;
    for (int kind = 0; kind < TRAIN_GRAPHS && code == CVN_OK; kind++) {
        TrainProgram *program = &t->program[kind];
        if (!program->plan)
            continue;
        program->param =
            arena_array(&t->arena, (size_t)program->plan->n_parameters, sizeof(void *));
        program->output = arena_array(&t->arena, (size_t)program->plan->n_outputs, sizeof(void *));
        if (t->mesh)
            code = bind_mesh(t, program, err);
        else
            bind(t, (TrainGraph)kind);
    }
    return code;
}

static TrainStateOptions state_options(const TrainerOptions *o)
{
    return (TrainStateOptions){.optimizer = o->optimizer.kind,
                               .lora = o->lora,
                               .compute = o->compute,
                               .elsewhere = o->mesh != NULL};
}

static size_t largest_arena(const Trainer *t)
{
    size_t most = 0;
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        if (t->program[i].plan && t->program[i].plan->arena_bytes > most)
            most = t->program[i].plan->arena_bytes;
    return most;
}

/* Bytes of gradients that are kept from one micro-batch to the next. */
static size_t accumulator_bytes(const Plan *plan)
{
    size_t sum = 0;
    for (int i = 0; plan && i < plan->n_parameters; i++)
        if (strncmp(plan->parameter[i].name, "sum.", 4) == 0 ||
            strcmp(plan->parameter[i].name, "total") == 0)
            sum += num_padded(plan->parameter[i].bytes, CACHE_LINE);
    return sum;
}

/* The most sequences at once that are likely to fit, for a message: what is computed grows with their number, and their
 * gradients are kept. 0: none, or as many as there are now. */
static int64_t fitting_micro_batch(const Trainer *t, size_t state, size_t arena)
{
    const TrainerOptions *o = &t->options;
    double kept = t->accumulator_bytes ? (double)t->accumulator_bytes
                  : o->lora.rank       ? 0
                                       : 4 * (double)model_size(&t->config).params;
    double room = (double)o->memory_limit - (double)state - kept;
    for (int64_t micro = o->micro_batch - 1; micro > 0; micro--)
        if (o->batch % micro == 0 &&
            1.05 * (double)arena / (double)o->micro_batch * (double)micro <= room)
            return micro;
    return 0;
}

/* Refuses before anything is allocated; before compiling, by the state alone. */
static int check_memory(Trainer *t, cvn_err *err)
{
    size_t state, arena = largest_arena(t);
    TrainStateOptions options = state_options(&t->options);
    int code = train_state_size(&t->config, &options, &state, err);
    if (code)
        return code;
    t->accumulator_bytes = accumulator_bytes(t->program[TRAIN_UPDATE].plan);
    if (t->mesh) {
        state = train_mesh_state_bytes(t->mesh);
        t->accumulator_bytes = train_mesh_sum_bytes(t->mesh);
        arena *= (size_t)t->mesh->devices.n_local;
    }
    t->bytes = state + t->accumulator_bytes + arena;
    if (t->bytes <= t->options.memory_limit)
        return CVN_OK;
    const char *other =
        t->options.optimizer.kind == OPTIMIZER_ADAFACTOR ? "" : ", or --optimizer adafactor";
    ByteText sum = bytes_text((double)t->bytes);
    ByteText limit = bytes_text((double)t->options.memory_limit);
    if (arena == 0)
        return err_set(
            err, CVN_EMEM,
            "training needs %s for weights and optimizer alone and the limit is %s; take "
            "a smaller model%s",
            sum.text, limit.text, other);
    char try[64] = "";
    int64_t micro = t->mesh ? 0 : fitting_micro_batch(t, state, arena);
    if (micro > 0)
        snprintf(try, sizeof try, "try --micro-batch %" PRId64 ", or ", micro);
    return err_set(
        err, CVN_EMEM,
        "training needs %s (weights and optimizer %s, gradients kept %s, activations %s) "
        "and the limit is %s; %stake a smaller model, --batch or --seq%s",
        sum.text, bytes_text((double)state).text, bytes_text((double)t->accumulator_bytes).text,
        bytes_text((double)arena).text, limit.text, try, other);
}

/* The policy asked for, or the cheapest whose plan fits. */
static int compile_within(Trainer *t, cvn_err *err)
{
    RematPolicy *policy = &t->options.remat;
    bool choose = *policy == REMAT_POLICY_COUNT;
    for (*policy = choose ? REMAT_NONE : *policy;; (*policy)++) {
        cvn_err here = {0};
        int code = compile_step(t, *policy, &here);
        if (code == CVN_OK)
            code = check_memory(t, &here);
        if (code == CVN_OK)
            return CVN_OK;
        if (code != CVN_EMEM || !choose || *policy == REMAT_POLICY_COUNT - 1)
            return err_set(err, code, "%s", here.message);
    }
}

static int allocate(Trainer *t, cvn_err *err)
{
    TrainStateOptions options = state_options(&t->options);
    if (t->mesh) {
        int rc = train_mesh_allocate(t->mesh, largest_arena(t), err);
        return rc ? rc : train_mesh_shards(t->mesh, &t->state.saved, &t->state.saved.shards, err);
    }
    int code = train_state_init(&t->state, &t->config, &options, err);
    if (code == CVN_OK)
        code = device_reserve(t->device, largest_arena(t), err);
    if (code || t->accumulator_bytes == 0)
        return code;
    t->accumulators = mmap(NULL, t->accumulator_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (t->accumulators != MAP_FAILED)
        return CVN_OK;
    t->accumulators = NULL;
    return err_set(err, CVN_EMEM, "no memory for %zu bytes of gradients", t->accumulator_bytes);
}

int trainer_check(const LlamaConfig *config, const TrainerOptions *options, cvn_err *err)
{
    Trainer t = {.config = *config, .options = *options};
    int code = check_options(&t.options, config, err);
    if (t.options.memory_limit == 0)
        t.options.memory_limit = room_memory();
    /* What a device of a mesh holds is known when the step was cut. */
    bool mesh = options->mesh && *options->mesh;
    return code || mesh ? code : check_memory(&t, err);
}

/* The devices, and on which of them the state lies. */
static int open_devices(Trainer *t, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    if (!o->mesh) {
        t->device = device_new(o->threads, NULL, err);
        return t->device ? CVN_OK : err->code;
    }
    TrainStateOptions options = state_options(o);
    int code = train_state_init(&t->state, &t->config, &options, err);
    if (code)
        return code;
    t->mesh = arena_alloc(&t->arena, sizeof *t->mesh);
    const TrainMeshOptions mesh = {.config = &t->config,
                                   .state = &t->state,
                                   .optimizer = o->optimizer.kind,
                                   .accumulates = accumulates(o),
                                   .mesh = o->mesh,
                                   .layout = o->layout,
                                   .cluster = o->cluster,
                                   .threads = o->threads};
    code = train_mesh_open(t->mesh, &mesh, err);
    if (code == CVN_OK)
        t->device = group_device(t->mesh->devices.group, 0);
    return code;
}

/* The programs with a batch are marked alike, but each is asked. */
static void find_rows(Trainer *t)
{
    int64_t rows = t->options.micro_batch;
    t->need = arena_array(&t->arena, (size_t)rows, sizeof *t->need);
    bool *one = arena_array(&t->arena, (size_t)rows, sizeof *one);
    for (int i = 0; i < TRAIN_GRAPHS; i++) {
        const TrainProgram *program = &t->program[i];
        if (!program->plan || i == TRAIN_UPDATE)
            continue;
        train_mesh_rows(t->mesh, program->plan, program->mesh, one, rows);
        for (int64_t r = 0; r < rows; r++)
            t->need[r] = t->need[r] || one[r];
    }
}

static int open_parts(Trainer *t, cvn_err *err)
{
    if (t->options.mesh && !*t->options.mesh)
        t->options.mesh = NULL;
    int code = check_options(&t->options, &t->config, err);
    if (code == CVN_OK)
        code = arena_init(&t->arena, err);
    if (code)
        return code;
    if (t->options.memory_limit == 0)
        t->options.memory_limit = room_memory();
    code = open_devices(t, err);
    if (code)
        return code;
    CompileOptions compile = {.backend = t->device->backend,
                              .n_threads = device_threads(t->device),
                              .blocking = t->options.blocking,
                              .dump_dir = t->options.dump_dir};
    code = cache_init(&t->cache, &compile, err);
    if (code == CVN_OK)
        code = check_memory(t, err);
    if (code == CVN_OK)
        code = compile_within(t, err);
    if (code == CVN_OK && t->options.evaluates && !accumulates(&t->options))
        code = compile_one(t, TRAIN_EVALUATE, REMAT_NONE, err);
    if (code == CVN_OK)
        code = allocate(t, err);
    if (code == CVN_OK)
        code = bind_all(t, err);
    if (code == CVN_OK && t->mesh)
        find_rows(t);
    return code;
}

int trainer_open(Trainer *t, const LlamaConfig *config, const TrainerOptions *options, cvn_err *err)
{
    *t = (Trainer){.config = *config, .options = *options};
    cvn_err local = {0};
    int code = open_parts(t, err ? err : &local);
    if (code)
        trainer_close(t);
    return code;
}

void trainer_close(Trainer *t)
{
    if (t->accumulators)
        munmap(t->accumulators, t->accumulator_bytes);
    for (int i = 0; i < TRAIN_GRAPHS; i++)
        if (t->program[i].mesh)
            train_mesh_step_free(t->program[i].mesh);
    cache_free(&t->cache);
    if (t->mesh)
        train_mesh_close(t->mesh);
    else
        device_free(t->device);
    train_state_free(&t->state);
    arena_free(&t->arena);
    *t = (Trainer){0};
}

int train_batch_new(TrainBatch *batch, int64_t n, cvn_err *err)
{
    *batch = (TrainBatch){calloc((size_t)n, sizeof(int32_t)), calloc((size_t)n, sizeof(int32_t)),
                          calloc((size_t)n, sizeof(int32_t))};
    if (batch->tokens && batch->targets && batch->starts)
        return CVN_OK;
    return err_set(err, CVN_EMEM, "no memory for a batch of %" PRId64 " tokens", n);
}

void train_batch_free(TrainBatch *batch)
{
    free(batch->tokens);
    free(batch->targets);
    free(batch->starts);
    *batch = (TrainBatch){0};
}

bool trainer_needs(const Trainer *t, int64_t row)
{
    return !t->need || t->need[row % t->options.micro_batch];
}

int trainer_devices(const Trainer *t)
{
    return t->mesh ? t->mesh->devices.mesh.n_devices : 1;
}

void trainer_communication(const Trainer *t, CommTable *out)
{
    *out = (CommTable){0};
    if (t->mesh)
        comm_table(t->mesh->devices.comm, out);
}

Device *const *trainer_local(const Trainer *t, int *n)
{
    *n = t->mesh ? t->mesh->devices.n_local : 1;
    return t->mesh ? group_devices(t->mesh->devices.group) : &t->device;
}

/* A tensor of weights on its way to its copy. */
typedef struct Rounding {
    const float *from;
    uint16_t *to;
    int64_t n;
} Rounding;

static void round_share(void *context, int thread, int n_threads)
{
    const Rounding *r = context;
    int64_t begin, end;
    kernel_share(r->n, 64, thread, n_threads, &begin, &end);
    io_encode(CVN_BF16, r->from + begin, end - begin, r->to + begin);
}

/* Makes the copies of all weights, here or on a mesh, unless they are those of the weights already. */
static void round_weights(Trainer *t)
{
    for (int i = 0; i < t->state.n_weights && !t->rounded; i++) {
        const CheckpointTensor *copy = &t->state.rounded[i];
        Rounding r = {t->state.saved.tensor[i].data, copy->data, cvn_type_elements(&copy->type)};
        int n_devices = t->mesh ? t->mesh->devices.n_local : 1;
        for (int d = 0; d < n_devices && copy->name; d++) {
            if (t->mesh)
                r.n = train_mesh_rounded(t->mesh, d, i, &r.from, &r.to);
            pool_run(t->device->pool, round_share, &r);
        }
    }
    t->rounded = true;
}

int trainer_random(Trainer *t, uint64_t seed, cvn_err *err)
{
    t->rounded = false;
    if (t->mesh)
        return train_mesh_fill(t->mesh, &t->state.params, train_fill_random(&t->state), &seed, err);
    return train_state_random(&t->state, seed, err);
}

int trainer_from_model(Trainer *t, const IoModel *model, cvn_err *err)
{
    void *context = (void *)(uintptr_t)model;
    t->rounded = false;
    if (t->mesh && t->state.lora.rank > 0)
        return train_mesh_fill_frozen(t->mesh, &t->state.model, save_fill_model, context, err);
    if (t->mesh)
        return train_mesh_fill(t->mesh, &t->state.params, save_fill_model, context, err);
    return train_state_from_model(&t->state, model, err);
}

int trainer_restore(Trainer *t, const Checkpoint *checkpoint, cvn_err *err)
{
    t->rounded = false;
    if (t->mesh)
        return train_mesh_restore(t->mesh, checkpoint, &t->state.saved, err);
    return checkpoint_restore(checkpoint, &t->state.saved, err);
}

/* On the rows from number `first` on; batch is NULL for a program without. */
static int run(Trainer *t, TrainGraph kind, const TrainBatch *batch, int64_t first, cvn_err *err)
{
    TrainProgram *program = &t->program[kind];
    if (batch) {
        int64_t at = first * t->options.seq;
        program->param[program->tokens] = batch->tokens + at;
        program->param[program->tokens + 1] = batch->targets + at;
        program->param[program->tokens + 2] = batch->starts + at;
    }
    round_weights(t);
    if (t->mesh)
        return train_mesh_run(t->mesh, program->plan, program->mesh, program->param,
                              program->output, err);
    return executor_run(t->device, program->plan, program->param, program->output, err);
}

static void clear_accumulators(Trainer *t)
{
    if (t->mesh)
        train_mesh_clear_sums(t->mesh);
    else
        memset(t->accumulators, 0, t->accumulator_bytes);
}

/* All micro-batches of a step, then the update. */
static int run_accumulated(Trainer *t, const TrainBatch *batch, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    int code = CVN_OK;
    for (int64_t i = 0; i < o->batch && code == CVN_OK; i += o->micro_batch)
        code = run(t, TRAIN_GRADIENT, batch, i, err);
    if (code == CVN_OK)
        code = run(t, TRAIN_UPDATE, NULL, 0, err);
    if (code)
        clear_accumulators(t);
    return code;
}

int trainer_step(Trainer *t, const TrainBatch *batch, TrainReport *report, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    CheckpointState *saved = &t->state.saved;
    double factor = schedule_factor(&o->schedule, saved->step + 1);
    optimizers[o->optimizer.kind].scalars(&o->optimizer, *t->state.updates + 1, factor, t->scalar);
    int code = accumulates(o) ? run_accumulated(t, batch, err) : run(t, TRAIN_STEP, batch, 0, err);
    if (code)
        return code;
    const TrainProgram *last = &t->program[accumulates(o) ? TRAIN_UPDATE : TRAIN_STEP];
    const float *got = last->output[last->plan->n_outputs - 1];
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

int trainer_evaluate(Trainer *t, const TrainBatch *batch, double *sum, double *count, cvn_err *err)
{
    if (!t->options.evaluates)
        return err_set(err, CVN_EINVAL, "the trainer was opened without evaluation");
    bool sums = accumulates(&t->options);
    TrainGraph kind = sums ? TRAIN_GRADIENT : TRAIN_EVALUATE;
    int code = run(t, kind, batch, 0, err);
    if (code == CVN_OK) {
        const TrainProgram *p = &t->program[kind];
        const float *got = sums ? p->param[p->tokens - 1] /* "total", the last accumulator */
                                : p->output[p->plan->n_outputs - 1];
        *sum += (double)got[TRAIN_SUM];
        *count += (double)got[TRAIN_COUNT];
    }
    if (sums)
        clear_accumulators(t);
    return code;
}
