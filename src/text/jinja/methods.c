/*
 * The methods of strings, dictionaries and lists. Those that would change a value (append, pop, update …) are not
 * there, as in jinja2's immutable sandbox: they are known by name, so that a template that has them can be read, and
 * fail when they are reached.
 */
#include "text/jinja/impl.h"

#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

#define METHOD(name) static Value name(Run *r, Value self, const Value *arg, const Args *args)
#define UNUSED (void)arg, (void)args

static bool is_given(Value v)
{
    return v.type != V_ABSENT && v.type != V_NONE;
}

/* A parameter that must be a string; "" having failed where it is none. */
static Str str_arg(Run *r, Value v)
{
    if (v.type == V_STR)
        return *v.str;
    j_fail(r, "a method of a str is given a %s", v_type_name(v));
    return (Str){"", "", 0};
}

static Value strip(Run *r, Value self, Value characters, bool left, bool right)
{
    Str set = is_given(characters) ? str_arg(r, characters) : (Str){0};
    j_step(r, self.str->n / 64);
    Value v = v_str(r, str_strip(*self.str, is_given(characters) ? &set : NULL, left, right));
    v.flag = self.flag;
    return v;
}

METHOD(m_strip)
{
    (void)args;
    return strip(r, self, arg[0], true, true);
}

METHOD(m_lstrip)
{
    (void)args;
    return strip(r, self, arg[0], true, false);
}

METHOD(m_rstrip)
{
    (void)args;
    return strip(r, self, arg[0], false, true);
}

/* Where `what` is next in s, from `at` on or, from the right, before `at`; with what.n == 0 a run of white space, of
   which *end is the end. */
static size_t find_cut(Run *r, Str s, Str what, bool space, bool right, size_t at, size_t *end)
{
    size_t best = SIZE_MAX;
    int length;
    if (!space && !right) {
        best = str_find(r, s, what, at);
        *end = best + what.n;
        return best;
    }
    for (size_t i = right ? 0 : at; i < (right ? at : s.n) && j_step(r, 1); i += (size_t)length) {
        uint32_t point = str_point(s, i, &length);
        if (!space && i + what.n <= at && memcmp(s.text + i, what.text, what.n) == 0) {
            best = i;
            *end = i + what.n;
        } else if (space && !right && best != SIZE_MAX && *end != i) {
            break;
        } else if (space && j_is_space(point)) {
            best = best != SIZE_MAX && *end == i ? best : i;
            *end = i + (size_t)length;
        }
    }
    return best;
}

static Value split(Run *r, Value self, const Value *arg, bool right)
{
    bool space = !is_given(arg[0]);
    Str s = *self.str, what = space ? (Str){"", "", 0} : str_arg(r, arg[0]);
    int64_t most = is_given(arg[1]) ? v_to_int(r, arg[1], "the number of splits") : -1;
    Items parts = {0};
    if (!space && what.n == 0)
        return j_fail(r, "a str is split by an empty one");
    if (space)
        s = str_strip(s, NULL, !right, right);
    size_t from = 0, to = s.n, end = 0;
    for (int64_t n = 0; (most < 0 || n < most) && j_step(r, 1); n++) {
        size_t cut = find_cut(r, s, what, space, right, right ? to : from, &end);
        if (cut == SIZE_MAX)
            break;
        j_items_add(r, &parts, v_str(r, right ? str_part(s, end, to) : str_part(s, from, cut)));
        from = right ? from : end;
        to = right ? cut : to;
    }
    if (!space || from < to)
        j_items_add(r, &parts, v_str(r, str_part(s, from, to)));
    for (size_t i = 0; right && i < parts.n / 2; i++) {
        Value swap = parts.item[i];
        parts.item[i] = parts.item[parts.n - 1 - i];
        parts.item[parts.n - 1 - i] = swap;
    }
    return v_seq(r, V_LIST, parts.item, parts.n);
}

METHOD(m_split)
{
    (void)args;
    return split(r, self, arg, false);
}

METHOD(m_rsplit)
{
    (void)args;
    return split(r, self, arg, true);
}

static Value partition(Run *r, Value self, Value by, bool right)
{
    Str s = *self.str, what = str_arg(r, by);
    size_t end = 0,
           cut = what.n ? find_cut(r, s, what, false, right, right ? s.n : 0, &end) : SIZE_MAX;
    Value *three = j_take(r, 3 * sizeof *three);
    if (!what.n)
        return j_fail(r, "a str is split by an empty one");
    bool found = cut != SIZE_MAX;
    three[0] = v_str(r, found ? str_part(s, 0, cut) : right ? str_part(s, 0, 0) : s);
    three[1] = v_str(r, found ? str_part(s, cut, end) : str_part(s, 0, 0));
    three[2] = v_str(r, found ? str_part(s, end, s.n) : right ? s : str_part(s, 0, 0));
    return v_seq(r, V_TUPLE, three, 3);
}

