/* Opening a run: options, model, data, compiled steps, files; each part fails by name. */
#include "train/run_impl.h"

#include "base/bytes.h"
#include "base/capacity.h"
#include "base/json_file.h"
#include "base/threads.h"
#include "model/layouts.h"
#include "model/presets.h"
#include "train/bench.h"
#include "train/checkpoint/folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- options ---- */

static bool on_mesh(const TrainConfig *c)
{
    return c->mesh && *c->mesh;
}

/* The options of the checkpoint, then those that were given. */
/* On another mesh a run keeps its layout, unless that cannot use the mesh and no other is asked for: then one is chosen. */
static void choose_layout_again(Run *r, const bool *given)
{
    Mesh mesh;
    bool asked = given && given[train_key_find("layout") - train_keys];
    if (asked || !on_mesh(&r->config) || mesh_parse(&mesh, r->config.mesh, &r->arena, NULL))
        return;
    if (layout_check(r->config.layout, &mesh, NULL))
        r->config.layout = "auto";
}

static int merge_options(Run *r, const TrainConfig *config, const bool *given, cvn_err *err)
{
    const Manifest *manifest = &r->begin.from.manifest;
    json_t *json = manifest->config ? json_object_parse(r->begin.from.folder, manifest->config,
                                                        strlen(manifest->config), err)
                                    : json_object();
    if (!json)
        return err_set(err, CVN_EMEM, "no memory to read options");
    CLEANUP(json_release, json);
    const char *started_in = json_string_value(json_object_get(json, TRAIN_FOLDER_KEY));
    const char *data_key = json_string_value(json_object_get(json, TRAIN_DATA_KEY));
    const char *dtype = json_string_value(json_object_get(json, TRAIN_EXPORT_KEY));
    r->kept.started_in = started_in ? arena_string(&r->arena, started_in) : NULL;
    r->kept.data_key = data_key ? arena_string(&r->arena, data_key) : NULL;
    if (!dtype || !cvn_dtype_parse(dtype, &r->export_dtype))
        r->export_dtype = CVN_DTYPE_COUNT;
    train_config_only(json);
    r->config = train_config_defaults();
    TRY(train_config_read(&r->config, r->begin.from.folder, json, NULL, &r->arena, err));
    TRY(run_find_paths(r, given, err));
    r->config.out = config->out;
    r->config.stop_after = 0;
    for (int i = 0; i < train_n_keys; i++) {
        const TrainKey *key = &train_keys[i];
        if (!given || !given[i] || strcmp(key->name, "out") == 0)
            continue;
        if (key->kind == KEY_FIXED && !train_config_same(&r->config, config, key) &&
            !run_same_path(r, config, key))
            return err_set(err, CVN_EINVAL,
                           "--%s cannot change when a run is resumed; leave it out, or start a new "
                           "run with --init '%s'",
                           key->name, r->begin.from.folder);
        train_config_copy(&r->config, config, key);
    }
    if (given && given[train_key_find("steps") - train_keys])
        r->config.epochs = 0;
    choose_layout_again(r, given);
    return CVN_OK;
}

/* The steps of a run that is to see its data so many times: before these are known, as many as there can be. */
static int count_steps(Run *r, cvn_err *err)
{
    TrainConfig *c = &r->config;
    if (c->epochs > 0) {
        double most = train_key_find("steps")->high, steps = most;
        if (r->rows.data)
            steps = ceil(c->epochs * (double)data_sequences(r->rows.data, DATA_TRAIN) /
                         (double)c->batch);
        c->steps = (int64_t)fmin(fmax(steps, 1), most);
    }
    if (r->rows.data && c->epochs > 0)
        run_note(r, "steps: %" PRId64 ", which see the data %.4g times", c->steps, c->epochs);
    if (r->begin.has_from && c->steps < r->begin.from.manifest.step)
        return err_set(err, CVN_EINVAL,
                       "'%s' has done %" PRId64
                       " steps; %s of the whole run, so give more than that to continue",
                       r->begin.from.folder, r->begin.from.manifest.step,
                       c->epochs > 0 ? "--epochs are" : "--steps is");
    const Schedule schedule = train_config_schedule(c);
    return schedule_check(&schedule, err);
}

