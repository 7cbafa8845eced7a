/* The filters, one function each and a table at the end. */
#include "text/jinja/impl.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILTER(name) static Value name(Run *r, Value self, const Value *arg, const Args *args)
#define UNUSED (void)arg, (void)args

static Value list_of(Run *r, const Items *items)
{
    return v_seq(r, V_LIST, items->item, items->n);
}

static Value generator(Run *r, const Items *items)
{
    return v_seq(r, V_ITER, items->item, items->n);
}

static bool is_given(Value v)
{
    return v.type != V_ABSENT && v.type != V_NONE;
}

/* What a comparison goes by unless it minds the case. */
static Value sort_key(Run *r, Value v, bool minds_case)
{
    return v.type == V_STR && !minds_case ? str_case(r, *v.str, CASE_LOWER) : v;
}

static int64_t int_or(Run *r, Value v, int64_t usual, const char *what)
{
    return v.type == V_ABSENT ? usual : v_to_int(r, v, what);
}

/* ---- of one value ---- */

FILTER(f_abs)
{
    UNUSED;
    if (self.type == V_INT && self.i < 0 && self.i != INT64_MIN)
        return v_int(-self.i);
    if (self.type == V_FLOAT)
        return v_float(fabs(self.f));
    return v_is_number(self) ? self : j_fail(r, "abs of a %s", v_type_name(self));
}

FILTER(f_capitalize)
{
    UNUSED;
    return str_case(r, v_text(r, self), CASE_CAPITAL);
}

FILTER(f_lower)
{
    UNUSED;
    return str_case(r, v_text(r, self), CASE_LOWER);
}

FILTER(f_upper)
{
    UNUSED;
    return str_case(r, v_text(r, self), CASE_UPPER);
}

FILTER(f_title)
{
    UNUSED;
    return str_case(r, v_text(r, self), CASE_WORDS);
}

FILTER(f_string)
{
    UNUSED;
    return self.type == V_STR ? self : v_str(r, v_text(r, self));
}

FILTER(f_safe)
{
    UNUSED;
    Value text = v_str(r, v_text(r, self));
    text.flag = true;
    return text;
}

FILTER(f_escape)
{
    UNUSED;
    return self.type == V_STR && self.flag ? self : str_escape(r, v_text(r, self));
}

FILTER(f_length)
{
    UNUSED;
    return v_int(v_length(r, self));
}

FILTER(f_trim)
{
    (void)args;
    Str text = v_text(r, self);
    if (is_given(arg[0]) && arg[0].type != V_STR)
        return j_fail(r, "trim is given a %s", v_type_name(arg[0]));
    Value trimmed = v_str(r, str_strip(text, is_given(arg[0]) ? arg[0].str : NULL, true, true));
    j_step(r, text.n / 64);
    trimmed.flag = self.type == V_STR && self.flag;
    return trimmed;
}

FILTER(f_default)
{
    (void)args;
    bool use = self.type == V_UNDEFINED || (v_true(arg[1]) && !v_true(self));
    return !use ? self : arg[0].type == V_ABSENT ? v_own(r, "") : arg[0];
}

FILTER(f_replace)
{
    (void)args;
    if (arg[0].type != V_STR || arg[1].type != V_STR)
        return j_fail(r, "replace is given a %s", v_type_name(arg[arg[0].type == V_STR]));
    return str_replace(r, v_text(r, self), *arg[0].str, *arg[1].str,
                       is_given(arg[2]) ? v_to_int(r, arg[2], "the count of replace") : -1);
}

/* A string as a number; false when it is none. */
static bool read_number(Run *r, Str s, int base, double *real, int64_t *whole, bool *is_whole)
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

