/* The steps of a run, and what is left behind when they end. */
#include "train/run_impl.h"

#include "base/capacity.h"
#include "base/threads.h"
#include "train/bench.h"
#include "train/checkpoint/export.h"
#include "train/checkpoint/folder.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WAIT = 1, LONGEST_WAIT = 1800 }; /* seconds */
enum { MOST_SKIPPED = 20, STEPS_BETWEEN_PEAKS = 20 };

void run_say(const Run *run, void (*to)(void *context, const char *sentence), const char *format,
             ...)
{
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (to)
        to(run->events->context, text);
}

static CheckpointState *state_of(Run *r)
{
    return &r->trainer.state.saved;
}

/* ---- data ---- */

int run_fill(Run *r, DataSplit split, int64_t first, int64_t n, cvn_err *err)
{
    const TrainBatch *b = &r->rows.batch;
    int64_t seq = r->config.seq;
    for (int64_t i = 0, end; i < n; i = end) {
        bool needed = trainer_needs(&r->trainer, i);
        for (end = i + 1; end < n && trainer_needs(&r->trainer, end) == needed;)
            end++;
        if (needed)
            TRY(data_fill(r->rows.data, split, first + i, end - i, b->tokens + i * seq,
                          b->targets + i * seq, b->starts + i * seq, err));
    }
    for (int64_t i = 0; i < n && r->rows.reference[split]; i++)
        b->reference[i] = r->rows.reference[split][data_row(r->rows.data, split, first + i)];
    return CVN_OK;
}

/* ---- validation ---- */

/* Mean loss over at most RUN_MOST_VALIDATION sequences that are held back. */
static int evaluate(Run *r, double *loss, cvn_err *err)
{
    int64_t all = data_sequences(r->rows.data, DATA_VALIDATION);
    int64_t n = all < RUN_MOST_VALIDATION ? all : RUN_MOST_VALIDATION;
    int64_t micro = r->trainer.options.micro_batch, seq = r->config.seq;
    const TrainBatch *b = &r->rows.batch;
    double sum = 0, count = 0;
    for (int64_t i = 0; i < n; i += micro) {
        TRY(run_fill(r, DATA_VALIDATION, i, micro, err));
        /* Rows past the last would count twice. */
        for (int64_t k = n - i < micro ? (n - i) * seq : micro * seq; k < micro * seq; k++)
            b->targets[k] = -1;
        TRY(trainer_evaluate(&r->trainer, b, &sum, &count, err));
    }
    *loss = sum / count;
    return CVN_OK;
}

/* ---- saving ---- */

/* A save that fails is a warning: training goes on, and the next one is tried. One warning is enough for a disk that
 * is full, until there is room. */
static void not_saved(Run *r, int64_t step, const cvn_err *why)
{
    if (r->saving.failed.code == CVN_OK && !r->saving.ending)
        run_warn(
            r,
            "step %" PRId64
            " was not saved: %s; training continues, and the next checkpoint is tried at its time",
            step, why->message);
    r->saving.failed = *why;
    r->saving.step = -1;
}

/* Looks at the save in flight, or waits for it. */
static int look_at_save(Run *r, bool wait, cvn_err *err)
{
    int64_t newest = -1;
    if ((wait && checkpoint_wait(r->saving.writer, err)) ||
        checkpoint_poll(r->saving.writer, &newest, err)) {
        not_saved(r, r->saving.step, err);
        return err->code;
    }
    if (r->saving.failed.code && newest >= 0 && newest == r->saving.step) {
        run_note(r, "step %" PRId64 " was saved; checkpoints work again", newest);
        r->saving.failed = (cvn_err){0};
    }
    return CVN_OK;
}

static void save(Run *r)
{
    cvn_err err = {0};
    int64_t step = state_of(r)->step;
    r->saving.at = clock_seconds();
    if (r->saving.step == step)
        return;
    /* The one before may be in flight still; that it fails must not keep this one from being tried. */
    look_at_save(r, true, &err);
    err = (cvn_err){0};
    int code = run_is_first(r) ? step_lines_sync(&r->log.metrics.lines, &err) : CVN_OK;
    code = run_is_first(r) && !code ? step_lines_sync(&r->log.history.lines, &err) : code;
    code = code ? code : train_state_fetch(&r->trainer.state, &err);
    if (run_together(r, code, &err) || checkpoint_save(r->saving.writer, state_of(r), &err))
        not_saved(r, step, &err);
    else
        r->saving.step = step;
}

