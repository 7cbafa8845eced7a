/*
 * The rows: what each holds, and the runs of programs that go on from there. A row's state, its fill and its token, advances
 * after a run that succeeded and not before, so that a run which was interrupted is as if it had not been: what it
 * left in caches lies beyond their fill and is written again.
 */
#include "serve/adjust.h"
#include "serve/guess.h"
#include "serve/prefix.h"
#include "serve/scheduler.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int engine_run(cvn_engine *e, EngineStep *step, const Inputs *in, const int64_t *cache,
               cvn_err *err)
{
    int64_t ranks = e->adapters.ranks;
    bool plain = e->adapters.n > 0;
    for (int64_t i = 0; i < step->rows * ranks; i++) /* no row that has something to do has one */
        plain = plain && !(in->length[i / ranks] && in->select[i] != 0);
    Program *program = plain ? &step->plain : &step->program;
    step->ran = program;
    if (cache)
        program_set_rows(program, cache);
    cluster_set_step(e->options.cluster, e->rt.runs + 1);
    int code = program_run(program, err);
    e->failed = e->failed || (code && code != CVN_EINTERRUPTED);
    return code;
}

const void *engine_output(const EngineStep *step, Role role)
{
    return program_output(step->ran, role, 0);
}

void engine_release_row(cvn_engine *e, int row)
{
    for (int i = 0; i < e->n_caches; i++)
        buffer_discard_row(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, i), row);
}

void engine_set_active(cvn_engine *e, int row, bool active)
{
    e->rows.length[row] = active;
}

/* Marks tokens, which are in the vocabulary, as being in a row. */
static void add_seen(cvn_engine *e, int row, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    for (int64_t i = 0; e->rows.seen && i < n; i++)
        e->rows.seen[(size_t)row * vocab + (size_t)tokens[i]] = 1;
}

static void set_seen(cvn_engine *e, int row, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    if (e->rows.seen)
        memset(e->rows.seen + (size_t)row * vocab, 0, vocab);
    add_seen(e, row, tokens, n);
}

void engine_set_filled(cvn_engine *e, int row, int64_t n)
{
    e->filled[row] = n;
    e->rows.start[row] = (int32_t)n;
}

void engine_reset_row(cvn_engine *e, int row)
{
    engine_set_filled(e, row, 0);
    e->resets[row]++;
    if (e->prefix)
        prefix_forget(e, row);
    e->rows.tokens[row] = 0;
    e->rows.length[row] = 0;
    e->rows.temperature[row] = 0;
    e->rows.top_p[row] = 1;
    e->rows.penalty[row] = 1;
    set_seen(e, row, NULL, 0);
}

static void set_adapter(cvn_engine *e, int row, int which)
{
    if (e->adapters.n)
        adapters_select(&e->adapters, which, e->rows.select + row * e->adapters.ranks);
}

void engine_copy_select(const cvn_engine *e, Inputs *in, int64_t at, int row)
{
    size_t ranks = (size_t)e->adapters.ranks;
    if (ranks)
        memcpy(in->select + (size_t)at * ranks, e->rows.select + (size_t)row * ranks,
               ranks * sizeof *in->select);
}

void engine_copy_sampling(const cvn_engine *e, Inputs *in, int64_t at, int row)
{
    const Inputs *from = &e->rows;
    in->temperature[at] = from->temperature[row];
    in->top_k[at] = from->top_k[row];
    in->top_p[at] = from->top_p[row];
    in->min_p[at] = from->min_p[row];
    in->penalty[at] = from->penalty[row];
    memcpy(in->key + 2 * at, from->key + 2 * row, 2 * sizeof *in->key);
}

/* The cheapest program that draws so. */
static SampleMode sampling_mode(const cvn_sampling *s, int64_t vocab)
{
    if (s->temperature <= 0)
        return SAMPLE_GREEDY;
    bool filters = (s->top_k > 0 && s->top_k < vocab) || s->top_p < 1 || s->min_p > 0;
    return filters ? SAMPLE_FILTER : SAMPLE_RANDOM;
}

static SampleMode row_mode(const cvn_engine *e, int row)
{
    const Inputs *in = &e->rows;
    if (e->adjust && e->adjust[row].request)
        return SAMPLE_ADJUSTED;
    const cvn_sampling sampling = {.temperature = in->temperature[row],
                                   .top_k = in->top_k[row],
                                   .top_p = in->top_p[row],
                                   .min_p = in->min_p[row]};
    return sampling_mode(&sampling, model_vocab(e->model->io.desc));
}

