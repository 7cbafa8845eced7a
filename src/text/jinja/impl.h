/*
 * The inside of Jinja: what is read (tokens, nodes) and what is computed with (values).
 *
 *     source --lexer.c--> tokens --parse.c--> nodes --eval.c--> marked text
 *                                              uses value.c, operate.c, write.c, strings.c, builtins*.c
 *
 * Values cannot change, as in jinja2's immutable sandbox, but for the attributes of a namespace. They lie in the
 * arena of one rendering and die with it. Failure: the first one is kept in `Run` (fail), everything after it is done
 * for nothing and soon over, as every loop looks at it.
 */
#ifndef CVN_TEXT_JINJA_IMPL_H
#define CVN_TEXT_JINJA_IMPL_H

#include "base/map.h"
#include "text/jinja/jinja.h"

/* ---- values ---- */

/* Beside JINJA_OWN or JINJA_DATA in the mark of a byte: a `generation` wrote it. */
enum { MARK_GENERATED = 2 };

/* A string: UTF-8, not ended by NUL, and for each byte where it came from. */
typedef struct Str {
    const char *text; /* [n] */
    const char *mark; /* [n] JINJA_OWN or JINJA_DATA, perhaps with MARK_GENERATED */
    size_t n;         /* bytes */
} Str;

typedef enum ValueType {
    V_ABSENT, /* an argument that was not given; never a value of a template */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_RANGE,
    V_ITER, /* a generator of Python's: can be gone through once; with `flag` a view, which has a length */
    V_DICT,
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_METHOD,   /* of a value, not yet called */
    V_FUNCTION, /* range, dict, … */
} ValueType;

typedef struct Value {
    ValueType type;
    bool flag; /* V_STR: `safe` was applied, + escapes what it is added to; V_ITER: a view */
    union {
        bool b;
        int64_t i;
        double f;
        Str *str;
        struct Seq *seq;
        struct Dict *dict; /* of V_NAMESPACE, too */
        struct Loop *loop;
        struct Macro *macro;
        struct Method *method;
        const struct Builtin *function;
        const char *missing; /* V_UNDEFINED: what is not there, for messages; or NULL */
    };
} Value;

typedef struct Seq {
    Value *item; /* [n] */
    size_t n;
} Seq;

typedef struct Pair {
    Value key, value;
} Pair;

/* In the order in which keys came. */
typedef struct Dict {
    Pair *pair; /* [n] */
    size_t n;
} Dict;

typedef struct Scope {
    struct Scope *parent;
    struct Variable *variable; /* [n] arena */
    size_t n;
    bool kept; /* a macro was defined in it or below, and looks names up here later */
} Scope;

typedef struct Variable {
    const char *name; /* interned: equal names are the same pointer */
    Value value;
} Variable;

typedef struct Loop {
    const Value *item; /* [n] */
    size_t n, i;       /* i: of the item that is at its turn */
    Value last;        /* what `changed` was last called with, a tuple */
} Loop;

typedef struct Macro {
    const struct Node *node;
    Scope *scope; /* where it was defined */
    Value caller; /* a call block's body, for the time of a call; V_ABSENT else */
} Macro;

typedef struct Method {
    const struct Builtin *row;
    Value self;
} Method;

/* The arguments of a call. */
typedef struct Args {
    Value *item; /* [n] by position */
    size_t n;
    Pair *named; /* [n_named] by name; keys are strings */
    size_t n_named;
} Args;

typedef struct Run {
    Arena arena;       /* owned: all values */
    size_t max_memory; /* bytes of it */
    int64_t steps;     /* that are left */
    int depth;         /* of evaluation now */
    int line;          /* of what is evaluated */
    int rc;            /* the first failure */
    cvn_err *err;      /* borrowed */
    const JinjaInput *input;
    const JinjaTemplate *jinja;
    Scope root;
    void *locale; /* a locale_t for upper and lower, once needed */
} Run;

/* A filter, test, function or method: a row of builtins.def. */
enum { MAX_PARAMETERS = 5, ANY = -1 };
typedef enum BuiltinKind { FILTER, TEST, FUNCTION, METHOD } BuiltinKind;
typedef struct Call Call; /* builtins.h */
typedef Value BuiltinFn(Run *r, const Call *call);

