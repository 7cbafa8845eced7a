#include "train/stages.h"

#include "base/threads.h"
#include "run/channel.h"
#include "train/kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the order ---- */

int stage_kept(int s, int n, int micro)
{
    return n - s < micro ? n - s : micro;
}

int stage_tasks(int s, int n, int micro, StageTask *task)
{
    int k = 0, forward = 0;
    bool last = s == n - 1;
    for (; !last && forward < stage_kept(s, n, micro) - 1; forward++)
        task[k++] = (StageTask){TRAIN_FORWARD, forward};
    for (int i = 0; i < micro; i++) {
        if (!last && forward < micro)
            task[k++] = (StageTask){TRAIN_FORWARD, forward++};
        task[k++] = (StageTask){TRAIN_GRADIENT, i};
    }
    return k;
}

int stages_here(Cluster *cluster, int stages, int *first, Cluster **part, cvn_err *err)
{
    int ranks = cluster_size(cluster), rank = cluster_rank(cluster);
    *first = 0;
    *part = stages == 1 ? cluster : NULL;
    if (stages % ranks == 0) {
        *first = rank * (stages / ranks);
        return stages / ranks;
    }
    if (ranks % stages) {
        err_set(err, CVN_EINVAL,
                "%d stages cannot be divided among %d processes, nor these among them; the number "
                "of one must divide that of the other",
                stages, ranks);
        return 0;
    }
    int each = ranks / stages;
    *first = rank / each;
    if (stages > 1 && cluster_part(cluster, *first * each, each, part, err))
        return 0;
    return 1;
}

/* ---- what is between stages ---- */

enum {
    SEND_FORWARD,
    SEND_BACK,
    SEND_DOWN,
    SEND_UP
}; /* to the next; to the one before; first to last; last to first */

/* Of the stages that are here, [n_stages + 1]: channel k lies before the k-th of them, the last one behind. */
typedef struct StageLinks {
    ChannelGate gate;
    Channel *forward, *back;
    Channel down, up; /* of an embedding's gradient */
    Pool *pool;       /* a thread for each stage */
} StageLinks;

/* Whether a buffer has a slot for each micro-batch that waits. */
static bool waits(const Buffer *b)
{
    return b->role == ROLE_KEPT || (b->role == ROLE_BOUNDARY && b->index == STAGE_ENTERS);
}

void stage_hold(Runtime *rt, int slots, RematPolicy policy)
{
    for (Buffer *b = rt->first; b; b = b->next)
        if (waits(b)) /* what was kept by another policy is not */
            b->held = b->role == ROLE_BOUNDARY || kept_policy(b->index) == policy ? slots : 0;
}

int stages_allocate(Trainer *t, cvn_err *err)
{
    for (int k = 0; k < t->n_stages; k++) {
        TrainStage *stage = &t->stage[k];
        for (Buffer *b = stage->rt.first; b; b = b->next)
            if (waits(b) && b->held > 0)
                TRY(buffer_slots(&stage->rt, b, (int)b->held, err));
    }
    return CVN_OK;
}

/* The end of a channel at stage `number`, of all. */
static ChannelEnd end_at(Trainer *t, int number, Role role, int index)
{
    int k = number - t->stage->number;
    if (k < 0 || k >= t->n_stages)
        return (ChannelEnd){0};
    Runtime *rt = &t->stage[k].rt;
    return (ChannelEnd){rt, runtime_buffer(rt, role, index)};
}

/* Between two stages, at least one of which is here. */
static int link_stages(Trainer *t, Channel *c, int kind, int from, Role role, int index, int to,
                       Role to_role, int to_index, cvn_err *err)
{
    ChannelEnd a = end_at(t, from, role, index), b = end_at(t, to, to_role, to_index);
    Cluster *cluster = t->options.cluster;
    if (!a.rt && !b.rt)
        return CVN_OK;
    int rank = 0, ranks = cluster_size(cluster);
    if (!a.rt || !b.rt) {
        int other = a.rt ? to : from;
        rank = ranks < t->stages
                   ? other / t->n_stages
                   : cluster_rank(cluster) + (other - t->stage->number) * (ranks / t->stages);
    }
    return channel_open(c, &t->links->gate, a, b, cluster, rank, TAG_CHANNEL + (kind << 8), err);
}

