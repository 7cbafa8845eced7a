/* Strings that know where each byte came from. All are UTF-8, so that a lead byte tells a character's length. */
#include "text/jinja/impl.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

/* Whether Python's str.strip removes a character: white space, and the separators 1C to 1F. */
bool j_is_space(uint32_t point)
{
    return unicode_class(point) == UNICODE_SPACE || (point >= 0x1c && point <= 0x1f);
}

uint32_t str_point(Str s, size_t at, int *length)
{
    *length = utf8_need((unsigned char)s.text[at]);
    return utf8_point(s.text + at, *length);
}

Str str_part(Str s, size_t from, size_t to)
{
    return from < to ? (Str){s.text + from, s.mark + from, to - from} : (Str){"", "", 0};
}

bool str_is(Str s, const char *text)
{
    return strlen(text) == s.n && memcmp(s.text, text, s.n) == 0;
}

char str_mark(Str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.mark[i] & JINJA_DATA)
            return JINJA_DATA;
    return JINJA_OWN;
}

size_t str_points(Str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.text[i] & 0xc0) != 0x80;
    return n;
}

size_t str_offset(Str s, size_t point)
{
    size_t i = 0;
    while (i < s.n && point-- > 0)
        i += (size_t)utf8_need((unsigned char)s.text[i]);
    return i;
}

/* Whether the character at `at` is to be stripped. */
static bool stripped(Str s, size_t at, int length, const Str *characters)
{
    if (!characters)
        return j_is_space(utf8_point(s.text + at, length));
    return memmem(characters->text, characters->n, s.text + at, (size_t)length) != NULL;
}

Str str_strip(Str s, const Str *characters, bool left, bool right)
{
    size_t from = 0, to = s.n;
    while (left && from < to) {
        int length = utf8_need((unsigned char)s.text[from]);
        if (!stripped(s, from, length, characters))
            break;
        from += (size_t)length;
    }
    while (right && from < to) {
        size_t last = to - 1;
        while (((unsigned char)s.text[last] & 0xc0) == 0x80)
            last--;
        if (!stripped(s, last, (int)(to - last), characters))
            break;
        to = last;
    }
    return str_part(s, from, to);
}

size_t str_find(JinjaRun *r, Str s, Str what, size_t from)
{
    if (!j_step(r, (s.n - from) / 64))
        return SIZE_MAX;
    const char *found =
        what.n ? memmem(s.text + from, s.n - from, what.text, what.n) : s.text + from;
    return found ? (size_t)(found - s.text) : SIZE_MAX;
}

/* ---- text that grows ---- */

static bool room(JinjaRun *r, JinjaWriter *t, size_t n)
{
    if (!j_step(r, n / 64))
        return false;
    if (t->capacity - t->n >= n)
        return true;
    size_t capacity = 2 * (t->n + n) + 16;
    char *text = j_take(r, capacity), *mark = j_take(r, capacity);
    if (r->rc)
        return false;
    if (t->n) {
        memcpy(text, t->text, t->n);
        memcpy(mark, t->mark, t->n);
    }
    *t = (JinjaWriter){text, mark, t->n, capacity};
    return true;
}

void j_text_add(JinjaRun *r, JinjaWriter *t, Str s)
{
    if (s.n == 0 || !room(r, t, s.n))
        return;
    memcpy(t->text + t->n, s.text, s.n);
    memcpy(t->mark + t->n, s.mark, s.n);
    t->n += s.n;
}

void j_text_bytes(JinjaRun *r, JinjaWriter *t, const char *bytes, size_t n, char mark)
{
    if (n == 0 || !room(r, t, n))
        return;
    memcpy(t->text + t->n, bytes, n);
    memset(t->mark + t->n, mark, n);
    t->n += n;
}

void j_text_puts(JinjaRun *r, JinjaWriter *t, const char *text)
{
    j_text_bytes(r, t, text, strlen(text), JINJA_OWN);
}

void j_text_point(JinjaRun *r, JinjaWriter *t, uint32_t point, char mark)
{
    char c[4];
    int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    c[0] = (char)(lead[more] | point >> (6 * more));
    for (int i = 1; i <= more; i++)
        c[i] = (char)(0x80 | (point >> (6 * (more - i)) & 0x3f));
    j_text_bytes(r, t, c, (size_t)more + 1, mark);
}

JinjaValue j_text_value(JinjaRun *r, const JinjaWriter *t)
{
    return v_str(r, t->n ? (Str){t->text, t->mark, t->n} : (Str){"", "", 0});
}

/* ---- operations ---- */

enum { SHARP_S = 0xdf };

/* The simple mappings of the C library's Unicode: but for the sharp s, characters that become several stay as they are. */
static uint32_t change_case(JinjaRun *r, uint32_t point, bool upper)
{
    if (point < 0x80) {
        bool letter = (point | 32) >= 'a' && (point | 32) <= 'z';
        return !letter ? point : upper ? point & ~32u : point | 32;
    }
    if (!r->locale)
        r->locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    if (!r->locale)
        return point;
    wint_t changed = upper ? towupper_l((wint_t)point, (locale_t)r->locale)
                           : towlower_l((wint_t)point, (locale_t)r->locale);
    return (uint32_t)changed < 0x110000 && !(changed >= 0xd800 && changed < 0xe000)
               ? (uint32_t)changed
               : point;
}

