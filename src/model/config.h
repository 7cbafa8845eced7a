/*
 * What a Llama is: the numbers that fix its graph. Read from a Hugging Face config.json, from
 * Meta's params.json or GGUF keys (src/io), or from a preset; the graph builder sees only this
 * struct.
 *
 * Reading is strict where it matters: a setting that changes the mathematics and is not implemented
 * is refused by name, never ignored. Every key is in one table (config_read.c): used, harmless, or
 * refused unless it has its neutral value. A key that is in none of them is refused when its name
 * speaks of mathematics ("attn", "norm", "scale", …) and its value is not null, false, 0 or empty;
 * otherwise it is ignored with a warning.
 */
#ifndef CVN_MODEL_CONFIG_H
#define CVN_MODEL_CONFIG_H

#include "base/err.h"
#include "caravan/dtype.h"
#include "model/quantize.h"

#include <jansson.h>

typedef enum RopeScaling {
    ROPE_PLAIN,  /* frequencies theta^(-2i/head_dim) */
    ROPE_LINEAR, /* all divided by the factor */
    ROPE_LLAMA3, /* low ones divided by the factor, high ones kept, between them interpolated */
} RopeScaling;

#define CONFIG_MAX_IDS 16

typedef struct SpecialIds {
    int n;                      /* ids used; 0 where there is none */
    int32_t id[CONFIG_MAX_IDS]; /* each in [0, vocab) */
} SpecialIds;

/* Plain data, copied by assignment. llama_config_check holds the ranges. */
typedef struct LlamaConfig {
    int64_t dim;                   /* width of the residual stream (hidden_size) */
    int64_t n_layers;              /* decoder blocks */
    int64_t n_heads;               /* query heads; a multiple of n_kv_heads */
    int64_t n_kv_heads;            /* key and value heads */
    int64_t head_dim;              /* even; n_heads * head_dim need not be dim */
    int64_t ffn;                   /* width of the feed-forward part (intermediate_size) */
    int64_t vocab;                 /* rows of the embedding */
    int64_t max_context;           /* positions the model was made for */
    double rms_eps;                /* added to the mean square in every norm */
    double rope_theta;             /* base of the rotary frequencies */
    RopeScaling rope_scaling;      /* which of the next four count */
    double rope_factor;            /* linear, llama3 */
    double rope_low_freq_factor;   /* llama3 */
    double rope_high_freq_factor;  /* llama3; greater than the low one */
    int64_t rope_original_context; /* llama3: positions of pretraining */
    bool rope_interleaved;         /* rotary pairs: false (i, i + head_dim/2), Hugging Face;
                                      true (2i, 2i + 1), Meta and GGUF */
    bool tied;                     /* lm_head is the embedding */
    bool attention_bias;           /* q, k, v, o have biases */
    bool mlp_bias;                 /* gate, up, down have biases */
    double init_range;             /* standard deviation of fresh weights (initializer_range) */
    QuantScheme quant;             /* how the matrices are quantized */
    const unsigned char *blocks;   /* [parameters] of each its kind of blocks, or BLOCK_NONE
                                      (graph/blocks.h); borrowed of a model's files; NULL: none */
    cvn_dtype dtype;               /* type the weights were saved in: f32, bf16 or f16 */
    SpecialIds bos;                /* begin of text */
    SpecialIds eos;                /* any of them ends a text */
    int32_t pad;                   /* padding token, or -1 */
    char warnings[1024];           /* what was ignored or dropped, one per line; "" when nothing */
} LlamaConfig;

/* The values that transformers gives to what a config.json leaves out. */
LlamaConfig llama_config_default(void);

/* From parsed JSON; `file` is for messages. `generation` (may be NULL) is generation_config.json,
 * whose token ids win. The result has passed llama_config_check. */
int llama_config_parse(LlamaConfig *config, const char *file, const json_t *json,
                       const json_t *generation, cvn_err *err);

/* From FOLDER/config.json and, where it exists, FOLDER/generation_config.json. */
int llama_config_read(LlamaConfig *config, const char *folder, cvn_err *err);

/* Ranges, divisibility, and that no size computed from the config overflows 63 bits. */
int llama_config_check(const LlamaConfig *config, const char *file, cvn_err *err);

/* Writes FOLDER/config.json and FOLDER/generation_config.json, as transformers 4 and 5 read them.
 * An interleaved config has no Hugging Face form and is refused. */
int llama_config_write(const LlamaConfig *config, const char *folder, cvn_err *err);

/* Adds a line to config->warnings; what does not fit is dropped. */
void llama_config_warn(LlamaConfig *config, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The rotary frequencies in radians per position, out: [head_dim / 2]. The llama3 rule is that of
 * Meta's llama-models (apply_scaling) and of transformers (rope_type "llama3"). */
void llama_rope_frequencies(const LlamaConfig *config, double *out);

#endif
