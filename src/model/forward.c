/* A model as a graph: layers of attention and feed-forward part over a batch, what a step gives, and the loss of training. */
#include "model/forward_impl.h"

#include "base/float16.h"
#include "base/num.h"
#include "graph/graph.h"
#include "graph/signature.h"
#include "model/lora.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

cvn_value *forward_kept(Builder *b, cvn_value *x)
{
    if (b->step || b->exact || b->compute == CVN_F32)
        return x;
    return cvn_convert(G, cvn_convert(G, x, b->compute), CVN_F32);
}

static cvn_value *scaled(Builder *b, cvn_value *x, double by)
{
    return by == 1 ? x : cvn_multiply(G, x, cvn_splat(G, *cvn_value_type(x), by));
}

/* cap * tanh(x / cap) */
static cvn_value *capped(Builder *b, cvn_value *x, double cap)
{
    return cap == 0 ? x : scaled(b, cvn_tanh(G, scaled(b, x, 1 / cap)), cap);
}

/* Of a layer; the norm before the head (-1) is as those of the last one. */
static const Norms *norms_of(const Builder *b, int64_t layer)
{
    return &b->model->block[layer < 0 ? b->model->layers - 1 : layer].norms;
}

/* What a normed x is multiplied by, [n] in f32 or as it is stored; ones where the model has no such weight. */
static cvn_value *gain_of(Builder *b, ParamKind kind, int64_t layer, int64_t n)
{
    cvn_value *w = kind == PARAM_KIND_COUNT ? NULL : forward_weight(b, kind, layer);
    const cvn_type flat = CVN_TYPE(CVN_F32, n);
    if (!w)
        return cvn_splat(G, flat, 1);
    if (norms_of(b, layer)->gain == GAIN_ONE_PLUS_WEIGHT) {
        w = cvn_convert(G, w, CVN_F32);
        w = cvn_add(G, w, cvn_splat(G, *cvn_value_type(w), 1));
    }
    return cvn_value_type(w)->rank == 1 ? w : cvn_reshape(G, w, 1, &n);
}

/* x less its mean over the last axis. */
static cvn_value *centred(Builder *b, cvn_value *x)
{
    const cvn_type type = *cvn_value_type(x);
    int last = type.rank - 1, others[CVN_MAX_RANK] = {0};
    for (int i = 0; i < last; i++)
        others[i] = i;
    cvn_value *sum = cvn_reduce_dims(G, CVN_SUM, x, 1, &last);
    sum = cvn_multiply(G, sum, cvn_splat(G, *cvn_value_type(sum), 1.0 / (double)type.dim[last]));
    return cvn_subtract(G, x, cvn_broadcast_in_dim(G, sum, type, others));
}

/* x f32 [..., n], normed over its last axis, as `dtype`. LayerNorm is the root-mean-square norm of what is centred. */
static cvn_value *norm_as(Builder *b, cvn_value *x, ParamKind kind, int64_t layer, cvn_dtype dtype)
{
    const Norms *norms = norms_of(b, layer);
    const cvn_type *type = cvn_value_type(x);
    cvn_value *gain = gain_of(b, kind, layer, type->dim[type->rank - 1]);
    if (norms->kind == NORM_LAYER)
        x = centred(b, x);
    return cvn_rms_norm(G, x, gain, norms->eps, dtype);
}

/* What enters products: x, normed where there is a norm before them. */
static cvn_value *entering(Builder *b, cvn_value *x, ParamKind kind, int64_t layer)
{
    return forward_weight(b, kind, layer) ? norm_as(b, x, kind, layer, b->compute)
                                          : forward_compute(b, x);
}

/* What a part gives, normed where there is a norm behind it, times what all parts are. */
static cvn_value *leaving(Builder *b, cvn_value *x, ParamKind kind, int64_t layer)
{
    if (forward_weight(b, kind, layer))
        x = norm_as(b, x, kind, layer, CVN_F32);
    return scaled(b, x, b->model->residual_scale);
}

/* x [batch, seq, heads, head_dim] normed by head or as a whole. */
static cvn_value *head_norm(Builder *b, cvn_value *x, ParamKind shared, ParamKind own,
                            int64_t layer)
{
    const QkNorm how = b->model->block[layer].attention.qk_norm;
    const cvn_type type = *cvn_value_type(x);
    if (how == QK_NORM_NONE || how == QK_NORM_TURNED)
        return x;
    if (how == QK_NORM_HEAD)
        return norm_as(b, x, shared, layer, CVN_F32);
    if (how == QK_NORM_WHOLE) {
        x = cvn_reshape(G, x, 3, (int64_t[]){type.dim[0], type.dim[1], type.dim[2] * type.dim[3]});
        return cvn_reshape(G, norm_as(b, x, own, layer, CVN_F32), type.rank, type.dim);
    }
    cvn_value *gain = cvn_convert(G, forward_weight(b, own, layer), CVN_F32);
    x = norm_as(b, x, PARAM_KIND_COUNT, layer, CVN_F32);
    return cvn_multiply(G, x, cvn_broadcast_in_dim(G, gain, type, (int[]){2, 3}));
}

