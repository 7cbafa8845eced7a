/* Filters and methods of lists and other values that have items; their rows are in builtins.def. */
#include "text/jinja/builtins.h"

#include <string.h>

static JinjaValue list_of(JinjaRun *r, const Items *items)
{
    return v_seq(r, V_LIST, items->item, items->n);
}

static JinjaValue generator(JinjaRun *r, const Items *items)
{
    return v_seq(r, V_ITER, items->item, items->n);
}

/* The key of a comparison: strings in lower case, unless case matters. */
static JinjaValue sort_key(JinjaRun *r, JinjaValue v, bool minds_case)
{
    return v.type == V_STR && !minds_case ? str_case(r, *v.str, CASE_LOWER) : v;
}

JinjaValue b_length(JinjaRun *r, const JinjaCall *c)
{
    return v_int(v_length(r, c->self));
}

/* ---- of lists ---- */
JinjaValue b_list(JinjaRun *r, const JinjaCall *c)
{
    Seq items = v_items(r, c->self);
    return v_seq(r, V_LIST, items.item, items.n);
}

JinjaValue b_first(JinjaRun *r, const JinjaCall *c)
{
    Seq items = v_items(r, c->self);
    return items.n ? items.item[0] : v_undefined("the first of nothing");
}

JinjaValue b_last(JinjaRun *r, const JinjaCall *c)
{
    if (c->self.type == V_ITER && !c->self.flag)
        return j_fail(r, "a generator has no last item; make it a list");
    Seq items = v_items(r, c->self);
    return items.n ? items.item[items.n - 1] : v_undefined("the last of nothing");
}

JinjaValue b_reverse(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0};
    JinjaWriter text = {0};
    Seq items = v_items(r, c->self);
    for (size_t i = items.n; i-- > 0 && j_step(r, 1);) {
        if (c->self.type == V_STR)
            j_text_add(r, &text, *items.item[i].str);
        else
            j_items_add(r, &out, items.item[i]);
    }
    return c->self.type == V_STR ? j_text_value(r, &text) : generator(r, &out);
}

JinjaValue b_join(JinjaRun *r, const JinjaCall *c)
{
    JinjaWriter text = {0};
    Seq items = v_items(r, c->self);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue item = items.item[i];
        if (i && is_given(c->arg[0]))
            j_write_value(r, &text, c->arg[0], false);
        j_write_value(r, &text, is_given(c->arg[1]) ? j_follow(r, item, c->arg[1]) : item, false);
    }
    return j_text_value(r, &text);
}

JinjaValue b_items(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0};
    if (c->self.type == V_UNDEFINED)
        return generator(r, &out);
    if (c->self.type != V_DICT)
        return j_fail(r, "items of a %s", v_type_name(c->self));
    for (size_t i = 0; i < c->self.dict->n && j_step(r, 1); i++) {
        JinjaValue *two = j_take(r, 2 * sizeof *two);
        two[0] = c->self.dict->pair[i].key;
        two[1] = c->self.dict->pair[i].value;
        j_items_add(r, &out, v_seq(r, V_TUPLE, two, 2));
    }
    JinjaValue items = generator(r, &out);
    items.flag = c->row->which == IS_VIEW;
    return items;
}

JinjaValue b_members(JinjaRun *r, const JinjaCall *c)
{
    Items items = {0};
    for (size_t i = 0; i < c->self.dict->n && j_step(r, 1); i++) {
        const JinjaPair *pair = &c->self.dict->pair[i];
        j_items_add(r, &items, c->row->which == VALUES ? pair->value : pair->key);
    }
    JinjaValue view = generator(r, &items);
    view.flag = true;
    return view;
}

/* ---- dictionaries ---- */
JinjaValue b_get(JinjaRun *r, const JinjaCall *c)
{
    for (size_t i = 0; i < c->self.dict->n && j_step(r, 1); i++)
        if (v_equal(r, c->self.dict->pair[i].key, c->arg[0]))
            return c->self.dict->pair[i].value;
    return c->arg[1].type == V_ABSENT ? v_none() : c->arg[1];
}

JinjaValue b_copy(JinjaRun *r, const JinjaCall *c)
{
    (void)r;
    return c->self; /* nothing changes */
}

JinjaValue b_count_items(JinjaRun *r, const JinjaCall *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.seq->n && j_step(r, 1); i++)
        n += v_equal(r, c->self.seq->item[i], c->arg[0]);
    return v_int(n);
}

JinjaValue b_index(JinjaRun *r, const JinjaCall *c)
{
    for (size_t i = 0; i < c->self.seq->n && j_step(r, 1); i++)
        if (v_equal(r, c->self.seq->item[i], c->arg[0]))
            return v_int((int64_t)i);
    return j_fail(r, "the item is not in the list");
}

JinjaValue b_dictsort(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0};
    if (c->self.type != V_DICT)
        return j_fail(r, "dictsort of a %s", v_type_name(c->self));
    bool by_value =
        is_given(c->arg[1]) && c->arg[1].type == V_STR && str_is(*c->arg[1].str, "value");
    size_t n = c->self.dict->n;
    JinjaPair *pair = j_take(r, n * sizeof *pair);
    for (size_t i = 0; i < n && j_step(r, 1); i++) {
        JinjaValue *two = j_take(r, 2 * sizeof *two);
        two[0] = c->self.dict->pair[i].key;
        two[1] = c->self.dict->pair[i].value;
        pair[i] =
            (JinjaPair){sort_key(r, two[by_value], v_true(c->arg[0])), v_seq(r, V_TUPLE, two, 2)};
    }
    j_sort_values(r, pair, r->rc ? 0 : n);
    for (size_t i = 0; i < n && !r->rc; i++)
        j_items_add(r, &out, pair[v_true(c->arg[2]) ? n - 1 - i : i].value);
    return list_of(r, &out);
}

