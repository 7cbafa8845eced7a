#include "constrain/idna.h"

#include "text/utf8.h"

#include <string.h>

/* first, first + every, …, last. */
typedef struct IdnaRange {
    uint32_t first, last;
    uint8_t every;
    char bidi;   /* 'L', 'R' (R and AL), 'N' (EN), 'A' (AN), 'M' (NSM), or 0 */
    char join;   /* 'D', 'R', 'L', 'T', or 0 */
    char script; /* 'G' Greek, 'H' Hebrew, 'K' Hiragana, Katakana and Han, or 0 */
    uint8_t mark;
    uint8_t combining; /* class; 9: virama */
} IdnaRange;

#include "constrain/idna_table.inc"

enum {
    LABEL = 63, /* most bytes of one in ASCII */
    VIRAMA = 9,
    N_RANGES = sizeof ranges / sizeof *ranges,
};

typedef struct Label {
    uint32_t point[LABEL + 1]; /* [n] */
    size_t n;
} Label;

static const IdnaRange *first_range_to(uint32_t point)
{
    size_t low = 0, high = N_RANGES;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return &ranges[low];
}

/* What is known of a code point that may stand in labels, or NULL. */
static const IdnaRange *what_is(uint32_t point)
{
    static const IdnaRange letter = {.bidi = 'L'}, digit = {.bidi = 'N'}, hyphen = {0};
    if (point < 0x80)
        return point >= 'a' && point <= 'z'   ? &letter
               : point >= '0' && point <= '9' ? &digit
               : point == '-'                 ? &hyphen
                                              : NULL;
    const IdnaRange *r = first_range_to(point);
    return r < ranges + N_RANGES && r->first <= point && (point - r->first) % r->every == 0 ? r
                                                                                            : NULL;
}

static bool composes(uint32_t first, uint32_t second)
{
    size_t low = 0, high = sizeof compose / sizeof *compose;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const uint32_t *pair = compose[middle];
        if (pair[0] < first || (pair[0] == first && pair[1] < second))
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof compose / sizeof *compose && compose[low][0] == first &&
           compose[low][1] == second;
}

/* Whether the i-th code point stands in normal form C behind those before it. */
static bool is_composed(const Label *l, size_t i)
{
    uint8_t class = what_is(l->point[i])->combining, before = 0;
    if (i && class && what_is(l->point[i - 1])->combining > class)
        return false;
    for (size_t k = i; k-- > 0;) {
        uint8_t of = what_is(l->point[k])->combining;
        if (!of)
            return (before && before >= class) || !composes(l->point[k], l->point[i]);
        before = before ? before : of; /* of the one right before it, the highest */
    }
    return true;
}

/* RFC 5892, appendix A.1. Without the end of the label: what follows may still come. */
static bool joins(const Label *l, size_t i, bool whole)
{
    size_t k = i;
    if (i && what_is(l->point[i - 1])->combining == VIRAMA)
        return true;
    while (k > 0 && what_is(l->point[k - 1])->join == 'T')
        k--;
    if (!k || (what_is(l->point[k - 1])->join != 'L' && what_is(l->point[k - 1])->join != 'D'))
        return false;
    for (k = i + 1; k < l->n && what_is(l->point[k])->join == 'T';)
        k++;
    if (k == l->n)
        return !whole;
    return what_is(l->point[k])->join == 'R' || what_is(l->point[k])->join == 'D';
}

/* What a code point asks of those around it. */
static bool fits(const Label *l, size_t i, bool whole)
{
    uint32_t point = l->point[i];
    const IdnaRange *before = i ? what_is(l->point[i - 1]) : NULL;
    bool last = i + 1 == l->n, digits = point >= 0x660 && point <= 0x669;
    switch (point) {
    case 0xb7: /* middle dot */
        return before && l->point[i - 1] == 'l' && (last ? !whole : l->point[i + 1] == 'l');
    case 0x375: /* keraia */
        return last ? !whole : what_is(l->point[i + 1])->script == 'G';
    case 0x5f3: /* geresh, gershayim */
    case 0x5f4:
        return before && before->script == 'H';
    case 0x200c:
        return joins(l, i, whole);
    case 0x200d:
        return before && before->combining == VIRAMA;
    default:
        break;
    }
    if (point == 0x30fb && whole) { /* Katakana's middle dot */
        bool any = false;
        for (size_t k = 0; k < l->n; k++)
            any = any || (what_is(l->point[k])->script == 'K' && l->point[k] != 0x30fb);
        return any;
    }
    for (size_t k = 0; k < l->n && digits; k++)
        if (l->point[k] >= 0x6f0 && l->point[k] <= 0x6f9)
            return false;
    return true;
}

