/*
 * What a Llama is: the numbers that fix its graph. Read from a Hugging Face config.json, from
 * Meta's params.json or GGUF keys (src/io), or from a preset; the graph builder sees only this
 * struct.
 *
 * Reading is strict where it matters: a setting that changes the mathematics and is not implemented
 * is refused by name, never ignored. Keys that are used or harmless are in one list (config_read.c).
 * Any other is refused when its name speaks of mathematics ("attn", "norm", "scale", …) and its value
 * is not null, false, 0, empty or otherwise neutral; else it is ignored with a warning.
 */
#ifndef CVN_MODEL_MODEL_H
#define CVN_MODEL_MODEL_H

#include "base/err.h"
#include "caravan/dtype.h"
#include "model/quantize.h"

#include <jansson.h>

/* What each does is said in model/rope.c. */
typedef enum RopeScaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LLAMA3
} RopeScaling;

#define CONFIG_MAX_IDS 16

typedef struct SpecialIds {
    int n;                      /* ids used; 0 where there is none */
    int32_t id[CONFIG_MAX_IDS]; /* each in [0, vocab) */
} SpecialIds;

/* Plain data, copied by assignment. model_check holds the ranges. */
typedef struct Model {
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
    RopeScaling rope_scaling;      /* which of the next six count */
    double rope_factor;            /* linear, dynamic without alpha, yarn, llama3 */
    double rope_alpha;             /* dynamic: fixes how theta is raised; 0: by factor and length */
    double rope_ramp[2];           /* turns within the original context: at most so many: divided by
                                      the factor; at least so many: kept; yarn (beta_slow,
                                      beta_fast), llama3 (low_freq_factor, high_freq_factor) */
    double rope_attention;         /* yarn: what rotated queries and keys are multiplied by */
    bool rope_truncate;            /* yarn: the ramp begins and ends at whole pairs */
    int64_t rope_original_context; /* yarn, llama3: positions of pretraining */
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
} Model;

/* The values that transformers gives to what a config.json leaves out. */
Model model_default(void);

/* From parsed JSON; `file` is for messages. `generation` (may be NULL) is generation_config.json,
 * whose token ids win. The result has passed model_check. */
int model_parse(Model *config, const char *file, const json_t *json, const json_t *generation,
                cvn_err *err);

/* From FOLDER/config.json and, where it exists, FOLDER/generation_config.json. */
int model_read(Model *config, const char *folder, cvn_err *err);

/* Ranges, divisibility, and that no size computed from the config overflows 63 bits. */
int model_check(const Model *config, const char *file, cvn_err *err);

/* Writes FOLDER/config.json and FOLDER/generation_config.json, as transformers 4 and 5 read them.
 * An interleaved config has no Hugging Face form and is refused. */
int model_write(const Model *config, const char *folder, cvn_err *err);

/* Adds a line to config->warnings; what does not fit is dropped. */
void model_warn(Model *config, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- model/rope.c ---- */

/* As config.json spells it: "default", "linear", … */
const char *rope_scaling_name(RopeScaling scaling);

/* Whether it is one. */
bool rope_scaling_parse(const char *name, RopeScaling *out);

/* Ranges of what the scaling takes. */
int rope_check(const Model *config, const char *file, cvn_err *err);

/* Positions that may be asked for: max_context, or what dynamic scaling makes of it. */
int64_t model_longest_context(const Model *config);

/* The base of the frequencies in a context of `length` positions. */
double model_rope_theta(const Model *config, int64_t length);

/* What yarn sharpens attention by where a file does not say it: 1 + 0.1 mscale ln(factor). */
double rope_yarn_attention(double factor, double mscale);

/* The rotary frequencies in radians per position in a context of `length` positions, out: [head_dim / 2]. */
void model_rope_frequencies(const Model *config, int64_t length, double *out);

/* What products of queries and keys are multiplied by. */
double model_attention_scale(const Model *config);

#endif