/* Locks a run that is there already before anything of it is read, because files change that another process trains. */
static int lock_run(Run *r, cvn_err *err)
{
    const char *out = r->config.out;
    bool there = out && run_is_first(r) && file_is_folder(checkpoint_folder(out).text);
    return run_together(r, there ? checkpoint_lock(out, &r->folder.lock, err) : CVN_OK, err);
}

static void warn_checkpoint(void *context, const char *sentence)
{
    run_warn((const Run *)context, "%s", sentence);
}

/* A new run writes its model into its folder: not over one that is there already, such as the one it begins from. */
static int check_folder(const char *out, cvn_err *err)
{
    int64_t *steps;
    size_t n;
    if (file_exists(out) && !file_is_folder(out))
        return err_set(err, CVN_EINVAL, "'%s' is a file; --out names the folder of the run", out);
    if (file_has(out, "config.json") && !file_has(out, "checkpoints"))
        return err_set(err, CVN_EINVAL,
                       "'%s' contains a model, which training would overwrite; give another --out",
                       out);
    TRY(checkpoint_steps(checkpoint_folder(out).text, &steps, &n, err));
    free(steps);
    if (n > 0)
        return err_set(err, CVN_EINVAL,
                       "'%s' already contains a run; resume it with caravan train --resume '%s', "
                       "or give another --out",
                       out, out);
    return CVN_OK;
}

/* ---- model ---- */

/* The model to begin from, where there is one: before its tokenizer, so that what is no model is told as that. */
static int open_init(Run *r, cvn_err *err)
{
    const TrainConfig *c = &r->config;
    if (!c->init || (r->begin.has_from && !c->lora && !c->dpo))
        return CVN_OK;
    TRY(io_open_as(&r->begin.init, c->init, c->text_only ? IO_TEXT_ONLY : 0, err));
    r->begin.has_init = true;
    if (c->lora && r->begin.init.adapter)
        return err_set(err, CVN_EINVAL,
                       "'%s' contains adapters; merge them with caravan export --lora-merge before "
                       "training others on top",
                       c->init);
    return CVN_OK;
}

/* A tokenizer that is not the model's own: one with more pieces gives ids that the model has not, and of one with fewer
   some ids of the model are no text. */
static int check_tokenizer(const Run *r, cvn_err *err)
{
    const TrainConfig *c = &r->config;
    int64_t pieces = tokenizer_vocab_size(r->tokens.tokenizer), vocab = model_vocab(r->model);
    if (r->begin.resuming || !c->init)
        return CVN_OK;
    if (pieces > vocab)
        return err_set(err, CVN_EINVAL,
                       "the tokenizer '%s' has %" PRId64 " pieces and the model '%s' a vocabulary "
                       "of %" PRId64 "; give the tokenizer that belongs to the model",
                       c->tokenizer ? c->tokenizer : c->init, pieces, c->init, vocab);
    if (c->tokenizer && pieces < vocab)
        run_warn(r,
                 "the tokenizer '%s' has %" PRId64 " pieces and the model '%s' a vocabulary of "
                 "%" PRId64 ": if it is not the model's own, the model must relearn its embeddings",
                 c->tokenizer, pieces, c->init, vocab);
    return CVN_OK;
}