METHOD(m_partition)
{
    (void)args;
    return partition(r, self, arg[0], false);
}

METHOD(m_rpartition)
{
    (void)args;
    return partition(r, self, arg[0], true);
}

METHOD(m_splitlines)
{
    UNUSED;
    Seq lines = str_lines(r, *self.str);
    return v_seq(r, V_LIST, lines.item, lines.n);
}

static bool begins(Str s, Str with)
{
    return s.n >= with.n && memcmp(s.text, with.text, with.n) == 0;
}

static bool ends(Str s, Str with)
{
    return s.n >= with.n && memcmp(s.text + s.n - with.n, with.text, with.n) == 0;
}

/* Whether one of what is given, a string or a tuple of them, stands at an end. */
static Value any_at(Run *r, Value self, Value what, bool (*at)(Str s, Str with))
{
    if (what.type != V_TUPLE)
        return v_bool(at(*self.str, str_arg(r, what)));
    bool found = false;
    for (size_t i = 0; i < what.seq->n && !found && j_step(r, 1); i++)
        found = at(*self.str, str_arg(r, what.seq->item[i]));
    return v_bool(found);
}

METHOD(m_startswith)
{
    (void)args;
    return any_at(r, self, arg[0], begins);
}

METHOD(m_endswith)
{
    (void)args;
    return any_at(r, self, arg[0], ends);
}

METHOD(m_removeprefix)
{
    (void)args;
    Str s = *self.str, prefix = str_arg(r, arg[0]);
    return begins(s, prefix) ? v_str(r, str_part(s, prefix.n, s.n)) : self;
}

METHOD(m_removesuffix)
{
    (void)args;
    Str s = *self.str, suffix = str_arg(r, arg[0]);
    return ends(s, suffix) ? v_str(r, str_part(s, 0, s.n - suffix.n)) : self;
}

METHOD(m_replace)
{
    (void)args;
    Str old = str_arg(r, arg[0]), new = str_arg(r, arg[1]);
    return str_replace(r, *self.str, old, new,
                       is_given(arg[2]) ? v_to_int(r, arg[2], "the count of replace") : -1);
}

METHOD(m_upper)
{
    UNUSED;
    return str_case(r, *self.str, CASE_UPPER);
}

METHOD(m_lower)
{
    UNUSED;
    return str_case(r, *self.str, CASE_LOWER);
}

METHOD(m_title)
{
    UNUSED;
    return str_case(r, *self.str, CASE_TITLE);
}

METHOD(m_capitalize)
{
    UNUSED;
    return str_case(r, *self.str, CASE_CAPITAL);
}

static Value find(Run *r, Value self, Value what, bool right)
{
    size_t end,
        at = find_cut(r, *self.str, str_arg(r, what), false, right, right ? self.str->n : 0, &end);
    return v_int(at == SIZE_MAX ? -1 : (int64_t)str_points(str_part(*self.str, 0, at)));
}

METHOD(m_find)
{
    (void)args;
    return find(r, self, arg[0], false);
}

METHOD(m_rfind)
{
    (void)args;
    return find(r, self, arg[0], true);
}

METHOD(m_count)
{
    (void)args;
    int64_t n = 0;
    if (self.type != V_STR) {
        for (size_t i = 0; i < self.seq->n && j_step(r, 1); i++)
            n += v_equal(r, self.seq->item[i], arg[0]);
        return v_int(n);
    }
    Str what = str_arg(r, arg[0]);
    if (what.n == 0)
        return v_int((int64_t)str_points(*self.str) + 1);
    for (size_t at = 0; (at = str_find(r, *self.str, what, at)) != SIZE_MAX; at += what.n)
        n++;
    return v_int(n);
}

METHOD(m_index)
{
    (void)args;
    if (self.type == V_STR) {
        Value at = find(r, self, arg[0], false);
        return at.i < 0 ? j_fail(r, "a str does not have what it is asked for") : at;
    }
    for (size_t i = 0; i < self.seq->n && j_step(r, 1); i++)
        if (v_equal(r, self.seq->item[i], arg[0]))
            return v_int((int64_t)i);
    return j_fail(r, "a list does not have what it is asked for");
}

METHOD(m_join)
{
    (void)args;
    Text text = {0};
    Seq items = v_items(r, arg[0]);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        if (i)
            j_text_add(r, &text, *self.str);
        j_text_add(r, &text, str_arg(r, items.item[i]));
    }
    return j_text_value(r, &text);
}

