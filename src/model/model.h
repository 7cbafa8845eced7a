/*
 * A model, for everybody outside of src/model: made from files, a preset or a shape, asked by functions, and otherwise closed
 * (block.h). None of the questions names a family of models.
 *
 * A model lies in the arena that it was made in and is not freed alone. Nobody changes a model that others look at: who
 * needs another one takes a copy and sets what differs.
 */
#ifndef CVN_MODEL_MODEL_H
#define CVN_MODEL_MODEL_H

#include "base/arena.h"
#include "base/strbuf.h"
#include "caravan/dtype.h"
#include "model/quantize.h"

#include <jansson.h>

typedef struct Model Model;

enum { MODEL_MAX_IDS = 16 };

typedef struct SpecialIds {
    int n;                     /* ids used; 0 where there is none */
    int32_t id[MODEL_MAX_IDS]; /* each in [0, vocab) */
} SpecialIds;

/* What part of elements is dropped in training (dropout.h), from 0 to below 1. */
typedef struct DropoutRates {
    double attention; /* weights that queries give to keys */
    double hidden;    /* the embedding, and what attention and feed-forward part add to it */
} DropoutRates;

/* ---- made from files ---- */

/* From parsed JSON, as in config.json; `file` is for messages. `generation` (may be NULL) is generation_config.json, whose
   token ids win. Reading is strict where it matters: a setting that changes the mathematics and is not implemented is refused
   by name, never ignored. Any key that is not known is refused when its name speaks of mathematics ("attn", "norm", "scale",
   …) and its value is not null, false, 0, empty or otherwise neutral; else it is ignored with a warning. */
int model_parse(Model **model, const char *file, const json_t *json, const json_t *generation,
                Arena *arena, cvn_err *err);

/* From FOLDER/config.json and, where it exists, FOLDER/generation_config.json. */
int model_read(Model **model, const char *folder, Arena *arena, cvn_err *err);

/* The object of a config.json, as transformers 4 and 5 read it; NULL with *err set where it cannot say what the model is. */
json_t *model_json(const Model *model, cvn_err *err);

/* Writes FOLDER/config.json and FOLDER/generation_config.json. A model whose rotary pairs are interleaved has no Hugging Face
   form and is refused. */
int model_write(const Model *model, const char *folder, cvn_err *err);

/* Ranges, divisibility, that no size computed from the model overflows 63 bits, and that the graph can do all that it says. */
int model_check(const Model *model, const char *file, cvn_err *err);

/* ---- copies with something else ---- */

/* Adds a line to the warnings; what does not fit is dropped. */
void model_warn(Model *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

Model *model_copy(const Model *model, Arena *arena);
/* The same with only the first layers, at least one. */
Model *model_of_layers(const Model *model, int64_t layers, Arena *arena);
void model_set_context(Model *model, int64_t context);
void model_set_dtype(Model *model, cvn_dtype dtype);
void model_set_quant(Model *model, QuantScheme scheme);
/* See block.h; set_quant takes it away. */
void model_set_eight(Model *model, const bool *eight);
/* See block.h; NULL: none. */
void model_set_blocks(Model *model, const unsigned char *blocks);
/* The order of rotary pairs in the rows of weights: side by side, as in GGUF files and Meta's, or half a head apart. */
void model_set_interleaved(Model *model, bool interleaved);
/* The order that the family's Hugging Face files have, and whether it is that. */
void model_set_hf_pairs(Model *model);
bool model_has_hf_pairs(const Model *model);
void model_set_pad(Model *model, int32_t pad); /* or -1 */
void model_set_tied(Model *model, bool tied);
void model_set_dropout(Model *model, DropoutRates rates);
void model_set_vocab(Model *model, int64_t vocab, const SpecialIds *begins, const SpecialIds *ends);

/* ---- questions ---- */

/* The numbers that people know a model by; of a model with layers of several kinds, those of its widest. */
typedef struct ModelShape {
    int64_t width, layers;
    int64_t heads, kv_heads, head_dim; /* of attention */
    int64_t ffn;                       /* width of the feed-forward part */
    int64_t vocab, context;
    bool tied; /* the output head is the embedding */
} ModelShape;

ModelShape model_shape(const Model *model);

const char *model_family(const Model *model); /* "llama": model_type of its config.json */
/* "gemma3": model_type of the config.json that has it as its text model, beside parts that see or hear; NULL: it stands alone. */
const char *model_within(const Model *model);
int64_t model_vocab(const Model *model);   /* rows of the embedding */
int64_t model_width(const Model *model);   /* of the residual stream */
int64_t model_layers(const Model *model);  /* decoder blocks */
int64_t model_context(const Model *model); /* positions it was made for */
/* Positions that may be asked for: the context, or what dynamic scaling makes of it. */
int64_t model_longest_context(const Model *model);
cvn_dtype model_dtype(const Model *model); /* of the weights as they were saved */
QuantScheme model_quant(const Model *model);
bool model_in_blocks(const Model *model);    /* matrices stay in the blocks that their files have */
bool model_is_quantized(const Model *model); /* in blocks, or by a scheme of our own */
bool model_takes_int8(const Model *model);   /* what enters matrices may be rounded to 8 bits */
bool model_is_interleaved(const Model *model); /* see model_set_interleaved */
const SpecialIds *model_begins(const Model *model);
const SpecialIds *model_ends(const Model *model); /* any of them ends a text */
DropoutRates model_dropout(const Model *model);
int32_t model_pad(const Model *model);          /* or -1 */
const char *model_warnings(const Model *model); /* a line each; "" */

/* Of a query at positions first … last on average, over all layers, the keys that it sees times heads times their width: what
   work of attention is counted by. */
double model_attention_pairs(const Model *model, int64_t first, int64_t last);

/* Whether experts are chosen by corrections beside their scores; and the coefficient of the loss by which they are to be chosen alike
   often, 0: there is none. */
bool model_has_corrections(const Model *model);
double model_balance(const Model *model);

/* Positions that a query of a layer sees at most, by its window or chunk, itself among them; 0: all before it. */
int64_t model_window(const Model *model, int64_t layer);

/* layers * 2 * batch * length * kv_heads * head_dim elements, in bytes; -1 when it overflows. (dtype CVN_I8: with the scales,
   2 bytes for each position of a head.) Of layers with a window those that the last query sees. */
int64_t kv_cache_bytes(const Model *model, int64_t batch, int64_t length, cvn_dtype dtype);

/* Rotary frequencies in radians per position in a text of `length` positions, out: [model_rope_pairs]: of the layer
   that stands for all (model_rotating in block.h). */
int64_t model_rope_pairs(const Model *model);
void model_rope_frequencies(const Model *model, int64_t length, double *out);

/* What a GGUF file says of frequencies by small tensors; returns how many there are. */
typedef struct RopeTensor {
    const char *name;
    const float *value; /* [n], the arena's */
    int64_t n;
} RopeTensor;
int model_rope_tensors(const Model *model, Arena *arena, RopeTensor out[2]);

/* A number that models of other sizes or settings have not. */
uint64_t model_hash(const Model *model);

/* What sizes and settings make of a KV cache: two models with the same text have caches of the same meaning, if their weights
   are the same. */
void model_add_identity(const Model *model, int64_t length, StrBuf *out);

/* Lines for people, and the same as JSON (describe.c). */
void model_describe(const Model *model, StrBuf *out);
json_t *model_describe_json(const Model *model);

#endif