SampleMode engine_mode(const cvn_engine *e)
{
    SampleMode mode = SAMPLE_GREEDY;
    for (int i = 0; i < e->options.rows; i++) {
        SampleMode wanted = e->rows.length[i] ? row_mode(e, i) : SAMPLE_GREEDY;
        mode = wanted > mode ? wanted : mode;
    }
    return mode;
}

/* The part of the caches' rows that a row is in: its place among the rows of a section. */
static int row_part(const cvn_engine *e, int row)
{
    return e->parts == 1 ? 0 : buffer_row_part(runtime_buffer(&e->rt, ROLE_CACHE, 0), row);
}

/* A section in which no row has anything to do. */
static void clear_section(cvn_engine *e, const EngineStep *step)
{
    Inputs *in = &e->section;
    for (int64_t i = 0; i < step->rows; i++) {
        e->section_row[i] = -1;
        in->start[i] = in->length[i] = 0;
    }
    memset(in->tokens, 0, (size_t)(step->rows * step->seq) * sizeof *in->tokens);
}

/* Stages a section of a row's tokens at a place in it. */
static void stage_section(cvn_engine *e, const EngineStep *step, int64_t at, int row,
                          const int32_t *tokens, int64_t n)
{
    Inputs *in = &e->section;
    const Inputs *from = &e->rows;
    e->section_row[at] = row;
    in->start[at] = from->start[row];
    in->length[at] = (int32_t)n;
    engine_copy_sampling(e, in, at, row);
    memcpy(in->tokens + at * step->seq, tokens, (size_t)n * sizeof *tokens);
    engine_copy_select(e, in, at, row);
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    if (in->seen)
        memcpy(in->seen + (size_t)at * vocab, from->seen + (size_t)row * vocab, vocab);
    if (in->bias) {
        memcpy(in->bias + (size_t)at * vocab, from->bias + (size_t)row * vocab,
               vocab * sizeof *in->bias);
        memcpy(in->mask + (size_t)at * vocab, from->mask + (size_t)row * vocab, vocab);
    }
}

/* Runs a program on the section that is staged. */
static int run_section(cvn_engine *e, EngineStep *step, cvn_err *err)
{
    double begin = clock_seconds();
    TRY(engine_run(e, step, &e->section, e->section_row, err));
    e->stats.prefills++;
    e->stats.prefill_seconds += clock_seconds() - begin;
    for (int64_t i = 0; i < step->rows; i++) {
        int row = (int)e->section_row[i];
        int64_t n = e->section.length[i];
        if (n)
            engine_set_filled(e, row, e->filled[row] + n);
        e->stats.prefill_tokens += n;
    }
    return CVN_OK;
}

/* The smallest bucket that holds n tokens, or the largest there is. */
static int choose_bucket(const int64_t *bucket, int n_buckets, int64_t n)
{
    int i = 0;
    while (i < n_buckets - 1 && bucket[i] < n)
        i++;
    return i;
}

static int check_tokens(const cvn_engine *e, const int32_t *tokens, int64_t n, cvn_err *err)
{
    int64_t context = e->options.context, vocab = model_vocab(e->model->io.desc);
    if (n > context)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " tokens do not fit in a context of %" PRId64
                       "; shorten the prompt or raise --context",
                       n, context);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return err_set(err, CVN_EINVAL,
                           "token %d at place %" PRId64 " is not in the vocabulary of %" PRId64,
                           (int)tokens[i], i, vocab);
    return CVN_OK;
}

