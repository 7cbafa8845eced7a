/*
 * Quantized weights: which parameters, in which form, and how numbers are chosen.
 *
 * All matrices that every token is multiplied with are quantized: q, k, v, o, gate, up, down and the
 * output head. Norms, biases and the embedding stay as they are; where the head is tied to the
 * embedding, a quantized model has a head of its own, since a look-up reads one row of the table but
 * the product all of it.
 *
 *     int8      q in -127 … 127, one f32 scale per output channel: max |w| / 127
 *     int4:G    q in -8 … 7, one bf16 scale per output channel and G neighbours in k; of some scales
 *               the one with the least squared error, the scale being rounded first
 *
 * Of int4 the output head is in int8: its errors reach the text at once, and they cost several times what those of other
 * matrices do (docs/QUANTIZATION.md).
 *
 *     fp8       e4m3 (base/float8.h), one f32 scale per output channel and 128 neighbours in k, with which the largest is 448. The output
 *               head stays as it is, as in published checkpoints
 *
 * A weight whose columns do not divide into groups of G takes the largest half, quarter … of G that
 * they do (down to 8), and one with none is int8.
 *
 * In a file, "NAME.weight" holds the numbers as I8 [n, k] (of int4 [n, k / 2]: two columns in a byte, the first in its
 * low half) and "NAME.weight_scale" the scales, F32 or BF16 [n, groups]; config.json says "quantization_config": {"quant_method": "caravan", "bits": 4, "group_size": 64}.
 * FP8 is written as other programs do: "NAME.weight" F8_E4M3 [n, k], "NAME.weight_scale_inv" F32 [n, k / 128], {"quant_method":
 * "fp8", "weight_block_size": [1, 128]}.
 */
#ifndef CVN_MODEL_QUANTIZE_H
#define CVN_MODEL_QUANTIZE_H

#include "base/err.h"
#include "caravan/dtype.h"
#include "graph/blocks.h"

#include <stddef.h>

enum { QUANT_DEFAULT_GROUP = 32 };

typedef enum QuantKind {
    QUANT_NONE,
    QUANT_INT8,
    QUANT_INT4,
    QUANT_BLOCKS /* blocks (graph/blocks.h), made while loading: of a type of GGUF files, or of FP8 */
} QuantKind;

/* Of a whole model. */
typedef struct QuantScheme {
    QuantKind kind;
    int64_t group;                   /* of int4: 32, 64 or 128; else 0 */
    const struct WeightType *blocks; /* of QUANT_BLOCKS: the type; else NULL */
} QuantScheme;

/* A type that the weights of a model are in, by the name that users give it: plain, one of GGUF files, or one of our own.

   In a type of GGUF files not all matrices are alike, as llama.cpp has it: the head is of another kind, and so are those that
   errors come through most. Rows that do not divide into blocks of 256 take one of 32 (param_block). */
typedef struct WeightType {
    const char *name, *alias; /* in small letters; any are read. alias: another name, or NULL */
    cvn_dtype dtype;          /* of plain types */
    BlockKind block,
        head; /* of types in blocks: matrices, output head; or BLOCK_NONE: it stays as it is */
    /* v of the first four layers, down of the first eighth; or BLOCK_NONE */
    BlockKind first;
    /* v and down of the first and last eighth of the layers and of every third between; or BLOCK_NONE */
    BlockKind spread;
    int gguf;          /* general.file_type of llama.cpp; 0 of types that are none of its */
    QuantScheme quant; /* of our own */
} WeightType;

extern const WeightType weight_types[]; /* ended by a NULL name */

/* NULL: there is none of that name. */
const WeightType *weight_type_find(const char *name);

/* The first name of a type, for any of its names; what is the name of none comes back. */
const char *weight_type_alias(const char *name);

/* The names of all types, and of what quant_parse reads; NULL behind the last. */
const char *weight_type_name(size_t i);
const char *quant_name(size_t i);

/* "none" and NULL: not quantized; else the name of a type that is not plain. */
int quant_parse(const char *text, QuantScheme *out, cvn_err *err);

/* The same as text, into a buffer of at least 16 bytes; returns it. */
const char *quant_text(QuantScheme scheme, char *text, size_t size);

/* One quantized weight of n rows and k columns. */
typedef struct QuantForm {
    cvn_dtype dtype;       /* CVN_I8 or CVN_I4 */
    cvn_dtype scale_dtype; /* CVN_F32 or CVN_BF16 */
    int64_t n, k;
    int64_t groups; /* of columns that share a scale, at least 1 */
} QuantForm;

/* How the scheme, which is not QUANT_NONE, quantizes a weight. */
QuantForm quant_form(QuantScheme scheme, int64_t n, int64_t k);

/* Bits of a weight in int4, where rows divide into groups, its scale included. */
double quant_bits(QuantScheme scheme);

/* Quantizes columns of a row, of int8 all of them and of int4 whole groups, with their scales: q and scale lie as in a row of
   the weight. */
void quant_row(const QuantForm *form, const float *x, int64_t columns, void *q, void *scale);

/* The bf16 scale of a group of n numbers in 4 bits: of some, that of the least squared error, each square being counted as `weight`
   says; NULL: all alike. */
uint16_t quant_scale(const float *x, const float *weight, int64_t n);

#endif