int stages_link(Trainer *t, cvn_err *err)
{
    size_t n = (size_t)t->n_stages + 1;
    int first = t->stage->number, last = t->stages - 1;
    TrainStepOptions step = {.stages = t->stages, .stage = last, .lora = t->options.lora};
    if (t->stages == 1)
        return CVN_OK;
    StageLinks *links = t->links = arena_alloc(&t->arena, sizeof *links);
    channel_gate_init(&links->gate);
    links->forward = arena_array(&t->arena, n, sizeof *links->forward);
    links->back = arena_array(&t->arena, n, sizeof *links->back);
    for (int k = 0; k <= t->n_stages; k++) {
        int behind = first + k;
        if (behind == 0 || behind > last)
            continue;
        TRY(link_stages(t, &links->forward[k], SEND_FORWARD, behind - 1, ROLE_BOUNDARY,
                        STAGE_LEAVES, behind, ROLE_BOUNDARY, STAGE_ENTERS, err));
        TRY(link_stages(t, &links->back[k], SEND_BACK, behind, ROLE_BOUNDARY, STAGE_GRADIENT_LEAVES,
                        behind - 1, ROLE_BOUNDARY, STAGE_GRADIENT_ENTERS, err));
    }
    if (train_stage_shares(&step, t->model)) {
        int embed = t->state.params.first[PARAM_EMBED];
        TRY(link_stages(t, &links->down, SEND_DOWN, 0, ROLE_SUM, embed, last, ROLE_PEER, embed,
                        err));
        TRY(link_stages(t, &links->up, SEND_UP, last, ROLE_SUM, embed, 0, ROLE_PEER, embed, err));
    }
    links->pool = pool_new(t->n_stages, err);
    return links->pool ? CVN_OK : err->code;
}

void stages_unlink(Trainer *t)
{
    StageLinks *links = t->links;
    if (!links)
        return;
    pool_free(links->pool);
    for (int k = 0; k <= t->n_stages && links->back; k++) {
        channel_close(&links->forward[k]);
        channel_close(&links->back[k]);
    }
    channel_close(&links->down);
    channel_close(&links->up);
    channel_gate_free(&links->gate);
    t->links = NULL;
}

void stages_communication(const Trainer *t, CommTable *table)
{
    const StageLinks *links = t->links;
    if (!links)
        return;
    const Channel *sends[] = {&links->forward[1], &links->back[0], &links->down, &links->up};
    const Channel *receives[] = {&links->forward[0], &links->back[1], &links->up, &links->down};
    const Runtime *rt = &t->stage->rt;
    CommRow *row = comm_table_row(table, OP_COLLECTIVE_PERMUTE, t->stage_axis);
    for (int i = 0; i < 4; i++) {
        int64_t sent = sends[i]->from.rt == rt ? sends[i]->sent : 0;
        double waited = receives[i]->to.rt == rt ? (double)receives[i]->waited * 1e-9 : 0;
        row->count += sent;
        row->bytes += (double)sent * (double)sends[i]->bytes;
        row->seconds += waited;
        row->exposed += waited;
    }
}

/* ---- running ---- */

/* What all stages of the process do at the same time. */
typedef struct StagesRun {
    Trainer *t;
    const TrainBatch *batch;
    int (*work)(Trainer *t, int k, const TrainBatch *batch, cvn_err *err);
} StagesRun;

static void run_stage(void *context, int k, int n)
{
    const StagesRun *run = context;
    cvn_err err = {0};
    (void)n;
    if (run->work(run->t, k, run->batch, &err))
        channel_fail(&run->t->links->gate, &err);
}

static int run_stages(Trainer *t, const TrainBatch *batch,
                      int (*work)(Trainer *t, int k, const TrainBatch *batch, cvn_err *err),
                      cvn_err *err)
{
    StagesRun run = {t, batch, work};
    if (!t->links)
        return work(t, 0, batch, err);
    pool_run(t->links->pool, run_stage, &run);
    return channel_gate_end(&t->links->gate, err);
}

/* What enters a stage. */
static int receive_batch(Trainer *t, int k, bool more, cvn_err *err)
{
    return t->stage[k].number ? channel_receive(&t->links->forward[k], more, err) : CVN_OK;
}

static int run_task(Trainer *t, int k, StageTask task, const TrainBatch *batch, cvn_err *err)
{
    TrainStage *stage = &t->stage[k];
    bool last = stage->number == t->stages - 1, forward = task.kind == TRAIN_FORWARD;
    for (Buffer *b = stage->rt.first; b; b = b->next)
        if (waits(b) && b->n_slots)
            buffer_use_slot(b, task.micro % b->n_slots);
    bool more = (task.micro + 1) * t->options.micro_batch < t->options.batch;
    TRY(forward || last ? receive_batch(t, k, more, err)
                        : channel_receive(&t->links->back[k + 1], more, err));
    TRY(trainer_run(t, stage, task.kind, batch, task.micro * t->options.micro_batch, err));
    if (forward)
        return channel_send(&t->links->forward[k + 1], err);
    return stage->number > 0 ? channel_send(&t->links->back[k], err) : CVN_OK;
}

/* The gradient of an embedding that is in the first and in the last stage. */
static int share_gradient(Trainer *t, int k, cvn_err *err)
{
    int number = t->stage[k].number;
    const TrainStepOptions step = {.stages = t->stages, .stage = number, .lora = t->options.lora};
    if (!train_stage_shares(&step, t->model))
        return CVN_OK;
    TRY(channel_send(number ? &t->links->up : &t->links->down, err));
    return channel_receive(number ? &t->links->down : &t->links->up, false, err);
}

