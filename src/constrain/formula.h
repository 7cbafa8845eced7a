/*
 * What is asked of a JSON value, as a boolean formula over atoms. Every keyword of JSON Schema is one, and so is its
 * negation: that is why `not`, `oneOf` and `if` need nothing of their own.
 *
 *     {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
 *     and(type(object), some_key("a", true), all_keys("a", type(string)))
 *
 * An atom of a kind of value says nothing of other kinds: string(term) holds for 5. Negation therefore adds the type:
 *
 *     not string(t)          = type(string) and string(not t)
 *     not all_keys(k, f)     = type(object) and some_key(k, not f)
 *     not items(from, f)     = type(array) and contains(from, not f, 1, many)
 *
 * A schema is an atom, too, until a value begins, so that schemas may refer to themselves. Formulas are in negation normal
 * form: besides schemas, only atoms are negated, and those turn into others as above. Equal formulas have equal ids.
 *
 * restrict(f, kind) is what is left of f once the kind of value is known: schemas are replaced by what they say, and only
 * atoms of that kind are left. What is left of an object or array after some of its members is again such a formula
 * (solve.h).
 */
#ifndef CVN_CONSTRAIN_FORMULA_H
#define CVN_CONSTRAIN_FORMULA_H

#include "constrain/decimal.h"
#include "constrain/json.h"
#include "constrain/term.h"

typedef uint32_t Formula;

enum { F_FALSE = 0, F_TRUE = 1 };

enum {
    FORMULA_LIMIT = 400000, /* formulas of one constraint */
    FORMULA_DEPTH = 1200,   /* schemas within schemas, and how deep searches go */
    FORMULA_WORK = 20000000 /* steps that one mask, or compiling, may take */
};

/* Kinds of values, as bits. */
enum {
    KIND_NULL = 1,
    KIND_FALSE = 2,
    KIND_TRUE = 4,
    KIND_NUMBER = 8,
    KIND_STRING = 16,
    KIND_ARRAY = 32,
    KIND_OBJECT = 64,
    KIND_ANY = 127,
};

typedef enum FormulaKind {
    F_K_FALSE,
    F_K_TRUE,
    F_K_AND,
    F_K_OR,
    F_K_SCHEMA,    /* a: schema, b: 1 for its negation */
    F_K_TYPE,      /* a: kinds that the value may be of */
    F_K_STRING,    /* a: term of its characters */
    F_K_NUMBER,    /* a: NumberOp, b: index of a decimal */
    F_K_ALL_KEYS,  /* a: key set, b: formula of the values of all members with such names */
    F_K_SOME_KEY,  /* a: key set, b: formula of the value of one at least */
    F_K_KEY_COUNT, /* c to d members */
    F_K_ITEM,      /* a: index, b: formula of that item, if there is one */
    F_K_ITEMS,     /* a: index, b: formula of all items from there */
    F_K_CONTAINS,  /* a: index, b: formula: of the items from there, c to d are such */
    F_K_LENGTH,    /* c to d items */
    F_K_UNIQUE,    /* a: number of a list of values that may not come (again) */
    F_K_REPEATED,  /* its negation: refused only where an array comes to depend on it */
} FormulaKind;

#define FORMULA_MANY UINT32_MAX /* no upper bound of a count */

typedef enum NumberOp {
    NUMBER_GE,
    NUMBER_GT,
    NUMBER_LE,
    NUMBER_LT,
    NUMBER_NE,
    NUMBER_MULTIPLE,
    NUMBER_NO_MULTIPLE,
    NUMBER_DIGITS, /* written without fraction and exponent: an integer in draft 4, where 1.0 is none */
    NUMBER_NO_DIGITS,
} NumberOp;

typedef struct FormulaNode {
    uint8_t kind;
    bool visiting;    /* satisfiability is being found out */
    int8_t satisfied; /* whether a value exists: 1, 0; -1: not known */
    /* of numbers: whether their texts are those of JSON.stringify (number.c); -1: not known */
    int8_t spelled;
    uint32_t a, b, c, d;
    uint32_t n;
    const Formula *list; /* [n] AND, OR: sorted */
    Formula negation;    /* F_FALSE where it is not known */
} FormulaNode;

/* Names of members: one name, or all of a term. */
typedef struct KeySet {
    uint32_t name; /* of `names`, or UINT32_MAX */
    Term term;
    const uint32_t *known; /* [n_known] names that made the term, which are known for that reason */
    uint32_t n_known;
} KeySet;

