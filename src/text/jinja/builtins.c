/* The tests (`is defined`) and functions (`range()`). */
#include "text/jinja/impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- tests ---- */

#define TEST(name) static Value name(Run *r, Value self, const Value *arg, const Args *args)
#define UNUSED (void)r, (void)arg, (void)args

TEST(t_defined)
{
    UNUSED;
    return v_bool(self.type != V_UNDEFINED);
}

TEST(t_undefined)
{
    UNUSED;
    return v_bool(self.type == V_UNDEFINED);
}

TEST(t_none)
{
    UNUSED;
    return v_bool(self.type == V_NONE);
}

TEST(t_boolean)
{
    UNUSED;
    return v_bool(self.type == V_BOOL);
}

TEST(t_true)
{
    UNUSED;
    return v_bool(self.type == V_BOOL && self.b);
}

TEST(t_false)
{
    UNUSED;
    return v_bool(self.type == V_BOOL && !self.b);
}

TEST(t_integer)
{
    UNUSED;
    return v_bool(self.type == V_INT);
}

TEST(t_float)
{
    UNUSED;
    return v_bool(self.type == V_FLOAT);
}

TEST(t_number)
{
    UNUSED;
    return v_bool(v_is_number(self));
}

TEST(t_string)
{
    UNUSED;
    return v_bool(self.type == V_STR);
}

TEST(t_mapping)
{
    UNUSED;
    return v_bool(self.type == V_DICT);
}

TEST(t_sequence)
{
    UNUSED;
    return v_bool(self.type == V_STR || self.type == V_DICT || self.type == V_UNDEFINED ||
                  (v_is_seq(self) && self.type != V_ITER));
}

TEST(t_iterable)
{
    UNUSED;
    return v_bool(self.type == V_STR || self.type == V_DICT || self.type == V_UNDEFINED ||
                  v_is_seq(self) || self.type == V_LOOP);
}

TEST(t_callable)
{
    UNUSED;
    return v_bool(self.type >= V_MACRO || self.type == V_UNDEFINED);
}

TEST(t_odd)
{
    UNUSED;
    return v_bool(v_to_int(r, self, "what is odd or not") % 2 != 0);
}

TEST(t_even)
{
    UNUSED;
    return v_bool(v_to_int(r, self, "what is even or not") % 2 == 0);
}

TEST(t_divisibleby)
{
    (void)args;
    int64_t by = v_to_int(r, arg[0], "the divisor"), n = v_to_int(r, self, "what is divided");
    return by == 0 ? j_fail(r, "a number is divided by 0") : v_bool(by == -1 || n % by == 0);
}

TEST(t_eq)
{
    (void)args;
    return v_bool(v_equal(r, self, arg[0]));
}

TEST(t_ne)
{
    (void)args;
    return v_bool(!v_equal(r, self, arg[0]));
}

TEST(t_lt)
{
    (void)args;
    return v_bool(v_order(r, self, arg[0]) < 0);
}

TEST(t_le)
{
    (void)args;
    return v_bool(v_order(r, self, arg[0]) <= 0);
}

TEST(t_gt)
{
    (void)args;
    return v_bool(v_order(r, self, arg[0]) > 0);
}

TEST(t_ge)
{
    (void)args;
    return v_bool(v_order(r, self, arg[0]) >= 0);
}

TEST(t_in)
{
    (void)args;
    return v_bool(v_in(r, self, arg[0]));
}

TEST(t_sameas)
{
    (void)args;
    return v_bool(self.type == arg[0].type && v_equal(r, self, arg[0]));
}

static bool has_case(Run *r, Value self, Case which)
{
    Str text = v_text(r, self);
    return v_equal(r, v_str(r, text), str_case(r, text, which)) &&
           !v_equal(r, str_case(r, text, CASE_UPPER), str_case(r, text, CASE_LOWER));
}

TEST(t_lower)
{
    UNUSED;
    return v_bool(has_case(r, self, CASE_LOWER));
}

TEST(t_upper)
{
    UNUSED;
    return v_bool(has_case(r, self, CASE_UPPER));
}

#define OTHER(n, f)                                                                                \
    {                                                                                              \
        .name = n, .run = f, .required = 1, .parameter = { "other" }                               \
    }

static const Builtin TESTS[] = {
    {.name = "boolean", .run = t_boolean},
    {.name = "callable", .run = t_callable},
    {.name = "defined", .run = t_defined},
    {.name = "even", .run = t_even},
    {.name = "false", .run = t_false},
    {.name = "float", .run = t_float},
    {.name = "integer", .run = t_integer},
    {.name = "iterable", .run = t_iterable},
    {.name = "lower", .run = t_lower},
    {.name = "mapping", .run = t_mapping},
    {.name = "none", .run = t_none},
    {.name = "number", .run = t_number},
    {.name = "odd", .run = t_odd},
    {.name = "sequence", .run = t_sequence},
    {.name = "string", .run = t_string},
    {.name = "true", .run = t_true},
    {.name = "undefined", .run = t_undefined},
    {.name = "upper", .run = t_upper},
    OTHER("divisibleby", t_divisibleby),
    OTHER("eq", t_eq),
    OTHER("equalto", t_eq),
    OTHER("==", t_eq),
    OTHER("ne", t_ne),
    OTHER("!=", t_ne),
    OTHER("lt", t_lt),
    OTHER("lessthan", t_lt),
    OTHER("<", t_lt),
    OTHER("le", t_le),
    OTHER("<=", t_le),
    OTHER("gt", t_gt),
    OTHER("greaterthan", t_gt),
    OTHER(">", t_gt),
    OTHER("ge", t_ge),
    OTHER(">=", t_ge),
    OTHER("in", t_in),
    OTHER("sameas", t_sameas),
};

