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

typedef struct JinjaValue {
    ValueType type;
    bool flag; /* V_STR: `safe` was applied, + escapes what it is added to; V_ITER: a view */
    union {
        bool b;
        int64_t i;
        double f;
        Str *str;
        struct Seq *seq;
        struct Dict *dict; /* of V_NAMESPACE, too */
        struct JinjaLoop *loop;
        struct Macro *macro;
        struct Method *method;
        const struct Builtin *function;
        const char *missing; /* V_UNDEFINED: what is not there, for messages; or NULL */
    };
} JinjaValue;

typedef struct Seq {
    JinjaValue *item; /* [n] */
    size_t n;
} Seq;

typedef struct JinjaPair {
    JinjaValue key, value;
} JinjaPair;

/* In the order in which keys came. */
typedef struct Dict {
    JinjaPair *pair; /* [n] */
    size_t n;
} Dict;

typedef struct JinjaScope {
    struct JinjaScope *parent;
    struct Variable *variable; /* [n] arena */
    size_t n;
    bool kept; /* a macro was defined in it or below, and looks names up here later */
} JinjaScope;

typedef struct Variable {
    const char *name; /* interned: equal names are the same pointer */
    JinjaValue value;
} Variable;

typedef struct JinjaLoop {
    const JinjaValue *item; /* [n] */
    size_t n, i;            /* i: of the item that is at its turn */
    JinjaValue last;        /* what `changed` was last called with, a tuple */
} JinjaLoop;

typedef struct Macro {
    const struct JinjaNode *node;
    JinjaScope *scope; /* where it was defined */
    JinjaValue caller; /* a call block's body, for the time of a call; V_ABSENT else */
} Macro;

typedef struct Method {
    const struct Builtin *row;
    JinjaValue self;
} Method;

/* The arguments of a call. */
typedef struct JinjaArgs {
    JinjaValue *item; /* [n] by position */
    size_t n;
    JinjaPair *named; /* [n_named] by name; keys are strings */
    size_t n_named;
} JinjaArgs;

typedef struct JinjaRun {
    Arena arena;       /* owned: all values */
    size_t max_memory; /* bytes of it */
    int64_t steps;     /* that are left */
    int depth;         /* of evaluation now */
    int line;          /* of what is evaluated */
    int rc;            /* the first failure */
    cvn_err *err;      /* borrowed */
    const JinjaInput *input;
    const JinjaTemplate *jinja;
    JinjaScope root;
    void *locale; /* a locale_t for upper and lower, once needed */
} JinjaRun;

