/*
 * Values as models write them in calls that are not JSON:
 *
 *     Python    {'a': 'it\'s', "b": [1, None, True]}
 *     Gemma     {a:<|"|>it's<|"|>,b:[1,null,true]}
 *
 * both of which have JSON in them. A quote ends a string where what may follow a string follows it: templates write some without
 * escapes.
 */
#include "base/err.h"
#include "text/bytes_json.h"
#include "text/call_syntax.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64 };

static const char QUOTE[] = "<|\"|>";
static json_t *value_at(const char **at, int depth);

static const char *skip(const char *at)
{
    return at + strspn(at, " \t\n\r");
}

static void add_rune(StrBuf *out, uint32_t c)
{
    if (c < 0x80) {
        strbuf_putc(out, (char)c);
    } else if (c < 0x800) {
        strbuf_putc(out, (char)(0xC0 | c >> 6));
        strbuf_putc(out, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        strbuf_putc(out, (char)(0xE0 | c >> 12));
        strbuf_putc(out, (char)(0x80 | (c >> 6 & 63)));
        strbuf_putc(out, (char)(0x80 | (c & 63)));
    } else {
        strbuf_putc(out, (char)(0xF0 | c >> 18));
        strbuf_putc(out, (char)(0x80 | (c >> 12 & 63)));
        strbuf_putc(out, (char)(0x80 | (c >> 6 & 63)));
        strbuf_putc(out, (char)(0x80 | (c & 63)));
    }
}

/* n digits of hexadecimal; false: there are fewer. */
static bool hex(const char *at, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        const char *digit = at[i] ? strchr("0123456789abcdef0123456789ABCDEF", at[i]) : NULL;
        if (!digit)
            return false;
        *out = *out * 16 +
               (uint32_t)((digit - strchr("0123456789abcdef0123456789ABCDEF", '0')) % 22 % 16);
    }
    return true;
}

/* The escape at *at, behind its backslash. */
static bool add_escape(const char **at, StrBuf *out)
{
    static const char names[] = "nrtbfav0\\'\"/", means[] = "\n\r\t\b\f\a\v\0\\'\"/";
    const char c = *(*at)++;
    const char *name = c ? strchr(names, c) : NULL;
    uint32_t rune, low;
    if (name) {
        strbuf_putc(out, means[name - names]);
        return true;
    }
    const int n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!n || !hex(*at, n, &rune))
        return false;
    *at += n;
    if (rune >= 0xD800 && rune < 0xDC00 && (*at)[0] == '\\' && (*at)[1] == 'u' &&
        hex(*at + 2, 4, &low) && low >= 0xDC00 && low < 0xE000) {
        rune = 0x10000 + ((rune - 0xD800) << 10) + (low - 0xDC00);
        *at += 6;
    }
    add_rune(out, rune <= 0x10FFFF ? rune : 0xFFFD);
    return true;
}

static json_t *string_at(const char **at)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    const char quote = **at;
    strbuf_puts(&text, "");
    if (quote == '<') { /* as it is, up to the next quote */
        const char *from = *at + strlen(QUOTE), *end = strstr(from, QUOTE);
        if (!end)
            return NULL;
        *at = end + strlen(QUOTE);
        return bytes_json(from, (size_t)(end - from));
    }
    for (++*at; **at && !(**at == quote && strchr(",:)]}", *skip(*at + 1)));) {
        if (**at != '\\')
            strbuf_putc(&text, *(*at)++);
        else if (++*at, !add_escape(at, &text))
            return NULL;
    }
    if (!**at)
        return NULL;
    ++*at;
    return text.failed ? NULL : bytes_json(text.text, text.length);
}

/* [ … ], ( … ) or { … } */
static json_t *many_at(const char **at, int depth)
{
    const bool object = **at == '{';
    const char close = object ? '}' : **at == '[' ? ']' : ')';
    json_auto_t *all = object ? json_object() : json_array();
    for (*at = skip(*at + 1); **at && **at != close; *at = skip(*at)) {
        json_auto_t *key = NULL;
        if (object) {
            const bool quoted = **at == '"' || **at == '\'' || strncmp(*at, QUOTE, 5) == 0;
            size_t n = quoted ? 0 : strcspn(*at, ":,}{[ \n");
            key = quoted ? string_at(at) : n ? bytes_json(*at, n) : NULL;
            *at = skip(*at + n);
            if (!key || **at != ':')
                return NULL;
            ++*at;
        }
        json_t *value = value_at(at, depth + 1);
        if (!value || (object ? json_object_setn_new(all, json_string_value(key),
                                                     json_string_length(key), value)
                              : json_array_append_new(all, value)))
            return NULL;
        *at = skip(*at);
        if (**at == ',')
            ++*at;
        else if (**at != close)
            return NULL;
    }
    if (!**at)
        return NULL;
    ++*at;
    return json_incref(all);
}

static json_t *word_at(const char **at)
{
    static const struct {
        const char *word;
        int is; /* true, false, null */
    } words[] = {{"true", 0}, {"True", 0}, {"false", 1}, {"False", 1}, {"null", 2}, {"None", 2}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if (strncmp(*at, words[i].word, n) != 0)
            continue;
        *at += n;
        return words[i].is == 2 ? json_null() : json_boolean(words[i].is == 0);
    }
    json_error_t where;
    json_t *number = json_loads(*at, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &where);
    if (number)
        *at += where.position;
    return number;
}

static json_t *value_at(const char **at, int depth)
{
    *at = skip(*at);
    if (depth > DEPTH)
        return NULL;
    if (**at == '"' || **at == '\'' || strncmp(*at, QUOTE, strlen(QUOTE)) == 0)
        return string_at(at);
    return **at && strchr("[({", **at) ? many_at(at, depth) : word_at(at);
}

json_t *loose_value(const char **at)
{
    return value_at(at, 0);
}
