#include "cli/train_receipt.h"

#include "base/file.h"
#include "base/heap.h"
#include "base/json_file.h"
#include "serve/model.h"
#include "serve/receipt.h"
#include "train/config.h"
#include "train/data/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_model(cvn_model **model)
{
    cvn_model_free(*model);
}

/* Digests of the weights of the model in a folder, and of its tokenizer, which may be left out (NULL). */
static int digests(const char *folder, json_t **weights, json_t **tokenizer, cvn_err *err)
{
    SCOPED(free_model) cvn_model *model = NULL;
    /* What is trained is the text model, whatever it was inside of. */
    const cvn_model_options how = {.dtype = CVN_DTYPE_COUNT, .text_only = true};
    TRY(cvn_model_open(folder, &how, &model, err));
    *weights = receipt_weights(&model->io.tensors);
    if (tokenizer)
        *tokenizer = receipt_tokenizer(model->tokenizer);
    return *weights ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a receipt");
}

/* As metrics.jsonl has it, from which rows of a run that went on were read again. */
static json_t *figure(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    return isfinite(value) ? json_real(strtod(text, NULL)) : json_null();
}

int train_receipt_write(const char *path, const TrainRecord *record, cvn_err *err)
{
    json_t *weights = NULL, *tokenizer = NULL, *before = NULL;
    json_error_t where;
    int code = record->init ? digests(record->init, &before, NULL, err) : CVN_OK;
    if (!code)
        code = digests(record->out, &weights, &tokenizer, err);
    if (code) {
        json_decref(before);
        return code;
    }
    json_t *loss = json_array(), *norm = json_array();
    for (size_t i = 0; i < record->metrics->n; i++) {
        loss = json_append(loss, figure(record->metrics->row[i].loss));
        norm = json_append(norm, figure(record->metrics->row[i].grad_norm));
    }
    json_auto_t *all =
        json_pack("{s:i,s:o,s:{s:s,s:s},s:o}", "receipt", 1, "trained",
                  json_loads(record->options, 0, &where), "program", "version", CVN_VERSION,
                  "kernels", record->kernels, "base", before ? before : json_null());
    all = json_with(all, "loss", loss);
    all = json_with(all, "grad_norm", norm);
    all = json_with(all, "weights", weights);
    all = json_with(all, "tokenizer", tokenizer);
    SCOPED(scoped_free) char *line = all ? json_dumps(all, JSON_COMPACT) : NULL;
    SCOPED(strbuf_free) StrBuf text = {0};
    if (line)
        strbuf_printf(&text, "%s\n", line);
    return line && !text.failed ? file_write(path, text.text, text.length, err)
                                : err_set(err, CVN_EMEM, "no memory for a receipt");
}

bool train_receipt_is(const json_t *receipt)
{
    return json_is_object(json_object_get(receipt, "trained"));
}

/* ---- training it again ---- */

/* A path of the run: where it was from the folder that the run was started in, unless there is one from here. */
static const char *path_of(const char *path, const char *started_in, Arena *arena)
{
    if (!path || *path == '/' || !started_in || file_exists(source_path(path, NULL).text))
        return path;
    return arena_printf(arena, "%s/%s", started_in, path);
}

/* The run's options, without what a run may change and still compute the same. */
static int options_of(const json_t *receipt, const TrainAgain *how, TrainConfig *c, Arena *arena,
                      cvn_err *err)
{
    const json_t *trained = json_object_get(receipt, "trained");
    const char *started_in = json_string_value(json_object_get(trained, TRAIN_FOLDER_KEY));
    json_auto_t *options = json_deep_copy(trained);
    if (!options)
        return err_set(err, CVN_EMEM, "no memory for the options of a run");
    train_config_only(options);
    *c = train_config_defaults();
    TRY(train_config_read(c, "\"trained\"", options, NULL, arena, err));
    for (int i = 0; i < train_n_keys; i++) {
        const char **path = train_keys[i].path ? train_config_text(c, &train_keys[i]) : NULL;
        if (path)
            *path = path_of(*path, started_in, arena);
    }
    for (int64_t i = 0; i < c->n_data; i++)
        c->data[i] = path_of(c->data[i], started_in, arena);
    if (how->n_data && how->n_data != (size_t)c->n_data)
        return err_set(err, CVN_EINVAL,
                       "the run was trained on %" PRId64 " files; give --data for each, in the "
                       "same order",
                       c->n_data);
    for (size_t i = 0; i < how->n_data; i++)
        c->data[i] = how->data[i];
    if (how->base)
        c->init = how->base;
    c->out = how->out;
    c->threads = how->threads;
    /* Whoever wrote the receipt does not say which library is loaded, nor what is written where. */
    if (c->device && strchr(c->device, ':'))
        return err_set(err, CVN_EUNSUPPORTED,
                       "the run was trained on '%s'; a receipt does not name plugins, so it is "
                       "trained again on cpu, tpu or cuda alone",
                       c->device);
    c->evaluate = c->cache = NULL;
    c->save_every = c->sample_every = c->stop_after = 0;
    return CVN_OK;
}