/* RFC 5893, section 2. */
static bool keeps_direction(const Label *l, IdnaDirection direction, bool whole)
{
    bool has[128] = {false};
    size_t end = l->n;
    for (size_t i = 0; i < l->n; i++)
        has[(unsigned char)what_is(l->point[i])->bidi] = true;
    if (direction == IDNA_LEFT_TO_RIGHT)
        return !has['R'] && !has['A'];
    char first = what_is(l->point[0])->bidi;
    while (end > 0 && what_is(l->point[end - 1])->bidi == 'M')
        end--;
    char last = end ? what_is(l->point[end - 1])->bidi : 0;
    if (first == 'R')
        return !has['L'] && !(has['N'] && has['A']) &&
               (!whole || last == 'R' || last == 'N' || last == 'A');
    return first == 'L' && !has['R'] && !has['A'] && (!whole || last == 'L' || last == 'N');
}

/* Whether a U-label is one, or begins as one, its length aside. */
static bool is_label(const Label *l, IdnaDirection direction, bool whole)
{
    bool wide = false;
    for (size_t i = 0; i < l->n; i++)
        if (!what_is(l->point[i]))
            return false;
    if (!l->n)
        return !whole;
    if (l->point[0] == '-' || (whole && l->point[l->n - 1] == '-') || what_is(l->point[0])->mark ||
        (l->n > 3 && l->point[2] == '-' && l->point[3] == '-'))
        return false;
    for (size_t i = 0; i < l->n; i++) {
        wide = wide || l->point[i] >= 0x80;
        if (!fits(l, i, whole) || !is_composed(l, i))
            return false;
    }
    return (wide || !whole) && keeps_direction(l, direction, whole);
}

/* ---- Punycode ---- */

enum { BASE = 36, T_MIN = 1, T_MAX = 26, SKEW = 38, DAMP = 700, FIRST_BIAS = 72 };

static uint32_t adapt(uint32_t delta, uint32_t n, bool first)
{
    uint32_t k = 0;
    delta = first ? delta / DAMP : delta / 2;
    for (delta += delta / n; delta > (BASE - T_MIN) * T_MAX / 2; k += BASE)
        delta /= BASE - T_MIN;
    return k + (BASE - T_MIN + 1) * delta / (delta + SKEW);
}

static uint32_t threshold(uint32_t k, uint32_t bias)
{
    return k <= bias + T_MIN ? T_MIN : k >= bias + T_MAX ? T_MAX : k - bias;
}

/* Returns the length; more than LABEL: there is no room. */
static size_t encode(const Label *l, char *out /* [LABEL + 1] */)
{
    size_t n = 0, done;
    for (size_t i = 0; i < l->n; i++)
        if (l->point[i] < 0x80)
            out[n++] = (char)l->point[i];
    done = n;
    if (n)
        out[n++] = '-';
    uint32_t point = 0x80, delta = 0, bias = FIRST_BIAS;
    for (size_t basic = done; done < l->n; delta++, point++) {
        uint32_t next = UINT32_MAX;
        for (size_t i = 0; i < l->n; i++)
            if (l->point[i] >= point && l->point[i] < next)
                next = l->point[i];
        delta += (next - point) * (uint32_t)(done + 1);
        point = next;
        for (size_t i = 0; i < l->n; i++) {
            delta += l->point[i] < point;
            if (l->point[i] != point)
                continue;
            uint32_t q = delta;
            for (uint32_t k = BASE;; k += BASE) {
                uint32_t t = threshold(k, bias), digit = q < t ? q : t + (q - t) % (BASE - t);
                if (n == LABEL)
                    return LABEL + 1;
                out[n++] = (char)(digit < 26 ? 'a' + (int)digit : '0' + (int)digit - 26);
                if (q < t)
                    break;
                q = (q - t) / (BASE - t);
            }
            bias = adapt(delta, (uint32_t)done + 1, done == basic);
            delta = 0;
            done++;
        }
    }
    return n;
}