/* {}, {0}, {name}, {{ and }}; what else Python's has is refused. */
METHOD(m_format)
{
    (void)arg;
    Text text = {0};
    Str s = *self.str;
    Dict named = {args->named, args->n_named};
    size_t next = 0;
    for (size_t i = 0; i < s.n && j_step(r, 1); i++) {
        char c = s.text[i];
        if (c != '{' && c != '}') {
            j_text_add(r, &text, str_part(s, i, i + 1));
            continue;
        }
        if (i + 1 < s.n && s.text[i + 1] == c) {
            j_text_add(r, &text, str_part(s, i, i + 1));
            i++;
            continue;
        }
        size_t begin = i + 1, at = 0;
        while (i < s.n && s.text[i] != '}')
            i++;
        Str field = str_part(s, begin, i);
        const Value *value = NULL;
        for (size_t k = 0; k < field.n && k < 6; k++)
            at = field.text[k] >= '0' && field.text[k] <= '9'
                     ? at * 10 + (size_t)(field.text[k] - '0')
                     : SIZE_MAX / 100;
        if (c == '}' || i == s.n)
            return j_fail(r, "a format has a brace that has no other");
        at = field.n ? at : next++;
        if (at < args->n)
            value = &args->item[at];
        for (size_t k = 0; field.n && !value && k < named.n; k++)
            if (v_equal(r, named.pair[k].key, v_str(r, field)))
                value = &named.pair[k].value;
        if (!value)
            return j_fail(r, "a format has {%.*s}, for which there is no value",
                          field.n > 40 ? 40 : (int)field.n, field.text);
        j_write_value(r, &text, *value, false);
    }
    return j_text_value(r, &text);
}

static bool all_are(Run *r, Str s, bool (*is)(UnicodeClass))
{
    int length;
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length)
        if (!is(unicode_class(str_point(s, i, &length))))
            return false;
    return s.n > 0;
}

static bool is_letter(UnicodeClass c)
{
    return c == UNICODE_LETTER;
}

static bool is_number(UnicodeClass c)
{
    return c == UNICODE_NUMBER;
}

static bool is_either(UnicodeClass c)
{
    return is_letter(c) || is_number(c);
}

static bool is_white(UnicodeClass c)
{
    return c == UNICODE_SPACE;
}

METHOD(m_isdigit)
{
    UNUSED;
    return v_bool(all_are(r, *self.str, is_number));
}

METHOD(m_isalpha)
{
    UNUSED;
    return v_bool(all_are(r, *self.str, is_letter));
}

METHOD(m_isalnum)
{
    UNUSED;
    return v_bool(all_are(r, *self.str, is_either));
}

METHOD(m_isspace)
{
    UNUSED;
    return v_bool(all_are(r, *self.str, is_white));
}

static Value is_case(Run *r, Value self, const char *test)
{
    static const Args none = {0};
    return j_call_builtin(r, j_test_find(test), self, &none);
}

METHOD(m_islower)
{
    UNUSED;
    return is_case(r, self, "lower");
}

METHOD(m_isupper)
{
    UNUSED;
    return is_case(r, self, "upper");
}

/* ---- dictionaries ---- */

METHOD(m_get)
{
    (void)args;
    for (size_t i = 0; i < self.dict->n && j_step(r, 1); i++)
        if (v_equal(r, self.dict->pair[i].key, arg[0]))
            return self.dict->pair[i].value;
    return arg[1].type == V_ABSENT ? v_none() : arg[1];
}

static Value view(Run *r, const Items *items)
{
    Value v = v_seq(r, V_ITER, items->item, items->n);
    v.flag = true;
    return v;
}

METHOD(m_items)
{
    UNUSED;
    Value items = j_call_builtin(r, j_filter_find("items"), self, args);
    items.flag = items.type == V_ITER;
    return items;
}

METHOD(m_keys)
{
    UNUSED;
    Items items = {0};
    for (size_t i = 0; i < self.dict->n && j_step(r, 1); i++)
        j_items_add(r, &items, self.dict->pair[i].key);
    return view(r, &items);
}

METHOD(m_values)
{
    UNUSED;
    Items items = {0};
    for (size_t i = 0; i < self.dict->n && j_step(r, 1); i++)
        j_items_add(r, &items, self.dict->pair[i].value);
    return view(r, &items);
}

METHOD(m_copy)
{
    UNUSED;
    (void)r;
    return self; /* nothing changes */
}

