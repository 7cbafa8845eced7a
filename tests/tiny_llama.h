/*
 * Tiny Llamas without weights, with sizes that meshes do not divide: their configs, a step of training as a
 * graph, and plausible contents for what any of their graphs takes. What tests of sharding run.
 */
#ifndef TESTS_TINY_LLAMA_H
#define TESTS_TINY_LLAMA_H

#include "grad/grad.h"
#include "graph/signature.h"
#include "graph/simplify.h"
#include "model/forward.h"
#include "model_make.h"
#include "splitmix.h"
#include "unit.h"

typedef struct TinyLlama {
    const char *name;
    int64_t dim, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
} TinyLlama;

enum { TINY_MHA, TINY_GQA, TINY_TIED, TINY_LLAMAS };

static const TinyLlama tiny_llamas[TINY_LLAMAS] = {
    [TINY_MHA] = {"mha", 24, 6, 6, 4, 40, 50, false},
    [TINY_GQA] = {"gqa", 32, 8, 2, 4, 48, 64, false},
    [TINY_TIED] = {"3 kv heads, tied", 20, 12, 3, 4, 30, 37, true},
};

static inline Model *tiny_llama_config(const TinyLlama *t)
{
    Model *c =
        model_make("'hidden_size': %d, 'num_hidden_layers': 2, 'num_attention_heads': %d, "
                   "'num_key_value_heads': %d, 'head_dim': %d, 'intermediate_size': %d, "
                   "'vocab_size': %d, 'max_position_embeddings': 16, 'tie_word_embeddings': %s",
                   (int)t->dim, (int)t->heads, (int)t->kv_heads, (int)t->head_dim, (int)t->ffn,
                   (int)t->vocab, t->tied ? "true" : "false");
    return c;
}

/* Parameters: weights, tokens, targets. Outputs: the loss, and every weight moved against its
   gradient, in place. */
static inline cvn_graph *llama_train_graph(const Model *config, int64_t batch, int64_t seq,
                                           cvn_dtype compute)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("train", &err);
    ParamList params;
    assert_non_null(g);
    params_list(&params, config, &g->arena);
    cvn_value **weight = arena_array(&g->arena, (size_t)params.n, sizeof *weight);
    cvn_value **gradient = arena_array(&g->arena, (size_t)params.n, sizeof *gradient);
    for (int i = 0; i < params.n; i++)
        weight[i] = graph_role(
            cvn_parameter(g, params.param[i].name,
                          cvn_type_make(CVN_F32, params.param[i].rank, params.param[i].dims)),
            ROLE_TRAINED, i);
    cvn_type grid = CVN_TYPE(CVN_I32, batch, seq);
    ModelBatch rows = {.tokens = graph_role(cvn_parameter(g, "tokens", grid), ROLE_TOKENS, 0),
                       .targets = graph_role(cvn_parameter(g, "targets", grid), ROLE_TARGETS, 0)};
    ModelLoss loss;
    must(model_loss(g, config, compute, weight, &rows, &loss, &err), &err);
    must(graph_gradient(g, loss.mean, params.n, weight, gradient, &err), &err);
    cvn_output(g, loss.mean);
    for (int i = 0; i < params.n; i++) {
        cvn_value *step = cvn_multiply(g, gradient[i], cvn_splat(g, weight[i]->type, 0.1));
        cvn_output_into(g, cvn_subtract(g, weight[i], step), weight[i]);
    }
    must(graph_simplify(g, NULL, &err), &err);
    must(graph_verify(g, &err), &err);
    return g;
}

/* Small weights, tokens of the vocabulary, rows of their own start and length. */
static inline double tiny_llama_content(const char *name, int64_t i, double random,
                                        const Model *config)
{
    if (strcmp(name, "tokens") == 0 || strcmp(name, "targets") == 0)
        return (double)(i * 7 % model_vocab(config));
    if (strcmp(name, "start") == 0)
        return (double)(i * 3 % 8);
    if (strcmp(name, "length") == 0)
        return (double)(1 + i % 4);
    if (strcmp(name, "key") == 0)
        return (double)(i * 1000003);
    if (strcmp(name, "temperature") == 0)
        return i % 3 ? 0.8 : 0;
    return strstr(name, "norm") ? 1 + 0.1 * random : 0.25 * random;
}

/* [n_parameters], each to be freed. */
static inline void **tiny_llama_inputs(const cvn_graph *g, const Model *config)
{
    void **in = calloc((size_t)g->n_parameters, sizeof *in);
    uint64_t state = 3;
    assert_non_null(in);
    for (int p = 0; p < g->n_parameters; p++) {
        const cvn_type *type = &g->parameter[p]->type;
        in[p] = calloc(cvn_type_bytes(type) + 1, 1);
        assert_non_null(in[p]);
        for (int64_t i = 0; i < cvn_type_elements(type); i++) {
            double random = (double)(splitmix(&state) % 2001) / 1000 - 1;
            const char *name = g->parameter[p]->def->attr.name;
            element_set(type->dtype, in[p], i, tiny_llama_content(name, i, random, config));
        }
    }
    return in;
}

#endif
