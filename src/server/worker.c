/* The engines' thread: requests in, tokens out, and what nobody waits for any more is cancelled. */
#include "server/internal.h"

#include "base/map.h"
#include "base/threads.h"
#include "comm/cluster.h"
#include "serve/pace.h"
#include "serve/pages.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>

enum { LOOK_MS = 20, POLL_AT_ONCE = 256, IDLE_SECONDS = 3600 };

bool choice_has_news(const Choice *c)
{
    bool news = c->text.length > c->sent.text || c->texts.thought.length > c->sent.thought ||
                c->end.ended > c->sent.end;
    for (int k = 0; k < choice_calls(c) && !news; k++)
        news =
            !c->calls.call[k].opened || c->calls.call[k].arguments.length > c->calls.call[k].sent;
    return news;
}

bool exchange_has_news(const Exchange *x)
{
    bool news = x->events.stage == 0 || x->n_ended == x->n_choices;
    for (int i = 0; i < x->n_choices && !news; i++)
        news = choice_has_news(&x->choice[i]);
    return news;
}

void exchange_drop(Exchange *x)
{
    if (--x->refs == 0)
        exchange_free(x);
}

static void unlink_exchange(Server *s, Exchange *x)
{
    *(x->before ? &x->before->next : &s->queue.first) = x->next;
    *(x->next ? &x->next->before : &s->queue.last) = x->before;
    x->before = x->next = NULL;
}

void worker_link(Server *s, Exchange *x)
{
    x->before = s->queue.last;
    *(s->queue.last ? &s->queue.last->next : &s->queue.first) = x;
    s->queue.last = x;
    x->ask.served->now.n_choices += x->n_choices;
}

