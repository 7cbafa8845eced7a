#include "server/exchange.h"

#include "base/threads.h"
#include "server/internal.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* Of texts that are no answers. */
static const AnswerKind no_answers;

/* Tools may be called. */
static bool may_call(const Choice *c)
{
    return c->x->ask.calls.set.names != NULL;
}

static bool must_call(const Choice *c)
{
    return may_call(c) && c->x->ask.calls.choice >= TOOLS_REQUIRED;
}

static const CallSyntax *syntax_of(const Choice *c)
{
    return &c->x->ask.served->chat.answers.calls;
}

int choice_calls(const Choice *c)
{
    return call_writer_count(&c->calls, c->end.ended);
}

/* A call follows what was generated, or takes the place of the part that was begun last. */
static void begin_calls(Choice *c, bool cuts)
{
    StrBuf text = {0};
    if (cuts)
        answer_cut(&c->answer, c->phase.decoder, &c->tokens, &text);
    strbuf_puts(&text, syntax_of(c)->before);
    call_writer_give(&c->calls, text.text, text.length, &c->tokens);
    call_writer_begin(&c->calls, &c->tokens);
    strbuf_free(&text);
}

static void choice_init(Exchange *x, int i)
{
    const Served *m = x->ask.served;
    Choice *c = &x->choice[i];
    const Ask *a = &x->ask;
    *c = (Choice){.x = x, .index = i, .prompt = (int)(i / a->sampling.n), .calls = c->calls};
    bool chat = a->input.n_messages > 0;
    unsigned flags = chat ? 0 : TOKENIZER_CONTINUE;
    if (!a->output.skip_special_tokens)
        flags |= TOKENIZER_SPECIAL;
    if (m->tokenizer)
        decoder_init(&c->decoder, m->tokenizer, flags);
    c->phase.decoder = c->decoder;
    stops_init(&c->stops, a->stops.text, a->stops.n);
    answer_init(&c->answer, chat ? &m->chat.answers : &no_answers, may_call(c), m->tokenizer,
                &a->input.prompt[c->prompt]);
    c->phase.waits = answer_waits(&c->answer) && (a->constraint || must_call(c));
    if (must_call(c) && !c->phase.waits)
        begin_calls(c, false);
}

Exchange *exchange_new(Server *s, const Dialect *dialect, Ask *ask)
{
    Exchange *x = calloc(1, sizeof *x);
    size_t n =
        dialect == &dialect_embeddings ? 1 : (size_t)(ask->sampling.n * ask->input.n_prompts);
    Choice *choice = calloc(n, sizeof *choice);
    if (!x || !choice) {
        free(x);
        free(choice);
        ask_free(ask);
        return NULL;
    }
    *x = (Exchange){.server = s,
                    .dialect = dialect,
                    .ask = *ask,
                    .choice = choice,
                    .n_choices = (int)n,
                    .refs = 1,
                    .link = {.fd = -1},
                    .time = {.begin = clock_seconds(), .created = (int64_t)time(NULL)}};
    *ask = (Ask){0};
    bool failed = false;
    const Served *m = x->ask.served;
    for (size_t i = 0; i < n && x->ask.calls.set.names && !failed; i++)
        failed = call_writer_init(&choice[i].calls, &x->ask.calls.set, &m->chat.answers.calls,
                                  m->tokenizer, (int)x->ask.calls.max_tool_calls, NULL);
    if (failed) {
        exchange_free(x);
        return NULL;
    }
    for (int i = 0; i < (int)n; i++)
        choice_init(x, i);
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memcpy(random, &x->time.begin, sizeof x->time.begin);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(x->id + 2 * i, 3, "%02x", random[i]);
    return x;
}

