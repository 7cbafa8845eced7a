/* Calls of tools in what a model wrote, by the syntax that its template has. */
#include "text/bytes_json.h"
#include "text/call_syntax.h"

#include <stdlib.h>
#include <string.h>

static const char NAMES[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
static const char BLANKS[] = " \t\r\n";

static const char *skip(const char *at, const char *these)
{
    return at + strspn(at, these);
}

/* How many bytes of a text are this piece of a syntax, or -1. White space counts for nothing; numbers and ids of calls may be others. */
static ptrdiff_t match(const char *text, const char *piece)
{
    static const char id[] = "call0000";
    const char *at = text;
    for (;;) {
        piece = skip(piece, BLANKS);
        if (!*piece)
            return at - text;
        at = skip(at, BLANKS);
        if (strncmp(piece, id, sizeof id - 1) == 0) {
            piece += sizeof id;
            size_t n = strspn(at, NAMES);
            if (!n)
                return -1;
            at += n;
        } else if (*piece >= '0' && *piece <= '9') {
            piece = skip(piece, "0123456789");
            if (*at < '0' || *at > '9')
                return -1;
            at = skip(at, "0123456789");
        } else if (*at++ != *piece++) {
            return -1;
        }
    }
}

int call_syntax_like(const CallSyntax *y, const char *text)
{
    enum { SIGN = 2 }; /* bytes: what is shorter is no sign of a call without a name behind it */
    const bool sign = strlen(skip(y->before, BLANKS)) >= SIGN;
    const char *next = skip(*y->between ? y->between : y->other.first, BLANKS);
    for (const char *piece = skip(y->before, BLANKS); *piece; piece = skip(piece, BLANKS)) {
        text = skip(text, BLANKS);
        if (!*text)
            return 0;
        if (*text++ != *piece++)
            return -1;
    }
    size_t n = strspn(text, NAMES);
    return sign ? 1 : !text[n] ? 0 : n && text[n] == *next ? 1 : -1;
}

/* ---- values ---- */

static const json_t *schema_of(const json_t *tools, const char *name, const char *key)
{
    for (size_t i = 0; i < json_array_size(tools) && name; i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *has = json_string_value(json_object_get(f, "name"));
        if (has && strcmp(has, name) == 0)
            return json_object_get(json_object_get(json_object_get(f, "parameters"), "properties"),
                                   key);
    }
    return NULL;
}

json_t *call_value(const json_t *tools, const char *name, const char *key, const char *text,
                   size_t n, bool string)
{
    static const char open[] = "<![CDATA[", close[] = "]]>";
    const char *type = json_string_value(json_object_get(schema_of(tools, name, key), "type"));
    if (n >= sizeof open + sizeof close - 2 && strncmp(text, open, sizeof open - 1) == 0 &&
        strncmp(text + n - (sizeof close - 1), close, sizeof close - 1) == 0) {
        text += sizeof open - 1; /* as XML has texts with marks in them */
        n -= sizeof open + sizeof close - 2;
        string = true;
    }
    SCOPED(scoped_free) char *copy = strndup(text, n);
    if (!copy)
        return NULL;
    const char *at = copy;
    json_t *value = (type ? strcmp(type, "string") == 0 : string) ? NULL : loose_value(&at);
    if (value && *skip(at, BLANKS)) { /* it only begins like one */
        json_decref(value);
        value = NULL;
    }
    return value ? value : bytes_json(text, n);
}

/* What is read, and where it goes. */
typedef struct Calls {
    const CallSyntax *syntax;
    const json_t *tools;
    json_t *list;
} Calls;

static int add_call(const Calls *c, const char *name, json_t *arguments)
{
    char id[16];
    snprintf(id, sizeof id, "call%05zu", json_array_size(c->list) % 100000);
    return json_array_append_new(c->list,
                                 json_pack("{s:s,s:s,s:{s:s,s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", arguments));
}

/* The JSON object that begins at *at, which is then behind it; NULL where there is none. */
static json_t *object_at(const char **at)
{
    json_error_t where;
    json_t *object = **at == '{' ? json_loads(*at, JSON_DISABLE_EOF_CHECK, &where) : NULL;
    if (object)
        *at += where.position;
    return object;
}

/* A piece without white space around it, and where it stands in a text; NULL: nowhere. */
static const char *find(const char *text, const char *piece, size_t *n)
{
    const char *from = skip(piece, BLANKS);
    for (*n = strlen(from); *n && strchr(BLANKS, from[*n - 1]);)
        --*n;
    return *n ? memmem(text, strlen(text), from, *n) : NULL;
}

/* The value at *at, which is then behind its end; NULL: it has none. */
static json_t *tagged_value(const Calls *c, const char *name, const char *key, bool string,
                            const char **at)
{
    const CallValue *v = string ? &c->syntax->string : &c->syntax->other;
    const bool told = strcmp(c->syntax->string.middle, c->syntax->other.middle) != 0;
    size_t n, blanks = strspn(v->end, BLANKS);
    const char *from = *at, *end = find(from, v->end, &n);
    if (!end)
        return NULL;
    *at = end + n;
    while (blanks && end > from && end[-1] == v->end[blanks - 1]) {
        blanks--;
        end--;
    }
    return call_value(c->tools, name, key, from, (size_t)(end - from), told && string);
}

/* How many bytes two pieces begin with alike, and end with. */
static void in_common(const char *a, const char *b, size_t *head, size_t *tail)
{
    const size_t n = strlen(a), m = strlen(b), least = n < m ? n : m;
    for (*head = 0; *head < least && a[*head] == b[*head];)
        ++*head;
    for (*tail = 0; *head + *tail < least && a[n - 1 - *tail] == b[m - 1 - *tail];)
        ++*tail;
}

/* A key whose mark has a word for the type of the value in it: key="a" type="string">. */
static char *typed_key(const CallSyntax *y, size_t head, size_t tail, const char **at, bool *string)
{
    const char *middle = y->string.middle, *suffix = middle + strlen(middle) - tail;
    const char *end = memmem(*at, strlen(*at), middle, head);
    const char *word = end ? end + head : NULL, *behind = word ? strstr(word, suffix) : NULL;
    if (!behind)
        return NULL;
    const size_t n = (size_t)(suffix - middle) - head;
    *string = (size_t)(behind - word) == n && memcmp(word, middle + head, n) == 0;
    char *key = strndup(*at, (size_t)(end - *at));
    *at = behind + tail;
    return key;
}

/* The key at *at, and whether the mark of a string follows; *at is then behind that. */
static char *tagged_key(const CallSyntax *y, const char **at, bool *string)
{
    const char *middle = y->other.middle;
    size_t n, head, tail;
    in_common(y->string.middle, middle, &head, &tail);
    if (head && tail && strcmp(middle, y->string.middle) != 0)
        return typed_key(y, head, tail, at, string);
    const char *end = find(*at, middle, &n);
    *string = false;
    if (!end)
        return NULL;
    char *key = strndup(*at, (size_t)(end - *at));
    *at = end + n;
    for (const char *blank = skip(middle, BLANKS) + n; *blank && *blank == **at; blank++)
        ++*at; /* what else is blank is of the value */
    return key;
}

/* Arguments between marks; *at is behind the name, then behind them. */
static json_t *tagged_arguments(const Calls *c, const char *name, const char **at)
{
    const CallSyntax *y = c->syntax;
    json_auto_t *all = json_object();
    ptrdiff_t n = match(*at, y->string.first);
    bool string = n >= 0;
    n = string ? n : match(*at, y->other.first);
    if (n < 0) {
        n = match(*at, y->none);
        *at += n > 0 ? n : 0;
        return n >= 0 ? json_incref(all) : NULL;
    }
    for (;;) {
        *at += n;
        SCOPED(scoped_free) char *key = tagged_key(y, at, &string);
        json_t *value = key ? tagged_value(c, name, key, string, at) : NULL;
        if (!value || json_object_set_new(all, key, value))
            return NULL;
        const CallValue *v = string ? &y->string : &y->other;
        const size_t end = strlen(v->end);
        n = match(*at, v->next + end);
        if (n < 0) {
            n = match(*at, v->close + end);
            *at += n > 0 ? n : 0;
            return n >= 0 ? json_incref(all) : NULL;
        }
    }
}

/* (key=value, …) */
static json_t *python_arguments(const char **at)
{
    json_auto_t *all = json_object();
    if (**at != '(')
        return NULL;
    for (*at = skip(*at + 1, BLANKS); **at && **at != ')'; *at = skip(*at, BLANKS)) {
        size_t n = strspn(*at, NAMES);
        SCOPED(scoped_free) char *key = strndup(*at, n);
        *at = skip(*at + n, BLANKS);
        if (!n || !key || *(*at)++ != '=')
            return NULL;
        json_t *value = loose_value(at);
        if (!value || json_object_set_new(all, key, value))
            return NULL;
        *at = skip(*at, BLANKS);
        if (**at == ',')
            ++*at;
        else if (**at != ')')
            return NULL;
    }
    if (!**at)
        return NULL;
    ++*at;
    return json_incref(all);
}

/* ---- calls ---- */

/* {"name": NAME, "arguments": {…}}, or {NAME: {…}}, at *at. */
static bool read_object(const Calls *c, const char **at)
{
    const char *from = *at;
    json_auto_t *object = object_at(&from);
    static const char *const names[] = {"name", "tool_name", "function"}, *const given[] = {
                                                                              "arguments",
                                                                              "parameters", "args"};
    const char *name = NULL;
    json_t *arguments = NULL;
    for (size_t i = 0; i < 3 && object; i++) {
        name = name ? name : json_string_value(json_object_get(object, names[i]));
        arguments = arguments ? arguments : json_object_get(object, given[i]);
    }
    if (!name && json_object_size(object) == 1) {
        void *only = json_object_iter(object);
        name = json_object_iter_key(only);
        arguments = json_object_iter_value(only);
    }
    if (!name || !json_is_object(arguments) || add_call(c, name, arguments))
        return false;
    *at = from;
    return true;
}

/* A name, and arguments behind it. */
static bool read_named(const Calls *c, const char **at)
{
    const CallSyntax *y = c->syntax;
    const char *from = skip(*at, BLANKS);
    size_t n = strspn(from, NAMES);
    SCOPED(scoped_free) char *name = strndup(from, n);
    json_auto_t *arguments = NULL;
    from += n;
    if (!n || !name)
        return false;
    switch (y->arguments) {
    case CALL_JSON: {
        ptrdiff_t m = match(from, y->between);
        from = m < 0 ? from : skip(from + m, BLANKS);
        arguments = m < 0 ? NULL : object_at(&from);
        break;
    }
    case CALL_TAGGED:
        arguments = tagged_arguments(c, name, &from);
        break;
    case CALL_PYTHON:
        arguments = python_arguments(&from);
        break;
    case CALL_BARE:
        arguments = *from == '{' ? loose_value(&from) : NULL;
        break;
    }
    if (!json_is_object(arguments) || add_call(c, name, arguments))
        return false;
    *at = from;
    return true;
}

/* Calls one behind the other at *at, which is then behind them. */
static bool read_some(const Calls *c, const char **at)
{
    const CallSyntax *y = c->syntax;
    const bool objects = y->arguments == CALL_JSON && strchr(y->before, '{');
    const char *from = *at;
    ptrdiff_t n = 0;
    if (!objects && (n = match(from, y->before)) < 0)
        return false;
    if (objects) {
        SCOPED(scoped_free) char *before = strndup(y->before, strcspn(y->before, "{"));
        n = before ? match(from, before) : -1;
        from = skip(n < 0 && y->mark ? from + strlen(y->mark) : from + (n > 0 ? n : 0), " \n[");
    } else {
        from += n;
    }
    if (!(objects ? read_object(c, &from) : read_named(c, &from)))
        return false;
    for (;;) {
        const char *next = objects ? skip(from, " \n,") : from;
        if (!objects && (!y->again || (n = match(from, y->again)) < 0))
            break;
        next += objects ? 0 : n;
        if (!(objects ? *next == '{' && read_object(c, &next) : read_named(c, &next)))
            break;
        from = next;
    }
    const char *end = objects ? skip(y->after, "} \n]") : y->after;
    from = objects ? skip(from, "} \n]") : from;
    n = match(from, end);
    *at = n > 0 ? skip(from + n, BLANKS) : from;
    return true;
}

void calls_read(const CallSyntax *y, const json_t *tools, const char *text, json_t *calls,
                StrBuf *rest)
{
    const Calls c = {y, tools, calls};
    const char *begin;
    while ((begin = y->mark ? strstr(text, y->mark) : skip(text, BLANKS))) {
        const char *at = begin;
        if (!*begin || !read_some(&c, &at))
            break;
        strbuf_add(rest, text, (size_t)(begin - text));
        text = at;
    }
    strbuf_puts(rest, text);
}
