/*
 * A family of models: how its files say what block.h describes. One file per family (families/NAME.c), in which
 *
 *   - each row of `settings` is a key of config.json, a key of GGUF files, the field that both set and what it is where a
 *     config.json says nothing. One walk reads the rows and one writes them (settings.c), so that what is written is what
 *     is read;
 *   - tensors have names of their own where they are not Llama's (kinds.def).
 *
 * What all families share is not in rows: rotary scaling (rope_keys.c), token ids, types, quantization (config_json.c).
 */
#ifndef CVN_MODEL_FAMILY_H
#define CVN_MODEL_FAMILY_H

#include "model/block.h"
#include "model/kinds.h"

#include <stddef.h>

typedef enum SettingKind {
    SETTING_END,    /* of a table */
    SETTING_INT,    /* int64_t */
    SETTING_REAL,   /* double */
    SETTING_BOOL,   /* bool */
    SETTING_TRUTH,  /* bool, that a config.json may have as a whole number, 0 where it is false */
    SETTING_CHOICE, /* an enum, of rows without keys */
    SETTING_ACTIVATION, /* Activation, by name */
    SETTING_ROOT,       /* double x, that files have as 1 / x^2 */
    SETTING_ROTATED, /* double, a part of head_dim, that GGUF files have as a number of dimensions */
    SETTING_ROPE_NAME, /* bool, that files have as "rope" where it is false */
    SETTING_QK_NORM,   /* QkNorm, that files have as true where it is QK_NORM_HEAD, or, */
    SETTING_QK_NORMS,  /* QK_NORM_HEADS, */
    SETTING_QK_TURNED, /* QK_NORM_TURNED */
    SETTING_SCORE,     /* RouterScore, by the number that GGUF files have */
    SETTING_WIDTHS,    /* int64_t, that files have as how many widths of an expert it is */
    SETTING_SWITCHES, /* bool of each layer, that a list has as 0 where it is true: "no_rope_layers" */
    SETTING_TYPES, /* bool of each layer, true where a list has "sliding_attention": "layer_types"; or, */
    SETTING_CHUNKS,   /* "chunked_attention" */
    SETTING_INDICES,  /* bool of each layer, true where a list has its number. It is read only */
    SETTING_INTERVAL, /* bool of each layer, true in every n-th layer. It is read only, but as */
    SETTING_STEP,
    SETTING_BETWEEN, /* the same: false in every n-th layer */
    SETTING_BEHIND, /* bool of each layer, that files have as how many layers come before the first */
    SETTING_EACH,   /* int64_t of each layer, which a list has, or one number of all */
} SettingKind;

/* Bits of Setting.flags. */
enum {
    SETTING_NEEDED = 1, /* a GGUF file without it is refused */
    SETTING_AGAIN =
        2, /* another key of the field of a row before: a file where the two differ is refused */
    SETTING_IMPLIED = 4,     /* a GGUF file says it only where it is not what its absence means */
    SETTING_TENSORS = 8,     /* a GGUF file says it by the tensors that it has */
    SETTING_FRESH = 16,      /* only of new weights: files that cannot say it lose nothing */
    SETTING_LOCAL = 32,      /* of layers whose attention is local (Attention.local), and */
    SETTING_GLOBAL = 64,     /* of the others */
    SETTING_ROPED = 128,     /* a config.json says it in its rope settings */
    SETTING_GELU_TANH = 256, /* "gelu" means the one with tanh */
    /* null in a config.json is 0: there is none. GGUF files do not say it where that is what their silence means */
    SETTING_NULL = 512,
};

/* In fallback: of kv_heads, as many as heads, or, of layers without a window, as those with one have; of head_dim, the width over the heads; of embedding_scale, the root of the width;
   of the scale of attention in a GGUF file, what llama.cpp makes of the number of layers. */
#define SETTING_DERIVED (-1)

/* A row without keys says what all models of the family have. */
typedef struct Setting {
    const char *key;  /* of config.json; NULL: it has none */
    const char *gguf; /* what follows "ARCHITECTURE." in a GGUF file; NULL: it has none */
    SettingKind kind;
    bool of_block;   /* the field is in every Block, else in Model */
    size_t offset;   /* of the field */
    double fallback; /* what it is where a file does not say it; of an activation, its enum */
    unsigned flags;
} Setting;

#define OF_MODEL(field) false, offsetof(Model, field)
#define OF_BLOCK(field) true, offsetof(Block, field)

// clang-format off
/* attention_bias of all four projections, of those that enter attention, and mlp_bias. */
#define SETTINGS_QKV_BIAS(absent)                                                                               \
    {"attention_bias", NULL, SETTING_BOOL, OF_BLOCK(attention.q_bias), absent, SETTING_TENSORS},                \
    {"attention_bias", NULL, SETTING_BOOL, OF_BLOCK(attention.k_bias), absent, SETTING_TENSORS},                \
    {"attention_bias", NULL, SETTING_BOOL, OF_BLOCK(attention.v_bias), absent, SETTING_TENSORS}
