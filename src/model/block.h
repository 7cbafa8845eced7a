/*
 * What a model is: numbers of the whole, and a Block for each layer. Only src/model knows these structs (tools/check.sh holds
 * that); everybody else asks by the functions of model.h, params.h, forward.h and others, which name no family.
 *
 * A field has one meaning in all families, and the graph, the parameters and the files follow from it. What a family can say
 * and the graph cannot do yet is a field, too, which model_check refuses by name unless it is as in Llama: so no setting is
 * ever read and then ignored.
 */
#ifndef CVN_MODEL_BLOCK_H
#define CVN_MODEL_BLOCK_H

#include "model/model.h"

/* What each does is said in model/rope.c. */
typedef enum RopeScaling {
    ROPE_PLAIN,
    ROPE_LINEAR,
    ROPE_DYNAMIC,
    ROPE_YARN,
    ROPE_LLAMA3,
    ROPE_LONGROPE,
    ROPE_PROPORTIONAL
} RopeScaling;

/* Rotary positions of a layer. */
typedef struct Rope {
    bool off; /* queries and keys are not rotated (NoPE): order is what other layers tell */
    /* pairs: false (i, i + head_dim/2), Hugging Face; true (2i, 2i + 1), Meta and GGUF */
    bool interleaved;
    double fraction;     /* of a head's dimensions that are rotated: the first ones */
    double theta;        /* base of the frequencies */
    RopeScaling scaling; /* which of those below count */
    double factor;       /* linear, dynamic without alpha, yarn, llama3, longrope */
    double alpha;        /* dynamic: fixes how theta is raised; 0: by factor and length */
    /* turns within the original context: at most so many: divided by the factor; at least so many: kept; yarn
       (beta_slow, beta_fast), llama3 (low_freq_factor, high_freq_factor) */
    double ramp[2];
    double sharpness; /* yarn, longrope: what rotated queries and keys are multiplied by */
    bool truncate;    /* yarn: the ramp begins and ends at whole pairs */
    /* longrope: what each plain frequency is divided by, [pairs], in texts within the original context and in longer
       ones; the arena's */
    const double *divisors[2];
    int64_t original_context; /* yarn, llama3, longrope: positions of pretraining */
    /* yarn: a query at position p is multiplied by 1 + temper ln(1 + floor(p / original_context)); 0: it stays */
    double temper;
} Rope;

typedef enum NormKind {
    NORM_RMS,  /* x / sqrt(mean x^2 + eps) */
    NORM_LAYER /* (x - mean) / sqrt(variance + eps) */
} NormKind;

/* What a normed x is multiplied by. */
typedef enum NormGain { GAIN_WEIGHT, GAIN_ONE_PLUS_WEIGHT, GAIN_NONE } NormGain;

/* The norms around attention and around the feed-forward part, and the last one before the head. */
typedef struct Norms {
    NormKind kind;
    NormGain gain;
    double eps;
    bool before; /* of what enters the part */
    bool after;  /* of what it gives, before that is added */
} Norms;

/* Norms of queries and keys, before they are rotated but for one, of the kind and with the eps of the others. */
typedef enum QkNorm {
    QK_NORM_NONE,
    QK_NORM_TURNED, /* of each head without a weight, behind the rotation, where there is one */
    QK_NORM_HEAD,   /* of each head, with a weight [head_dim] that all heads share */
    QK_NORM_HEADS,  /* of each head, with a weight of its own: [heads, head_dim] */
    QK_NORM_WHOLE   /* of all heads together, with a weight [heads, head_dim] */
} QkNorm;

typedef struct Attention {
    int64_t heads;    /* of queries; a multiple of kv_heads */
    int64_t kv_heads; /* of keys and values */
    int64_t head_dim; /* even; heads * head_dim need not be the width */
    bool q_bias, k_bias, v_bias, o_bias;
    QkNorm qk_norm;
    bool v_norm; /* values are normed by head, without a weight */
    bool v_is_k; /* values are what the weight of keys gives, before norm and rotation */
    Rope rope;
    bool local; /* the window counts in this layer */
    /* keys that a query of a local layer sees, itself among them; 0: all before it */
    int64_t window;
    int64_t chunk; /* a query sees keys of its own chunk of so many positions; 0: all */
    /* where keys and queries are not rotated: a query at position p is multiplied by 1 + growth ln(1 + floor((p + 1) / span)) */
    bool grows;
    double growth;
    int64_t growth_span;
    bool sinks;   /* a logit for each head that takes part in the softmax and gives nothing */
    double cap;   /* scores s become cap * tanh(s / cap); 0: they stay */
    double scale; /* of scores; 0: 1 / sqrt(head_dim) */
} Attention;

typedef enum Activation {
    ACTIVATION_SILU,
    ACTIVATION_GELU,
    ACTIVATION_GELU_TANH,
    ACTIVATION_RELU
} Activation;

typedef struct FeedForward {
    int64_t width;
    Activation activation;
    bool gated; /* activation(gate) * up, or activation(up) alone */
    /* gate is at most this, and up within it on both sides; 0: they are as they are */
    double limit;
    double alpha; /* of SiLU: x times the sigmoid of alpha x */
    double shift; /* is added to up */
    bool gate_bias, up_bias, down_bias;
} FeedForward;