static int open_model(Run *r, cvn_err *err)
{
    TrainConfig *c = &r->config;
    if (c->lora)
        TRY(lora_parse(&r->lora, c->lora, err));
    if (r->begin.has_from && !c->lora) {
        TRY(model_read(&r->model, r->begin.from.folder, &r->arena, err));
    } else if (c->init) {
        r->model = model_copy(r->begin.init.desc, &r->arena);
        model_set_hf_pairs(r->model); /* the state's order is Hugging Face's */
        TRY(check_tokenizer(r, err));
    } else {
        TRY(preset_model(c->preset, &r->model, &r->arena, err));
        int32_t bos = tokenizer_bos(r->tokens.tokenizer), eos = tokenizer_eos(r->tokens.tokenizer);
        const SpecialIds begins = {bos >= 0, {bos}}, ends = {eos >= 0, {eos}};
        model_set_vocab(r->model, tokenizer_vocab_size(r->tokens.tokenizer), &begins, &ends);
        if (c->seq > model_context(r->model))
            model_set_context(r->model, c->seq);
    }
    if (c->lora)
        TRY(lora_check(&r->lora, r->model, err));
    DropoutRates rates = model_dropout(r->model);
    rates.attention = c->attention_dropout >= 0 ? c->attention_dropout : rates.attention;
    rates.hidden = c->hidden_dropout >= 0 ? c->hidden_dropout : rates.hidden;
    model_set_dropout(r->model, rates);
    if (c->seq == 0)
        c->seq = model_context(r->model) < 1024 ? model_context(r->model) : 1024;
    r->rows.sizes_batch = c->batch == 0;
    if (r->rows.sizes_batch)
        c->batch = train_default_batch(model_size(r->model).params, c->seq, c->micro_batch);
    if (r->rows.sizes_batch && c->dpo && c->batch % 2)
        c->batch *= 2;
    /* The type of the model at the end: of a run that goes on the one that it began with, since a checkpoint's own config
       has the state's; else that of the model it begins from. */
    if (r->export_dtype == CVN_DTYPE_COUNT)
        r->export_dtype =
            model_dtype(r->model) == CVN_F16 && !c->init ? CVN_BF16 : model_dtype(r->model);
    if (r->export_dtype != CVN_F32 && r->export_dtype != CVN_BF16 && r->export_dtype != CVN_F16)
        r->export_dtype = CVN_F32;
    return model_check(r->model, r->out, err);
}

/* ---- data ---- */

bool run_goes_on(void *run, int64_t done, int64_t total)
{
    const Run *r = run;
    (void)done;
    (void)total;
    return !flag_is_set(r->events->stop);
}

/* Stops a run that was told so while it was opened. Several processes are not told at the same time, and stop after a step. */
static int check_stopped(Run *r, cvn_err *err)
{
    if (r->events->cluster || run_goes_on(r, 0, 0))
        return CVN_OK;
    return err_set(err, CVN_EINTERRUPTED, "interrupted before the first step");
}

/* Who learns conversations ends a text where a turn ends, too: else others would go on past it. */
static void end_turns(Run *r, const ChatTemplate *chat)
{
    int32_t stop[4];
    SpecialIds ends = *model_ends(r->model);
    size_t n = chat_template_stops(chat, r->tokens.tokenizer, stop);
    for (size_t i = 0; i < n; i++) {
        bool there = stop[i] >= model_vocab(r->model);
        for (int k = 0; k < ends.n; k++)
            there |= ends.id[k] == stop[i];
        if (!there && ends.n < MODEL_MAX_IDS)
            ends.id[ends.n++] = stop[i];
    }
    model_set_vocab(r->model, model_vocab(r->model), model_begins(r->model), &ends);
}

