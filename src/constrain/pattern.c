/*
 * An expression is parsed into a tree, and the tree made into a term from its end to its beginning: each part is built in
 * front of a term for everything that follows, so that what looks ahead is an intersection with that term:
 *
 *     build(x y, rest) = build(x, build(y, rest))      build((?=x), rest) = build(x, ALL) and rest
 *     build($, rest)   = the empty text, if it is in rest
 *
 * A group that is repeated and looks around is a term that is defined by itself: build(x*, rest) = L, where L = rest or build(x, L). What
 * \b says depends on the character before it, too: what stands before is cut into what ends with a letter and what does not.
 * A reference is written out: the expression is the union of those in which its group says one of its words.
 */
#include "constrain/pattern.h"

#include "constrain/json.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

typedef enum NodeKind {
    NODE_TERM,
    NODE_CAT,
    NODE_ALT,
    NODE_REP,
    NODE_BEGIN,
    NODE_END,
    NODE_LOOK,
    NODE_BOUND, /* \b, or \B: negative */
    NODE_GROUP, /* one that references may name */
    NODE_REFERENCE
} NodeKind;

/* What precedes a position: nothing; a letter, digit or _; another character; any of them. */
typedef enum Left { LEFT_NONE, LEFT_WORD, LEFT_OTHER, LEFT_ANY } Left;

typedef struct Node {
    NodeKind kind;
    Term term; /* NODE_TERM: characters, or the empty text */
    uint32_t min, max;
    bool negative;          /* NODE_LOOK, NODE_BOUND */
    size_t group;           /* NODE_GROUP, NODE_REFERENCE */
    bool anchored;          /* BEGIN, END, BOUND or LOOK is in it */
    bool bounds;            /* BOUND is in it */
    bool begins;            /* BEGIN is in it */
    bool zero;              /* takes no character */
    bool nullable;          /* may take none */
    const struct Node **of; /* [n] */
    size_t n;
} Node;

typedef struct Parser {
    TermTable *t;
    Arena *arena;
    const char *text;
    size_t at, n;
    int depth;
    cvn_err *err;
    struct Group {
        const char *name;
        size_t length;
        const Node *body; /* NULL: not read to its end */
        bool referred;
        Term word; /* what it says */
    } group[PATTERN_GROUPS];
    size_t n_groups;
} Parser;

typedef struct Ranges {
    uint32_t *at; /* [2 * n] low and high */
    size_t n;
} Ranges;

#define LAST_POINT 0x10ffffu

static int bad(Parser *p, const char *what)
{
    return err_set(p->err, CVN_EFORMAT, "the regular expression has %s at byte %zu", what, p->at);
}

static int unsupported(Parser *p, const char *what)
{
    return err_set(p->err, CVN_EUNSUPPORTED,
                   "%s in a regular expression is not supported (byte %zu)", what, p->at);
}

static int peek(const Parser *p)
{
    return p->at < p->n ? (unsigned char)p->text[p->at] : -1;
}

static bool take(Parser *p, const char *word)
{
    size_t length = strlen(word);
    if (p->n - p->at < length || memcmp(p->text + p->at, word, length) != 0)
        return false;
    p->at += length;
    return true;
}

static void add_range(Parser *p, Ranges *r, uint32_t low, uint32_t high)
{
    r->at = arena_more(p->arena, r->at, r->n, 2 * sizeof *r->at);
    r->at[2 * r->n] = low;
    r->at[2 * r->n++ + 1] = high;
}

/* The complement: all code points that are in no range. */
static Ranges complement(Parser *p, const Ranges *r)
{
    Ranges out = {0};
    for (uint32_t low = 0; low <= LAST_POINT;) {
        uint32_t high = LAST_POINT;
        bool inside = false;
        for (size_t i = 0; i < r->n; i++) {
            if (r->at[2 * i] <= low && low <= r->at[2 * i + 1]) {
                low = r->at[2 * i + 1] + 1;
                inside = true;
            } else if (r->at[2 * i] > low && r->at[2 * i] - 1 < high) {
                high = r->at[2 * i] - 1;
            }
        }
        if (inside)
            continue;
        add_range(p, &out, low, high);
        low = high + 1;
    }
    return out;
}