/* Keys or values [batch, kv_heads, context, head_dim] with their scales where they are of 8 bits. */
typedef struct Past {
    cvn_value *x, *scale; /* scale [batch, kv_heads, context, 1], or NULL */
} Past;

/* The pages of slots in a layer's cache. */
static cvn_value *table_of(const Builder *b, int64_t layer)
{
    return b->rows.table ? b->rows.table[b->caches->layer[layer].table] : NULL;
}

/* which: 0 for k, 1 for v, 2 and 3 for their scales */
static cvn_value *remember(Builder *b, int64_t layer, int which, cvn_value *x)
{
    cvn_value **cache = &b->cache[b->tensors * b->caches->layer[layer].cache + which];
    *cache = cvn_cache_update(G, *cache, x, b->rows.start, b->rows.slot, table_of(b, layer));
    return *cache;
}

/* All keys or values of the layer with the new ones x [batch, seq, kv_heads, head_dim] among them;
   which: 0 for k, 1 for v. */
static Past with_past(Builder *b, cvn_value *x, int64_t layer, int which)
{
    if (!b->cache)
        return (Past){cvn_transpose(G, forward_compute(b, x), (int[]){0, 2, 1, 3}), NULL};
    if (b->tensors == MODEL_CACHES)
        return (Past){remember(b, layer, which, forward_compute(b, x)), NULL};
    cvn_value *eight[2];
    cvn_quantize_rows(G, x, eight);
    Past past = {.x = remember(b, layer, which, eight[0])};
    past.scale = remember(b, layer, which + 2, eight[1]);
    return past;
}

/* Queries or keys turned by their positions, where the layer has any: the first dimensions of each head, or all. */
static cvn_value *rotated(Builder *b, cvn_value *x, int64_t layer)
{
    const Attention *a = &b->model->block[layer].attention;
    const int64_t turned = 2 * rope_pairs(a);
    if (!b->rope.inv_freq[layer])
        return x;
    if (turned == a->head_dim)
        return cvn_rope(G, x, b->rows.positions, b->rope.inv_freq[layer], a->rope.interleaved);
    cvn_value *part[2];
    part[0] = cvn_slice_axis(G, x, 3, 0, turned);
    part[1] = cvn_slice_axis(G, x, 3, turned, a->head_dim);
    part[0] = cvn_rope(G, part[0], b->rows.positions, b->rope.inv_freq[layer], a->rope.interleaved);
    part[0] = scaled(b, part[0], attention_sharpening(a));
    return cvn_concatenate(G, 2, part, 3);
}

/* By what part queries grow, [batch, seq], which keeps attention to long texts from spreading: temper ln(1 + floor(p / original
   context)) of their positions p. It is of all layers. */
static void add_temper(Builder *b)
{
    const Rope *r = &b->model->block[0].attention.rope;
    if (r->temper == 0)
        return;
    cvn_value *by = cvn_convert(G, b->rows.positions, CVN_F32);
    by = cvn_divide(G, by, cvn_splat(G, *cvn_value_type(by), (double)r->original_context));
    by = scaled(b, cvn_log_plus_one(G, cvn_floor(G, by)), r->temper);
    b->rope.temper = cvn_add(G, by, cvn_splat(G, *cvn_value_type(by), 1));
}

/* The same of layers without rotary positions: 1 + growth ln(1 + floor((p + 1) / span)), which they share. */
static cvn_value *growth(Builder *b, const Attention *a)
{
    if (b->rope.growth)
        return b->rope.growth;
    cvn_value *by = cvn_convert(G, b->rows.positions, CVN_F32);
    const cvn_type type = *cvn_value_type(by);
    by = cvn_add(G, by, cvn_splat(G, type, 1));
    by = cvn_divide(G, by, cvn_splat(G, type, (double)a->growth_span));
    by = scaled(b, cvn_log_plus_one(G, cvn_floor(G, by)), a->growth);
    b->rope.growth = cvn_add(G, by, cvn_splat(G, type, 1));
    return b->rope.growth;
}

static cvn_value *tempered(Builder *b, cvn_value *q, int64_t layer)
{
    const Attention *a = &b->model->block[layer].attention;
    cvn_value *by = a->grows && a->rope.off ? growth(b, a) : b->rope.temper;
    if (!by)
        return q;
    by = cvn_broadcast_in_dim(G, by, *cvn_value_type(q), (int[]){0, 1});
    return cvn_multiply(G, q, by);
}