FILTER(f_int)
{
    (void)args;
    Value usual = arg[0].type == V_ABSENT ? v_int(0) : arg[0];
    int64_t base = int_or(r, arg[1], 10, "the base"), whole;
    double real = 0;
    bool is_whole;
    if (self.type == V_UNDEFINED)
        return j_fail(r, "'%.60s' is not defined, and its number is asked for",
                      self.missing ? self.missing : "");
    if (self.type == V_INT || self.type == V_BOOL)
        return v_int(self.type == V_INT ? self.i : self.b);
    if (self.type == V_STR && base >= 2 && base <= 36) {
        if (!read_number(r, *self.str, (int)base, &real, &whole, &is_whole))
            return usual;
        if (is_whole)
            return v_int(whole);
        self = v_float(real);
    }
    return self.type == V_FLOAT && fabs(self.f) < 9e18 ? v_int((int64_t)self.f) : usual;
}

FILTER(f_float)
{
    (void)args;
    double real = 0;
    int64_t whole;
    bool is_whole;
    if (self.type == V_UNDEFINED)
        return j_fail(r, "'%.60s' is not defined, and its number is asked for",
                      self.missing ? self.missing : "");
    if (v_is_number(self))
        return v_float(v_real(self));
    if (self.type == V_STR && read_number(r, *self.str, 10, &real, &whole, &is_whole))
        return v_float(real);
    return arg[0].type == V_ABSENT ? v_float(0) : arg[0];
}

FILTER(f_round)
{
    (void)args;
    int64_t digits = int_or(r, arg[0], 0, "the precision of round");
    if (!v_is_number(self) || digits < -300 || digits > 300)
        return j_fail(r, "round of a %s", v_type_name(self));
    double x = v_real(self), scale = pow(10, (double)digits);
    if (arg[1].type == V_STR && str_is(*arg[1].str, "ceil"))
        return v_float(ceil(x * scale) / scale);
    if (arg[1].type == V_STR && str_is(*arg[1].str, "floor"))
        return v_float(floor(x * scale) / scale);
    char text[700];
    if (digits < 0)
        return v_float(nearbyint(x * scale) / scale);
    snprintf(text, sizeof text, "%.*f", (int)digits, x);
    return self.type == V_FLOAT ? v_float(strtod(text, NULL)) : self;
}

FILTER(f_indent)
{
    (void)args;
    Text text = {0}, width = {0};
    Str s = v_text(r, self);
    bool first = v_true(arg[1]), blank = v_true(arg[2]), ended = s.n && s.text[s.n - 1] == '\n';
    if (arg[0].type == V_STR)
        j_text_add(r, &width, *arg[0].str);
    for (int64_t i = 0, n = arg[0].type == V_STR ? 0 : int_or(r, arg[0], 4, "the width of indent");
         i < n && j_step(r, 1); i++)
        j_text_puts(r, &width, " ");
    Str indent = *j_text_value(r, &width).str;
    Seq lines = str_lines(r, s);
    if (first)
        j_text_add(r, &text, indent);
    for (size_t i = 0; i < lines.n && j_step(r, 1); i++) {
        Str line = *lines.item[i].str;
        if (i)
            j_text_puts(r, &text, "\n");
        if (i && (line.n || blank))
            j_text_add(r, &text, indent);
        j_text_add(r, &text, line);
    }
    if (ended)
        j_text_puts(r, &text, "\n");
    if (ended && blank)
        j_text_add(r, &text, indent);
    return j_text_value(r, &text);
}

FILTER(f_tojson)
{
    (void)args;
    Text text = {0}, level = {0};
    Value between = v_own(r, is_given(arg[1]) ? "," : ", "), behind = v_own(r, ": ");
    JsonStyle style = {.ascii = v_true(arg[0]), .sort = v_true(arg[3]), .indent = v_none()};
    if (is_given(arg[1])) {
        if (arg[1].type == V_STR)
            j_text_add(r, &level, *arg[1].str);
        for (int64_t i = 0, n = arg[1].type == V_STR ? 0 : v_to_int(r, arg[1], "the indent");
             i < n && j_step(r, 1); i++)
            j_text_puts(r, &level, " ");
        style.indent = j_text_value(r, &level);
    }
    if (is_given(arg[2])) {
        Seq two = v_items(r, arg[2]);
        if (two.n != 2 || two.item[0].type != V_STR || two.item[1].type != V_STR)
            return j_fail(r, "the separators of tojson are two strings");
        between = two.item[0];
        behind = two.item[1];
    }
    style.between = *between.str;
    style.behind = *behind.str;
    j_write_json(r, &text, self, &style, 0);
    return j_text_value(r, &text);
}

