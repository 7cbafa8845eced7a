/*
 * Rewriting text before it is split and merged: what SentencePiece calls normalizing, and Hugging
 * Face's normalizers and the Metaspace pre-tokenizer do. Worked example, the form of Llama 2:
 *
 *     "a  b"  --prepend ▁-->  "▁a  b"  --replace " " by ▁-->  "▁a▁▁b"
 */
#include "text/tokenizer_impl.h"

#include <string.h>

static const char BLANK[] = "\xe2\x96\x81"; /* U+2581 */

static bool starts_with(const char *text, size_t n, const char *start, size_t n_start)
{
    return n >= n_start && memcmp(text, start, n_start) == 0;
}

static void replace(const Rewrite *step, const char *text, size_t n, StrBuf *out)
{
    const char *end = text + n;
    while (text < end) {
        const char *found = memmem(text, (size_t)(end - text), step->from, step->from_length);
        if (!found)
            break;
        strbuf_add(out, text, (size_t)(found - text));
        strbuf_add(out, step->to, step->to_length);
        text = found + step->from_length;
    }
    strbuf_add(out, text, (size_t)(end - text));
}

/* The identity form of sentencepiece's Normalizer::Normalize (src/normalizer.cc). */
static void normalize_spm(const SpmNormalizer *spm, const char *text, size_t n, StrBuf *out)
{
    const char *space = spm->escape_whitespaces ? BLANK : " ";
    size_t space_length = strlen(space);
    const char *end = text + n;
    while (spm->remove_extra_whitespaces && text < end && *text == ' ')
        text++;
    if (text == end)
        return;
    if (spm->add_dummy_prefix && !spm->space_as_suffix)
        strbuf_add(out, space, space_length);
    while (text < end) {
        const char *found = memchr(text, ' ', (size_t)(end - text));
        const char *stop = found ? found : end;
        strbuf_add(out, text, (size_t)(stop - text));
        if (found)
            strbuf_add(out, space, space_length);
        text = found ? stop + 1 : end;
        while (spm->remove_extra_whitespaces && text < end && *text == ' ')
            text++;
    }
    while (spm->remove_extra_whitespaces && out->length >= space_length &&
           memcmp(out->text + out->length - space_length, space, space_length) == 0)
        out->length -= space_length;
    if (spm->add_dummy_prefix && spm->space_as_suffix)
        strbuf_add(out, space, space_length);
}

static void run_step(const Rewrite *step, const char *text, size_t n, bool first, StrBuf *out)
{
    switch (step->kind) {
    case REWRITE_PREPEND:
        if (n)
            strbuf_add(out, step->to, step->to_length);
        strbuf_add(out, text, n);
        break;
    case REWRITE_REPLACE:
        replace(step, text, n, out);
        break;
    case REWRITE_PREFIX:
    case REWRITE_PREFIX_FIRST:
        if ((first || step->kind == REWRITE_PREFIX) &&
            !starts_with(text, n, step->to, step->to_length))
            strbuf_add(out, step->to, step->to_length);
        strbuf_add(out, text, n);
        break;
    case REWRITE_SENTENCEPIECE:
        normalize_spm(&step->spm, text, n, out);
        break;
    case REWRITE_FORM:
        unicode_form(step->form, text, n, out);
        break;
    }
}

void rewrite(const RewriteList *list, const char *text, size_t n, bool first, StrBuf buffers[2],
             const char **result, size_t *result_n)
{
    for (int i = 0; i < list->n; i++) {
        StrBuf *out = &buffers[i % 2];
        strbuf_clear(out);
        run_step(&list->step[i], text, n, first, out);
        text = out->length ? out->text : "";
        n = out->length;
    }
    *result = text;
    *result_n = n;
}
