/* Reads grammars in GBNF and in Lark's notation, which grammar.h describes. */
#include "constrain/notation.h"

#include "constrain/pattern.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    Notation *out;
    const char *text;
    size_t n, at;
    bool lark;
    bool in_terminal; /* nothing is ignored between its parts */
    uint32_t ignored; /* rule of what is ignored */
    int depth;
    GrammarPart **ignores; /* [n_ignores] */
    uint32_t n_ignores;
    cvn_err *err;
} Reader;

/* Terminals of Lark's own grammar `common`. */
static const struct {
    const char *name, *regex;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT",
     "[+\\-]?(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

static GrammarPart *new_part(Solver *e, GrammarPart part)
{
    GrammarPart *copy = arena_alloc(&e->arena, sizeof *copy);
    *copy = part;
    return copy;
}

GrammarPart *part_term(Solver *e, Term term)
{
    return new_part(e, (GrammarPart){.kind = PART_TERM, .term = term});
}

GrammarPart *part_rule(Solver *e, uint32_t rule)
{
    return new_part(e, (GrammarPart){.kind = PART_RULE, .rule = rule});
}

GrammarPart *part_list(Solver *e, PartKind kind, GrammarPart **part, uint32_t n)
{
    if (n == 1)
        return part[0];
    GrammarPart *list = new_part(e, (GrammarPart){.kind = (uint8_t)kind, .n = n});
    list->part = arena_array(&e->arena, n + 1, sizeof *part);
    if (n)
        memcpy(list->part, part, n * sizeof *part);
    return list;
}

GrammarPart *part_repeat(Solver *e, GrammarPart *of, uint32_t min, uint32_t max)
{
    return new_part(e, (GrammarPart){.kind = PART_REPEAT,
                                     .min = min,
                                     .max = max,
                                     .part = arena_copy(&e->arena, &of, sizeof of),
                                     .n = 1});
}

uint32_t notation_rule(Notation *notation, const char *name, size_t n)
{
    bool added;
    uint64_t *id = map_put(&notation->names, name, n, &added);
    if (added) {
        Arena *arena = &notation->e->arena;
        *id = notation->n_rules;
        notation->rule =
            arena_more(arena, notation->rule, notation->n_rules, sizeof *notation->rule);
        notation->rule[notation->n_rules++] =
            (NamedRule){.name = arena_stringn(arena, name, n), .length = n};
    }
    return (uint32_t)*id;
}

static size_t line_of(const Reader *r)
{
    size_t line = 1;
    for (size_t i = 0; i < r->at && i < r->n; i++)
        line += r->text[i] == '\n';
    return line;
}

/* Records an error and returns NULL, which stands for a part that could not be read. */
static GrammarPart *wrong(Reader *r, const char *what)
{
    err_set(r->err, CVN_EFORMAT, "line %zu of the grammar: %s", line_of(r), what);
    return NULL;
}

static GrammarPart *refused(Reader *r, const char *what)
{
    err_set(r->err, CVN_EUNSUPPORTED, "line %zu of the grammar: %s is not supported", line_of(r),
            what);
    return NULL;
}

static int peek(const Reader *r)
{
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static bool take(Reader *r, const char *what)
{
    size_t n = strlen(what);
    if (r->n - r->at < n || memcmp(r->text + r->at, what, n) != 0)
        return false;
    r->at += n;
    return true;
}

static void skip_line(Reader *r)
{
    while (peek(r) >= 0 && peek(r) != '\n')
        r->at++;
}

static void skip_blanks(Reader *r)
{
    for (;;) {
        int c = peek(r);
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n')
            r->at++;
        else if ((c == '#') ||
                 (r->lark && c == '/' && r->at + 1 < r->n && r->text[r->at + 1] == '/'))
            skip_line(r);
        else
            return;
    }
}

static bool in_name(const Reader *r, int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (c == '-' && !r->lark);
}

static size_t name_length(const Reader *r)
{
    size_t n = 0;
    while (r->at + n < r->n && in_name(r, (unsigned char)r->text[r->at + n]))
        n++;
    return n;
}

static bool is_terminal(const char *name, size_t n)
{
    size_t i = 0;
    while (i < n && name[i] == '_')
        i++;
    return i < n && name[i] >= 'A' && name[i] <= 'Z';
}

/* Reads the head of a definition, if there is one here. */
static bool read_head(Reader *r, const char **name, size_t *n)
{
    size_t begin = r->at;
    while (r->lark && (peek(r) == '?' || peek(r) == '!'))
        r->at++;
    *name = r->text + r->at;
    *n = name_length(r);
    r->at += *n;
    if (*n && r->lark && peek(r) == '.' && r->at + 1 < r->n && r->text[r->at + 1] != '.') {
        r->at++;
        r->at += peek(r) == '-';
        while (peek(r) >= '0' && peek(r) <= '9')
            r->at++;
    }
    skip_blanks(r);
    if (*n && take(r, r->lark ? ":" : "::="))
        return true;
    r->at = begin;
    return false;
}

static bool at_head(Reader *r)
{
    const char *name;
    size_t begin = r->at, n;
    bool head = read_head(r, &name, &n);
    r->at = begin;
    return head;
}

/* Reads a character of a text or class, or an escape. False: there is none. */
static bool read_point(Reader *r, uint32_t *point)
{
    static const char letters[] = "ntrfv0", meant[] = "\n\t\r\f\v";
    int c = peek(r);
    if (c != '\\') {
        int n = c < 0 ? 0 : utf8_length(r->text + r->at, r->n - r->at);
        if (!n)
            return wrong(r, c < 0 ? "a string or character class is not closed" : "invalid UTF-8"),
                   false;
        *point = utf8_point(r->text + r->at, n);
        r->at += (size_t)n;
        return true;
    }
    r->at++;
    c = peek(r);
    r->at += c >= 0;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    *point = letter ? (unsigned char)meant[letter - letters] : (uint32_t)c;
    if (!letter && !digits &&
        ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c < 0 || c > 127 ||
         (c >= '1' && c <= '9')))
        return wrong(r, "unknown escape"), false;
    if (digits)
        *point = 0;
    for (int i = 0; i < digits; i++) {
        int digit = hex_digit(peek(r));
        if (digit < 0)
            return wrong(r, "an escape has too few digits"), false;
        *point = *point << 4 | (uint32_t)digit;
        r->at++;
    }
    if (*point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000))
        return wrong(r, "an escape does not encode a character"), false;
    return true;
}

