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
    SETTING_INT,        /* int64_t */
    SETTING_REAL,       /* double */
    SETTING_BOOL,       /* bool */
    SETTING_ACTIVATION, /* Activation, by name */
    SETTING_SWITCHES, /* bool of each layer, that a list has as 0 where it is true: "no_rope_layers" */
    SETTING_INTERVAL, /* the same: true in every n-th layer. It is read only */
} SettingKind;

/* Bits of Setting.flags. */
enum {
    SETTING_NEEDED = 1, /* a GGUF file without it is refused */
    SETTING_AGAIN =
        2, /* another key of the field of a row before: a file where the two differ is refused */
    SETTING_IMPLIED = 4, /* a GGUF file says it only where it is not what its absence means */
    SETTING_TENSORS = 8, /* a GGUF file says it by the tensors that it has */
    SETTING_FRESH = 16,  /* only of new weights: files that cannot say it lose nothing */
};

/* In fallback: of kv_heads, as many as heads; of head_dim, the width over the heads. */
#define SETTING_DERIVED (-1)

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

/* A tensor whose name is not the one in kinds.def. */
typedef struct TensorName {
    ParamKind kind;
    const char *name[NAMING_COUNT]; /* NULL: as in kinds.def */
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
    const char *gguf;  /* general.architecture of GGUF files; NULL: they have none */
    /* GGUF files have q and k as they are, and not in the order of pairs side by side */
    bool gguf_halves;
    bool meta; /* Meta's and llama2.c's files may hold it */
    /* in the order in which GGUF files have them, ended by a row without keys */
    const Setting *settings;
    /* keys of config.json, parted by blanks, that change nothing here; or NULL */
    const char *harmless;
    const TensorName *tensors;   /* ended by a row without names; or NULL */
    const FamilyPreset *presets; /* ended by a row without a name; or NULL */
    SpecialIds begin, end;       /* where a config.json says nothing */
} Family;

/* The i-th; NULL behind the last. */
const Family *family_at(int i);

/* By what files call it; NULL where there is none. */
const Family *family_by_name(const char *name);
const Family *family_by_gguf(const char *architecture);

/* The names of all, "llama, smollm3", into a text of `size` bytes; returns it. */
const char *family_names(bool gguf, char *text, size_t size);

/* Its own name of a tensor, or that of kinds.def; NULL where files of that kind cannot hold the family. */
const char *family_tensor_name(const Family *family, ParamKind kind, ParamNaming naming,
                               const char *usual);

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
    /* Borrowed from the source, or its arena's. */
    int (*text)(void *of, const char *key, const char **out, cvn_err *err);
    /* At most n whole numbers of a list; *out is how many it has. */
    int (*list)(void *of, const char *key, int64_t n, int64_t *out, int64_t *length, cvn_err *err);
} SettingSource;

typedef struct SettingSink {
    bool gguf;
    const char *file; /* for messages */
    void *of;
    void (*integer)(void *of, const char *key, int64_t value);
    void (*real)(void *of, const char *key, double value);
    void (*boolean)(void *of, const char *key, bool value);
    void (*text)(void *of, const char *key, const char *value);
    void (*list)(void *of, const char *key, const int64_t *value, int64_t n);
} SettingSink;

/* The key of a row in such a file, in `text` of KEY_SIZE bytes, or NULL. */
enum { KEY_SIZE = 96 };
const char *setting_key(const Family *family, const Setting *row, bool gguf, char text[KEY_SIZE]);

/* A new model of the family as the source has it, but for what is not in rows. */
int settings_read(Model **model, const Family *family, const SettingSource *source, Arena *arena,
                  cvn_err *err);

/* All rows. Refuses what such a file cannot say. */
int settings_write(const Model *model, const SettingSink *sink, cvn_err *err);

/* ---- rope_keys.c ---- */

/* The scaling in all layers, whether they rotate or not, and however. */
void rope_set_all(Model *model, const Rope *rope);

/* Rope scaling of all layers: from the object of a config.json, whose other keys `whole` has; into one. */
int rope_read_json(Model *model, const char *file, const json_t *whole, cvn_err *err);
json_t *rope_json(const Rope *rope);
int rope_read_gguf(Model *model, const SettingSource *source, cvn_err *err);
int rope_write_gguf(const Model *model, const SettingSink *sink, cvn_err *err);

/* Whether a GGUF file's key, behind the architecture, is one of those. */
bool rope_knows_gguf(const char *key, size_t n);

#endif
