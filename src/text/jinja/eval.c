/*
 * Carrying out a template. A block has a scope where jinja2 gives it one: what `set` sets in a loop, a macro, a `set`
 * block or a `with` is gone behind it, what it sets in an `if` is not. Names are looked up from the inside out, last
 * among the functions.
 */
#include "text/jinja/impl.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Jump { JUMP_NONE, JUMP_BREAK, JUMP_CONTINUE } Jump;

static JinjaValue eval(JinjaRun *r, const JinjaNode *node, JinjaScope *scope);
static Jump exec(JinjaRun *r, const JinjaNode *body, JinjaScope *scope, JinjaWriter *out);

/* ---- failing, memory, steps ---- */

JinjaValue j_fail(JinjaRun *r, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!r->rc)
        r->rc = err_set(r->err, CVN_EINVAL, "line %d of the chat template: %s", r->line, what);
    return v_undefined(NULL);
}

void *j_take(JinjaRun *r, size_t size)
{
    if (r->arena.used > r->max_memory)
        j_fail(r, "it creates more than %zu MiB of text and lists", r->max_memory >> 20);
    return arena_alloc(&r->arena, size);
}

bool j_step(JinjaRun *r, size_t n)
{
    if (r->rc)
        return false;
    if (n > (size_t)r->steps) {
        r->steps = 0;
        j_fail(r, "it takes too many steps; does it loop?");
        return false;
    }
    r->steps -= (int64_t)n;
    return true;
}

bool j_deeper(JinjaRun *r)
{
    if (r->depth >= JINJA_MAX_DEPTH) {
        j_fail(r, "calls and values are nested too deeply");
        return false;
    }
    r->depth++;
    return !r->rc || (r->depth--, false);
}

/* ---- variables ---- */

static JinjaValue *find(const JinjaScope *scope, const char *name)
{
    for (; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->n; i++)
            if (scope->variable[i].name == name)
                return &scope->variable[i].value;
    return NULL;
}

static void set(JinjaRun *r, JinjaScope *scope, const char *name, JinjaValue value)
{
    for (size_t i = 0; i < scope->n; i++) {
        if (scope->variable[i].name == name) {
            scope->variable[i].value = value;
            return;
        }
    }
    if (r->rc)
        return;
    if (scope->n > 0 || !scope->variable) /* else there is one from the last round */
        scope->variable = arena_more(&r->arena, scope->variable, scope->n, sizeof *scope->variable);
    scope->variable[scope->n++] = (Variable){name, value};
}

static JinjaValue lookup(const JinjaScope *scope, const char *name)
{
    const JinjaValue *found = find(scope, name);
    const Builtin *function = found ? NULL : j_builtin_find(FUNCTION, name);
    return found      ? *found
           : function ? (JinjaValue){.type = V_FUNCTION, .function = function}
                      : v_undefined(name);
}

static void assign(JinjaRun *r, JinjaScope *scope, const JinjaNode *target, JinjaValue value)
{
    if (target->kind == N_NAME) {
        set(r, scope, target->name, value);
        return;
    }
    if (target->kind == N_ATTR_TARGET) {
        JinjaValue object = lookup(scope, target->name);
        if (object.type != V_NAMESPACE)
            j_fail(r, "only attributes of a namespace can be set, and '%.40s' is not a namespace",
                   target->name);
        else if (target->attribute[0] == '_')
            j_fail(r, "a namespace has no attributes that begin with _");
        else
            j_dict_set(r, object.dict, v_own(r, target->attribute), value);
        return;
    }
    Seq items = v_items(r, value);
    size_t i = 0;
    const JinjaNode *each = target->child;
    if (!j_deeper(r))
        return;
    for (; each && i < items.n; each = each->next)
        assign(r, scope, each, items.item[i++]);
    r->depth--;
    if (each || i < items.n)
        j_fail(r, "%zu values cannot be unpacked into another number of names", items.n);
}