/* A text by the model in a folder, for the report and the event file, and what it makes of questions. */
static void sample(Run *r, const char *folder)
{
    cvn_err err = {0};
    char *text = NULL;
    const char *prompt = r->config.prompt ? r->config.prompt : "", *file = r->config.evaluate;
    int64_t step = state_of(r)->step;
    if (!r->events->sample || !r->tokens.tokenizer || !run_is_first(r))
        return;
    if ((r->events->sample(r->events->context, folder, prompt, &text, &err) ||
         samples_add(&r->log.samples, step, prompt, text, &err) ||
         event_file_text(&r->log.board, step, "sample", text, &err)) &&
        err.code != CVN_EINTERRUPTED)
        run_warn(r, "no sample text at step %" PRId64 ": %s", step, err.message);
    free(text);
    if (!r->events->evaluate || !file)
        return;
    err = (cvn_err){0};
    text = NULL;
    if (r->events->evaluate(r->events->context, folder, file, &text, &err) == CVN_OK)
        run_note(r, "step %" PRId64 ", '%s': %s", step, file, text);
    else if (err.code != CVN_EINTERRUPTED)
        run_warn(r, "'%s' was not evaluated at step %" PRId64 ": %s", file, step, err.message);
    free(text);
}

/* The model, or the adapters, into the run's folder, by way of the checkpoint that was saved last. */
static int export_result(Run *r, cvn_err *err)
{
    SaveOptions save = {.dtype = r->export_dtype, .force = true};
    if (!run_is_first(r))
        return CVN_OK;
    Checkpoint last;
    TRY(checkpoint_find(&last, r->out, state_of(r)->step, NULL, NULL, err));
    CLEANUP(checkpoint_release, &last);
    return r->lora.rank > 0 ? checkpoint_export_adapter(&last, r->out, true, err)
                            : checkpoint_export(&last, r->out, &save, err);
}

static void sample_checkpoint(Run *r)
{
    cvn_err err = {0};
    int64_t step = state_of(r)->step;
    save(r);
    if (look_at_save(r, true, &err) || r->saving.step != step)
        return;
    if (state_of(r)->shards) { /* slices are no model that could say something */
        if (export_result(r, &err))
            run_warn(r, "no sample text at step %" PRId64 ": %s", step, err.message);
        else
            sample(r, r->out);
        return;
    }
    sample(r, checkpoint_path(checkpoint_folder(r->out).text, step, "").text);
}

/* ---- a step ---- */

/* Warns of what is far from the steps before, and of a step that was skipped: an error where many were, in a row. */
static int judge(Run *r, const TrainReport *report, cvn_err *err)
{
    double mean;
    int64_t step = state_of(r)->step;
    if (outlier_add(&r->health.loss, report->loss, &mean))
        run_warn(r, "step %" PRId64 ": the loss of %.4g is far above the %.4g of the steps before",
                 step, report->loss, mean);
    if (outlier_add(&r->health.norm, report->grad_norm, &mean))
        run_warn(r,
                 "step %" PRId64
                 ": the gradient norm of %.4g is far above the %.4g of the steps before",
                 step, report->grad_norm, mean);
    r->health.skipped = report->updated ? 0 : r->health.skipped + 1;
    if (report->updated)
        return CVN_OK;
    run_warn(r, "step %" PRId64 " was skipped: its loss or gradient is not finite", step);
    if (r->health.skipped < MOST_SKIPPED)
        return CVN_OK;
    return err_set(
        err, CVN_EINVAL,
        "%d steps in a row had a loss or gradient that is not finite; lower --lr, or use "
        "--dtype f32",
        r->health.skipped);
}

static void record(Run *r, const MetricsRow *row)
{
    cvn_err err = {0};
    if (!run_is_first(r))
        return;
    bool failed = metrics_add(&r->log.metrics, row, &err) ||
                  event_file_add(&r->log.board, row, &err) ||
                  history_add(&r->log.history, row, &err) ||
                  prometheus_write(r->out, r->config.steps, row, &r->log.exported, &err);
    if (failed && !r->log.no_room)
        run_warn(r, "the metrics of step %" PRId64 " and later ones wait for disk space: %s",
                 row->step, err.message);
    r->log.no_room = failed;
}