int worker_add(Server *s, Exchange *x, Refusal *why)
{
    pthread_mutex_lock(&s->lock);
    cvn_err err = {0};
    Served *m = x->ask.served;
    bool ready = s->state == SERVER_READY;
    for (int i = 0; i < x->ask.input.n_prompts && ready; i++) {
        const cvn_request request = ask_request(&x->ask, i * (int)x->ask.sampling.n, 0);
        if (engine_check_request(m->engine, &request, i, &err))
            refuse(why, 400, NULL, "%s", err.message);
    }
    if (why->status) {
        ;
    } else if (s->state != SERVER_READY) {
        refuse(why, 503, NULL, "the server is %s",
               s->state == SERVER_LOADING ? "loading the model" : "shutting down");
        why->retry = 5;
    } else if (m->now.n_choices + x->n_choices > m->slots + s->options.max_waiting) {
        refuse(why, 429, NULL,
               "%d sequences are running or queued, and the request has %d more; the limit is %d",
               m->now.n_choices, x->n_choices, m->slots + s->options.max_waiting);
        why->code = "rate_limit_exceeded";
        why->retry = 1;
    } else {
        x->refs++;
        worker_link(s, x);
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return why->status;
}

/* ---- what the engine says, on its thread, without the lock ---- */

/* Of several processes none acts upon what only connections know. */
static bool is_over(const Exchange *x)
{
    return x->end.ending || (x->end.cancelled && !x->server->several);
}

static bool hear(void *context, int id, int32_t token)
{
    Choice *c = context;
    Exchange *x = c->x;
    Server *s = x->server;
    ServerMetrics *m = &x->ask.served->now.metrics;
    (void)id;
    double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    if (c->n_drawn)
        metrics_observe(m, HIST_INTER_TOKEN, now - x->time.last);
    else
        metrics_observe(m, HIST_FIRST_TOKEN, now - x->time.begin);
    x->time.first = x->time.first > 0 ? x->time.first : now;
    x->time.last = now;
    bool go_on = choice_push(c, token) && !is_over(x);
    m->generation_tokens++;
    if (x->ask.output.stream && exchange_has_news(x))
        http_wake(x);
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void look(void *context, int id, const float *logits, int32_t token)
{
    Choice *c = context;
    Server *s = c->x->server;
    (void)id;
    pthread_mutex_lock(&s->lock);
    choice_see(c, logits, cvn_model_vocab(c->x->ask.served->model), token);
    pthread_mutex_unlock(&s->lock);
}

static void note_end(const Choice *c)
{
    ServerMetrics *m = &c->x->ask.served->now.metrics;
    const cvn_result *r = &c->end.result;
    bool gone = r->finish == CVN_FINISH_CANCELLED;
    m->finished[gone ? REASON_ABORT
                : r->finish == CVN_FINISH_LENGTH || r->finish == CVN_FINISH_CONTEXT
                    ? REASON_LENGTH
                    : REASON_STOP]++;
    int64_t n_prompt = (int64_t)c->x->ask.input.prompt[c->prompt].n;
    if (c->x->prompts.embedding) {
        m->prompt_tokens += (uint64_t)exchange_usage(c->x).prompt;
        return;
    }
    m->prompt_tokens += (uint64_t)n_prompt;
    m->queried_tokens += (uint64_t)n_prompt;
    m->cached_tokens += (uint64_t)r->reused;
    if (gone)
        return;
    double queue = r->first_seconds - r->prefill_seconds;
    metrics_observe(m, HIST_WHOLE, r->total_seconds);
    metrics_observe(m, HIST_QUEUE, queue > 0 ? queue : 0);
    metrics_observe(m, HIST_PREFILL, r->prefill_seconds);
    metrics_observe(m, HIST_DECODE, r->total_seconds - r->first_seconds);
    metrics_observe(m, HIST_INFERENCE, r->total_seconds - (queue > 0 ? queue : 0));
    metrics_observe(m, HIST_PROMPT_TOKENS, (double)n_prompt);
    metrics_observe(m, HIST_GENERATION_TOKENS, (double)r->n_tokens);
}

static int submit_choice(Choice *c, cvn_err *err);

static void end(void *context, int id, const cvn_result *result)
{
    Choice *c = context;
    Exchange *x = c->x;
    Server *s = x->server;
    cvn_err err = {0};
    (void)id;
    pthread_mutex_lock(&s->lock);
    bool more = choice_next(c, result) && !is_over(x);
    pthread_mutex_unlock(&s->lock);
    if (more && submit_choice(c, &err) == CVN_OK)
        return;
    pthread_mutex_lock(&s->lock);
    if (err.code)
        refuse(&x->end.failed, 500, NULL, "%s", err.message);
    if (result->finish == CVN_FINISH_CONSTRAINT)
        refuse(&x->end.failed, 500, NULL, "%s", result->why);
    choice_end(c, result);
    x->ask.served->now.n_choices--;
    note_end(c);
    if (x->n_ended == x->n_choices || x->ask.output.stream)
        http_wake(x);
    if (x->n_ended == x->n_choices) {
        unlink_exchange(s, x);
        exchange_drop(x);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- what it is told ---- */

/* Ends what is left of it; `why`: what its client is told, NULL where there is none any more. */
static void end_exchange(Server *s, Exchange *x, int status, const cvn_err *why)
{
    static const cvn_result none = {.finish = CVN_FINISH_CANCELLED};
    pthread_mutex_lock(&s->lock);
    if (why)
        refuse(&x->end.failed, status, NULL, "%s", why->message);
    x->refs++; /* the last end would free it */
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < x->n_choices; i++) {
        Choice *c = &x->choice[i];
        if (!c->end.ended && (!c->id || cvn_engine_cancel(x->ask.served->engine, c->id, NULL)))
            end(c, 0, &none);
    }
    pthread_mutex_lock(&s->lock);
    exchange_drop(x);
    pthread_mutex_unlock(&s->lock);
}

typedef struct Seeing {
    const cvn_model *model;
    Likely *likely;
    int n_top;
} Seeing;

static void see(void *context, int at, const float *logits, int32_t token)
{
    const Seeing *seeing = context;
    seeing->likely[at] = likely_of(logits, cvn_model_vocab(seeing->model), token, seeing->n_top);
}

/* Computes embeddings, on a row that is free; false: none is, or others have waited for one. */
static bool embed_prompts(Exchange *x, cvn_err *err)
{
    const Ask *a = &x->ask;
    const Served *m = a->served;
    if (!x->prompts.embedding)
        x->prompts.embedding = calloc((size_t)a->input.n_prompts, sizeof *x->prompts.embedding);
    bool failed = !x->prompts.embedding;
    for (int i = 0; i < a->input.n_prompts && !failed; i++) {
        if (!x->prompts.embedding[i])
            x->prompts.embedding[i] = calloc((size_t)cvn_model_width(m->model), sizeof(float));
        failed = !x->prompts.embedding[i];
    }
    if (failed)
        err_set(err, CVN_EMEM, "no memory for embeddings");
    for (bool first = true; x->prompts.n_done < a->input.n_prompts && !is_over(x) && !failed;
         first = false) {
        if (m->engine->queue.running == m->slots || (!first && m->engine->queue.n))
            return false;
        int n = engine_embed(m->engine, a->adapter, a->input.prompt + x->prompts.n_done,
                             a->input.n_prompts - x->prompts.n_done,
                             x->prompts.embedding + x->prompts.n_done, err);
        failed = n < 0;
        x->prompts.n_done += failed ? 0 : n;
    }
    return true;
}

/* Computes what is said of the prompts' own tokens, on a row that is free; false: none is. */
static bool see_prompts(Exchange *x, cvn_err *err)
{
    const Ask *a = &x->ask;
    const Served *m = a->served;
    if (x->dialect == &dialect_embeddings)
        return embed_prompts(x, err);
    int n_top = ask_prompt_top(a);
    x->prompts.seen = n_top >= 0 && !x->prompts.seen
                          ? calloc((size_t)a->input.n_prompts, sizeof *x->prompts.seen)
                          : x->prompts.seen;
    for (; n_top >= 0 && x->prompts.n_done < a->input.n_prompts && !is_over(x);
         x->prompts.n_done++) {
        const TokenIds *p = &a->input.prompt[x->prompts.n_done];
        if (m->engine->queue.running == m->slots)
            return false;
        Seeing seeing = {m->model, calloc(p->n, sizeof(Likely)), n_top};
        if (!x->prompts.seen || !seeing.likely) {
            free(seeing.likely);
            err_set(err, CVN_EMEM, "no memory for log-probabilities of %zu tokens", p->n);
            return true;
        }
        x->prompts.seen[x->prompts.n_done] = seeing.likely;
        if (cvn_engine_score_logits(m->engine, a->adapter, p->id, (int64_t)p->n, see, &seeing, err))
            return true;
    }
    return true;
}

/* What it is to generate next. Past its context nothing is: the answer ends there. */
static int submit_choice(Choice *c, cvn_err *err)
{
    const Exchange *x = c->x;
    const Served *m = x->ask.served;
    const cvn_listener listener = {hear, end, c};
    cvn_request request = choice_request(c, (uint64_t)x->ask.sampling.seed);
    request.on_logits = x->ask.output.logprobs || x->ask.output.receipt ? look : NULL;
    if (c->tokens.failed || c->phase.joined.failed)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    if (request.n_prompt > m->context) {
        request.n_prompt = m->context;
        request.max_tokens = 0;
    }
    return cvn_engine_submit(m->engine, &request, &listener, &c->id, err);
}

static void submit(Server *s, Exchange *x)
{
    cvn_err err = {0};
    Served *m = x->ask.served;
    int code = CVN_OK;
    x->submitted = true;
    if (x->ask.output.receipt && !m->receipt)
        code = receipt_model(m->engine, &m->receipt, &err);
    for (int i = 0; i < x->n_choices && !code; i++)
        code = submit_choice(&x->choice[i], &err);
    if (code)
        end_exchange(s, x, code == CVN_EUNSUPPORTED ? 400 : 500, &err);
}

/* The first exchange with a model that is new, or that nobody waits for any more; the lock is held. */
static Exchange *find_work(const Server *s, const Served *m)
{
    Exchange *x = s->queue.first;
    while (x && (x->ask.served != m || !x->number || (x->submitted && !x->end.ending)))
        x = x->next;
    return x;
}

static void take_work(Server *s, const Served *m)
{
    for (;;) {
        pthread_mutex_lock(&s->lock);
        Exchange *x = find_work(s, m);
        pthread_mutex_unlock(&s->lock);
        if (!x)
            return;
        cvn_err err = {0};
        if (x->end.ending == ENDING_LATE)
            err_set(&err, CVN_EINTERRUPTED, "the request timed out after %d seconds",
                    s->options.deadline_seconds);
        if (x->end.ending == ENDING_GONE)
            end_exchange(s, x, 0, NULL);
        else if (x->end.ending == ENDING_LATE)
            end_exchange(s, x, 504, &err);
        else if (!see_prompts(x, &err))
            return; /* those behind it wait, too: a row will be free */
        else if (err.code)
            end_exchange(s, x, 500, &err);
        else
            submit(s, x);
    }
}

/* A client that went away while its connection was suspended is noticed here. */
static void look_at_connections(Server *s)
{
    struct pollfd fd[POLL_AT_ONCE];
    Exchange *of[POLL_AT_ONCE];
    double now = clock_seconds();
    if (now - s->looked < LOOK_MS * 1e-3)
        return;
    s->looked = now;
    int most = s->options.deadline_seconds;
    pthread_mutex_lock(&s->lock);
    for (Exchange *x = s->queue.first; x;) {
        nfds_t n = 0;
        for (; x && n < POLL_AT_ONCE; x = x->next) {
            x->end.late = most && now - x->time.begin > most;
            if (x->link.fd < 0)
                continue;
            fd[n] = (struct pollfd){.fd = x->link.fd, .events = POLLRDHUP};
            of[n++] = x;
        }
        if (poll(fd, n, 0) <= 0)
            continue;
        for (nfds_t i = 0; i < n; i++)
            if (fd[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL))
                of[i]->end.cancelled = true;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- the loop ---- */

/* Waits until there is something to do, or for IDLE_SECONDS: other processes wait for what they are told; false: there never
   will be. */
static bool wait_for_work(Server *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += IDLE_SECONDS;
    pthread_mutex_lock(&s->lock);
    while (!s->queue.first && s->state == SERVER_READY &&
           pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0)
        ;
    bool more = s->queue.first || s->state == SERVER_READY;
    pthread_mutex_unlock(&s->lock);
    return more;
}

/* Of a model, or of all (NULL). */
static void end_all(Server *s, const Served *m, const cvn_err *why)
{
    for (;;) {
        pthread_mutex_lock(&s->lock);
        Exchange *x = s->queue.first;
        while (x && m && x->ask.served != m)
            x = x->next;
        pthread_mutex_unlock(&s->lock);
        if (!x)
            return;
        end_exchange(s, x, 500, why);
    }
}

static void note_step(Server *s, Served *m)
{
    cvn_engine_stats now = cvn_engine_get_stats(m->engine);
    int64_t tokens = now.prefill_tokens - m->now.stats.prefill_tokens + now.decoded_tokens -
                     m->now.stats.decoded_tokens;
    pthread_mutex_lock(&s->lock);
    metrics_observe(&m->now.metrics, HIST_STEP_TOKENS, (double)tokens);
    m->now.stats = now;
    m->now.running = m->engine->queue.running;
    m->now.cache_share = pages_used(m->engine);
    pthread_mutex_unlock(&s->lock);
}

/* FNV-1a, over one thing after another. */
static void digest(uint64_t *sum, const void *bytes, size_t n)
{
    *sum = (*sum ^ hash_bytes(bytes, n)) * UINT64_C(0x100000001b3);
}

static void digest_text(uint64_t *sum, const char *text)
{
    digest(sum, text ? text : "", text ? strlen(text) : 0);
}

/* A tensor's name, type and place, and pieces of its bytes from the first to the last: training moves all of them. To read
   all of a model would take as long as loading it. */
static void digest_tensor(uint64_t *sum, const IoTensor *t)
{
    enum { PIECES = 8, PIECE_BYTES = 64 };
    digest_text(sum, t->name);
    digest_text(sum, t->type);
    digest(sum, t->dims, (size_t)t->rank * sizeof *t->dims);
    size_t piece = t->bytes < PIECE_BYTES ? t->bytes : PIECE_BYTES;
    for (size_t i = 0; i < PIECES && t->data; i++)
        digest(sum, t->data + (t->bytes - piece) / (PIECES - 1) * i, piece);
    for (int i = 0; i < t->n_parts; i++)
        digest_tensor(sum, &t->part[i]);
}

/* Tells apart what would answer otherwise: weights, adapters, tokenizer, and what programs are made of. */
static void make_fingerprint(Served *m)
{
    const cvn_model *model = m->model;
    const cvn_engine_options *o = &m->engine->options;
    const int64_t of[] = {model->dtype, model_quant(model->io.desc).kind, o->scoring,
                          o->max_stall > 0,
                          m->tokenizer ? (int64_t)tokenizer_hash(m->tokenizer) : 0};
    uint64_t sum = 0;
    digest(&sum, of, sizeof of);
    digest(&sum, o->bucket, (size_t)o->n_buckets * sizeof *o->bucket);
    const char *const texts[] = {
        CVN_VERSION, m->engine->rt.info.kind, o->kv_cache, o->activations, o->mesh, o->layout,
        o->pooling,  model->io.adapter};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        digest_text(&sum, texts[i]);
    for (size_t i = 0; i < model->io.tensors.n; i++)
        digest_tensor(&sum, &model->io.tensors.tensor[i]);
    for (int i = 0; i < m->engine->adapters.n; i++) {
        const IoAdapter *a = &m->engine->adapters.adapter[i];
        digest(&sum, &a->options.alpha, sizeof a->options.alpha);
        for (size_t k = 0; k < a->tensors.n; k++)
            digest_tensor(&sum, &a->tensors.tensor[k]);
    }
    snprintf(m->fingerprint, sizeof m->fingerprint, "fp_%016llx", (unsigned long long)sum);
}

static int begin_model(Server *s, Served *m, cvn_engine *e, cvn_err *err)
{
    m->engine = e;
    m->model = e->model;
    m->tokenizer = e->model->tokenizer;
    m->context = e->options.context;
    m->slots = e->options.slots;
    m->now.stats = cvn_engine_get_stats(e);
    make_fingerprint(m);
    cvn_engine_watch(e, &s->aborting);
    return find_chat_template(s, m, err);
}

static int begin(Server *s, cvn_engine *const *engine, cvn_err *err)
{
    for (int i = 0; i < s->options.n_models; i++)
        TRY(begin_model(s, &s->served[i], engine[i], err));
    pthread_mutex_lock(&s->lock);
    s->several = cluster_size(engine[0]->options.cluster) > 1;
    if (s->state == SERVER_LOADING)
        s->state = SERVER_READY;
    pthread_mutex_unlock(&s->lock);
    if (s->options.ready)
        s->options.ready(s->options.ready_context);
    return CVN_OK;
}

/* What is new of one model, and a step. */
static void work_on(Server *s, Served *m)
{
    cvn_err err = {0};
    take_work(s, m);
    if (!m->engine->queue.n)
        return;
    StallPace *pace = &m->engine->pace;
    pace->beside = 0;
    for (int i = 0; i < s->options.n_models; i++) {
        const cvn_engine *other = s->served[i].engine;
        if (other != m->engine && pace_decodes(other))
            pace->beside =
                pace->beside > 0 ? fmin(pace->beside, other->pace.since) : other->pace.since;
    }
    int failed = cvn_engine_step(m->engine, NULL, &err);
    if (failed && failed != CVN_EINTERRUPTED)
        end_all(s, m, &err);
    note_step(s, m);
}

int server_run(Server *s, cvn_engine *const *engine, cvn_err *err)
{
    int code = begin(s, engine, err);
    for (bool more = code == CVN_OK; more;) {
        more = server_follows(s) || (!flag_is_set(&s->aborting) && wait_for_work(s));
        code = broadcast_requests(s, &more, err);
        more = more && code == CVN_OK;
        for (int i = 0; i < s->options.n_models && more; i++)
            work_on(s, &s->served[i]);
        look_at_connections(s);
    }
    const cvn_err ended = {.code = CVN_EINTERRUPTED, .message = "the server was stopped"};
    end_all(s, NULL, &ended);
    pthread_mutex_lock(&s->lock);
    s->state = SERVER_ENDED;
    pthread_mutex_unlock(&s->lock);
    return code;
}