/* Queries or keys behind their rotation, where that is where they are normed. */
static cvn_value *turned_norm(Builder *b, cvn_value *x, int64_t layer)
{
    const Attention *a = &b->model->block[layer].attention;
    return a->qk_norm == QK_NORM_TURNED && !a->rope.off
               ? norm_as(b, x, PARAM_KIND_COUNT, layer, CVN_F32)
               : x;
}

/* Values [batch, seq, kv_heads, head_dim] of what enters attention, k being its keys as their weight gives them. */
static cvn_value *values_of(Builder *b, cvn_value *h, cvn_value *k, int64_t layer)
{
    const Attention *a = &b->model->block[layer].attention;
    cvn_value *v =
        a->v_is_k ? k : forward_linear(b, "bse,khe->bskh", h, PARAM_V, PARAM_V_BIAS, layer);
    return a->v_norm ? norm_as(b, v, PARAM_KIND_COUNT, layer, CVN_F32) : v;
}

/* h [batch, seq, dim] -> f32 [batch, seq, dim], updating the layer's cache. */
static cvn_value *attention(Builder *b, cvn_value *h, int64_t layer)
{
    cvn_value *q /* [batch, seq, heads, head_dim] */ =
        forward_linear(b, "bse,nhe->bsnh", h, PARAM_Q, PARAM_Q_BIAS, layer);
    cvn_value *k /* [batch, seq, kv_heads, head_dim] */ =
        forward_linear(b, "bse,khe->bskh", h, PARAM_K, PARAM_K_BIAS, layer);
    cvn_value *v = values_of(b, h, k, layer);
    q = head_norm(b, forward_kept(b, q), PARAM_Q_NORM, PARAM_Q_NORMS, layer);
    k = head_norm(b, forward_kept(b, k), PARAM_K_NORM, PARAM_K_NORMS, layer);
    q = turned_norm(b, rotated(b, q, layer), layer);
    q = forward_compute(b, tempered(b, q, layer));
    k = turned_norm(b, rotated(b, k, layer), layer);
    Past keys = with_past(b, k, layer, 0), values = with_past(b, v, layer, 1);
    const Attention *how = &b->model->block[layer].attention;
    cvn_value *table = table_of(b, layer);
    const cvn_attention_spec spec = {.scale = attention_scale(how),
                                     .cap = how->cap,
                                     .window = how->local ? how->window : 0,
                                     .chunk = how->chunk,
                                     .slot = b->rows.slot,
                                     .table = table,
                                     .first = b->rows.first,
                                     .sinks = forward_weight(b, PARAM_SINKS, layer),
                                     .k_scale = keys.scale,
                                     .v_scale = values.scale,
                                     .dropout = b->drop.key ? b->drop.attention : 0,
                                     .key = b->drop.key,
                                     .site = dropout_site(layer, DROPOUT_ATTENTION)};
    cvn_value *a /* [batch, seq, heads, head_dim] */ =
        cvn_attention(G, q, keys.x, values.x, b->rows.start, b->rows.length, &spec);
    return forward_linear(b, "bsnh,enh->bse", a, PARAM_O, PARAM_O_BIAS, layer);
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016, arXiv:1606.08415. */
static cvn_value *gelu_tanh(Builder *b, cvn_value *x)
{
    cvn_value *cube = cvn_multiply(G, cvn_multiply(G, x, x), x);
    cvn_value *inner = cvn_add(G, x, scaled(b, cube, 0.044715));
    cvn_value *turned = cvn_tanh(G, scaled(b, inner, 0.7978845608028654));
    turned = cvn_add(G, turned, cvn_splat(G, *cvn_value_type(x), 1));
    return cvn_multiply(G, scaled(b, x, 0.5), turned);
}

static cvn_value *activated(Builder *b, cvn_value *x, const FeedForward *of)
{
    switch (of->activation) {
    case ACTIVATION_GELU_TANH:
        return gelu_tanh(b, x);
    case ACTIVATION_RELU:
        return cvn_maximum(G, x, cvn_splat(G, *cvn_value_type(x), 0));
    default: /* model_check has seen to it */
        return cvn_multiply(G, x, cvn_logistic(G, scaled(b, x, of->alpha)));
    }
}

cvn_value *forward_gated(Builder *b, cvn_value *gate, cvn_value *up, int64_t layer)
{
    const FeedForward *of = &b->model->block[layer].mlp;
    const cvn_type type = *cvn_value_type(gate);
    if (of->limit > 0) {
        gate = cvn_minimum(G, gate, cvn_splat(G, type, of->limit));
        up = cvn_minimum(G, up, cvn_splat(G, type, of->limit));
        up = cvn_maximum(G, up, cvn_splat(G, type, -of->limit));
    }
    gate = activated(b, gate, of);
    if (of->shift != 0)
        up = cvn_add(G, up, cvn_splat(G, type, of->shift));
    return cvn_multiply(G, gate, up);
}

/* (activation(h W_gate) * (h W_up)) W_down, with SiLU SwiGLU: Shazeer 2020, arXiv:2002.05202. Of a part whose weights are these
   kinds, or whose down is; the biases are a layer's only part's. */
static cvn_value *gated_part(Builder *b, cvn_value *h, const ParamKind part[3], int64_t layer)
{
    const bool only = part[0] == PARAM_GATE;
    const ParamKind none = PARAM_KIND_COUNT;
    cvn_value *gate /* [batch, seq, ffn] */ = forward_kept(
        b, forward_linear(b, "bse,fe->bsf", h, part[0], only ? PARAM_GATE_BIAS : none, layer));
    cvn_value *up = forward_kept(
        b, forward_linear(b, "bse,fe->bsf", h, part[1], only ? PARAM_UP_BIAS : none, layer));
    cvn_value *inner = forward_compute(b, forward_gated(b, gate, up, layer));
    return forward_linear(b, "bsf,ef->bse", inner, part[2], only ? PARAM_DOWN_BIAS : none, layer);
}

static cvn_value *feed_forward(Builder *b, cvn_value *h, int64_t layer)
{
    static const ParamKind only[] = {PARAM_GATE, PARAM_UP, PARAM_DOWN};
    static const ParamKind shared[] = {PARAM_SHARED_GATE, PARAM_SHARED_UP, PARAM_SHARED_DOWN};
    const Experts *e = &b->model->block[layer].experts;
    if (!e->on)
        return gated_part(b, h, only, layer);
    cvn_value *y = forward_experts(b, h, layer);
    if (!e->shared_width)
        return y;
    cvn_value *all = gated_part(b, h, shared, layer);
    if (e->shared_gate) {
        cvn_value *gate =
            forward_linear(b, "bse,fe->bsf", h, PARAM_SHARED_ROUTER, PARAM_KIND_COUNT, layer);
        gate = cvn_logistic(G, gate); /* [batch, seq, 1] */
        gate = cvn_reshape(G, gate, 2, cvn_value_type(gate)->dim);
        all = cvn_multiply(G, all,
                           cvn_broadcast_in_dim(G, gate, *cvn_value_type(all), (int[]){0, 1}));
    }
    return cvn_add(G, y, all);
}

/* x f32 [batch, seq, dim] -> f32 [batch, 1, dim]: the last real token of each row. */
static cvn_value *last_token(Builder *b, cvn_value *x)
{
    const ModelStep *s = b->step;
    if (s->seq == 1)
        return x;
    cvn_value *one = cvn_splat(G, *cvn_value_type(b->rows.length), 1);
    cvn_value *at = cvn_subtract(G, b->rows.length, one);
    at = cvn_maximum(G, at, cvn_splat(G, *cvn_value_type(at), 0));
    at = cvn_reshape(G, at, 2, (int64_t[]){s->batch, 1});
    cvn_gather_dims dims = {.n_window = 1,
                            .window = {1},
                            .n_collapsed = 1,
                            .collapsed = {1},
                            .n_operand_batch = 1,
                            .operand_batch = {0},
                            .n_index_batch = 1,
                            .index_batch = {0},
                            .n_index_map = 1,
                            .index_map = {1},
                            .index_vector_dim = 1};
    int64_t sizes[] = {1, 1, b->model->width};
    cvn_value *rows = cvn_gather(G, x, at, &dims, sizes);
    return cvn_reshape(G, rows, 3, (int64_t[]){s->batch, 1, b->model->width});
}

/* x f32 [batch, s, dim] -> logits [batch, s, vocab]: f32, but in training (unless exact) as what enters products, for there are as
   many of them as a large model has weights; the loss is computed of them in f32. */
static cvn_value *logits_of(Builder *b, cvn_value *x)
{
    const Model *m = b->model;
    cvn_value *h = norm_as(b, x, PARAM_FINAL_NORM, -1, b->compute);
    ParamKind head = params_find(b->params, PARAM_LM_HEAD, -1) ? PARAM_LM_HEAD : PARAM_EMBED;
    h = scaled(b, h, m->logits_scale / m->logits_divisor);
    cvn_value *logits = cvn_einsum_as(G, "bse,ve->bsv", h, forward_matrix(b, head, -1, b->compute),
                                      b->step || b->exact ? CVN_F32 : b->compute);
    return capped(b, logits, m->logits_cap);
}

/* Tokens as rows of the embedding, f32 [batch, seq, dim]. */
static cvn_value *embed(Builder *b)
{
    const Param *table = params_find(b->params, PARAM_EMBED, -1);
    cvn_value *x = cvn_take_rows(G, forward_weight(b, PARAM_EMBED, -1), b->rows.tokens);
    if (table->form == PARAM_BLOCKS) {
        const cvn_type *grid = cvn_value_type(b->rows.tokens);
        const cvn_type rows = CVN_TYPE(CVN_F32, grid->dim[0], grid->dim[1], b->model->width);
        x = cvn_dequantize_blocks(G, x, block_info[table->blocks].name, rows);
    }
    x = cvn_value_type(x)->dtype == CVN_F32 ? x : cvn_convert(G, x, CVN_F32);
    double scale = b->model->embedding_scale;
    return scaled(b, x, b->compute == CVN_BF16 ? bf16_to_f32(bf16_from_f32((float)scale)) : scale);
}

static cvn_value *hidden_dropout(Builder *b, cvn_value *x, int64_t layer, DropoutPlace place)
{
    return dropout(G, x, &b->drop, b->drop.hidden, dropout_site(layer, (int)place));
}

/* x f32 [batch, seq, dim], to which attention and the feed-forward part add, one after the other or both of one norm. */
static cvn_value *layer(Builder *b, cvn_value *x, int64_t i)
{
    const Block *block = &b->model->block[i];
    cvn_value *h = entering(b, x, PARAM_ATTN_NORM, i);
    cvn_value *part = leaving(b, attention(b, h, i), PARAM_ATTN_POST_NORM, i);
    x = cvn_add(G, x, hidden_dropout(b, part, i, DROPOUT_ATTENTION_RESULT));
    if (!block->parallel)
        h = entering(b, x, PARAM_MLP_NORM, i);
    part = leaving(b, feed_forward(b, h, i), PARAM_MLP_POST_NORM, i);
    x = cvn_add(G, x, hidden_dropout(b, part, i, DROPOUT_MLP_RESULT));
    if (!block->scaled)
        return x;
    cvn_value *scale = cvn_convert(G, forward_weight(b, PARAM_LAYER_SCALE, i), CVN_F32);
    scale = cvn_broadcast_to(G, cvn_reshape(G, scale, 0, NULL), cvn_value_type(x));
    return cvn_multiply(G, x, scale);
}

static cvn_value *weight_parameter(Builder *b, const Param *p, int index)
{
    cvn_type type = param_type(p, b->step->compute);
    return graph_role(cvn_parameter(G, p->name, type), ROLE_WEIGHT, index);
}

/* Those that rows choose from. */
static void add_adapters(Builder *b)
{
    const LoraOptions options = {.rank = b->step->ranks, .targets = b->step->adapted};
    Arena *arena = &b->g->arena;
    size_t n = (size_t)b->params->n;
    cvn_value **half[2] = {arena_array(arena, n, sizeof **half),
                           arena_array(arena, n, sizeof **half)};
    ModelAdapters *adapters = arena_alloc(arena, sizeof *adapters);
    LoraParams lora;
    lora_params(&lora, b->params, &options, arena);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2 && lora.a[i] >= 0; k++)
            half[k][i] =
                weight_parameter(b, &lora.list.param[lora.a[i] + k], (int)n + lora.a[i] + k);
    const cvn_type type = CVN_TYPE(CVN_F32, b->step->batch, options.rank);
    *adapters = (ModelAdapters){.a = half[0], .b = half[1]};
    b->rows.select = graph_role(cvn_parameter(G, "select", type), ROLE_SELECT, 0);
    b->adapters = adapters;
}

