/*
 * The tiny models of tests/data/llama: config, weights in any dtype, and the logits that
 * transformers gives (tests/oracles/families.py).
 */
#ifndef CVN_TESTS_LLAMA_FIXTURE_H
#define CVN_TESTS_LLAMA_FIXTURE_H

#include "graph/graph.h"
#include "io/convert.h"
#include "io/model.h"
#include "io/safetensors.h"
#include "model/params.h"
#include "whole_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const llama_variants[] = {"mha",
                                             "gqa",
                                             "tied",
                                             "llama3_rope",
                                             "linear_rope",
                                             "biases",
                                             "mqa",
                                             "dynamic_rope",
                                             "alpha_rope",
                                             "yarn_rope",
                                             "yarn_rope_all",
                                             "smollm3",
                                             "smollm3_listed",
                                             "qwen2",
                                             "qwen3",
                                             "mistral",
                                             "mistral_window",
                                             "ministral",
                                             "ministral3",
                                             "granite",
                                             "granite4",
                                             "granite4_nope",
                                             "olmo2",
                                             "olmo3",
                                             "gemma",
                                             "gemma2",
                                             "gemma3",
                                             "gemma3_listed",
                                             "gemma4",
                                             "phi3",
                                             "phi3_window",
                                             "phi4_mini",
                                             "phi3_long",
                                             "glm",
                                             "glm4",
                                             "cohere",
                                             "cohere_plus",
                                             "cohere2",
                                             "mixtral",
                                             "qwen3_moe",
                                             "qwen2_moe",
                                             "granite_moe",
                                             "glm4_moe",
                                             "glm4_moe_air",
                                             "gpt_oss_moe",
                                             "gpt_oss_moe_mxfp4",
                                             "llama4_moe",
                                             "llama4_moe_chunks"};
enum { LLAMA_VARIANTS = sizeof llama_variants / sizeof *llama_variants };

static inline bool llama_has_experts(const char *variant)
{
    return strstr(variant, "moe") || strstr(variant, "mixtral");
}

typedef struct LlamaFixture {
    Arena arena;
    Model *model; /* of the arena, or of `io` */
    ParamList params;
    void **weight; /* [params.n] in the dtype asked for */
    const int32_t *tokens;
    int64_t n_tokens;
    const float *logits; /* [n_tokens, vocab] of transformers */
    FileMap map;
    IoModel io;
} LlamaFixture;

static void fixture_check(int code, const cvn_err *err)
{
    if (code) {
        fprintf(stderr, "fixture: %s\n", err->message);
        abort();
    }
}

static void fixture_expect(LlamaFixture *f, const char *folder, const char *file)
{
    cvn_err err = {0};
    char path[512];
    IoTensors expected;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    io_tensors_init(&expected, &f->arena);
    fixture_check(file_map(&f->map, path, &err), &err);
    fixture_check(st_read(&expected, path, f->map.data, f->map.size, NULL, &err), &err);
    const IoTensor *tokens = io_tensors_find(&expected, "tokens");
    const IoTensor *logits = io_tensors_find(&expected, "logits");
    f->tokens = arena_copy(&f->arena, tokens->data, tokens->bytes);
    f->n_tokens = tokens->n;
    f->logits = arena_copy(&f->arena, logits->data, logits->bytes);
}

/* A model of tests/data/llama as it lies at `path`, in whatever form, and what is expected of the variant. */
static inline void fixture_open_at(LlamaFixture *f, const char *path, const char *variant,
                                   cvn_dtype dtype)
{
    cvn_err err = {0};
    char folder[512];
    snprintf(folder, sizeof folder, "%s/llama/%s", CVN_TEST_DATA, variant);
    *f = (LlamaFixture){0};
    fixture_check(arena_init(&f->arena, &err), &err);
    fixture_check(io_open_model(&f->io, path, &err), &err);
    f->model = f->io.desc;
    f->params = f->io.params;
    f->weight = arena_array(&f->arena, (size_t)f->params.n, sizeof *f->weight);
    for (int i = 0; i < f->params.n; i++) {
        const Param *p = &f->params.param[i];
        f->weight[i] = arena_alloc(&f->arena, cvn_dtype_bytes(dtype, p->n));
        for (int64_t j = 0; j < p->n; j++) {
            float x;
            io_decode(f->io.source[i], j, 1, &x);
            element_set(dtype, f->weight[i], j, (double)x);
        }
    }
    fixture_expect(f, folder, "expected.safetensors");
}

static inline void fixture_open(LlamaFixture *f, const char *variant, cvn_dtype dtype)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/llama/%s", CVN_TEST_DATA, variant);
    fixture_open_at(f, folder, variant, dtype);
}

/* An opened model with its weights, in place of a folder of tests/data/llama. */
static inline void fixture_of(LlamaFixture *f, const IoModel *model, const WholeWeights *weights,
                              const char *folder, const char *expected)
{
    cvn_err err = {0};
    *f = (LlamaFixture){.params = model->params};
    fixture_check(arena_init(&f->arena, &err), &err);
    f->model = model_copy(model->desc, &f->arena);
    f->weight = arena_array(&f->arena, (size_t)f->params.n, sizeof *f->weight);
    for (int i = 0; i < f->params.n; i++)
        f->weight[i] = weights->data[i];
    fixture_expect(f, folder, expected);
}

static inline void fixture_close(LlamaFixture *f)
{
    file_unmap(&f->map);
    if (f->io.path)
        io_close_model(&f->io);
    arena_free(&f->arena);
}

/* Reorders the rows of one head's q or k weight from halves (i, i + d/2) to pairs (2i, 2i + 1). */
static inline void fixture_interleave_param(LlamaFixture *f, ParamKind kind, int layer)
{
    const Param *p = params_find(&f->params, kind, layer);
    if (!p)
        return;
    float *w = f->weight[p - f->params.param];
    int64_t head_dim = p->dims[1], width = p->rank > 2 ? p->dims[2] : 1;
    float *old = malloc((size_t)(head_dim * width) * sizeof *old);
    for (int64_t h = 0; old && h < p->dims[0]; h++, w += head_dim * width) {
        memcpy(old, w, (size_t)(head_dim * width) * sizeof *old);
        for (int64_t i = 0; i < head_dim; i++) {
            int64_t from = i / 2 + i % 2 * (head_dim / 2);
            memcpy(w + i * width, old + from * width, (size_t)width * sizeof *old);
        }
    }
    free(old);
}

/* Turns an f32 fixture into the same model in Meta's layout. */
static inline void fixture_interleave(LlamaFixture *f)
{
    model_set_interleaved(f->model, true);
    for (int layer = 0; layer < model_layers(f->model); layer++) {
        fixture_interleave_param(f, PARAM_Q, layer);
        fixture_interleave_param(f, PARAM_Q_BIAS, layer);
        fixture_interleave_param(f, PARAM_K, layer);
        fixture_interleave_param(f, PARAM_K_BIAS, layer);
    }
}

#endif