/* A step that is faster than the peak says that the machine had other work when that was measured: then it is measured
 * again, now and then, and the greatest counts. Several processes do not, for they would have to do it together. */
static double mfu_of(Run *r, double seconds)
{
    const TrainConfig *c = &r->config;
    double flops = train_flops(r->model, c->batch, c->seq);
    int64_t here = state_of(r)->step;
    /* A frozen weight has no gradient of its own: 4 operations per token in place of 6. */
    if (r->lora.rank > 0)
        flops -= 2 * (double)model_size(r->model).matmul_params * (double)(c->batch * c->seq);
    double rate = flops / seconds;
    if (rate > r->pace.peak && !r->events->cluster && here >= r->pace.next_peak) {
        r->pace.next_peak = here + STEPS_BETWEEN_PEAKS;
        r->pace.peak = fmax(r->pace.peak, train_peak(&r->trainer));
    }
    return r->pace.peak > 0 ? rate / r->pace.peak : 0;
}

static int step(Run *r, cvn_err *err)
{
    CheckpointState *state = state_of(r);
    const TrainConfig *c = &r->config;
    double begin = clock_seconds();
    TrainReport report;
    MetricsRow row = {.validation_loss = NAN};
    cluster_set_step(r->events->cluster, state->step + 1);
    TRY(run_fill(r, DATA_TRAIN, state->position, c->batch, err));
    CommTable before, after;
    trainer_communication(&r->trainer, &before);
    TRY(trainer_step(&r->trainer, &r->rows.batch, &report, err));
    trainer_communication(&r->trainer, &after);
    comm_table_since(&after, &before);
    comm_table_add(&r->pace.communication, &after);
    CommRow sum = comm_table_sum(&after);
    row.comm_seconds = sum.seconds;
    row.comm_exposed_seconds = sum.exposed;
    row.comm_bytes = sum.bytes;
    row.seconds = clock_seconds() - begin;
    TRY(run_check_step(r, &report, &row, err));
    double seconds = row.seconds = clock_seconds() - begin;
    row.step = state->step;
    row.loss = report.loss;
    row.lr = report.lr;
    row.grad_norm = report.grad_norm;
    row.accuracy = c->dpo ? report.z : 0;
    row.tokens_per_second = (double)(c->batch * c->seq) / seconds;
    row.mfu = mfu_of(r, seconds);
    bool last = state->step == c->steps;
    bool look = c->evaluate_every > 0 && (last || state->step % c->evaluate_every == 0);
    if (look && r->trainer.options.evaluates)
        TRY(evaluate(r, &row.validation_loss, err));
    record(r, &row);
    r->result.loss = row.loss;
    r->result.seconds += seconds;
    r->result.tokens += c->batch * c->seq;
    /* The first step touches all memory for the first time and tells little of the rest. */
    r->pace.mean_seconds =
        state->step - r->pace.first <= 2 ? seconds : 0.95 * r->pace.mean_seconds + 0.05 * seconds;
    TrainProgress progress = {.row = row,
                              .steps = c->steps,
                              .left = r->pace.mean_seconds * (double)(c->steps - row.step),
                              .memory = r->trainer.bytes,
                              .options = r->kept.text};
    if (r->events->step && !r->events->step(r->events->context, &progress))
        r->stopped = true;
    return judge(r, &report, err);
}