static void add_cache(Builder *b, int i)
{
    static const char *const kinds[MODEL_CACHES_INT8] = {"k", "v", "k_scale", "v_scale"};
    const ModelStep *s = b->step;
    const int kind = i % b->tensors;
    int pool = 0;
    while (i / b->tensors >= b->caches->pool[pool].first + b->caches->pool[pool].n)
        pool++;
    const CachePool *p = &b->caches->pool[pool];
    const cvn_type type = CVN_TYPE(kind >= 2    ? CVN_BF16
                                   : s->kv_int8 ? CVN_I8
                                                : s->compute,
                                   s->pages ? s->pages[pool] : s->batch, p->heads,
                                   s->pages ? s->page : s->context, kind < 2 ? p->width : 1);
    char name[64];
    snprintf(name, sizeof name, "cache.%d.%s", i / b->tensors, kinds[kind]);
    b->cache[i] = graph_role(cvn_parameter(G, name, type), ROLE_CACHE, i);
}

static void add_parameters(Builder *b)
{
    const ModelStep *s = b->step;
    for (int i = 0; i < b->params->n; i++)
        b->weight[i] = weight_parameter(b, &b->params->param[i], i);
    if (s->ranks)
        add_adapters(b);
    for (int i = 0; i < b->tensors * b->caches->n; i++)
        add_cache(b, i);
    cvn_type rows = CVN_TYPE(CVN_I32, s->batch), grid = CVN_TYPE(CVN_I32, s->batch, s->seq);
    b->rows.tokens = graph_role(cvn_parameter(G, "tokens", grid), ROLE_TOKENS, 0);
    if (s->pages) {
        const cvn_type table = CVN_TYPE(CVN_I32, s->slots, num_pieces(s->context, s->page));
        const int tables = b->caches->tables;
        b->rows.slot = graph_role(cvn_parameter(G, "slot", rows), ROLE_CACHE_SLOT, 0);
        b->rows.table = arena_array(&b->g->arena, (size_t)tables, sizeof(cvn_value *));
        for (int i = 0; i < tables; i++) {
            char name[64];
            snprintf(name, sizeof name, "table.%d", i);
            b->rows.table[i] = graph_role(cvn_parameter(G, name, table), ROLE_TABLE, i);
        }
    }
    b->rows.start = graph_role(cvn_parameter(G, "start", rows), ROLE_START, 0);
    b->rows.length = graph_role(cvn_parameter(G, "length", rows), ROLE_LENGTH, 0);
    if (s->wanted)
        b->rows.wanted =
            graph_role(cvn_parameter(G, "wanted", CVN_TYPE(CVN_I32, s->wanted)), ROLE_WANTED, 0);
    cvn_value *start = cvn_broadcast_in_dim(G, b->rows.start, grid, (int[]){0});
    b->rows.positions = cvn_add(G, cvn_iota(G, grid, 1), start);
}