FILTER(f_format)
{
    (void)arg;
    return str_percent(r, v_text(r, self), args->item, args->n);
}

FILTER(f_wordcount)
{
    UNUSED;
    Str s = v_text(r, self);
    int64_t n = 0;
    bool inside = false;
    int length;
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length) {
        bool space = j_is_space(str_point(s, i, &length));
        n += !space && !inside;
        inside = !space;
    }
    return v_int(n);
}

/* ---- of lists ---- */

FILTER(f_list)
{
    UNUSED;
    Seq items = v_items(r, self);
    return v_seq(r, V_LIST, items.item, items.n);
}

FILTER(f_first)
{
    UNUSED;
    Seq items = v_items(r, self);
    return items.n ? items.item[0] : v_undefined("the first of nothing");
}

FILTER(f_last)
{
    UNUSED;
    if (self.type == V_ITER && !self.flag)
        return j_fail(r, "a generator has no last item; make it a list");
    Seq items = v_items(r, self);
    return items.n ? items.item[items.n - 1] : v_undefined("the last of nothing");
}

FILTER(f_reverse)
{
    UNUSED;
    Items out = {0};
    Text text = {0};
    Seq items = v_items(r, self);
    for (size_t i = items.n; i-- > 0 && j_step(r, 1);) {
        if (self.type == V_STR)
            j_text_add(r, &text, *items.item[i].str);
        else
            j_items_add(r, &out, items.item[i]);
    }
    return self.type == V_STR ? j_text_value(r, &text) : generator(r, &out);
}

FILTER(f_join)
{
    (void)args;
    Text text = {0};
    Seq items = v_items(r, self);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value item = items.item[i];
        if (i && is_given(arg[0]))
            j_write_value(r, &text, arg[0], false);
        j_write_value(r, &text, is_given(arg[1]) ? j_follow(r, item, arg[1]) : item, false);
    }
    return j_text_value(r, &text);
}

FILTER(f_items)
{
    UNUSED;
    Items out = {0};
    if (self.type == V_UNDEFINED)
        return generator(r, &out);
    if (self.type != V_DICT)
        return j_fail(r, "items of a %s", v_type_name(self));
    for (size_t i = 0; i < self.dict->n && j_step(r, 1); i++) {
        Value *two = j_take(r, 2 * sizeof *two);
        two[0] = self.dict->pair[i].key;
        two[1] = self.dict->pair[i].value;
        j_items_add(r, &out, v_seq(r, V_TUPLE, two, 2));
    }
    return generator(r, &out);
}

FILTER(f_dictsort)
{
    (void)args;
    Items out = {0};
    if (self.type != V_DICT)
        return j_fail(r, "dictsort of a %s", v_type_name(self));
    bool by_value = is_given(arg[1]) && arg[1].type == V_STR && str_is(*arg[1].str, "value");
    size_t n = self.dict->n;
    Pair *pair = j_take(r, n * sizeof *pair);
    for (size_t i = 0; i < n && j_step(r, 1); i++) {
        Value *two = j_take(r, 2 * sizeof *two);
        two[0] = self.dict->pair[i].key;
        two[1] = self.dict->pair[i].value;
        pair[i] = (Pair){sort_key(r, two[by_value], v_true(arg[0])), v_seq(r, V_TUPLE, two, 2)};
    }
    j_sort_values(r, pair, r->rc ? 0 : n);
    for (size_t i = 0; i < n && !r->rc; i++)
        j_items_add(r, &out, pair[v_true(arg[2]) ? n - 1 - i : i].value);
    return list_of(r, &out);
}