/* What the router makes of the logits of a token, one for each expert. */
typedef enum RouterScore {
    SCORE_SOFTMAX,        /* their softmax */
    SCORE_SOFTMAX_CHOSEN, /* the softmax of those that are chosen, by their logits */
    SCORE_SIGMOID         /* the sigmoid of each */
} RouterScore;

/* Feed-forward parts, the experts, of which each token takes some: those of the best scores, and their sum, each weighted by its
   score. */
typedef struct Experts {
    bool on; /* the layer has experts; else one part, which every token takes (FeedForward) */
    int64_t number; /* of experts */
    int64_t chosen; /* for each token */
    int64_t width;  /* of each; 0: that of a part that all take, mlp.width */
    RouterScore score;
    bool router_bias; /* is added to the logits */
    bool corrected; /* a weight for each expert is added to its score to choose by, not to count */
    bool before; /* what enters an expert is multiplied by what it counts, and not what it gives */
    int64_t groups, groups_chosen; /* experts are chosen of so many of such groups */
    bool renormalised;    /* the scores of those that are chosen are divided by their sum */
    double scale;         /* and multiplied by this */
    bool bias;            /* experts have biases */
    int64_t shared_width; /* of a part that all take beside their experts; 0: there is none */
    bool shared_gate;     /* which is multiplied by the sigmoid of a product of its own */
} Experts;

typedef struct Block {
    Norms norms;
    Attention attention;
    FeedForward mlp;
    Experts experts;
    bool parallel; /* x + attention(norm x) + mlp(norm x), of one norm */
    bool scaled;   /* what the layer gives is multiplied by a weight of one number */
} Block;

struct Model {
    const struct Family *family; /* whose files it has (family.h) */
    const char *within;          /* see model_within */
    int64_t width;               /* of the residual stream */
    int64_t layers;
    Block *block;    /* [layers]; the arena's */
    int64_t vocab;   /* rows of the embedding */
    int64_t context; /* positions the model was made for */
    bool tied;       /* the output head is the embedding */
    /* what embeddings, all that is added to the stream, and logits are multiplied by; of embeddings in the type of products */
    double embedding_scale, residual_scale, logits_scale;
    double logits_divisor; /* what logits are divided by */
    double logits_cap;     /* as Attention.cap; 0: none */
    int64_t shared_layers; /* the last ones, which take keys and values of layers before */
    int64_t layer_inputs;  /* width of the embedding that each layer has of its own; 0: none has */
    DropoutRates dropout;  /* of training */
    double init_range;     /* standard deviation of fresh weights */
    bool balanced;         /* training minimises how unevenly experts are chosen, times … */
    double balance;        /* … this */
    QuantScheme quant;     /* how the matrices are quantized */
    /* [layers, PARAM_KIND_COUNT] of an int4 model: the matrices that are in int8; the arena's; NULL: none but the head */
    const bool *eight;
    /* [parameters] of each its kind of blocks, or BLOCK_NONE (graph/blocks.h); borrowed of
                                    a model's files; NULL: none */
    const unsigned char *blocks;
    cvn_dtype dtype;     /* type the weights were saved in: f32, bf16 or f16 */
    SpecialIds begin;    /* tokens that begin a text */
    SpecialIds end;      /* any of them ends a text */
    int32_t pad;         /* padding token, or -1 */
    char warnings[1024]; /* what was ignored or dropped, one per line; "" when nothing */
};

/* Llama's numbers in every block, as transformers has them where a config.json says nothing; the arena's. */
Model *model_new(int64_t layers, Arena *arena);

/* Of each expert of a layer. */
static inline int64_t experts_width(const Block *b)
{
    return b->experts.width ? b->experts.width : b->mlp.width;
}

/* As config.json spells it. */
const char *activation_name(Activation activation);

/* Whether there can be so many layers. */
int model_check_layers(int64_t layers, const char *file, cvn_err *err);

/* ---- model/rope.c ---- */

/* As config.json spells it: "default", "linear", … */
const char *rope_scaling_name(RopeScaling scaling);

/* Whether it is one. */
bool rope_scaling_parse(const char *name, RopeScaling *out);

/* Ranges of what the scaling takes. */
int rope_check(const Attention *attention, const char *file, cvn_err *err);

/* The base of the frequencies in a text of `length` positions, of a model made for `context`. */
double rope_theta(const Attention *attention, int64_t context, int64_t length);

/* What yarn sharpens attention by where a file does not say it: 1 + 0.1 mscale ln(factor). */
double rope_yarn_sharpness(double factor, double mscale);
/* The same of longrope: sqrt(1 + ln(factor) / ln(original)). */
double rope_longrope_sharpness(double factor, int64_t original);

/* The layer whose positions stand for the model's: the first that rotates and sees all, else the first that rotates, else the first. */
const Attention *model_rotating(const Model *model);

/* Pairs of a head that rotate. */
int64_t rope_pairs(const Attention *attention);

/* The frequencies in radians per position, out: [rope_pairs]. */
void rope_frequencies(const Attention *attention, int64_t context, int64_t length, double *out);

/* What products of queries and keys are multiplied by, and, where only part of a head rotates, what that part of both is
   multiplied by before. */
double attention_scale(const Attention *attention);
double attention_sharpening(const Attention *attention);

#endif