static Term term_of_point(Reader *r, uint32_t point)
{
    return term_points(&r->out->e->terms, (const uint32_t[]){point, point}, 1);
}

/* Reads a text whose opening quote was read. */
static GrammarPart *read_text(Reader *r)
{
    TermTable *t = &r->out->e->terms;
    Term *list = NULL, term = TERM_EMPTY;
    uint32_t n = 0, point, only = 0;
    while (peek(r) != '"') {
        if (!read_point(r, &point))
            return NULL;
        list = arena_more(&r->out->e->arena, list, n, sizeof *list);
        list[n++] = only = point;
    }
    r->at++;
    bool any_case = r->lark && take(r, "i");
    size_t begin = r->at;
    skip_blanks(r);
    if (r->lark && take(r, "..")) {
        skip_blanks(r);
        if (n != 1 || !take(r, "\"") || !read_point(r, &point) || !take(r, "\"") || point < only)
            return wrong(r, "a range is two characters in order, \"a\"..\"z\"");
        return part_term(r->out->e, term_points(t, (const uint32_t[]){only, point}, 1));
    }
    r->at = begin;
    while (n-- > 0) {
        bool letter = any_case && (list[n] | 32) >= 'a' && (list[n] | 32) <= 'z';
        Term one = term_of_point(r, letter ? list[n] | 32 : list[n]);
        if (letter)
            one = term_or2(t, one, term_of_point(r, list[n] & ~32u));
        term = term_cat(t, one, term);
    }
    return part_term(r->out->e, term);
}