static int check_sampling(const cvn_engine *e, const cvn_sampling *s, cvn_err *err)
{
    if (!(s->temperature >= 0) || isinf(s->temperature) ||
        (s->temperature > 0 && s->temperature < 1e-3f))
        return err_set(err, CVN_EINVAL, "temperature is %g; give 0, or 0.001 or more",
                       (double)s->temperature);
    if (s->temperature > 0 && !(s->top_p > 0))
        return err_set(err, CVN_EINVAL, "top-p is %g; give more than 0, at most 1",
                       (double)s->top_p);
    if (s->top_k < 0 || isnan(s->top_p) || s->top_p < 0 || !(s->min_p >= 0) || s->min_p > 1)
        return err_set(
            err, CVN_EINVAL,
            "top-k %d, top-p %g, min-p %g: expected top-k >= 0, top-p >= 0, min-p in 0 to 1",
            (int)s->top_k, (double)s->top_p, (double)s->min_p);
    if (!(s->repeat_penalty >= 0) || isinf(s->repeat_penalty))
        return err_set(err, CVN_EINVAL, "repeat penalty is %g; give a positive number",
                       (double)s->repeat_penalty);
    SampleMode mode = sampling_mode(s, model_vocab(e->model->io.desc));
    if (mode > e->most)
        return err_set(err, CVN_EINVAL,
                       "the request samples with %s; create the engine with options.%s",
                       mode == SAMPLE_FILTER ? "top-k, top-p or min-p" : "a temperature",
                       mode == SAMPLE_FILTER ? "filters" : "sampling");
    /* 1 stands for no penalty, exactly */
    if (s->repeat_penalty > 0 && s->repeat_penalty != 1 && !e->options.penalties)
        return err_set(
            err, CVN_EINVAL,
            "the request has a repeat penalty; create the engine with options.penalties");
    return CVN_OK;
}

static int check_adapter(const cvn_engine *e, int which, cvn_err *err)
{
    int n = e->adapters.n;
    if (which >= -1 && (which < n || which == 0))
        return CVN_OK;
    return err_set(err, CVN_EINVAL, "there is no adapter %d; the engine has %d, counted from 0",
                   which, n);
}

int engine_check_request(const cvn_engine *e, const cvn_request *r, int i, cvn_err *err)
{
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; create it without options.no_generation");
    if (!r->prompt || r->n_prompt < 1)
        return err_set(err, CVN_EINVAL, "prompt %d has no tokens", i);
    TRY(check_tokens(e, r->prompt, r->n_prompt, err));
    TRY(check_sampling(e, &r->sampling, err));
    TRY(check_adapter(e, r->adapter, err));
    return adjust_check(e, r, err);
}

bool engine_ends(const cvn_engine *e, const cvn_request *r, int32_t token)
{
    const SpecialIds *eos = model_ends(e->model->io.desc);
    bool ends = false;
    for (int i = 0; i < eos->n; i++)
        ends = ends || eos->id[i] == token;
    for (int64_t i = 0; i < r->n_end; i++)
        ends = ends || r->end[i] == token;
    return ends && (r->constraint || !r->ignore_eos);
}

void engine_begin_row(cvn_engine *e, int row, const cvn_request *request, int64_t keep)
{
    if (keep == 0)
        engine_reset_row(e, row);
    engine_set_filled(e, row, keep);
    set_adapter(e, row, request->adapter);
    const cvn_sampling *s = &request->sampling;
    Inputs *in = &e->rows;
    in->temperature[row] = s->temperature;
    in->top_k[row] = s->top_k;
    in->top_p[row] = s->top_p > 0 ? s->top_p : 1; /* 0: of a greedy request */
    in->min_p[row] = s->min_p;
    in->penalty[row] = s->repeat_penalty > 0 ? s->repeat_penalty : 1;
    in->key[2 * row] = (uint32_t)s->seed;
    in->key[2 * row + 1] = (uint32_t)(s->seed >> 32);
    set_seen(e, row, request->prompt, request->n_prompt);
    if (e->guesser)
        guess_begin(e, row, request);
    if (e->adjust)
        adjust_begin(e, row, request);
}

/* A run has drawn a row's next token: the row of the program's outputs was `at`. */
static void note_drawn(cvn_engine *e, const EngineStep *step, int row, int64_t at)
{
    if (!e->adjust || !e->adjust[row].request)
        return;
    const float *logits = engine_output(step, ROLE_LOGITS);
    logits += at * model_vocab(e->model->io.desc);
    e->rows.tokens[row] = adjust_drawn(e, row, e->rows.tokens[row], logits);
}

void engine_draw(cvn_engine *e, int row, int32_t token, const float *logits)
{
    add_seen(e, row, &e->rows.tokens[row], 1);
    e->rows.tokens[row] =
        e->adjust && e->adjust[row].request ? adjust_drawn(e, row, token, logits) : token;
}

int engine_free_row(cvn_engine *e)
{
    int best = -1;
    memset(e->load, 0, (size_t)e->parts * sizeof *e->load);
    for (int i = 0; i < e->options.rows; i++)
        e->load[row_part(e, i)] += e->job[i] != NULL;
    for (int i = 0; i < e->options.rows; i++)
        if (!e->job[i] && (best < 0 || e->load[row_part(e, i)] < e->load[row_part(e, best)]))
            best = i;
    return best;
}