static int open_data(Run *r, cvn_err *err)
{
    TrainConfig *c = &r->config;
    cvn_err none = {0};
    chat_template_open(r->tokens.tokenizer, NULL, &r->tokens.chat,
                       &none); /* who learns texts needs none */
    DataOptions options = {.paths = c->dpo ? &c->dpo : c->data,
                           .n_paths = c->dpo ? 1 : (size_t)c->n_data,
                           .pairs = c->dpo != NULL,
                           .tokenizer = r->tokens.tokenizer,
                           .chat = r->tokens.chat,
                           .no_chat = none.message,
                           .vocab = (int32_t)model_vocab(r->model),
                           .seq = c->seq,
                           .seed = (uint64_t)c->seed,
                           .validation = c->validation,
                           .held = c->validation_file,
                           .packing = train_config_packing(c),
                           .cache = c->cache,
                           .threads = (int)c->threads,
                           .progress = run_goes_on,
                           .context = r};
    /* The others find the cache that the first one makes. */
    TRY(run_together(r, run_is_first(r) ? data_open(&r->rows.data, &options, err) : CVN_OK, err));
    if (!run_is_first(r))
        TRY(data_open(&r->rows.data, &options, err));
    if (r->tokens.chat && data_is_partial(r->rows.data))
        end_turns(r, r->tokens.chat);
    /* A batch that was not asked for has no sequence twice. */
    while (r->rows.sizes_batch && !c->micro_batch && c->batch > (c->dpo ? 2 : 1) &&
           c->batch > data_sequences(r->rows.data, DATA_TRAIN))
        c->batch /= 2;
    TRY(count_steps(r, err));
    const DataReport *report = data_report(r->rows.data);
    run_note(r, "data: %" PRId64 " tokens in %" PRId64 " document%s, %" PRId64 " sequence%s%s",
             report->tokens, report->documents, report->documents == 1 ? "" : "s",
             data_sequences(r->rows.data, DATA_TRAIN),
             data_sequences(r->rows.data, DATA_TRAIN) == 1 ? "" : "s",
             report->made ? "" : " (tokenized before)");
    if (report->cut_off)
        run_warn(r,
                 "%" PRId64 " of %" PRId64
                 " answers with their prompts are longer than --seq %" PRId64 " and are truncated",
                 report->cut_off, report->documents, c->seq);
    char key[32];
    TrainConfig kept;
    snprintf(key, sizeof key, "%016" PRIx64, report->key);
    TRY(run_keep_paths(r, &kept, err));
    if (r->kept.data_key && strcmp(r->kept.data_key, key) != 0)
        return err_set(err, CVN_EINVAL,
                       "the data differ from those that '%s' was trained on; give the same files, "
                       "or start a new run with --init '%s'",
                       r->out, r->begin.from.folder);
    json_t *json = train_config_json(&kept);
    json = json_with(json, TRAIN_DATA_KEY, json_string(key));
    json = json_with(json, TRAIN_EXPORT_KEY, json_string(cvn_dtype_name(r->export_dtype)));
    json_t *folder = r->kept.started_in ? json_string(r->kept.started_in) : NULL;
    if (folder) /* it is UTF-8 */
        json = json_with(json, TRAIN_FOLDER_KEY, folder);
    CLEANUP(json_release, json);
    r->kept.text = json_arena_text(json, JSON_REAL_PRECISION(15), &r->arena);
    return r->kept.text ? CVN_OK : err_set(err, CVN_EMEM, "no memory for the options");
}

/* ---- the trainer ---- */

static TrainerOptions trainer_options(const Run *r)
{
    const TrainConfig *c = &r->config;
    return (TrainerOptions){
        .batch = c->batch,
        .micro_batch = c->micro_batch,
        .seq = c->seq,
        .compute = train_config_compute(c),
        .clip = c->clip,
        .z_loss = c->z_loss,
        .routers = {.balance = c->router_loss < 0 ? model_balance(r->model) : c->router_loss,
                    .by_sequence = c->router_by_sequence,
                    .z = c->router_z,
                    .bias = c->router_bias},
        .dropout = model_dropout(r->model),
        .exact = strcmp(c->numerics, "fast") != 0,
        .portable = strcmp(c->numerics, "portable") == 0,
        .remat = train_config_remat(c),
        .optimizer = train_config_optimizer(c, r->model),
        .schedule = train_config_schedule(c),
        .lora = r->lora,
        .beta = c->dpo ? c->beta : 0,
        .threads = (int)c->threads,
        .device = c->device,
        .mesh = c->mesh,
        .layout = on_mesh(c) ? c->layout : NULL,
        .blocking = strcmp(c->overlap, "off") == 0,
        .cluster = r->events->cluster,
        .memory_limit = (size_t)c->memory};
}

/* What can be known to be wrong of the mesh before a tokenizer is made. */
static int check_mesh(Run *r, cvn_err *err)
{
    Mesh mesh;
    if (!on_mesh(&r->config))
        return CVN_OK;
    if (strcmp(r->config.layout, "auto") == 0) {
        r->config.layout = layout_for(r->config.mesh, true);
        run_note(r, "layout %s, chosen for mesh %s", r->config.layout, r->config.mesh);
    }
    return mesh_parse(&mesh, r->config.mesh, &r->arena, err)
               ? err->code
               : layout_check(r->config.layout, &mesh, err);
}

