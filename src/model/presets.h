/*
 * The published Llama shapes and a few small ones, as one table. A preset is a
 * config without weights: `init` makes random ones, `plan` needs none.
 */
#ifndef CVN_MODEL_PRESETS_H
#define CVN_MODEL_PRESETS_H

#include "model/config.h"

typedef struct Preset {
    const char *name;  /* "llama2-7b" */
    const char *about; /* a few words for a list */
} Preset;

/* The table, for listing and for suggesting the nearest name. */
size_t presets_count(void);
Preset preset_at(size_t i);

/* The config of a preset; CVN_EINVAL names the presets there are. */
int preset_config(const char *name, LlamaConfig *config, cvn_err *err);

#endif
