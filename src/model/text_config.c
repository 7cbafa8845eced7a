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

/* Positions in an image have three numbers; those of a text are one, so that these settings change nothing. */
static const char *const of_images[] = {"mrope_section", "mrope_interleaved"};
static const char *const ropes[] = {"rope_scaling", "rope_parameters"};

#define COUNT(list) (sizeof(list) / sizeof *(list))

/* The family of the text model of such a config; NULL where there is none that is known. */
static const Family *family_inside(const json_t *json)
{
    const char *type = json_string_value(json_object_get(json, "model_type"));
    const json_t *text = json_object_get(json, "text_config");
    const char *own = json_string_value(json_object_get(text, "model_type"));
    const Family *family;
    for (int i = 0; type && own && (family = family_at(i)); i++)
        if (family->within && config_lists(family->within, type) &&
            strcmp(own, family->inside ? family->inside : family->name) == 0)
            return family;
    return NULL;
}

const char *config_within(const json_t *json)
{
    return family_inside(json) ? json_string_value(json_object_get(json, "model_type")) : NULL;
}

static json_t *without_images(json_t *text, const char *key)
{
    const json_t *rope = json_object_get(text, key);
    if (!json_is_object(rope))
        return text;
    json_t *plain = json_copy((json_t *)(uintptr_t)rope);
    for (size_t i = 0; plain && i < COUNT(of_images); i++)
        json_object_del(plain, of_images[i]);
    return json_with(text, key, plain);
}

json_t *config_of_text(const json_t *json)
{
    const Family *family = family_inside(json);
    if (!family)
        return json_incref((json_t *)(uintptr_t)json);
    json_t *text = json_copy(json_object_get(json, "text_config"));
    text = json_with(text, "model_type", json_string(family->name));
    for (size_t i = 0; i < COUNT(ropes); i++)
        text = without_images(text, ropes[i]);
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