#define SETTINGS_ATTENTION_BIAS                                                                                 \
    SETTINGS_QKV_BIAS(false),                                                                                   \
    {"attention_bias", NULL, SETTING_BOOL, OF_BLOCK(attention.o_bias), false, SETTING_TENSORS}
#define SETTINGS_MLP_BIAS                                                                                       \
    {"mlp_bias", NULL, SETTING_BOOL, OF_BLOCK(mlp.gate_bias), false, SETTING_TENSORS},                          \
    {"mlp_bias", NULL, SETTING_BOOL, OF_BLOCK(mlp.up_bias),   false, SETTING_TENSORS},                          \
    {"mlp_bias", NULL, SETTING_BOOL, OF_BLOCK(mlp.down_bias), false, SETTING_TENSORS}

/* Whether training minimises how unevenly experts are chosen, and by how much. */
#define SETTINGS_BALANCE                                                                                        \
    {"output_router_logits", NULL, SETTING_BOOL, OF_MODEL(balanced), false, SETTING_FRESH},                     \
    {"router_aux_loss_coef", NULL, SETTING_REAL, OF_MODEL(balance), 0.001, SETTING_FRESH}

/* A window of all layers; and one of the layers that layer_types lists as sliding, or, where it does not say, of all but every n-th, n
   being KEY's or EVERY; GGUF files list them, or have that number, and see so many keys (SILENT) where they say nothing. */
#define SETTING_WINDOW(SILENT)                                                                                  \
    {"sliding_window", "attention.sliding_window", SETTING_INT, OF_BLOCK(attention.window), SILENT, SETTING_NULL}
#define SETTINGS_WINDOW_OF_ALL                                                                                  \
    {NULL, NULL, SETTING_BOOL, OF_BLOCK(attention.local), true, 0},                                             \
    SETTING_WINDOW(0)
#define SETTINGS_WINDOWS(KEY, EVERY, SILENT)                                                                    \
    {KEY, NULL, SETTING_BETWEEN, OF_BLOCK(attention.local), EVERY, 0},                                          \
    {"layer_types", "attention.sliding_window_pattern", SETTING_TYPES, OF_BLOCK(attention.local), 0, 0},        \
    SETTING_WINDOW(SILENT)
/* The base of frequencies in layers with a window, where it is that of the others. */
#define SETTINGS_SAME_BASE                                                                                      \
    {NULL, "rope.freq_base_swa", SETTING_REAL, OF_BLOCK(attention.rope.theta), 10000, SETTING_AGAIN}
// clang-format on

/* A tensor whose name is not the one in kinds.def. */
typedef struct TensorName {
    ParamKind kind;
    const char *name[NAMING_COUNT]; /* NULL: as in kinds.def */
    /* Of a tensor that holds several parameters, the rows of one behind those of the other in the order of kinds.def; NULL:
       it has a tensor of its own. */
    const char *fused[NAMING_COUNT];
    unsigned form; /* of `fused` in Hugging Face's files: bits of TensorForm (params.h) */
} TensorName;

/* A published shape. */
typedef struct FamilyPreset {
    const char *name, *about;
    const char *words; /* what is no size, as in a config.json, with ' in place of " */
    int64_t width, layers, heads, kv_heads, ffn, vocab, context;
} FamilyPreset;

typedef struct Family {
    const char *name;  /* model_type of config.json */
    const char *class; /* in "architectures" of config.json */
    /* model_types, parted by blanks, of models that see or hear, whose text model may be of this family (text_config.c); or NULL */
    const char *within;
    const char *inside; /* its model_type there, where that is another */
    const char *gguf;   /* general.architecture of GGUF files; NULL: they have none */
    /* a key of those files, behind the architecture, by which they are told from another family's of that architecture */
    const char *gguf_key;
    /* the name of another, whose rows, names, harmless keys and words it has where it has none of its own; or NULL */
    const char *extends;
    bool pairs; /* rotary pairs lie side by side in Hugging Face's files, and in GGUF files, too */
    /* GGUF files have q and k as Hugging Face's have them, and not in the order of pairs side by side */
    bool gguf_halves;
    /* GGUF files have norms as what is multiplied by: one more than Hugging Face's */
    bool gguf_above_one;
    bool last_global; /* the last layer has no window, whatever a config.json lists */
    /* what is so in shapes of one's own beside their sizes, as presets have words; or NULL */
    const char *own;
    /* the key of GGUF files that says how many of their layers foretell more than one token; Hugging Face's count those apart. They are
       left out, with their tensors. NULL: there are none */
    const char *foretelling;
    bool scaling_global; /* rope_scaling is of layers that are not local */
    bool ramp_whole;     /* yarn is not truncated where a GGUF file has it, which cannot say it */
    bool longrope;       /* its config.json calls longrope "su" or "yarn", too */
    bool meta;           /* Meta's and llama2.c's files may hold it */
    /* beside those of all families; in place of one there that has the same field. Ended by {0} */
    const Setting *settings;
    /* what is so where a config.json does not say it, as presets have words; or NULL */
    const char *absent;
    /* keys of config.json, parted by blanks, that change nothing here; or NULL */
    const char *harmless;
    const TensorName *tensors;   /* ended by a row without names; or NULL */
    const FamilyPreset *presets; /* ended by a row without a name; or NULL */
    SpecialIds begin, end;       /* where a config.json says nothing */
} Family;

