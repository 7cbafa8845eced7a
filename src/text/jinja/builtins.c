/*
 * The table of everything that templates can call (builtins.def), finding and calling its rows; tests, numbers, loops and global functions.
 */
#include "text/jinja/builtins.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(kind, type, name, run, which, required, ...)                                           \
    {kind, V_##type, name, run, which, required, {__VA_ARGS__}},
static const Builtin TABLE[] = {
#include "text/jinja/builtins.def"
};

const Builtin *j_builtin_find(BuiltinKind kind, const char *name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (TABLE[i].kind == kind && strcmp(TABLE[i].name, name) == 0)
            return &TABLE[i];
    return NULL;
}

const Builtin *j_method_find(ValueType type, const char *name)
{
    if (type == V_TUPLE || type == V_RANGE)
        type = V_LIST;
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (TABLE[i].kind == METHOD && TABLE[i].type == type && strcmp(TABLE[i].name, name) == 0)
            return &TABLE[i];
    return NULL;
}

bool j_method_is_known(const char *name)
{
    /* These are functions that jinja2's sandbox refuses to call. A template that has them can be read, and fails when it calls one. */
    static const char *const refused[] = {"append",  "extend",     "insert",  "pop",
                                          "popitem", "remove",     "reverse", "sort",
                                          "clear",   "setdefault", "update"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (strcmp(refused[i], name) == 0)
            return true;
    return j_builtin_find(METHOD, name) != NULL;
}

JinjaValue *j_named_arg(const JinjaArgs *args, const char *name)
{
    Dict named = {args->named, args->n_named};
    return j_dict_get(&named, name);
}

JinjaValue j_call_builtin(JinjaRun *r, const Builtin *row, JinjaValue self, const JinjaArgs *args)
{
    JinjaValue arg[MAX_PARAMETERS] = {0};
    int n = 0;
    while (n < MAX_PARAMETERS && row->parameter[n])
        n++;
    if (r->rc)
        return v_undefined(NULL);
    if (row->required != ANY) {
        size_t used = 0;
        if (args->n > (size_t)n)
            return j_fail(r, "'%s' takes at most %d arguments", row->name, n);
        for (int i = 0; i < n; i++) {
            const JinjaValue *named = j_named_arg(args, row->parameter[i]);
            if (named && (size_t)i < args->n)
                return j_fail(r, "'%s' is given '%s' twice", row->name, row->parameter[i]);
            used += named != NULL;
            arg[i] = (size_t)i < args->n ? args->item[i] : named ? *named : (JinjaValue){0};
            if (i < row->required && arg[i].type == V_ABSENT)
                return j_fail(r, "'%s' needs '%s'", row->name, row->parameter[i]);
        }
        if (used < args->n_named)
            return j_fail(r, "'%s' has no parameter of that name", row->name);
    }
    return row->run(r, &(JinjaCall){row, self, arg, args});
}

int64_t j_int_or(JinjaRun *r, JinjaValue v, int64_t usual, const char *what)
{
    return v.type == V_ABSENT ? usual : v_to_int(r, v, what);
}

/* ---- tests ---- */

JinjaValue b_is_type(JinjaRun *r, const JinjaCall *c)
{
    (void)r;
    return v_bool(c->row->which >> c->self.type & 1);
}

JinjaValue b_is_bool(JinjaRun *r, const JinjaCall *c)
{
    (void)r;
    return v_bool(c->self.type == V_BOOL && c->self.b == (bool)c->row->which);
}

JinjaValue b_is_odd(JinjaRun *r, const JinjaCall *c)
{
    return v_bool((v_to_int(r, c->self, "what is odd or even") % 2 != 0) == (bool)c->row->which);
}

JinjaValue b_divisibleby(JinjaRun *r, const JinjaCall *c)
{
    int64_t by = v_to_int(r, c->arg[0], "the divisor"), n = v_to_int(r, c->self, "what is divided");
    return by == 0 ? j_fail(r, "division by zero") : v_bool(by == -1 || n % by == 0);
}

JinjaValue b_compare(JinjaRun *r, const JinjaCall *c)
{
    return v_bool(j_compare(r, (JinjaOp)c->row->which, c->self, c->arg[0]));
}

JinjaValue b_sameas(JinjaRun *r, const JinjaCall *c)
{
    return v_bool(c->self.type == c->arg[0].type && v_equal(r, c->self, c->arg[0]));
}

JinjaValue b_default(JinjaRun *r, const JinjaCall *c)
{
    bool use = c->self.type == V_UNDEFINED || (v_true(c->arg[1]) && !v_true(c->self));
    return !use ? c->self : c->arg[0].type == V_ABSENT ? v_own(r, "") : c->arg[0];
}

/* ---- numbers ---- */

/* ---- of one value ---- */
JinjaValue b_abs(JinjaRun *r, const JinjaCall *c)
{
    if (c->self.type == V_INT && c->self.i < 0 && c->self.i != INT64_MIN)
        return v_int(-c->self.i);
    if (c->self.type == V_FLOAT)
        return v_float(fabs(c->self.f));
    return v_is_number(c->self) ? c->self : j_fail(r, "abs of a %s", v_type_name(c->self));
}

/* A string as a number; false when it is none. */
static bool read_number(JinjaRun *r, Str s, int base, double *real, int64_t *whole, bool *is_whole)
{
    char digits[64], *end;
    s = str_strip(s, NULL, true, true);
    if (s.n == 0 || s.n >= sizeof digits || r->rc)
        return false;
    memcpy(digits, s.text, s.n);
    digits[s.n] = 0;
    size_t sign = digits[0] == '-' || digits[0] == '+';
    *is_whole = s.n - sign <= 18 && isxdigit((unsigned char)digits[sign]);
    *whole = strtoll(digits, &end, base);
    *is_whole &= *end == 0;
    if (strspn(digits, "+-0123456789.eE") != s.n)
        return *is_whole;
    *real = strtod(digits, &end);
    return *end == 0 || *is_whole;
}

/* A number as one of type `which`, V_INT or V_FLOAT, or what is given in its place. */
JinjaValue b_number(JinjaRun *r, const JinjaCall *c)
{
    const bool to_int = c->row->which == V_INT;
    const JinjaValue usual = c->arg[0].type != V_ABSENT ? c->arg[0]
                             : to_int                   ? v_int(0)
                                                        : v_float(0);
    int64_t base = to_int ? j_int_or(r, c->arg[1], 10, "the base") : 10, whole;
    double real = 0;
    bool is_whole;
    JinjaValue v = c->self;
    if (v.type == V_UNDEFINED)
        return j_fail(r, "'%.60s' is undefined, and a number is expected",
                      v.missing ? v.missing : "");
    if (v.type == V_STR) {
        if (base < 2 || base > 36 || !read_number(r, *v.str, (int)base, &real, &whole, &is_whole))
            return usual;
        v = to_int && is_whole ? v_int(whole) : v_float(real);
    }
    if (!v_is_number(v))
        return usual;
    if (!to_int)
        return v_float(v_real(v));
    if (v.type != V_FLOAT)
        return v_int(v.type == V_INT ? v.i : v.b);
    return fabs(v.f) < 9e18 ? v_int((int64_t)v.f) : usual;
}

JinjaValue b_round(JinjaRun *r, const JinjaCall *c)
{
    int64_t digits = j_int_or(r, c->arg[0], 0, "the precision of round");
    if (!v_is_number(c->self) || digits < -300 || digits > 300)
        return j_fail(r, "round of a %s", v_type_name(c->self));
    double x = v_real(c->self), scale = pow(10, (double)digits);
    if (c->arg[1].type == V_STR && str_is(*c->arg[1].str, "ceil"))
        return v_float(ceil(x * scale) / scale);
    if (c->arg[1].type == V_STR && str_is(*c->arg[1].str, "floor"))
        return v_float(floor(x * scale) / scale);
    char text[700];
    if (digits < 0)
        return v_float(nearbyint(x * scale) / scale);
    snprintf(text, sizeof text, "%.*f", (int)digits, x);
    return c->self.type == V_FLOAT ? v_float(strtod(text, NULL)) : c->self;
}

/* ---- loops ---- */

JinjaValue b_cycle(JinjaRun *r, const JinjaCall *c)
{
    return c->args->n ? c->args->item[c->self.loop->i % c->args->n]
                      : j_fail(r, "cycle needs at least one item");
}

JinjaValue b_changed(JinjaRun *r, const JinjaCall *c)
{
    JinjaLoop *loop = c->self.loop;
    JinjaValue now = v_seq(r, V_TUPLE, c->args->item, c->args->n);
    bool changed = loop->last.type == V_ABSENT || !v_equal(r, loop->last, now);
    loop->last = now;
    return v_bool(changed);
}

/* ---- functions ---- */

/* ---- functions ---- */
JinjaValue b_range(JinjaRun *r, const JinjaCall *c)
{
    bool one = c->arg[1].type == V_ABSENT;
    int64_t from = one ? 0 : v_to_int(r, c->arg[0], "the start of a range");
    int64_t to = v_to_int(r, c->arg[!one], "the end of a range"),
            by = c->arg[2].type == V_ABSENT ? 1 : v_to_int(r, c->arg[2], "the step of a range");
    Items items = {0};
    if (by == 0)
        return j_fail(r, "a range has step 0");
    for (int64_t i = from; (by > 0 ? i < to : i > to) && j_step(r, 1);) {
        if (items.n == JINJA_MAX_RANGE)
            return j_fail(r, "a range has more than %d numbers", JINJA_MAX_RANGE);
        j_items_add(r, &items, v_int(i));
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    return v_seq(r, V_RANGE, items.item, items.n);
}

/* The arguments of dict() and namespace(): a dictionary, and members by name. */
JinjaValue b_dict(JinjaRun *r, const JinjaCall *c)
{
    const JinjaArgs *args = c->args;
    const ValueType type = (ValueType)c->row->which;
    Dict *dict = j_take(r, sizeof *dict);
    if (args->n > 1 || (args->n == 1 && args->item[0].type != V_DICT))
        return j_fail(r, "dict takes a dictionary or named arguments");
    for (size_t i = 0; args->n && i < args->item[0].dict->n && !r->rc; i++)
        j_dict_set(r, dict, args->item[0].dict->pair[i].key, args->item[0].dict->pair[i].value);
    for (size_t i = 0; i < args->n_named && !r->rc; i++)
        j_dict_set(r, dict, args->named[i].key, args->named[i].value);
    for (size_t i = 0; type == V_NAMESPACE && i < dict->n; i++)
        if (dict->pair[i].key.type == V_STR && dict->pair[i].key.str->n &&
            dict->pair[i].key.str->text[0] == '_')
            return j_fail(r, "a namespace has no attributes that begin with _");
    return (JinjaValue){.type = type, .dict = dict};
}

JinjaValue b_raise(JinjaRun *r, const JinjaCall *c)
{
    Str text = v_text(r, c->arg[0]);
    if (!r->rc)
        r->rc = err_set(r->err, CVN_EINVAL, "%.*s", (int)(text.n < 400 ? text.n : 400), text.text);
    return v_undefined(NULL);
}

JinjaValue b_strftime(JinjaRun *r, const JinjaCall *c)
{
    char format[200] = " ", text[400];
    if (!r->input->now)
        return j_fail(r, "strftime_now needs the time, which was not given");
    if (c->arg[0].type != V_STR || c->arg[0].str->n > sizeof format - 2)
        return j_fail(r, "strftime_now takes a format of at most %zu bytes", sizeof format - 2);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                     \
    "-Wformat-nonliteral" /* the template's own format is what is wanted */
    /* A byte in front, as an empty result and one that does not fit are the same to strftime. */
    memcpy(format + 1, c->arg[0].str->text, c->arg[0].str->n);
    format[c->arg[0].str->n + 1] = 0;
    size_t n = strftime(text, sizeof text, format, r->input->now);
#pragma GCC diagnostic pop
    if (n == 0)
        return j_fail(r, "a time has more than %zu bytes", sizeof text);
    JinjaWriter out = {0};
    j_text_bytes(r, &out, text + 1, n - 1, str_mark(*c->arg[0].str));
    return j_text_value(r, &out);
}
