#include "constrain/json.h"

#include "base/map.h"
#include "text/utf8.h"

#include <string.h>

typedef struct Reader {
    Arena *arena;
    const char *text;
    size_t at, n;
    int depth;
    cvn_err *err;
} Reader;

static void *fail(Reader *r, const char *what)
{
    err_set(r->err, CVN_EFORMAT, "not JSON at byte %zu: %s", r->at, what);
    return NULL;
}

static int peek(const Reader *r)
{
    return r->at < r->n ? (unsigned char)r->text[r->at] : -1;
}

static void skip_blanks(Reader *r)
{
    while (r->at < r->n && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at])
        r->at++;
}

int hex_digit(int c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

static int read_hex(Reader *r, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        int digit = hex_digit(peek(r));
        if (digit < 0)
            return -1;
        *out = *out << 4 | (unsigned)digit;
    }
    return 0;
}

/* What stands behind a backslash; 0 bytes after an error. */
static size_t read_escape(Reader *r, unsigned char *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    const char *letter = c > 0 ? strchr(letters, c) : NULL;
    if (letter) {
        r->at++;
        out[0] = (unsigned char)meant[letter - letters];
        return 1;
    }
    unsigned unit, low;
    if (c != 'u' || (r->at++, read_hex(r, &unit)))
        return 0;
    if (unit < 0xd800 || unit > 0xdfff)
        return (size_t)utf8_put(unit, out);
    if (unit >= 0xdc00 || peek(r) != '\\' || (r->at++, peek(r)) != 'u' ||
        (r->at++, read_hex(r, &low)) || low < 0xdc00 || low > 0xdfff)
        return 0;
    return (size_t)utf8_put(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00), out);
}

/* A character of ASCII that stands for itself in a string. */
static bool is_plain(unsigned char c)
{
    return c >= ' ' && c < 127 && c != '"' && c != '\\';
}

static bool read_string(Reader *r, JsonName *out)
{
    r->at++;
    size_t begin = r->at, plain = begin;
    while (plain < r->n && is_plain((unsigned char)r->text[plain]))
        plain++;
    for (r->at = plain; peek(r) != '"'; r->at++) {
        if (peek(r) < 0x20)
            return fail(r,
                        peek(r) < 0 ? "a string is not closed" : "a control character in a string"),
                   false;
        if (peek(r) == '\\')
            r->at++;
    }
    size_t end = r->at;
    char *text = arena_alloc(r->arena, end - begin + 1);
    size_t n = plain - begin;
    memcpy(text, r->text + begin, n);
    for (r->at = plain; r->at < end;) {
        if (peek(r) == '\\') {
            r->at++;
            size_t made = read_escape(r, (unsigned char *)text + n);
            if (!made)
                return fail(r, "an escape does not encode a character"), false;
            n += made;
            continue;
        }
        int length = utf8_length(r->text + r->at, end - r->at);
        if (!length)
            return fail(r, "invalid UTF-8"), false;
        memcpy(text + n, r->text + r->at, (size_t)length);
        n += (size_t)length;
        r->at += (size_t)length;
    }
    r->at = end + 1;
    *out = (JsonName){text, n};
    return true;
}

static bool digits(Reader *r)
{
    size_t begin = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return r->at > begin;
}

static bool read_number(Reader *r, JsonValue *value)
{
    size_t begin = r->at;
    r->at += peek(r) == '-';
    size_t first = r->at;
    if (!digits(r) || (r->text[first] == '0' && r->at > first + 1))
        return fail(r, "a value is expected"), false;
    if (peek(r) == '.' && (r->at++, !digits(r)))
        return fail(r, "a number has no digits after its decimal point"), false;
    if ((peek(r) | 32) == 'e') {
        r->at++;
        r->at += peek(r) == '+' || peek(r) == '-';
        if (!digits(r))
            return fail(r, "a number has no digits in its exponent"), false;
    }
    value->kind = JSON_K_NUMBER;
    value->length = r->at - begin;
    value->text = arena_stringn(r->arena, r->text + begin, value->length);
    return true;
}

static const JsonValue *read_value(Reader *r);

/* Puts a member behind the others, or in the place of the one that has its name. */
static void add_member(Reader *r, JsonValue *object, Map *names, JsonName name,
                       const JsonValue *value)
{
    bool added;
    uint64_t *place = map_put(names, name.text, name.length, &added);
    if (!added) {
        object->item[*place] = value;
        return;
    }
    *place = object->n;
    object->item = arena_more(r->arena, object->item, object->n, sizeof *object->item);
    object->name = arena_more(r->arena, object->name, object->n, sizeof *object->name);
    object->item[object->n] = value;
    object->name[object->n++] = name;
}