/* All its rows, in the order in which GGUF files have them: pointers into `rows`; returns how many. */
enum { FAMILY_SETTINGS = 64 };
int family_settings(const Family *family, const Setting *rows[FAMILY_SETTINGS]);

/* The row of a field; NULL where there is none. */
const Setting *family_setting(const Family *family, bool of_block, size_t offset);

/* Whether the key is one of the words, which blanks part. */
bool config_lists(const char *words, const char *key);

/* Whether such a key changes nothing. */
bool family_is_harmless(const Family *family, const char *key);

/* The one that it extends; NULL: none. */
const Family *family_extended(const Family *family);

/* The i-th; NULL behind the last. */
const Family *family_at(int i);

/* By what files call it; NULL where there is none. */
const Family *family_by_name(const char *name);
/* `has` tells whether a file has a key; NULL: the first with that architecture. */
const Family *family_by_gguf(const char *architecture, bool (*has)(const void *of, const char *key),
                             const void *of);

/* The names of all, "llama, smollm3", into a text of `size` bytes; returns it. */
const char *family_names(bool gguf, char *text, size_t size);

/* Its own name of a tensor, or that of kinds.def; NULL where files of that kind cannot hold the family. */
const char *family_tensor_name(const Family *family, ParamKind kind, ParamNaming naming,
                               const char *usual);

/* The name of the tensor that it shares with others, and how it lies there; NULL where it has one of its own. */
const char *family_fused_name(const Family *family, ParamKind kind, ParamNaming naming,
                              unsigned *form);

/* ---- params.c ---- */

/* The field that says whether the layer has it; NULL: every one has, or it is in no layer. */
bool *param_switch(Block *block, ParamKind kind);

/* What files of that kind call it, in `text`; NULL: they cannot hold the family. */
const char *param_tensor(const Model *model, ParamKind kind, ParamNaming naming, int layer,
                         char *text, size_t size);

/* ---- the walks (settings.c) ---- */

/* Keys and their values, wherever they are from. */
typedef struct SettingSource {
    bool gguf;
    const char *file; /* for messages */
    void *of;
    /* These fill *out and return 1, leave it alone and return 0 where there is no such key, or return an error. */
    int (*integer)(void *of, const char *key, int64_t *out, cvn_err *err);
    int (*real)(void *of, const char *key, double *out, cvn_err *err);
    int (*boolean)(void *of, const char *key, bool *out, cvn_err *err);
    int (*truth)(void *of, const char *key, bool *out, cvn_err *err); /* or a whole number */
    /* Borrowed from the source, or its arena's. */
    int (*text)(void *of, const char *key, const char **out, cvn_err *err);
    /* At most n whole numbers of a list, true as 1; of types of layers, where `type` is one of them, 1 of that. *length is how many it
       has. */
    int (*list)(void *of, const char *key, const char *type, int64_t n, int64_t *out,
                int64_t *length, cvn_err *err);
} SettingSource;

typedef struct SettingSink {
    bool gguf;
    const char *file; /* for messages */
    void *of;
    void (*integer)(void *of, const char *key, int64_t value);
    void (*real)(void *of, const char *key, double value);
    void (*boolean)(void *of, const char *key, bool value);
    void (*text)(void *of, const char *key, const char *value); /* NULL: null */
    /* as whole numbers, or as types of layers, `type` where it is 1 */
    void (*list)(void *of, const char *key, const int64_t *value, int64_t n, const char *type);
    void (*integers)(void *of, const char *key, const int64_t *value, int64_t n);
} SettingSink;

/* Bytes of a key of a GGUF file. */
enum { KEY_SIZE = 96 };

/* A new model of the family as the source has it, but for what is not in rows. */
int settings_read(Model **model, const Family *family, const SettingSource *source, Arena *arena,
                  cvn_err *err);

/* All rows. Refuses what such a file cannot say. */
int settings_write(const Model *model, const SettingSink *sink, cvn_err *err);

/* ---- rope_keys.c ---- */

/* Which layers. */
typedef enum LayerSet { LAYERS_ALL, LAYERS_LOCAL, LAYERS_GLOBAL } LayerSet;
bool layer_is_in(const Block *block, LayerSet set);

/* The scaling in layers, whether they rotate or not, and however. */
void rope_set(Model *model, const Rope *rope, LayerSet set);

/* Rope scaling of all layers: from the object of a config.json, whose other keys `whole` has; into one. */
int rope_read_json(Model *model, const char *file, const json_t *whole, Arena *arena, cvn_err *err);
/* Adds it. */
json_t *rope_json(json_t *json, const Model *model);
int rope_read_gguf(Model *model, const SettingSource *source, cvn_err *err);
int rope_write_gguf(const Model *model, const SettingSink *sink, cvn_err *err);

/* Whether a GGUF file's key, behind the architecture, is one of those. */
bool rope_knows_gguf(const char *key, size_t n);

#endif
