#include "train/state.h"

#include "base/num.h"
#include "io/save.h"
#include "train/checkpoint_folder.h"
#include "train/step.h"

#include <string.h>
#include <sys/mman.h>

static void add_tensor(TrainState *s, const char *name, cvn_type type)
{
    s->saved.tensor[s->saved.n++] = (CheckpointTensor){.name = name, .type = type};
    s->bytes += num_padded(cvn_type_bytes(&type), CACHE_LINE);
}

/* What LoRA leaves as it is. */
static void list_frozen(TrainState *s, cvn_dtype dtype)
{
    s->frozen = arena_array(&s->arena, (size_t)s->model.n, sizeof *s->frozen);
    for (int i = 0; i < s->model.n; i++) {
        const Param *p = &s->model.param[i];
        s->frozen[i] = (CheckpointTensor){.name = p->file_name[NAMING_HF],
                                          .type = cvn_type_make(dtype, p->rank, p->dims)};
        s->bytes += num_padded(cvn_type_bytes(&s->frozen[i].type), CACHE_LINE);
    }
}

static void list_rounded(TrainState *s, const TrainStateOptions *options)
{
    const TrainStepOptions step = {.compute = options->compute, .lora = options->lora};
    s->rounded = arena_array(&s->arena, (size_t)s->n_weights, sizeof *s->rounded);
    for (int i = 0; i < s->n_weights; i++) {
        const Param *p = &s->params.param[i];
        if (!train_rounds(p, &s->params, &step))
            continue;
        s->rounded[i] = (CheckpointTensor){.name = p->name,
                                           .type = cvn_type_make(step.compute, p->rank, p->dims)};
        s->bytes += num_padded(cvn_type_bytes(&s->rounded[i].type), CACHE_LINE);
    }
}

/* Names and types of everything, and the sum of bytes. */
static void list_tensors(TrainState *s, const Optimizer *optimizer)
{
    int n = s->params.n;
    s->n_weights = n;
    s->saved.tensor =
        arena_array(&s->arena, (size_t)n * (1 + OPTIMIZER_MAX_SLOTS) + 1, sizeof *s->saved.tensor);
    s->first_slot = arena_array(&s->arena, (size_t)n + 1, sizeof *s->first_slot);
    for (int i = 0; i < n; i++) {
        const Param *p = &s->params.param[i];
        add_tensor(s, p->file_name[NAMING_HF], cvn_type_make(CVN_F32, p->rank, p->dims));
    }
    for (int i = 0; i < n; i++) {
        const Param *p = &s->params.param[i];
        OptimizerSlot slot[OPTIMIZER_MAX_SLOTS];
        int n_slots = optimizer->slots(p, slot);
        s->first_slot[i] = s->saved.n;
        for (int k = 0; k < n_slots; k++)
            add_tensor(s,
                       arena_printf(&s->arena, CHECKPOINT_OPTIMIZER "%s.%s", slot[k].name,
                                    p->file_name[NAMING_HF]),
                       slot[k].type);
    }
    s->first_slot[n] = s->saved.n;
    add_tensor(s, CHECKPOINT_OPTIMIZER "updates", CVN_TYPE(CVN_I32, 1));
}

/* Everything but the block. */
static int describe(TrainState *s, const LlamaConfig *config, const TrainStateOptions *options,
                    cvn_err *err)
{
    *s = (TrainState){.lora = options->lora};
    int code = llama_config_check(config, "the model", err);
    if (code == CVN_OK)
        code = arena_init(&s->arena, err);
    if (code)
        return code;
    params_list(&s->model, config, &s->arena);
    s->params = s->model;
    /* The largest optimizer keeps two tensors of the weights' size: three times f32 must not overflow. */
    if (model_size(config).params > INT64_MAX / 64)
        return err_set(err, CVN_EMEM, "a model of %lld parameters cannot be trained here",
                       (long long)model_size(config).params);
    if (s->lora.rank > 0) {
        lora_params(&s->adapters, &s->model, &s->lora, &s->arena);
        s->params = s->adapters.list;
        list_frozen(s, options->compute);
    }
    list_tensors(s, &optimizers[options->optimizer]);
    list_rounded(s, options);
    return CVN_OK;
}

