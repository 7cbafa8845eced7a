/*
 * The files of llama2.c, *.bin: a header and then all weights in f32, each kind for all layers together.
 *
 *   version 0   7 numbers of 4 bytes: dim, ffn, layers, heads, kv heads, vocabulary (negative where the head is not the
 *               embedding), context; then embedding, attention norms, wq, wk, wv, wo, feed-forward norms, w1, w2, w3, the
 *               final norm, two tables of rotary angles [context, head_dim / 2], which follow from the rest, and the head
 *   version 1   "ak42" backwards, the version, the same 7 numbers, a byte that is 1 where the head is the embedding, zeros up
 *               to byte 256; then attention norms, feed-forward norms, the final norm, embedding, wq, wk, wv, wo, w1, w2, w3
 *               and the head
 *
 * Rotary pairs are interleaved, their base is 10000, and 1e-5 is added to squares in norms. (Format: export.py and run.c of
 * karpathy/llama2.c.) The file must have exactly the bytes that its header asks for.
 */
#ifndef CVN_IO_LLAMA2C_H
#define CVN_IO_LLAMA2C_H

#include "io/tensor.h"
#include "model/model.h"
#include "model/params.h"

enum { LLAMA2C_MAGIC = 0x616b3432, LLAMA2C_HEADER = 256, LLAMA2C_KINDS = 12 };

/* The kinds of parameters in the order of the file; PARAM_KIND_COUNT where version 0 has the rotary tables. */
extern const ParamKind llama2c_order[2][LLAMA2C_KINDS + 1];

/* Tensors are named as in Meta's files. */
int llama2c_read(IoTensors *list, Model **model, const char *file, const uint8_t *data, size_t size,
                 cvn_err *err);

#endif