/* ---- functions ---- */

TEST(g_range)
{
    (void)self;
    (void)args;
    bool one = arg[1].type == V_ABSENT;
    int64_t from = one ? 0 : v_to_int(r, arg[0], "the begin of a range");
    int64_t to = v_to_int(r, arg[!one], "the end of a range"),
            by = arg[2].type == V_ABSENT ? 1 : v_to_int(r, arg[2], "the pace of a range");
    Items items = {0};
    if (by == 0)
        return j_fail(r, "a range has pace 0");
    for (int64_t i = from; (by > 0 ? i < to : i > to) && j_step(r, 1);) {
        if (items.n == JINJA_MAX_RANGE)
            return j_fail(r, "a range has more than %d numbers", JINJA_MAX_RANGE);
        j_items_add(r, &items, v_int(i));
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    return v_seq(r, V_RANGE, items.item, items.n);
}

/* What dict() and namespace() are given: a dictionary, and members by name. */
static Value members(Run *r, const Args *args, ValueType type)
{
    Dict *dict = j_take(r, sizeof *dict);
    if (args->n > 1 || (args->n == 1 && args->item[0].type != V_DICT))
        return j_fail(r, "a dictionary is made of a dictionary, or of names and values");
    for (size_t i = 0; args->n && i < args->item[0].dict->n && !r->rc; i++)
        j_dict_set(r, dict, args->item[0].dict->pair[i].key, args->item[0].dict->pair[i].value);
    for (size_t i = 0; i < args->n_named && !r->rc; i++)
        j_dict_set(r, dict, args->named[i].key, args->named[i].value);
    for (size_t i = 0; type == V_NAMESPACE && i < dict->n; i++)
        if (dict->pair[i].key.type == V_STR && dict->pair[i].key.str->n &&
            dict->pair[i].key.str->text[0] == '_')
            return j_fail(r, "a namespace has no attributes that begin with _");
    return (Value){.type = type, .dict = dict};
}

TEST(g_dict)
{
    (void)self;
    (void)arg;
    return members(r, args, V_DICT);
}

TEST(g_namespace)
{
    (void)self;
    (void)arg;
    return members(r, args, V_NAMESPACE);
}

TEST(g_raise)
{
    (void)self;
    (void)args;
    Str text = v_text(r, arg[0]);
    if (!r->rc)
        r->rc = err_set(r->err, CVN_EINVAL, "%.*s", (int)(text.n < 400 ? text.n : 400), text.text);
    return v_undefined(NULL);
}

TEST(g_strftime)
{
    (void)self;
    (void)args;
    char format[200] = " ", text[400];
    if (!r->input->now)
        return j_fail(r, "it asks for the time, which it was not given");
    if (arg[0].type != V_STR || arg[0].str->n > sizeof format - 2)
        return j_fail(r, "strftime_now wants a format of at most %zu bytes", sizeof format - 2);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                     \
    "-Wformat-nonliteral" /* the template's own format is what is wanted */
    /* A byte in front, as an empty result and one that does not fit are the same to strftime. */
    memcpy(format + 1, arg[0].str->text, arg[0].str->n);
    format[arg[0].str->n + 1] = 0;
    size_t n = strftime(text, sizeof text, format, r->input->now);
#pragma GCC diagnostic pop
    if (n == 0)
        return j_fail(r, "a time has more than %zu bytes", sizeof text);
    Text out = {0};
    j_text_bytes(r, &out, text + 1, n - 1, str_mark(*arg[0].str));
    return j_text_value(r, &out);
}

static const Builtin FUNCTIONS[] = {
    {.name = "range", .run = g_range, .required = 1, .parameter = {"start", "stop", "step"}},
    {.name = "dict", .run = g_dict, .any = true},
    {.name = "namespace", .run = g_namespace, .any = true},
    {.name = "raise_exception", .run = g_raise, .required = 1, .parameter = {"message"}},
    {.name = "strftime_now", .run = g_strftime, .required = 1, .parameter = {"format"}},
};

static const Builtin *find_row(const Builtin *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const Builtin *j_test_find(const char *name)
{
    return find_row(TESTS, sizeof TESTS / sizeof *TESTS, name);
}

const Builtin *j_function_find(const char *name)
{
    return find_row(FUNCTIONS, sizeof FUNCTIONS / sizeof *FUNCTIONS, name);
}
