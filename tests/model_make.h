/*
 * Models for tests, described in the words of a config.json, with ' in place of ". What is left out is as transformers has it
 * for Llama. They live as long as the program.
 *
 *     Model *m = model_make("'hidden_size': 44, 'num_hidden_layers': %d", layers);
 *     m = model_with(m, "'tie_word_embeddings': true");
 */
#ifndef CVN_TESTS_MODEL_MAKE_H
#define CVN_TESTS_MODEL_MAKE_H

#include "base/json_file.h"
#include "model/model.h"
#include "model/presets.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Arena model_arena; /* of all models that are made here */

static inline Arena *models(void)
{
    if (!model_arena.chunk && arena_init(&model_arena, NULL))
        abort();
    return &model_arena;
}

__attribute__((destructor)) static void free_models(void)
{
    arena_free(&model_arena);
}

static inline json_t *model_words(const char *format, va_list args)
{
    char text[2048] = "{";
    cvn_err err = {0};
    int n = vsnprintf(text + 1, sizeof text - 3, format, args) + 1;
    text[n] = '}';
    text[n + 1] = '\0';
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_object_parse("config.json", text, strlen(text), &err);
    if (!json) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return json;
}

static inline Model *model_parsed(const json_t *json)
{
    cvn_err err = {0};
    Model *m = NULL;
    if (model_parse(&m, "config.json", json, NULL, models(), &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return m;
}

__attribute__((format(printf, 1, 2))) static inline Model *model_make(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *json = model_words(format, args);
    va_end(args);
    if (!json_object_get(json, "model_type"))
        json_object_set_new(json, "model_type", json_string("llama"));
    Model *m = model_parsed(json);
    json_decref(json);
    return m;
}

/* The same model but for these words. */
__attribute__((format(printf, 2, 3))) static inline Model *model_with(const Model *model,
                                                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    json_t *words = model_words(format, args), *json = model_json(model, NULL);
    va_end(args);
    json_object_update(json, words);
    Model *m = model_parsed(json);
    model_set_interleaved(m, model_is_interleaved(model));
    json_decref(json);
    json_decref(words);
    return m;
}

static inline Model *model_preset(const char *name)
{
    cvn_err err = {0};
    Model *m = NULL;
    if (preset_model(name, &m, models(), &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return m;
}

/* What the model's config.json says: a number, of a boolean 0 or 1; "rope_scaling.factor" is the factor in that object. */
static inline double model_says(const Model *model, const char *key)
{
    json_t *json = model_json(model, NULL);
    size_t n = strcspn(key, ".");
    const json_t *value = json_object_getn(json, key, n);
    if (key[n])
        value = json_object_get(value, key + n + 1);
    double number = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    json_decref(json);
    return number;
}

/* "llama3"; "" of plain positions. */
static inline const char *model_rope_type(const Model *model)
{
    json_t *json = model_json(model, NULL);
    const char *type =
        json_string_value(json_object_get(json_object_get(json, "rope_scaling"), "rope_type"));
    type = arena_string(models(), type ? type : "");
    json_decref(json);
    return type;
}

#endif
