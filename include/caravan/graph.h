/*
 * Building graphs of tensor operations.
 *
 * A graph is a list of operations in SSA form on tensors of static shape. Names and meanings of the
 * operations are StableHLO's (https://openxla.org/stablehlo/spec) unless said otherwise here.
 * Building reads like maths: each function below appends one operation and returns its value.
 *
 *     cvn_graph *g = cvn_graph_new("mlp", &err);
 *     cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, 64));
 *     cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 128, 64));
 *     cvn_value *y = cvn_tanh(g, cvn_einsum(g, "bd,fd->bf", x, w));
 *     cvn_output(g, y);
 *     if (cvn_graph_check(g, &err)) ...
 *
 * Errors are sticky: the first mistake (its operation, shapes and source line) is kept in the
 * graph, the calls after it pass a harmless value on, and cvn_graph_check reports it once, at the
 * end. No function here returns NULL except cvn_graph_new.
 *
 * A graph owns its values; they die with cvn_graph_free. It owns no tensor data but small
 * constants.
 */
#ifndef CARAVAN_GRAPH_H
#define CARAVAN_GRAPH_H

#include "caravan/dtype.h"
#include "caravan/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CVN_MAX_RANK = 8, CVN_MAX_SPEC_AXES = 4 };

/* What a tensor is: [dim[0], …, dim[rank - 1]] elements, row-major where it lies in memory. */
typedef struct cvn_type {
    cvn_dtype dtype;           /* of the elements */
    int rank;                  /* 0 is a scalar */
    int64_t dim[CVN_MAX_RANK]; /* sizes, >= 0; entries past rank are 0 */
} cvn_type;

/* How a tensor lies on a mesh: for each dimension the mesh axes that split it, major to minor. */
typedef struct cvn_spec {
    int rank;     /* of the tensor */
    int priority; /* marks of a smaller number spread first and to the end; 0 unless said */
    struct {
        int n;                               /* axes that split the dimension; 0: it is whole */
        const char *axis[CVN_MAX_SPEC_AXES]; /* [n] names: "data", or a part of one, "model.1.8" */
    } dim[CVN_MAX_RANK];                     /* [rank] */
} cvn_spec;

typedef struct cvn_graph cvn_graph;
typedef struct cvn_value cvn_value;

typedef enum cvn_compare { CVN_EQ, CVN_NE, CVN_LT, CVN_LE, CVN_GT, CVN_GE } cvn_compare;

typedef enum cvn_reduce {
    CVN_SUM,
    CVN_PRODUCT,
    CVN_MAX,
    CVN_MIN,
    CVN_ALL, /* logical and, of bools */
    CVN_ANY  /* logical or, of bools */
} cvn_reduce;

/* A type from its sizes: CVN_TYPE(CVN_F32, 4, 64). A macro because C has no other way to count
 * them. */
cvn_type cvn_type_make(cvn_dtype dtype, int rank, const int64_t *dim);
#define CVN_TYPE(dtype, ...)                                                                       \
    cvn_type_make((dtype), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),              \
                  (const int64_t[]){__VA_ARGS__})
/* The type of one element, of rank 0. */
cvn_type cvn_scalar(cvn_dtype dtype);

/* The product of the sizes, 1 for a scalar. Types of values in a graph have at most 2^58. */
int64_t cvn_type_elements(const cvn_type *type);
/* Bytes of that many elements, as cvn_dtype_bytes counts them. */
size_t cvn_type_bytes(const cvn_type *type);
/* The same dtype and the same sizes. */
bool cvn_type_equal(const cvn_type *a, const cvn_type *b);

/* A new, empty graph; NULL with *err set when memory cannot be had. */
cvn_graph *cvn_graph_new(const char *name, cvn_err *err);
/* Frees it with all of its values. NULL is allowed. */
void cvn_graph_free(cvn_graph *g);

/* 0, or the first error of building: CVN_ESHAPE where types do not fit, CVN_EINVAL for other
   arguments, CVN_EMEM. */
int cvn_graph_check(const cvn_graph *g, cvn_err *err);

/* Notes the source position that errors of the next operations are reported at; returns g. */
cvn_graph *cvn_at(cvn_graph *g, const char *file, int line);
#define CVN_HERE(g) cvn_at((g), __FILE__, __LINE__)