static int by_low(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* Reads a class whose opening bracket was read. */
static GrammarPart *read_class(Reader *r)
{
    Arena *arena = &r->out->e->arena;
    uint32_t(*range)[2] = NULL;
    uint32_t n = 0;
    bool negative = take(r, "^");
    while (peek(r) != ']') {
        range = arena_more(arena, range, n, sizeof *range);
        if (!read_point(r, &range[n][0]))
            return NULL;
        range[n][1] = range[n][0];
        bool spans = peek(r) == '-' && r->at + 1 < r->n && r->text[r->at + 1] != ']';
        r->at += spans;
        if (spans && !read_point(r, &range[n][1]))
            return NULL;
        if (range[n][1] < range[n][0])
            return wrong(r, "a range of characters is out of order");
        n++;
    }
    r->at++;
    if (negative) {
        uint32_t(*other)[2] = arena_array(arena, n + 1, sizeof *other), next = 0, kept = 0;
        if (n)
            qsort(range, n, sizeof *range, by_low);
        for (uint32_t i = 0; i < n; i++) {
            if (range[i][0] > next)
                memcpy(other[kept++], (uint32_t[]){next, range[i][0] - 1}, sizeof *other);
            next = range[i][1] + 1 > next ? range[i][1] + 1 : next;
        }
        if (next <= 0x10ffff)
            memcpy(other[kept++], (uint32_t[]){next, 0x10ffff}, sizeof *other);
        range = other;
        n = kept;
    }
    return part_term(r->out->e, term_points(&r->out->e->terms, n ? range[0] : NULL, n));
}

/* Reads a regular expression whose opening slash was read. */
static GrammarPart *read_regex(Reader *r)
{
    size_t begin = r->at;
    Term term;
    cvn_err why = {0};
    for (bool class = false; peek(r) != '/' || class; r->at++) {
        class = peek(r) == '[' || (class && peek(r) != ']');
        if (peek(r) == '\\')
            r->at++;
        if (peek(r) < 0 || peek(r) == '\n')
            return wrong(r, "a regular expression ends with /");
    }
    if (pattern_term(&r->out->e->terms, r->text + begin, r->at - begin, true, &term, &why)) {
        err_set(r->err, why.code, "line %zu of the grammar: %s", line_of(r), why.message);
        return NULL;
    }
    r->at++;
    if (name_length(r) && !take(r, "u"))
        return refused(r, "a regular expression with flags");
    return part_term(r->out->e, term);
}

/* The part, followed by what %ignore allows between tokens. */
static GrammarPart *ended(Reader *r, GrammarPart *part)
{
    if (!part || !r->lark || r->in_terminal)
        return part;
    GrammarPart *both[] = {part, part_rule(r->out->e, r->ignored)};
    return part_list(r->out->e, PART_ALL, both, 2);
}

static GrammarPart *read_alternatives(Reader *r);

static GrammarPart *read_group(Reader *r, const char *end, bool optional)
{
    GrammarPart *part = read_alternatives(r);
    skip_blanks(r);
    if (part && !take(r, end))
        return wrong(r, "a group is not closed");
    return part && optional ? part_repeat(r->out->e, part, 0, 1) : part;
}

static GrammarPart *read_atom(Reader *r)
{
    int c = peek(r);
    r->at++;
    if (c == '(')
        return read_group(r, ")", false);
    if (c == '[')
        return r->lark ? read_group(r, "]", true) : read_class(r);
    if (c == '"')
        return ended(r, read_text(r));
    if (c == '/' && r->lark)
        return ended(r, read_regex(r));
    if (c == '.' && !r->lark)
        return part_term(r->out->e, term_any_character(&r->out->e->terms));
    r->at--;
    if (c == '<' && !r->lark)
        return refused(r, "a token named by its text");
    size_t n = name_length(r);
    if (!n)
        return wrong(r, "a string, a group or a name is expected here");
    const char *name = r->text + r->at;
    r->at += n;
    if (r->lark && peek(r) == '{')
        return refused(r, "a template");
    bool terminal = r->lark && is_terminal(name, n);
    if (r->in_terminal && !terminal)
        return wrong(r, "a terminal may not name a rule");
    GrammarPart *part = part_rule(r->out->e, notation_rule(r->out, name, n));
    return terminal ? ended(r, part) : part;
}

static bool read_count(Reader *r, uint32_t *count)
{
    uint64_t value = 0;
    size_t begin = r->at;
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++)
        if ((value = value * 10 + (uint64_t)(peek(r) - '0')) > 100000)
            return refused(r, "a repetition of more than 100,000 times"), false;
    *count = (uint32_t)value;
    return r->at > begin || (wrong(r, "a repeat count is expected here"), false);
}