static bool decode(const char *text, size_t n, Label *l)
{
    size_t at = 0;
    *l = (Label){.n = 0};
    for (size_t i = 0; i < n; i++)
        at = text[i] == '-' ? i : at;
    for (size_t i = 0; i < at; i++)
        l->point[l->n++] = (unsigned char)text[i];
    at += at > 0;
    uint64_t point = 0x80, delta = 0, bias = FIRST_BIAS;
    while (at < n) {
        uint64_t before = delta, weight = 1;
        for (uint32_t k = BASE;; k += BASE) {
            char c = at < n ? text[at++] : 0;
            uint32_t digit = c >= 'a' && c <= 'z'   ? (uint32_t)(c - 'a')
                             : c >= '0' && c <= '9' ? (uint32_t)(c - '0') + 26
                                                    : BASE,
                     t = threshold(k, (uint32_t)bias);
            if (digit == BASE || delta > UINT32_MAX || weight > UINT32_MAX)
                return false;
            delta += digit * weight;
            if (digit < t)
                break;
            weight *= BASE - t;
        }
        if (l->n == LABEL || delta > UINT32_MAX)
            return false;
        bias = adapt((uint32_t)(delta - before), (uint32_t)l->n + 1, before == 0);
        point += delta / (l->n + 1);
        delta %= l->n + 1;
        if (point > 0x10ffff)
            return false;
        memmove(l->point + delta + 1, l->point + delta, (l->n - delta) * sizeof *l->point);
        l->point[delta++] = (uint32_t)point;
        l->n++;
    }
    return true;
}

/* ---- A-labels ---- */

/* Lower-case, without "xn--". False for what no A-label begins with. */
static bool take_mark(const char *text, size_t n, char *rest, size_t *length)
{
    *length = 0;
    for (size_t i = 0; i < n; i++) {
        char c = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 'a' - 'A' : text[i]);
        if (n > LABEL || !what_is((unsigned char)c) || (i < 4 && c != "xn--"[i]))
            return false;
        if (i >= 4)
            rest[(*length)++] = c;
    }
    return true;
}

static bool is_encoded(const Language *of, const char *rest, size_t n)
{
    Label label;
    char again[LABEL + 1];
    return n && n + 4 <= LABEL && decode(rest, n, &label) && is_label(&label, of->is, true) &&
           encode(&label, again) == n && memcmp(again, rest, n) == 0;
}

static bool is_a_label(const Language *of, const char *text, size_t n)
{
    char rest[LABEL + 1];
    size_t length;
    return n > 4 && take_mark(text, n, rest, &length) && is_encoded(of, rest, length);
}

