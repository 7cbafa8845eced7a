/* The inside of the functions of builtins.def: what they are called with, and what their rows tell them. */
#ifndef CVN_TEXT_JINJA_BUILTINS_H
#define CVN_TEXT_JINJA_BUILTINS_H

#include "text/jinja/impl.h"
#include "text/unicode.h"

/* A call of a row. `arg`: [MAX_PARAMETERS] its parameters, bound; V_ABSENT where not given. */
struct JinjaCall {
    const Builtin *row;
    JinjaValue self;
    const JinjaValue *arg;
    const JinjaArgs *args; /* as they were given */
};

/* What `which` says in the rows. Ends of a string, as bits; */
enum { LEFT = 1, RIGHT = 2, OR_FAIL = 4 };
/* of select and its like, as bits: whether the test has to hold, and whether the first argument is an attribute to be tested; */
enum { WANTED = 1, BY_ATTRIBUTE = 2 };
/* and of others. */
enum { IS_SAFE = 1, IS_VIEW = 1, VALUES = 1 };

/* Types of values, a bit each. */
enum {
    TYPES_NUMBER = 1 << V_BOOL | 1 << V_INT | 1 << V_FLOAT,
    TYPES_SEQUENCE =
        1 << V_UNDEFINED | 1 << V_STR | 1 << V_LIST | 1 << V_TUPLE | 1 << V_RANGE | 1 << V_DICT,
    TYPES_ITERABLE = TYPES_SEQUENCE | 1 << V_ITER | 1 << V_LOOP,
    TYPES_CALLABLE = 1 << V_UNDEFINED | 1 << V_MACRO | 1 << V_METHOD | 1 << V_FUNCTION,
};

static inline bool is_given(JinjaValue v)
{
    return v.type != V_ABSENT && v.type != V_NONE;
}

/* An argument that is a whole number, `usual` where it is not given. */
int64_t j_int_or(JinjaRun *r, JinjaValue v, int64_t usual, const char *what);

#define ROW(kind, type, name, run, which, required, ...) BuiltinFn run;
#include "text/jinja/builtins.def"

#endif
