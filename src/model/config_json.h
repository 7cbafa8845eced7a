/* What config_json.c, text_config.c and rope_keys.c share of reading a config.json. */
#ifndef CVN_MODEL_CONFIG_JSON_H
#define CVN_MODEL_CONFIG_JSON_H

#include "model/family.h"

/* An object in the words of presets, with ' in place of "; NULL with *err set. */
json_t *config_words(const char *words, const char *file, Arena *arena, cvn_err *err);

/* The config.json of the text model alone, a new reference: of one that stands alone the object itself; NULL: there is no memory. */
json_t *config_of_text(const json_t *json);

/* The model_type of the whole where there is more than a text model, in the object; else NULL. */
const char *config_within(const json_t *json);

/* Says that a setting is mathematics which is not done. */
int config_refuse(const char *file, const char *key, const json_t *value, cvn_err *err);

#endif