static GrammarPart *read_repeat(Reader *r, GrammarPart *part)
{
    for (int times = 0; part; times++) {
        uint32_t min = 0, max = TERM_MANY;
        size_t begin = r->at;
        if (!r->lark && take(r, "{")) {
            if (!read_count(r, &min))
                return NULL;
            max = min;
            if (take(r, ",")) {
                max = TERM_MANY;
                if (peek(r) != '}' && !read_count(r, &max))
                    return NULL;
            }
            if (!take(r, "}") || max < min)
                return wrong(r, "a repetition is {m}, {m,} or {m,n} with m <= n");
        } else if (take(r, "?")) {
            max = 1;
        } else if (take(r, "+")) {
            min = 1;
        } else if (!take(r, "*")) {
            skip_blanks(r);
            if (!r->lark || !take(r, "~")) {
                r->at = begin;
                return part;
            }
            skip_blanks(r);
            if (!read_count(r, &min))
                return NULL;
            max = min;
            if (take(r, "..") && !read_count(r, &max))
                return NULL;
            if (max < min)
                return wrong(r, "a repetition is ~m or ~m..n with m <= n");
        }
        if (times == GRAMMAR_DEPTH)
            return refused(r, "nesting repetitions this deeply");
        part = part_repeat(r->out->e, part, min, max);
    }
    return NULL;
}

static GrammarPart *read_sequence(Reader *r)
{
    GrammarPart **list = NULL;
    uint32_t n = 0;
    for (;;) {
        skip_blanks(r);
        int c = peek(r);
        if (c < 0 || c == '|' || c == ')' || (r->lark && (c == ']' || c == '%')) || at_head(r))
            break;
        if (r->lark && take(r, "->")) {
            skip_blanks(r);
            r->at += name_length(r);
            continue;
        }
        GrammarPart *part = read_repeat(r, read_atom(r));
        if (!part)
            return NULL;
        list = arena_more(&r->out->e->arena, list, n, sizeof *list);
        list[n++] = part;
    }
    return n ? part_list(r->out->e, PART_ALL, list, n) : part_term(r->out->e, TERM_EMPTY);
}

static GrammarPart *read_alternatives(Reader *r)
{
    GrammarPart **list = NULL;
    uint32_t n = 0;
    if (++r->depth > GRAMMAR_DEPTH)
        return refused(r, "nesting groups this deeply");
    do {
        GrammarPart *part = read_sequence(r);
        if (!part)
            return NULL;
        list = arena_more(&r->out->e->arena, list, n, sizeof *list);
        list[n++] = part;
    } while (take(r, "|"));
    r->depth--;
    return part_list(r->out->e, PART_ONE, list, n);
}

static bool define(Reader *r, const char *name, size_t n, GrammarPart *body)
{
    uint32_t rule = notation_rule(r->out, name, n);
    if (body && r->out->rule[rule].body)
        return wrong(r, "this rule is already defined"), false;
    r->out->rule[rule].body = body;
    return body != NULL;
}