void exchange_free(Exchange *x)
{
    for (int i = 0; x->prompts.embedding && i < x->ask.input.n_prompts; i++)
        free(x->prompts.embedding[i]);
    free(x->prompts.embedding);
    for (int i = 0; i < x->n_choices; i++) {
        Choice *c = &x->choice[i];
        stops_free(&c->stops);
        strbuf_free(&c->piece);
        answer_free(&c->answer);
        answer_texts_free(&c->texts);
        strbuf_free(&c->text);
        token_ids_free(&c->tokens);
        token_ids_free(&c->phase.joined);
        call_writer_free(&c->calls);
        free(c->likely.token);
        receipt_free(&c->receipt);
    }
    free(x->choice);
    for (int i = 0; x->prompts.seen && i < x->ask.input.n_prompts; i++)
        free(x->prompts.seen[i]);
    free(x->prompts.seen);
    strbuf_free(&x->events.out);
    json_decref(x->order);
    ask_free(&x->ask);
    free(x);
}

static bool ends_answer(const Choice *c, int32_t token)
{
    const Exchange *x = c->x;
    for (size_t i = 0; i < x->ask.stops.ids.n; i++)
        if (x->ask.stops.ids.id[i] == token)
            return true;
    return x->ask.input.n_messages && !x->ask.sampling.ignore_eos &&
           answer_ends(&x->ask.served->chat.answers, token);
}

/* What the decoder has let go of, or at the end all that is left. False: a stop text or a call has come, and nothing follows. */
static bool add_piece(Choice *c)
{
    StrBuf *said = &c->texts.said;
    answer_push(&c->answer, c->piece.text, c->piece.length, &c->texts);
    if (c->end.ended)
        answer_flush(&c->answer, &c->texts);
    bool go_on = stops_push(&c->stops, said->length ? said->text : "", said->length, &c->text);
    strbuf_clear(said);
    strbuf_clear(&c->piece);
    c->phase.next = c->answer.part == ANSWER_CALL || (c->phase.waits && !answer_waits(&c->answer));
    return go_on && !c->phase.next;
}

bool choice_push(Choice *c, int32_t token)
{
    c->n_drawn++;
    token_ids_add(&c->tokens, token);
    if (ends_answer(c, token)) {
        c->end.met_id = true;
        return false;
    }
    if (c->calls.phase != CALL_NOT) {
        call_writer_push(&c->calls, token);
        return true;
    }
    if (c->x->ask.served->tokenizer)
        answer_decode(c->answer.kind, &c->decoder, token, &c->piece);
    return add_piece(c);
}

/* ---- phases ---- */

cvn_request choice_request(Choice *c, uint64_t seed)
{
    const Ask *a = &c->x->ask;
    const ChatKind *chat = &c->x->ask.served->chat;
    cvn_request r = ask_request(a, c->index, seed);
    if (a->input.n_messages && !a->sampling.ignore_eos) {
        r.end = chat->answers.stops;
        r.n_end = (int64_t)chat->answers.n_stops;
    }
    bool text = c->calls.phase == CALL_NOT;
    r.constraint = !text            ? call_writer_constraint(&c->calls)
                   : c->phase.waits ? NULL
                                    : a->constraint;
    if (!text)
        r.min_tokens = 0;
    if (!c->tokens.n)
        return r;
    const TokenIds *prompt = &a->input.prompt[c->prompt];
    c->phase.joined.n = 0;
    for (size_t i = 0; i < prompt->n + c->tokens.n; i++)
        token_ids_add(&c->phase.joined,
                      i < prompt->n ? prompt->id[i] : c->tokens.id[i - prompt->n]);
    r.prompt = c->phase.joined.id;
    r.n_prompt = (int64_t)c->phase.joined.n;
    r.max_tokens -= r.max_tokens > (int64_t)c->tokens.n ? (int64_t)c->tokens.n : r.max_tokens;
    return r;
}

static bool next_after_text(Choice *c)
{
    const AnswerForm *form = c->answer.kind->form;
    if (!c->phase.next)
        return false;
    bool waits = c->phase.waits;
    c->phase.waits = c->phase.next = false;
    if (!waits || !c->x->ask.constraint)
        begin_calls(c, c->answer.part == ANSWER_CALL || form->header);
    return true;
}

