#include "text/answer.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 512 }; /* bytes; what is longer is no header */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- how a model's answers are written ---- */

void answer_kind_learn(AnswerKind *kind, const ChatTemplate *chat, const Tokenizer *tokenizer)
{
    *kind = (AnswerKind){.form = chat ? answer_form_find(chat_template_source(chat)) : NULL};
    kind->n_stops = chat ? chat_template_stops(chat, tokenizer, kind->stops) : 0;
    call_syntax_learn(&kind->calls, chat, tokenizer, kind->stops, kind->n_stops);
}

void answer_kind_free(AnswerKind *kind)
{
    call_syntax_free(&kind->calls);
}

bool answer_ends(const AnswerKind *kind, int32_t id)
{
    for (size_t i = 0; i < kind->n_stops; i++)
        if (kind->stops[i] == id)
            return true;
    return false;
}

static bool has(const char *mark, const char *piece)
{
    return mark && strstr(mark, piece);
}

/* Whether a token is special, and part of a mark. */
static bool is_mark(const AnswerKind *kind, const Tokenizer *tokenizer, int32_t id)
{
    size_t n;
    const char *piece = tokenizer_piece(tokenizer, id, &n);
    const AnswerForm *f = kind->form;
    if (!piece || !n || tokenizer_special(tokenizer, piece) != id)
        return false;
    bool marks = has(kind->calls.mark, piece);
    if (f)
        marks |= has(f->open, piece) || has(f->close, piece) || has(f->header, piece) ||
                 has(f->header_end, piece);
    for (size_t i = 0; f && i < sizeof f->silent / sizeof *f->silent; i++)
        marks |= has(f->silent[i], piece);
    return marks;
}

void answer_decode(const AnswerKind *kind, Decoder *decoder, int32_t token, StrBuf *out)
{
    const unsigned flags = decoder->flags;
    if (!(flags & TOKENIZER_SPECIAL) && is_mark(kind, decoder->tokenizer, token))
        decoder->flags |= TOKENIZER_SPECIAL;
    decoder_push(decoder, token, out, NULL);
    decoder->flags = flags;
}

void answer_cut(const Answer *a, Decoder decoder, TokenIds *tokens, StrBuf *rest)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    size_t n = 0, kept = 0;
    for (; n < tokens->n; n++) {
        kept = text.length;
        answer_decode(a->kind, &decoder, tokens->id[n], &text);
        if ((int64_t)text.length > a->begin)
            break;
    }
    if (n < tokens->n && (size_t)a->begin > kept)
        strbuf_add(rest, text.text + kept, (size_t)a->begin - kept);
    tokens->n = n;
}

void answer_texts_free(AnswerTexts *texts)
{
    strbuf_free(&texts->thought);
    strbuf_free(&texts->said);
    strbuf_free(&texts->call);
}

/* ---- reading ---- */

void answer_free(Answer *a)
{
    strbuf_free(&a->held);
    strbuf_free(&a->blank);
}

/* The first n held bytes were read. */
static void drop(Answer *a, size_t n)
{
    if (!n)
        return;
    memmove(a->held.text, a->held.text + n, a->held.length - n + 1);
    a->held.length -= n;
    a->place += (int64_t)n;
}

static void add_blank(Answer *a, AnswerTexts *out)
{
    strbuf_add(&out->said, a->blank.length ? a->blank.text : "", a->blank.length);
    strbuf_clear(&a->blank);
}

/* A byte that is part of no mark. */
static void add(Answer *a, char c, AnswerTexts *out)
{
    if (a->trim && (c == '\n' || c == '\r'))
        return;
    a->trim = false;
    if (a->part == ANSWER_THOUGHT) {
        strbuf_putc(&out->thought, c);
        return;
    }
    a->begun |= !is_blank(c);
    if (a->calls && is_blank(c)) {
        strbuf_putc(&a->blank, c);
        return;
    }
    add_blank(a, out);
    strbuf_putc(&out->said, c);
}

static void go_to(Answer *a, AnswerPart part, int64_t begin)
{
    a->part = part;
    a->begin = begin > 0 ? begin : 0;
    a->trim = part != ANSWER_CALL;
}

/* The rest of the answer is calls. */
static void begin_call(Answer *a, int64_t begin, AnswerTexts *out)
{
    strbuf_add(&out->call, a->blank.length ? a->blank.text : "", a->blank.length);
    strbuf_clear(&a->blank);
    go_to(a, ANSWER_CALL, begin);
    strbuf_add(&out->call, a->held.length ? a->held.text : "", a->held.length);
    drop(a, a->held.length);
}

/* What is held begins with the mark (1), may come to (0), or does not (-1). */
static int begins(const Answer *a, const char *mark)
{
    size_t n = mark ? strlen(mark) : 0;
    if (!n || memcmp(a->held.text, mark, n < a->held.length ? n : a->held.length) != 0)
        return -1;
    return a->held.length >= n;
}

/* A header is complete, `n` bytes with its end: it says what part follows. */
static void take_header(Answer *a, size_t n, AnswerTexts *out)
{
    const AnswerForm *f = a->kind->form;
    const CallSyntax *y = &a->kind->calls;
    const size_t before = begins(a, f->header) > 0 ? strlen(f->header) : 0;
    const int64_t begin = a->place + (int64_t)before;
    SCOPED(scoped_free) char *header = strndup(a->held.text + before, n - before);
    const char *name = header && f->calls && a->calls ? strstr(header, f->calls) : NULL;
    if (name) { /* as the template writes it, whose order models change */
        name += strlen(f->calls);
        strbuf_puts(&out->call, y->before);
        strbuf_add(&out->call, name, strcspn(name, " <"));
        strbuf_puts(&out->call, y->between);
        drop(a, n);
        begin_call(a, begin, out);
        return;
    }
    drop(a, n);
    go_to(a, header && strstr(header, f->thinks) ? ANSWER_THOUGHT : ANSWER_SAID, begin);
}

