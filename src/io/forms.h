/*
 * What files other programs have a model in, as rows of pieces (out.h):
 *
 *     form_hf        model.safetensors, or several with an index
 *     form_meta      consolidated.00.pth, … in as many parts as wanted, and params.json
 *     form_gguf      one file, with the tokenizer's keys in it
 *     form_llama2c   one file of version 1 (llama2c.h), or of version 0
 *
 * A config that a form cannot say is refused. Norms and biases are f32 in GGUF files, where all else is of the type asked for
 * as model/quantize.h says it. Hugging Face folders may be quantized in our
 * own way (model/quantize.h): scales follow their numbers, and what is not quantized is of the model's type.
 */
#ifndef CVN_IO_FORMS_H
#define CVN_IO_FORMS_H

#include "io/gguf_keys.h"
#include "io/out.h"

typedef struct FormOptions {
    const WeightType *type;
    const char *file;          /* name of the one file of GGUF and llama2.c */
    const char *name;          /* of the model, for general.name */
    int parts;                 /* of Meta */
    uint64_t shard_bytes;      /* of Hugging Face: most in a file */
    const GgufKeys *tokenizer; /* or NULL */
    const bool *eight;         /* of int4: the matrices in int8 (model_set_eight); or NULL */
} FormOptions;

/* The model of the folder that form_hf writes, in the arena. */
Model *form_hf_model(const IoModel *model, const FormOptions *options, Arena *arena);
int form_hf(Out *out, const FormOptions *options, cvn_err *err);
int form_meta(Out *out, const FormOptions *options, cvn_err *err);
int form_gguf(Out *out, const FormOptions *options, cvn_err *err);
int form_llama2c(Out *out, const FormOptions *options, cvn_err *err);
int form_llama2c_v0(Out *out, const FormOptions *options, cvn_err *err);

#endif
