/*
 * The graph inside: operations, values, attributes, and what passes need to rewrite them.
 *
 * A graph is a doubly linked list of operations in execution order; every operand is defined before
 * its use. An operation owns its results. Everything lives in the graph's arena and dies with it.
 *
 * A pass rewrites in one walk: it makes new operations before the one it looks at
 * (graph_insert_before), says graph_replace(old, new), and at the end graph_resolve redirects all
 * operands at once and graph_remove_dead drops what nothing needs:
 *
 *     %3 = negate %2          graph_replace(%4, %2)           %5 = add %2, %1     (%3, %4 are dead)
 *     %4 = negate %3          graph_resolve, remove_dead
 *     %5 = add %4, %1
 */
#ifndef CVN_GRAPH_GRAPH_H
#define CVN_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "caravan/graph.h"
#include "graph/panel_form.h"

typedef enum OpKind {
#define OP(kind, ...) OP_##kind,
#include "graph/ops.def"
#undef OP
    OP_COUNT
} OpKind;

typedef enum OpClass {
    CLASS_LEAF,
    CLASS_UNARY,
    CLASS_BINARY,
    CLASS_TERNARY,
    CLASS_SHAPE,
    CLASS_INDEX,
    CLASS_REDUCE,
    CLASS_CONTRACT,
    CLASS_COLLECTIVE,
    CLASS_CONTROL,
    CLASS_COMPOSITE,
    CLASS_REGION
} OpClass;

/* Elementwise operations: each element of the result is made of the elements in the same place of the operands (or of
   the operand, where that is a scalar). They share most rules, which tables by kind therefore need no rows for. */
static inline bool class_is_elementwise(OpClass class_)
{
    return class_ == CLASS_UNARY || class_ == CLASS_BINARY || class_ == CLASS_TERNARY;
}

/* No operation has more results. */
enum { OP_MOST_RESULTS = 8 };

typedef enum OpDTypes { DTYPES_F, DTYPES_N, DTYPES_I, DTYPES_A } OpDTypes;

/* What most passes ask of a row of ops.def; the rest of it is in record.h. */
typedef struct OpInfo {
    const char *name;
    int least, most; /* number of operands */
    int results;     /* number of results; 0: see op_results */
    OpClass class_;
    OpDTypes dtypes;              /* what the data operands may hold */
    const struct AttrInfo *attrs; /* in the order of the text; one without a name ends them */
} OpInfo;

extern const OpInfo op_info[OP_COUNT];

static inline bool dtype_is_float(cvn_dtype dtype)
{
    return dtype == CVN_F64 || dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16;
}

/* An immutable list of integers in the arena. */
typedef struct Ints {
    int n;
    const int64_t *v; /* [n] */
} Ints;

static inline bool ints_contain(const Ints *list, int64_t x)
{
    for (int i = 0; i < list->n; i++)
        if (list->v[i] == x)
            return true;
    return false;
}

typedef enum Combine { COMBINE_ASSIGN, COMBINE_ADD } Combine;

/* The contents of a constant: one element if splat, else all of them, packed as in memory. */
typedef struct Literal {
    bool splat;
    size_t bytes;
    const void *data; /* [bytes], arena */
} Literal;

/* The attributes of all operations together; ops.def
   says which one has which. The rest are zero. */
typedef struct OpAttr {
    const char *name;
    Literal literal;
    int64_t axis, concat_axis, index_vector_dim, group_size;
    Ints dims, start, limit, stride, sizes;
    Ints window, collapsed, operand_batch, index_batch, index_map;
    Ints lhs_batch, rhs_batch, lhs_contract, rhs_contract;
    Ints groups;
    cvn_compare compare;
    cvn_reduce reduce;
    Combine combine;
    BlockKind blocks;
    bool flag, int8;
    double eps, scale, cap;
    int64_t sliding_window, attention_chunk;
    bool sinks;
    const cvn_graph *body; /* of a region: graph/region.h */
} OpAttr;

/* Results of an operation: as ops.def says; of a sort as many as operands, of a linear, a region and attention_backward as their
   attributes say. */
int op_results(OpKind kind, int n_operands, const OpAttr *attr);

typedef enum AttrType {
    ATTR_INT,
    ATTR_INTS,
    ATTR_FLOAT,
    ATTR_BOOL,
    ATTR_STRING,
    ATTR_COMPARE,
    ATTR_REDUCE,
    ATTR_COMBINE,
    ATTR_BLOCKS,
    ATTR_LITERAL,
    ATTR_BODY,
    ATTR_TYPES
} AttrType;

