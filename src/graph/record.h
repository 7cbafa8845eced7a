/*
 * The record of an operation: a row of ops.def with the functions that are found by its name. They are in ops/, those of
 * a class of operations together: the builders, and for each operation of these what this header lists.
 */
#ifndef CVN_GRAPH_RECORD_H
#define CVN_GRAPH_RECORD_H

#include "graph/graph.h"

struct Grad;
struct Rule;
struct Hlo;

/* Fills type[0 .. n_results), or says why the operation is illegal (infer.h). What is wanted is in type, and legal. */
typedef int InferFn(const Op *op, cvn_type *type, cvn_err *err);
/* Carries the operation out: in[i] is operand i, out[i] result i (interp/interp.h). */
typedef void InterpFn(const Op *op, const void *const *in, void *const *out);
/* Builds what the composite stands for; out[i] takes the place of result i (decompose.h). */
typedef void DecomposeFn(cvn_graph *g, const Op *op, cvn_value **out);
/* Builds the gradients of the operands that want one, from those of the results (grad_rule.h). */
typedef void GradFn(struct Grad *d, const Op *op);
/* Says which dimensions of operands and results are split alike, and what follows (factors.h). */
typedef void FactorsFn(const Op *op, struct Rule *rule);
/* Prints the operation in StableHLO (stablehlo/stablehlo_impl.h). */
typedef void HloFn(struct Hlo *h, const Op *op);
/* How many floating-point operations it takes. */
typedef double FlopsFn(const Op *op);

typedef struct OpRecord {
    InferFn *infer;
    InterpFn *interp;
    DecomposeFn *decompose; /* of a composite; else NULL */
    GradFn *gradient;       /* or NULL, and one of the next two: */
    const char *flat;       /* why no gradient goes on to the operands */
    const char *refused;    /* why a loss that depends on an operand by way of it has no gradient */
    const char *notation;   /* of the factors, or NULL: */
    FactorsFn *factors;
    HloFn *hlo;     /* or NULL: its name, its operands and plain attributes */
    FlopsFn *flops; /* or NULL: */
    int flops_each; /* per element of the first operand; of the result, where it is elementwise */
    unsigned wide;  /* operands of a composite that its interpreter widens: bit i of operand i */
} OpRecord;

extern const OpRecord op_record[OP_COUNT];

/* The functions of each row; which of them there are, it says. */
#define OP(kind, name, ...)                                                                        \
    InferFn infer_##name;                                                                          \
    InterpFn interp_##name;                                                                        \
    DecomposeFn decompose_##name;                                                                  \
    GradFn grad_##name;                                                                            \
    FactorsFn factors_##name;                                                                      \
    HloFn hlo_##name;                                                                              \
    FlopsFn flops_##name;
#include "graph/ops.def"
#undef OP

/* Of classes that share one: elementwise operations are what graph/scalar.h says; CONTROL passes its first operand on;
   a composite is its decomposition; of a collective, device 0 is alone. */
InferFn infer_unary, infer_binary;
InterpFn interp_unary, interp_binary, interp_copy, interp_composite, interp_alone;

#endif