FILTER(f_sort)
{
    (void)args;
    Items out = {0};
    Seq items = v_items(r, self);
    bool reverse = v_true(arg[0]);
    Pair *pair = j_take(r, items.n * sizeof *pair);
    /* Equal ones keep their order also in reverse. */
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value item = items.item[reverse ? items.n - 1 - i : i];
        pair[i] = (Pair){
            sort_key(r, is_given(arg[2]) ? j_follow(r, item, arg[2]) : item, v_true(arg[1])), item};
    }
    j_sort_values(r, pair, r->rc ? 0 : items.n);
    for (size_t i = 0; i < items.n && !r->rc; i++)
        j_items_add(r, &out, pair[reverse ? items.n - 1 - i : i].value);
    return list_of(r, &out);
}

FILTER(f_unique)
{
    (void)args;
    Items out = {0}, keys = {0};
    Seq items = v_items(r, self);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value key = is_given(arg[1]) ? j_follow(r, items.item[i], arg[1]) : items.item[i];
        size_t k = 0;
        key = sort_key(r, key, v_true(arg[0]));
        while (k < keys.n && j_step(r, 1) && !v_equal(r, keys.item[k], key))
            k++;
        if (k < keys.n)
            continue;
        j_items_add(r, &keys, key);
        j_items_add(r, &out, items.item[i]);
    }
    return generator(r, &out);
}

static Value extreme(Run *r, Value self, const Value *arg, int sign)
{
    Seq items = v_items(r, self);
    Value best = v_undefined("the extreme of nothing"), best_key = best;
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value key = is_given(arg[1]) ? j_follow(r, items.item[i], arg[1]) : items.item[i];
        key = sort_key(r, key, v_true(arg[0]));
        if (i && sign * v_order(r, key, best_key) <= 0)
            continue;
        best = items.item[i];
        best_key = key;
    }
    return best;
}

FILTER(f_max)
{
    (void)args;
    return extreme(r, self, arg, 1);
}

FILTER(f_min)
{
    (void)args;
    return extreme(r, self, arg, -1);
}

FILTER(f_sum)
{
    (void)args;
    Seq items = v_items(r, self);
    Value sum = arg[1].type == V_ABSENT ? v_int(0) : arg[1];
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value item = is_given(arg[0]) ? j_follow(r, items.item[i], arg[0]) : items.item[i];
        int64_t whole;
        if (!v_is_number(item) || !v_is_number(sum))
            return j_fail(r, "sum of a %s", v_type_name(item));
        bool real = item.type == V_FLOAT || sum.type == V_FLOAT;
        if (!real && __builtin_add_overflow(sum.type == V_INT ? sum.i : sum.b,
                                            item.type == V_INT ? item.i : item.b, &whole))
            return j_fail(r, "a whole number has more than 64 bits");
        sum = real ? v_float(v_real(sum) + v_real(item)) : v_int(whole);
    }
    return sum;
}

/* ---- filters that take filters and tests ---- */

static Args args_from(const Args *args, size_t first)
{
    bool more = args->n > first;
    return (Args){more ? args->item + first : NULL, more ? args->n - first : 0, args->named,
                  args->n_named};
}

/* The filter or test that argument `i` names. */
static const Builtin *named_builtin(Run *r, const Args *args, size_t i,
                                    const Builtin *(*find)(const char *), const char *what)
{
    char name[40] = "";
    if (i < args->n && args->item[i].type == V_STR && args->item[i].str->n < sizeof name)
        memcpy(name, args->item[i].str->text, args->item[i].str->n);
    const Builtin *row = find(name);
    if (!row)
        j_fail(r, "the %s '%s' is not known", what, name);
    return row;
}

FILTER(f_map)
{
    (void)arg;
    Items out = {0};
    Dict named = {args->named, args->n_named};
    const Value *attribute = args->n == 0 ? j_dict_get(&named, "attribute") : NULL,
                *usual = j_dict_get(&named, "default");
    const Builtin *filter = attribute ? NULL : named_builtin(r, args, 0, j_filter_find, "filter");
    Args rest = args_from(args, 1);
    Seq items = v_true(self) ? v_items(r, self) : (Seq){0}; /* what is false has none, be it None */
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value item = items.item[i];
        Value value =
            filter ? j_call_builtin(r, filter, item, &rest) : j_follow(r, item, *attribute);
        j_items_add(r, &out, attribute && usual && value.type == V_UNDEFINED ? *usual : value);
    }
    return generator(r, &out);
}

