/* Words that config_json.c and rope_keys.c share: how keys of a config.json are held against lists. */
#ifndef CVN_MODEL_CONFIG_JSON_H
#define CVN_MODEL_CONFIG_JSON_H

#include "model/family.h"

/* Whether the key is one of the words, which blanks part. */
bool config_lists(const char *words, const char *key);

/* Says that a setting is mathematics which is not done. */
int config_refuse(const char *file, const char *key, const json_t *value, cvn_err *err);

#endif
