/*
 * The parameters of a Llama: one table, from which everything that touches weights is derived (the
 * graph's inputs, loading and its audit, initialisation, sharding, sizes).
 *
 * A parameter's logical shape keeps axes apart that a sharding may name: q is [heads, head_dim,
 * embed]. In a file, where frameworks flatten, it is [heads * head_dim, embed]: the same bytes. The
 * only rule is that "head_dim" is merged into the axis before it.
 *
 *   kind q             [heads, head_dim, embed]     model.layers.N.self_attn.q_proj.weight in Hugging Face files
 *
 * The rows are in params.def.
 *
 * Of a quantized config (model/quantize.h), matrices are in panels, their scales follow at the end of the list,
 * and there is a head of its own even where the two are tied: so there is of an embedding that is in blocks as its GGUF file has
 * it (Model.blocks), since products read panels, and a look-up reads one row in the file.
 */
#ifndef CVN_MODEL_PARAMS_H
#define CVN_MODEL_PARAMS_H

#include "base/arena.h"
#include "caravan/graph.h"
#include "graph/blocks.h"
#include "model/model.h"

typedef enum ModelAxis {
    AXIS_VOCAB,
    AXIS_EMBED,
    AXIS_HEADS,
    AXIS_KV_HEADS,
    AXIS_HEAD_DIM,
    AXIS_FFN,
    AXIS_COUNT
} ModelAxis;

typedef enum ParamKind {
#define PARAM(KIND, name, place, presence, role, a, b, c, hf, meta, gguf) PARAM_##KIND,
#include "model/params.def"
#undef PARAM
    PARAM_KIND_COUNT
} ParamKind;

/* How the families of files name the same tensors. */
typedef enum ParamNaming {
    NAMING_HF,   /* Hugging Face folders; also the names that initialisation is keyed by */
    NAMING_META, /* Meta's consolidated.*.pth */
    NAMING_GGUF,
    NAMING_COUNT
} ParamNaming;

typedef enum ParamInit {
    INIT_ONES,
    INIT_ZEROS,
    INIT_NORMAL, /* mean 0, standard deviation Param.std */
} ParamInit;

#define PARAM_MAX_RANK 3
#define PARAM_FILE_RANK 4

/* What an array of a parameter holds. */
typedef enum ParamForm {
    PARAM_PLAIN,     /* floats, row-major in the logical shape */
    PARAM_QUANTIZED, /* whole numbers of 8 or 4 bits likewise: Param.quant */
    PARAM_SCALES,    /* the scales of one, [rows …, groups] */
    PARAM_BLOCKS,    /* a matrix in blocks, as it is in its file: Param.blocks */
} ParamForm;

typedef struct Param {
    ParamKind kind;
    int layer;                           /* -1 for those outside of the layers */
    const char *name;                    /* ours: "layers.3.q", "embed" */
    const char *file_name[NAMING_COUNT]; /* in files; the arena's */
    int rank;                            /* logical */
    ModelAxis axis[PARAM_MAX_RANK];      /* [rank] */
    int64_t dims[PARAM_MAX_RANK];        /* [rank] */
    int file_rank;                       /* head_dim merged into the axis before it */
    int64_t file_dims[PARAM_FILE_RANK];  /* [file_rank], row-major as in Hugging Face */
    ParamForm form;
    int n_rows;       /* leading logical dimensions that are output channels, of matrices */
    QuantForm quant;  /* of PARAM_QUANTIZED and PARAM_SCALES */
    BlockKind blocks; /* of PARAM_BLOCKS */
    int scale;        /* of PARAM_QUANTIZED: index of its scales in the list */
    int64_t n;        /* elements */
    ParamInit init;
    double std; /* of INIT_NORMAL */
} Param;

typedef struct ParamList {
    /* [n] in the order embed, layers, final_norm, lm_head, scales of quantized ones. */
    Param *param;
    int n;
    int first[PARAM_KIND_COUNT]; /* index of the kind's first parameter, or -1 when the config has
                                    none */
    int per_layer;               /* parameters per layer */
} ParamList;

/* All parameters of a config that passed model_check; everything lives in the arena. */
void params_list(ParamList *list, const Model *config, Arena *arena);

/* NULL when the config has no such parameter. `layer` is ignored for kinds outside of the layers. */
const Param *params_find(const ParamList *list, ParamKind kind, int layer);

/* Name of the copy of a weight that is rounded to the type of products: "rounded.layers.3.q" (train/step.h). */
#define PARAM_ROUNDED "rounded."

/* Type of the array that holds the parameter, floats being of the given dtype; and its bytes. */
cvn_type param_type(const Param *param, cvn_dtype dtype);
size_t param_bytes(const Param *param, cvn_dtype dtype);

const char *model_axis_name(ModelAxis axis);
int64_t model_axis_size(const Model *config, ModelAxis axis);
const char *param_kind_name(ParamKind kind);

typedef struct ModelSize {
    int64_t params; /* all elements */
    /* Those that every token is multiplied with: without the embedding look-up, with the head
       (also when it is tied), without norms and biases; the N of the estimate 2N FLOPs per token
       forward, 6N training. */
    int64_t matmul_params;
} ModelSize;

ModelSize model_size(const Model *config);

/* Bytes of all parameters in one type. */
int64_t model_bytes(const Model *config, cvn_dtype dtype);

/* layers * 2 * batch * length * kv_heads * head_dim elements, in bytes; -1 when it overflows. */
/* (dtype CVN_I8: with the scales, 2 bytes for each position of a head) */
int64_t kv_cache_bytes(const Model *config, int64_t batch, int64_t length, cvn_dtype dtype);

#endif
