/* Shared by the files of shape inference: how a rule says what is wrong. */
#ifndef CVN_GRAPH_INFER_H
#define CVN_GRAPH_INFER_H

#include "graph/graph.h"

/* A rule: fills type[0 .. n_results) or says why the operation is illegal. What is wanted is in type, and legal. */
typedef int InferFn(const Op *op, cvn_type *type, cvn_err *err);

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

InferFn infer_broadcast_in_dim, infer_reshape, infer_transpose, infer_slice, infer_concatenate,
    infer_pad, infer_reverse;
InferFn infer_dynamic_slice, infer_dynamic_update_slice, infer_gather, infer_scatter, infer_sort;
InferFn infer_reduce, infer_cumsum, infer_dot_general;
InferFn infer_all_reduce, infer_all_gather, infer_reduce_scatter, infer_all_to_all,
    infer_collective_permute, infer_partition_id;
InferFn infer_rms_norm, infer_rope, infer_attention, infer_cache_update,
    infer_softmax_cross_entropy, infer_argmax, infer_random_bits, infer_keep_likeliest,
    infer_categorical;
InferFn infer_dequantize, infer_quantize_rows, infer_linear_int8, infer_linear;
InferFn infer_rms_norm_backward, infer_attention_backward, infer_softmax_cross_entropy_backward;

#endif