typedef struct Replay {
    const json_t *loss, *norm; /* the receipt's, of each step */
    const json_t *data;        /* its key of the data */
    bool other_data;
    TrainDifference *out;
} Replay;

static double number(const json_t *list, int64_t step)
{
    const json_t *value = json_array_get(list, (size_t)(step - 1));
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static bool same(double was, double is)
{
    json_auto_t *now = figure(is);
    return isfinite(was) ? json_is_real(now) && json_real_value(now) == was : json_is_null(now);
}

static bool has_other_data(const Replay *r, const char *options)
{
    json_error_t where;
    json_auto_t *now = json_loads(options, 0, &where);
    return !json_equal(r->data, json_object_get(now, TRAIN_DATA_KEY));
}

static bool on_step(void *context, const TrainProgress *progress)
{
    Replay *r = context;
    const MetricsRow *row = &progress->row;
    r->other_data = row->step == 1 && has_other_data(r, progress->options);
    double loss = number(r->loss, row->step), norm = number(r->norm, row->step);
    if (!same(loss, row->loss) || !same(norm, row->grad_norm))
        *r->out = (TrainDifference){.step = row->step,
                                    .steps = r->out->steps,
                                    .loss = loss,
                                    .loss_now = row->loss,
                                    .grad_norm = norm,
                                    .grad_norm_now = row->grad_norm};
    return !r->other_data && !r->out->step;
}

static void on_warning(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "caravan: warning: %s\n", sentence);
}

int train_receipt_replay(const json_t *receipt, const TrainAgain *how, TrainDifference *out,
                         cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TrainConfig config;
    TrainResult result;
    json_t *weights = NULL;
    *out = (TrainDifference){.steps = (int64_t)json_array_size(json_object_get(receipt, "loss"))};
    Replay replay = {
        .loss = json_object_get(receipt, "loss"),
        .norm = json_object_get(receipt, "grad_norm"),
        .data = json_object_get(json_object_get(receipt, "trained"), TRAIN_DATA_KEY),
        .out = out,
    };
    if (json_integer_value(json_object_get(receipt, "receipt")) != 1 || out->steps == 0)
        return err_set(err, CVN_EFORMAT,
                       "not a receipt of version 1, as train --receipt writes it");
    TRY(arena_begin(&arena, err));
    TRY(options_of(receipt, how, &config, &arena, err));
    if (file_exists(how->out))
        return err_set(err, CVN_EINVAL, "'%s' is there already; give a new folder with --out",
                       how->out);
    if (config.init) {
        TRY(digests(config.init, &weights, NULL, err));
        bool other = !json_equal(json_object_get(receipt, "base"), weights);
        json_decref(weights);
        if (other)
            return err_set(err, CVN_EFORMAT, "the receipt is of another model than '%s'",
                           config.init);
    }
    const TrainEvents events = {
        .context = &replay, .step = on_step, .warning = on_warning, .stop = how->stop};
    TRY(train_run(&config, NULL, false, &events, &result, err));
    if (replay.other_data)
        return err_set(err, CVN_EFORMAT, "the receipt is of other data");
    if (out->step)
        return CVN_OK;
    if (!result.finished)
        return err_set(err, CVN_EINTERRUPTED, "interrupted after step %" PRId64 ", the same so far",
                       result.step);
    if (result.step != out->steps)
        return err_set(err, CVN_EFORMAT, "the receipt has %" PRId64 " steps, its options %" PRId64,
                       out->steps, result.step);
    TRY(digests(how->out, &weights, NULL, err));
    out->weights = !json_equal(json_object_get(receipt, "weights"), weights);
    json_decref(weights);
    return CVN_OK;
}