static JinjaScope *scope_new(JinjaRun *r, JinjaScope *parent)
{
    JinjaScope *scope = j_take(r, sizeof *scope);
    scope->parent = parent;
    return scope;
}

/* A scope for the next round of a loop: the last one's, unless something looks names up there. */
static JinjaScope *scope_again(JinjaRun *r, JinjaScope *last)
{
    if (last->kept)
        return scope_new(r, last->parent);
    last->n = 0;
    return last;
}

/* ---- calls ---- */

static void eval_args(JinjaRun *r, const JinjaNode *list, JinjaScope *scope, JinjaArgs *args)
{
    Items items = {0};
    Dict named = {0};
    for (const JinjaNode *each = list; each && !r->rc; each = each->next) {
        if (each->kind == N_NAMED) {
            j_dict_set(r, &named, v_own(r, each->name), eval(r, each->a, scope));
        } else if (each->kind == N_STAR) {
            Seq more = v_items(r, eval(r, each->a, scope));
            for (size_t i = 0; i < more.n; i++)
                j_items_add(r, &items, more.item[i]);
        } else if (each->kind == N_STARS) {
            JinjaValue more = eval(r, each->a, scope);
            if (more.type != V_DICT) {
                j_fail(r, "** is followed by something that is not a dictionary");
                return;
            }
            for (size_t i = 0; i < more.dict->n && j_step(r, 1); i++)
                j_dict_set(r, &named, more.dict->pair[i].key, more.dict->pair[i].value);
        } else {
            j_items_add(r, &items, eval(r, each, scope));
        }
    }
    *args = (JinjaArgs){items.item, items.n, named.pair, named.n};
}

/* A macro's parameters in `scope`, by position, by name, or by their defaults. */
static void bind(JinjaRun *r, const Macro *macro, const JinjaArgs *args, JinjaScope *scope)
{
    const JinjaNode *node = macro->node;
    size_t i = 0, used = 0;
    for (const JinjaNode *p = node->others; p && !r->rc; p = p->next, i++) {
        const JinjaValue *named = j_named_arg(args, p->name);
        if (named && i < args->n)
            j_fail(r, "'%s' is given '%s' twice", node->name, p->name);
        used += named != NULL;
        JinjaValue value = v_undefined(p->name);
        if (i < args->n)
            value = args->item[i];
        else if (named)
            value = *named;
        else if (p->a)
            value = eval(r, p->a, scope);
        set(r, scope, p->name, value);
    }
    const char *varargs = j_name_find(r->jinja, "varargs", 7),
               *kwargs = j_name_find(r->jinja, "kwargs", 6);
    const char *caller = j_name_find(r->jinja, "caller", 6);
    if (args->n > i && !varargs)
        j_fail(r, "'%s' takes at most %zu arguments", node->name, i);
    else if (varargs && !find(scope, varargs))
        set(r, scope, varargs,
            v_seq(r, V_TUPLE, args->n > i ? args->item + i : NULL, args->n > i ? args->n - i : 0));
    if (macro->caller.type != V_ABSENT && caller)
        set(r, scope, caller, macro->caller);
    if (used == args->n_named && !kwargs)
        return;
    if (!kwargs) {
        j_fail(r, "'%s' has no parameter of that name", node->name);
        return;
    }
    Dict *rest = j_take(r, sizeof *rest);
    for (size_t k = 0; k < args->n_named; k++) {
        const JinjaNode *p = node->others;
        while (p && !str_is(*args->named[k].key.str, p->name))
            p = p->next;
        if (!p)
            j_dict_set(r, rest, args->named[k].key, args->named[k].value);
    }
    set(r, scope, kwargs, (JinjaValue){.type = V_DICT, .dict = rest});
}

static JinjaValue call_macro(JinjaRun *r, const Macro *macro, const JinjaArgs *args)
{
    JinjaScope *scope = scope_new(r, macro->scope);
    JinjaWriter out = {0};
    if (!j_deeper(r))
        return v_undefined(NULL);
    bind(r, macro, args, scope);
    exec(r, macro->node->child, scope, &out);
    r->depth--;
    return j_text_value(r, &out);
}

