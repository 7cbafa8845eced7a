/*
 * Meta's checkpoint folders: params.json and consolidated.00.pth, or several shards
 * consolidated.00.pth, consolidated.01.pth, … that lie side by side ("model parallel"):
 *
 *   split along rows      wq, wk, wv, w1, w3, output; tok_embeddings of Llama 3
 *   split along columns   wo, w2; tok_embeddings of Llama 1 and 2
 *   the same in each      norms, rope.freqs
 *
 * Rotary pairs are interleaved. params.json leaves out what the code knows, so some of the config
 * is inferred: the feed-forward width from dim, ffn_dim_multiplier and multiple_of; a vocabulary of
 * -1 from the embedding; the llama3 frequency scaling from use_scaled_rope (factor 8, and 32 in
 * Llama 3.2, which is told by its width); context and special tokens from the family. A tokenizer
 * that knows its special tokens knows better.
 */
#ifndef CVN_IO_META_H
#define CVN_IO_META_H

#include "io/folder.h"
#include "model/model.h"

/* Tensors are merged over the shards. */
int meta_open(Folder *folder, Model **model, const char *path, Arena *arena, cvn_err *err);

/* The model from params.json's text and the shape of the embedding (rank 2, in one piece). */
int meta_model(Model **model, const char *file, const json_t *params, const IoTensors *tensors,
               Arena *arena, cvn_err *err);

#endif
