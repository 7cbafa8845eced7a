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

static Value eval(Run *r, const Node *node, Scope *scope);
static Jump exec(Run *r, const Node *body, Scope *scope, Text *out);

/* ---- failing, memory, steps ---- */

Value j_fail(Run *r, const char *format, ...)
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

void *j_take(Run *r, size_t size)
{
    if (r->arena.used > r->max_memory)
        j_fail(r, "it makes more than %zu MiB of text and lists", r->max_memory >> 20);
    return arena_alloc(&r->arena, size);
}

bool j_step(Run *r, size_t n)
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

bool j_deeper(Run *r)
{
    if (r->depth >= JINJA_MAX_DEPTH) {
        j_fail(r, "calls and values are nested too deeply");
        return false;
    }
    r->depth++;
    return !r->rc || (r->depth--, false);
}

/* ---- variables ---- */

static Value *find(const Scope *scope, const char *name)
{
    for (; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->n; i++)
            if (scope->variable[i].name == name)
                return &scope->variable[i].value;
    return NULL;
}

static void set(Run *r, Scope *scope, const char *name, Value value)
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

static Value lookup(const Scope *scope, const char *name)
{
    const Value *found = find(scope, name);
    const Builtin *function = found ? NULL : j_builtin_find(FUNCTION, name);
    return found      ? *found
           : function ? (Value){.type = V_FUNCTION, .function = function}
                      : v_undefined(name);
}

static void assign(Run *r, Scope *scope, const Node *target, Value value)
{
    if (target->kind == N_NAME) {
        set(r, scope, target->name, value);
        return;
    }
    if (target->kind == N_ATTR_TARGET) {
        Value object = lookup(scope, target->name);
        if (object.type != V_NAMESPACE)
            j_fail(r, "only attributes of a namespace can be set, and '%.40s' is none",
                   target->name);
        else if (target->attribute[0] == '_')
            j_fail(r, "a namespace has no attributes that begin with _");
        else
            j_dict_set(r, object.dict, v_own(r, target->attribute), value);
        return;
    }
    Seq items = v_items(r, value);
    size_t i = 0;
    const Node *each = target->child;
    if (!j_deeper(r))
        return;
    for (; each && i < items.n; each = each->next)
        assign(r, scope, each, items.item[i++]);
    r->depth--;
    if (each || i < items.n)
        j_fail(r, "there are %zu values to be put into other than so many names", items.n);
}

static Scope *scope_new(Run *r, Scope *parent)
{
    Scope *scope = j_take(r, sizeof *scope);
    scope->parent = parent;
    return scope;
}

/* A scope for the next round of a loop: the last one's, unless something looks names up there. */
static Scope *scope_again(Run *r, Scope *last)
{
    if (last->kept)
        return scope_new(r, last->parent);
    last->n = 0;
    return last;
}

/* ---- calls ---- */