/* The frequencies of each layer as a constant, which layers alike share, in a context of so many positions. */
static void add_frequencies(Builder *b, int64_t context)
{
    const Model *m = b->model;
    Arena *arena = &b->g->arena;
    b->rope.inv_freq = arena_array(arena, (size_t)m->layers, sizeof(cvn_value *));
    for (int64_t layer = 0, last = -1; layer < m->layers; layer++) {
        const Attention *a = &m->block[layer].attention;
        int64_t n = rope_pairs(a);
        if (a->rope.off)
            continue;
        double *exact = arena_array(arena, (size_t)n, sizeof *exact);
        float *rounded = arena_array(arena, (size_t)n, sizeof *rounded);
        rope_frequencies(a, m->context, context, exact);
        for (int64_t i = 0; i < n; i++)
            rounded[i] = (float)exact[i];
        bool same = last >= 0 && rope_pairs(&m->block[last].attention) == n &&
                    memcmp(rounded, b->rope.frequency, (size_t)n * sizeof *rounded) == 0;
        b->rope.inv_freq[layer] =
            same ? b->rope.inv_freq[last] : cvn_constant(G, CVN_TYPE(CVN_F32, n), rounded);
        b->rope.frequency = rounded;
        last = layer;
    }
}

/* next i32 [batch], and the state of the following step when there is one token per row. */
static void output_sample(Builder *b, cvn_value *x)
{
    const ModelStep *s = b->step;
    const int64_t rows = s->wanted ? s->wanted : s->batch, width = b->model->width;
    cvn_value *position = cvn_add(G, b->rows.start, b->rows.length);
    if (s->wanted) {
        x = cvn_take_rows(G, cvn_reshape(G, x, 2, (int64_t[]){s->batch, width}), b->rows.wanted);
        x = cvn_reshape(G, x, 3, (int64_t[]){rows, 1, width});
        position = cvn_take_rows(G, position, b->rows.wanted);
    }
    cvn_value *logits = logits_of(b, last_token(b, x));
    logits = cvn_reshape(G, logits, 2, (int64_t[]){rows, b->model->vocab});
    cvn_value *own = logits;
    if (s->penalty)
        logits = sample_penalty(b->g, logits);
    if (s->adjusts)
        logits = sample_bias(b->g, logits);
    cvn_value *next = sample_tokens(b->g, s->sample, logits, position);
    cvn_output(G, next);
    graph_output_role(G, ROLE_NEXT, 0);
    if (s->adjusts) {
        cvn_output(G, own);
        graph_output_role(G, ROLE_LOGITS, 0);
    }
    if (s->seq == 1 && !s->slots) {
        cvn_output_into(G, cvn_reshape(G, next, 2, (int64_t[]){s->batch, 1}), b->rows.tokens);
        cvn_output_into(G, position, b->rows.start);
    }
}

