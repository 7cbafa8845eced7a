#include "serve/scheduler.h"

#include "base/num.h"
#include "serve/list.h"
#include "serve/logits.h"
#include "serve/pace.h"
#include "serve/pages.h"
#include "serve/prefix.h"
#include "serve/speculate.h"

#include <string.h>

int scheduler_submit(cvn_engine *e, const cvn_request *request, const cvn_listener *listener,
                     const void *owner, int *id, cvn_err *err)
{
    TRY(engine_check_request(e, request, 0, err));
    TRY(logits_prepare(e, request, err));
    int64_t most = num_min(num_max(request->max_tokens, 0), e->options.context + 1);
    Job *job = queue_add(&e->queue, request, request->n_prompt + most);
    if (!job)
        return err_set(err, CVN_EMEM, "no memory for a request");
    if (listener)
        job->listener = *listener;
    job->owner = owner;
    job->begin = clock_seconds();
    if (id)
        *id = job->id;
    return CVN_OK;
}

int cvn_engine_submit(cvn_engine *e, const cvn_request *request, const cvn_listener *listener,
                      int *id, cvn_err *err)
{
    return scheduler_submit(e, request, listener, NULL, id, err);
}

/* So often a request may see others go before it. */
enum { PASSED_MOST = 256 };

/* Its slot is free, and its text is kept: what was read, and decoded until the last token that was handed over. */
static void leave_slot(cvn_engine *e, Job *job)
{
    if (e->logits)
        logits_begin(e, job->slot, NULL, 0);
    prefix_keep(e, job->slot);
    engine_reset_slot(e, job->slot);
    e->job[job->slot] = NULL;
    e->queue.running--;
    job->slot = -1;
}

static void finish(cvn_engine *e, Job *job, cvn_finish why)
{
    job->result.finish = why;
    queue_end(&e->queue, job);
    if (job->slot >= 0)
        leave_slot(e, job);
    if (job->listener.on_end)
        job->listener.on_end(job->listener.context, job->id, &job->result);
}

/* Ends those that were cancelled. Callbacks may cancel others meanwhile. */
static void sweep(cvn_engine *e)
{
    while (e->queue.cancelled)
        for (Job *job = e->queue.first, *next; job; job = next) {
            next = job->next;
            if (job->cancelled)
                finish(e, job, CVN_FINISH_CANCELLED);
        }
}

int cvn_engine_cancel(cvn_engine *e, int id, cvn_err *err)
{
    Queue *q = &e->queue;
    Job *job = queue_find(q, id);
    if (!job)
        return err_set(err, CVN_EINVAL, "request %d does not exist or has finished", id);
    q->cancelled += !job->cancelled;
    job->cancelled = true;
    if (q->busy) /* by a callback: the step does it */
        return CVN_OK;
    q->busy = true;
    sweep(e);
    queue_drop(q);
    q->busy = false;
    return CVN_OK;
}

/* ---- slots ---- */

/* Whether a request goes before one that came earlier. */
static bool passes(const Job *late, const Job *early)
{
    bool long_passed = late->passed >= PASSED_MOST;
    if (early->passed >= PASSED_MOST || long_passed)
        return long_passed && early->passed < PASSED_MOST;
    if (late->request.priority != early->request.priority)
        return late->request.priority < early->request.priority;
    return late->turn < early->turn;
}

/* The next one that waits for a slot (-1); or of those that run in a shard the last that would have got it. */
static Job *next_job(const cvn_engine *e, int shard)
{
    Job *best = NULL;
    for (Job *job = e->queue.first; job; job = job->next) {
        bool one = shard < 0 ? job->slot < 0 && !job->cancelled
                             : job->slot >= 0 && e->pages->shard[job->slot] == shard;
        if (one && (!best || passes(job, best) == (shard < 0)))
            best = job;
    }
    return best;
}

/* Has its text read again where that gives the same bits, and else decoded again. */
static void begin(cvn_engine *e, Job *job, int slot, int64_t keep)
{
    job->slot = slot;
    e->job[slot] = job;
    e->queue.running++;
    engine_begin_slot(e, slot, &job->request, job->drawn, keep);
    if (job->result.n_tokens == 0)
        job->result.reused = keep;
}

bool scheduler_hold(cvn_engine *e, int slot, int64_t n)
{
    Job *own = e->job[slot], *last;
    while (!prefix_hold(e, slot, n)) {
        if (!(last = next_job(e, e->pages->shard[slot])))
            return false;
        leave_slot(e, last);
        last->drawn = e->chunk_invariant ? last->result.n_tokens : 0;
        last->request.n_prompt = last->n_prompt + last->drawn;
        e->stats.preemptions++;
        if (last == own)
            return false;
    }
    return true;
}