/* How the rest of a prompt is read next: the bucket, and whether that is its last section. */
static int next_section(const cvn_engine *e, const RowPrompt *p, bool *last)
{
    const cvn_engine_options *o = &e->options;
    int64_t rest = p->request->n_prompt - e->filled[p->row];
    int b = choose_bucket(o->bucket, e->longest + 1, rest);
    *last = rest <= o->bucket[b];
    return b;
}

/* The first of SECTION_ROWS rows side by side that a batch with a row is of. */
static int batch_begin(const cvn_engine *e, int row)
{
    int begin = row - row % SECTION_ROWS, last = e->options.rows - SECTION_ROWS;
    return begin < last ? begin : last;
}

/* Whether a prompt's next section is read by bucket b, and is its last one or not. */
static bool section_is(const cvn_engine *e, const RowPrompt *p, int b, bool last)
{
    bool own;
    return next_section(e, p, &own) == b && own == last;
}

EngineStep *engine_section(cvn_engine *e, const RowPrompt *prompt, int n)
{
    bool last;
    int b = next_section(e, prompt, &last), begin = batch_begin(e, prompt[0].row), near = 0;
    for (int i = 0; i < n; i++) /* whose last section has the same length */
        near += prompt[i].row >= begin && prompt[i].row < begin + SECTION_ROWS &&
                section_is(e, &prompt[i], b, true);
    bool batch = last && b <= e->longest_batch && e->batch[0][b].rows && near >= SECTION_FEWEST;
    return batch ? &e->batch[0][b] : &e->prefill[0][b];
}

int engine_prefill(cvn_engine *e, RowPrompt *prompt, int n, cvn_err *err)
{
    bool last;
    int b = next_section(e, &prompt[0], &last);
    int64_t seq = e->options.bucket[b];
    SampleMode mode = SAMPLE_GREEDY;
    const EngineStep *like = engine_section(e, prompt, n);
    bool batch = like == &e->batch[0][b];
    int begin = batch ? batch_begin(e, prompt[0].row) : 0;
    clear_section(e, like);
    for (int64_t i = 0; i < like->rows && batch; i++) {
        e->section_row[i] = begin + i; /* those with nothing to do lie there as well, … */
        e->section.start[i] = e->rows.start[begin + i]; /* … and go on where they ended */
    }
    for (int i = 0; i < n; i++) {
        RowPrompt *p = &prompt[i];
        const cvn_request *r = p->request;
        int64_t at = batch ? p->row - begin : row_part(e, p->row);
        p->computed = 0;
        if (at < 0 || at >= like->rows || e->section.length[at] || !section_is(e, p, b, last))
            continue;
        int64_t filled = e->filled[p->row], rest = r->n_prompt - filled;
        SampleMode wanted = row_mode(e, p->row);
        mode = wanted > mode ? wanted : mode;
        p->computed = rest < seq ? rest : seq;
        stage_section(e, like, at, p->row, r->prompt + filled, p->computed);
    }
    bool fills = !last && b == e->options.n_buckets - 1; /* what shorter ones draw is not used */
    EngineStep *step = batch ? &e->batch[mode][b] : fills ? &e->fill : &e->prefill[mode][b];
    TRY(run_section(e, step, err));
    const int32_t *next = last ? engine_output(step, ROLE_NEXT) : NULL;
    for (int64_t i = 0; i < step->rows && last; i++)
        if (e->section.length[i]) {
            e->rows.tokens[e->section_row[i]] = next[i];
            note_drawn(e, step, (int)e->section_row[i], i);
        }
    return CVN_OK;
}

int engine_decode(cvn_engine *e, cvn_err *err)
{
    SampleMode mode = engine_mode(e);
    int rows = e->options.rows;
    for (int i = 0; i < rows; i++) {
        if (!e->rows.length[i])
            continue;
        add_seen(e, i, &e->rows.tokens[i], 1);
        if (e->filled[i] >= e->options.context)
            return err_set(err, CVN_EINVAL, "the context of slot %d is full: %" PRId64, i,
                           e->options.context);
    }
    double begin = clock_seconds();
    memcpy(e->before, e->rows.tokens, (size_t)rows * sizeof *e->before);
    adjust_start(e);
    int code = engine_run(e, &e->decode[mode], &e->rows, NULL, err);
    adjust_wait(e);
    for (int i = 0; i < rows; i++) {
        if (code || !e->rows.length[i]) /* the program advances tokens and start of all rows */
            e->rows.tokens[i] = e->before[i];
        int64_t new = code ? 0 : e->rows.length[i];
        engine_set_filled(e, i, e->filled[i] + new);
        e->stats.decoded_tokens += new;
    }
    if (code)
        return code;
    for (int i = 0; i < rows; i++)
        if (e->rows.length[i])
            note_drawn(e, &e->decode[mode], i, i);
    e->stats.decodes++;
    e->stats.decode_seconds += clock_seconds() - begin;
    return CVN_OK;
}