METHOD(m_changes)
{
    UNUSED;
    return j_fail(r, "it wants to change a %s, and values cannot be changed; a namespace can",
                  v_type_name(self));
}

static const struct {
    ValueType type; /* of whose values it is a method; of lists, also of tuples and ranges */
    Builtin row;
} TABLE[] = {
    {V_STR, {.name = "strip", .run = m_strip, .parameter = {"chars"}}},
    {V_STR, {.name = "lstrip", .run = m_lstrip, .parameter = {"chars"}}},
    {V_STR, {.name = "rstrip", .run = m_rstrip, .parameter = {"chars"}}},
    {V_STR, {.name = "split", .run = m_split, .parameter = {"sep", "maxsplit"}}},
    {V_STR, {.name = "rsplit", .run = m_rsplit, .parameter = {"sep", "maxsplit"}}},
    {V_STR, {.name = "splitlines", .run = m_splitlines}},
    {V_STR, {.name = "partition", .run = m_partition, .required = 1, .parameter = {"sep"}}},
    {V_STR, {.name = "rpartition", .run = m_rpartition, .required = 1, .parameter = {"sep"}}},
    {V_STR, {.name = "startswith", .run = m_startswith, .required = 1, .parameter = {"prefix"}}},
    {V_STR, {.name = "endswith", .run = m_endswith, .required = 1, .parameter = {"suffix"}}},
    {V_STR,
     {.name = "removeprefix", .run = m_removeprefix, .required = 1, .parameter = {"prefix"}}},
    {V_STR,
     {.name = "removesuffix", .run = m_removesuffix, .required = 1, .parameter = {"suffix"}}},
    {V_STR,
     {.name = "replace", .run = m_replace, .required = 2, .parameter = {"old", "new", "count"}}},
    {V_STR, {.name = "upper", .run = m_upper}},
    {V_STR, {.name = "lower", .run = m_lower}},
    {V_STR, {.name = "title", .run = m_title}},
    {V_STR, {.name = "capitalize", .run = m_capitalize}},
    {V_STR, {.name = "find", .run = m_find, .required = 1, .parameter = {"sub"}}},
    {V_STR, {.name = "rfind", .run = m_rfind, .required = 1, .parameter = {"sub"}}},
    {V_STR, {.name = "index", .run = m_index, .required = 1, .parameter = {"sub"}}},
    {V_STR, {.name = "count", .run = m_count, .required = 1, .parameter = {"sub"}}},
    {V_STR, {.name = "join", .run = m_join, .required = 1, .parameter = {"iterable"}}},
    {V_STR, {.name = "format", .run = m_format, .any = true}},
    {V_STR, {.name = "isdigit", .run = m_isdigit}},
    {V_STR, {.name = "isnumeric", .run = m_isdigit}},
    {V_STR, {.name = "isalpha", .run = m_isalpha}},
    {V_STR, {.name = "isalnum", .run = m_isalnum}},
    {V_STR, {.name = "isspace", .run = m_isspace}},
    {V_STR, {.name = "islower", .run = m_islower}},
    {V_STR, {.name = "isupper", .run = m_isupper}},
    {V_DICT, {.name = "get", .run = m_get, .required = 1, .parameter = {"key", "default"}}},
    {V_DICT, {.name = "items", .run = m_items}},
    {V_DICT, {.name = "keys", .run = m_keys}},
    {V_DICT, {.name = "values", .run = m_values}},
    {V_DICT, {.name = "copy", .run = m_copy}},
    {V_LIST, {.name = "count", .run = m_count, .required = 1, .parameter = {"value"}}},
    {V_LIST, {.name = "index", .run = m_index, .required = 1, .parameter = {"value"}}},
    {V_LIST, {.name = "copy", .run = m_copy}},
};

/* What jinja2's sandbox does not let templates call, and what belongs to loops. */
static const char *const REFUSED[] = {"append",  "extend",     "insert",  "pop",
                                      "popitem", "remove",     "reverse", "sort",
                                      "clear",   "setdefault", "update"};
static const Builtin CHANGES = {.name = "changes", .run = m_changes, .any = true};

const Builtin *j_method_find(ValueType type, const char *name)
{
    if (type == V_TUPLE || type == V_RANGE)
        type = V_LIST;
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if ((type == V_ABSENT || TABLE[i].type == type) && strcmp(TABLE[i].row.name, name) == 0)
            return &TABLE[i].row;
    for (size_t i = 0; (type == V_ABSENT) && i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (strcmp(REFUSED[i], name) == 0)
            return &CHANGES;
    return type == V_ABSENT && (strcmp(name, "cycle") == 0 || strcmp(name, "changed") == 0)
               ? &CHANGES
               : NULL;
}