JinjaValue j_call_value(JinjaRun *r, JinjaValue callee, const JinjaArgs *args)
{
    switch (callee.type) {
    case V_MACRO:
        return call_macro(r, callee.macro, args);
    case V_FUNCTION:
        return j_call_builtin(r, callee.function, v_none(), args);
    case V_METHOD:
        return j_call_builtin(r, callee.method->row, callee.method->self, args);
    case V_UNDEFINED:
        return j_fail(r, "'%.60s' is undefined and cannot be called",
                      callee.missing ? callee.missing : "");
    default:
        return j_fail(r, "a %s cannot be called", v_type_name(callee));
    }
}

static JinjaValue eval_call(JinjaRun *r, const JinjaNode *node, JinjaScope *scope,
                            JinjaValue caller)
{
    JinjaArgs args;
    JinjaValue callee, self;
    if (node->a->kind == N_ATTR) {
        self = eval(r, node->a->a, scope);
        const Builtin *row = j_method_find(self.type, node->a->name);
        if (row) {
            eval_args(r, node->child, scope, &args);
            r->line = node->line;
            return j_call_builtin(r, row, self, &args);
        }
        callee = v_attribute(r, self, node->a->name);
        if (callee.type == V_UNDEFINED && !r->rc)
            return j_fail(r, "a %s has no method '%.40s' that is allowed here", v_type_name(self),
                          node->a->name);
    } else {
        callee = eval(r, node->a, scope);
    }
    eval_args(r, node->child, scope, &args);
    r->line = node->line;
    if (caller.type == V_ABSENT || callee.type != V_MACRO)
        return j_call_value(r, callee, &args);
    Macro macro = *callee.macro;
    macro.caller = caller;
    return call_macro(r, &macro, &args);
}

/* ---- expressions ---- */

static JinjaValue eval_compare(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    JinjaValue left = eval(r, node->a, scope);
    for (const JinjaNode *each = node->child; each && !r->rc; each = each->next) {
        JinjaValue right = eval(r, each->a, scope);
        if (r->rc || !j_compare(r, each->op, left, right))
            return v_bool(false);
        left = right;
    }
    return v_bool(true);
}

static JinjaValue eval_sign(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    JinjaValue v = eval(r, node->a, scope);
    if (r->rc || v_is_number(v))
        return j_operate(r, node->kind == N_NEGATE ? OP_SUB : OP_ADD, v_int(0), v);
    return j_fail(r, "a %s has no sign", v_type_name(v));
}

/* node->a, or what a filter block's text was, through a chain of filters. */
static JinjaValue eval_filter(JinjaRun *r, const JinjaNode *node, JinjaScope *scope,
                              JinjaValue inner)
{
    JinjaArgs args;
    JinjaValue self = inner;
    if (node->a)
        self = node->a->kind == N_FILTER ? eval_filter(r, node->a, scope, inner)
                                         : eval(r, node->a, scope);
    eval_args(r, node->child, scope, &args);
    r->line = node->line;
    if (!node->builtin)
        return j_fail(r, "unknown %s '%.40s'", node->kind == N_FILTER ? "filter" : "test",
                      node->name);
    return j_call_builtin(r, node->builtin, self, &args);
}

static JinjaValue eval_list(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    Items items = {0};
    for (const JinjaNode *each = node->child; each && !r->rc; each = each->next)
        j_items_add(r, &items, eval(r, each, scope));
    return v_seq(r, node->kind == N_LIST ? V_LIST : V_TUPLE, items.item, items.n);
}

static JinjaValue eval_dict(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    Dict *dict = j_take(r, sizeof *dict);
    for (const JinjaNode *each = node->child; each && !r->rc; each = each->next->next) {
        JinjaValue key = eval(r, each, scope);
        j_dict_set(r, dict, key, eval(r, each->next, scope));
    }
    return (JinjaValue){.type = V_DICT, .dict = dict};
}

