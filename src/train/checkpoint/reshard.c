#include "train/checkpoint/export.h"

#include "base/json_file.h"
#include "base/threads.h"
#include "io/model.h"
#include "model/layouts.h"
#include "train/checkpoint/folder.h"
#include "train/config.h"
#include "train/trainer.h"

#include <string.h>

typedef struct Reshape {
    const Checkpoint *from;
    const char *folder, *to_mesh, *layout; /* of the run to be made */
    const volatile int *interrupt;         /* nonzero ends it; or NULL */
    Arena arena;
    TrainConfig options; /* of the run */
    const char *config;  /* the same as text, with the mesh that it is to have; the arena's */
    Model *model;        /* the arena's */
    LoraOptions lora;    /* rank 0: the whole model is trained */
    const char *base;    /* of adapters: the model that they adapt; the arena's */
    TrainState state;    /* its tensors have no data: they are read when they are written */
    Runtime *rt;         /* [n_stages] of the target, which nothing runs on; the arena's */
    int n_stages;        /* 0: of one device */
} Reshape;

static int read_slice(void *context, int tensor, const BoxArray *to, void *target, cvn_err *err)
{
    const Reshape *r = context;
    if (flag_is_set(r->interrupt))
        return err_set(err, CVN_EINTERRUPTED, "interrupted");
    checkpoint_restore_box(r->from, &r->state.saved.tensor[tensor], to, target);
    return CVN_OK;
}

/* The shape of the model: the checkpoint's own or, of adapters, that of what they adapt. */
static int read_model(Reshape *r, cvn_err *err)
{
    const char *folder = r->from->folder;
    IoModel model;
    if (!checkpoint_is_lora(r->from))
        return model_read(&r->model, folder, &r->arena, err);
    TRY(lora_config_read(&r->lora, &r->base, folder, &r->arena, err));
    if (!r->base)
        return err_set(err, CVN_EINVAL, "'%s' does not name its base model", folder);
    TRY(io_open_model(&model, r->base, err));
    r->model = model_copy(model.desc, &r->arena);
    model_set_hf_pairs(r->model);
    io_close_model(&model);
    return CVN_OK;
}

/* The options that the run has, with the mesh that it is to have. */
static int read_options(Reshape *r, const char *mesh, const char *layout, cvn_err *err)
{
    const char *path = r->from->folder, *text = r->from->manifest.config;
    if (!text)
        return err_set(err, CVN_EFORMAT, "'%s' does not record the options of its run", path);
    json_t *json = json_object_parse(path, text, strlen(text), err);
    if (!json)
        return CVN_EFORMAT;
    json = json_with(json, "mesh", json_string(mesh));
    if (*mesh)
        json = json_with(json, "layout", json_string(layout));
    if (!json)
        return err_set(err, CVN_EMEM, "no memory for the options");
    CLEANUP(json_release, json);
    r->config = json_arena_text(json, JSON_REAL_PRECISION(15), &r->arena);
    train_config_only(json);
    r->options = train_config_defaults();
    int code = train_config_read(&r->options, path, json, NULL, &r->arena, err);
    if (code == CVN_OK && (code = train_config_check(&r->options, err)) != CVN_OK)
        err_prefix(err, "%s: the options of the run", path);
    return r->config ? code : err_set(err, CVN_EMEM, "no memory for the options");
}

/* How the state lies on the mesh: as a step of the run would have it. */
static int lay_out(Reshape *r, const char *text, const char *layout, cvn_err *err)
{
    Mesh mesh;
    LayoutStages stages;
    TRY(mesh_parse(&mesh, text, &r->arena, err));
    TRY(layout_check(layout, &mesh, err));
    TRY(layout_stages(layout, text, &r->arena, &stages, err));
    TrainStepOptions step = {.batch = r->options.batch ? r->options.batch : 1,
                             .seq = r->options.seq ? r->options.seq : model_context(r->model),
                             .compute = CVN_F32,
                             .clip = 1,
                             .optimizer = train_config_optimizer(&r->options, r->model),
                             .lora = r->lora,
                             .stages = stages.n};
    const RuntimeOptions runtime = {.mesh = stages.mesh, .describes = true};
    static const TrainGraph whole[] = {TRAIN_STEP}, parts[] = {TRAIN_GRADIENT, TRAIN_UPDATE};
    r->rt = arena_array(&r->arena, (size_t)stages.n, sizeof *r->rt);
    const Runtime **rt = arena_array(&r->arena, (size_t)stages.n, sizeof *rt);
    for (; step.stage < stages.n; step.stage++) {
        rt[step.stage] = &r->rt[r->n_stages++];
        TRY(runtime_open(&r->rt[step.stage], &runtime, err));
        for (int i = 0; i < (stages.n > 1 ? 2 : 1); i++) {
            Program program = {0};
            TRY(train_program(&program, &r->rt[step.stage], (stages.n > 1 ? parts : whole)[i],
                              r->model, &step, layout, err));
            program_free(&program);
        }
    }
    return train_state_place(&r->state, &(StateStages){rt, stages.n, 0, stages.n}, err);
}

static int write_run(Reshape *r, const char *folder, cvn_err *err)
{
    CheckpointOptions options = {.config = r->model,
                                 .lora = r->lora.rank > 0 ? &r->lora : NULL,
                                 .base = r->base,
                                 .tokenizer = checkpoint_tokenizer(r->from, &r->arena)};
    if (!file_folder_is_empty(folder))
        return err_set(err, CVN_EINVAL, "'%s' is not empty; give another folder", folder);
    bool existed = file_exists(folder);
    const FilePath checkpoints = checkpoint_folder(folder);
    if (!file_make_folder(folder, err) && !file_make_folder(checkpoints.text, err) &&
        !checkpoint_copy_tokenizer(r->from, folder, err) &&
        !checkpoint_write(checkpoints.text, &r->state.saved, &options, err))
        return CVN_OK;
    /* The folder was empty: what is in it is what was begun. */
    file_remove_folder(checkpoints.text, NULL);
    file_remove_folder(folder, NULL);
    if (existed)
        file_make_folder(folder, NULL);
    return err->code;
}

static int reshape(void *of, cvn_err *err)
{
    Reshape *r = of;
    const char *folder = r->folder, *mesh = r->to_mesh, *layout = r->layout;
    if (arena_init(&r->arena, err) || read_model(r, err) || read_options(r, mesh, layout, err))
        return err->code;
    const TrainStateOptions options = {train_config_optimizer(&r->options, r->model), r->lora,
                                       CVN_F32};
    CheckpointState *saved = &r->state.saved;
    if (train_state_init(&r->state, r->model, &options, err) ||
        checkpoint_restore_counters(r->from, saved, err))
        return err->code;
    saved->config = r->config;
    saved->read = read_slice;
    saved->context = r;
    saved->tensor[saved->n - 1].data = NULL; /* read like the others */
    if (*mesh && lay_out(r, mesh, layout, err))
        return err->code;
    return write_run(r, folder, err);
}

int checkpoint_reshard(const Checkpoint *from, const char *folder, const char *mesh,
                       const char *layout, const volatile int *interrupt, cvn_err *err)
{
    Reshape r = {.from = from,
                 .folder = folder,
                 .to_mesh = mesh ? mesh : "",
                 .layout = layout,
                 .interrupt = interrupt};
    int code = protect(reshape, &r, "laying a run out on other devices", err);
    for (int s = 0; s < r.n_stages; s++)
        runtime_close(&r.rt[s]);
    train_state_free(&r.state);
    arena_free(&r.arena);
    return code;
}
