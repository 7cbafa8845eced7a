/*
 * What files other programs have a model in, as rows of pieces (out.h):
 *
 *     format_hf        model.safetensors, or several with an index
 *     format_meta      consolidated.00.pth, … in as many shards as wanted, and params.json
 *     format_gguf      one file, with the tokenizer's keys in it
 *     format_llama2c   one file of version 1 (llama2c.h), or of version 0
 *
 * A config that a format cannot say is refused. Norms and biases are f32 in GGUF files, where all else is of the type asked for
 * as model/quantize.h says it. Hugging Face folders may be quantized in our own way (model/quantize.h): scales follow their
 * numbers, and what is not quantized is of the model's type.
 */
#ifndef CVN_IO_FORMATS_H
#define CVN_IO_FORMATS_H

#include "io/gguf_keys.h"
#include "io/out.h"

typedef struct FormatOptions {
    const WeightType *type;
    const char *file;          /* name of the one file of GGUF and llama2.c */
    const char *name;          /* of the model, for general.name */
    int shards;                /* of Meta */
    uint64_t shard_bytes;      /* of Hugging Face: most in a file */
    const GgufKeys *tokenizer; /* or NULL */
    const bool *eight;         /* of int4: the matrices in int8 (model_set_eight); or NULL */
} FormatOptions;

/* The model of the folder that format_hf writes, in the arena. */
Model *format_hf_model(const IoModel *model, const FormatOptions *options, Arena *arena);
int format_hf(Out *out, const FormatOptions *options, cvn_err *err);
int format_meta(Out *out, const FormatOptions *options, cvn_err *err);
int format_gguf(Out *out, const FormatOptions *options, cvn_err *err);
int format_llama2c(Out *out, const FormatOptions *options, cvn_err *err);
int format_llama2c_v0(Out *out, const FormatOptions *options, cvn_err *err);

#endif
