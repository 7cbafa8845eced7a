#include "server/exchange.h"

#include "base/threads.h"
#include "server/internal.h"

#include <math.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

static void choice_init(Exchange *x, int i)
{
    Server *s = x->server;
    Choice *c = &x->choice[i];
    const Ask *a = &x->ask;
    *c = (Choice){.x = x, .index = i, .prompt = (int)(i / a->n)};
    bool chat = a->n_messages > 0;
    unsigned flags = chat ? 0 : TOKENIZER_CONTINUE;
    if (!a->skip_special_tokens)
        flags |= TOKENIZER_SPECIAL;
    if (s->tokenizer)
        decoder_init(&c->decoder, s->tokenizer, flags);
    stops_init(&c->stops, a->stop, a->n_stops);
    thinking_init(&c->thinking,
                  chat && s->chat.thinks && thinking_begun(s->tokenizer, &a->prompt[c->prompt]));
}

Exchange *exchange_new(Server *s, const Dialect *dialect, Ask *ask)
{
    Exchange *x = calloc(1, sizeof *x);
    size_t n = (size_t)(ask->n * ask->n_prompts);
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
                    .fd = -1,
                    .begin = clock_seconds(),
                    .created = (int64_t)time(NULL)};
    *ask = (Ask){0};
    for (int i = 0; i < (int)n; i++)
        choice_init(x, i);
    unsigned char random[12];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memcpy(random, &x->begin, sizeof x->begin);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(x->id + 2 * i, 3, "%02x", random[i]);
    return x;
}

void exchange_free(Exchange *x)
{
    for (int i = 0; i < x->n_choices; i++) {
        Choice *c = &x->choice[i];
        stops_free(&c->stops);
        strbuf_free(&c->piece);
        strbuf_free(&c->thought);
        strbuf_free(&c->text);
        token_ids_free(&c->tokens);
        free(c->likely);
    }
    free(x->choice);
    for (int i = 0; x->seen && i < x->ask.n_prompts; i++)
        free(x->seen[i]);
    free(x->seen);
    strbuf_free(&x->out);
    ask_free(&x->ask);
    free(x);
}

static bool ends_answer(const Choice *c, int32_t token)
{
    const Exchange *x = c->x;
    const ChatKind *chat = &x->server->chat;
    for (size_t i = 0; i < x->ask.stop_ids.n; i++)
        if (x->ask.stop_ids.id[i] == token)
            return true;
    for (size_t i = 0; x->ask.n_messages && !x->ask.ignore_eos && i < chat->n_stops; i++)
        if (chat->stops[i] == token)
            return true;
    return false;
}

/* What the decoder has let go of, or at the end all that is left. */
static bool add_piece(Choice *c)
{
    const char *piece = c->piece.length ? c->piece.text : "";
    StrBuf answer = {0};
    bool go_on = true;
    if (c->x->ask.n_messages && c->x->server->chat.thinks) {
        thinking_push(&c->thinking, piece, c->piece.length, &c->thought, &answer);
        if (c->ended)
            thinking_flush(&c->thinking, &c->thought, &answer);
        go_on = stops_push(&c->stops, answer.length ? answer.text : "", answer.length, &c->text);
    } else {
        go_on = stops_push(&c->stops, piece, c->piece.length, &c->text);
    }
    strbuf_free(&answer);
    strbuf_clear(&c->piece);
    return go_on;
}

bool choice_push(Choice *c, int32_t token)
{
    token_ids_add(&c->tokens, token);
    if (ends_answer(c, token)) {
        c->met_id = true;
        return false;
    }
    if (c->x->server->tokenizer)
        decoder_push(&c->decoder, token, &c->piece, NULL);
    return add_piece(c);
}

/* The n likeliest, in order; of equals the lower id. */
static void find_top(Likely *out, const float *logits, int64_t vocab, int n, double sum)
{
    for (int64_t v = 0; v < vocab; v++) {
        int at = out->n_top;
        if (at == n && (n == 0 || !(logits[v] > out->top[n - 1].logprob)))
            continue;
        at -= at == n;
        for (; at > 0 && logits[v] > out->top[at - 1].logprob; at--)
            out->top[at] = out->top[at - 1];
        out->top[at].token = (int32_t)v;
        out->top[at].logprob = logits[v];
        out->n_top += out->n_top < n;
    }
    for (int i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)(out->top[i].logprob - sum);
}

Likely likely_of(const float *logits, int64_t vocab, int32_t token, int n_top)
{
    Likely l = {.rank = 1};
    float most = logits[0];
    double sum = 0;
    for (int64_t v = 1; v < vocab; v++)
        most = logits[v] > most ? logits[v] : most;
    for (int64_t v = 0; v < vocab; v++) {
        sum += expf(logits[v] - most);
        l.rank += logits[v] > logits[token];
    }
    sum = most + log(sum);
    l.logprob = (float)(logits[token] - sum);
    find_top(&l, logits, vocab, n_top, sum);
    return l;
}

void choice_see(Choice *c, const float *logits, int64_t vocab, int32_t token)
{
    if (c->n_likely == c->likely_capacity) {
        size_t capacity = c->likely_capacity ? 2 * c->likely_capacity : 16;
        Likely *more = realloc(c->likely, capacity * sizeof *more);
        if (!more)
            return; /* the answer then has fewer than tokens */
        c->likely = more;
        c->likely_capacity = capacity;
    }
    c->likely[c->n_likely++] = likely_of(logits, vocab, token, (int)c->x->ask.top_logprobs);
}

void choice_end(Choice *c, const cvn_result *result)
{
    c->result = *result;
    c->ended = true;
    if (!c->stops.stopped) {
        if (c->x->server->tokenizer)
            decoder_flush(&c->decoder, &c->piece);
        if (add_piece(c))
            stops_flush(&c->stops, &c->text);
    }
    c->met = c->stops.met;
    c->x->n_ended++;
}

Usage exchange_usage(const Exchange *x)
{
    Usage u = {0};
    for (int i = 0; i < x->ask.n_prompts; i++)
        u.prompt += (int64_t)x->ask.prompt[i].n;
    for (int i = 0; i < x->n_choices; i++) {
        u.completion += (int64_t)x->choice[i].tokens.n;
        if (i % x->ask.n == 0)
            u.cached += x->choice[i].result.reused;
    }
    return u;
}
