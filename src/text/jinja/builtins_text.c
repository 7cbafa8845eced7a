/* Filters and methods of strings; their rows are in builtins.def. */
#include "text/jinja/builtins.h"

#include <string.h>

/* A parameter that has to be a string; "" having failed where it is none. */
static Str str_arg(JinjaRun *r, const JinjaCall *c, JinjaValue v)
{
    if (v.type == V_STR)
        return *v.str;
    j_fail(r, "'%s' expects a str, not a %s", c->row->name, v_type_name(v));
    return (Str){"", "", 0};
}

JinjaValue b_string(JinjaRun *r, const JinjaCall *c)
{
    JinjaValue text = c->self.type == V_STR ? c->self : v_str(r, v_text(r, c->self));
    text.flag = text.flag || c->row->which == IS_SAFE;
    return text;
}

JinjaValue b_escape(JinjaRun *r, const JinjaCall *c)
{
    return c->self.type == V_STR && c->self.flag ? c->self : str_escape(r, v_text(r, c->self));
}

JinjaValue b_case(JinjaRun *r, const JinjaCall *c)
{
    return str_case(r, v_text(r, c->self), (Case)c->row->which);
}

JinjaValue b_strip(JinjaRun *r, const JinjaCall *c)
{
    const bool some = is_given(c->arg[0]);
    Str text = v_text(r, c->self), characters = some ? str_arg(r, c, c->arg[0]) : (Str){0};
    j_step(r, text.n / 64);
    JinjaValue v = v_str(
        r, str_strip(text, some ? &characters : NULL, c->row->which & LEFT, c->row->which & RIGHT));
    v.flag = c->self.type == V_STR && c->self.flag;
    return v;
}

/* Where `what` is next in s, from `at` on or, from the right, before `at`; with what.n == 0 a run of white space, of
   which *end is the end. */
static size_t find_cut(JinjaRun *r, Str s, Str what, bool space, bool right, size_t at, size_t *end)
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

JinjaValue b_split(JinjaRun *r, const JinjaCall *c)
{
    const bool right = c->row->which == RIGHT;
    bool space = !is_given(c->arg[0]);
    Str s = *c->self.str, what = space ? (Str){"", "", 0} : str_arg(r, c, c->arg[0]);
    int64_t most = is_given(c->arg[1]) ? v_to_int(r, c->arg[1], "the number of splits") : -1;
    Items parts = {0};
    if (!space && what.n == 0)
        return j_fail(r, "the separator of split is empty");
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
        JinjaValue swap = parts.item[i];
        parts.item[i] = parts.item[parts.n - 1 - i];
        parts.item[parts.n - 1 - i] = swap;
    }
    return v_seq(r, V_LIST, parts.item, parts.n);
}

JinjaValue b_partition(JinjaRun *r, const JinjaCall *c)
{
    const bool right = c->row->which == RIGHT;
    Str s = *c->self.str, what = str_arg(r, c, c->arg[0]);
    size_t end = 0,
           cut = what.n ? find_cut(r, s, what, false, right, right ? s.n : 0, &end) : SIZE_MAX;
    JinjaValue *three = j_take(r, 3 * sizeof *three);
    if (!what.n)
        return j_fail(r, "the separator of split is empty");
    bool found = cut != SIZE_MAX;
    three[0] = v_str(r, found ? str_part(s, 0, cut) : right ? str_part(s, 0, 0) : s);
    three[1] = v_str(r, found ? str_part(s, cut, end) : str_part(s, 0, 0));
    three[2] = v_str(r, found ? str_part(s, end, s.n) : right ? s : str_part(s, 0, 0));
    return v_seq(r, V_TUPLE, three, 3);
}

JinjaValue b_splitlines(JinjaRun *r, const JinjaCall *c)
{
    Seq lines = str_lines(r, *c->self.str);
    return v_seq(r, V_LIST, lines.item, lines.n);
}