static const uint32_t blank_ranges[] = {' ',    ' ',    0xa0,   0xa0,   0x1680, 0x1680, 0x2000,
                                        0x200a, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000};
static const uint32_t digit_ranges[] = {'0', '9'};
static const uint32_t word_ranges[] = {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'};
static const uint32_t space_ranges[] = {9,      13,     ' ',    ' ',    0xa0,   0xa0,   0x1680,
                                        0x1680, 0x2000, 0x200a, 0x2028, 0x2029, 0x202f, 0x202f,
                                        0x205f, 0x205f, 0x3000, 0x3000, 0xfeff, 0xfeff};
static const uint32_t line_ranges[] = {'\n', '\n', '\r', '\r', 0x2028, 0x2029};

/* First code points of the runs of ten that are the decimal digits of Unicode 16 (general category Nd). */
static const uint32_t decimal_digits[] = {
    0x30,    0x660,   0x6f0,   0x7c0,   0x966,   0x9e6,   0xa66,   0xae6,   0xb66,   0xbe6,
    0xc66,   0xce6,   0xd66,   0xde6,   0xe50,   0xed0,   0xf20,   0x1040,  0x1090,  0x17e0,
    0x1810,  0x1946,  0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,
    0xa8d0,  0xa900,  0xa9d0,  0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x10d40,
    0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x116d0,
    0x116da, 0x11730, 0x118e0, 0x11950, 0x11bf0, 0x11c50, 0x11d50, 0x11da0, 0x11f50, 0x16130,
    0x16a60, 0x16ac0, 0x16b50, 0x16d70, 0x1ccf0, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e4f0, 0x1e5f1, 0x1e950, 0x1fbf0};

static void add_class(Parser *p, Ranges *out, UnicodeClass class)
{
    uint32_t low, high;
    UnicodeClass of;
    for (size_t i = 0; unicode_range(i, &low, &high, &of); i++)
        if (of == class)
            add_range(p, out, low, high);
}

/* Reads the rest of \p{…}, whose "\p" was read. */
static int add_property(Parser *p, Ranges *out)
{
    static const char *const letters[] = {"{L}",    "{Letter}",    "{General_Category=Letter}",
                                          "{gc=L}", "{gc=Letter}", "{General_Category=L}"};
    static const char *const numbers[] = {"{N}",    "{Number}",    "{General_Category=Number}",
                                          "{gc=N}", "{gc=Number}", "{General_Category=N}"};
    static const char *const decimals[] = {"{Nd}",
                                           "{digit}",
                                           "{Decimal_Number}",
                                           "{General_Category=Decimal_Number}",
                                           "{gc=Nd}",
                                           "{General_Category=Nd}"};
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        if (take(p, letters[i]))
            return add_class(p, out, UNICODE_LETTER), CVN_OK;
        if (take(p, numbers[i]))
            return add_class(p, out, UNICODE_NUMBER), CVN_OK;
        if (take(p, decimals[i])) {
            for (size_t k = 0; k < sizeof decimal_digits / sizeof *decimal_digits; k++)
                add_range(p, out, decimal_digits[k], decimal_digits[k] + 9);
            return CVN_OK;
        }
    }
    if (take(p, "{Zs}")) {
        for (size_t i = 0; i < sizeof blank_ranges / sizeof *blank_ranges; i += 2)
            add_range(p, out, blank_ranges[i], blank_ranges[i + 1]);
        return CVN_OK;
    }
    if (take(p, "{ASCII}"))
        return add_range(p, out, 0, 0x7f), CVN_OK;
    return unsupported(p, "this \\p{…}");
}