typedef struct Builtin {
    BuiltinKind kind;
    ValueType type; /* METHOD: of whose values */
    const char *name;
    BuiltinFn *run;
    int which; /* what `run` is told */
    int required; /* so many of the parameters have to be given; ANY: `run` looks at the arguments itself */
    const char *parameter[MAX_PARAMETERS]; /* names, then NULL */
} Builtin;

const Builtin *j_builtin_find(BuiltinKind kind, const char *name);
const Builtin *j_method_find(ValueType type, const char *name);
/* Whether some value has such a method, or has it in Python. */
bool j_method_is_known(const char *name);

/* ---- failing, memory, steps ---- */

/* Keeps the sentence if it is the first; an undefined value. */
Value j_fail(Run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Takes memory; more than may be taken is a failure, but the memory is there. */
void *j_take(Run *r, size_t size);

/* Counts n steps; false when there was a failure or there are none left. */
bool j_step(Run *r, size_t n);

/* One level deeper; false, having failed, at the bottom. Each that is true is undone by r->depth--. */
bool j_deeper(Run *r);

/* ---- making values ---- */

/* A string that grows. */
typedef struct Text {
    char *text, *mark; /* [capacity] arena */
    size_t n, capacity;
} Text;

void j_text_add(Run *r, Text *t, Str s);
void j_text_bytes(Run *r, Text *t, const char *bytes, size_t n, char mark);
void j_text_puts(Run *r, Text *t, const char *text);
void j_text_point(Run *r, Text *t, uint32_t point, char mark);
Value j_text_value(Run *r, const Text *t);

static inline Value v_none(void)
{
    return (Value){.type = V_NONE};
}

static inline Value v_bool(bool b)
{
    return (Value){.type = V_BOOL, .b = b};
}

static inline Value v_int(int64_t i)
{
    return (Value){.type = V_INT, .i = i};
}

static inline Value v_float(double f)
{
    return (Value){.type = V_FLOAT, .f = f};
}

static inline Value v_undefined(const char *missing)
{
    return (Value){.type = V_UNDEFINED, .missing = missing};
}

Value v_str(Run *r, Str s);
Value v_own(Run *r, const char *text); /* a string of the template's own */
Value v_seq(Run *r, ValueType type, Value *item, size_t n);
Value v_from_json(Run *r, const json_t *json, char mark);

/* A list that is being made. */
typedef struct Items {
    Value *item;
    size_t n;
} Items;

void j_items_add(Run *r, Items *items, Value value);
void j_dict_set(Run *r, Dict *dict, Value key, Value value);

/* ---- asking values ---- */

const char *v_type_name(Value v);
bool v_is_seq(Value v); /* list, tuple, range or iterator */
bool v_is_number(Value v);
double v_real(Value v);
bool v_true(Value v);
bool v_equal(Run *r, Value a, Value b);
int v_order(Run *r, Value a, Value b); /* < 0, 0, > 0; fails where Python has no order */
bool v_in(Run *r, Value item, Value container);
Value v_item(Run *r, Value v, Value key);             /* v[key] */
Value v_attribute(Run *r, Value v, const char *name); /* v.name */
Value v_slice(Run *r, Value v, Value from, Value to, Value by);
int64_t v_length(Run *r, Value v); /* what len() says; fails where it does */
/* The items, those of a string and of a dict being characters and keys; fails where Python cannot go through it. An
   iterator is empty afterwards. */
Seq v_items(Run *r, Value v);
Value *j_dict_get(const Dict *dict, const char *name);
Str v_text(Run *r, Value v);                         /* str(v) */
int64_t v_to_int(Run *r, Value v, const char *what); /* of a number that is whole; else fails */
void j_write_value(Run *r, Text *t, Value v, bool repr);
typedef struct JsonStyle {
    bool ascii, sort;
    Value indent;        /* NONE, or the text of one level */
    Str between, behind; /* of items, of keys */
} JsonStyle;
void j_write_json(Run *r, Text *t, Value v, const JsonStyle *style, size_t level);
void j_sort_values(Run *r, Pair *pair, size_t n); /* by key, stable */

typedef enum Op {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
} Op;

/* a op b, for the first seven; for the others. */
Value j_operate(Run *r, Op op, Value a, Value b);
bool j_compare(Run *r, Op op, Value a, Value b);

/* ---- strings ---- */

bool j_is_space(uint32_t point);
uint32_t str_point(Str s, size_t at, int *length);
Str str_part(Str s, size_t from, size_t to);
Str str_strip(Str s, const Str *characters, bool left, bool right);
size_t str_find(Run *r, Str s, Str what, size_t from); /* SIZE_MAX: nowhere */
size_t str_points(Str s);
size_t str_offset(Str s, size_t point); /* bytes before that code point; n behind the last */
bool str_is(Str s, const char *text);
char str_mark(Str s); /* JINJA_DATA if any of it is */
typedef enum Case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_WORDS } Case;
Value str_case(Run *r, Str s, Case which);
Value str_replace(Run *r, Str s, Str old, Str new, int64_t most);
Value str_percent(Run *r, Str format, const Value *arg, size_t n);
Seq str_lines(Run *r, Str s);
Value str_escape(Run *r, Str s);