static JinjaValue eval_concat(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    JinjaWriter text = {0};
    for (const JinjaNode *each = node->child; each && !r->rc; each = each->next)
        j_write_value(r, &text, eval(r, each, scope), false);
    return j_text_value(r, &text);
}

static JinjaValue eval_slice(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    JinjaValue of = eval(r, node->a, scope);
    JinjaValue from = node->b ? eval(r, node->b, scope) : v_none();
    JinjaValue to = node->c ? eval(r, node->c, scope) : v_none();
    return v_slice(r, of, from, to, node->d ? eval(r, node->d, scope) : v_none());
}

static JinjaValue eval_node(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    JinjaValue a;
    switch (node->kind) {
    case N_CONST:
        return node->value;
    case N_NAME:
        return lookup(scope, node->name);
    case N_LIST:
    case N_TUPLE:
        return eval_list(r, node, scope);
    case N_DICT:
        return eval_dict(r, node, scope);
    case N_ATTR:
        a = eval(r, node->a, scope);
        return v_attribute(r, a, node->name);
    case N_ITEM:
        a = eval(r, node->a, scope);
        return v_item(r, a, eval(r, node->b, scope));
    case N_SLICE:
        return eval_slice(r, node, scope);
    case N_CALL:
        return eval_call(r, node, scope, (JinjaValue){0});
    case N_FILTER:
    case N_TEST:
        return eval_filter(r, node, scope, v_undefined(NULL));
    case N_NOT:
        return v_bool(!v_true(eval(r, node->a, scope)));
    case N_NEGATE:
    case N_PLUS:
        return eval_sign(r, node, scope);
    case N_AND:
        a = eval(r, node->a, scope);
        return v_true(a) ? eval(r, node->b, scope) : a;
    case N_OR:
        a = eval(r, node->a, scope);
        return v_true(a) ? a : eval(r, node->b, scope);
    case N_BINARY:
        a = eval(r, node->a, scope);
        return j_operate(r, node->op, a, eval(r, node->b, scope));
    case N_CONCAT:
        return eval_concat(r, node, scope);
    case N_COMPARE:
        return eval_compare(r, node, scope);
    case N_IF_ELSE:
        if (v_true(eval(r, node->b, scope)))
            return eval(r, node->a, scope);
        return node->c ? eval(r, node->c, scope) : v_undefined("else");
    default:
        return j_fail(r, "a name or an argument is not expected here");
    }
}

static JinjaValue eval(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    if (!j_step(r, 1) || !j_deeper(r))
        return v_undefined(NULL);
    r->line = node->line;
    JinjaValue value = eval_node(r, node, scope);
    r->depth--;
    return r->rc ? v_undefined(NULL) : value;
}

/* ---- statements ---- */

/* The items of a loop that pass its `if`. */
static Seq chosen(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, Seq items)
{
    Items kept = {0};
    JinjaScope *inner = scope_new(r, scope);
    for (size_t i = 0; i < items.n && !r->rc; i++) {
        inner = scope_again(r, inner);
        assign(r, inner, node->a, items.item[i]);
        if (v_true(eval(r, node->c, inner)))
            j_items_add(r, &kept, items.item[i]);
    }
    return (Seq){kept.item, kept.n};
}

static Jump exec_for(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, JinjaWriter *out)
{
    const char *name = j_name_find(r->jinja, "loop", 4);
    Seq items = v_items(r, eval(r, node->b, scope));
    if (node->c)
        items = chosen(r, node, scope, items);
    JinjaLoop *loop = j_take(r, sizeof *loop);
    *loop = (JinjaLoop){.item = items.item, .n = items.n};
    JinjaScope *inner = scope_new(r, scope);
    for (; loop->i < loop->n && j_step(r, 1); loop->i++) {
        inner = scope_again(r, inner);
        if (name)
            set(r, inner, name, (JinjaValue){.type = V_LOOP, .loop = loop});
        assign(r, inner, node->a, items.item[loop->i]);
        if (exec(r, node->child, inner, out) == JUMP_BREAK)
            break;
    }
    if (items.n == 0 && node->others)
        return exec(r, node->others, scope_new(r, scope), out);
    return JUMP_NONE;
}

