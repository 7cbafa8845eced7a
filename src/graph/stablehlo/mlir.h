/*
 * The text of an MLIR module as a tree: functions, blocks of operations, values, attributes. It knows how operations are
 * written, not what they mean; that is read.c.
 *
 *     module @m {
 *       func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<2xf32> {
 *         %c = stablehlo.constant dense<0.0> : tensor<f32>
 *         %0 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.add across dimensions = [1] : (…) -> tensor<2xf32>
 *         %1 = "stablehlo.add"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *         return %1 : tensor<2xf32>
 *
 * Both ways of writing an operation are read, the generic one, in quotes, and those that StableHLO's printer has for each
 * operation. For the latter there is one loose grammar: operands, words, names with a value, blocks, in any order. Values of
 * attributes stay text until somebody asks for one (mlir_ints …). Names of values are looked up here: each value of a
 * function has a slot, a number of its own, so that a block can be carried out many times, on other values.
 *
 * The tree is as large as the text, about 300 bytes for each operation, and blocks are at most 32 deep.
 */
#ifndef CVN_GRAPH_STABLEHLO_MLIR_H
#define CVN_GRAPH_STABLEHLO_MLIR_H

#include "base/map.h"
#include "graph/graph.h"
#include "graph/text/lex.h"

/* The type of a tensor. i64 has no element type in graphs: such values are i32 or u32 there. */
typedef struct MlirType {
    cvn_type type; /* dtype CVN_DTYPE_COUNT: what cannot be a value of a graph, see fault */
    bool wide;     /* written as i64 */
    Span fault;    /* the text of a type that graphs do not have */
} MlirType;

typedef struct MlirTypes {
    MlirType *v; /* [n], arena */
    size_t n;
} MlirTypes;

/* A name and the text of its value. Words that stand alone have no value. */
typedef struct MlirAttr {
    Span name, value;
} MlirAttr;

typedef struct MlirAttrs {
    MlirAttr *v; /* [n], arena */
    size_t n;
} MlirAttrs;

typedef struct MlirSlots {
    int *v; /* [n] slots, arena */
    size_t n;
} MlirSlots;

struct MlirOp;

typedef struct MlirBlock {
    MlirSlots argument;
    MlirTypes type;       /* of the arguments, where they are written */
    struct MlirOp *first; /* the last one is its return */
} MlirBlock;

typedef struct MlirOp {
    const char *at; /* where it begins in the text */
    size_t length;  /* of its text */
    Span name;      /* "stablehlo.add" */
    Span symbol;    /* "f" of @f: a function that it names */
    MlirSlots operand, result;
    MlirTypes in, out; /* as they are written: `in` is empty where one list stands for both */
    MlirAttrs attr;
    MlirBlock *block; /* [n_blocks], arena */
    size_t n_blocks;
    Literal *literal; /* of a constant that was read once; in the arena of the graph */
    struct MlirOp *next;
} MlirOp;

typedef struct MlirFunction {
    Span name;
    const char *at;
    MlirBlock body;      /* its arguments are those of the function */
    Span *argument_name; /* [arguments] without the % */
    MlirAttrs *argument; /* [arguments] */
    int n_slots;         /* of all values in it */
    struct MlirFunction *next;
} MlirFunction;

typedef struct MlirModule {
    Lexer lex; /* for messages: lex_fail_at(&m->lex, op->at, …) */
    Span name; /* empty: it has none */
    Span mesh; /* <["data"=2, "model"=2]>, or empty */
    MlirFunction *first;
    Map functions; /* name -> MlirFunction */
} MlirModule;

/* The text must outlive the tree, which lies in the arena. */
int mlir_parse(MlirModule *m, const char *text, size_t n, const char *filename, Arena *arena,
               cvn_err *err);

/* The function of this name, or NULL. */
const MlirFunction *mlir_function(const MlirModule *m, Span name);

/* The value of the attribute that has one of two names (the second may be NULL); NULL where there is none. */
const Span *mlir_find(const MlirAttrs *attrs, const char *name, const char *other);
/* A word that stands alone. */
bool mlir_has_word(const MlirOp *op, const char *word);
/* The fields of <a = 1, b = [2]> as attributes, behind an optional #name. */
int mlir_fields(const MlirModule *m, Span value, MlirAttrs *fields, Arena *arena);
/* A number, with or without its type. */
int mlir_int(const MlirModule *m, Span value, int64_t *out);
/* A list of numbers: [1, 2], array<i64: 1, 2>, dense<[[1, 2]]> : tensor<…>, in g's arena. */
int mlir_ints(const MlirModule *m, Span value, Ints *out, cvn_graph *g);
/* The elements of dense<…>, of this type, in g's arena. */
int mlir_dense(const MlirModule *m, Span value, const MlirType *type, Literal *out, cvn_graph *g);

/* A lexer of a piece of the module's text. */
Lexer mlir_lexer(const MlirModule *m, Span text);

#endif
