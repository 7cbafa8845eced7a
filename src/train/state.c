#include "train/state.h"

#include "base/num.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/shards.h"
#include "train/step.h"

static size_t padded_bytes(const cvn_type *type)
{
    return num_padded(cvn_type_bytes(type), CACHE_LINE);
}

static void add_tensor(TrainState *s, Role role, int index, const char *name, cvn_type type)
{
    s->binding[s->saved.n] = (Binding){role, index};
    s->saved.tensor[s->saved.n++] = (CheckpointTensor){.name = name, .type = type};
    s->bytes += padded_bytes(&type);
}

/* Names and types of everything, and the sum of bytes. */
static void list_tensors(TrainState *s, const TrainStateOptions *o)
{
    int n = s->n_weights = s->params.n;
    size_t most = (size_t)n * (1 + OPTIMIZER_MAX_SLOTS) + 1;
    Role role = o->lora.rank > 0 ? ROLE_ADAPTER : ROLE_TRAINED;
    s->saved.tensor = arena_array(&s->arena, most, sizeof *s->saved.tensor);
    s->binding = arena_array(&s->arena, most, sizeof *s->binding);
    for (int i = 0; i < n; i++) {
        const Param *p = &s->params.param[i];
        add_tensor(s, role, i, p->file_name[NAMING_HF], cvn_type_make(CVN_F32, p->rank, p->dims));
    }
    for (int i = 0; i < n; i++) {
        const Param *p = &s->params.param[i];
        OptimizerSlot slot[OPTIMIZER_MAX_SLOTS];
        int n_slots = optimizer_slots(&o->optimizer, p, slot);
        for (int k = 0; k < n_slots; k++)
            add_tensor(s, ROLE_SLOT, i * OPTIMIZER_MAX_SLOTS + k,
                       arena_printf(&s->arena, CHECKPOINT_OPTIMIZER "%s.%s", slot[k].name,
                                    p->file_name[NAMING_HF]),
                       slot[k].type);
    }
    add_tensor(s, ROLE_NONE, 0, CHECKPOINT_OPTIMIZER "updates", CVN_TYPE(CVN_I32, 1));
    s->updates = arena_alloc(&s->arena, sizeof *s->updates);
    s->saved.tensor[s->saved.n - 1].data = s->updates;
}

int train_state_init(TrainState *s, const Model *config, const TrainStateOptions *options,
                     cvn_err *err)
{
    *s = (TrainState){0};
    if (model_check(config, "the model", err) || arena_init(&s->arena, err))
        return err->code;
    params_list(&s->model, config, &s->arena);
    s->params = s->model;
    /* The largest optimizer keeps two tensors of the weights' size: three times f32 must not overflow. */
    if (model_size(config).params > INT64_MAX / 64)
        return err_set(err, CVN_EMEM, "a model of %lld parameters cannot be trained here",
                       (long long)model_size(config).params);
    if (options->lora.rank > 0) {
        lora_params(&s->adapters, &s->model, &options->lora, &s->arena);
        s->params = s->adapters.list;
    }
    list_tensors(s, options);
    /* What is not saved: what LoRA leaves as it is, and rounded copies. */
    const TrainStepOptions step = {.compute = options->compute, .lora = options->lora};
    for (int i = 0; i < s->model.n; i++) {
        const Param *p = &s->model.param[i];
        const cvn_type type = cvn_type_make(step.compute, p->rank, p->dims);
        if (step.lora.rank > 0 || train_rounds(p, &s->model, &step))
            s->bytes += padded_bytes(&type);
    }
    return CVN_OK;
}

void train_state_free(TrainState *s)
{
    arena_free(&s->arena);
    *s = (TrainState){0};
}

/* ---- where it lies ---- */

typedef struct Fetched {
    const Runtime *rt;
    const Buffer *buffer;
    int device;
    void *to;
} Fetched;