static Jump exec_if(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, JinjaWriter *out)
{
    for (const JinjaNode *branch = node->child; branch && !r->rc; branch = branch->next)
        if (!branch->a || v_true(eval(r, branch->a, scope)))
            return exec(r, branch->child, scope, out);
    return JUMP_NONE;
}

static JinjaValue exec_text(JinjaRun *r, const JinjaNode *body, JinjaScope *scope)
{
    JinjaWriter text = {0};
    exec(r, body, scope_new(r, scope), &text);
    return j_text_value(r, &text);
}

static JinjaValue macro_new(JinjaRun *r, const JinjaNode *node, JinjaScope *scope)
{
    Macro *macro = j_take(r, sizeof *macro);
    *macro = (Macro){.node = node, .scope = scope};
    for (JinjaScope *each = scope; each && !each->kept; each = each->parent)
        each->kept = true;
    return (JinjaValue){.type = V_MACRO, .macro = macro};
}

static Jump exec_scope(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, JinjaWriter *out)
{
    JinjaScope *inner = scope_new(r, scope);
    for (const JinjaNode *set = node->others; set && !r->rc; set = set->next)
        assign(r, inner, set->a, eval(r, set->b, scope));
    return exec(r, node->child, inner, out);
}

/* Renders a stretch that the assistant says, which {% generation %} marks. */
static Jump exec_generation(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, JinjaWriter *out)
{
    size_t from = out->n;
    Jump jump = exec_scope(r, node, scope, out);
    for (size_t i = from; i < out->n; i++)
        out->mark[i] |= MARK_GENERATED;
    return jump;
}

static Jump exec_node(JinjaRun *r, const JinjaNode *node, JinjaScope *scope, JinjaWriter *out)
{
    JinjaValue value;
    switch (node->kind) {
    case N_TEXT:
        j_text_add(r, out, *node->value.str);
        break;
    case N_OUTPUT:
        j_write_value(r, out, eval(r, node->a, scope), false);
        break;
    case N_SET:
        assign(r, scope, node->a, eval(r, node->b, scope));
        break;
    case N_SET_BLOCK:
        value = exec_text(r, node->child, scope);
        assign(r, scope, node->a, node->b ? eval_filter(r, node->b, scope, value) : value);
        break;
    case N_FOR:
        return exec_for(r, node, scope, out);
    case N_IF:
        return exec_if(r, node, scope, out);
    case N_MACRO:
        set(r, scope, node->name, macro_new(r, node, scope));
        break;
    case N_CALL_BLOCK:
        j_write_value(r, out, eval_call(r, node->a, scope, macro_new(r, node, scope)), false);
        break;
    case N_FILTER_BLOCK:
        j_write_value(r, out, eval_filter(r, node->a, scope, exec_text(r, node->child, scope)),
                      false);
        break;
    case N_SCOPE:
        return exec_scope(r, node, scope, out);
    case N_GENERATION:
        return exec_generation(r, node, scope, out);
    case N_BREAK:
        return JUMP_BREAK;
    case N_CONTINUE:
        return JUMP_CONTINUE;
    default:
        break;
    }
    return JUMP_NONE;
}

static Jump exec(JinjaRun *r, const JinjaNode *body, JinjaScope *scope, JinjaWriter *out)
{
    Jump jump = JUMP_NONE;
    if (!j_deeper(r))
        return JUMP_NONE;
    for (const JinjaNode *node = body; node && jump == JUMP_NONE && j_step(r, 1);
         node = node->next) {
        r->line = node->line;
        jump = exec_node(r, node, scope, out);
    }
    r->depth--;
    return jump;
}