/* Pages for the next tokens of slots that decode. */
static void hold_decoding(cvn_engine *e)
{
    for (int slot = 0; slot < e->options.slots; slot++)
        if (e->slots.length[slot])
            scheduler_hold(e, slot, e->filled[slot] + 1);
}

/* Gives free slots to those that wait, as long as there are pages for them. */
static void give_slots(cvn_engine *e)
{
    Queue *q = &e->queue;
    for (Job *job; q->running < e->options.slots && (job = next_job(e, -1));) {
        int64_t keep = 0;
        int slot;
        if (job->request.max_tokens < 1) {
            finish(e, job, CVN_FINISH_LENGTH);
            continue;
        }
        if (!prefix_take_slot(e, job, &slot, &keep)) /* and nobody who came later takes it away */
            return;
        q->turn = num_max(q->turn, job->turn);
        for (Job *early = q->first; early != job; early = early->next)
            early->passed += early->slot < 0;
        begin(e, job, slot, keep);
    }
}

/* ---- tokens ---- */

static bool has_ended(const cvn_engine *e, const Job *job, int32_t token, bool go_on,
                      cvn_finish *why)
{
    int64_t filled = job->n_prompt + job->result.n_tokens - 1; /* when it was drawn */
    if (engine_ends(e, &job->request, token))
        *why = CVN_FINISH_EOS;
    else if (job->cancelled)
        *why = CVN_FINISH_CANCELLED;
    else if (!go_on)
        *why = CVN_FINISH_STOPPED;
    else if (job->result.n_tokens >= job->request.max_tokens)
        *why = CVN_FINISH_LENGTH;
    else if (filled >= e->options.context)
        *why = CVN_FINISH_CONTEXT;
    else
        return false;
    return true;
}

/* Hands a token over, unless it was before the request was preempted; true while the request goes on. */
static bool take_token(cvn_engine *e, Job *job, int32_t token)
{
    const cvn_listener *l = &job->listener;
    cvn_result *result = &job->result;
    cvn_finish why;
    if (e->logits && e->logits[job->slot].err.code) {
        result->why = e->logits[job->slot].err.message;
        finish(e, job, CVN_FINISH_CONSTRAINT);
        return false;
    }
    ((int32_t *)(uintptr_t)job->request.prompt)[job->n_prompt + job->drawn++] = token;
    if (e->speculation)
        speculate_add(e, job->slot);
    if (job->drawn <= result->n_tokens)
        return true;
    result->total_seconds = clock_seconds() - job->begin;
    if (result->n_tokens++ == 0)
        result->first_seconds = result->total_seconds;
    if (e->logits && e->logits[job->slot].logits && job->request.on_logits)
        job->request.on_logits(l->context, job->id, e->logits[job->slot].logits, token);
    bool go_on = !l->on_token || l->on_token(l->context, job->id, token);
    if (!has_ended(e, job, token, go_on, &why))
        return true;
    finish(e, job, why);
    return false;
}

/* Of all slots that have decoded. */
static void take_tokens(cvn_engine *e)
{
    for (int slot = 0; slot < e->options.slots; slot++)
        if (e->slots.length[slot] && !e->job[slot]->cancelled)
            take_token(e, e->job[slot], e->slots.tokens[slot]);
}

/* ---- a step ---- */

/* Those that have a slot and whose prompts are not read, in their order. */
static int list_prompts(const cvn_engine *e)
{
    int n = 0, seen = 0;
    for (Job *job = e->queue.first; job && seen < e->queue.running; job = job->next) {
        if (job->slot < 0)
            continue;
        seen++;
        if (!job->cancelled && e->filled[job->slot] < job->request.n_prompt)
            e->prompt[n++] = (SlotPrompt){.slot = job->slot, .request = &job->request};
    }
    return n;
}

/* Of prompts whose chunks a run has read: those that are complete have drawn, and decode from now on. */
static void take_prompts(cvn_engine *e, int n, double seconds)
{
    for (int i = 0; i < n; i++) {
        const SlotPrompt *p = &e->prompt[i];
        Job *job = e->job[p->slot];
        if (!p->computed)
            continue;
        int64_t read = num_min(e->filled[p->slot], job->n_prompt) - job->result.reused;
        job->result.computed = num_max(job->result.computed, read);
        job->result.prefill_seconds += seconds;
        if (e->filled[p->slot] < job->request.n_prompt)
            continue;
        e->slots.length[p->slot] = true;
        take_token(e, job, e->slots.tokens[p->slot]);
    }
}