/* Whether a string begins or ends with another. */
static bool has_at(Str s, Str with, bool right)
{
    return s.n >= with.n && memcmp(s.text + (right ? s.n - with.n : 0), with.text, with.n) == 0;
}

/* Whether one of what is given, a string or a tuple of them, stands at an end. */
JinjaValue b_has_at(JinjaRun *r, const JinjaCall *c)
{
    const bool right = c->row->which == RIGHT;
    const JinjaValue what = c->arg[0], *each = what.type == V_TUPLE ? what.seq->item : &what;
    const size_t n = what.type == V_TUPLE ? what.seq->n : 1;
    bool found = false;
    for (size_t i = 0; i < n && !found && (n == 1 || j_step(r, 1)); i++)
        found = has_at(*c->self.str, str_arg(r, c, each[i]), right);
    return v_bool(found);
}

JinjaValue b_remove(JinjaRun *r, const JinjaCall *c)
{
    const bool right = c->row->which == RIGHT;
    Str s = *c->self.str, what = str_arg(r, c, c->arg[0]);
    if (!has_at(s, what, right))
        return c->self;
    return v_str(r, right ? str_part(s, 0, s.n - what.n) : str_part(s, what.n, s.n));
}

JinjaValue b_replace(JinjaRun *r, const JinjaCall *c)
{
    Str old = str_arg(r, c, c->arg[0]), new = str_arg(r, c, c->arg[1]);
    return str_replace(r, v_text(r, c->self), old, new,
                       is_given(c->arg[2]) ? v_to_int(r, c->arg[2], "the count of replace") : -1);
}

JinjaValue b_find(JinjaRun *r, const JinjaCall *c)
{
    const bool right = c->row->which == RIGHT;
    Str s = *c->self.str;
    size_t end, at = find_cut(r, s, str_arg(r, c, c->arg[0]), false, right, right ? s.n : 0, &end);
    if (at == SIZE_MAX && c->row->which == OR_FAIL)
        return j_fail(r, "the substring is not in the str");
    return v_int(at == SIZE_MAX ? -1 : (int64_t)str_points(str_part(s, 0, at)));
}

JinjaValue b_count_text(JinjaRun *r, const JinjaCall *c)
{
    int64_t n = 0;
    Str s = *c->self.str, what = str_arg(r, c, c->arg[0]);
    if (what.n == 0)
        return v_int((int64_t)str_points(s) + 1);
    for (size_t at = 0; (at = str_find(r, s, what, at)) != SIZE_MAX; at += what.n)
        n++;
    return v_int(n);
}

JinjaValue b_join_text(JinjaRun *r, const JinjaCall *c)
{
    JinjaWriter text = {0};
    Seq items = v_items(r, c->arg[0]);
    for (size_t i = 0; i < items.n && j_step(r, 1); i++) {
        if (i)
            j_text_add(r, &text, *c->self.str);
        j_text_add(r, &text, str_arg(r, c, items.item[i]));
    }
    return j_text_value(r, &text);
}