/* ---- from the outside ---- */

const char *j_name_find(const JinjaTemplate *jinja, const char *text, size_t n)
{
    const uint64_t *found = map_get(&jinja->names, text, n);
    return found ? (const char *)(uintptr_t)*found : NULL;
}

typedef struct Reading {
    JinjaTemplate *jinja;
    const char *source; /* [n] */
    size_t n;
} Reading;

static int read_source(void *of, cvn_err *err)
{
    const Reading *reading = of;
    Token *tokens = NULL;
    map_init(&reading->jinja->names, &reading->jinja->arena);
    TRY(jinja_lex(reading->source, reading->n, &reading->jinja->arena, &tokens, err));
    return jinja_parse(reading->jinja, tokens, err);
}

int jinja_read(const char *source, size_t n, JinjaTemplate **out, cvn_err *err)
{
    *out = NULL;
    JinjaTemplate *jinja = calloc(1, sizeof *jinja);
    if (!jinja)
        return err_set(err, CVN_EMEM, "no memory for a chat template");
    int rc = arena_init(&jinja->arena, err);
    if (!rc)
        rc = protect(read_source, &(Reading){jinja, source, n}, "reading a chat template", err);
    if (rc)
        jinja_free(jinja);
    else
        *out = jinja;
    return rc;
}

void jinja_free(JinjaTemplate *jinja)
{
    if (jinja)
        arena_free(&jinja->arena);
    free(jinja);
}

void jinja_text_free(JinjaText *text)
{
    strbuf_free(&text->text);
    strbuf_free(&text->mark);
    strbuf_free(&text->generated);
}

/* The members of an object, as far as the template has their names. */
static void set_variables(JinjaRun *r, const json_t *object, char mark)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const char *name = j_name_find(r->jinja, key, strlen(key));
        if (name)
            set(r, &r->root, name, v_from_json(r, value, mark));
    }
}

static void run_free(JinjaRun *r)
{
    if (r->locale)
        freelocale((locale_t)r->locale);
    arena_free(&r->arena);
}

/* A rendering of a template. *text is in the run's arena. */
typedef struct Rendering {
    JinjaRun *r;
    JinjaWriter text;
} Rendering;

static int render(void *of, cvn_err *err)
{
    Rendering *to = of;
    JinjaRun *r = to->r;
    (void)err; /* the run's */
    set_variables(r, r->input->own, JINJA_OWN);
    set_variables(r, r->input->data, JINJA_DATA);
    exec(r, r->jinja->body, &r->root, &to->text);
    j_take(r, 1); /* looks at what has been taken */
    return r->rc;
}

int jinja_render(const JinjaTemplate *jinja, const JinjaInput *input, JinjaText *out, cvn_err *err)
{
    JinjaRun r = {.jinja = jinja,
                  .input = input,
                  .err = err,
                  .line = 1,
                  .max_memory = input->max_memory ? input->max_memory : JINJA_MAX_MEMORY,
                  .steps = input->max_steps ? input->max_steps : JINJA_MAX_STEPS};
    Rendering to = {.r = &r};
    const JinjaWriter *text = &to.text;
    TRY(arena_init(&r.arena, err));
    r.rc = protect(render, &to, "rendering a chat template", err);
    if (!r.rc) {
        strbuf_add(&out->text, text->n ? text->text : "", text->n);
        for (size_t i = 0; i < text->n; i++) {
            strbuf_putc(&out->mark, (char)(text->mark[i] & JINJA_DATA));
            strbuf_putc(&out->generated, (text->mark[i] & MARK_GENERATED) != 0);
        }
        if (out->text.failed || out->mark.failed || out->generated.failed)
            r.rc = err_set(err, CVN_EMEM, "no memory for %zu bytes of a conversation", text->n);
    }
    run_free(&r);
    return r.rc;
}
