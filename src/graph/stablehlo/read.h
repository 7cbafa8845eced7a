/* Shared by the files that make a graph of a module in StableHLO: the state, and what their tables are made of. */
#ifndef CVN_GRAPH_STABLEHLO_READ_H
#define CVN_GRAPH_STABLEHLO_READ_H

#include "graph/record.h"
#include "graph/stablehlo/mlir.h"

/* A value of the module. Where it was written as i64, it is whole numbers that fit in its type: it may be moved, compared and
   used as an index, but not calculated with. */
typedef struct ReadValue {
    cvn_value *v;
    const cvn_graph *g; /* that it is of; NULL: not yet of any */
    bool wide;
} ReadValue;

typedef struct Read {
    const MlirModule *m;
    cvn_graph *whole; /* that is being made */
    cvn_graph *g;     /* into which operations go: that, or one of its own of a reduction's block */
    ReadValue *slot;  /* values of the function that is being carried out, by their slots */
    cvn_err *err;
    int64_t n_ops; /* that were carried out */
    size_t n_text; /* characters of these */
    int calls;     /* that are being carried out, one in another */
    bool total;    /* a comparison in a block was of the total order of floats */
} Read;

/* Makes what op is: out [op->result.n] from in [op->operand.n]. */
typedef int ReadFn(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out);

/* "MODULE:12:5: stablehlo.fft …" */
int read_fail(const Read *r, const MlirOp *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What building said, if it said something. */
int read_built(const Read *r, const MlirOp *op);
/* Carries a block out, on such arguments; what it returns comes into out[n]. */
int read_block(Read *r, const MlirBlock *block, const ReadValue *argument, size_t n,
               ReadValue *out);
/* A block of scalars as a graph of its own, which the caller frees: of a reduction, a sort, a scatter. */
int read_body(Read *r, const MlirOp *op, cvn_graph **body);
/* The value that v, of few elements, is always, where all it depends on is constant; else v. */
cvn_value *read_folded(Read *r, cvn_value *v);
/* The only element of a constant; false where v is none. */
bool read_constant(const cvn_value *v, double *value);

/* Attributes of op, by one of two names. */
int read_ints(Read *r, const MlirOp *op, const char *name, const char *other, Ints *out);
int read_int(Read *r, const MlirOp *op, const char *name, const char *other, int64_t *out);

/* Operations that are looked up by name: one of graphs that is written alike (read_plain), or a row of a table. */
typedef struct ReadRow {
    const char *name; /* without its dialect */
    ReadFn *read;
} ReadRow;
extern const ReadRow read_rows[];     /* read_ops.c; ended by NULL */
extern const ReadRow read_reducers[]; /* read_reduce.c */
extern const ReadRow read_maths[];    /* read_maths.c */
ReadFn read_plain;
/* The graph's operation that is written as this one but for its name, or OP_COUNT. */
OpKind read_kind(Span name);

/* x as `dtype`. */
cvn_value *read_as(cvn_graph *g, cvn_value *x, cvn_dtype dtype);

#endif