/* What the model that the run begins from makes of the rows of a split that there will be. */
static int refer_to(Run *r, DataSplit split, int64_t most, cvn_err *err)
{
    int64_t n = data_sequences(r->rows.data, split), micro = r->trainer.options.micro_batch;
    float *cost = arena_array(&r->arena, (size_t)micro, sizeof *cost);
    float *reference = arena_array(&r->arena, (size_t)n + 1, sizeof *reference);
    n = n < most ? n : most;
    for (int64_t i = 0; i < n; i += micro) {
        TRY(check_stopped(r, err));
        TRY(run_fill(r, split, i, micro, err));
        TRY(trainer_score(&r->trainer, &r->rows.batch, cost, err));
        for (int64_t k = 0; k < micro && i + k < n; k++)
            reference[data_row(r->rows.data, split, i + k)] = cost[k];
    }
    r->rows.reference[split] = reference;
    return CVN_OK;
}

static int open_trainer(Run *r, cvn_err *err)
{
    const TrainConfig *c = &r->config;
    TrainerOptions o = trainer_options(r);
    o.evaluates = data_sequences(r->rows.data, DATA_VALIDATION) > 0;
    TRY(run_share_memory(r, &o.memory_limit, err));
    TRY(trainer_open(&r->trainer, r->model, &o, err));
    if (r->events->profile && r->trainer.stages > 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "--profile does not support stages; leave their axis out of --mesh");
    /* Devices that would all do the same, as those along `data` with a batch of one sequence and a layout that divides
       nothing else. */
    const Trainer *t = &r->trainer;
    const Mesh *mesh = &t->stage->rt.mesh;
    int axis = runtime_idle_axis(&t->stage->rt);
    if (axis >= 0)
        return err_set(err, CVN_EINVAL,
                       "the %d devices along the mesh's axis %s would all compute the same: with "
                       "layout %s a batch of %" PRId64
                       " sequence%s cannot be sharded over it; give a larger "
                       "--batch, or another --mesh or --layout",
                       (int)mesh->axis[axis].size, mesh->axis[axis].name, t->options.layout,
                       t->options.micro_batch, t->options.micro_batch == 1 ? "" : "s");
    run_note(r, "model: %" PRId64 " parameters; %s in total, recomputation %s",
             model_size(r->model).params, bytes_text((double)r->trainer.bytes).text,
             remat_policy_names[r->trainer.options.remat]);
    TrainState *state = &r->trainer.state;
    state->saved.seed = (uint64_t)c->seed;
    if (r->begin.has_init)
        TRY(trainer_from_model(&r->trainer, &r->begin.init, err));
    if ((!r->begin.has_from || c->dpo) && (!r->begin.has_init || c->lora))
        TRY(trainer_random(&r->trainer, (uint64_t)c->seed, err));
    if (c->dpo) {
        int64_t all = c->steps > INT64_MAX / c->batch ? INT64_MAX : c->steps * c->batch;
        double begin = clock_seconds();
        TRY(refer_to(r, DATA_TRAIN, all, err));
        TRY(refer_to(r, DATA_VALIDATION, RUN_MOST_VALIDATION, err));
        run_note(r, "reference: log-probabilities of '%s', computed in %.1f s", c->init,
                 clock_seconds() - begin);
    }
    if (r->begin.has_from) {
        TRY(trainer_restore(&r->trainer, &r->begin.from, err));
        checkpoint_close(&r->begin.from); /* or its space on the disk is held while the run lasts */
        r->begin.has_from = false;
        r->begin.resumed = true;
    }
    state->saved.config = r->kept.text;
    return CVN_OK;
}

/* ---- files ---- */

bool run_has_last_text(const Run *r)
{
    const Samples *s = &r->log.samples;
    return s->n > 0 && s->sample[s->n - 1].step == r->trainer.state.saved.step;
}

