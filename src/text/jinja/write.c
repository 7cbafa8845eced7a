/* Values as text: as Python's str and repr write them, and as its json.dumps does. */
#include "text/jinja/impl.h"

#include "text/json_text.h"
#include "text/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_real(JinjaRun *r, JinjaWriter *t, double x, const char *inf, const char *nan)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    if (isfinite(x))
        json_text_real(x, &text);
    else
        strbuf_printf(&text, "%s%s", x < 0 ? "-" : "", isnan(x) ? nan : inf);
    j_text_bytes(r, t, text.text ? text.text : "", text.length, JINJA_OWN);
}

static void put_int(JinjaRun *r, JinjaWriter *t, int64_t i)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, i);
    j_text_puts(r, t, digits);
}

/* Whether repr writes a character as it is: near enough to str.isprintable, which goes by the Unicode of its Python. */
static bool printable(uint32_t p)
{
    if (p < 0x7f)
        return p >= 0x20;
    return p > 0xa0 && p != 0xad && unicode_class(p) != UNICODE_SPACE &&
           !(p >= 0x200b && p <= 0x200f) && !(p >= 0x202a && p <= 0x202e) &&
           !(p >= 0x2060 && p <= 0x206f) && !(p >= 0xe000 && p <= 0xf8ff) && p != 0xfeff &&
           p < 0xe0000;
}

static void put_repr(JinjaRun *r, JinjaWriter *t, Str s)
{
    char quote = s.n && memchr(s.text, '\'', s.n) && !memchr(s.text, '"', s.n) ? '"' : '\'';
    char mark = str_mark(s), code[16];
    int length;
    j_text_bytes(r, t, &quote, 1, mark);
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length) {
        uint32_t p = str_point(s, i, &length);
        const char *known = p && p < 0x80 ? strchr("\n\r\t\\", (int)p) : NULL;
        if (known || p == (unsigned char)quote)
            snprintf(code, sizeof code, "\\%c",
                     known ? "nrt\\"[strchr("\n\r\t\\", (int)p) - strchr("\n\r\t\\", '\n')]
                           : quote);
        else if (!printable(p))
            snprintf(code, sizeof code,
                     p < 0x100     ? "\\x%02x"
                     : p < 0x10000 ? "\\u%04x"
                                   : "\\U%08x",
                     p);
        else
            code[0] = 0;
        if (code[0])
            j_text_bytes(r, t, code, strlen(code), s.mark[i]);
        else
            j_text_add(r, t, str_part(s, i, i + (size_t)length));
    }
    j_text_bytes(r, t, &quote, 1, mark);
}

static void put_items(JinjaRun *r, JinjaWriter *t, const Seq *seq, const char *open,
                      const char *close)
{
    j_text_puts(r, t, open);
    for (size_t i = 0; i < seq->n && j_step(r, 1); i++) {
        j_text_puts(r, t, i ? ", " : "");
        j_write_value(r, t, seq->item[i], true);
    }
    j_text_puts(r, t, close);
}

static void put_dict(JinjaRun *r, JinjaWriter *t, const Dict *dict)
{
    j_text_puts(r, t, "{");
    for (size_t i = 0; i < dict->n && j_step(r, 1); i++) {
        j_text_puts(r, t, i ? ", " : "");
        j_write_value(r, t, dict->pair[i].key, true);
        j_text_puts(r, t, ": ");
        j_write_value(r, t, dict->pair[i].value, true);
    }
    j_text_puts(r, t, "}");
}

void j_write_value(JinjaRun *r, JinjaWriter *t, JinjaValue v, bool repr)
{
    if (r->rc || !j_deeper(r))
        return;
    switch (v.type) {
    case V_UNDEFINED:
        j_text_puts(r, t, repr ? "Undefined" : "");
        break;
    case V_NONE:
        j_text_puts(r, t, "None");
        break;
    case V_BOOL:
        j_text_puts(r, t, v.b ? "True" : "False");
        break;
    case V_INT:
        put_int(r, t, v.i);
        break;
    case V_FLOAT:
        put_real(r, t, v.f, "inf", "nan");
        break;
    case V_STR:
        if (repr)
            put_repr(r, t, *v.str);
        else
            j_text_add(r, t, *v.str);
        break;
    case V_LIST:
        put_items(r, t, v.seq, "[", "]");
        break;
    case V_TUPLE:
        put_items(r, t, v.seq, "(", v.seq->n == 1 ? ",)" : ")");
        break;
    case V_DICT:
        put_dict(r, t, v.dict);
        break;
    default:
        j_fail(r, "a %s cannot be written as text", v_type_name(v));
    }
    r->depth--;
}

