/*
 * Checkpoints that other programs have quantized: a matrix lies as several tensors, numbers of few bits in words, scales,
 * zeros, and is one tensor again, "NAME.weight", whose elements are read one by one from them, exactly:
 *
 *     element [row, column] = scale [row, group] * (code [row, column] - zero [row, group])
 *
 *   quant_method        tensors behind NAME.                             how they lie (n rows, k columns, G groups of columns)
 *   gptq                qweight, qzeros, scales, g_idx                   I32 [k/8, n], I32 [G, n/8], [G, n], I32 [k]
 *   awq                 qweight, qzeros, scales                          I32 [k, n/8], I32 [G, n/8], [G, n]
 *   compressed-tensors  weight_packed, weight_scale, weight_zero_point,  I32 [n, k/8], [n, G], I32 [n/8, G],
 *   (pack-quantized)    weight_g_idx, weight_shape                       I32 [k], I64 [2]
 *   compressed-tensors  weight, weight_scale, weight_zero_point          I8 or F8 [n, k], [n, G] or one, I8
 *   mxfp4               blocks, scales behind "_", of all experts     U8 [experts, n, k/32, 16], U8 [experts, n, k/32]
 *   fp8, fbgemm_fp8     weight, weight_scale or weight_scale_inv         F8 [n, k]; one, [n, 1] or one for each block
 *
 * (F8: F8_E4M3 or F8_E5M2. 8 numbers of 4 bits in a word; 4 of 8 bits.) The lowest bits of a word come first, but in AWQ, where they are of rows 0 2 4 6
 * 1 3 5 7. GPTQ stores zeros less one, but in "gptq_v2"; codes of pack-quantized are numbers plus 8 (or 128). g_idx gives
 * each column its group where groups are no neighbours ("act order"). Scales of activations change no weight and are left out.
 *
 * (Formats: AutoGPTQ's and AutoAWQ's packing, vllm-project/compressed-tensors, transformers' FineGrainedFP8.)
 */
#ifndef CVN_IO_PACKED_H
#define CVN_IO_PACKED_H

#include "io/tensor.h"
#include "model/params.h"

#include <jansson.h>

/* Puts the matrices of a folder's list together, as "quantization_config" of its config.json says; where there is none, or our
   own, nothing happens. */
int packed_join(IoTensors *list, const char *folder, cvn_err *err);

/* The same by the object; `file` is for messages. */
int packed_join_by(IoTensors *list, const char *file, const json_t *quantization, cvn_err *err);

/* A quantized matrix of a folder of our own, audited: one of its numbers and its scales. All is in the arena. */
const IoTensor *packed_own(const Param *param, const IoTensor *numbers, const IoTensor *scales,
                           Arena *arena);

/* Elements first .. first+n-1 of a tensor of IO_PACKED. */
void packed_decode(const IoTensor *tensor, int64_t first, int64_t n, float *out);

/* The kind of blocks (graph/blocks.h) in which the same numbers are, so that products read them as they are: Q4_0 of codes of 4
   bits and Q8_0 of 8, where zeros are in the middle, Q5_0 of 4 bits with other zeros, since codes less zeros are -16 … 15; if
   scales are f16 without rounding, and groups are neighbours, whole blocks of them; F8_E4M3 and F8_E5M2 of floats. Else BLOCK_NONE. Looks at all scales and zeros. */
BlockKind packed_kind(const IoTensor *tensor);

/* Blocks first .. first+n-1 of that kind, row-major. */
void packed_blocks(const IoTensor *tensor, BlockKind kind, int64_t first, int64_t n, uint8_t *out);

#endif