JinjaValue b_sort(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0};
    Seq items = v_items(r, c->self);
    bool reverse = v_true(c->arg[0]);
    JinjaPair *pair = j_take(r, items.n * sizeof *pair);
    /* Equal ones keep their order also in reverse. */
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue item = items.item[reverse ? items.n - 1 - i : i];
        pair[i] = (JinjaPair){sort_key(r, is_given(c->arg[2]) ? j_follow(r, item, c->arg[2]) : item,
                                       v_true(c->arg[1])),
                              item};
    }
    j_sort_values(r, pair, r->rc ? 0 : items.n);
    for (size_t i = 0; i < items.n && !r->rc; i++)
        j_items_add(r, &out, pair[reverse ? items.n - 1 - i : i].value);
    return list_of(r, &out);
}

JinjaValue b_unique(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0}, keys = {0};
    Seq items = v_items(r, c->self);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue key =
            is_given(c->arg[1]) ? j_follow(r, items.item[i], c->arg[1]) : items.item[i];
        size_t k = 0;
        key = sort_key(r, key, v_true(c->arg[0]));
        while (k < keys.n && j_step(r, 1) && !v_equal(r, keys.item[k], key))
            k++;
        if (k < keys.n)
            continue;
        j_items_add(r, &keys, key);
        j_items_add(r, &out, items.item[i]);
    }
    return generator(r, &out);
}

JinjaValue b_extreme(JinjaRun *r, const JinjaCall *c)
{
    Seq items = v_items(r, c->self);
    JinjaValue best = v_undefined("the extreme of nothing"), best_key = best;
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue key =
            is_given(c->arg[1]) ? j_follow(r, items.item[i], c->arg[1]) : items.item[i];
        key = sort_key(r, key, v_true(c->arg[0]));
        if (i && c->row->which * v_order(r, key, best_key) <= 0)
            continue;
        best = items.item[i];
        best_key = key;
    }
    return best;
}

JinjaValue b_sum(JinjaRun *r, const JinjaCall *c)
{
    Seq items = v_items(r, c->self);
    JinjaValue sum = c->arg[1].type == V_ABSENT ? v_int(0) : c->arg[1];
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue item =
            is_given(c->arg[0]) ? j_follow(r, items.item[i], c->arg[0]) : items.item[i];
        int64_t whole;
        if (!v_is_number(item) || !v_is_number(sum))
            return j_fail(r, "sum of a %s", v_type_name(item));
        bool real = item.type == V_FLOAT || sum.type == V_FLOAT;
        if (!real && __builtin_add_overflow(sum.type == V_INT ? sum.i : sum.b,
                                            item.type == V_INT ? item.i : item.b, &whole))
            return j_fail(r, "an integer exceeds 64 bits");
        sum = real ? v_float(v_real(sum) + v_real(item)) : v_int(whole);
    }
    return sum;
}

/* ---- filters that take filters and tests ---- */

/* ---- filters that take filters and tests ---- */
static JinjaArgs args_from(const JinjaArgs *args, size_t first)
{
    bool more = args->n > first;
    return (JinjaArgs){more ? args->item + first : NULL, more ? args->n - first : 0, args->named,
                       args->n_named};
}

/* The filter or test that argument `i` names. */
static const Builtin *named_builtin(JinjaRun *r, const JinjaArgs *args, size_t i, BuiltinKind kind,
                                    const char *what)
{
    char name[40] = "";
    if (i < args->n && args->item[i].type == V_STR && args->item[i].str->n < sizeof name)
        memcpy(name, args->item[i].str->text, args->item[i].str->n);
    const Builtin *row = j_builtin_find(kind, name);
    if (!row)
        j_fail(r, "unknown %s '%s'", what, name);
    return row;
}

JinjaValue b_map(JinjaRun *r, const JinjaCall *c)
{
    Items out = {0};
    Dict named = {c->args->named, c->args->n_named};
    const JinjaValue *attribute = c->args->n == 0 ? j_dict_get(&named, "attribute") : NULL,
                     *usual = j_dict_get(&named, "default");
    const Builtin *filter = attribute ? NULL : named_builtin(r, c->args, 0, FILTER, "filter");
    JinjaArgs rest = args_from(c->args, 1);
    Seq items =
        v_true(c->self) ? v_items(r, c->self) : (Seq){0}; /* what is false has none, be it None */
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue item = items.item[i];
        JinjaValue value =
            filter ? j_call_builtin(r, filter, item, &rest) : j_follow(r, item, *attribute);
        j_items_add(r, &out, attribute && usual && value.type == V_UNDEFINED ? *usual : value);
    }
    return generator(r, &out);
}

/* Items for which a test has the outcome `wanted`; `by` says that the first argument is an attribute to test. */
JinjaValue b_select(JinjaRun *r, const JinjaCall *c)
{
    const JinjaArgs *args = c->args;
    const bool by = c->row->which & BY_ATTRIBUTE, wanted = c->row->which & WANTED;
    Items out = {0};
    const Builtin *test = args->n > by ? named_builtin(r, args, by, TEST, "test") : NULL;
    JinjaArgs rest = args_from(args, (size_t)by + 1);
    Seq items = v_true(c->self) ? v_items(r, c->self) : (Seq){0};
    if (by && args->n == 0)
        return j_fail(r, "an attribute is required");
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        JinjaValue value = by ? j_follow(r, items.item[i], args->item[0]) : items.item[i];
        if (v_true(test ? j_call_builtin(r, test, value, &rest) : value) == wanted)
            j_items_add(r, &out, items.item[i]);
    }
    return generator(r, &out);
}