static bool divides(int64_t every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static bool has_stop(const Run *r)
{
    return flag_is_set(r->events->stop);
}

/* A disk that is full at the end must not lose the run: room may be made, and then it is saved. */
static void save_when_there_is_room(Run *r)
{
    cvn_err err = {0};
    for (int waited = 0; waited < LONGEST_WAIT; waited += WAIT) {
        save(r);
        look_at_save(r, true, &err);
        if (r->saving.step == state_of(r)->step || r->events->cluster || has_stop(r) ||
            capacity_check_disk(checkpoint_folder(r->out).text, checkpoint_bytes(state_of(r)),
                                &err) == CVN_OK)
            return;
        if (waited == 0)
            run_warn(r,
                     "step %" PRId64
                     " has no disk space: %s; retrying for half an hour, Ctrl-C aborts",
                     state_of(r)->step, r->saving.failed.message);
        for (int i = 0; i < 10 * WAIT && !has_stop(r); i++)
            usleep(100000);
        err = (cvn_err){0};
    }
}

static bool did_steps(const Run *r)
{
    return r->trainer.state.saved.step > r->pace.first;
}

/* The last checkpoint, the model as a folder, a last text and the report. */
static int finish(Run *r, cvn_err *err)
{
    r->saving.ending = true;
    save_when_there_is_room(r);
    if (look_at_save(r, true, err) == CVN_OK && r->saving.step != state_of(r)->step)
        *err = r->saving.failed;
    if (err->code) {
        SCOPED(scoped_free) int64_t *steps = NULL;
        size_t n = 0;
        bool before = checkpoint_steps(checkpoint_folder(r->out).text, &steps, &n, NULL) == CVN_OK;
        err_prefix(err, "step %" PRId64 " was not saved%s", state_of(r)->step,
                   before && n > 0
                       ? "; fix the error that follows, then use --resume to continue from the "
                         "last checkpoint"
                       : ", and no step before it; fix the error that follows, then start again");
    } else if (export_result(r, err) == CVN_OK && state_of(r)->step >= r->config.steps &&
               (did_steps(r) || !run_has_last_text(r)))
        sample(r, r->out);
    if (!err->code && state_of(r)->step >= r->config.steps && r->events->finished &&
        run_is_first(r))
        r->events->finished(r->events->context,
                            &(TrainRecord){.out = r->out,
                                           .init = r->config.init,
                                           .options = r->kept.text,
                                           .kernels = r->trainer.stage->rt.info.kind,
                                           .metrics = &r->log.metrics},
                            err);
    if (did_steps(r) || !file_has(r->out, REPORT_NAME))
        run_report(r);
    return err->code;
}

/* The steps, until all are done or the run is stopped; with what every thread did written to a file. */
static int run_steps(Run *r, cvn_err *err)
{
    const TrainConfig *c = &r->config;
    const CheckpointState *state = state_of(r);
    const Backend *backend = r->trainer.stage->rt.backend;
    Devices *devices = r->trainer.stage->rt.devices;
    const char *profile = r->events->profile;
    if (profile)
        TRY(backend->trace_begin(devices, err));
    while (state->step < c->steps && !r->stopped && (r->events->cluster || !has_stop(r)) &&
           (c->stop_after == 0 || state->step - r->pace.first < c->stop_after)) {
        TRY(step(r, err));
        cvn_err told = {0};
        look_at_save(r, false, &told);
        if (state->step == c->steps)
            break;
        if (divides(c->save_every, state->step) || r->saving.due) {
            save(r);
            run_report(r);
        }
        if (divides(c->sample_every, state->step))
            sample_checkpoint(r);
    }
    return profile ? backend->trace_write(devices, profile, err) : CVN_OK;
}

static int run_loop(void *run, cvn_err *err)
{
    Run *r = run;
    const TrainConfig *c = &r->config;
    const CheckpointState *state = state_of(r);
    r->pace.first = state->step;
    r->saving.step = r->begin.resumed ? state->step : -1;
    r->saving.at = clock_seconds();
    if (state->step >= c->steps)
        run_note(r, "all %" PRId64 " steps of '%s' are done; to continue, raise --steps",
                 state->step, r->out);
    else if (state->step > 0)
        run_note(r, "resumes after step %" PRId64 " of %" PRId64, state->step, c->steps);
    int code = run_steps(r, err);
    if (code == CVN_OK)
        code = finish(r, err);
    run_communication(r, &r->result.communication);
    r->result.step = state->step;
    r->result.steps = c->steps;
    r->result.finished = state->step >= c->steps;
    r->result.stopped = !r->result.finished && (r->stopped || has_stop(r));
    r->result.lora = r->lora.rank > 0;
    const Runtime *rt = &r->trainer.stage->rt;
    r->result.compilations = (int)rt->backend->compilations(rt->devices);
    return code;
}

int train_run(const TrainConfig *config, const bool *given, bool resume, const TrainEvents *events,
              TrainResult *result, cvn_err *err)
{
    static const TrainEvents silent = {0};
    Run run = {.events = events ? events : &silent};
    int code = run_open(&run, config, given, resume, err);
    if (code == CVN_OK)
        code = protect(run_loop, &run, "training", err);
    *result = run.result;
    run_close(&run);
    return code;
}