/* What there is to know of a type of attributes. */
typedef struct AttrTypeInfo {
    size_t size;   /* of the field in OpAttr */
    bool optional; /* left out of the text form where it is zero, false or empty */
    /* [n_names] in the text form, of false and true and of enums; or NULL */
    const char *const *names;
    int n_names;
} AttrTypeInfo;

extern const AttrTypeInfo attr_types[ATTR_TYPES];

/* An attribute of an operation, as its row of ops.def says. */
typedef struct AttrInfo {
    const char *name; /* in the text form; NULL behind the last one */
    size_t offset;    /* of the field in OpAttr */
    AttrType type;
    const char *hlo; /* name of a plain attribute in StableHLO, or NULL */
} AttrInfo;

/* The field of this attribute; the caller knows its type. */
static inline const void *attr_field(const OpAttr *attr, const AttrInfo *row)
{
    return (const char *)attr + row->offset;
}

/* Names in the text form, in the order of the enums. */
enum { COMPARE_COUNT = 6, REDUCE_COUNT = 6, COMBINE_COUNT = 2 };
extern const char *const compare_names[COMPARE_COUNT]; /* "eq", … */
extern const char *const reduce_names[REDUCE_COUNT];   /* "sum", … */
extern const char *const combine_names[COMBINE_COUNT]; /* "assign", "add" */

typedef struct Op Op;

struct cvn_value {
    cvn_type type;
    uint32_t id;          /* unique in the graph, < n_values: index of side tables */
    int result;           /* which result of `def` this is */
    Op *def;              /* the operation that makes it */
    const char *name;     /* for the text form, or NULL; names need not be unique */
    const cvn_spec *spec; /* the sharding that a user marked, or NULL */
    cvn_value *forward;   /* during a pass: the value that replaces this one, or NULL */
    int role, index; /* of a parameter: what it is for (graph/signature.h), and which of these */
};

struct Op {
    OpKind kind;
    int n_operands, n_results;
    cvn_value **operand; /* [n_operands] */
    cvn_value **result;  /* [n_results] */
    OpAttr attr;
    /* in a plan: what its kernel does beside it (compile/fused.h), or NULL */
    const struct Fused *fused;
    Op *prev, *next; /* in execution order */
    /* A schedule (compile/schedule.h) may start a collective
       before its place in that order, where it ends. */
    Op *starts;       /* the first collective that starts before this operation, or NULL */
    Op *next_start;   /* of a collective: the next one that starts in the same place, or NULL */
    bool split;       /* a collective that starts elsewhere */
    const char *file; /* where the user's code made it, or NULL */
    int line;
};

/* The type of operand i, and of result i. */
static inline const cvn_type *op_in(const Op *op, int i)
{
    return &op->operand[i]->type;
}

static inline const cvn_type *op_out(const Op *op, int i)
{
    return &op->result[i]->type;
}

/* An output, and the parameter whose memory it is computed into, or NULL. */
typedef struct Output {
    cvn_value *value;
    cvn_value *into;
    int role, index; /* what it is for (graph/signature.h), where it goes into no parameter */
} Output;

struct cvn_graph {
    Arena arena;
    const char *name;
    Op *first, *last;  /* the operations; NULL when empty */
    uint32_t n_values; /* ids handed out */
    int64_t n_ops;
    cvn_value **parameter; /* [n_parameters] in the order of the inputs */
    int n_parameters;
    Output *output; /* [n_outputs] */
    int n_outputs;
    Op *insert_point;  /* new operations go before it, or NULL: at the end */
    cvn_value *poison; /* what building returns after an error */
    cvn_err err;       /* the first error of building */
    const char *mesh;  /* "data=4,model=2", what specs are about, or NULL; see shard/mesh.h */
    const char *file;  /* source position for errors, from cvn_at */
    int line;
    Cleanup cleanup; /* by who works on it, until it is freed or has an owner (graph_keep) */
};

/* What is being protected frees a graph that was made in it, and came to nothing; not when the graph has an owner who
   does. */
void graph_keep(cvn_graph *g);

/* Zeroed memory in the graph's arena. NULL with the graph's error set, where there is none and nothing is protected
   (base/protect.h): for who builds graphs by the public functions. */
