/*
 * Published shapes and a few small ones, which are rows in the files of their families. A preset is a
 * model without weights: `init` makes random ones, `plan` needs none.
 */
#ifndef CVN_MODEL_PRESETS_H
#define CVN_MODEL_PRESETS_H

#include "model/model.h"

typedef struct Preset {
    const char *name;  /* "llama2-7b" */
    const char *about; /* a few words for a list */
} Preset;

/* The table, for listing and for suggesting the nearest name. */
size_t presets_count(void);
Preset preset_at(size_t i);

/* The families that shapes may name; NULL behind the last. */
const char *preset_family_at(int i);

/* Whether a name is of a shape of one's own: "family=qwen3,dim=512,layers=8,heads=8,kv_heads=2,ffn=1376,vocab=4096", where what
 * is missing follows from the rest, the family being llama; a JSON file with the same keys; or a folder with config.json, or that file. */
bool preset_is_own(const char *name);

/* The model of a preset, or of a shape of one's own; CVN_EINVAL names the presets there are. */
int preset_model(const char *name, Model **model, Arena *arena, cvn_err *err);
/* Its shape alone. */
int preset_shape(const char *name, ModelShape *shape, cvn_err *err);

#endif