/* Reads no more tokens than the largest list has, of which a run has at least as many as the shortest chunk. *decoded: slots that decode have drawn meanwhile. */
static int read_prompts(cvn_engine *e, bool *decoded, cvn_err *err)
{
    int64_t most = e->options.bucket[e->options.n_buckets - 1], read = 0;
    for (;;) {
        bool any, beside, decodes = pace_decodes(e);
        give_slots(e);
        hold_decoding(e);
        if (!list_prompts(e))
            return CVN_OK;
        int first = e->prompt[0].slot;
        int64_t rest = e->prompt[0].request->n_prompt - e->filled[first];
        TRY(pace_choose(e, read == 0, &any, err));
        int64_t size = list_chunk(e, SAMPLE_GREEDY, rest, e->budget);
        if (!any || (read && read + size > most) ||
            !scheduler_hold(e, first, e->filled[first] + num_min(rest, e->budget)))
            return CVN_OK;
        int n = list_prompts(e);
        double begin = e->pace.clock();
        TRY(engine_prefill(e, e->prompt, n, &beside, err));
        double now = e->pace.clock();
        read += num_max(list_tokens(e, e->lists->ran), e->options.bucket[0]);
        if (e->options.max_stall > 0)
            pace_note(e, e->lists->ran, now - begin);
        if (beside || !decodes)
            e->pace.since = now;
        if (beside)
            take_tokens(e);
        *decoded = *decoded || beside;
        take_prompts(e, n, now - begin);
    }
}

/* Tokens that a slot may draw in a run: it may outrun neither its context nor its limit, and drafts preempt nobody. */
static int64_t room(cvn_engine *e, int slot)
{
    const Job *job = e->job[slot];
    int64_t most =
        num_min(e->options.context - e->filled[slot], job->request.max_tokens - job->drawn);
    prefix_hold(e, slot, e->filled[slot] + num_min(most, 1 + DRAFT_MOST));
    return num_min(most, e->pages->held[slot] * e->pages->size - e->filled[slot]);
}

/* Draws several tokens of slots whose next ones can be drafted; *ran: it did. */
static int decode_guessed(cvn_engine *e, bool *ran, cvn_err *err)
{
    for (int slot = 0; slot < e->options.slots; slot++)
        e->room[slot] = e->slots.length[slot] ? room(e, slot) : 0;
    double begin = e->pace.clock();
    TRY(speculate_run(e, e->room, ran, err));
    if (*ran)
        pace_decoded(&e->pace, begin);
    for (int slot = 0; slot < e->options.slots && *ran; slot++) {
        Job *job = e->job[slot];
        bool goes_on = job && e->slots.length[slot];
        for (int i = 0; goes_on; i++) {
            e->stats.accepted_tokens += i > 0;
            goes_on = !job->cancelled && take_token(e, job, decode_take(e, slot, i)) &&
                      e->speculation->slot[slot].stood > i; /* the next one was drafted */
        }
    }
    return CVN_OK;
}

static int decode(cvn_engine *e, cvn_err *err)
{
    bool ran = false;
    hold_decoding(e);
    if (!pace_decodes(e))
        return CVN_OK;
    if (e->speculation)
        TRY(decode_guessed(e, &ran, err));
    if (ran)
        return CVN_OK;
    double begin = e->pace.clock();
    TRY(engine_decode(e, err));
    pace_decoded(&e->pace, begin);
    take_tokens(e);
    return CVN_OK;
}

/* Slots that have drawn beside a chunk go on with the next one, if there is one, and else by themselves. */
static int step(cvn_engine *e, bool reads, cvn_err *err)
{
    bool decoded = false;
    e->queue.busy = true;
    int code = reads ? read_prompts(e, &decoded, err) : CVN_OK;
    if (code == CVN_OK && !(decoded && list_prompts(e)))
        code = decode(e, err);
    sweep(e);
    queue_drop(&e->queue);
    e->queue.busy = false;
    return code;
}

int cvn_engine_step(cvn_engine *e, int *left, cvn_err *err)
{
    cvn_err local = {0};
    err = err ? err : &local;
    if (e->queue.busy)
        return err_set(err, CVN_EINVAL,
                       "a step callback may submit and cancel requests, but not step");
    int code = step(e, true, err);
    if (left)
        *left = e->queue.n;
    return code;
}

int scheduler_go_on(cvn_engine *e, cvn_err *err)
{
    bool waits = e->options.max_stall > 0 && pace_decodes(e) && !e->queue.busy;
    return waits ? step(e, false, err) : CVN_OK;
}

void cvn_engine_watch(cvn_engine *e, const volatile int *flag)
{
    e->watched = flag;
    if (e->speculation && e->speculation->model.e)
        cvn_engine_watch(e->speculation->model.e, flag);
    e->rt.backend->watch(e->rt.devices, flag);
}

int scheduler_run(cvn_engine *e, const int *left, const volatile int *interrupt, cvn_err *err)
{
    const volatile int *before = e->watched;
    int code = CVN_OK;
    if (interrupt)
        cvn_engine_watch(e, interrupt);
    while (*left && code == CVN_OK)
        code = cvn_engine_step(e, NULL, err); /* whose runs watch */
    cvn_engine_watch(e, before);
    return code;
}