static void output_score(Builder *b, cvn_value *x)
{
    const ModelStep *s = b->step;
    cvn_value *logits = logits_of(b, x);
    cvn_type grid = CVN_TYPE(CVN_I32, s->batch, s->seq);
    cvn_value *targets = graph_role(cvn_parameter(G, "targets", grid), ROLE_TARGETS, 0);
    cvn_value *loss[2];
    cvn_softmax_cross_entropy(G, logits, targets, loss);
    cvn_output(G, cvn_negate(G, loss[0]));
    graph_output_role(G, ROLE_LOGPROB, 0);
    cvn_output(G, cvn_argmax(G, logits, 2));
    graph_output_role(G, ROLE_ARGMAX, 0);
    if (s->keep_logits) {
        cvn_output(G, logits);
        graph_output_role(G, ROLE_LOGITS, 0);
    }
}

/* What logits are products of, in f32. */
static void output_state(Builder *b, cvn_value *x)
{
    const ModelStep *s = b->step;
    cvn_value *h = norm_as(b, x, PARAM_FINAL_NORM, -1, CVN_F32);
    cvn_output(G, cvn_reshape(G, h, 2, (int64_t[]){s->batch * s->seq, b->model->width}));
    graph_output_role(G, ROLE_HIDDEN, 0);
}