/* What is wanted of a text that is read whole: some of these. */
typedef struct Score {
    float *logprob;
    int32_t *argmax;
    cvn_logits_fn *on_logits;
    void *context;
    double *hidden; /* [dim] sums; then nothing else */
    int adapter;
} Score;

/* Of tokens [done, done + here). */
static void take_scores(const cvn_engine *e, const EngineStep *step, int64_t at,
                        const int32_t *token, int64_t n, int64_t done, int64_t here,
                        const Score *want)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    const float *got = engine_output(step, ROLE_LOGPROB);
    const int32_t *likeliest = engine_output(step, ROLE_ARGMAX);
    const float *logits = want->on_logits ? engine_output(step, ROLE_LOGITS) : NULL;
    for (int64_t i = 0; i < here && done + i + 1 < n; i++) {
        if (want->logprob)
            want->logprob[done + i + 1] = got[at + i];
        if (logits)
            want->on_logits(want->context, (int)(done + i + 1), logits + (size_t)(at + i) * vocab,
                            token[done + i + 1]);
    }
    if (want->argmax)
        memcpy(want->argmax + done, likeliest + at, (size_t)here * sizeof *likeliest);
}

/* Of a section; of the last token only that of the last section stays. */
static void take_hidden(const cvn_engine *e, const EngineStep *step, int part, const Score *want)
{
    int64_t dim = model_width(e->model->io.desc);
    const float *got = engine_output(step, ROLE_HIDDEN);
    bool last = strcmp(e->options.pooling, "last") == 0;
    for (int64_t i = 0; i < dim; i++)
        want->hidden[i] = (last ? 0 : want->hidden[i]) + (double)got[part * dim + i];
}

static int score_row(cvn_engine *e, int row, const int32_t *token, int64_t n, const Score *want,
                     cvn_err *err)
{
    int part = row_part(e, row);
    for (int64_t done = 0; done < n;) {
        int b = choose_bucket(e->score_bucket, e->n_score_buckets, n - done);
        EngineStep *step = want->hidden ? &e->embed[b] : &e->score[b];
        int64_t here = n - done < step->seq ? n - done : step->seq, at = part * step->seq;
        TRY(scheduler_go_on(e, err));
        clear_section(e, step);
        stage_section(e, step, part, row, token + done, here);
        for (int64_t i = 0; i < step->rows * step->seq; i++)
            e->section.targets[i] = -1;
        for (int64_t i = 0; i < step->seq && done + i + 1 < n; i++)
            e->section.targets[at + i] = token[done + i + 1];
        TRY(run_section(e, step, err));
        if (want->hidden)
            take_hidden(e, step, part, want);
        else
            take_scores(e, step, at, token, n, done, here, want);
        done += here;
    }
    return CVN_OK;
}

static int score(cvn_engine *e, const int32_t *token, int64_t n, const Score *want, cvn_err *err)
{
    cvn_err local = {0};
    err = err ? err : &local;
    if (want->hidden ? !e->options.pooling : !e->options.scoring)
        return err_set(err, CVN_EINVAL, "the engine cannot %s; create it with options.%s",
                       want->hidden ? "embed" : "score", want->hidden ? "pooling" : "scoring");
    if (n < 1)
        return err_set(err, CVN_EINVAL, "the text has no tokens");
    int row = prefix_free_row(e);
    TRY(check_tokens(e, token, n, err));
    TRY(check_adapter(e, want->adapter, err));
    if (row < 0)
        return err_set(err, CVN_EINVAL,
                       "all %d slots are busy; score when a request has finished or was cancelled",
                       e->options.rows);
    engine_reset_row(e, row);
    set_adapter(e, row, want->adapter);
    int code = score_row(e, row, token, n, want, err);
    engine_reset_row(e, row);
    return code;
}

