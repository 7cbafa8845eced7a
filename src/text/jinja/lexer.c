/*
 * Template text to tokens. White space around tags goes by jinja2's rules with trim_blocks and lstrip_blocks:
 *
 *     -%}  -}}  -#}    takes all white space behind it          {%-  {{-  {#-   all before it
 *      %}       #}     takes one line end behind it             {%        {#    what stands before it on its line,
 *     +%}       +#}    takes nothing                            {%+  {{+  {#+   if only white space; {{ nothing
 */
#include "text/jinja/impl.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BRACKETS = JINJA_MAX_NESTING };

typedef struct JinjaLexer {
    const char *text; /* [n] arena: the source, with line ends as \n */
    size_t n, at;     /* bytes; where it is */
    size_t counted;   /* bytes whose line ends are in `line` */
    int line;
    Token *token; /* [n_tokens] arena */
    size_t n_tokens;
    Arena *arena;
    cvn_err *err;
    int rc;
} JinjaLexer;

static void lex_fail(JinjaLexer *l, const char *what)
{
    if (!l->rc)
        l->rc = err_set(l->err, CVN_EFORMAT, "line %d of the chat template: %s", l->line, what);
}

static void count_lines(JinjaLexer *l)
{
    for (; l->counted < l->at; l->counted++)
        l->line += l->text[l->counted] == '\n';
}

static Token *add(JinjaLexer *l, TokenKind kind, const char *text, size_t n)
{
    l->token = arena_more(l->arena, l->token, l->n_tokens, sizeof *l->token);
    Token *token = &l->token[l->n_tokens++];
    count_lines(l);
    *token = (Token){.kind = kind, .line = l->line, .text = text, .n = n};
    return token;
}

static bool looking_at(const JinjaLexer *l, const char *what)
{
    size_t n = strlen(what);
    return l->n - l->at >= n && memcmp(l->text + l->at, what, n) == 0;
}

static int point_at(const JinjaLexer *l, size_t at, uint32_t *point)
{
    int length = utf8_length(l->text + at, l->n - at);
    *point = length ? utf8_point(l->text + at, length) : 0;
    return length;
}

static void skip_space(JinjaLexer *l)
{
    uint32_t point;
    while (l->at < l->n) {
        int length = point_at(l, l->at, &point);
        if (!j_is_space(point))
            break;
        l->at += (size_t)length;
    }
}

/* Behind a tag's end: "-" was in it, or it ends a block or a comment, whose line end goes along. */
static void skip_behind(JinjaLexer *l, char sign, bool trims)
{
    if (sign == '-')
        skip_space(l);
    else if (trims && sign != '+' && l->at < l->n && l->text[l->at] == '\n')
        l->at++;
}

/* The text before a tag, from `begin`, without the white space that goes. */
static size_t text_before(const JinjaLexer *l, size_t begin, size_t tag, char sign, bool print)
{
    Str text = {l->text + begin, l->text, tag - begin};
    if (sign == '-')
        return begin + str_strip(text, NULL, false, true).n;
    if (sign == '+' || print)
        return tag;
    size_t line = tag;
    while (line > begin && l->text[line - 1] != '\n')
        line--;
    if (line == begin && begin > 0 && l->text[begin - 1] != '\n')
        return tag;
    text = (Str){l->text + line, l->text, tag - line};
    return str_strip(text, NULL, false, true).n ? tag : line;
}

/* A sign at the beginning of a tag. */
static char take_sign(JinjaLexer *l)
{
    char c = l->at < l->n ? l->text[l->at] : 0;
    if (c != '-' && c != '+')
        return 0;
    l->at++;
    return c;
}

/* ---- inside of tags ---- */

static void put_utf8(StrBuf *out, uint32_t point)
{
    if (point < 0x80) {
        strbuf_putc(out, (char)point);
        return;
    }
    int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    strbuf_putc(out, (char)(lead[more] | point >> (6 * more)));
    while (more-- > 0)
        strbuf_putc(out, (char)(0x80 | (point >> (6 * more) & 0x3f)));
}