static void eval_args(Run *r, const Node *list, Scope *scope, Args *args)
{
    Items items = {0};
    Dict named = {0};
    for (const Node *each = list; each && !r->rc; each = each->next) {
        if (each->kind == N_NAMED) {
            j_dict_set(r, &named, v_own(r, each->name), eval(r, each->a, scope));
        } else if (each->kind == N_STAR) {
            Seq more = v_items(r, eval(r, each->a, scope));
            for (size_t i = 0; i < more.n; i++)
                j_items_add(r, &items, more.item[i]);
        } else if (each->kind == N_STARS) {
            Value more = eval(r, each->a, scope);
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
    *args = (Args){items.item, items.n, named.pair, named.n};
}

/* A macro's parameters in `scope`, by position, by name, or by their defaults. */
static void bind(Run *r, const Macro *macro, const Args *args, Scope *scope)
{
    const Node *node = macro->node;
    size_t i = 0, used = 0;
    for (const Node *p = node->others; p && !r->rc; p = p->next, i++) {
        const Value *named = j_named_arg(args, p->name);
        if (named && i < args->n)
            j_fail(r, "'%s' is given '%s' twice", node->name, p->name);
        used += named != NULL;
        Value value = v_undefined(p->name);
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
        j_fail(r, "'%s' is given an argument by a name that it does not have", node->name);
        return;
    }
    Dict *rest = j_take(r, sizeof *rest);
    for (size_t k = 0; k < args->n_named; k++) {
        const Node *p = node->others;
        while (p && !str_is(*args->named[k].key.str, p->name))
            p = p->next;
        if (!p)
            j_dict_set(r, rest, args->named[k].key, args->named[k].value);
    }
    set(r, scope, kwargs, (Value){.type = V_DICT, .dict = rest});
}

static Value call_macro(Run *r, const Macro *macro, const Args *args)
{
    Scope *scope = scope_new(r, macro->scope);
    Text out = {0};
    if (!j_deeper(r))
        return v_undefined(NULL);
    bind(r, macro, args, scope);
    exec(r, macro->node->child, scope, &out);
    r->depth--;
    return j_text_value(r, &out);
}

Value j_call_value(Run *r, Value callee, const Args *args)
{
    switch (callee.type) {
    case V_MACRO:
        return call_macro(r, callee.macro, args);
    case V_FUNCTION:
        return j_call_builtin(r, callee.function, v_none(), args);
    case V_METHOD:
        return j_call_builtin(r, callee.method->row, callee.method->self, args);
    case V_UNDEFINED:
        return j_fail(r, "'%.60s' is not known, and cannot be called",
                      callee.missing ? callee.missing : "");
    default:
        return j_fail(r, "a %s cannot be called", v_type_name(callee));
    }
}

static Value eval_call(Run *r, const Node *node, Scope *scope, Value caller)
{
    Args args;
    Value callee, self;
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
            return j_fail(r, "a %s has no method '%.40s' that may be called here",
                          v_type_name(self), node->a->name);
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

static Value eval_compare(Run *r, const Node *node, Scope *scope)
{
    Value left = eval(r, node->a, scope);
    for (const Node *each = node->child; each && !r->rc; each = each->next) {
        Value right = eval(r, each->a, scope);
        if (r->rc || !j_compare(r, each->op, left, right))
            return v_bool(false);
        left = right;
    }
    return v_bool(true);
}

static Value eval_sign(Run *r, const Node *node, Scope *scope)
{
    Value v = eval(r, node->a, scope);
    if (r->rc || v_is_number(v))
        return j_operate(r, node->kind == N_NEGATE ? OP_SUB : OP_ADD, v_int(0), v);
    return j_fail(r, "a %s has no sign", v_type_name(v));
}

/* node->a, or what a filter block's text was, through a chain of filters. */
static Value eval_filter(Run *r, const Node *node, Scope *scope, Value inner)
{
    Args args;
    Value self = inner;
    if (node->a)
        self = node->a->kind == N_FILTER ? eval_filter(r, node->a, scope, inner)
                                         : eval(r, node->a, scope);
    eval_args(r, node->child, scope, &args);
    r->line = node->line;
    if (!node->builtin)
        return j_fail(r, "the %s '%.40s' is not known", node->kind == N_FILTER ? "filter" : "test",
                      node->name);
    return j_call_builtin(r, node->builtin, self, &args);
}

static Value eval_list(Run *r, const Node *node, Scope *scope)
{
    Items items = {0};
    for (const Node *each = node->child; each && !r->rc; each = each->next)
        j_items_add(r, &items, eval(r, each, scope));
    return v_seq(r, node->kind == N_LIST ? V_LIST : V_TUPLE, items.item, items.n);
}

static Value eval_dict(Run *r, const Node *node, Scope *scope)
{
    Dict *dict = j_take(r, sizeof *dict);
    for (const Node *each = node->child; each && !r->rc; each = each->next->next) {
        Value key = eval(r, each, scope);
        j_dict_set(r, dict, key, eval(r, each->next, scope));
    }
    return (Value){.type = V_DICT, .dict = dict};
}

static Value eval_concat(Run *r, const Node *node, Scope *scope)
{
    Text text = {0};
    for (const Node *each = node->child; each && !r->rc; each = each->next)
        j_write_value(r, &text, eval(r, each, scope), false);
    return j_text_value(r, &text);
}

static Value eval_slice(Run *r, const Node *node, Scope *scope)
{
    Value of = eval(r, node->a, scope);
    Value from = node->b ? eval(r, node->b, scope) : v_none();
    Value to = node->c ? eval(r, node->c, scope) : v_none();
    return v_slice(r, of, from, to, node->d ? eval(r, node->d, scope) : v_none());
}

static Value eval_node(Run *r, const Node *node, Scope *scope)
{
    Value a;
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
        return eval_call(r, node, scope, (Value){0});
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
        return j_fail(r, "a name or an argument stands where it means nothing");
    }
}

static Value eval(Run *r, const Node *node, Scope *scope)
{
    if (!j_step(r, 1) || !j_deeper(r))
        return v_undefined(NULL);
    r->line = node->line;
    Value value = eval_node(r, node, scope);
    r->depth--;
    return r->rc ? v_undefined(NULL) : value;
}

/* ---- statements ---- */

/* The items of a loop that pass its `if`. */
static Seq chosen(Run *r, const Node *node, Scope *scope, Seq items)
{
    Items kept = {0};
    Scope *inner = scope_new(r, scope);
    for (size_t i = 0; i < items.n && !r->rc; i++) {
        inner = scope_again(r, inner);
        assign(r, inner, node->a, items.item[i]);
        if (v_true(eval(r, node->c, inner)))
            j_items_add(r, &kept, items.item[i]);
    }
    return (Seq){kept.item, kept.n};
}

static Jump exec_for(Run *r, const Node *node, Scope *scope, Text *out)
{
    const char *name = j_name_find(r->jinja, "loop", 4);
    Seq items = v_items(r, eval(r, node->b, scope));
    if (node->c)
        items = chosen(r, node, scope, items);
    Loop *loop = j_take(r, sizeof *loop);
    *loop = (Loop){.item = items.item, .n = items.n};
    Scope *inner = scope_new(r, scope);
    for (; loop->i < loop->n && j_step(r, 1); loop->i++) {
        inner = scope_again(r, inner);
        if (name)
            set(r, inner, name, (Value){.type = V_LOOP, .loop = loop});
        assign(r, inner, node->a, items.item[loop->i]);
        if (exec(r, node->child, inner, out) == JUMP_BREAK)
            break;
    }
    if (items.n == 0 && node->others)
        return exec(r, node->others, scope_new(r, scope), out);
    return JUMP_NONE;
}

static Jump exec_if(Run *r, const Node *node, Scope *scope, Text *out)
{
    for (const Node *branch = node->child; branch && !r->rc; branch = branch->next)
        if (!branch->a || v_true(eval(r, branch->a, scope)))
            return exec(r, branch->child, scope, out);
    return JUMP_NONE;
}

static Value exec_text(Run *r, const Node *body, Scope *scope)
{
    Text text = {0};
    exec(r, body, scope_new(r, scope), &text);
    return j_text_value(r, &text);
}

static Value macro_new(Run *r, const Node *node, Scope *scope)
{
    Macro *macro = j_take(r, sizeof *macro);
    *macro = (Macro){.node = node, .scope = scope};
    for (Scope *each = scope; each && !each->kept; each = each->parent)
        each->kept = true;
    return (Value){.type = V_MACRO, .macro = macro};
}

static Jump exec_scope(Run *r, const Node *node, Scope *scope, Text *out)
{
    Scope *inner = scope_new(r, scope);
    for (const Node *set = node->others; set && !r->rc; set = set->next)
        assign(r, inner, set->a, eval(r, set->b, scope));
    return exec(r, node->child, inner, out);
}

/* What the assistant says, as the template tells. */
static Jump exec_generation(Run *r, const Node *node, Scope *scope, Text *out)
{
    size_t from = out->n;
    Jump jump = exec_scope(r, node, scope, out);
    for (size_t i = from; i < out->n; i++)
        out->mark[i] |= MARK_GENERATED;
    return jump;
}

static Jump exec_node(Run *r, const Node *node, Scope *scope, Text *out)
{
    Value value;
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

static Jump exec(Run *r, const Node *body, Scope *scope, Text *out)
{
    Jump jump = JUMP_NONE;
    if (!j_deeper(r))
        return JUMP_NONE;
    for (const Node *node = body; node && jump == JUMP_NONE && j_step(r, 1); node = node->next) {
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
static void set_variables(Run *r, const json_t *object, char mark)
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

static void run_free(Run *r)
{
    if (r->locale)
        freelocale((locale_t)r->locale);
    arena_free(&r->arena);
}

/* What is rendered goes to *text, in the run's arena. */
typedef struct Rendering {
    Run *r;
    Text text;
} Rendering;

static int render(void *of, cvn_err *err)
{
    Rendering *to = of;
    Run *r = to->r;
    (void)err; /* the run's */
    set_variables(r, r->input->own, JINJA_OWN);
    set_variables(r, r->input->data, JINJA_DATA);
    exec(r, r->jinja->body, &r->root, &to->text);
    j_take(r, 1); /* looks at what has been taken */
    return r->rc;
}

int jinja_render(const JinjaTemplate *jinja, const JinjaInput *input, JinjaText *out, cvn_err *err)
{
    Run r = {.jinja = jinja,
             .input = input,
             .err = err,
             .line = 1,
             .max_memory = input->max_memory ? input->max_memory : JINJA_MAX_MEMORY,
             .steps = input->max_steps ? input->max_steps : JINJA_MAX_STEPS};
    Rendering to = {.r = &r};
    const Text *text = &to.text;
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