/* Items for which a test has the outcome `wanted`; `by` says that the first argument is an attribute to test. */
static Value select_items(Run *r, Value self, const Args *args, bool by, bool wanted)
{
    Items out = {0};
    const Builtin *test = args->n > by ? named_builtin(r, args, by, j_test_find, "test") : NULL;
    Args rest = args_from(args, (size_t)by + 1);
    Seq items = v_true(self) ? v_items(r, self) : (Seq){0};
    if (by && args->n == 0)
        return j_fail(r, "an attribute is missing");
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        Value value = by ? j_follow(r, items.item[i], args->item[0]) : items.item[i];
        if (v_true(test ? j_call_builtin(r, test, value, &rest) : value) == wanted)
            j_items_add(r, &out, items.item[i]);
    }
    return generator(r, &out);
}

FILTER(f_select)
{
    (void)arg;
    return select_items(r, self, args, false, true);
}

FILTER(f_reject)
{
    (void)arg;
    return select_items(r, self, args, false, false);
}

FILTER(f_selectattr)
{
    (void)arg;
    return select_items(r, self, args, true, true);
}

FILTER(f_rejectattr)
{
    (void)arg;
    return select_items(r, self, args, true, false);
}

static const Builtin TABLE[] = {
    {.name = "abs", .run = f_abs},
    {.name = "capitalize", .run = f_capitalize},
    {.name = "count", .run = f_length},
    {.name = "d", .run = f_default, .parameter = {"default_value", "boolean"}},
    {.name = "default", .run = f_default, .parameter = {"default_value", "boolean"}},
    {.name = "dictsort", .run = f_dictsort, .parameter = {"case_sensitive", "by", "reverse"}},
    {.name = "e", .run = f_escape},
    {.name = "escape", .run = f_escape},
    {.name = "first", .run = f_first},
    {.name = "float", .run = f_float, .parameter = {"default"}},
    {.name = "format", .run = f_format, .any = true},
    {.name = "indent", .run = f_indent, .parameter = {"width", "first", "blank"}},
    {.name = "int", .run = f_int, .parameter = {"default", "base"}},
    {.name = "items", .run = f_items},
    {.name = "join", .run = f_join, .parameter = {"d", "attribute"}},
    {.name = "last", .run = f_last},
    {.name = "length", .run = f_length},
    {.name = "list", .run = f_list},
    {.name = "lower", .run = f_lower},
    {.name = "map", .run = f_map, .any = true},
    {.name = "max", .run = f_max, .parameter = {"case_sensitive", "attribute"}},
    {.name = "min", .run = f_min, .parameter = {"case_sensitive", "attribute"}},
    {.name = "reject", .run = f_reject, .any = true},
    {.name = "rejectattr", .run = f_rejectattr, .any = true},
    {.name = "replace", .run = f_replace, .required = 2, .parameter = {"old", "new", "count"}},
    {.name = "reverse", .run = f_reverse},
    {.name = "round", .run = f_round, .parameter = {"precision", "method"}},
    {.name = "safe", .run = f_safe},
    {.name = "select", .run = f_select, .any = true},
    {.name = "selectattr", .run = f_selectattr, .any = true},
    {.name = "sort", .run = f_sort, .parameter = {"reverse", "case_sensitive", "attribute"}},
    {.name = "string", .run = f_string},
    {.name = "sum", .run = f_sum, .parameter = {"attribute", "start"}},
    {.name = "title", .run = f_title},
    {.name = "tojson",
     .run = f_tojson,
     .parameter = {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {.name = "trim", .run = f_trim, .parameter = {"chars"}},
    {.name = "unique", .run = f_unique, .parameter = {"case_sensitive", "attribute"}},
    {.name = "upper", .run = f_upper},
    {.name = "wordcount", .run = f_wordcount},
};

const Builtin *j_filter_find(const char *name)
{
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++)
        if (strcmp(TABLE[i].name, name) == 0)
            return &TABLE[i];
    return NULL;
}
