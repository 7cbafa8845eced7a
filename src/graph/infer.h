/* Shared by the files of shape inference: how a rule says what is wrong. */
#ifndef CVN_GRAPH_INFER_H
#define CVN_GRAPH_INFER_H

#include "graph/record.h"

/* Raises "name(f32[2,3], f32[4]): …". */
int infer_fail(const Op *op, cvn_err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* There is a wanted type. */
int infer_wanted(const Op *op, const cvn_type *type, cvn_err *err);
/* Every entry in [0, rank), no entry twice. `what` names the attribute. */
int infer_check_dims(const Op *op, const Ints *dims, int rank, const char *what, cvn_err *err);
int infer_check_count(const Op *op, const Ints *list, int n, const char *what, cvn_err *err);
int infer_check_axis(const Op *op, int64_t axis, int rank, cvn_err *err);
/* Operand i is an i32 (or u32) tensor. */
int infer_check_index(const Op *op, int i, cvn_err *err);
/* Operand i is of floats, and of the shape of operand `as`. */
int infer_check_gradient(const Op *op, int i, int as, const char *name, cvn_err *err);
/* Operand q, and if it is quantized the scale behind it, hold a weight of n rows and k columns in panels (ops/quantized.c). */
int infer_check_panels(const Op *op, int q, int64_t n, int64_t k, cvn_err *err);
/* The reducer fits the operand (ops/reduce.c). */
int infer_check_reducer(const Op *op, cvn_err *err);

#endif