/* Borrowed from the graph. After an error of building it is some type, of no meaning. */
const cvn_type *cvn_value_type(const cvn_value *v);

/* Marks how a value lies on the mesh. Works on parameters and in mid-graph; propagation does the
 * rest. */
void cvn_mark_sharding(cvn_graph *g, cvn_value *v, const cvn_spec *spec);

/* ---- inputs and outputs ---- */

/* The next input of the graph. Names are unique; the graph keeps a copy. */
cvn_value *cvn_parameter(cvn_graph *g, const char *name, cvn_type type);

/* Makes v the next output. */
void cvn_output(cvn_graph *g, cvn_value *v);

/* Makes v the next output, computed into the memory of `parameter`, whose old contents are given
   up: how a KV cache, weights and optimizer state are updated in place. Types must be equal.
   NULL: as cvn_output. */
void cvn_output_into(cvn_graph *g, cvn_value *v, cvn_value *parameter);

/* A tensor that holds one value everywhere; the value is rounded to the dtype. */
cvn_value *cvn_splat(cvn_graph *g, cvn_type type, double value);

/* A tensor with the given contents, row-major, cvn_type_bytes(&type) bytes, copied. */
cvn_value *cvn_constant(cvn_graph *g, cvn_type type, const void *data);

/* Counts 0, 1, 2, … along one dimension. */
cvn_value *cvn_iota(cvn_graph *g, cvn_type type, int axis);

/* ---- elementwise ----

   Results have the operands' type unless said. Negation, signs and arithmetic take all numbers,
   logic and shifts take integers and bool, the others floats; i4 must be converted first. */

cvn_value *cvn_negate(cvn_graph *g, cvn_value *x);
cvn_value *cvn_abs(cvn_graph *g, cvn_value *x);
cvn_value *cvn_sign(cvn_graph *g, cvn_value *x);
/* Of floats: e^x, ln x, ln(1 + x), e^x - 1, roots, 1/sqrt(x), … logistic is 1 / (1 + e^-x). */
cvn_value *cvn_exponential(cvn_graph *g, cvn_value *x);
cvn_value *cvn_log(cvn_graph *g, cvn_value *x);
cvn_value *cvn_log_plus_one(cvn_graph *g, cvn_value *x);
cvn_value *cvn_exponential_minus_one(cvn_graph *g, cvn_value *x);
cvn_value *cvn_sqrt(cvn_graph *g, cvn_value *x);
cvn_value *cvn_rsqrt(cvn_graph *g, cvn_value *x);
cvn_value *cvn_tanh(cvn_graph *g, cvn_value *x);
cvn_value *cvn_logistic(cvn_graph *g, cvn_value *x);
cvn_value *cvn_sine(cvn_graph *g, cvn_value *x);
cvn_value *cvn_cosine(cvn_graph *g, cvn_value *x);
cvn_value *cvn_floor(cvn_graph *g, cvn_value *x);
cvn_value *cvn_not(cvn_graph *g, cvn_value *x);       /* logical on bool, bitwise on integers */
cvn_value *cvn_is_finite(cvn_graph *g, cvn_value *x); /* bool: neither NaN nor infinite */

/* Float to integer truncates towards zero and saturates,
   NaN gives 0; anything to bool is x != 0. */
cvn_value *cvn_convert(cvn_graph *g, cvn_value *x, cvn_dtype dtype);

