/*
 * Jinja, as chat templates use it: text with programs in it, which a conversation is put into.
 *
 *     {%- for m in messages %}                          <|im_start|>user
 *     {{- '<|im_start|>' + m.role + '\n' }}       ->    Hello<|im_end|>
 *     {{- m.content | trim }}<|im_end|>
 *     {%- endfor %}
 *
 * What comes out is what Python's jinja2 makes of it with the settings of transformers: trim_blocks, lstrip_blocks, no
 * trailing newline, the immutable sandbox, and the tags, filters and functions that transformers adds (generation,
 * break, continue, tojson, raise_exception, strftime_now). Strings are Python's: indices count code points, lists and
 * numbers print as repr has them. A tag, filter or test that is not known is refused by name when the template is
 * read; in a branch of an `if`, where jinja2 waits, too, when it is reached.
 *
 * Templates and data are both foreign. Steps, memory and nesting are bounded by named constants, and what a template
 * does wrong ends in one sentence with the line. Every byte that comes out is marked: JINJA_OWN for the template's own
 * text, JINJA_DATA for what came out of the data. The mark goes along through every operation on strings, so that
 * whoever makes ids of the text can tell the template's markers from those that a message holds.
 *
 *     JinjaTemplate *template;
 *     JinjaText text = {0};
 *     JinjaInput input = {.data = json_object, .now = &tm};
 *     if (jinja_read(source, length, &template, err) || jinja_render(template, &input, &text, err))
 *         …
 *     text.text.text[i] was in a message where text.mark.text[i] == JINJA_DATA
 *
 * A template does not change after it was read: threads may share it.
 *
 * Source: the documentation of jinja2 3.1 and of transformers 5.
 */
#ifndef CVN_TEXT_JINJA_JINJA_H
#define CVN_TEXT_JINJA_JINJA_H

#include "base/err.h"
#include "base/strbuf.h"

#include <jansson.h>
#include <stdint.h>
#include <time.h>

enum { JINJA_OWN = 0, JINJA_DATA = 1 };

/* What a template may have and take. Real ones have 20 KiB, and take 1e5 steps and a few MiB. */
enum {
    JINJA_MAX_SOURCE = 4 << 20, /* bytes of a template */
    JINJA_MAX_NESTING = 400,    /* of expressions and blocks in a template, and of values */
    JINJA_MAX_DEPTH = 2000,     /* of what is being evaluated, through all calls of macros */
    JINJA_MAX_STEPS = 50000000, /* operations, and for every 64 bytes that one goes over another */
    JINJA_MAX_MEMORY = 1 << 29, /* bytes, of all values that are made */
    JINJA_MAX_RANGE = 100000,   /* numbers of a range(), as in jinja2's sandbox */
};

typedef struct JinjaTemplate JinjaTemplate;

typedef struct JinjaInput {
    const json_t *data; /* object of variables whose strings are data; borrowed */
    const json_t *own;  /* object of variables that are the template's own (bos_token); or NULL */
    /* A member of the data's objects, such as a role, and a list of words, ended by NULL: its value counts as the
       template's own where it is one of these, as templates make markers of them. Or both NULL. */
    const char *own_key;
    const char *const *own_words;
    const struct tm *now; /* what strftime_now tells; NULL: it is refused */
    int64_t max_steps;    /* 0: JINJA_MAX_STEPS */
    size_t max_memory;    /* bytes; 0: JINJA_MAX_MEMORY */
} JinjaInput;

typedef struct JinjaText {
    StrBuf text;      /* UTF-8 */
    StrBuf mark;      /* as many bytes: JINJA_OWN or JINJA_DATA */
    StrBuf generated; /* as many bytes: 1 between `generation` and `endgeneration`, else 0 */
} JinjaText;

void jinja_text_free(JinjaText *text);

/* Reads n bytes of template. CVN_EFORMAT where it is no template, CVN_EUNSUPPORTED where it has what is not known. */
int jinja_read(const char *source, size_t n, JinjaTemplate **out, cvn_err *err);
void jinja_free(JinjaTemplate *jinja);

/* Appends what the template makes of the input. CVN_EINVAL: it cannot take this input; what it says itself
   (raise_exception) is the message. After an error nothing was appended. */
int jinja_render(const JinjaTemplate *jinja, const JinjaInput *input, JinjaText *out, cvn_err *err);

#endif