/* Gives tensors memory from `at` on, one after another; a tensor without a name gets none. Returns what is behind. */
static char *place(CheckpointTensor *tensor, int n, char *at)
{
    for (int i = 0; i < n; i++)
        if (tensor[i].name) {
            tensor[i].data = at;
            at += num_padded(cvn_type_bytes(&tensor[i].type), CACHE_LINE);
        }
    return at;
}

int train_state_size(const LlamaConfig *config, const TrainStateOptions *options, size_t *bytes,
                     cvn_err *err)
{
    TrainState s;
    int code = describe(&s, config, options, err);
    *bytes = s.bytes;
    train_state_free(&s);
    return code;
}

int train_state_init(TrainState *s, const LlamaConfig *config, const TrainStateOptions *options,
                     cvn_err *err)
{
    int code = describe(s, config, options, err);
    if (code)
        return code;
    if (options->elsewhere) {
        s->updates = arena_array(&s->arena, 1, sizeof *s->updates);
        s->saved.tensor[s->saved.n - 1].data = s->updates;
        return CVN_OK;
    }
    void *block = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return err_set(err, CVN_EMEM, "no memory for %zu bytes of weights and optimizer state",
                       s->bytes);
    (void)madvise(block, s->bytes, MADV_HUGEPAGE);
    s->block = block;
    char *at = place(s->saved.tensor, s->saved.n, block);
    if (s->frozen)
        at = place(s->frozen, s->model.n, at);
    place(s->rounded, s->n_weights, at);
    s->updates = s->saved.tensor[s->saved.n - 1].data;
    return CVN_OK;
}

void train_state_free(TrainState *s)
{
    if (s->block)
        munmap(s->block, s->bytes);
    arena_free(&s->arena);
    *s = (TrainState){0};
}

/* context is the seed. */
static int fill_adapter(void *context, const Param *param, int64_t first, int64_t n, float *out,
                        cvn_err *err)
{
    (void)err;
    lora_fill(param, *(const uint64_t *)context, first, n, out);
    return CVN_OK;
}

SaveFill train_fill_random(const TrainState *s)
{
    return s->lora.rank > 0 ? fill_adapter : init_fill;
}

/* The parameters of a list into their tensors. */
static int fill_tensors(const CheckpointTensor *to, const ParamList *params, SaveFill fill,
                        void *context, cvn_err *err)
{
    int code = CVN_OK;
    for (int i = 0; i < params->n && code == CVN_OK; i++) {
        const Param *p = &params->param[i];
        code = save_fill_as(fill, context, p, 0, p->n, to[i].type.dtype, to[i].data, 0, err);
    }
    return code;
}

int train_state_random(TrainState *s, uint64_t seed, cvn_err *err)
{
    return fill_tensors(s->saved.tensor, &s->params, train_fill_random(s), &seed, err);
}

int train_state_from_model(TrainState *s, const IoModel *model, cvn_err *err)
{
    void *context = (void *)(uintptr_t)model;
    return s->lora.rank > 0
               ? fill_tensors(s->frozen, &s->model, save_fill_model, context, err)
               : fill_tensors(s->saved.tensor, &s->params, save_fill_model, context, err);
}

/* context is the TrainState. */
static int fill_from_state(void *context, const Param *param, int64_t first, int64_t n, float *out,
                           cvn_err *err)
{
    const TrainState *s = context;
    const Param *same = params_find(&s->params, param->kind, param->layer);
    const float *data = s->saved.tensor[same - s->params.param].data;
    (void)err;
    memcpy(out, data + first, (size_t)n * sizeof *out);
    return CVN_OK;
}

int train_state_export(const TrainState *s, const LlamaConfig *config, cvn_dtype dtype,
                       const char *folder, const char *tokenizer, cvn_err *err)
{
    SaveOptions options = {.dtype = dtype, .force = true, .tokenizer = tokenizer};
    return save_folder(folder, config, &options, fill_from_state, (void *)(uintptr_t)s, err);
}