static int add_gradients(Trainer *t, int k, const TrainBatch *batch, cvn_err *err)
{
    TrainStage *stage = &t->stage[k];
    int micro = (int)(t->options.batch / t->options.micro_batch);
    SCOPED(scoped_free) StageTask *task = calloc(2 * (size_t)micro, sizeof *task);
    if (!task)
        return err_set(err, CVN_EMEM, "no memory for the tasks of a stage");
    int n = stage_tasks(stage->number, t->stages, micro, task);
    for (int i = 0; i < n; i++)
        TRY(run_task(t, k, task[i], batch, err));
    if (t->stages == 1)
        return CVN_OK;
    TRY(share_gradient(t, k, err));
    return trainer_run(t, stage, TRAIN_SQUARES, NULL, 0, err);
}

static int update(Trainer *t, int k, const TrainBatch *batch, cvn_err *err)
{
    (void)batch;
    return trainer_run(t, &t->stage[k], TRAIN_UPDATE, NULL, 0, err);
}

/* Of what is computed by one stage, floats [n] in each process: what the process of the stage has. */
static int gather(Trainer *t, const float *own, size_t n, float **all, cvn_err *err)
{
    size_t ranks = (size_t)cluster_size(t->options.cluster);
    *all = calloc(ranks * n, sizeof **all);
    if (!*all)
        return err_set(err, CVN_EMEM, "no memory for what other stages have");
    return cluster_gather(t->options.cluster, CLUSTER_STEPS, own, *all, n * sizeof *own, err);
}

/* The number of the first rank that has a stage. */
static size_t rank_of(const Trainer *t, int stage)
{
    return (size_t)stage * (size_t)cluster_size(t->options.cluster) / (size_t)t->stages;
}

/* The sums over tokens of the last stage and, in the order of the table of weights, the sum of squares of all gradients: to all. */
static int add_squares(Trainer *t, cvn_err *err)
{
    const ParamList *params = &t->state.params;
    size_t n = (size_t)params->n + TRAIN_TOTALS;
    SCOPED(scoped_free) float *all = NULL;
    SCOPED(scoped_free) float *own = calloc(n, sizeof *own);
    SCOPED(scoped_free) int *owner = calloc(n, sizeof *owner);
    if (!own || !owner)
        return err_set(err, CVN_EMEM, "no memory for sums of squares");
    for (int s = t->stages - 1; s >= 0; s--) {
        const ModelPart part = model_part(t->model, s, t->stages);
        int k = s - t->stage->number, at = 0;
        const Program *p = k >= 0 && k < t->n_stages ? &t->stage[k].program[TRAIN_SQUARES] : NULL;
        const float *square = p ? program_output(p, ROLE_REPORT, 0) : NULL;
        const float *totals = p ? program_output(p, ROLE_REPORT, 1) : NULL;
        for (int i = 0; i < params->n; i++)
            if (model_part_has(&part, t->model, &params->param[i])) {
                owner[i] = s;
                own[i] = square ? square[at++] : own[i];
            }
        for (int i = 0; i < TRAIN_TOTALS && totals; i++)
            own[params->n + i] = totals[i];
    }
    TRY(gather(t, own, n, &all, err));
    float sum = 0;
    for (int i = 0; i < params->n; i++)
        sum += all[rank_of(t, owner[i]) * n + (size_t)i];
    memcpy(t->sums, all + rank_of(t, t->stages - 1) * n + params->n, TRAIN_TOTALS * sizeof(float));
    t->sums[TRAIN_TOTALS] = sum;
    return CVN_OK;
}

int stages_step(Trainer *t, const TrainBatch *batch, cvn_err *err)
{
    TRY(run_stages(t, batch, add_gradients, err));
    if (t->stages > 1)
        TRY(add_squares(t, err));
    return run_stages(t, NULL, update, err);
}

static int evaluate(Trainer *t, int k, const TrainBatch *batch, cvn_err *err)
{
    TrainStage *stage = &t->stage[k];
    TRY(receive_batch(t, k, false, err));
    TRY(trainer_run(t, stage, TRAIN_EVALUATE, batch, 0, err));
    return stage->number < t->stages - 1 ? channel_send(&t->links->forward[k + 1], err) : CVN_OK;
}

int stages_evaluate(Trainer *t, const TrainBatch *batch, float sums[TRAIN_TOTALS], cvn_err *err)
{
    const TrainStage *last = &t->stage[t->n_stages - 1];
    SCOPED(scoped_free) float *all = NULL;
    float own[TRAIN_TOTALS] = {0};
    TRY(run_stages(t, batch, evaluate, err));
    const float *report = program_output(&last->program[TRAIN_EVALUATE], ROLE_REPORT, 0);
    if (report)
        memcpy(own, report, sizeof own);
    TRY(t->stages > 1 ? gather(t, own, TRAIN_TOTALS, &all, err) : CVN_OK);
    memcpy(sums, all ? all + rank_of(t, t->stages - 1) * TRAIN_TOTALS : own, sizeof own);
    return CVN_OK;
}