JinjaValue str_case(JinjaRun *r, Str s, Case which)
{
    JinjaWriter text = {0};
    bool inside = false; /* of a word */
    int length;
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length) {
        uint32_t point = str_point(s, i, &length);
        bool upper = which == CASE_UPPER || (which != CASE_LOWER && !inside);
        if (point == SHARP_S && upper)
            j_text_bytes(r, &text, which == CASE_UPPER ? "SS" : "Ss", 2, s.mark[i]);
        else
            j_text_point(r, &text, change_case(r, point, upper), s.mark[i]);
        if (which == CASE_TITLE)
            inside = unicode_class(point) == UNICODE_LETTER;
        else if (which == CASE_WORDS)
            inside = !j_is_space(point) && !(point < 0x80 && point && strchr("-({[<", (int)point));
        else
            inside = true;
    }
    return j_text_value(r, &text);
}

JinjaValue str_replace(JinjaRun *r, Str s, Str old, Str new, int64_t most)
{
    JinjaWriter text = {0};
    size_t at = 0;
    for (int64_t i = 0; (most < 0 || i < most) && j_step(r, 1); i++) {
        size_t found = str_find(r, s, old, at);
        if (found == SIZE_MAX)
            break;
        j_text_add(r, &text, str_part(s, at, found));
        j_text_add(r, &text, new);
        at = found + old.n;
        if (old.n > 0)
            continue;
        if (at >= s.n)
            break;
        size_t length = (size_t)utf8_need((unsigned char)s.text[at]);
        j_text_add(r, &text, str_part(s, at, at + length));
        at += length;
    }
    j_text_add(r, &text, str_part(s, at, s.n));
    return j_text_value(r, &text);
}

/* The conversions of Python's % that templates use: %s, %r, %d and %%. */
JinjaValue str_percent(JinjaRun *r, Str format, const JinjaValue *arg, size_t n)
{
    JinjaWriter text = {0};
    size_t used = 0, done = 0;
    for (size_t i = 0; i < format.n && j_step(r, 1); i++) {
        if (format.text[i] != '%')
            continue;
        j_text_add(r, &text, str_part(format, done, i));
        char kind = ++i < format.n ? format.text[i] : 0;
        done = i + 1;
        if (kind == '%')
            j_text_add(r, &text, str_part(format, i, i + 1));
        else if (kind != 's' && kind != 'r' && kind != 'd' && kind != 'i')
            return j_fail(r, "the operator %% only supports %%s, %%r, %%d and %%%%");
        else if (used >= n)
            return j_fail(r, "a format has more placeholders than values");
        else if ((kind == 'd' || kind == 'i') && arg[used].type != V_INT &&
                 arg[used].type != V_BOOL)
            return j_fail(r, "%%d expects a number, not a %s", v_type_name(arg[used]));
        else
            j_write_value(r, &text,
                          kind == 'd' && arg[used].type == V_BOOL ? v_int(arg[used].b) : arg[used],
                          kind == 'r'),
                used++;
    }
    j_text_add(r, &text, str_part(format, done, format.n));
    if (used < n && !(n == 1 && arg[0].type == V_DICT))
        return j_fail(r, "a format has fewer placeholders than values");
    return j_text_value(r, &text);
}

/* Whether Python's str.splitlines ends a line at a character. */
static bool ends_line(uint32_t point)
{
    return (point >= 0x0a && point <= 0x0d) || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
           point == 0x2028 || point == 0x2029;
}

Seq str_lines(JinjaRun *r, Str s)
{
    Items lines = {0};
    size_t begin = 0, i = 0;
    int length;
    while (i < s.n && j_step(r, 1)) {
        uint32_t point = str_point(s, i, &length);
        size_t end = i;
        i += (size_t)length;
        if (!ends_line(point))
            continue;
        if (point == '\r' && i < s.n && s.text[i] == '\n')
            i++;
        j_items_add(r, &lines, v_str(r, str_part(s, begin, end)));
        begin = i;
    }
    if (begin < s.n)
        j_items_add(r, &lines, v_str(r, str_part(s, begin, s.n)));
    return (Seq){lines.item, lines.n};
}

JinjaValue str_escape(JinjaRun *r, Str s)
{
    static const struct {
        char c;
        const char *entity;
    } table[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
    JinjaWriter text = {0};
    for (size_t i = 0; i < s.n && j_step(r, 1); i++) {
        const char *entity = NULL;
        for (size_t k = 0; k < sizeof table / sizeof *table; k++)
            if (table[k].c == s.text[i])
                entity = table[k].entity;
        if (entity)
            j_text_bytes(r, &text, entity, strlen(entity), s.mark[i]);
        else
            j_text_add(r, &text, str_part(s, i, i + 1));
    }
    JinjaValue value = j_text_value(r, &text);
    value.flag = true;
    return value;
}
