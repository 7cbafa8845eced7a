/* caravan models: which models are here, by the names that every command takes. */
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "io/model_names.h"

#include <stdio.h>

enum { JSON };

static const Option *const options[] = {
    [JSON] = SHARED(JSON),
    NULL,
};

static bool print_model(void *context, const NamedModel *model)
{
    (void)context;
    printf("%-40s  %s\n", model->name, model->path);
    return true;
}

static bool add_model(void *context, const NamedModel *model)
{
    json_t **list = context;
    json_t *one = json_with(json_object(), "name", json_string(model->name));
    *list = json_append(*list, json_with(one, "path", json_string(model->path)));
    return true;
}

static int run(const Args *args, cvn_err *err)
{
    json_t *list = json_array();
    model_names_list(add_model, &list);
    if (args->value[JSON].flag)
        return print_json(list, err);
    if (list && json_array_size(list) == 0)
        fprintf(stderr, "no models in $CARAVAN_MODELS, ~/.local/share/caravan/models, the Hugging "
                        "Face cache or the current folder; "
                        "to get one: caravan pull HuggingFaceTB/SmolLM2-135M-Instruct\n");
    json_decref(list);
    model_names_list(print_model, NULL);
    return EXIT_OK;
}

const Command command_models = {
    "models",
    .about = "list local models",
    .usage = "[--json]",
    .examples = "models\tname and path of each\n"
                "models --json\tthe same as JSON\n",
    .notes = "Models are searched in the folders of CARAVAN_MODELS (separated by colons) and their "
             "subfolders, in ~/.local/share/caravan/models, where `caravan pull` puts them, in the "
             "Hugging Face cache (HF_HUB_CACHE, HF_HOME) and in the current folder. --model takes "
             "a name or a path; an existing path wins.",
    .options = options,
    .run = run,
};