static int hex(Parser *p, int count, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < count; i++, p->at++) {
        int digit = hex_digit(peek(p));
        if (digit < 0)
            return bad(p, "an escape without its hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return CVN_OK;
}

/* Reads the digits of "\u". */
static int read_unit(Parser *p, uint32_t *out)
{
    uint32_t low;
    if (take(p, "{")) {
        size_t begin = p->at;
        for (*out = 0; peek(p) != '}'; *out = *out << 4 | low)
            if (p->at - begin > 6 || hex(p, 1, &low))
                return bad(p, "an escape that is not a code point");
        if (p->at == begin || *out > LAST_POINT)
            return bad(p, "an escape that is not a code point");
        p->at++;
        return CVN_OK;
    }
    if (hex(p, 4, out))
        return p->err ? p->err->code : CVN_EFORMAT;
    if (*out >= 0xd800 && *out < 0xdc00 && take(p, "\\u")) {
        if (hex(p, 4, &low) || low < 0xdc00 || low > 0xdfff)
            return bad(p, "half of a surrogate pair");
        *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
    }
    return CVN_OK;
}

/* Reads an escape, whose backslash was read, as ranges. *point is its code point if it is one character, else LAST_POINT + 1. */
static int read_escape(Parser *p, bool in_class, Ranges *out, uint32_t *point)
{
    static const char names[] = "tnvfr", meant[] = "\t\n\v\f\r";
    int c = peek(p);
    *point = LAST_POINT + 1;
    if (c < 0)
        return bad(p, "a backslash at its end");
    p->at++;
    const char *name = strchr(names, c);
    if (name) {
        *point = (unsigned char)meant[name - names];
    } else if (c == 'd' || c == 'D' || c == 'w' || c == 'W' || c == 's' || c == 'S') {
        int lower = c | 32;
        Ranges set = {0};
        const uint32_t *of = lower == 'd'   ? digit_ranges
                             : lower == 'w' ? word_ranges
                                            : space_ranges;
        size_t n = lower == 'd'   ? 1
                   : lower == 'w' ? 4
                                  : sizeof space_ranges / sizeof *space_ranges / 2;
        for (size_t i = 0; i < n; i++)
            add_range(p, &set, of[2 * i], of[2 * i + 1]);
        if (c != lower)
            set = complement(p, &set);
        for (size_t i = 0; i < set.n; i++)
            add_range(p, out, set.at[2 * i], set.at[2 * i + 1]);
        return CVN_OK;
    } else if (c == 'p' || c == 'P') {
        Ranges set = {0};
        int code = add_property(p, &set);
        if (c == 'P')
            set = complement(p, &set);
        for (size_t i = 0; i < set.n && !code; i++)
            add_range(p, out, set.at[2 * i], set.at[2 * i + 1]);
        return code;
    } else if (c == 'c') {
        int letter = peek(p) | 32;
        if (letter < 'a' || letter > 'z')
            return bad(p, "a \\c without a letter");
        p->at++;
        *point = (uint32_t)(letter - 'a' + 1);
    } else if (c == 'x') {
        if (hex(p, 2, point))
            return p->err ? p->err->code : CVN_EFORMAT;
    } else if (c == 'u') {
        int code = read_unit(p, point);
        if (code)
            return code;
    } else if (c == '0' && !(peek(p) >= '0' && peek(p) <= '9')) {
        *point = 0;
    } else if (c == 'b' && in_class) {
        *point = '\b';
    } else if (c >= '0' && c <= '9') {
        return bad(p, "an octal escape");
    } else if ((c | 32) >= 'a' && (c | 32) <= 'z') {
        return bad(p, "an escape that ECMA-262 does not know");
    } else {
        p->at--;
        int length = utf8_length(p->text + p->at, p->n - p->at);
        if (!length)
            return bad(p, "invalid UTF-8");
        *point = utf8_point(p->text + p->at, length);
        p->at += (size_t)length;
    }
    add_range(p, out, *point, *point);
    return CVN_OK;
}

/* Reads a character or an escape within […]. */
static int read_member(Parser *p, Ranges *out, uint32_t *point)
{
    if (take(p, "\\"))
        return read_escape(p, true, out, point);
    int length = p->at < p->n ? utf8_length(p->text + p->at, p->n - p->at) : 0;
    if (!length)
        return bad(p, "a character class that is not closed");
    *point = utf8_point(p->text + p->at, length);
    p->at += (size_t)length;
    add_range(p, out, *point, *point);
    return CVN_OK;
}

static int read_class(Parser *p, Ranges *out)
{
    Ranges set = {0};
    bool negative = take(p, "^");
    while (!take(p, "]")) {
        uint32_t low, high;
        Ranges none = {0};
        int code = read_member(p, &set, &low);
        if (code)
            return code;
        if (peek(p) != '-' || p->at + 1 >= p->n || p->text[p->at + 1] == ']')
            continue;
        p->at++;
        if ((code = read_member(p, &none, &high)))
            return code;
        if (low > LAST_POINT || high > LAST_POINT || low > high)
            return bad(p, "a range that is out of order in a character class");
        add_range(p, &set, low, high);
    }
    *out = negative ? complement(p, &set) : set;
    return CVN_OK;
}

static Node *new_node(Parser *p, NodeKind kind)
{
    Node *node = arena_alloc(p->arena, sizeof *node);
    node->kind = kind;
    return node;
}

static Node *term_node(Parser *p, Term term)
{
    Node *node = new_node(p, NODE_TERM);
    node->term = term;
    node->nullable = node->zero = term == TERM_EMPTY;
    return node;
}

static const Node *parse_alternatives(Parser *p);

static const Node *parse_group(Parser *p)
{
    bool positive = take(p, "?="), negative = !positive && take(p, "?!");
    if (take(p, "?<=") || take(p, "?<!")) {
        unsupported(p, "looking behind");
        return NULL;
    }
    struct Group group = {0};
    bool captures = !positive && !negative && !take(p, "?:");
    if (captures && take(p, "?<")) {
        group.name = p->text + p->at;
        const char *end = memchr(group.name, '>', p->n - p->at);
        if (!end) {
            bad(p, "a group name that is not closed");
            return NULL;
        }
        group.length = (size_t)(end - group.name);
        p->at += group.length + 1;
    } else if (captures && peek(p) == '?') {
        bad(p, "a group of an unknown kind");
        return NULL;
    }
    size_t number = p->n_groups;
    if (captures && number == PATTERN_GROUPS) {
        unsupported(p, "so many groups");
        return NULL;
    }
    if (captures)
        p->group[p->n_groups++] = group;
    if (++p->depth > PATTERN_DEPTH) {
        bad(p, "too many groups within groups");
        return NULL;
    }
    const Node *body = parse_alternatives(p);
    p->depth--;
    if (body && !take(p, ")")) {
        bad(p, "a group that is not closed");
        return NULL;
    }
    if (body && captures) {
        Node *node = new_node(p, NODE_GROUP);
        *node = *body;
        node->kind = NODE_GROUP;
        node->group = number;
        node->of = arena_copy(p->arena, &body, sizeof body);
        node->n = 1;
        p->group[number].body = body;
        return node;
    }
    if (!body || (!positive && !negative))
        return body;
    Node *look = new_node(p, NODE_LOOK);
    look->negative = negative;
    look->anchored = look->zero = look->nullable = true;
    look->begins = body->begins;
    look->bounds = body->bounds;
    look->of = arena_copy(p->arena, &body, sizeof body);
    look->n = 1;
    return look;
}

/* Reads \1 or \k<name>, whose backslash was read. NULL after an error. */
static const Node *parse_reference(Parser *p)
{
    Node *node = new_node(p, NODE_REFERENCE);
    size_t group = p->n_groups;
    if (take(p, "k<")) {
        const char *name = p->text + p->at, *end = memchr(name, '>', p->n - p->at);
        size_t length = end ? (size_t)(end - name) : 0;
        for (size_t i = 0; i < p->n_groups && end; i++)
            if (p->group[i].name && p->group[i].length == length &&
                memcmp(p->group[i].name, name, length) == 0)
                group = i;
        p->at += end ? length + 1 : 0;
    } else {
        for (group = 0; peek(p) >= '0' && peek(p) <= '9' && group < PATTERN_GROUPS; p->at++)
            group = group * 10 + (size_t)(peek(p) - '0');
        group--;
    }
    if (group >= p->n_groups || !p->group[group].body) {
        unsupported(p, "a reference to a group that has not ended, or is not there,");
        return NULL;
    }
    p->group[group].referred = true;
    node->group = group;
    node->nullable = p->group[group].body->nullable;
    node->zero = p->group[group].body->zero;
    return node;
}

/* Reads one unit of a pattern, without what repeats it. NULL after an error. */
static const Node *parse_atom(Parser *p)
{
    Ranges set = {0};
    uint32_t point;
    int code = CVN_OK;
    if (peek(p) == '^' || peek(p) == '$') {
        Node *node = new_node(p, peek(p) == '^' ? NODE_BEGIN : NODE_END);
        node->begins = peek(p) == '^';
        node->anchored = node->zero = node->nullable = true;
        p->at++;
        return node;
    }
    if (take(p, "("))
        return parse_group(p);
    if (peek(p) == '\\' && p->at + 1 < p->n) {
        char next = p->text[p->at + 1];
        if (next == 'b' || next == 'B') {
            Node *node = new_node(p, NODE_BOUND);
            node->negative = next == 'B';
            node->anchored = node->bounds = node->zero = node->nullable = true;
            p->at += 2;
            return node;
        }
        if ((next >= '1' && next <= '9') || next == 'k') {
            p->at++;
            return parse_reference(p);
        }
    }
    if (take(p, "[")) {
        code = read_class(p, &set);
    } else if (take(p, ".")) {
        for (size_t i = 0; i < 3; i++)
            add_range(p, &set, line_ranges[2 * i], line_ranges[2 * i + 1]);
        set = complement(p, &set);
    } else if (take(p, "\\")) {
        code = read_escape(p, false, &set, &point);
    } else if (peek(p) > 0 && strchr("*+?", peek(p))) {
        code = bad(p, "a quantifier with nothing before it");
    } else {
        int length = utf8_length(p->text + p->at, p->n - p->at);
        if (!length)
            code = bad(p, "invalid UTF-8");
        else
            point = utf8_point(p->text + p->at, length), add_range(p, &set, point, point);
        p->at += (size_t)length;
    }
    return code ? NULL : term_node(p, term_points(p->t, set.at, set.n));
}

static bool read_count(Parser *p, uint32_t *out)
{
    size_t begin = p->at;
    for (*out = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        *out = *out > 100000000 ? *out : *out * 10 + (uint32_t)(peek(p) - '0');
    return p->at > begin;
}

static const Node *parse_repeated(Parser *p)
{
    const Node *of = parse_atom(p);
    while (of) {
        uint32_t min = 0, max = TERM_MANY;
        size_t begin = p->at;
        if (take(p, "+")) {
            min = 1;
        } else if (take(p, "?")) {
            max = 1;
        } else if (take(p, "{")) {
            bool counted = read_count(p, &min);
            max = min;
            if (counted && take(p, ",") && !read_count(p, &max))
                max = TERM_MANY;
            if (!counted || !take(p, "}")) { /* a brace as it is, as without the flag u */
                p->at = begin;
                return of;
            }
            if (min > max) {
                p->at = begin;
                bad(p, "a quantifier whose maximum is below its minimum");
                return NULL;
            }
        } else if (!take(p, "*")) {
            return of;
        }
        take(p, "?"); /* a lazy quantifier matches the same texts */
        if (peek(p) > 0 && strchr("*+?", peek(p))) {
            bad(p, "a quantifier after a quantifier");
            return NULL;
        }
        Node *node = new_node(p, NODE_REP);
        node->min = min;
        node->max = max;
        node->of = arena_copy(p->arena, &of, sizeof of);
        node->n = 1;
        node->anchored = of->anchored;
        node->begins = of->begins;
        node->bounds = of->bounds;
        node->zero = of->zero || max == 0;
        node->nullable = of->nullable || min == 0;
        of = node;
    }
    return NULL;
}

static const Node *parse_alternatives(Parser *p)
{
    Node *alt = new_node(p, NODE_ALT);
    alt->zero = true;
    do {
        Node *cat = new_node(p, NODE_CAT);
        cat->zero = cat->nullable = true;
        while (peek(p) >= 0 && peek(p) != '|' && peek(p) != ')') {
            const Node *part = parse_repeated(p);
            if (!part)
                return NULL;
            cat->of = arena_more(p->arena, cat->of, cat->n, sizeof *cat->of);
            cat->of[cat->n++] = part;
            cat->anchored = cat->anchored || part->anchored;
            cat->begins = cat->begins || part->begins;
            cat->bounds = cat->bounds || part->bounds;
            cat->zero = cat->zero && part->zero;
            cat->nullable = cat->nullable && part->nullable;
        }
        alt->of = arena_more(p->arena, alt->of, alt->n, sizeof *alt->of);
        alt->of[alt->n++] = cat;
        alt->anchored = alt->anchored || cat->anchored;
        alt->begins = alt->begins || cat->begins;
        alt->bounds = alt->bounds || cat->bounds;
        alt->zero = alt->zero && cat->zero;
        alt->nullable = alt->nullable || cat->nullable;
    } while (take(p, "|"));
    return alt;
}

/* `rest` is what follows. */
static Term build(Parser *p, const Node *node, Term rest, Left left);

static Term ending_with(Parser *p, Left left)
{
    Ranges word = {0};
    for (size_t i = 0; i < sizeof word_ranges / sizeof *word_ranges; i += 2)
        add_range(p, &word, word_ranges[i], word_ranges[i + 1]);
    if (left == LEFT_OTHER)
        word = complement(p, &word);
    return term_points(p->t, word.at, word.n);
}

static Term build_bound(Parser *p, const Node *node, Term rest, Left left)
{
    Term word = term_cat(p->t, ending_with(p, LEFT_WORD), TERM_ALL);
    if (left == LEFT_ANY) {
        unsupported(p, "\\b behind what may be anything");
        return TERM_NONE;
    }
    bool wants_word = (left == LEFT_WORD) == node->negative;
    return term_and2(p->t, rest, wants_word ? word : term_not(p->t, word));
}

/* The term of the parts from the i-th on. Some of them depend on the character before them: then the parts before are divided by the
   character that they end with. */
static Term build_parts(Parser *p, const Node *node, size_t i, Term rest, Left left)
{
    bool begins = false, bounds = false;
    if (i == node->n || p->err->code)
        return rest;
    for (size_t k = i + 1; k < node->n; k++) {
        begins = begins || (node->of[k]->begins && left == LEFT_NONE);
        bounds = bounds || node->of[k]->bounds;
    }
    const Node *of = node->of[i];
    if (of->zero)
        return build(p, of, build_parts(p, node, i + 1, rest, left), left);
    if (!begins && !bounds)
        return build(p, of, build_parts(p, node, i + 1, rest, LEFT_ANY), left);
    if (of->anchored) {
        unsupported(p, "^ or \\b behind a group with ^, $, \\b or looking ahead");
        return TERM_NONE;
    }
    Term part = build(p, of, TERM_EMPTY, LEFT_ANY), all = TERM_NONE;
    for (Left ends = LEFT_WORD; ends <= LEFT_OTHER; ends++) {
        Term such = term_cat(p->t, TERM_ALL, ending_with(p, ends));
        such = term_and2(p->t, part, such);
        all = term_or2(p->t, all, term_cat(p->t, such, build_parts(p, node, i + 1, rest, ends)));
    }
    return term_is_nullable(p->t, part)
               ? term_or2(p->t, all, build_parts(p, node, i + 1, rest, left))
               : all;
}

static Term build_rep(Parser *p, const Node *node, Term rest, Left left)
{
    const Node *of = node->of[0];
    uint32_t most = node->max == TERM_MANY ? node->min : node->max;
    Term term = rest;
    if (!of->anchored)
        return term_cat(
            p->t, term_rep(p->t, build(p, of, TERM_EMPTY, LEFT_ANY), node->min, node->max), rest);
    if (node->max == 0 || (of->zero && node->min == 0))
        return rest;
    if (of->zero)
        return build(p, of, rest, left);
    if (most > PATTERN_COPIES) {
        unsupported(p, "^, $, \\b or looking ahead in a group that is repeated so often");
        return TERM_NONE;
    }
    if (node->max == TERM_MANY) {
        term = term_loop(p->t, term_is_nullable(p->t, rest));
        Term is = term_or2(p->t, rest, build(p, of, term, LEFT_ANY));
        if (!p->err->code && !term_loop_is(p->t, term, is))
            unsupported(p, "^, $, \\b or looking ahead in a repeated group that may be empty");
        if (p->err->code)
            return TERM_NONE;
        if (node->min == 0 && of->begins && left == LEFT_NONE)
            return term_or2(p->t, rest, build(p, of, term, left));
    }
    for (uint32_t i = 0; i < most && !p->err->code; i++) {
        Term once = build(p, of, term, i + 1 == most ? left : LEFT_ANY);
        term = node->max != TERM_MANY && i < most - node->min ? term_or2(p->t, once, rest) : once;
    }
    return term;
}

static Term build(Parser *p, const Node *node, Term rest, Left left)
{
    Term term = TERM_NONE;
    switch (node->kind) {
    case NODE_TERM:
        return term_cat(p->t, node->term, rest);
    case NODE_CAT:
        return build_parts(p, node, 0, rest, left);
    case NODE_REP:
        return build_rep(p, node, rest, left);
    case NODE_BEGIN:
        return left == LEFT_NONE ? rest : TERM_NONE;
    case NODE_END:
        return term_is_nullable(p->t, rest) ? TERM_EMPTY : TERM_NONE;
    case NODE_BOUND:
        return build_bound(p, node, rest, left);
    case NODE_LOOK:
        term = build(p, node->of[0], TERM_ALL, left);
        return term_and2(p->t, node->negative ? term_not(p->t, term) : term, rest);
    case NODE_GROUP:
        if (p->group[node->group].referred)
            return term_cat(p->t, p->group[node->group].word, rest);
        return build(p, node->of[0], rest, left);
    case NODE_REFERENCE:
        return term_cat(p->t, p->group[node->group].word, rest);
    case NODE_ALT:
        for (size_t i = 0; i < node->n; i++)
            term = term_or2(p->t, term,
                            build(p, node->of[i], node->anchored ? rest : TERM_EMPTY, left));
        return node->anchored ? term : term_cat(p->t, term, rest);
    }
    return term;
}

static Term build_tree(Parser *p, const Node *tree, bool whole)
{
    if (whole)
        return build(p, tree, TERM_EMPTY, LEFT_NONE);
    Term later = TERM_NONE;
    for (Left left = LEFT_WORD; left <= LEFT_OTHER && tree->bounds; left++)
        later = term_or2(p->t, later,
                         term_cat(p->t, ending_with(p, left), build(p, tree, TERM_ALL, left)));
    if (tree->bounds)
        return term_or2(p->t, build(p, tree, TERM_ALL, LEFT_NONE), term_cat(p->t, TERM_ALL, later));
    later = term_cat(p->t, TERM_ALL, build(p, tree, TERM_ALL, LEFT_ANY));
    if (!tree->begins)
        return later;
    return term_or2(p->t, build(p, tree, TERM_ALL, LEFT_NONE),
                    term_cat(p->t, term_range(p->t, 0, 255), later));
}

/* Whether a group takes part exactly once in every match. */
static bool takes_part(const Node *node, size_t group)
{
    if (node->kind == NODE_GROUP && node->group == group)
        return true;
    bool through = node->kind == NODE_CAT || node->kind == NODE_GROUP ||
                   (node->kind == NODE_ALT && node->n == 1);
    for (size_t i = 0; through && i < node->n; i++)
        if (takes_part(node->of[i], group))
            return true;
    return false;
}

/* The union over the words of the groups from the i-th on that are referred to. */
static Term build_words(Parser *p, const Node *tree, bool whole, size_t i)
{
    while (i < p->n_groups && !p->group[i].referred)
        i++;
    if (i == p->n_groups)
        return build_tree(p, tree, whole);
    struct Group *group = &p->group[i];
    const char *word[PATTERN_WORDS];
    size_t length[PATTERN_WORDS], n = PATTERN_WORDS + 1;
    if (takes_part(tree, i) && !group->body->anchored) {
        group->referred = false;
        n = term_words(p->t, build(p, group->body, TERM_EMPTY, LEFT_ANY), PATTERN_WORDS, word,
                       length);
        group->referred = true;
    }
    if (n > PATTERN_WORDS) {
        unsupported(p, "a reference to a group that may be absent, or says one of many words,");
        return TERM_NONE;
    }
    Term all = TERM_NONE;
    for (size_t k = 0; k < n; k++) {
        group->word = term_text(p->t, word[k], length[k]);
        all = term_or2(p->t, all, build_words(p, tree, whole, i + 1));
    }
    return all;
}

int pattern_term(TermTable *terms, const char *text, size_t n, bool whole, Term *out, cvn_err *err)
{
    cvn_err local = {0};
    Parser p = {.t = terms, .arena = terms->arena, .text = text, .n = n, .err = &local};
    const Node *tree = parse_alternatives(&p);
    if (tree && p.at < n)
        bad(&p, "an unmatched )");
    if (!local.code && tree)
        *out = build_words(&p, tree, whole, 0);
    if (!local.code && terms->failed)
        err_set(&local, CVN_EUNSUPPORTED, "%s", terms->failed);
    return local.code ? err_set(err, local.code, "%s", local.message) : CVN_OK;
}
