/* config.json and generation_config.json from arbitrary bytes: text up to a NUL is the first, what
 * follows is the second. A config that is accepted must list its parameters without overflow. */
#include "base/json_file.h"
#include "model/params.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t first = nul ? (size_t)(nul - data) : size;
    cvn_err err = {0};
    json_t *json = json_object_parse("config.json", data, first, &err);
    json_t *generation =
        json && nul ? json_object_parse("generation_config.json", nul + 1, size - first - 1, NULL)
                    : NULL;
    Model *model;
    Arena arena;
    if (arena_init(&arena, NULL))
        abort();
    if (json && model_parse(&model, "config.json", json, generation, &arena, &err) == CVN_OK) {
        if (model_size(model).params <= 0 || model_bytes(model, CVN_F64) <= 0)
            abort();
        ParamList list;
        if (model_layers(model) < 64)
            params_list(&list, model, &arena);
    }
    arena_free(&arena);
    json_decref(json);
    json_decref(generation);
    return 0;
}