static const JsonValue *read_members(Reader *r, JsonValue *value, char close)
{
    Map names;
    map_init(&names, r->arena);
    value->kind = close == '}' ? JSON_K_OBJECT : JSON_K_ARRAY;
    if (++r->depth > JSON_DEPTH)
        return fail(r, "arrays and objects are nested too deeply");
    r->at++;
    skip_blanks(r);
    for (bool first = true; peek(r) != close || !first; first = false) {
        JsonName name = {0};
        skip_blanks(r);
        if (close == '}') {
            if (peek(r) != '"')
                return fail(r, "a member of an object needs a name");
            if (!read_string(r, &name))
                return NULL;
            skip_blanks(r);
            if (peek(r) != ':')
                return fail(r, "a colon is expected after a name");
            r->at++;
        }
        const JsonValue *item = read_value(r);
        if (!item)
            return NULL;
        if (close == '}') {
            add_member(r, value, &names, name, item);
        } else {
            value->item = arena_more(r->arena, value->item, value->n, sizeof *value->item);
            value->item[value->n++] = item;
        }
        if (peek(r) == close)
            break;
        if (peek(r) != ',')
            return fail(r, "a comma or the end of the array or object is expected");
        r->at++;
    }
    r->at++;
    r->depth--;
    return value;
}

/* A value with the blanks around it. */
static const JsonValue *read_value(Reader *r)
{
    static const struct {
        const char *text;
        JsonKind kind;
    } words[] = {{"null", JSON_K_NULL}, {"true", JSON_K_TRUE}, {"false", JSON_K_FALSE}};
    JsonValue *value = arena_alloc(r->arena, sizeof *value);
    skip_blanks(r);
    int c = peek(r);
    if (c == '{' || c == '[') {
        if (!read_members(r, value, c == '{' ? '}' : ']'))
            return NULL;
    } else if (c == '"') {
        JsonName string;
        if (!read_string(r, &string))
            return NULL;
        value->kind = JSON_K_STRING;
        value->text = string.text;
        value->length = string.length;
    } else if (c == 'n' || c == 't' || c == 'f') {
        size_t word = c == 'n' ? 0 : c == 't' ? 1 : 2, length = strlen(words[word].text);
        if (r->n - r->at < length || memcmp(r->text + r->at, words[word].text, length) != 0)
            return fail(r, "a value is expected");
        value->kind = words[word].kind;
        r->at += length;
    } else if (!read_number(r, value)) {
        return NULL;
    }
    skip_blanks(r);
    return value;
}

const JsonValue *json_tree(Arena *arena, const char *text, size_t n, cvn_err *err)
{
    Reader r = {.arena = arena, .text = text, .n = n, .err = err};
    const JsonValue *value = read_value(&r);
    return value && r.at < n ? fail(&r, "there is text after the value") : value;
}

const JsonValue *json_member(const JsonValue *value, const char *name, size_t length)
{
    if (value->kind != JSON_K_OBJECT)
        return NULL;
    for (size_t i = 0; i < value->n; i++)
        if (value->name[i].length == length && memcmp(value->name[i].text, name, length) == 0)
            return value->item[i];
    return NULL;
}

bool json_is(const JsonValue *value, const char *text)
{
    return value->kind == JSON_K_STRING && value->length == strlen(text) &&
           memcmp(value->text, text, value->length) == 0;
}

static void write_string(const char *text, size_t n, StrBuf *out)
{
    strbuf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        static const char meant[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
        unsigned char c = (unsigned char)text[i];
        const char *short_one = c ? strchr(meant, c) : NULL;
        if (short_one)
            strbuf_printf(out, "\\%c", letters[short_one - meant]);
        else if (c < 0x20)
            strbuf_printf(out, "\\u%04x", c);
        else
            strbuf_putc(out, (char)c);
    }
    strbuf_putc(out, '"');
}

void json_write(const JsonValue *value, StrBuf *out)
{
    static const char *const words[] = {"null", "false", "true"};
    if (value->kind <= JSON_K_TRUE) {
        strbuf_puts(out, words[value->kind]);
    } else if (value->kind == JSON_K_NUMBER) {
        strbuf_add(out, value->text, value->length);
    } else if (value->kind == JSON_K_STRING) {
        write_string(value->text, value->length, out);
    } else {
        bool object = value->kind == JSON_K_OBJECT;
        strbuf_putc(out, object ? '{' : '[');
        for (size_t i = 0; i < value->n; i++) {
            if (i)
                strbuf_putc(out, ',');
            if (object) {
                write_string(value->name[i].text, value->name[i].length, out);
                strbuf_putc(out, ':');
            }
            json_write(value->item[i], out);
        }
        strbuf_putc(out, object ? '}' : ']');
    }
}