static void add_outputs(Builder *b, cvn_value *x)
{
    const ModelStep *s = b->step;
    cvn_value *logits;
    switch (s->output) {
    case STEP_LOGITS:
        cvn_output(G, logits_of(b, x));
        graph_output_role(G, ROLE_LOGITS, 0);
        break;
    case STEP_LAST:
        logits = logits_of(b, last_token(b, x));
        cvn_output(G, cvn_reshape(G, logits, 2, (int64_t[]){s->batch, b->model->vocab}));
        graph_output_role(G, ROLE_LOGITS, 0);
        break;
    case STEP_SAMPLE:
        output_sample(b, x);
        break;
    case STEP_SCORE:
        output_score(b, x);
        break;
    case STEP_STATE:
        output_state(b, x);
        break;
    }
}

cvn_graph *model_step(const Model *config, const ModelStep *step, cvn_err *err)
{
    static const char *const outputs[] = {"logits", "last", "sample", "score", "state"};
    static const char *const modes[] = {"greedy", "general"};
    bool sample = step->output == STEP_SAMPLE;
    /* "decode_b4_s1_general", "list_b512_s1_greedy": what a profile or a dump shows. */
    char name[96];
    snprintf(name, sizeof name, "%s_b%" PRId64 "_s%" PRId64 "%s%s",
             step->wanted               ? "list"
             : sample && step->seq == 1 ? "decode"
                                        : outputs[step->output],
             step->batch, step->seq, sample ? "_" : "", sample ? modes[step->sample] : "");
    Builder builder = {
        .g = cvn_graph_new(name, err), .model = config, .step = step, .compute = step->compute};
    Builder *b = &builder;
    if (!b->g)
        return NULL;
    Arena *arena = &b->g->arena;
    ParamList params;
    params_list(&params, config, arena);
    b->params = &params;
    b->weight = arena_array(arena, (size_t)params.n, sizeof *b->weight);
    Caches own;
    b->caches = step->caches;
    if (!step->slots) {
        model_caches(&own, config, false, arena);
        b->caches = &own;
    }
    b->tensors = step->kv_int8 ? MODEL_CACHES_INT8 : MODEL_CACHES;
    size_t n_caches = (size_t)(b->tensors * b->caches->n);
    b->cache = arena_array(arena, n_caches, sizeof(cvn_value *));
    add_parameters(b);
    cvn_value **cache_in = arena_copy(arena, b->cache, n_caches * sizeof(cvn_value *));
    add_frequencies(b, step->longest ? step->longest : step->context);
    add_temper(b);
    cvn_value *x = embed(b);
    for (int64_t i = 0; i < config->layers; i++)
        x = layer(b, x, i);
    for (size_t i = 0; i < n_caches; i++)
        cvn_output_into(G, b->cache[i], cache_in[i]);
    add_outputs(b, x);
    if (cvn_graph_check(b->g, err) == CVN_OK)
        return b->g;
    cvn_graph_free(b->g);
    return NULL;
}

/* What layers of whole texts share. */
static void begin_texts(Builder *b, int64_t batch, int64_t seq)
{
    cvn_type rows = CVN_TYPE(CVN_I32, batch), grid = CVN_TYPE(CVN_I32, batch, seq);
    b->rows.start = cvn_splat(G, rows, 0);
    b->rows.length = cvn_splat(G, rows, (double)seq);
    b->rows.positions = cvn_iota(G, grid, 1);
    if (b->rows.first)
        b->rows.positions = cvn_subtract(G, b->rows.positions, b->rows.first);
    add_frequencies(b, seq);
    add_temper(b);
}

double model_embedding_scale(const Model *model)
{
    return model->embedding_scale;
}

cvn_value *model_layer(cvn_graph *g, const Model *model, cvn_dtype compute_dtype, int64_t i,
                       cvn_value *x, cvn_value *const *weights, cvn_value **input)
{
    Builder builder = {.g = g, .model = model, .compute = compute_dtype, .input = input};
    Builder *b = &builder;
    ParamList params;
    params_list(&params, model, &g->arena);
    b->params = &params;
    b->weight = arena_copy(&g->arena, weights, (size_t)params.n * sizeof *weights);
    begin_texts(b, cvn_value_type(x)->dim[0], cvn_value_type(x)->dim[1]);
    if (i < model->layers)
        return layer(b, x, i);
    const Param *head = params_find(&params, PARAM_LM_HEAD, -1);
    x = norm_as(b, x, PARAM_FINAL_NORM, -1, b->compute);
    input[(head ? head : params_find(&params, PARAM_EMBED, -1)) - params.param] = x;
    return x;
}