/* "NAME", as which it is known here. */
static bool import_one(Reader *r)
{
    skip_blanks(r);
    const char *name = r->text + r->at;
    size_t n = name_length(r), known = n;
    const char *as = name;
    r->at += n;
    size_t begin = r->at;
    skip_blanks(r);
    if (take(r, "->")) {
        skip_blanks(r);
        as = r->text + r->at;
        known = name_length(r);
        r->at += known;
    } else {
        r->at = begin;
    }
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        Term term;
        if (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0 || !known)
            continue;
        if (pattern_term(&r->out->e->terms, common[i].regex, strlen(common[i].regex), true, &term,
                         r->err))
            return false;
        return define(r, as, known, part_term(r->out->e, term));
    }
    return refused(r, "this %import"), false;
}

static bool read_directive(Reader *r)
{
    if (take(r, "%ignore")) {
        r->in_terminal = true;
        GrammarPart *part = read_alternatives(r);
        r->in_terminal = false;
        r->ignores = arena_more(&r->out->e->arena, r->ignores, r->n_ignores, sizeof *r->ignores);
        r->ignores[r->n_ignores++] = part;
        return part != NULL;
    }
    if (!take(r, "%import"))
        return refused(r, "this directive"), false;
    skip_blanks(r);
    if (!take(r, "common"))
        return refused(r, "%import from other grammars than common"), false;
    if (take(r, "."))
        return import_one(r);
    skip_blanks(r);
    if (!take(r, "("))
        return wrong(r, "%import common.NAME or common (A, B) is expected"), false;
    do {
        if (!import_one(r))
            return false;
        skip_blanks(r);
    } while (take(r, ","));
    return take(r, ")") || (wrong(r, "a list of names ends with )"), false);
}

/* The rule with which a text begins: what %ignore allows, then the start rule. */
static void define_start(Reader *r)
{
    Solver *e = r->out->e;
    const char *name = r->lark ? "start" : "root";
    GrammarPart *both[] = {part_rule(e, r->ignored),
                           part_rule(e, notation_rule(r->out, name, strlen(name)))};
    if (!r->out->rule[both[1]->rule].body)
        err_set(r->err, CVN_EFORMAT, "the grammar has no rule '%s', its start rule", name);
    r->out->rule[r->out->start].body = part_list(e, PART_ALL, both, 2);
    r->out->rule[r->ignored].body =
        part_repeat(e, part_list(e, PART_ONE, r->ignores, r->n_ignores), 0, TERM_MANY);
}

static bool is_gbnf(const char *text, size_t n)
{
    for (size_t i = 0; i + 2 < n; i++)
        if (memcmp(text + i, "::=", 3) == 0)
            return true;
    return false;
}

int notation_read(Notation *out, const char *text, size_t n, cvn_err *err)
{
    Reader r = {.out = out, .text = text, .n = n, .lark = !is_gbnf(text, n), .err = err};
    out->start = notation_rule(out, "%start", 6);
    r.ignored = notation_rule(out, "%ignore", 7);
    for (skip_blanks(&r); r.at < n && !err->code; skip_blanks(&r)) {
        const char *name;
        size_t length;
        if (r.lark && peek(&r) == '%') {
            read_directive(&r);
        } else if (read_head(&r, &name, &length)) {
            r.in_terminal = r.lark && is_terminal(name, length);
            define(&r, name, length, read_alternatives(&r));
            r.in_terminal = false;
        } else {
            wrong(&r, r.lark ? "a rule is expected here, name: …"
                             : "a rule is expected here, name ::= …");
        }
    }
    if (!err->code)
        define_start(&r);
    for (uint32_t i = 0; i < out->n_rules && !err->code; i++)
        if (!out->rule[i].body)
            err_set(err, CVN_EFORMAT, "the grammar refers to the rule '%s', which is not defined",
                    out->rule[i].name);
    return err->code;
}
