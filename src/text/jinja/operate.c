/* Operators on two values: +, -, *, /, //, % and **; and comparisons: ==, <, in and the like. */
#include "text/jinja/impl.h"

#include <math.h>

static JinjaValue number_op(JinjaRun *r, JinjaOp op, JinjaValue a, JinjaValue b)
{
    double x = v_real(a), y = v_real(b);
    bool whole = a.type != V_FLOAT && b.type != V_FLOAT;
    int64_t i = a.type == V_BOOL ? a.b : a.i, k = b.type == V_BOOL ? b.b : b.i, result = 0;
    if ((op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD) && y == 0)
        return j_fail(r, "division by zero");
    if (whole && op != OP_DIV && !(op == OP_POW && k < 0)) {
        bool over = false;
        if (op == OP_ADD)
            over = __builtin_add_overflow(i, k, &result);
        else if (op == OP_SUB)
            over = __builtin_sub_overflow(i, k, &result);
        else if (op == OP_MUL)
            over = __builtin_mul_overflow(i, k, &result);
        else if (op == OP_POW) {
            result = 1;
            over = k > 64 && i != 0 && i != 1 && i != -1;
            for (int64_t n = k > 64 ? k % 2 + (i == 0) * 2 : k; !over && n > 0; n--)
                over = __builtin_mul_overflow(result, i, &result);
        } else if (k == -1) {
            over = op == OP_FLOORDIV && __builtin_sub_overflow((int64_t)0, i, &result);
        } else {
            int64_t rest = i % k;
            rest += rest && (rest < 0) != (k < 0) ? k : 0;
            result = op == OP_MOD ? rest : i / k - (i % k && (i < 0) != (k < 0));
        }
        return over ? j_fail(r, "an integer exceeds 64 bits") : v_int(result);
    }
    switch (op) {
    case OP_ADD:
        return v_float(x + y);
    case OP_SUB:
        return v_float(x - y);
    case OP_MUL:
        return v_float(x * y);
    case OP_DIV:
        return v_float(x / y);
    case OP_FLOORDIV:
        return v_float(floor(x / y));
    case OP_MOD: {
        double rest = fmod(x, y);
        return v_float(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
    }
    default:
        return x == 0 && y < 0 ? j_fail(r, "0 has a negative power") : v_float(pow(x, y));
    }
}

static JinjaValue repeat(JinjaRun *r, JinjaValue v, int64_t n)
{
    JinjaWriter text = {0};
    Items items = {0};
    for (int64_t i = 0; i < n && j_step(r, 1); i++) {
        if (v.type == V_STR)
            j_text_add(r, &text, *v.str);
        for (size_t k = 0; v.type != V_STR && k < v.seq->n; k++)
            j_items_add(r, &items, v.seq->item[k]);
    }
    return v.type == V_STR ? j_text_value(r, &text) : v_seq(r, v.type, items.item, items.n);
}

static JinjaValue add_values(JinjaRun *r, JinjaValue a, JinjaValue b)
{
    if (a.type == V_STR && b.type == V_STR) {
        JinjaWriter text = {0};
        bool safe = a.flag || b.flag;
        j_text_add(r, &text, safe && !a.flag ? *str_escape(r, *a.str).str : *a.str);
        j_text_add(r, &text, safe && !b.flag ? *str_escape(r, *b.str).str : *b.str);
        JinjaValue sum = j_text_value(r, &text);
        sum.flag = safe;
        return sum;
    }
    Items items = {0};
    for (size_t i = 0; i < a.seq->n && j_step(r, 1); i++)
        j_items_add(r, &items, a.seq->item[i]);
    for (size_t i = 0; i < b.seq->n && j_step(r, 1); i++)
        j_items_add(r, &items, b.seq->item[i]);
    return v_seq(r, a.type, items.item, items.n);
}

JinjaValue j_operate(JinjaRun *r, JinjaOp op, JinjaValue a, JinjaValue b)
{
    static const char *const sign[] = {"+", "-", "*", "/", "//", "%", "**"};
    bool list = a.type == V_LIST || a.type == V_TUPLE;
    if (r->rc)
        return v_undefined(NULL);
    if (v_is_number(a) && v_is_number(b))
        return number_op(r, op, a, b);
    if (op == OP_ADD && a.type == b.type && (a.type == V_STR || list))
        return add_values(r, a, b);
    if (op == OP_MUL && (a.type == V_STR || list) && (b.type == V_INT || b.type == V_BOOL))
        return repeat(r, a, b.type == V_INT ? b.i : b.b);
    if (op == OP_MUL && a.type == V_INT &&
        (b.type == V_STR || b.type == V_LIST || b.type == V_TUPLE))
        return repeat(r, b, a.i);
    if (op == OP_MOD && a.type == V_STR)
        return b.type == V_TUPLE ? str_percent(r, *a.str, b.seq->item, b.seq->n)
                                 : str_percent(r, *a.str, &b, 1);
    if (a.type == V_UNDEFINED || b.type == V_UNDEFINED) {
        const char *name = a.type == V_UNDEFINED ? a.missing : b.missing;
        return j_fail(r, "'%.60s' is undefined, and '%s' needs a value", name ? name : "",
                      sign[op]);
    }
    return j_fail(r, "unsupported operand types for '%s': %s and %s", sign[op], v_type_name(a),
                  v_type_name(b));
}

/* ---- expressions ---- */
bool j_compare(JinjaRun *r, JinjaOp op, JinjaValue a, JinjaValue b)
{
    switch (op) {
    case OP_EQ:
        return v_equal(r, a, b);
    case OP_NE:
        return !v_equal(r, a, b);
    case OP_IN:
        return v_in(r, a, b);
    case OP_NOT_IN:
        return !v_in(r, a, b);
    case OP_LT:
        return v_order(r, a, b) < 0;
    case OP_LE:
        return v_order(r, a, b) <= 0;
    case OP_GT:
        return v_order(r, a, b) > 0;
    default:
        return v_order(r, a, b) >= 0;
    }
}
