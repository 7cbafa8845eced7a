/* The phases of tool calls (call_writer.h). */
#include "serve/call_writer.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int call_writer_init(CallWriter *w, const ToolSet *set, const CallSyntax *syntax,
                     const Tokenizer *tokenizer, int most, cvn_err *err)
{
    *w = (CallWriter){.set = set,
                      .syntax = syntax,
                      .tokenizer = tokenizer,
                      .call = calloc((size_t)most, sizeof *w->call),
                      .most = most};
    return w->call ? CVN_OK : err_set(err, CVN_EMEM, "no memory for tool calls");
}

void call_writer_free(CallWriter *w)
{
    for (int i = 0; i < w->n; i++)
        strbuf_free(&w->call[i].arguments);
    strbuf_free(&w->picked);
    free(w->call);
}

void call_writer_give(const CallWriter *w, const char *text, size_t n, TokenIds *tokens)
{
    tokenizer_encode(w->tokenizer, text, n, TOKENIZER_SPECIAL, tokens, NULL);
}

static void begin_phase(CallWriter *w, CallPhase phase)
{
    w->phase = phase;
    strbuf_clear(&w->picked);
    decoder_init(&w->decoder, w->tokenizer, TOKENIZER_CONTINUE);
}

/* Behind its name, or what stands for it where there is one only. */
static void begin_arguments(CallWriter *w, const Tool *tool, TokenIds *tokens)
{
    Call *call = &w->call[w->n++];
    unsigned char random[8];
    *call = (Call){.tool = tool};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, w->n, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        call->id[i] = "0123456789abcdefghijklmnopqrstuv"[random[i] % 32];
    call->id[sizeof random] = (char)('a' + w->n % 26);
    call_writer_give(w, w->syntax->between, strlen(w->syntax->between), tokens);
    begin_phase(w, CALL_ARGUMENTS);
}

void call_writer_begin(CallWriter *w, TokenIds *tokens)
{
    begin_phase(w, CALL_NAME);
    if (w->set->only >= 0) {
        const Tool *tool = &w->set->tool[w->set->only];
        call_writer_give(w, tool->name, strlen(tool->name), tokens);
        begin_arguments(w, tool, tokens);
    }
}

void call_writer_push(CallWriter *w, int32_t token)
{
    decoder_push(&w->decoder, token,
                 w->phase == CALL_ARGUMENTS ? &w->call[w->n - 1].arguments : &w->picked, NULL);
}

/* Whether the last call equals one before; or, with `may`, could come to. */
static bool is_repeated(const CallWriter *w, bool may)
{
    const Call *last = &w->call[w->n - 1];
    size_t n = last->arguments.length;
    for (const Call *call = w->call; call < last; call++)
        if (call->tool == last->tool &&
            (may ? call->arguments.length >= n : call->arguments.length == n) &&
            (n == 0 || memcmp(call->arguments.text, last->arguments.text, n) == 0))
            return true;
    return false;
}

int call_writer_count(const CallWriter *w, bool ended)
{
    return w->n - (w->n && is_repeated(w, !ended && w->phase == CALL_ARGUMENTS));
}

static bool is_picked(const CallWriter *w, const char *text)
{
    return strcmp(w->picked.length ? w->picked.text : "", text) == 0;
}

bool call_writer_next(CallWriter *w, TokenIds *tokens)
{
    const ToolSet *set = w->set;
    tokens->n -= tokens->n > 0;
    if (w->phase == CALL_NAME) {
        int i = 0;
        while (i < set->n - 1 && !is_picked(w, set->tool[i].name))
            i++;
        begin_arguments(w, &set->tool[i], tokens);
        return true;
    }
    if (w->phase == CALL_ARGUMENTS && set->again && w->n < w->most && !is_repeated(w, false)) {
        call_writer_give(w, w->syntax->after, set->same_end, tokens);
        begin_phase(w, CALL_AGAIN);
        return true;
    }
    if (w->phase != CALL_AGAIN || !is_picked(w, w->syntax->again + set->same_end))
        return false;
    call_writer_begin(w, tokens);
    return true;
}

cvn_constraint *call_writer_constraint(const CallWriter *w)
{
    return w->phase == CALL_NAME        ? w->set->names
           : w->phase == CALL_AGAIN     ? w->set->again
           : w->phase == CALL_ARGUMENTS ? w->call[w->n - 1].tool->arguments
                                        : NULL;
}