static bool grows_to_one(const Language *of, char *rest, size_t n, size_t more)
{
    static const char next[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    if (is_encoded(of, rest, n))
        return true;
    for (size_t i = 0; next[i] && more && n + 4 < LABEL; i++) {
        rest[n] = next[i];
        if (grows_to_one(of, rest, n + 1, more - 1))
            return true;
    }
    return false;
}

/* What has begun may be the ASCII letters of a label that has other letters before or behind them. Where there is no room for these,
   all endings are tried. */
static bool begins_a_label(const Language *of, const char *text, size_t n)
{
    enum { E_ACUTE = 0xe9, ENDINGS = 3 };
    char rest[LABEL + 1], whole[LABEL + 1];
    size_t length;
    if (!take_mark(text, n, rest, &length))
        return false;
    for (size_t ahead = 0; ahead < 4; ahead++)
        for (size_t behind = !ahead; behind < 2; behind++) {
            Label label = {.n = 0};
            if (length + ahead + behind > LABEL)
                continue;
            for (size_t i = 0; i < ahead; i++)
                label.point[label.n++] = E_ACUTE;
            for (size_t i = 0; i < length; i++)
                label.point[label.n++] = (unsigned char)rest[i];
            if (behind)
                label.point[label.n++] = E_ACUTE;
            if (is_label(&label, of->is, true) && encode(&label, whole) + 4 <= LABEL)
                return true;
        }
    return grows_to_one(of, rest, length, ENDINGS);
}

/* ---- U-labels ---- */

static bool is_whole(const Language *of, const Label *l)
{
    char text[LABEL + 1];
    return is_label(l, of->is, true) && encode(l, text) + 4 <= LABEL;
}

/* False for what is no UTF-8, or longer than any label. *rest: bytes of a character that has begun. */
static bool read_points(const char *text, size_t n, Label *l, size_t *rest)
{
    l->n = 0;
    for (size_t at = 0; at < n;) {
        int length = utf8_length(text + at, n - at);
        *rest = n - at;
        if (!length)
            return *rest < 4;
        if (l->n == LABEL)
            return false;
        l->point[l->n++] = utf8_point(text + at, length);
        at += (size_t)length;
    }
    *rest = 0;
    return true;
}

static bool is_u_label(const Language *of, const char *text, size_t n)
{
    Label label;
    size_t rest;
    return read_points(text, n, &label, &rest) && !rest && is_whole(of, &label);
}

/* Whether a few more letters make it whole: what a label may still want is an l, a letter of a script or direction, and room. */
static bool is_completed(const Language *of, Label *l, int more)
{
    const uint32_t letters[] = {'a',   'l',    0x3b1, 0x5d0,
                                0x628, 0x30a2, '0',   l->n ? l->point[l->n - 1] : 'a'};
    char text[LABEL + 1];
    if (!is_label(l, of->is, false))
        return false;
    size_t length = encode(l, text) + 4;
    if (length <= LABEL && is_label(l, of->is, true))
        return true;
    if (length > LABEL + 1) /* more letters take more room */
        return false;
    for (size_t i = 0; i < sizeof letters / sizeof *letters && more && l->n < LABEL; i++) {
        l->point[l->n++] = letters[i];
        bool is = is_completed(of, l, more - 1);
        l->n--;
        if (is)
            return true;
    }
    return false;
}

static bool begins_u_label(const Language *of, const char *text, size_t n)
{
    enum { MORE = 3 };
    Label label;
    size_t rest;
    if (!read_points(text, n, &label, &rest))
        return false;
    if (!rest)
        return is_completed(of, &label, MORE);
    if (label.n == LABEL)
        return false;
    /* The code points that the character may become. */
    unsigned char lead = (unsigned char)text[n - rest];
    size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t low = lead & (0x7fu >> length), high;
    for (size_t i = 1; i < length; i++)
        low = low << 6 | (i < rest ? (uint32_t)text[n - rest + i] & 0x3f : 0);
    high = low | ((1u << (6 * (length - rest))) - 1);
    for (const IdnaRange *r = first_range_to(low); r < ranges + N_RANGES && r->first <= high; r++)
        for (uint32_t point = r->first; point <= r->last && point <= high; point += r->every) {
            if (point < low)
                continue;
            label.point[label.n++] = point;
            bool is = is_completed(of, &label, MORE);
            label.n--;
            if (is)
                return true;
        }
    return false;
}

enum { ROOM = 16 }; /* the rest of a character, and MORE of them */

const Language idna_a_label[] = {{is_a_label, begins_a_label, LABEL, IDNA_LEFT_TO_RIGHT},
                                 {is_a_label, begins_a_label, LABEL, IDNA_BOTH}};
const Language idna_u_label[] = {{is_u_label, begins_u_label, ROOM, IDNA_LEFT_TO_RIGHT},
                                 {is_u_label, begins_u_label, ROOM, IDNA_BOTH}};