bool choice_next(Choice *c, const cvn_result *r)
{
    if (!(c->phase.begun > 0)) {
        c->phase.begun = r->first_seconds;
        c->phase.reused = r->reused;
    }
    c->phase.seconds += r->total_seconds;
    bool ended = r->finish == CVN_FINISH_EOS || r->finish == CVN_FINISH_STOPPED;
    bool more = ended && (c->calls.phase == CALL_NOT ? next_after_text(c)
                                                     : call_writer_next(&c->calls, &c->tokens));
    if (more)
        c->phase.next = c->end.met_id = false;
    return more;
}

Likely likely_of(const float *logits, int64_t vocab, int32_t token, int n_top)
{
    Likely l = {0};
    l.n_top = cvn_logprobs(logits, vocab, token, &l.logprob, &l.rank, l.top, n_top);
    return l;
}

void choice_see(Choice *c, const float *logits, int64_t vocab, int32_t token)
{
    if (c->x->ask.output.receipt)
        receipt_add(&c->receipt, logits, vocab, token);
    if (!c->x->ask.output.logprobs)
        return;
    if (c->likely.n == c->likely.capacity) {
        size_t capacity = c->likely.capacity ? 2 * c->likely.capacity : 16;
        Likely *more = realloc(c->likely.token, capacity * sizeof *more);
        if (!more)
            return; /* the answer then has fewer than tokens */
        c->likely.token = more;
        c->likely.capacity = capacity;
    }
    c->likely.token[c->likely.n++] =
        likely_of(logits, vocab, token, (int)c->x->ask.output.top_logprobs);
}

void choice_end(Choice *c, const cvn_result *result)
{
    c->end.result = *result;
    if (c->phase.begun > 0) {
        c->end.result.first_seconds = c->phase.begun;
        c->end.result.total_seconds = c->phase.seconds;
        c->end.result.reused = c->phase.reused;
    }
    int64_t n_prompt =
        (int64_t)c->x->ask.input.prompt[c->prompt].n; /* a call's beginning is no part of it */
    c->end.result.reused = c->end.result.reused < n_prompt ? c->end.result.reused : n_prompt;
    c->end.result.n_tokens = (int64_t)c->tokens.n;
    c->end.ended = true;
    if (c->calls.phase == CALL_NOT && !c->stops.stopped) {
        if (c->x->ask.served->tokenizer)
            decoder_flush(&c->decoder, &c->piece);
        if (add_piece(c))
            stops_flush(&c->stops, &c->text);
    }
    c->end.met = c->stops.met;
    c->x->n_ended++;
}

Usage exchange_usage(const Exchange *x)
{
    Usage u = {0};
    for (int i = 0; i < x->ask.input.n_prompts; i++)
        u.prompt += (int64_t)x->ask.input.prompt[i].n;
    for (int i = 0; i < x->n_choices; i++) {
        u.completion += (int64_t)x->choice[i].tokens.n;
        if (i % x->ask.sampling.n == 0)
            u.cached += x->choice[i].end.result.reused;
    }
    return u;
}

void exchange_put_texts(const Exchange *x, StrBuf *out)
{
    const Tokenizer *tokenizer = x->ask.served->tokenizer;
    json_t *prompts = json_array(), *texts = json_array();
    for (int i = 0; i < x->ask.input.n_prompts && tokenizer; i++) {
        StrBuf text = {0};
        tokenizer_decode(tokenizer, x->ask.input.prompt[i].id, x->ask.input.prompt[i].n,
                         TOKENIZER_SPECIAL, &text, NULL);
        json_array_append_new(prompts, json_text_of(text.text, text.length));
        strbuf_free(&text);
    }
    for (int i = 0; i < x->n_choices; i++)
        json_array_append_new(texts,
                              json_text_of(x->choice[i].text.text, x->choice[i].text.length));
    json_t *both = json_pack("{s:o,s:o}", "prompts", prompts, "texts", texts);
    char *json = json_dumps(both, JSON_COMPACT);
    if (json)
        strbuf_printf(out, ",%.*s", (int)strlen(json) - 2, json + 1); /* its members */
    free(json);
    json_decref(both);
}
