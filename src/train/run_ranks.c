/*
 * A run by several processes: what they agree on, and what only the first one does.
 *
 * All of them run the same code on their own devices; the first one, rank 0, also tells, and writes what is there once:
 * tokenizer, metrics, texts, report, model. It makes what others wait for (the tokenizer, the cache of the data), so
 * RUN must be one folder for all. Before the first step they compare data, options and model; after each, what it was.
 */
#include "base/capacity.h"
#include "train/run_impl.h"

#include "base/threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool run_is_first(const Run *r)
{
    return cluster_rank(r->events->cluster) == 0;
}

int run_together(const Run *r, int code, cvn_err *err)
{
    return cluster_together(r->events->cluster, CLUSTER_STEPS, code, err);
}

int run_share_path(Run *r, const char **path, cvn_err *err)
{
    FilePath first;
    snprintf(first.text, sizeof first.text, "%s", *path ? *path : "");
    int code = cluster_share(r->events->cluster, &first, sizeof first, err);
    if (code == CVN_OK && *first.text)
        *path = arena_string(&r->arena, first.text);
    return code;
}

int run_share_memory(const Run *r, size_t *limit, cvn_err *err)
{
    Cluster *c = r->events->cluster;
    if (!c)
        return CVN_OK;
    int n = cluster_size(c), beside = 0;
    for (int i = 0; i < n; i++)
        beside += strcmp(cluster_host(c, i), cluster_host(c, cluster_rank(c))) == 0;
    uint64_t own = *limit ? *limit : capacity_memory() / (size_t)beside;
    SCOPED(scoped_free) uint64_t *all = calloc((size_t)n, sizeof *all);
    if (!all)
        return err_set(err, CVN_EMEM, "no memory for messages to other ranks");
    int code = cluster_gather(c, CLUSTER_STEPS, &own, all, sizeof own, err);
    for (int i = 0; i < n && code == CVN_OK; i++)
        own = all[i] < own ? all[i] : own;
    *limit = own;
    return code;
}

int run_agree(const Run *r, cvn_err *err)
{
    Cluster *c = r->events->cluster;
    TRY(cluster_agree(c, "the model", model_hash(r->model), err));
    TRY(cluster_agree(c, "the training data", data_report(r->rows.data)->key, err));
    return cluster_agree(c, "the options", hash_bytes(r->kept.text, strlen(r->kept.text)), err);
}

/* What a step was, to be compared. */
typedef struct StepSummary {
    int64_t step, position; /* done; rows of data taken */
    double loss, norm;
    int64_t stop; /* from here on not compared: somebody was told to stop */
    int64_t save; /* it is time to save, by the clock of rank 0 */
    double busy;  /* seconds without exposed communication */
} StepSummary;

/* Who was slowest goes into the row; a rank that stays so is warned of by the first one. */
static int note_slowest(Run *r, const StepSummary *all, int n, MetricsRow *row, cvn_err *err)
{
    SCOPED(scoped_free) double *busy = calloc((size_t)n, sizeof *busy);
    if (!busy)
        return err_set(err, CVN_EMEM, "no memory for the times of other ranks");
    for (int i = 0; i < n; i++)
        busy[i] = all[i].busy;
    SlowestRank slowest = slowest_rank(busy, n);
    row->slowest_rank = slowest.rank;
    row->busy_seconds = slowest.busy;
    row->busy_seconds_others = slowest.others;
    if (straggler_add(&r->health.straggler, slowest) && run_is_first(r))
        run_warn(r,
                 "rank %d on %s is slow: busy for %.3g s of this step, the others for %.3g s; "
                 "check what else runs on that machine",
                 slowest.rank, cluster_host(r->events->cluster, slowest.rank), slowest.busy,
                 slowest.others);
    return CVN_OK;
}

int run_check_step(Run *r, const TrainReport *report, MetricsRow *row, cvn_err *err)
{
    Cluster *c = r->events->cluster;
    const CheckpointState *saved = &r->trainer.state.saved;
    StepSummary own = {saved->step,
                       saved->position,
                       report->loss,
                       report->grad_norm,
                       flag_is_set(r->events->stop),
                       r->config.save_minutes > 0 &&
                           clock_seconds() - r->saving.at >= 60 * r->config.save_minutes,
                       row->seconds - row->comm_exposed_seconds};
    r->stopped = own.stop;
    r->saving.due = own.save;
    if (!c)
        return CVN_OK;
    int n = cluster_size(c);
    SCOPED(scoped_free) StepSummary *all = calloc((size_t)n, sizeof *all);
    if (!all)
        return err_set(err, CVN_EMEM, "no memory for messages to other ranks");
    int code = cluster_gather(c, CLUSTER_STEPS, &own, all, sizeof own, err);
    r->saving.due = all[0].save;
    for (int i = 0; i < n && code == CVN_OK; i++) {
        r->stopped = r->stopped || all[i].stop;
        if (memcmp(&all[i], &all[0], offsetof(StepSummary, stop)) == 0)
            continue;
        bool data = all[i].step != all[0].step || all[i].position != all[0].position;
        code = err_set(err, CVN_EINVAL,
                       "rank %d on %s disagrees with rank 0 on %s about step %" PRId64
                       ": its %s %.9g, not %.9g",
                       i, cluster_host(c, i), cluster_host(c, 0), all[0].step,
                       data ? "data are at row" : "loss is",
                       data ? (double)all[i].position : all[i].loss,
                       data ? (double)all[0].position : all[0].loss);
    }
    return code == CVN_OK && n > 1 ? note_slowest(r, all, n, row, err) : code;
}