/* ---- calling ---- */

Value j_call_builtin(Run *r, const Builtin *row, Value self, const Args *args);
Value *j_named_arg(const Args *args, const char *name); /* NULL: it is not given */
Value j_call_value(Run *r, Value callee, const Args *args);
/* The value at "a.b.0", step by step. */
Value j_follow(Run *r, Value v, Value path);

/* ---- nodes ---- */

typedef enum NodeKind {
    N_CONST,
    N_NAME,
    N_LIST,
    N_TUPLE,
    N_DICT,   /* children: key, value, key, value … */
    N_ATTR,   /* a.name */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[b:c:d] */
    N_CALL,   /* a(children) */
    N_FILTER, /* a | name(children); a NULL: of a filter block */
    N_TEST,   /* a is name(children) */
    N_NOT,
    N_NEGATE,
    N_PLUS,
    N_AND,
    N_OR,
    N_BINARY,      /* a op b */
    N_CONCAT,      /* children, by ~ */
    N_COMPARE,     /* a op child op child … */
    N_IF_ELSE,     /* a if b else c */
    N_NAMED,       /* an argument name = a */
    N_STAR,        /* arguments *a */
    N_STARS,       /* arguments **a */
    N_ATTR_TARGET, /* set name.text = */
    /* statements */
    N_TEXT,         /* text of the template */
    N_OUTPUT,       /* {{ a }} */
    N_SET,          /* a = b */
    N_SET_BLOCK,    /* a, children; b: a chain of filters or NULL */
    N_FOR,          /* a in b if c: children, otherwise: others */
    N_IF,           /* children are N_BRANCH */
    N_BRANCH,       /* a (NULL: else): children */
    N_MACRO,        /* name, others: parameters (N_NAME, a: default), children */
    N_CALL_BLOCK,   /* a: N_CALL; others: parameters, children */
    N_FILTER_BLOCK, /* a: a chain of filters, children */
    N_SCOPE,        /* `with`; others: N_SET, children */
    N_GENERATION,   /* children */
    N_BREAK,
    N_CONTINUE,
} NodeKind;

typedef struct Node {
    NodeKind kind;
    Op op; /* N_BINARY, and of a child of N_COMPARE the operation before it */
    int line;
    int nesting;            /* of all below */
    const char *name;       /* interned */
    const char *attribute;  /* N_ATTR_TARGET: interned */
    const Builtin *builtin; /* N_FILTER, N_TEST; NULL where it is not known */
    Value value;            /* N_CONST, N_TEXT */
    struct Node *a, *b, *c, *d;
    struct Node *child, *others; /* lists, by `next` */
    struct Node *next;
} Node;

struct JinjaTemplate {
    Arena arena; /* owned: everything */
    Map names;   /* text -> its interned pointer */
    Node *body;
};

/* The pointer that stands for a name; NULL when the template has no such name. */
const char *j_name_find(const JinjaTemplate *jinja, const char *text, size_t n);

/* ---- tokens ---- */

typedef enum TokenKind {
    T_END,
    T_DATA,
    T_PRINT, /* {{ */
    T_PRINT_END,
    T_BLOCK, /* {% */
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OPERATOR,
} TokenKind;

typedef struct Token {
    TokenKind kind;
    int line;
    const char *text; /* [n] T_DATA, T_STRING (what it means), T_NAME, T_OPERATOR; arena */
    size_t n;
    Value value; /* T_INT, T_FLOAT */
} Token;

/* Cuts n bytes of source into tokens, the last being T_END. */
int jinja_lex(const char *source, size_t n, Arena *arena, Token **tokens, cvn_err *err);
int jinja_parse(JinjaTemplate *jinja, const Token *tokens, cvn_err *err);

#endif
