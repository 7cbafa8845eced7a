/*
 * The parameters of a model: one table, from which everything that touches weights is derived (the
 * graph's inputs, loading and its audit, initialisation, sharding, sizes).
 *
 * A parameter's logical shape keeps axes apart that a sharding may name: q is [heads, head_dim,
 * embed]. In a file, where frameworks flatten, it is [heads * head_dim, embed]: the same bytes. The
 * only rule is that "head_dim" is merged into the axis before it, and "experts" of matrices into the one behind it.
 *
 *   kind q             [heads, head_dim, embed]     model.layers.N.self_attn.q_proj.weight in Hugging Face files
 *
 * The rows are in kinds.def.
 *
 * Of a quantized model (model/quantize.h), matrices are in panels, their scales follow at the end of the list,
 * and there is a head of its own even where the two are tied: so there is of an embedding that is in blocks as its GGUF file has
 * it, since products read panels, and a look-up reads one row in the file.
 */
#ifndef CVN_MODEL_PARAMS_H
#define CVN_MODEL_PARAMS_H

#include "base/arena.h"
#include "caravan/graph.h"
#include "graph/blocks.h"
#include "model/kinds.h"
#include "model/model.h"

typedef enum ModelAxis {
    AXIS_VOCAB,
    AXIS_EMBED,
    AXIS_HEADS,
    AXIS_KV_HEADS,
    AXIS_HEAD_DIM,
    AXIS_FFN,
    AXIS_EXPERTS,
    AXIS_EXPERT_FFN,
    AXIS_SHARED_FFN,
    AXIS_ONE, /* of a single number */
    AXIS_COUNT
} ModelAxis;

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

/*
 * How matrices of experts lie in a tensor that has all of them, [experts, rows, columns] of one or of several parameters, as
 * gate and up of two rows each:
 *
 *     0            g0 g1 u0 u1     one behind the other, or
 *     ALTERNATING  g0 u0 g1 u1     in turns;
 *     TURNED       columns and rows change places
 *
 * BARE: the tensor's name has no ".weight" behind it.
 */
typedef enum TensorForm { TENSOR_BARE = 1, TENSOR_TURNED = 2, TENSOR_ALTERNATING = 4 } TensorForm;

typedef struct Param {
    ParamKind kind;
    int layer;                           /* -1 for those outside of the layers */
    const char *name;                    /* ours: "layers.3.q", "embed" */
    const char *file_name[NAMING_COUNT]; /* in files; the arena's */
    const char *fused
        [NAMING_COUNT]; /* of a tensor that others have rows of, too; NULL: it has one of its own */
    unsigned form_fused;            /* of that in Hugging Face's files: bits of TensorForm */
    int rank;                       /* logical */
    ModelAxis axis[PARAM_MAX_RANK]; /* [rank] */
    int64_t dims[PARAM_MAX_RANK];   /* [rank] */
    int file_rank;   /* head_dim merged into the axis before it, experts into the one behind */
    int64_t experts; /* of a weight or bias of each expert: how many; else 0 */
    int64_t file_dims[PARAM_FILE_RANK]; /* [file_rank], row-major as in Hugging Face */
    bool rotated;   /* rows, or elements of a bias, of a head lie in the order of rotary pairs */
    bool above_one; /* of a norm: one more than it is what is multiplied by */
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
    int first[PARAM_KIND_COUNT]; /* index of the kind's first parameter, or -1 when the model has
                                    none */
    const int *layer; /* [layers + 1]: index of each layer's first, and behind the last */
} ParamList;

/* All parameters of a model that passed model_check; everything lives in the arena. */
void params_list(ParamList *list, const Model *model, Arena *arena);

/* The blocks that a matrix has in a type of GGUF files; BLOCK_NONE where its rows divide into none, and of what is no matrix. */
BlockKind param_block(const Param *param, const Model *model, const WeightType *type);

enum { PARAM_TENSOR_MOST = 4 };

/* A tensor of files: what it is called, and the parameters whose rows it has, one behind the other. */
typedef struct ParamTensor {
    const char *name;
    int n, member[PARAM_TENSOR_MOST]; /* n is 0 where the tensor is that of a parameter before */
    int64_t rows, elements;
    int64_t pieces; /* tensors, one of each expert, where name stands for them; else 1 */
    unsigned form;  /* of what experts share, bits of TensorForm */
    int rank;
    int64_t dims[PARAM_FILE_RANK]; /* of each */
} ParamTensor;

/* That of parameter i. Only what is no numbers of ours (PARAM_PLAIN) shares one. */
ParamTensor params_tensor(const ParamList *list, int i, ParamNaming naming);

/* Whether files with these names have a tensor for each of its experts; and the name of one, by the parameter's. */
bool param_has_pieces(const Param *param, ParamNaming naming);
const char *param_expert_name(const char *pattern, int64_t expert, char *text, size_t size);

/* The dimensions of its tensor in GGUF files; returns how many. */
int param_gguf_dims(const Param *param, int64_t dims[PARAM_FILE_RANK]);

/* Layers first … end - 1 of a model, with the embedding before the first one and the head behind the last; {0, 0}: all of it. */
typedef struct ModelPart {
    int64_t first, end;
} ModelPart;

/* The s-th of n parts that are as much work, the head too, as nearly as whole layers can be; each has a layer or more. */
ModelPart model_part(const Model *model, int s, int n);
bool model_part_is_first(const ModelPart *part);
bool model_part_is_last(const ModelPart *part, const Model *model);
/* Whether a part has a use for a parameter of the model, or for what is beside it. An embedding that is the head, too, is in the first
   part and in the last one. */
bool model_part_has(const ModelPart *part, const Model *model, const Param *param);

/* NULL when the model has no such parameter. `layer` is ignored for kinds outside of the layers. */
const Param *params_find(const ParamList *list, ParamKind kind, int layer);

/* Name of the copy of a weight that is rounded to the type of products: "rounded.layers.3.q" (train/step.h). */
#define PARAM_ROUNDED "rounded."

/* Type of the array that holds the parameter, floats being of the given dtype; and its bytes. */
cvn_type param_type(const Param *param, cvn_dtype dtype);
size_t param_bytes(const Param *param, cvn_dtype dtype);

const char *model_axis_name(ModelAxis axis);
const char *param_kind_name(ParamKind kind);

/* Whether layers may have one, which enters products: what is quantized. */
bool param_kind_is_matrix(ParamKind kind);
/* Whether it may be adapted: not those of experts. */
bool param_kind_is_adapted(ParamKind kind);

/* Hugging Face's name of its module: "q_proj". */
const char *param_kind_module(ParamKind kind);

/* Whether a tensor is of layers behind the model's last, which foretell more than one token (Family.foretelling). */
bool model_leaves_out(const Model *model, ParamNaming naming, const char *tensor);

/* Whether files with these names can hold the model. */
bool model_has_names(const Model *model, ParamNaming naming);

typedef struct ModelSize {
    int64_t params; /* all elements */
    /* Those that every token is multiplied with: without the embedding look-up, with the head
       (also when it is tied), without norms and biases; the N of the estimate 2N FLOPs per token
       forward, 6N training. */
    int64_t matmul_params;
} ModelSize;

ModelSize model_size(const Model *model);

/* Bytes of all parameters in one type. */
int64_t model_bytes(const Model *model, cvn_dtype dtype);

#endif
