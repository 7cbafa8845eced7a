/*
 * The published Llama shapes and a few small ones, as one table. A preset is a
 * config without weights: `init` makes random ones, `plan` needs none.
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

/* Whether a name is of a shape of one's own: "dim=512,layers=8,heads=8,kv_heads=2,ffn=1376,vocab=4096", where what is
 * missing follows from the rest; a JSON file with the same keys; or a folder with config.json, or that file. */
bool preset_is_own(const char *name);

/* The config of a preset, or of a shape of one's own; CVN_EINVAL names the presets there are. */
int preset_config(const char *name, Model *config, cvn_err *err);

#endif
