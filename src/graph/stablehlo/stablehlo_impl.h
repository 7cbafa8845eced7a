/* Shared by the files of the StableHLO printer: the
   state, and the pieces that lines are made of. */
#ifndef CVN_GRAPH_STABLEHLO_STABLEHLO_IMPL_H
#define CVN_GRAPH_STABLEHLO_STABLEHLO_IMPL_H

#include "graph/record.h"
#include "graph/stablehlo/stablehlo.h"

/* What waits for what (fences.c). Inside of loops there is nothing of it. */
typedef struct Fences {
    bool *gathered;    /* [n_values] of the graph: once already */
    uint32_t *uses;    /* [n_values] that are still to come */
    cvn_value **since; /* [n_since] computed since the last fence */
    cvn_value *begun;  /* the last that was computed before it, or NULL */
    int n_since;
} Fences;

typedef struct Hlo {
    StrBuf *out;
    Arena arena;     /* of all pieces of text; freed at the end */
    char **name;     /* [n_values] */
    int64_t n_temps; /* intermediate values that the graph has no name for: %$0, %$1, ... */
    Fences fences;
    int64_t rows; /* that products of a single row get */
    cvn_err *err; /* of graphs that are made on the way */
} Hlo;

/* One operation in the generic form. Pieces may be ""; types are lists without parentheses. */
typedef struct HloCall {
    const char *result; /* "%y", or "%y:2" */
    const char *name;   /* without "stablehlo." */
    const char *operands, *operand_types;
    const char *region;
    const char *attrs;
    const char *result_types;
    int n_results; /* 0 counts as 1 */
} HloCall;

void hlo_call(Hlo *h, const HloCall *call);
/* The call that op is: its results from its operands, in their types. Region and attributes may be NULL. */
void hlo_op(Hlo *h, const Op *op, const char *name, const char *region, const char *attrs);
/* The plain attributes of op, those that ops.def has StableHLO's name for: "dimension = 1 : i64"; NULL: none. */
const char *hlo_attrs(Hlo *h, const Op *op);
const char *hlo_temp(Hlo *h);
/* "%x", "%x#1" */
const char *hlo_ref(Hlo *h, const cvn_value *v);
/* "%x", "%x:2": the left side of a definition */
const char *hlo_results(Hlo *h, const Op *op);
/* "%a, %b": all operands */
const char *hlo_operands(Hlo *h, const Op *op);
/* "tensor<2xf32>, tensor<i32>": the types of n values */
const char *hlo_types(Hlo *h, cvn_value *const *v, int n);
/* "tensor<4x1xf32>" */
const char *hlo_tensor(Hlo *h, const cvn_type *type);
/* "array<i64: 1, 2>"; "[1, 2]" */
const char *hlo_array(Hlo *h, const Ints *ints);
const char *hlo_list(Hlo *h, const Ints *ints);
/* "dense<…> : tensor<…>" of packed data: one element, or all of them */
const char *hlo_dense(Hlo *h, const cvn_type *type, const void *data, bool splat);
/* "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>" */
const char *hlo_rows(Hlo *h, const Ints *ints, int64_t columns);
/* A new value: `text`, of type `type`, converted to another dtype; text itself if it has it. */
const char *hlo_as(Hlo *h, const char *text, const cvn_type *type, cvn_dtype to);
/* A new constant of this type that holds `value` everywhere. */
const char *hlo_splat(Hlo *h, const cvn_type *type, double value);
/* The region that combines two scalars of this dtype. */
const char *hlo_reducer(Hlo *h, cvn_reduce kind, cvn_dtype dtype);
/* What sums of this dtype are made in. */
cvn_dtype hlo_sum_dtype(cvn_dtype dtype);
/* A call whose result is op's, or, when it is computed in another dtype, converted to op's. */
void hlo_call_in(Hlo *h, const Op *op, HloCall call, cvn_dtype dtype);
/* An operation within groups of devices, which are replicas (ops/collective.c). */
HloFn hlo_collective;

/* Products with rows of 8 bits are scaled behind their sums. */
void hlo_scale_products(cvn_graph *g);
/* Products of one row get rows of zeros, so that there are so many. */
void hlo_more_rows(cvn_graph *g, int64_t rows);

void hlo_fences_begin(Hlo *h, const cvn_graph *g);
/* op has been printed. */
void hlo_fences_pass(Hlo *h, const Op *op);

/* An operation of h->name's graph, whatever it is. */
HloFn hlo_put_op;
/* Prints a graph's operations where its parameters are called argument[]; output: what its outputs are called. */
void hlo_put_graph(Hlo *h, const cvn_graph *g, const char *const *argument, const char **output);
/* A loop over what turn gives [n], of which the last are the number of the turn and how many there are: from begin[n] on. Its other
   parameters are operand[]. What is computed says how many turns there are, and there are `most` of them at most, unless that is 0:
   compilers that estimate time see that number. Returns the name of the n results. */
enum { HLO_LOOP_MOST = 32 };
const char *hlo_put_loop(Hlo *h, const cvn_graph *turn, const char *const *begin,
                         const char *const *operand, int64_t most);
/* What is called result[] is what op gives. */
void hlo_name_results(Hlo *h, const Op *op, const char *const *result);
/* Attention of few queries over a long cache, as a loop over the keys that are there (ragged.c). */
bool hlo_is_ragged(const Op *op);
HloFn hlo_ragged;
/* Whether a dequantize is of floats of 8 bits, which StableHLO has (ops/quantized.c). */
bool hlo_has_floats(const Op *op);
/* Whether attention or its gradient should be a loop over blocks of scores, or of keys. */
bool hlo_loops(const Op *op, void *unused);

#endif