/* A filter, test, function or method: a row of builtins.def. */
enum { MAX_PARAMETERS = 5, ANY = -1 };
typedef enum BuiltinKind { FILTER, TEST, FUNCTION, METHOD } BuiltinKind;
typedef struct JinjaCall JinjaCall; /* builtins.h */
typedef JinjaValue BuiltinFn(JinjaRun *r, const JinjaCall *call);

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
JinjaValue j_fail(JinjaRun *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Takes memory; more than may be taken is a failure, but the memory is there. */
void *j_take(JinjaRun *r, size_t size);

/* Counts n steps; false when there was a failure or there are none left. */
bool j_step(JinjaRun *r, size_t n);

/* One level deeper; false, having failed, at the bottom. Each that is true is undone by r->depth--. */
bool j_deeper(JinjaRun *r);

/* ---- making values ---- */

/* A string that grows. */
typedef struct JinjaWriter {
    char *text, *mark; /* [capacity] arena */
    size_t n, capacity;
} JinjaWriter;

void j_text_add(JinjaRun *r, JinjaWriter *t, Str s);
void j_text_bytes(JinjaRun *r, JinjaWriter *t, const char *bytes, size_t n, char mark);
void j_text_puts(JinjaRun *r, JinjaWriter *t, const char *text);
void j_text_point(JinjaRun *r, JinjaWriter *t, uint32_t point, char mark);
JinjaValue j_text_value(JinjaRun *r, const JinjaWriter *t);

static inline JinjaValue v_none(void)
{
    return (JinjaValue){.type = V_NONE};
}

static inline JinjaValue v_bool(bool b)
{
    return (JinjaValue){.type = V_BOOL, .b = b};
}

static inline JinjaValue v_int(int64_t i)
{
    return (JinjaValue){.type = V_INT, .i = i};
}

static inline JinjaValue v_float(double f)
{
    return (JinjaValue){.type = V_FLOAT, .f = f};
}

static inline JinjaValue v_undefined(const char *missing)
{
    return (JinjaValue){.type = V_UNDEFINED, .missing = missing};
}

JinjaValue v_str(JinjaRun *r, Str s);
JinjaValue v_own(JinjaRun *r, const char *text); /* a string of the template's own */
JinjaValue v_seq(JinjaRun *r, ValueType type, JinjaValue *item, size_t n);
JinjaValue v_from_json(JinjaRun *r, const json_t *json, char mark);

/* A list that is being made. */
typedef struct Items {
    JinjaValue *item;
    size_t n;
} Items;

void j_items_add(JinjaRun *r, Items *items, JinjaValue value);
void j_dict_set(JinjaRun *r, Dict *dict, JinjaValue key, JinjaValue value);

/* ---- asking values ---- */

const char *v_type_name(JinjaValue v);
bool v_is_seq(JinjaValue v); /* list, tuple, range or iterator */
bool v_is_number(JinjaValue v);
double v_real(JinjaValue v);
bool v_true(JinjaValue v);
bool v_equal(JinjaRun *r, JinjaValue a, JinjaValue b);
int v_order(JinjaRun *r, JinjaValue a,
            JinjaValue b); /* < 0, 0, > 0; fails where Python has no order */
bool v_in(JinjaRun *r, JinjaValue item, JinjaValue container);
JinjaValue v_item(JinjaRun *r, JinjaValue v, JinjaValue key);        /* v[key] */
JinjaValue v_attribute(JinjaRun *r, JinjaValue v, const char *name); /* v.name */
JinjaValue v_slice(JinjaRun *r, JinjaValue v, JinjaValue from, JinjaValue to, JinjaValue by);
int64_t v_length(JinjaRun *r, JinjaValue v); /* what len() says; fails where it does */
/* The items, those of a string and of a dict being characters and keys; fails where Python cannot go through it. An
   iterator is empty afterwards. */
Seq v_items(JinjaRun *r, JinjaValue v);
JinjaValue *j_dict_get(const Dict *dict, const char *name);
Str v_text(JinjaRun *r, JinjaValue v); /* str(v) */
int64_t v_to_int(JinjaRun *r, JinjaValue v,
                 const char *what); /* of a number that is whole; else fails */
void j_write_value(JinjaRun *r, JinjaWriter *t, JinjaValue v, bool repr);
typedef struct JsonStyle {
    bool ascii, sort;
    JinjaValue indent;   /* NONE, or the text of one level */
    Str between, behind; /* of items, of keys */
} JsonStyle;
void j_write_json(JinjaRun *r, JinjaWriter *t, JinjaValue v, const JsonStyle *style, size_t level);
void j_sort_values(JinjaRun *r, JinjaPair *pair, size_t n); /* by key, stable */

typedef enum JinjaOp {
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
} JinjaOp;

/* a op b, for the first seven; for the others. */
JinjaValue j_operate(JinjaRun *r, JinjaOp op, JinjaValue a, JinjaValue b);
bool j_compare(JinjaRun *r, JinjaOp op, JinjaValue a, JinjaValue b);

/* ---- strings ---- */

bool j_is_space(uint32_t point);
uint32_t str_point(Str s, size_t at, int *length);
Str str_part(Str s, size_t from, size_t to);
Str str_strip(Str s, const Str *characters, bool left, bool right);
size_t str_find(JinjaRun *r, Str s, Str what, size_t from); /* SIZE_MAX: nowhere */
size_t str_points(Str s);
size_t str_offset(Str s, size_t point); /* bytes before that code point; n behind the last */
bool str_is(Str s, const char *text);
char str_mark(Str s); /* JINJA_DATA if any of it is */
typedef enum Case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_CAPITAL, CASE_WORDS } Case;
JinjaValue str_case(JinjaRun *r, Str s, Case which);
JinjaValue str_replace(JinjaRun *r, Str s, Str old, Str new, int64_t most);
JinjaValue str_percent(JinjaRun *r, Str format, const JinjaValue *arg, size_t n);
Seq str_lines(JinjaRun *r, Str s);
JinjaValue str_escape(JinjaRun *r, Str s);

/* ---- calling ---- */

JinjaValue j_call_builtin(JinjaRun *r, const Builtin *row, JinjaValue self, const JinjaArgs *args);
JinjaValue *j_named_arg(const JinjaArgs *args, const char *name); /* NULL: it is not given */
JinjaValue j_call_value(JinjaRun *r, JinjaValue callee, const JinjaArgs *args);
/* The value at "a.b.0", step by step. */
JinjaValue j_follow(JinjaRun *r, JinjaValue v, JinjaValue path);

/* ---- nodes ---- */

typedef enum JinjaNodeKind {
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
} JinjaNodeKind;

typedef struct JinjaNode {
    JinjaNodeKind kind;
    JinjaOp op; /* N_BINARY, and of a child of N_COMPARE the operation before it */
    int line;
    int nesting;            /* of all below */
    const char *name;       /* interned */
    const char *attribute;  /* N_ATTR_TARGET: interned */
    const Builtin *builtin; /* N_FILTER, N_TEST; NULL where it is not known */
    JinjaValue value;       /* N_CONST, N_TEXT */
    struct JinjaNode *a, *b, *c, *d;
    struct JinjaNode *child, *others; /* lists, by `next` */
    struct JinjaNode *next;
} JinjaNode;

struct JinjaTemplate {
    Arena arena; /* owned: everything */
    Map names;   /* text -> its interned pointer */
    JinjaNode *body;
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
    JinjaValue value; /* T_INT, T_FLOAT */
} Token;

/* Cuts n bytes of source into tokens, the last being T_END. */
int jinja_lex(const char *source, size_t n, Arena *arena, Token **tokens, cvn_err *err);
int jinja_parse(JinjaTemplate *jinja, const Token *tokens, cvn_err *err);

#endif