/* {}, {0}, {name}, {{ and }}; what else Python's has is refused. */
JinjaValue b_format(JinjaRun *r, const JinjaCall *c)
{
    JinjaWriter text = {0};
    Str s = *c->self.str;
    Dict named = {c->args->named, c->args->n_named};
    size_t next = 0;
    for (size_t i = 0; i < s.n && j_step(r, 1); i++) {
        char brace = s.text[i];
        if (brace != '{' && brace != '}') {
            j_text_add(r, &text, str_part(s, i, i + 1));
            continue;
        }
        if (i + 1 < s.n && s.text[i + 1] == brace) {
            j_text_add(r, &text, str_part(s, i, i + 1));
            i++;
            continue;
        }
        size_t begin = i + 1, at = 0;
        while (i < s.n && s.text[i] != '}')
            i++;
        Str field = str_part(s, begin, i);
        const JinjaValue *value = NULL;
        for (size_t k = 0; k < field.n && k < 6; k++)
            at = field.text[k] >= '0' && field.text[k] <= '9'
                     ? at * 10 + (size_t)(field.text[k] - '0')
                     : SIZE_MAX / 100;
        if (brace == '}' || i == s.n)
            return j_fail(r, "a format has an unmatched brace");
        at = field.n ? at : next++;
        if (at < c->args->n)
            value = &c->args->item[at];
        for (size_t k = 0; field.n && !value && k < named.n; k++)
            if (v_equal(r, named.pair[k].key, v_str(r, field)))
                value = &named.pair[k].value;
        if (!value)
            return j_fail(r, "a format has {%.*s}, which has no argument",
                          field.n > 40 ? 40 : (int)field.n, field.text);
        j_write_value(r, &text, *value, false);
    }
    return j_text_value(r, &text);
}

JinjaValue b_percent(JinjaRun *r, const JinjaCall *c)
{
    return str_percent(r, v_text(r, c->self), c->args->item, c->args->n);
}

/* Whether all characters are of some classes, and there are any. */
JinjaValue b_is_class(JinjaRun *r, const JinjaCall *c)
{
    Str s = *c->self.str;
    int length;
    for (size_t i = 0; i < s.n && j_step(r, 1); i += (size_t)length)
        if (!(c->row->which >> unicode_class(str_point(s, i, &length)) & 1))
            return v_bool(false);
    return v_bool(s.n > 0);
}

JinjaValue b_has_case(JinjaRun *r, const JinjaCall *c)
{
    Str text = v_text(r, c->self);
    return v_bool(v_equal(r, v_str(r, text), str_case(r, text, (Case)c->row->which)) &&
                  !v_equal(r, str_case(r, text, CASE_UPPER), str_case(r, text, CASE_LOWER)));
}

JinjaValue b_wordcount(JinjaRun *r, const JinjaCall *c)
{
    Str s = v_text(r, c->self);
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

JinjaValue b_indent(JinjaRun *r, const JinjaCall *c)
{
    JinjaWriter text = {0}, width = {0};
    Str s = v_text(r, c->self);
    bool first = v_true(c->arg[1]), blank = v_true(c->arg[2]),
         ended = s.n && s.text[s.n - 1] == '\n';
    if (c->arg[0].type == V_STR)
        j_text_add(r, &width, *c->arg[0].str);
    for (int64_t i = 0,
                 n = c->arg[0].type == V_STR ? 0 : j_int_or(r, c->arg[0], 4, "the width of indent");
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

JinjaValue b_tojson(JinjaRun *r, const JinjaCall *c)
{
    JinjaWriter text = {0}, level = {0};
    JinjaValue between = v_own(r, is_given(c->arg[1]) ? "," : ", "), behind = v_own(r, ": ");
    JsonStyle style = {.ascii = v_true(c->arg[0]), .sort = v_true(c->arg[3]), .indent = v_none()};
    if (is_given(c->arg[1])) {
        if (c->arg[1].type == V_STR)
            j_text_add(r, &level, *c->arg[1].str);
        for (int64_t i = 0, n = c->arg[1].type == V_STR ? 0 : v_to_int(r, c->arg[1], "the indent");
             i < n && j_step(r, 1); i++)
            j_text_puts(r, &level, " ");
        style.indent = j_text_value(r, &level);
    }
    if (is_given(c->arg[2])) {
        Seq two = v_items(r, c->arg[2]);
        if (two.n != 2 || two.item[0].type != V_STR || two.item[1].type != V_STR)
            return j_fail(r, "the separators of tojson are two strings");
        between = two.item[0];
        behind = two.item[1];
    }
    style.between = *between.str;
    style.behind = *behind.str;
    j_write_json(r, &text, c->self, &style, 0);
    return j_text_value(r, &text);
}
