/*
 * Models by name: what is in the folders of $CARAVAN_MODELS, in the user's own folder of models, in the cache of Hugging
 * Face and in the folder we are in.
 *
 *     CARAVAN_MODELS=/srv/models:/data      tiny            /srv/models/tiny            a folder with a model
 *                                           meta/llama      /srv/models/meta/llama      one folder deeper
 *                                           small.gguf      /srv/models/small.gguf      a file, at most two folders deep
 *     ~/.local/share/caravan/models         org/name        …/org/name                  as `caravan pull` fetches them
 *     ~/.cache/huggingface/hub              org/name        …/models--org--name/snapshots/REVISION
 *
 * The cache is $HF_HUB_CACHE, or hub in $HF_HOME; of its revisions the one that refs/main names.
 */
#ifndef CVN_IO_MODEL_NAMES_H
#define CVN_IO_MODEL_NAMES_H

#include "base/err.h"
#include "base/file.h"

#include <stdbool.h>

typedef struct NamedModel {
    const char *name; /* by which it is called */
    const char *path;
} NamedModel;

/* Calls `take` with each model, in the order above, in a folder by name; ends when it returns false. Folders that cannot be
   read have none. */
void model_names_list(bool (*take)(void *context, const NamedModel *model), void *context);

/* The path of the first model of this name; false where there is none. */
bool model_names_find(const char *name, FilePath *path);

/* The folder that models are fetched into: the first of $CARAVAN_MODELS, else caravan/models in $XDG_DATA_HOME, which is
   ~/.local/share where it is not set. */
FilePath model_names_home(void);

/* Whether it may be a model's name at a hub, as meta-llama/Llama-3.2-1B: two words of letters, digits and "-_.". */
bool model_names_of_hub(const char *name);

#endif