static cvn_value *sum_all(Builder *b, cvn_value *x)
{
    return cvn_reduce_dims(G, CVN_SUM, x, 2, (int[]){0, 1});
}

cvn_value *forward_known(Builder *b, cvn_value *targets)
{
    const cvn_type *rows = cvn_value_type(targets);
    cvn_value *none = cvn_splat(G, *rows, 0);
    cvn_value *vocab = cvn_splat(G, *rows, (double)b->model->vocab);
    cvn_value *low = cvn_compare_values(G, CVN_GE, targets, none);
    return cvn_and(G, low, cvn_compare_values(G, CVN_LT, targets, vocab));
}

/* x f32 [batch, seq, dim] -> the sums over tokens that have a target. */
static void add_loss(Builder *b, cvn_value *x, cvn_value *targets, ModelLoss *loss)
{
    cvn_value *logits = logits_of(b, x), *entropy[2];
    cvn_softmax_cross_entropy(G, logits, targets, entropy);
    cvn_value *known = forward_known(b, targets);
    cvn_value *lse = entropy[1], *square = cvn_multiply(G, lse, lse);
    square = cvn_select(G, known, square, cvn_splat(G, *cvn_value_type(lse), 0));
    loss->entropy = entropy[0];
    loss->known = cvn_convert(G, known, CVN_F32);
    loss->sum = sum_all(b, entropy[0]);
    loss->z = sum_all(b, square);
    loss->count = sum_all(b, loss->known);
    cvn_value *one = cvn_splat(G, cvn_scalar(CVN_F32), 1);
    loss->mean = cvn_divide(G, loss->sum, cvn_maximum(G, loss->count, one));
}

int model_loss(cvn_graph *g, const Model *config, cvn_dtype compute_dtype,
               cvn_value *const *weights, const ModelBatch *batch, ModelLoss *loss, cvn_err *err)
{
    return model_loss_adapted(g, config, compute_dtype, weights, NULL, batch, loss, err);
}

int model_loss_adapted(cvn_graph *g, const Model *config, cvn_dtype compute_dtype,
                       cvn_value *const *weights, const ModelAdapters *adapters,
                       const ModelBatch *batch, ModelLoss *loss, cvn_err *err)
{
    const ModelPart *part = &batch->part;
    const bool last = model_part_is_last(part, config);
    if (cvn_graph_check(g, err))
        return g->err.code;
    const cvn_type *from = cvn_value_type(batch->entering ? batch->entering : batch->tokens);
    const cvn_type grid = CVN_TYPE(CVN_I32, from->dim[0], from->dim[1]);
    const cvn_value *like[] = {batch->tokens, batch->targets, batch->starts};
    for (int i = 0; i < 3; i++)
        if (like[i] && !cvn_type_equal(&grid, cvn_value_type(like[i])))
            return err_set(err, CVN_ESHAPE, "tokens, targets and starts must be i32 [batch, seq]");
    if (config->quant.kind != QUANT_NONE)
        return err_set(err, CVN_EUNSUPPORTED, "a quantized model cannot be trained");
    Builder builder = {.g = g,
                       .model = config,
                       .compute = compute_dtype,
                       .adapters = adapters,
                       .drop = batch->dropout,
                       .exact = batch->exact,
                       .rows = {.tokens = batch->tokens, .first = batch->starts}};
    Builder *b = &builder;
    ParamList params;
    params_list(&params, config, &g->arena);
    b->params = &params;
    b->weight = arena_copy(&g->arena, weights, (size_t)params.n * sizeof *weights);
    begin_texts(b, grid.dim[0], grid.dim[1]);
    if (batch->targets)
        routers_begin(b, batch->routers, batch->targets);
    *loss = (ModelLoss){.n_blocks = (int)(part->end ? part->end - part->first : config->layers)};
    loss->block = arena_array(&g->arena, (size_t)loss->n_blocks + 1, sizeof(cvn_value *));
    cvn_value *x = batch->entering;
    loss->block[0] = x = x ? x : hidden_dropout(b, embed(b), -1, DROPOUT_EMBEDDING);
    for (int i = 0; i < loss->n_blocks; i++)
        x = loss->block[i + 1] = layer(b, x, part->first + i);
    if (last)
        add_loss(b, x, batch->targets, loss);
    routers_end(b, loss);
    return cvn_graph_check(g, err);
}