/* \x41, \u0041, \U00000041 and \101: their digits, at p[0..n). Bytes read; 0 when it is none. */
static size_t read_code(const char *p, size_t n, uint32_t *point)
{
    static const struct {
        char letter;
        size_t digits;
    } code[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    *point = 0;
    for (size_t k = 0; k < 3; k++) {
        if (p[0] != code[k].letter)
            continue;
        for (size_t i = 1; i <= code[k].digits; i++) {
            char c = i < n ? p[i] : 0;
            int digit = c >= '0' && c <= '9'                 ? c - '0'
                        : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                             : -1;
            if (digit < 0 || *point > 0x10ffff)
                return 0;
            *point = *point * 16 + (uint32_t)digit;
        }
        return 1 + code[k].digits;
    }
    size_t i = 0;
    for (; i < 3 && i < n && p[i] >= '0' && p[i] <= '7'; i++)
        *point = *point * 8 + (uint32_t)(p[i] - '0');
    return i;
}

static void lex_string(JinjaLexer *l)
{
    static const char letter[] = "ntr\\'\"abfv\n", means[] = "\n\t\r\\'\"\a\b\f\v";
    char quote = l->text[l->at];
    size_t begin = l->at + 1, end = begin;
    while (end < l->n && l->text[end] != quote)
        end += l->text[end] == '\\' ? 2 : 1;
    if (end >= l->n) {
        lex_fail(l, "a string is not closed");
        return;
    }
    SCOPED(strbuf_free) StrBuf out = {0};
    for (size_t i = begin; i < end; i++) {
        const char *p = l->text + i;
        uint32_t point;
        size_t length;
        if (*p != '\\') {
            strbuf_putc(&out, *p);
            continue;
        }
        const char *known = strchr(letter, p[1]);
        if (known && p[1] == '\n') {
            i++;
        } else if (known && p[1]) {
            strbuf_putc(&out, means[known - letter]);
            i++;
        } else if ((length = read_code(p + 1, end - i - 1, &point))) {
            if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
                lex_fail(l, "an escape in a string does not encode a character");
            else
                put_utf8(&out, point);
            i += length;
        } else if (strchr("xuUN", p[1])) {
            lex_fail(l, "an escape in a string has too few digits or uses a name");
        } else {
            strbuf_putc(&out, '\\');
        }
    }
    if (out.failed && !l->rc)
        l->rc = err_set(l->err, CVN_EMEM, "no memory for the chat template");
    add(l, T_STRING, arena_stringn(l->arena, out.length ? out.text : "", out.length), out.length);
    l->at = end + 1;
}

static size_t digits(const JinjaLexer *l, size_t at)
{
    while (at < l->n && ((l->text[at] >= '0' && l->text[at] <= '9') ||
                         (l->text[at] == '_' && at + 1 < l->n && l->text[at + 1] >= '0' &&
                          l->text[at + 1] <= '9')))
        at++;
    return at;
}

static bool is_digit_at(const JinjaLexer *l, size_t at)
{
    return at < l->n && l->text[at] >= '0' && l->text[at] <= '9';
}

static void lex_number(JinjaLexer *l)
{
    size_t begin = l->at, end = digits(l, begin);
    bool real = false, after_dot = l->n_tokens && l->token[l->n_tokens - 1].kind == T_OPERATOR &&
                                   l->token[l->n_tokens - 1].text[0] == '.';
    if (!after_dot && end + 1 < l->n && l->text[end] == '.' && is_digit_at(l, end + 1)) {
        real = true;
        end = digits(l, end + 1);
    }
    if (!after_dot && end < l->n && (l->text[end] | 32) == 'e') {
        size_t sign = end + 1 < l->n && (l->text[end + 1] == '-' || l->text[end + 1] == '+');
        if (is_digit_at(l, end + 1 + sign)) {
            real = true;
            end = digits(l, end + 1 + sign);
        }
    }
    char number[64];
    size_t n = 0;
    for (size_t i = begin; i < end && n < sizeof number; i++)
        if (l->text[i] != '_')
            number[n++] = l->text[i];
    number[n < sizeof number ? n : 0] = 0;
    errno = 0;
    if (n == sizeof number || (!real && strtoll(number, NULL, 10) == INT64_MAX && errno)) {
        lex_fail(l, "a number has too many digits");
        return;
    }
    Token *token = add(l, real ? T_FLOAT : T_INT, l->text + begin, end - begin);
    token->value = real ? v_float(strtod(number, NULL)) : v_int(strtoll(number, NULL, 10));
    l->at = end;
}

static bool is_word(uint32_t point)
{
    UnicodeClass class = unicode_class(point);
    return point == '_' || class == UNICODE_LETTER || class == UNICODE_NUMBER;
}

static void lex_name(JinjaLexer *l)
{
    size_t begin = l->at;
    uint32_t point;
    for (int length; l->at < l->n && (length = point_at(l, l->at, &point)) && is_word(point);)
        l->at += (size_t)length;
    size_t end = l->at;
    l->at = begin;
    if (end == begin) {
        lex_fail(l, "unexpected character");
        end = l->n;
    } else {
        add(l, T_NAME, l->text + begin, end - begin);
    }
    l->at = end;
}

static void lex_operator(JinjaLexer *l, char bracket[MAX_BRACKETS], int *depth)
{
    static const char two[][3] = {"//", "**", "==", "!=", ">=", "<="};
    size_t n = 1;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (looking_at(l, two[i]))
            n = 2;
    const char *p = l->text + l->at;
    char closes = *p == '(' ? ')' : *p == '[' ? ']' : *p == '{' ? '}' : 0;
    if (closes && *depth == MAX_BRACKETS)
        lex_fail(l, "brackets are nested too deeply");
    else if (closes)
        bracket[(*depth)++] = closes;
    else if (strchr(")]}", *p) && (*depth == 0 || bracket[--*depth] != *p))
        lex_fail(l, "unmatched closing bracket");
    add(l, T_OPERATOR, p, n);
    l->at += n;
}

/* The tokens of a tag up to its end. */
static void lex_tag(JinjaLexer *l, bool print)
{
    const char *end = print ? "}}" : "%}";
    char bracket[MAX_BRACKETS];
    int depth = 0;
    while (!l->rc) {
        skip_space(l);
        count_lines(l);
        if (l->at >= l->n) {
            lex_fail(l, "a tag is not closed");
            return;
        }
        char c = l->text[l->at];
        bool sign = c == '-' || (c == '+' && !print);
        l->at += sign;
        if (depth == 0 && looking_at(l, end)) {
            add(l, print ? T_PRINT_END : T_BLOCK_END, NULL, 0);
            l->at += 2;
            skip_behind(l, sign ? c : 0, !print);
            return;
        }
        l->at -= sign;
        if (c == '\'' || c == '"')
            lex_string(l);
        else if (c >= '0' && c <= '9')
            lex_number(l);
        else if (c && strchr("+-/*%~[](){}=<>.:|,;!", c) && (c != '!' || looking_at(l, "!=")))
            lex_operator(l, bracket, &depth);
        else
            lex_name(l);
    }
}

/* "raw" at l->at, which stands behind {%: up to behind its {% endraw %}. False when it is another tag. */
static bool lex_raw(JinjaLexer *l)
{
    size_t tag = l->at;
    skip_space(l);
    bool raw = looking_at(l, "raw");
    l->at += raw ? 3 : 0;
    skip_space(l);
    bool minus = looking_at(l, "-%}");
    if (!raw || !(minus || looking_at(l, "%}"))) {
        l->at = tag;
        return false;
    }
    l->at += minus ? 3 : 2;
    if (minus)
        skip_space(l);
    for (size_t begin = l->at; l->at < l->n; l->at++) {
        if (!looking_at(l, "{%"))
            continue;
        size_t open = l->at;
        l->at += 2;
        char sign = take_sign(l);
        skip_space(l);
        bool ends = looking_at(l, "endraw");
        l->at += ends ? 6 : 0;
        skip_space(l);
        char last = take_sign(l);
        if (ends && looking_at(l, "%}")) {
            size_t text_end = text_before(l, begin, open, sign, false);
            size_t behind = l->at + 2;
            l->at = begin;
            if (text_end > begin)
                add(l, T_DATA, l->text + begin, text_end - begin);
            l->at = behind;
            skip_behind(l, last, true);
            return true;
        }
        l->at = open;
    }
    lex_fail(l, "a raw block is not closed");
    return true;
}

static void lex_comment(JinjaLexer *l)
{
    const char *end = memmem(l->text + l->at, l->n - l->at, "#}", 2);
    if (!end) {
        lex_fail(l, "a comment is not closed");
        return;
    }
    size_t begin = l->at;
    l->at = (size_t)(end - l->text);
    char sign = l->at > begin ? l->text[l->at - 1] : 0;
    l->at += 2;
    skip_behind(l, sign, true);
}

static void lex_text(JinjaLexer *l)
{
    size_t begin = l->at, tag = begin;
    while (tag + 1 < l->n &&
           !(l->text[tag] == '{' && strchr("{%#", l->text[tag + 1]) && l->text[tag + 1]))
        tag++;
    if (tag + 1 >= l->n) {
        add(l, T_DATA, l->text + begin, l->n - begin);
        l->at = l->n;
        return;
    }
    char kind = l->text[tag + 1];
    l->at = tag + 2;
    char sign = take_sign(l);
    size_t end = text_before(l, begin, tag, sign, kind == '{'), inside = l->at;
    l->at = begin;
    if (end > begin)
        add(l, T_DATA, l->text + begin, end - begin);
    l->at = inside;
    if (kind == '#') {
        lex_comment(l);
    } else if (kind == '{' || !lex_raw(l)) {
        add(l, kind == '{' ? T_PRINT : T_BLOCK, NULL, 0);
        lex_tag(l, kind == '{');
    }
}

int jinja_lex(const char *source, size_t n, Arena *arena, Token **tokens, cvn_err *err)
{
    if (n > JINJA_MAX_SOURCE)
        return err_set(err, CVN_EFORMAT, "the chat template has %zu KiB; at most %d are read",
                       n >> 10, JINJA_MAX_SOURCE >> 10);
    if (!utf8_valid(source, n))
        return err_set(err, CVN_EFORMAT, "the chat template is not UTF-8");
    char *text = arena_alloc(arena, n + 1);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        bool crlf = source[i] == '\r' && i + 1 < n && source[i + 1] == '\n';
        if (!crlf)
            text[length++] = source[i] == '\r' ? '\n' : source[i];
    }
    length -= length && text[length - 1] == '\n';
    JinjaLexer l = {.text = text, .n = length, .line = 1, .arena = arena, .err = err};
    while (!l.rc && l.at < l.n)
        lex_text(&l);
    add(&l, T_END, NULL, 0);
    *tokens = l.token;
    return l.rc;
}