int cvn_engine_score(cvn_engine *e, const int32_t *token, int64_t n, float *logprob,
                     int32_t *argmax, cvn_err *err)
{
    const Score want = {.logprob = logprob, .argmax = argmax};
    if (n > 0)
        logprob[0] = 0;
    return score(e, token, n, &want, err);
}

int cvn_engine_score_logits(cvn_engine *e, int adapter, const int32_t *token, int64_t n,
                            cvn_logits_fn *on_logits, void *context, cvn_err *err)
{
    const Score want = {.on_logits = on_logits, .context = context, .adapter = adapter};
    if (!e->options.adjust)
        return err_set(
            err, CVN_EINVAL,
            "the engine does not return logits; create it with options.scoring and options.adjust");
    return score(e, token, n, &want, err);
}

static void put_embedding(const double *sum, int64_t dim, float *out)
{
    double square = 0;
    for (int64_t i = 0; i < dim; i++)
        square += sum[i] * sum[i];
    for (int64_t i = 0; i < dim; i++)
        out[i] = (float)(sum[i] / (square > 0 ? sqrt(square) : 1));
}

int cvn_engine_embed(cvn_engine *e, int adapter, const int32_t *token, int64_t n, float *out,
                     cvn_err *err)
{
    size_t dim = (size_t)model_width(e->model->io.desc);
    SCOPED(scoped_free) double *sum = calloc(dim, sizeof *sum);
    if (!sum)
        return err_set(err, CVN_EMEM, "no memory for an embedding of %zu numbers", dim);
    const Score want = {.hidden = sum, .adapter = adapter};
    TRY(score(e, token, n, &want, err));
    put_embedding(sum, (int64_t)dim, out);
    return CVN_OK;
}

/* Of n texts, those in front that are read by the same bucket, in one section, as a batch; *row: the first of rows side by side
   that no request has. */
static int embed_together(const cvn_engine *e, const TokenIds *text, int n, int *row)
{
    int b = choose_bucket(e->score_bucket, e->n_score_buckets, (int64_t)text[0].n), count = 0;
    const EngineStep *step = &e->embed_batch[b];
    while (count < n && count < step->rows && (int64_t)text[count].n <= step->seq &&
           choose_bucket(e->score_bucket, e->n_score_buckets, (int64_t)text[count].n) == b)
        count++;
    int free = 0;
    for (int i = 0; i < e->options.rows && free < SECTION_ROWS; i++) {
        free = e->job[i] ? 0 : free + 1;
        *row = i + 1 - free;
    }
    return count >= SECTION_FEWEST && free == SECTION_ROWS ? count : 1;
}

int engine_embed(cvn_engine *e, int adapter, const TokenIds *text, int n, float *const *out,
                 cvn_err *err)
{
    int row, count = embed_together(e, text, n, &row);
    if (count == 1) {
        TRY(cvn_engine_embed(e, adapter, text[0].id, (int64_t)text[0].n, out[0], err));
        return 1;
    }
    int b = choose_bucket(e->score_bucket, e->n_score_buckets, (int64_t)text[0].n);
    EngineStep *step = &e->embed_batch[b];
    TRY(scheduler_go_on(e, err));
    clear_section(e, step);
    for (int i = 0; i < SECTION_ROWS; i++) {
        engine_reset_row(e, row + i);
        set_adapter(e, row + i, adapter);
        e->section_row[i] = row + i;
        if (i < count)
            TRY(check_tokens(e, text[i].id, (int64_t)text[i].n, err));
        if (i < count)
            stage_section(e, step, i, row + i, text[i].id, (int64_t)text[i].n);
    }
    int code = run_section(e, step, err);
    int64_t dim = model_width(e->model->io.desc);
    SCOPED(scoped_free) double *sum = calloc((size_t)dim, sizeof *sum);
    if (!sum && code == CVN_OK)
        code = err_set(err, CVN_EMEM, "no memory for an embedding of %" PRId64 " numbers", dim);
    const Score want = {.hidden = sum};
    for (int i = 0; i < count && code == CVN_OK; i++) {
        memset(sum, 0, (size_t)dim * sizeof *sum);
        take_hidden(e, step, i, &want);
        put_embedding(sum, dim, out[i]);
    }
    for (int i = 0; i < SECTION_ROWS; i++)
        engine_reset_row(e, row + i);
    return code ? code : count;
}
