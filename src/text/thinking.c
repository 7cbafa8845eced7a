/* Splitting the thinking from the answer while text streams in. */
#include "text/thinking.h"

#include <string.h>

static const char OPEN[] = "<think>", CLOSE[] = "</think>";

void thinking_init(Thinking *thinking, bool inside)
{
    *thinking = (Thinking){.inside = inside, .trim = true};
}

/* Appends one byte of text, which is not part of a tag. */
static void put(Thinking *thinking, char c, StrBuf *thought, StrBuf *answer)
{
    if (thinking->trim && (c == '\n' || c == '\r'))
        return;
    thinking->trim = false;
    thinking->answered |= !thinking->inside;
    strbuf_putc(thinking->inside ? thought : answer, c);
}

static void put_held(Thinking *thinking, StrBuf *thought, StrBuf *answer)
{
    size_t n = thinking->n_held;
    thinking->n_held = 0;
    for (size_t i = 0; i < n; i++)
        put(thinking, thinking->held[i], thought, answer);
}

/* The tag that may come next, or NULL: one <think> at the very beginning, then one </think>. */
static const char *expected_tag(const Thinking *thinking)
{
    return thinking->inside ? CLOSE : thinking->answered ? NULL : OPEN;
}

void thinking_push(Thinking *thinking, const char *text, size_t n, StrBuf *thought, StrBuf *answer)
{
    for (size_t i = 0; i < n; i++) {
        const char *tag = expected_tag(thinking);
        if (tag && text[i] != tag[thinking->n_held])
            put_held(thinking, thought, answer);
        tag = expected_tag(thinking);
        if (!tag || text[i] != tag[thinking->n_held]) {
            put(thinking, text[i], thought, answer);
            continue;
        }
        if (tag[thinking->n_held + 1]) {
            thinking->held[thinking->n_held++] = text[i];
            continue;
        }
        thinking->n_held = 0;
        thinking->answered = thinking->inside;
        thinking->inside = !thinking->inside;
        thinking->trim = true;
    }
}

void thinking_flush(Thinking *thinking, StrBuf *thought, StrBuf *answer)
{
    put_held(thinking, thought, answer);
}

bool thinking_begun(const Tokenizer *tokenizer, const TokenIds *prompt)
{
    enum { TAIL = 16 }; /* ids: as many as the tag and white space behind it may have */
    size_t n = prompt->n < TAIL ? prompt->n : TAIL;
    SCOPED(strbuf_free) StrBuf text = {0};
    bool begun = false;
    if (n && tokenizer_decode(tokenizer, prompt->id + prompt->n - n, n,
                              TOKENIZER_SPECIAL | TOKENIZER_CONTINUE, &text, NULL) == CVN_OK) {
        while (text.length && strchr(" \t\n", text.text[text.length - 1]))
            text.length--;
        begun = text.length >= sizeof OPEN - 1 &&
                memcmp(text.text + text.length - (sizeof OPEN - 1), OPEN, sizeof OPEN - 1) == 0;
    }
    return begun;
}
