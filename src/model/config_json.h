/* Words that config_json.c and rope_keys.c share: how keys of a config.json are held against lists. */
#ifndef CVN_MODEL_CONFIG_JSON_H
#define CVN_MODEL_CONFIG_JSON_H

#include "model/family.h"

/* An object in the words of presets, with ' in place of "; NULL with *err set. */
json_t *config_words(const char *words, const char *file, Arena *arena, cvn_err *err);

/* Says that a setting is mathematics which is not done. */
int config_refuse(const char *file, const char *key, const json_t *value, cvn_err *err);

#endif