/* The writer comes first: it holds the lock, and without it none of the other files may be touched. */
static int open_files(Run *r, cvn_err *err)
{
    const TrainConfig *c = &r->config;
    const CheckpointState *saved = &r->trainer.state.saved;
    size_t room = r->trainer.options.memory_limit - r->trainer.bytes;
    SCOPED(scoped_free) char *base = r->lora.rank ? realpath(c->init, NULL) : NULL;
    CheckpointOptions options = {.keep_last = (int)c->keep_last,
                                 .keep_every = c->keep_every,
                                 .copy_limit = room,
                                 .config = r->model,
                                 .lora = r->lora.rank ? &r->lora : NULL,
                                 .base = base,
                                 .tokenizer = r->tokens.file,
                                 .cluster = r->events->cluster,
                                 .locked = r->folder.lock >= 0};
    /* Where not even one checkpoint fits, nothing that the run learns could be kept. */
    int code = run_is_first(r) ? capacity_check_disk(checkpoint_folder(r->out).text,
                                                     checkpoint_bytes(saved), err)
                               : CVN_OK;
    if (code)
        err_prefix(err, "not started: there is no disk space for a checkpoint");
    TRY(run_together(r, code, err));
    r->saving.writer = checkpoint_writer_new(r->out, saved->step, &options, err);
    if (!r->saving.writer || !run_is_first(r))
        return r->saving.writer ? CVN_OK : err->code;
    TRY(metrics_open(&r->log.metrics, r->out, saved->step, err));
    TRY(samples_open(&r->log.samples, r->out, saved->step, err));
    TRY(history_open(&r->log.history, r->out, saved->step, err));
    return saved->step >= c->steps && run_has_last_text(r)
               ? CVN_OK /* nothing is to come */
               : event_file_open(&r->log.board, r->out, saved->step, err);
}

typedef struct Opening {
    Run *run;
    const TrainConfig *config;
    const bool *given;
    bool resume;
} Opening;

static int open_all(void *of, cvn_err *err)
{
    static const char *const of_mesh[] = {"layout", "overlap"};
    const Opening *o = of;
    Run *r = o->run;
    r->log.metrics.lines.fd = r->log.history.lines.fd = -1;
    r->log.board.fd = r->log.samples.lines.fd = -1;
    r->saving.step = r->folder.lock = -1;
    r->export_dtype = CVN_DTYPE_COUNT;
    r->result.loss = NAN;
    TRY(arena_init(&r->arena, err));
    r->config = *o->config;
    r->begin.resuming = o->resume && o->config->out;
    TRY(lock_run(r, err));
    if (r->begin.resuming) {
        TRY(checkpoint_open_latest(&r->begin.from, r->config.out, r->events->cluster,
                                   warn_checkpoint, r, err));
        r->begin.has_from = true;
        TRY(merge_options(r, o->config, o->given, err));
    }
    TRY(train_config_check(&r->config, err));
    TRY(count_steps(r, err));
    if (!r->begin.resuming)
        TRY(check_folder(r->config.out, err));
    r->out = r->config.out;
    if (r->events->cluster && !on_mesh(&r->config))
        return runtime_mesh_missing(err);
    for (int i = 0; i < 2 && o->given && !on_mesh(&r->config); i++)
        if (o->given[train_key_find(of_mesh[i]) - train_keys])
            run_warn(r, "--%s has no effect without --mesh: this run is on one device", of_mesh[i]);
    if (check_mesh(r, err) || run_make_folder(r, err) || open_init(r, err) ||
        run_open_tokenizer(r, err) || open_model(r, err))
        return err->code;
    const TrainerOptions options = trainer_options(r);
    if (trainer_check(r->model, &options, err) || open_data(r, err) || run_agree(r, err) ||
        train_batch_new(&r->rows.batch, r->config.batch, r->config.seq, err) ||
        open_trainer(r, err))
        return err->code;
    r->pace.peak = train_peak(&r->trainer);
    if (check_stopped(r, err) || open_files(r, err))
        return err->code;
    return run_keep_folder(r, err);
}

int run_open(Run *r, const TrainConfig *config, const bool *given, bool resume, cvn_err *err)
{
    return protect(open_all, &(Opening){r, config, given, resume}, "opening a run", err);
}

void run_close(Run *r)
{
    train_batch_free(&r->rows.batch);
    checkpoint_writer_free(r->saving.writer);
    samples_close(&r->log.samples);
    event_file_close(&r->log.board);
    history_close(&r->log.history);
    metrics_close(&r->log.metrics);
    trainer_close(&r->trainer);
    data_free(r->rows.data);
    if (r->begin.has_from)
        checkpoint_close(&r->begin.from);
    if (r->begin.has_init)
        io_close_model(&r->begin.init);
    chat_template_free(r->tokens.chat);
    tokenizer_free(r->tokens.tokenizer);
    run_clear_folder(r);
    if (r->folder.lock >= 0)
        close(r->folder.lock);
    arena_free(&r->arena);
}