/* Both operands have the same type: there is no implicit broadcasting. */
cvn_value *cvn_add(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_subtract(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_multiply(cvn_graph *g, cvn_value *a, cvn_value *b);
/* Of integers it truncates, and x / 0 is -1. */
cvn_value *cvn_divide(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_maximum(cvn_graph *g, cvn_value *a, cvn_value *b); /* NaN wins */
cvn_value *cvn_minimum(cvn_graph *g, cvn_value *a, cvn_value *b); /* NaN wins */
cvn_value *cvn_power(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_remainder(cvn_graph *g, cvn_value *a, cvn_value *b); /* sign of a; x rem 0 is x */
cvn_value *cvn_and(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_or(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_xor(cvn_graph *g, cvn_value *a, cvn_value *b);
cvn_value *cvn_shift_left(cvn_graph *g, cvn_value *a, cvn_value *b); /* by >= width gives 0 */
cvn_value *cvn_shift_right_logical(cvn_graph *g, cvn_value *a, cvn_value *b);

/* Compares elementwise; the result is bool. NaN is unequal to everything. */
cvn_value *cvn_compare_values(cvn_graph *g, cvn_compare direction, cvn_value *a, cvn_value *b);

/* pred ? a : b; pred is bool of the same shape, or a bool scalar. */
cvn_value *cvn_select(cvn_graph *g, cvn_value *pred, cvn_value *a, cvn_value *b);

/* min(max(x, low), high); low and high have x's shape or are scalars. */
cvn_value *cvn_clamp(cvn_graph *g, cvn_value *low, cvn_value *x, cvn_value *high);

/* ---- shape ---- */

/* Operand dimension i becomes dimension dims[i] of
   the result (sizes equal, or 1 in the operand). */
cvn_value *cvn_broadcast_in_dim(cvn_graph *g, cvn_value *x, cvn_type type, const int *dims);

/* A scalar or a vector stretched over a shape: broadcast_in_dim with the trailing dimensions
   mapped, as numpy does. Returns x itself when the shapes agree. */
cvn_value *cvn_broadcast_to(cvn_graph *g, cvn_value *x, const cvn_type *like);

/* The same elements, row-major, in another shape of as many. */
cvn_value *cvn_reshape(cvn_graph *g, cvn_value *x, int rank, const int64_t *dim);

/* Dimension i of the result is dimension permutation[i] of x. */
cvn_value *cvn_transpose(cvn_graph *g, cvn_value *x, const int *permutation);

/* x[start:limit:stride] in every dimension. stride may be NULL (all 1). */
cvn_value *cvn_slice(cvn_graph *g, cvn_value *x, const int64_t *start, const int64_t *limit,
                     const int64_t *stride);
/* x[..., start:limit, ...] in one dimension. */
cvn_value *cvn_slice_axis(cvn_graph *g, cvn_value *x, int axis, int64_t start, int64_t limit);

/* x[0], …, x[n - 1] side by side along `axis`; their other dimensions are equal. n <= 4096. */
cvn_value *cvn_concatenate(cvn_graph *g, int n, cvn_value *const *x, int axis);

/* value (a scalar) before, after and between the elements; low and high may be negative. */
cvn_value *cvn_pad(cvn_graph *g, cvn_value *x, cvn_value *value, const int64_t *low,
                   const int64_t *high, const int64_t *interior);
/* The elements in reverse order along n dimensions. */
cvn_value *cvn_reverse(cvn_graph *g, cvn_value *x, int n, const int *dims);

/* A part of x of the given sizes, that begins at starts: one i32 scalar per dimension, clamped so
   that the part is in bounds. And x with `update` in place of such a part, of update's sizes. */
cvn_value *cvn_dynamic_slice(cvn_graph *g, cvn_value *x, cvn_value *const *starts,
                             const int64_t *sizes);
cvn_value *cvn_dynamic_update_slice(cvn_graph *g, cvn_value *x, cvn_value *update,
                                    cvn_value *const *starts);

/* ---- indexing ---- */

/* Dimension numbers of gather and scatter, as in StableHLO (scatter: window = update_window_dims,
   collapsed = inserted_window_dims). */
typedef struct cvn_gather_dims {
    int n_window, n_collapsed, n_operand_batch, n_index_batch, n_index_map; /* of each list */
    int64_t window[CVN_MAX_RANK];        /* result (update) dims that run over the slice */
    int64_t collapsed[CVN_MAX_RANK];     /* operand dims of slice size 1, dropped */
    int64_t operand_batch[CVN_MAX_RANK]; /* operand dims taken along with ... */
    int64_t index_batch[CVN_MAX_RANK];   /* ... these dims of the indices */
    int64_t index_map[CVN_MAX_RANK];     /* operand dim that each index component starts in */
    int64_t index_vector_dim; /* dim of the indices that holds components; may be = rank */
} cvn_gather_dims;

/* Start indices are clamped so that every slice is in bounds. */
cvn_value *cvn_gather(cvn_graph *g, cvn_value *x, cvn_value *indices, const cvn_gather_dims *dims,
                      const int64_t *slice_sizes);

/* x with the updates added, or put in place of what is there, at the indices. Elements out of
   bounds are skipped. Updates are applied in row-major order of the updates. */
cvn_value *cvn_scatter_add(cvn_graph *g, cvn_value *x, cvn_value *indices, cvn_value *updates,
                           const cvn_gather_dims *dims);
cvn_value *cvn_scatter_assign(cvn_graph *g, cvn_value *x, cvn_value *indices, cvn_value *updates,
                              const cvn_gather_dims *dims);

/* Rows of a table: table [rows, ...], indices i32 [...] -> [indices..., row...]. A gather. */
cvn_value *cvn_take_rows(cvn_graph *g, cvn_value *table, cvn_value *indices);

/* Sorts along one dimension, stably; floats in total order (-NaN < -inf … -0 < +0 … inf < NaN). */
cvn_value *cvn_sort(cvn_graph *g, cvn_value *x, int axis, bool descending);
/* Sorts by key and carries `payload` (same shape) along; results in out[0], out[1]. */
void cvn_sort_pair(cvn_graph *g, cvn_value *key, cvn_value *payload, int axis, bool descending,
                   cvn_value *out[2]);

/* ---- reductions and contractions ---- */

/* Removes the given dimensions. An empty one gives the neutral element. */
cvn_value *cvn_reduce_dims(cvn_graph *g, cvn_reduce kind, cvn_value *x, int n, const int *dims);
/* Element i along the dimension is the sum of elements 0 … i. */
cvn_value *cvn_cumsum(cvn_graph *g, cvn_value *x, int axis);
/* Element i along the dimension is the product of elements 0 … i. */
cvn_value *cvn_cumprod(cvn_graph *g, cvn_value *x, int axis);

/* Which dimensions of a product belong together. Those that are in no list are free. */
typedef struct cvn_dot_dims {
    int n_batch, n_contract;
    int64_t lhs_batch[CVN_MAX_RANK];    /* [n_batch] dims of lhs: a product for each index … */
    int64_t rhs_batch[CVN_MAX_RANK];    /* [n_batch] … and the dims of rhs that go along */
    int64_t lhs_contract[CVN_MAX_RANK]; /* [n_contract] dims of lhs that are summed … */
    int64_t rhs_contract[CVN_MAX_RANK]; /* [n_contract] … with these of rhs */
} cvn_dot_dims;

/* Result: batch dims, then lhs free dims, then rhs free dims. Products and sums are in f32 (f64 for
   f64 operands, i32 for integers), rounded once to `dtype`. */
cvn_value *cvn_dot_general(cvn_graph *g, cvn_value *lhs, cvn_value *rhs, const cvn_dot_dims *dims,
                           cvn_dtype dtype);

/* "bsd,dnh->bsnh": letters name dimensions; those in both operands and not in the result are
   summed. The result has lhs's dtype; cvn_einsum_as says another. */
cvn_value *cvn_einsum(cvn_graph *g, const char *equation, cvn_value *lhs, cvn_value *rhs);
cvn_value *cvn_einsum_as(cvn_graph *g, const char *equation, cvn_value *lhs, cvn_value *rhs,
                         cvn_dtype dtype);

/* ---- collectives (the partitioner makes these; see the text form for groups) ---- */

/* groups: n_groups rows of group_size device ids, every device once; members are in this order. The
   sums, or whatever `kind` says, of what the members have are on all of them. */
cvn_value *cvn_all_reduce(cvn_graph *g, cvn_value *x, cvn_reduce kind, int n_groups, int group_size,
                          const int64_t *groups);
/* What the members have, side by side along `axis`, is on all of them. */
cvn_value *cvn_all_gather(cvn_graph *g, cvn_value *x, int axis, int n_groups, int group_size,
                          const int64_t *groups);
/* As all_reduce, but member i keeps only part i of group_size equal ones along `axis`. */
cvn_value *cvn_reduce_scatter(cvn_graph *g, cvn_value *x, cvn_reduce kind, int axis, int n_groups,
                              int group_size, const int64_t *groups);
/* Part i of group_size equal ones along split_axis goes to member
   i, which has what it gets side by side along concat_axis. */
cvn_value *cvn_all_to_all(cvn_graph *g, cvn_value *x, int split_axis, int concat_axis, int n_groups,
                          int group_size, const int64_t *groups);
/* pairs: n rows (source, target); devices that are nobody's target get zeros. */
cvn_value *cvn_collective_permute(cvn_graph *g, cvn_value *x, int n, const int64_t *pairs);
/* This device's id, a u32 scalar. */
cvn_value *cvn_partition_id(cvn_graph *g);

/* Its results may not be moved before its operand is ready; the value is unchanged. */
cvn_value *cvn_optimization_barrier(cvn_graph *g, cvn_value *x);

/* ---- composites: each has a decomposition into the plain operations above ---- */

/* x * rsqrt(mean(x^2 over the last dim) + eps) * weight, in f32, rounded to dtype.
   x [..., d], weight [d]. Zhang and Sennrich 2019, arXiv:1910.07467. */
cvn_value *cvn_rms_norm(cvn_graph *g, cvn_value *x, cvn_value *weight, double eps, cvn_dtype dtype);

/* Rotary position embedding (Su et al. 2021, arXiv:2104.09864), in f32, real arithmetic.
   x [batch, seq, heads, head_dim], positions i32 [batch, seq], inv_freq f32 [head_dim / 2].
   Pair i is elements (i, i + head_dim/2), as Hugging Face stores weights; or, interleaved,
   (2i, 2i + 1), as Meta does. It turns by the angle position * inv_freq[i]. */
cvn_value *cvn_rope(cvn_graph *g, cvn_value *x, cvn_value *positions, cvn_value *inv_freq,
                    bool interleaved);

/* What an attention has beside what every one has. NULL and 0 where it has not. */
typedef struct cvn_attention_spec {
    double scale; /* of scores */
    double cap;   /* scaled scores s become cap * tanh(s / cap) */
    /* A query sees so many keys at most, itself among them; and those alone that are in its own chunk, that is of the same
       position / chunk, rounded down. */
    int64_t window, chunk;
    /* i32 [batch, seq]: query s sees no keys before first[b, s] either, which is how documents that share a row are kept apart. */
    cvn_value *first;
    /* i32 [batch] and i32 [slots, n], both or neither: k and v are pages [pages, kv_heads, page, head_dim], and row b of q looks at
       those of its slot: position p is position p % page of page table[slot[b], p / page]. */
    cvn_value *slot, *table;
    cvn_value *sinks; /* floats [heads]: a logit of each head's softmax that gives nothing */
    /* Of k and v of 8 bits: bf16 [batch, kv_heads, context, 1], a scale for each position of a head, as cvn_quantize_rows
       makes them. */
    cvn_value *k_scale, *v_scale;
    /* With one of those that follow attention is made of plain operations: there is no kernel, scores of all queries and keys lie
       in memory, and all of k and v is read and must be finite. k and v are floats, and slot is NULL; a query that sees no key gives 0.
       mask: [batch, heads, seq, context], each as many or 1: bools, false for keys that a query does not see; or floats, which
       are added to the scores after the cap, and have gradients; -infinity there is as false. any_key: keys behind a query are seen, too, and the mask alone
       says which (`first`, windows and chunks still leave out what lies before them). */
    cvn_value *mask;
    bool any_key;
    /* Weights are 0 with this probability, from 0 to below 1, and else divided by 1 - dropout, by the key of each row, u32
       [batch, 2], and a site, from 0 to 2^20 - 1, that tells attentions with the same keys apart. Which are 0 is a function of
       these: the same each time, and in the gradient. */
    double dropout;
    cvn_value *key;
    int64_t site;
} cvn_attention_spec;

/* Causal grouped-query attention over a KV cache, each row with its own start and length.
   q [batch, seq, heads, head_dim]; k, v [batch, kv_heads, context, head_dim], floats, or i8 with scales;
   start i32 [batch]: query s of row b is at position start[b] + s and sees keys 0 … start[b] + s;
   length i32 [batch]: queries s >= length[b] are padding, their output is 0.
   Windows, chunks and `first` leave keys out. (Keys that a query leaves out have weight 0, but must be finite numbers
   unless they are behind all queries of the row.) A query that sees no key at all gives NaN, or 0 where there are sinks.
   Rows of a slot that is not there are padding. Where slots are split among devices, so are rows and pages, and each lies with its
   slot.
   Head h reads KV head h / (heads / kv_heads). Scores are scaled, then capped, then masked; softmax is in f32:
   weight[j] = exp(s[j]) / (sum of exp(s) + exp(sink of the head)). Result [batch, seq, heads, head_dim] in q's dtype. */
cvn_value *cvn_attention(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v, cvn_value *start,
                         cvn_value *length, const cvn_attention_spec *spec);

/* Writes new keys or values into a cache: cache[b, h, start[b] + s, :] = update[b, s, h, :] for s <
   seq. cache [batch, kv_heads, context, head_dim], update [batch, seq, kv_heads, head_dim], start
   i32 [batch]. Positions outside the context are skipped. slot and table, unless NULL, as of cvn_attention: the cache is pages, and
   row b goes to those of slot[b]; slots and pages that are not there are skipped, and no place is written twice. */
cvn_value *cvn_cache_update(cvn_graph *g, cvn_value *cache, cvn_value *update, cvn_value *start,
                            cvn_value *slot, cvn_value *table);

/* logits [..., vocab], targets i32 [...]. out[0] = logsumexp(logits) - logits[target], f32 [...], 0
   where the target is outside [0, vocab); out[1] = logsumexp(logits), f32 [...]. */
void cvn_softmax_cross_entropy(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                               cvn_value *out[2]);

/* Index (i32) of the largest element along one
   dimension; the first of equals. NaN counts as -inf. */
cvn_value *cvn_argmax(cvn_graph *g, cvn_value *x, int axis);

/* Counter-based random bits, elementwise over four u32 tensors of one shape: the first word of
   Threefry-2x32 with 20 rounds (Salmon et al. 2011) of counter (c0, c1) under key (k0, k1). */
cvn_value *cvn_random_bits(cvn_graph *g, cvn_value *k0, cvn_value *k1, cvn_value *c0,
                           cvn_value *c1);

/* logits f32 [batch, vocab], with -inf where a row's filters leave an entry out: all but the top_k (i32 [batch]; 0 or
   less: none is) largest; of those, softmaxed, what follows the likeliest that have the probability top_p (f32
   [batch]; 1 or more: none is) together; and what is less than min_p (f32 [batch]) times as likely as the likeliest,
   which always stays. Equals stay or go together. */
cvn_value *cvn_keep_likeliest(cvn_graph *g, cvn_value *logits, cvn_value *top_k, cvn_value *top_p,
                              cvn_value *min_p);

/* A token of each row of logits f32 [batch, vocab], i32 [batch]: of a greedy row (i1 [batch]) argmax(logits), of
   others argmax(logits + noise), which is distributed as softmax(logits) (the Gumbel-max rule). The noise of entry v
   is -log(-log(u)) in f32, u the uniform number ((b >> 9) + 0.5) / 2^23 in (0, 1), b = random_bits(k0, k1, v,
   position) with the row's key (k0, k1) (u32 [batch, 2]) and position (i32 [batch]). */
cvn_value *cvn_categorical(cvn_graph *g, cvn_value *logits, cvn_value *greedy, cvn_value *key,
                           cvn_value *position);

/* A quantized weight as floats, q * scale, rounded to the dtype. q is i8 or i4 [rows …, columns …], scale f32 or bf16
   [rows …, groups]: each group of neighbours among the columns of a row (output channel), taken together, has one. */
cvn_value *cvn_dequantize(cvn_graph *g, cvn_value *q, cvn_value *scale, cvn_dtype dtype);

/* A weight that is stored in blocks of a kind that GGUF files have ("q4_0", "q4_k", …, src/graph/blocks.h): w is i8 [rows …,
   blocks, bytes of one], the type [rows …, columns …], of whole blocks. The numbers are those that the file means,
   rounded to the type's dtype. */
cvn_value *cvn_dequantize_blocks(cvn_graph *g, cvn_value *w, const char *kind, cvn_type type);

/* Rows in 8 bits, each by its largest: x floats [..., d], d >= 1; out[1] = scale bf16 [..., 1] =
   max |x| / 127 over the row, rounded from f32; out[0] = i8 [..., d] = x / scale in f32, rounded to
   the nearest whole number (halves to even) and clamped to -127 … 127. Where the scale is 0 or not
   finite, as it is when an x is not, the row is 0: its products with the scale are 0 or NaN. */
void cvn_quantize_rows(cvn_graph *g, cvn_value *x, cvn_value *out[2]);

/* Rows of 8 bits, x i8 [..., k] with x_scale bf16 [..., 1] as cvn_quantize_rows makes them, times a
   weight q i8 [rows …, columns …] of k columns with one scale per row, f32 [rows …, 1]: y [..., rows …] =
   x_scale * scale * (sum over k of x q), of type `type` (f32, bf16 or f16); the sum is exact. k is at most 131072. */
cvn_value *cvn_linear_int8(cvn_graph *g, cvn_value *x, cvn_value *x_scale, cvn_value *q,
                           cvn_value *scale, cvn_type type);

/* x [..., k] times weights in panels that share it: the fused form of dot_general(x, dequantize(q,
   scale)), in f32 with weights that are not rounded. `contract` trailing dimensions of x are summed;
   result i is of type[i], x's other dimensions and then the weight's rows. With `int8` x is brought
   to 8 bits as cvn_quantize_rows does it, and each product is that of cvn_linear_int8 in f32; with
   blocks each C neighbours have a scale of their own, C being the largest of 256, 128, 64 and 32
   that divides k. */
typedef struct cvn_linear_spec {
    int contract, n_weights; /* 1 to 3 weights */
    bool int8; /* of weights in blocks, or of 8 bits with a scale in f32 for each row */
    /* Weights are panels of blocks of this kind (src/graph/blocks.h); or NULL. */
    const char *blocks;
    cvn_value *q[3], *scale[3]; /* no scales (NULL) of bf16, f32 and blocks */
    cvn_type type[3];           /* of the results */
} cvn_linear_spec;
void cvn_linear(cvn_graph *g, cvn_value *x, const cvn_linear_spec *spec, cvn_value **out);

/* Each row times the matrix of its group (`ragged_dot` in JAX's terms, where rows are sorted by group). group i32 [lead …, slots] says
   which, for each slot of a row; x is [lead …, k], a row of which all its slots read, or [lead …, slots, k]; w [groups, rows, columns].
   `contract` says which dimension of w is summed over: 2, its columns, y = w x; or 1, its rows, y = w^T x. The result is [lead …,
   slots, n] of `dtype`; 0 where the group is outside of [0, groups). */
cvn_value *cvn_grouped_dot(cvn_graph *g, cvn_value *x, cvn_value *w, cvn_value *group, int contract,
                           cvn_dtype dtype);

/* ---- gradients of composites, as the backward pass needs them ---- */

/* Of cvn_grouped_dot by its weight: sums of outer products by group, y[e] = sum over the slots of group e of a b^T, of `groups`
   groups and `dtype`. a is [lead …, n] or [lead …, slots, n], and b the same of k; y [groups, n, k]. */
cvn_value *cvn_grouped_outer(cvn_graph *g, cvn_value *a, cvn_value *b, cvn_value *group,
                             int64_t groups, cvn_dtype dtype);

/* Of cvn_rms_norm: out[0] = dx, of x's type; out[1] = dweight, of weight's type, summed over rows.
   dy has x's shape. With r = rsqrt(mean(x^2) + eps), n = x r and dn = dy weight:
   dx = r (dn - n mean(dn n)), dweight = sum of dy n. */
void cvn_rms_norm_backward(cvn_graph *g, cvn_value *x, cvn_value *weight, cvn_value *dy, double eps,
                           cvn_value *out[2]);

/* Of cvn_attention, whose operands it takes again, with dy of q's shape: out = dq, dk, dv, of the
   types of q, k, v, and dsinks, of that of the sinks, or NULL. Not of attention with a mask or dropout, whose plain operations have
   gradients of their own. The attention weights P are computed anew (Dao 2023,
   arXiv:2307.08691): dv = P^T dy, dP = dy v^T, m = rowsum(P dP), dS = P (dP - m), dq = scale dS k, dk = scale dS^T q.
   Where scores are capped, dS is times 1 - (s / cap)^2; dsinks is the sum over the queries of -(weight of the sink) m.
   Keys that no query sees have gradient 0; the memory of those past the last position is not looked
   at. Queries that see no key have gradient 0. */
void cvn_attention_backward(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v,
                            cvn_value *start, cvn_value *length, cvn_value *dy,
                            const cvn_attention_spec *spec, cvn_value *out[4]);

/* Of cvn_softmax_cross_entropy, in the type of logits: exp(logits - lse) (dloss' + dlse), less
   dloss' at the target, where dloss' is dloss, or 0 where the target is outside [0, vocab).
   lse, dloss, dlse f32 [...]; lse is the result of the forward pass. One pass over the logits. */
cvn_value *cvn_softmax_cross_entropy_backward(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                                              cvn_value *lse, cvn_value *dloss, cvn_value *dlse);

#ifdef __cplusplus
}
#endif
#endif
