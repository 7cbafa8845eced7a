#include "server/exchange.h"

#include "base/threads.h"
#include "server/internal.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

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
    return &c->x->ask.served->chat.calls;
}

static void give_text(Choice *c, const char *text)
{
    call_writer_give(&c->calls, text, strlen(text), &c->tokens);
}

int choice_calls(const Choice *c)
{
    return call_writer_count(&c->calls, c->end.ended);
}

static void choice_init(Exchange *x, int i)
{
    const Served *m = x->ask.served;
    Choice *c = &x->choice[i];
    const Ask *a = &x->ask;
    *c = (Choice){.x = x, .index = i, .prompt = (int)(i / a->sampling.n), .calls = c->calls};
    bool chat = a->input.n_messages > 0;
    bool thinks =
        chat && m->chat.thinks && thinking_begun(m->tokenizer, &a->input.prompt[c->prompt]);
    unsigned flags = chat ? 0 : TOKENIZER_CONTINUE;
    if (!a->output.skip_special_tokens)
        flags |= TOKENIZER_SPECIAL;
    if (m->tokenizer)
        decoder_init(&c->decoder, m->tokenizer, flags);
    /* the mark of a call stands behind the stop texts */
    stops_init(&c->stops, a->stops.text, a->stops.n + (may_call(c) && syntax_of(c)->mark));
    thinking_init(&c->thinking, thinks);
    c->phase.head_done = !may_call(c) || syntax_of(c)->mark;
    c->phase.waits = thinks && (a->constraint || must_call(c));
    if (must_call(c) && !c->phase.waits) {
        give_text(c, syntax_of(c)->before);
        call_writer_begin(&c->calls, &c->tokens);
    }
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
    const char **stops = realloc(x->ask.stops.text, (x->ask.stops.n + 1) * sizeof *stops);
    bool failed = !stops;
    const Served *m = x->ask.served;
    for (size_t i = 0; i < n && x->ask.calls.set.names && !failed; i++)
        failed = call_writer_init(&choice[i].calls, &x->ask.calls.set, &m->chat.calls, m->tokenizer,
                                  (int)x->ask.calls.max_tool_calls, NULL);
    if (failed) {
        exchange_free(x);
        return NULL;
    }
    stops[x->ask.stops.n] = m->chat.calls.mark;
    x->ask.stops.text = stops;
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
        strbuf_free(&c->thought);
        strbuf_free(&c->text);
        token_ids_free(&c->tokens);
        token_ids_free(&c->phase.joined);
        strbuf_free(&c->phase.head);
        call_writer_free(&c->calls);
        free(c->likely.token);
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
    const ChatKind *chat = &x->ask.served->chat;
    for (size_t i = 0; i < x->ask.stops.ids.n; i++)
        if (x->ask.stops.ids.id[i] == token)
            return true;
    for (size_t i = 0; x->ask.input.n_messages && !x->ask.sampling.ignore_eos && i < chat->n_stops;
         i++)
        if (chat->stops[i] == token)
            return true;
    return false;
}

/* Whether text is, but for white space, what a call begins with (1), may become that (0), or is not (-1). */
static int like_call(const char *text, size_t n, const char *before)
{
    size_t i = 0;
    for (;; before++) {
        before += strspn(before, " \n\t\r");
        while (i < n && strchr(" \n\t\r", text[i]))
            i++;
        if (!*before)
            return 1;
        if (i == n)
            return 0;
        if (text[i++] != *before)
            return -1;
    }
}

/* Some more of the answer itself; false: a stop text or a call has come, and nothing follows. */
static bool add_answer(Choice *c, const StrBuf *answer)
{
    const char *text = answer->length ? answer->text : "";
    size_t n = answer->length;
    if (!c->phase.head_done) {
        strbuf_add(&c->phase.head, text, n);
        int like = like_call(c->phase.head.length ? c->phase.head.text : "", c->phase.head.length,
                             syntax_of(c)->before);
        c->phase.next = like > 0;
        c->phase.head_done = like < 0 || c->end.ended;
        if (!c->phase.head_done)
            return !c->phase.next;
        text = c->phase.head.length ? c->phase.head.text : "";
        n = c->phase.head.length;
    }
    bool go_on = stops_push(&c->stops, text, n, &c->text);
    if (!go_on && may_call(c) && c->stops.met == syntax_of(c)->mark)
        c->phase.next = true;
    return go_on;
}