typedef struct Values {
    uint32_t before; /* the list before this one was added, 0: none */
    Formula differs; /* of it, and from all of them */
} Values;

struct Schemas;

/* What is kept once, by content, so that equal things have equal ids. */
typedef struct FormulaTable {
    Map ids;        /* of formulas, by content */
    Map restricted; /* (formula, kind) -> formula */
    FormulaNode *node;
    uint32_t n;
} FormulaTable;

typedef struct KeyTable {
    Map ids; /* of key sets, by content */
    KeySet *set;
    uint32_t n;
} KeyTable;

typedef struct NameTable {
    Map ids; /* by text */
    JsonName *name;
    uint32_t n;
} NameTable;

typedef struct DecimalTable {
    Map ids; /* by value */
    Decimal *decimal;
    uint32_t n;
} DecimalTable;

typedef struct ValuesTable {
    Values *list; /* [n], the first is the empty list */
    uint32_t n;
} ValuesTable;

/* What solve.h has found out. */
typedef struct Solved {
    Map completes;              /* (formula, seen) -> whether an object or array can be completed */
    Map types;                  /* object formula -> its alphabet */
    struct Alphabet **alphabet; /* [n] */
    uint32_t n;
} Solved;

/* How values are written. */
typedef struct Spelling {
    bool in_order; /* members in the order in which the schema names them */
    /* Strings as JSON.stringify writes them (escape.h); integers, and numbers that are listed, by their digits. */
    bool canonical;
} Spelling;

/* How far a search has come; all of it begins anew with each call from outside, but for `failed`. */
typedef struct Effort {
    int depth;
    uint64_t work;
    uint64_t assumed; /* how often `no` was assumed of something because it was being found out */
    int visiting;     /* values of which it is being found out whether they exist */
} Effort;

typedef struct Solver {
    Arena arena; /* owns all tables */
    TermTable terms;
    FormulaTable formulas;
    KeyTable keys;
    NameTable names;
    DecimalTable decimals;
    ValuesTable values;
    Solved solved;
    struct Schemas *schemas;
    Spelling spelling;
    Effort effort;
    char failed[256]; /* the first reason why results mean nothing, or "" */
} Solver;

int solver_init(Solver *e, cvn_err *err);
void solver_free(Solver *e);

/* Remembers the first reason why results mean nothing. Returns F_FALSE. */
Formula solver_fail(Solver *e, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Counts work, from 0 on where a call from outside begins. False once something has failed. */
bool solver_work(Solver *e, uint64_t n);
void solver_begin(Solver *e);

Formula f_type(Solver *e, uint32_t kinds);
Formula f_string(Solver *e, Term term);
Formula f_number(Solver *e, NumberOp op, const Decimal *value);
Formula f_all_keys(Solver *e, uint32_t set, Formula f);
Formula f_some_key(Solver *e, uint32_t set, Formula f);
Formula f_key_count(Solver *e, uint32_t min, uint32_t max);
Formula f_item(Solver *e, uint32_t index, Formula f);
Formula f_items(Solver *e, uint32_t from, Formula f);
Formula f_contains(Solver *e, uint32_t from, Formula f, uint32_t min, uint32_t max);
Formula f_length(Solver *e, uint32_t min, uint32_t max);
Formula f_unique(Solver *e, uint32_t values);
Formula f_schema(Solver *e, uint32_t schema, bool negative);
Formula f_and(Solver *e, const Formula *list, size_t n);
Formula f_or(Solver *e, const Formula *list, size_t n);
Formula f_and2(Solver *e, Formula a, Formula b);
Formula f_or2(Solver *e, Formula a, Formula b);
Formula f_not(Solver *e, Formula f);

/* The value, whatever its spelling and the order of its members. */
Formula f_const(Solver *e, const JsonValue *value);

uint32_t name_id(Solver *e, const char *text, size_t n);
uint32_t set_of_name(Solver *e, uint32_t name);
uint32_t set_of_term(Solver *e, Term term, const uint32_t *known, size_t n_known);
bool set_has_name(Solver *e, uint32_t set, uint32_t name);

/* f where the value is of one kind. */
Formula f_restrict(Solver *e, Formula f, uint32_t kind);

/* f with atoms replaced: `replace` returns what an atom becomes. */
Formula f_replace(Solver *e, Formula f, Formula (*replace)(Solver *, Formula, void *), void *data);

/* Whether an atom stands in f. */
bool f_mentions(const Solver *e, Formula f, Formula atom);

/* What a schema says; of schema.c. */
Formula schema_formula(Solver *e, uint32_t schema);

#endif
