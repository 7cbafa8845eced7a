/* Streams of all dialects: texts and thoughts come in pieces, are sent at any time, and end or fail. Each event is JSON on a line
 * of its own, and what the events add up to is what the whole answer says. */
#include "server/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXTS = 4 };

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* A character of UTF-8 for a byte; NUL, quotes and ends of lines are among them. */
static void add_character(StrBuf *out, uint8_t byte)
{
    if (byte < 128)
        strbuf_putc(out, (char)byte);
    else if (byte < 192)
        strbuf_printf(out, "%c%c", 0xc3, byte);
    else
        strbuf_printf(out, "\xf0\x9f\x98%c", byte - 64);
}

static void add_text(StrBuf *out, const json_t *text)
{
    if (text)
        strbuf_add(out, json_string_value(text), json_string_length(text));
}

static void take_event(const json_t *event, StrBuf *text)
{
    const json_t *choices = json_object_get(event, "choices"), *delta;
    const char *type = json_string_value(json_object_get(event, "type"));
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i);
        size_t at = (size_t)json_integer_value(json_object_get(c, "index"));
        check(at < TEXTS);
        delta = json_object_get(c, "delta");
        add_text(&text[at], json_object_get(delta ? delta : c, delta ? "content" : "text"));
    }
    if (!type)
        return;
    delta = json_object_get(event, "delta");
    if (strcmp(type, "response.output_text.delta") == 0)
        add_text(text, delta);
    if (strcmp(type, "content_block_delta") == 0)
        add_text(text, json_object_get(delta, "text"));
}

/* What a connection would send now. */
static void send_events(Exchange *x, StrBuf *text)
{
    strbuf_clear(&x->events.out);
    x->dialect->stream(x);
    check(!x->events.out.failed);
    const char *at = x->events.out.text, *end = at ? at + x->events.out.length : at;
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        check(stop != NULL);
        if (strncmp(at, "event: ", 7) == 0)
            at = (const char *)memchr(at, '\n', (size_t)(stop - at)) + 1;
        check(strncmp(at, "data: ", 6) == 0 && !memchr(at, '\n', (size_t)(stop - at)));
        if (strncmp(at, "data: [DONE]\n", 13) != 0) {
            json_t *event = json_loadb(at + 6, (size_t)(stop - at - 6), JSON_ALLOW_NUL, NULL);
            check(json_is_object(event));
            take_event(event, text);
            json_decref(event);
        }
        at = stop + 2;
    }
}

/* The texts of a whole answer. */
static void take_whole(const json_t *answer, StrBuf *text)
{
    const json_t *choices = json_object_get(answer, "choices"), *parts;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i), *message = json_object_get(c, "message");
        add_text(&text[i], json_object_get(message ? message : c, message ? "content" : "text"));
    }
    parts = json_object_get(answer, "content");
    for (size_t i = 0; i < json_array_size(parts); i++)
        add_text(text, json_object_get(json_array_get(parts, i), "text"));
    parts = json_object_get(answer, "output");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *item = json_array_get(parts, i), *content = json_object_get(item, "content");
        const char *type = json_string_value(json_object_get(item, "type"));
        for (size_t k = 0; type && strcmp(type, "message") == 0 && k < json_array_size(content);
             k++)
            add_text(text, json_object_get(json_array_get(content, k), "text"));
    }
}

static Exchange *make_exchange(Server *s, uint8_t kind, uint8_t flags)
{
    static const Dialect *const all[] = {&dialect_chat, &dialect_completions, &dialect_responses,
                                         &dialect_messages};
    const Dialect *dialect = all[kind % 4];
    Ask ask;
    ask_init(&ask);
    ask.served = s->served;
    ask.adapter = -1;
    ask.sampling.n = kind % 4 < 2 ? 1 + flags % TEXTS : 1;
    ask.input.prompt = calloc(1, sizeof *ask.input.prompt);
    ask.input.n_prompts = ask.input.prompt ? 1 : 0;
    ask.input.n_messages = dialect != &dialect_completions;
    ask.output.stream = true;
    ask.output.include_usage = flags & 4;
    ask.output.continuous_usage = flags & 8;
    ask.output.return_token_ids = flags & 16;
    check(ask.input.prompt != NULL);
    token_ids_add(ask.input.prompt, 1);
    return exchange_new(s, dialect, &ask);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ServerModel model = {.name = "a \"model\""};
    Served served = {.is = &model, .fingerprint = "fp"};
    Server s = {.options = {.model = &model, .n_models = 1}, .served = &served};
    StrBuf text[TEXTS] = {0}, whole[TEXTS] = {0};
    if (size < 2)
        return 0;
    Exchange *x = make_exchange(&s, data[0], data[1]);
    check(x != NULL);
    for (size_t i = 2; i + 1 < size && x->n_ended < x->n_choices; i += 2) {
        Choice *c = &x->choice[data[i] / 8 % x->n_choices];
        int what = data[i] % 8;
        if (what == 0)
            send_events(x, text);
        if (what == 1 && data[i + 1] == 0)
            refuse(&x->end.failed, 500, NULL, "it \"failed\"\n");
        if (c->end.ended)
            continue;
        token_ids_add(&c->tokens, data[i + 1]);
        if (what == 1)
            choice_end(c, &(cvn_result){.finish = (cvn_finish)(data[i + 1] % 5)});
        else if (what == 2 && !c->text.length && x->ask.input.n_messages)
            add_character(&c->texts.thought, data[i + 1]);
        else if (what > 2)
            add_character(&c->text, data[i + 1]);
    }
    for (int i = 0; i < x->n_choices; i++)
        if (!x->choice[i].end.ended)
            choice_end(&x->choice[i], &(cvn_result){.finish = CVN_FINISH_LENGTH});
    for (int i = 0; i < 8; i++)
        send_events(x, text);
    json_t *answer = x->dialect->whole(x);
    check(answer != NULL);
    take_whole(answer, whole);
    for (int i = 0; i < TEXTS; i++) {
        bool same = text[i].length == whole[i].length &&
                    (!text[i].length || memcmp(text[i].text, whole[i].text, text[i].length) == 0);
        check(same || x->end.failed.status); /* then the end is an error */
        strbuf_free(&text[i]);
        strbuf_free(&whole[i]);
    }
    json_decref(answer);
    exchange_free(x);
    return 0;
}