static bool read_header(Answer *a, bool ended, AnswerTexts *out)
{
    const char *mark = a->kind->form->header_end;
    const char *end = memmem(a->held.text, a->held.length, mark, strlen(mark));
    if (end) {
        take_header(a, (size_t)(end - a->held.text) + strlen(mark), out);
        return true;
    }
    if (!ended && a->held.length < HEADER_MAX)
        return false;
    if (strncmp(a->held.text, "<|", 2) == 0) /* of a header that is cut off */
        drop(a, a->held.length);
    go_to(a, ANSWER_SAID, a->place);
    return a->held.length > 0;
}

/* Whether what is held is a mark of the part that is being read, which is taken then (1), may come to be one (0), or is not (-1). */
static int take_mark(Answer *a, AnswerTexts *out)
{
    const AnswerForm *f = a->kind->form;
    const CallSyntax *y = &a->kind->calls;
    bool thinks = a->part == ANSWER_THOUGHT, may = false;
    int like;
    if (f && (thinks || f->header) && (like = begins(a, f->close)) >= 0) {
        may = true;
        if (like > 0) {
            drop(a, strlen(f->close));
            go_to(a, f->header ? ANSWER_HEADER : ANSWER_SAID, a->place);
            a->begun = true;
            return 1;
        }
    }
    if (f && f->header && (like = begins(a, f->header)) >= 0) {
        may = true;
        if (like > 0) {
            go_to(a, ANSWER_HEADER, a->place);
            return 1;
        }
    }
    for (size_t i = 0; f && !thinks && i < sizeof f->silent / sizeof *f->silent; i++) {
        like = begins(a, f->silent[i]);
        may |= like >= 0;
        if (like > 0) {
            drop(a, strlen(f->silent[i]));
            a->trim = true;
            return 1;
        }
    }
    if (f && !thinks && !f->header && !a->begun && (like = begins(a, f->open)) >= 0) {
        may = true;
        if (like > 0) {
            int64_t begin = a->place;
            drop(a, strlen(f->open));
            go_to(a, ANSWER_THOUGHT, begin);
            return 1;
        }
    }
    if (!thinks && a->calls && !(f && f->calls)) {
        like = y->mark ? begins(a, y->mark) : a->begun ? -1 : call_syntax_like(y, a->held.text);
        may |= like >= 0;
        if (like > 0) {
            begin_call(a, a->place, out);
            return 1;
        }
    }
    return may ? 0 : -1;
}

static void read_on(Answer *a, bool ended, AnswerTexts *out)
{
    while (a->held.length) {
        if (a->part == ANSWER_CALL) {
            begin_call(a, a->begin, out);
        } else if (a->part == ANSWER_HEADER) {
            if (!read_header(a, ended, out))
                return;
        } else {
            int like = take_mark(a, out);
            if (like == 0 && !ended)
                return;
            if (like <= 0) {
                add(a, a->held.text[0], out);
                drop(a, 1);
            }
        }
    }
}

void answer_push(Answer *a, const char *text, size_t n, AnswerTexts *out)
{
    for (size_t i = 0; i < n; i++) {
        strbuf_putc(&a->held, text[i]);
        if (!a->held.failed)
            read_on(a, false, out);
    }
    out->said.failed |= a->held.failed || a->blank.failed;
}

void answer_flush(Answer *a, AnswerTexts *out)
{
    if (!a->held.failed)
        read_on(a, true, out);
    add_blank(a, out);
}

/* ---- where an answer begins ---- */

static size_t trimmed(const char *text, size_t n)
{
    while (n && is_blank(text[n - 1]))
        n--;
    return n;
}

/* Behind the last `mark` of a text, or NULL. */
static const char *behind_last(const StrBuf *text, const char *mark)
{
    const char *last = NULL, *at = text->text;
    for (; at && (at = strstr(at, mark)); last = at)
        at += strlen(mark);
    return last;
}

void answer_init(Answer *a, const AnswerKind *kind, bool calls, const Tokenizer *tokenizer,
                 const TokenIds *prompt)
{
    enum { TAIL = 32 }; /* ids: as many as a mark and white space behind it may have */
    const AnswerForm *f = kind->form;
    SCOPED(strbuf_free) StrBuf text = {0};
    *a = (Answer){.kind = kind, .calls = calls && kind->calls.known, .trim = f != NULL};
    size_t n = !f || !prompt ? 0 : prompt->n < TAIL || f->header ? prompt->n : TAIL;
    if (f && f->header)
        a->part = ANSWER_HEADER;
    if (!n || tokenizer_decode(tokenizer, prompt->id + prompt->n - n, n,
                               TOKENIZER_SPECIAL | TOKENIZER_CONTINUE, &text, NULL) != CVN_OK)
        return;
    const size_t open = trimmed(f->open, strlen(f->open)), end = trimmed(text.text, text.length);
    const char *header = f->header ? behind_last(&text, f->header) : NULL;
    if (header) { /* it may go on in a part whose header is there */
        SCOPED(answer_texts_free) AnswerTexts rest = {0};
        answer_push(a, header, text.length - (size_t)(header - text.text), &rest);
        a->begin = 0;
        a->place = -(int64_t)a->held.length; /* of a header that the prompt has begun */
        strbuf_clear(&a->blank);
    } else if (!f->header && end >= open && memcmp(text.text + end - open, f->open, open) == 0) {
        a->part = ANSWER_THOUGHT;
    }
}
