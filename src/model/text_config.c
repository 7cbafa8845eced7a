/*
 * The text model of a model that sees or hears. Its config.json has two or three of others inside, of which only that of the
 * text model is read, with what the whole says of its types, its end and how it is quantized:
 *
 *     {"model_type": "gemma3", "eos_token_id": [1, 106], "torch_dtype": "bfloat16",
 *      "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, …},           {"model_type": "gemma3_text",
 *      "vision_config": {…}, "mm_tokens_per_image": 256, …}                       ->    "hidden_size": 2560, …,
 *                                                                                       "eos_token_id": [1, 106],
 *                                                                                       "torch_dtype": "bfloat16"}
 *
 * A family lists the models that it may be inside of (Family.within): others might have their text model do something else with a
 * text, as PaliGemma looks at all of a prompt at once.
 */
#include "model/config_json.h"

#include "base/json_file.h"

#include <string.h>

/* Of the whole, where the text model does not say it, and where it does. */
static const char *const otherwise[] = {"torch_dtype", "dtype", "quantization_config",
                                        "compression_config"};
static const char *const instead[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

const char *config_within(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "model_type"));
    const json_t *text = json_object_get(json, "text_config");
    const char *own = json_string_value(json_object_get(text, "model_type"));
    const Family *family = own ? family_by_name(own) : NULL;
    return type && family && family->within && config_lists(family->within, type) ? type : NULL;
}

json_t *config_of_text(const json_t *json)
{
    if (!config_within(json))
        return json_incref((json_t *)(uintptr_t)json);
    json_t *text = json_copy(json_object_get(json, "text_config"));
    for (size_t i = 0; i < COUNT(otherwise); i++) {
        json_t *value = json_object_get(json, otherwise[i]);
        if (value && !json_object_get(text, otherwise[i]))
            text = json_with(text, otherwise[i], json_incref(value));
    }
    for (size_t i = 0; i < COUNT(instead); i++) {
        json_t *value = json_object_get(json, instead[i]);
        if (value && !json_is_null(value))
            text = json_with(text, instead[i], json_incref(value));
    }
    return text;
}