void *graph_alloc(cvn_graph *g, size_t bytes);
char *graph_string(cvn_graph *g, const char *text);
/* As arena_more. */
void *graph_more(cvn_graph *g, void *array, size_t n, size_t size);

Ints graph_ints(cvn_graph *g, int n, const int64_t *v);

/* Appends an operation (or inserts it, see graph_insert_before). `want` gives the wanted result
   types, one per result, where they are not implied; NULL otherwise. Attributes are borrowed: lists
   in them must be in g's arena (graph_ints). Returns the first result, or g->poison after recording
   an error. */
cvn_value *graph_add(cvn_graph *g, OpKind kind, const OpAttr *attr, int n,
                     cvn_value *const *operand, const cvn_type *want);

/* The same operation on other operands, in this or another graph; attributes, names and specs are
   copied into g's arena. Returns the first result. */
cvn_value *graph_add_like(cvn_graph *g, const Op *op, cvn_value *const *operand);

/* Records the first error, with the source position from cvn_at in front. */
void graph_fail(cvn_graph *g, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* New operations go before `op` from now on; NULL: to the end. */
void graph_insert_before(cvn_graph *g, Op *op);

/* Uses of `old` become uses of `by` when graph_resolve runs. Types must be equal. */
void graph_replace(cvn_value *old, cvn_value *by);
/* The value that v stands for now, following replacements. */
cvn_value *graph_forwarded(cvn_value *v);
/* Redirects the operands of one operation; of the whole graph and its outputs. */
void graph_resolve_op(Op *op);
void graph_resolve(cvn_graph *g);
/* Takes an operation out of the list; its results must be unused. Parameters are never removed. And puts one that is in no
   list before another one, or, with NULL, last. */
void graph_remove(cvn_graph *g, Op *op);
void graph_put_before(cvn_graph *g, Op *op, Op *next);
/* Drops operations that no output needs (parameters stay); true if there were any. */
bool graph_remove_dead(cvn_graph *g);

/* Uses of each value by operations and outputs: [n_values], in the arena given. */
uint32_t *graph_uses(const cvn_graph *g, Arena *arena);

/* Appends the operations of another graph, and its outputs. */
int graph_append(cvn_graph *g, const cvn_graph *from, cvn_err *err);
/* A new graph with the same operations. NULL with *err set when memory cannot be had. */
cvn_graph *graph_clone(const cvn_graph *g, cvn_err *err);
void graph_release(cvn_graph **g); /* cvn_graph_free, of one that is SCOPED */

/* True when two sets of attributes of this kind of operation are equal. */
bool attr_equal(OpKind kind, const OpAttr *a, const OpAttr *b);
/* True when a field is zero, false, empty or missing. */
bool attr_is_zero(const OpAttr *attr, const AttrInfo *row);
/* Deep copy of attributes into g's arena. */
OpAttr attr_copy(cvn_graph *g, OpKind kind, const OpAttr *attr);

/* Result types from operands and attributes. type[i] holds the wanted type on entry (dtype
   CVN_DTYPE_COUNT when none was given) and the inferred one on return. Checks everything that makes
   an operation legal. */
int infer_types(const Op *op, cvn_type *type, cvn_err *err);

/* Floating-point operations of one, counted from its shapes: a multiply-add is two, attention counts the whole context,
   a region is its body. */
double op_flops(const Op *op);

/* Every invariant of a graph: definitions before uses, types as inferred, unique parameter names,
 * outputs. */
int graph_verify(const cvn_graph *g, cvn_err *err);

/* What is wrong with a type, "has no element type"; NULL where it is legal. It then has at most 2^58 elements, not
   counting sizes of 0, so that no product of its sizes overflows. */
const char *type_fault(const cvn_type *type);
/* "f32[4,64]" appended to a string. */
void type_print(StrBuf *buf, const cvn_type *type);
/* The same into a caller's buffer, cut to fit; returns it. For messages. */
const char *type_text(const cvn_type *type, char *buffer, size_t size);
enum { TYPE_TEXT = 160 }; /* a buffer size that fits every type of sane sizes */

/* Reads element i of packed data as a number, and writes one (rounded to the dtype; saturated for
 * i4, i8). */
double element_get(cvn_dtype dtype, const void *data, int64_t i);
void element_set(cvn_dtype dtype, void *data, int64_t i, double value);

#endif