/* The memory where a shard can be read when the state is saved. */
static void *data_of(TrainState *s, const Runtime *rt, const Buffer *b, int d)
{
    void *at = buffer_address(rt, b, d);
    if (at || !rt->devices)
        return at;
    s->fetched = arena_more(&s->arena, s->fetched, (size_t)s->n_fetched, sizeof *s->fetched);
    Fetched *f = &s->fetched[s->n_fetched++];
    *f = (Fetched){rt, b, d, arena_alloc(&s->arena, cvn_type_bytes(&b->local))};
    return f->to;
}

int train_state_fetch(TrainState *s, cvn_err *err)
{
    for (int i = 0; i < s->n_fetched; i++) {
        const Fetched *f = &s->fetched[i];
        TRY(f->rt->backend->download(f->rt->devices, f->buffer->memory[f->device], 0,
                                     cvn_type_bytes(&f->buffer->local), f->to, err));
    }
    return CVN_OK;
}

/* The buffer of a tensor in a stage that is to write it, or NULL. An embedding that is in the last stage, too, is the first one's. */
static Buffer *buffer_of(const TrainState *s, const Runtime *rt, int stage, int i)
{
    const Binding *is = &s->binding[i];
    int weight = is->role == ROLE_SLOT ? is->index / OPTIMIZER_MAX_SLOTS : is->index;
    if (is->role == ROLE_NONE || (stage > 0 && s->params.param[weight].kind == PARAM_EMBED))
        return NULL;
    return runtime_buffer(rt, is->role, is->index);
}

/* What lies on no device lies whole on all of the first stage. */
static void place_shards(TrainState *s, const StateStages *stages)
{
    size_t n = (size_t)s->saved.n;
    const Runtime *rt = stages->rt[0];
    CheckpointShards *shards = arena_alloc(&s->arena, sizeof *shards);
    Sharding *whole = arena_alloc(&s->arena, sizeof *whole);
    *shards = (CheckpointShards){.n_files = stages->all * rt->mesh.n_devices,
                                 .first = stages->first * rt->mesh.n_devices + rt->info.first,
                                 .n_local = stages->n * rt->info.n_local};
    shards->slice = arena_array(&s->arena, n * (size_t)shards->n_local, sizeof *shards->slice);
    *whole = sharding_open(s->saved.tensor[n - 1].type.rank);
    for (int file = 0; file < shards->n_local; file++) {
        int d = file % rt->info.n_local, stage = file / rt->info.n_local;
        const Runtime *of = stages->rt[stage];
        const Sharding **sharding = arena_array(&s->arena, n, sizeof *sharding);
        void **data = arena_array(&s->arena, n, sizeof *data);
        for (int i = 0; i < s->saved.n; i++) {
            const Buffer *b = buffer_of(s, of, stages->first + stage, i);
            sharding[i] = b ? &b->sharding : NULL;
            data[i] = b ? data_of(s, of, b, d) : s->saved.tensor[i].data;
        }
        if (stages->first + stage == 0)
            sharding[n - 1] = whole;
        checkpoint_shards_add(shards, &of->mesh, of->info.first + d, file, &s->saved, sharding,
                              data);
    }
    s->saved.shards = shards;
}

int train_state_place(TrainState *s, const StateStages *stages, cvn_err *err)
{
    for (int i = 0; i < s->saved.n - 1 && stages->n == stages->all; i++) {
        bool there = false;
        for (int k = 0; k < stages->n; k++)
            there = there || buffer_of(s, stages->rt[k], k, i);
        if (!there)
            return err_set(err, CVN_EUNSUPPORTED, "'%s' is in no step", s->saved.tensor[i].name);
    }
    if (stages->all > 1 || stages->rt[0]->mesh.n_devices > 1) {
        place_shards(s, stages);
        return CVN_OK;
    }
    for (int i = 0; i < s->saved.n - 1; i++)
        s->saved.tensor[i].data = data_of(s, stages->rt[0], buffer_of(s, stages->rt[0], 0, i), 0);
    return CVN_OK;
}