/* What the decoder has let go of, or at the end all that is left. */
static bool add_piece(Choice *c)
{
    StrBuf answer = {0};
    bool go_on = true;
    if (c->x->ask.input.n_messages && c->x->ask.served->chat.thinks) {
        thinking_push(&c->thinking, c->piece.length ? c->piece.text : "", c->piece.length,
                      &c->thought, &answer);
        if (c->end.ended)
            thinking_flush(&c->thinking, &c->thought, &answer);
        go_on = add_answer(c, &answer);
        strbuf_free(&answer);
    } else {
        go_on = add_answer(c, &c->piece);
    }
    strbuf_clear(&c->piece);
    c->phase.next = c->phase.next || (c->phase.waits && !c->thinking.inside);
    return go_on && !c->phase.next;
}

bool choice_push(Choice *c, int32_t token)
{
    bool text = c->calls.phase == CALL_NOT;
    c->n_drawn++;
    token_ids_add(&c->tokens, token);
    if (ends_answer(c, token)) {
        c->end.met_id = true;
        return false;
    }
    if (text && may_call(c) && !c->thinking.inside && token == syntax_of(c)->mark_token) {
        c->phase.next = true;
        return false;
    }
    if (!text) {
        call_writer_push(&c->calls, token);
        return true;
    }
    if (c->x->ask.served->tokenizer)
        decoder_push(&c->decoder, token, &c->piece, NULL);
    return add_piece(c);
}

/* ---- phases ---- */

cvn_request choice_request(Choice *c, uint64_t seed)
{
    const Ask *a = &c->x->ask;
    const ChatKind *chat = &c->x->ask.served->chat;
    cvn_request r = ask_request(a, c->index, seed);
    if (a->input.n_messages && !a->sampling.ignore_eos) {
        r.end = chat->stops;
        r.n_end = (int64_t)chat->n_stops;
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

/* The last bytes that were generated, from where `mark` or the answer's beginning stands, are taken back, and what a call
   begins with is given in their place. */
static void replace_mark(Choice *c)
{
    const Tokenizer *tokenizer = c->x->ask.served->tokenizer;
    const CallSyntax *y = syntax_of(c);
    StrBuf all = {0}, kept = {0}, text = {0};
    tokenizer_decode(tokenizer, c->tokens.id, c->tokens.n, TOKENIZER_CONTINUE, &all, NULL);
    size_t from =
        all.length - (c->phase.head.length < all.length ? c->phase.head.length : all.length);
    for (size_t i = 0; y->mark && i + strlen(y->mark) <= all.length; i++)
        if (memcmp(all.text + i, y->mark, strlen(y->mark)) == 0)
            from = i;
    Decoder decoder;
    size_t n = 0;
    for (decoder_init(&decoder, tokenizer, TOKENIZER_CONTINUE); n < c->tokens.n; n++) {
        size_t before = kept.length;
        decoder_push(&decoder, c->tokens.id[n], &kept, NULL);
        if (kept.length > from) {
            kept.length = before;
            break;
        }
    }
    c->tokens.n = n;
    /* a token that held other text, too, is written anew */
    strbuf_add(&text, "", 0);
    if (all.length && from > kept.length)
        strbuf_add(&text, all.text + kept.length, from - kept.length);
    strbuf_puts(&text, y->before);
    call_writer_give(&c->calls, text.text, text.length, &c->tokens);
    strbuf_free(&all);
    strbuf_free(&kept);
    strbuf_free(&text);
}

static bool next_after_text(Choice *c)
{
    const Ask *a = &c->x->ask;
    if (!c->phase.next)
        return false;
    if (c->phase.waits) {
        c->phase.waits = c->phase.next = false;
        if (a->constraint)
            return true;
        give_text(c, syntax_of(c)->before);
    } else if (c->tokens.n && c->tokens.id[c->tokens.n - 1] == syntax_of(c)->mark_token) {
        c->tokens.n--;
        give_text(c, syntax_of(c)->before);
    } else {
        replace_mark(c);
    }
    c->stops.met = NULL;
    call_writer_begin(&c->calls, &c->tokens);
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