Str v_text(JinjaRun *r, JinjaValue v)
{
    JinjaWriter text = {0};
    if (v.type == V_STR)
        return *v.str;
    j_write_value(r, &text, v, false);
    return *j_text_value(r, &text).str;
}

/* ---- JSON ---- */

static void put_json_string(JinjaRun *r, JinjaWriter *t, Str s, bool ascii)
{
    char mark = str_mark(s), code[16];
    int length;
    j_text_bytes(r, t, "\"", 1, mark);
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length) {
        uint32_t p = str_point(s, i, &length);
        static const char escaped[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
        const char *known = p && p < 0x80 ? strchr(escaped, (int)p) : NULL;
        code[0] = 0;
        if (known)
            snprintf(code, sizeof code, "\\%c", letter[known - escaped]);
        else if (ascii && p > 0xffff)
            snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xd800 + ((p - 0x10000) >> 10),
                     0xdc00 + ((p - 0x10000) & 0x3ff));
        else if (p < 0x20 || (ascii && p > 0x7e))
            snprintf(code, sizeof code, "\\u%04x", p);
        if (code[0])
            j_text_bytes(r, t, code, strlen(code), s.mark[i]);
        else
            j_text_add(r, t, str_part(s, i, i + (size_t)length));
    }
    j_text_bytes(r, t, "\"", 1, mark);
}

static void new_line(JinjaRun *r, JinjaWriter *t, const JsonStyle *style, size_t level)
{
    if (style->indent.type == V_NONE)
        return;
    j_text_puts(r, t, "\n");
    for (size_t i = 0; i < level && j_step(r, 1); i++)
        j_text_add(r, t, *style->indent.str);
}

static void put_json_list(JinjaRun *r, JinjaWriter *t, const Seq *seq, const JsonStyle *style,
                          size_t level)
{
    j_text_puts(r, t, "[");
    for (size_t i = 0; i < seq->n && j_step(r, 1); i++) {
        if (i)
            j_text_add(r, t, style->between);
        new_line(r, t, style, level + 1);
        j_write_json(r, t, seq->item[i], style, level + 1);
    }
    if (seq->n)
        new_line(r, t, style, level);
    j_text_puts(r, t, "]");
}

static Str json_key(JinjaRun *r, JinjaValue key)
{
    JinjaWriter text = {0};
    static const JsonStyle plain = {0};
    if (key.type == V_STR)
        return *key.str;
    if (key.type > V_FLOAT || key.type < V_NONE)
        j_fail(r, "a %s cannot be a key in JSON", v_type_name(key));
    j_write_json(r, &text, key, &plain, 0);
    return *j_text_value(r, &text).str;
}

static void put_json_dict(JinjaRun *r, JinjaWriter *t, const Dict *dict, const JsonStyle *style,
                          size_t level)
{
    JinjaPair *pair = dict->pair;
    if (style->sort && dict->n) {
        pair = j_take(r, dict->n * sizeof *pair);
        memcpy(pair, dict->pair, dict->n * sizeof *pair);
        j_sort_values(r, pair, dict->n);
    }
    j_text_puts(r, t, "{");
    for (size_t i = 0; i < dict->n && j_step(r, 1); i++) {
        if (i)
            j_text_add(r, t, style->between);
        new_line(r, t, style, level + 1);
        put_json_string(r, t, json_key(r, pair[i].key), style->ascii);
        j_text_add(r, t, style->behind);
        j_write_json(r, t, pair[i].value, style, level + 1);
    }
    if (dict->n)
        new_line(r, t, style, level);
    j_text_puts(r, t, "}");
}

void j_write_json(JinjaRun *r, JinjaWriter *t, JinjaValue v, const JsonStyle *style, size_t level)
{
    if (r->rc || !j_deeper(r))
        return;
    switch (v.type) {
    case V_NONE:
        j_text_puts(r, t, "null");
        break;
    case V_BOOL:
        j_text_puts(r, t, v.b ? "true" : "false");
        break;
    case V_INT:
        put_int(r, t, v.i);
        break;
    case V_FLOAT:
        put_real(r, t, v.f, "Infinity", "NaN");
        break;
    case V_STR:
        put_json_string(r, t, *v.str, style->ascii);
        break;
    case V_LIST:
    case V_TUPLE:
        put_json_list(r, t, v.seq, style, level);
        break;
    case V_DICT:
        put_json_dict(r, t, v.dict, style, level);
        break;
    default:
        j_fail(r, "a %s%s%.60s cannot be written as JSON", v_type_name(v),
               v.type == V_UNDEFINED && v.missing ? ", " : "",
               v.type == V_UNDEFINED && v.missing ? v.missing : "");
    }
    r->depth--;
}
