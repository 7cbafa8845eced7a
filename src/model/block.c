#include "model/block.h"

#include "base/map.h"
#include "graph/attention.h"
#include "model/kinds.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 1 << 14 };

Model *model_new(int64_t layers, Arena *arena)
{
    static const Block llama = {.norms = {.eps = 1e-6, .before = true},
                                .attention = {.heads = 32,
                                              .kv_heads = 32,
                                              .head_dim = 128,
                                              .growth_span = 8192,
                                              .rope = {.fraction = 1, .theta = 10000, .factor = 1}},
                                .mlp = {.width = 11008, .gated = true, .alpha = 1},
                                .experts = {.scale = 1, .groups = 1, .groups_chosen = 1}};
    Model *m = arena_alloc(arena, sizeof *m);
    *m = (Model){.width = 4096,
                 .layers = layers,
                 .block = arena_array(arena, (size_t)layers, sizeof *m->block),
                 .vocab = 32000,
                 .context = 2048,
                 .embedding_scale = 1,
                 .residual_scale = 1,
                 .logits_scale = 1,
                 .logits_divisor = 1,
                 .init_range = 0.02,
                 .dtype = CVN_F32,
                 .begin = {1, {1}},
                 .end = {1, {2}},
                 .pad = -1};
    for (int64_t i = 0; i < layers; i++)
        m->block[i] = llama;
    return m;
}

Model *model_of_layers(const Model *model, int64_t layers, Arena *arena)
{
    Model *m = arena_copy(arena, model, sizeof *m);
    m->layers = layers < model->layers ? layers : model->layers;
    m->block = arena_copy(arena, model->block, (size_t)m->layers * sizeof *m->block);
    for (int64_t i = 0; i < m->layers; i++) {
        Attention *a = &m->block[i].attention;
        for (int list = 0; list < 2; list++)
            if (a->rope.divisors[list])
                a->rope.divisors[list] =
                    arena_copy(arena, a->rope.divisors[list],
                               (size_t)rope_pairs(a) * sizeof *a->rope.divisors[list]);
    }
    return m;
}

Model *model_copy(const Model *model, Arena *arena)
{
    return model_of_layers(model, model->layers, arena);
}

void model_set_context(Model *m, int64_t context)
{
    m->context = context;
}

void model_set_dtype(Model *m, cvn_dtype dtype)
{
    m->dtype = dtype;
}

void model_set_quant(Model *m, QuantScheme scheme)
{
    m->quant = scheme;
    m->eight = NULL;
}

void model_set_eight(Model *m, const bool *eight)
{
    m->eight = eight;
}

void model_set_blocks(Model *m, const unsigned char *blocks)
{
    m->blocks = blocks;
}

void model_set_interleaved(Model *m, bool interleaved)
{
    for (int64_t i = 0; i < m->layers; i++)
        m->block[i].attention.rope.interleaved = interleaved;
}

void model_set_vocab(Model *m, int64_t vocab, const SpecialIds *begins, const SpecialIds *ends)
{
    m->vocab = vocab;
    m->begin = *begins;
    m->end = *ends;
}

void model_set_dropout(Model *m, DropoutRates rates)
{
    m->dropout = rates;
}

void model_set_pad(Model *m, int32_t pad)
{
    m->pad = pad;
}

bool model_has_corrections(const Model *m)
{
    for (int64_t i = 0; i < m->layers; i++)
        if (m->block[i].experts.on && m->block[i].experts.corrected)
            return true;
    return false;
}

double model_balance(const Model *m)
{
    return m->balanced ? m->balance : 0;
}

void model_set_tied(Model *m, bool tied)
{
    m->tied = tied;
}

void model_warn(Model *m, const char *format, ...)
{
    size_t used = strlen(m->warnings);
    size_t room = sizeof m->warnings - used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(m->warnings + used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n + 1 >= room)
        m->warnings[used] = '\0';
    else
        memcpy(m->warnings + used + n, "\n", 2);
}

/* ---- questions ---- */

ModelShape model_shape(const Model *m)
{
    ModelShape s = {.width = m->width,
                    .layers = m->layers,
                    .vocab = m->vocab,
                    .context = m->context,
                    .tied = m->tied};
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        if (a->heads * a->head_dim > s.heads * s.head_dim) {
            s.heads = a->heads;
            s.head_dim = a->head_dim;
            s.kv_heads = a->kv_heads;
        }
        const Block *b = &m->block[i];
        s.ffn = b->mlp.width > s.ffn ? b->mlp.width : s.ffn;
    }
    return s;
}

int64_t model_vocab(const Model *m)
{
    return m->vocab;
}

int64_t model_width(const Model *m)
{
    return m->width;
}

int64_t model_layers(const Model *m)
{
    return m->layers;
}

int64_t model_context(const Model *m)
{
    return m->context;
}

cvn_dtype model_dtype(const Model *m)
{
    return m->dtype;
}

QuantScheme model_quant(const Model *m)
{
    return m->quant;
}

bool model_in_blocks(const Model *m)
{
    return m->blocks != NULL;
}

bool model_is_quantized(const Model *m)
{
    return m->blocks || m->quant.kind != QUANT_NONE;
}

bool model_takes_int8(const Model *m)
{
    return m->blocks || m->quant.kind == QUANT_INT8 || m->quant.kind == QUANT_BLOCKS;
}

bool model_is_interleaved(const Model *m)
{
    return m->block[0].attention.rope.interleaved;
}

const SpecialIds *model_begins(const Model *m)
{
    return &m->begin;
}

const SpecialIds *model_ends(const Model *m)
{
    return &m->end;
}

DropoutRates model_dropout(const Model *m)
{
    return m->dropout;
}

int32_t model_pad(const Model *m)
{
    return m->pad;
}

const char *model_warnings(const Model *m)
{
    return m->warnings;
}

int64_t model_window(const Model *m, int64_t layer)
{
    const Attention *a = &m->block[layer].attention;
    int64_t window = a->local ? a->window : 0;
    return !window || (a->chunk && a->chunk < window) ? a->chunk : window;
}

double model_attention_pairs(const Model *m, int64_t first, int64_t last)
{
    double n = 0;
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        int64_t window = model_window(m, i);
        n += (double)(a->heads * a->head_dim) *
             attention_mean_keys(first, last, window ? window : last + 1);
    }
    return n;
}

int64_t kv_cache_bytes(const Model *m, int64_t batch, int64_t length, cvn_dtype dtype)
{
    int64_t scale = dtype == CVN_I8 ? (int64_t)sizeof(uint16_t) : 0; /* bf16 */
    int64_t n = 0;
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        int64_t window = model_window(m, i), one = 2 * a->kv_heads * (a->head_dim + scale);
        if (__builtin_mul_overflow(one, window && window < length ? window : length, &one) ||
            __builtin_add_overflow(n, one, &n))
            return -1;
    }
    if (batch < 0 || length < 0 || __builtin_mul_overflow(n, batch, &n) || n > INT64_MAX / 4)
        return -1;
    return (int64_t)cvn_dtype_bytes(dtype, n);
}

const Attention *model_rotating(const Model *m)
{
    const Attention *found = &m->block[0].attention;
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        if (!a->rope.off && !model_window(m, i))
            return a;
        if (found->rope.off)
            found = a;
    }
    return found;
}

int64_t model_rope_pairs(const Model *m)
{
    return rope_pairs(model_rotating(m));
}

void model_rope_frequencies(const Model *m, int64_t length, double *out)
{
    const Attention *a = model_rotating(m);
    rope_frequencies(a, m->context, length, out);
}

static const float *as_floats(const double *value, size_t n, Arena *arena)
{
    float *out = arena_array(arena, n, sizeof *out);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)value[i];
    return out;
}

int model_rope_tensors(const Model *m, Arena *arena, RopeTensor out[2])
{
    Attention a = *model_rotating(m);
    const size_t n = (size_t)rope_pairs(&a);
    if (a.rope.off)
        return 0;
    if (a.rope.scaling == ROPE_LONGROPE) {
        out[0] = (RopeTensor){"rope_factors_long.weight", as_floats(a.rope.divisors[1], n, arena),
                              (int64_t)n};
        out[1] = (RopeTensor){"rope_factors_short.weight", as_floats(a.rope.divisors[0], n, arena),
                              (int64_t)n};
        return 2;
    }
    if (a.rope.scaling == ROPE_PROPORTIONAL) {
        float *divisor = arena_array(arena, n, sizeof *divisor);
        for (size_t i = 0; i < n; i++)
            divisor[i] = i < (size_t)((double)a.head_dim * a.rope.fraction) / 2 ? 1 : 1e30F;
        out[0] = (RopeTensor){"rope_freqs.weight", divisor, (int64_t)n};
        return 1;
    }
    if (a.rope.scaling != ROPE_LLAMA3)
        return 0;
    double *plain = arena_array(arena, n, sizeof *plain),
           *scaled = arena_array(arena, n, sizeof *scaled);
    rope_frequencies(&a, m->context, m->context, scaled);
    a.rope.scaling = ROPE_PLAIN;
    rope_frequencies(&a, m->context, m->context, plain);
    for (size_t i = 0; i < n; i++)
        plain[i] /= scaled[i];
    out[0] = (RopeTensor){"rope_freqs.weight", as_floats(plain, n, arena), (int64_t)n};
    return 1;
}

void model_add_identity(const Model *m, int64_t length, StrBuf *out)
{
    const ModelShape s = model_shape(m);
    const Block *first = &m->block[0];
    const Rope *r = &model_rotating(m)->rope;
    double *frequency = calloc((size_t)model_rope_pairs(m), sizeof *frequency);
    if (frequency) {
        model_rope_frequencies(m, length, frequency);
        strbuf_add(out, (const char *)frequency, (size_t)model_rope_pairs(m) * sizeof *frequency);
    }
    out->failed |= !frequency;
    free(frequency);
    strbuf_printf(out, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %a %a %d ",
                  s.width, s.layers, s.heads, s.ffn, s.vocab, first->norms.eps,
                  attention_scale(model_rotating(m)), model_is_interleaved(m));
    if (strcmp(model_family(m), "llama") != 0)
        strbuf_printf(out, "%s %a %a %a %a %a ", model_family(m), m->embedding_scale,
                      m->residual_scale, m->logits_scale, m->logits_divisor, m->logits_cap);
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        if (a->rope.off)
            strbuf_printf(out, "layer %" PRId64 " without rope ", i);
        if (a->local && a->window)
            strbuf_printf(out, "layer %" PRId64 " within %" PRId64 " ", i, a->window);
        if (a->chunk)
            strbuf_printf(out, "layer %" PRId64 " in chunks of %" PRId64 " ", i, a->chunk);
        if (a->grows && a->rope.off)
            strbuf_printf(out, "layer %" PRId64 " grows by %a in %" PRId64 " ", i, a->growth,
                          a->growth_span);
        if (a->cap > 0)
            strbuf_printf(out, "layer %" PRId64 " capped at %a ", i, a->cap);
        if (!a->rope.off &&
            (a->rope.theta != r->theta || a->rope.scaling != r->scaling ||
             a->rope.factor != r->factor || a->rope.original_context != r->original_context))
            strbuf_printf(out, "layer %" PRId64 " turns by %a %d %a %a %" PRId64 " ", i,
                          a->rope.theta, (int)a->rope.scaling, a->rope.factor, a->rope.sharpness,
                          a->rope.original_context);
        const Experts *e = &m->block[i].experts;
        if (e->on)
            strbuf_printf(out,
                          "layer %" PRId64 " with %" PRId64 " of %" PRId64 " experts of %" PRId64
                          " %d %d %d %d %d %a %d, beside %" PRId64 " %d ",
                          i, e->chosen, e->number, experts_width(&m->block[i]), (int)e->score,
                          e->before, e->router_bias, e->corrected, e->renormalised, e->scale,
                          e->bias, e->shared_width, e->shared_gate);
        const FeedForward *f = &m->block[i].mlp;
        if (f->limit > 0 || f->alpha != 1 || f->shift != 0)
            strbuf_printf(out, "layer %" PRId64 " within %a, by %a and %a ", i, f->limit, f->alpha,
                          f->shift);
        if (a->sinks)
            strbuf_printf(out, "layer %" PRId64 " with sinks ", i);
        if (a->qk_norm)
            strbuf_printf(out, "layer %" PRId64 " with norms %d ", i, (int)a->qk_norm);
    }
    strbuf_printf(out, "%d %" PRId64 " ", (int)m->quant.kind, m->quant.group);
    if (m->eight)
        strbuf_add(out, (const char *)m->eight,
                   (size_t)m->layers * PARAM_KIND_COUNT * sizeof *m->eight);
}

uint64_t model_hash(const Model *m)
{
    const ModelShape s = model_shape(m);
    const int64_t sizes[] = {s.vocab,    s.width,    s.layers, s.heads,
                             s.kv_heads, s.head_dim, s.ffn,    s.context};
    SCOPED(strbuf_free) StrBuf all = {0};
    strbuf_add(&all, (const char *)sizes, sizeof sizes);
    model_add_identity(m, m->context, &all);
    return hash_bytes(all.text, all.length);
}

int64_t model_longest_context(const Model *m)
{
    const Rope *r = &model_rotating(m)->rope;
    if (r->scaling != ROPE_DYNAMIC || r->alpha != 0 || r->factor <= 1)
        return m->context;
    return (int64_t)fmin((double)m->context * r->factor, 1 << 30);
}

/* ---- what is accepted ---- */

/* The limits keep every product (vocab * width, heads * head_dim * width, layers * ffn * width, in bytes)
 * well inside of 63 bits; they are about a thousand times the largest Llama. */
typedef struct Limit {
    const char *name; /* of a number, with its config.json key */
    size_t offset;    /* of an int64_t in Model or in Block */
    int64_t most;
} Limit;

static const Limit model_limits[] = {
    {"the width (hidden_size)", offsetof(Model, width), INT64_C(1) << 20},
    {"the vocabulary (vocab_size)", offsetof(Model, vocab), 1 << 26},
    {"the context (max_position_embeddings)", offsetof(Model, context), 1 << 30},
    {0},
};

static const Limit block_limits[] = {
    {"the number of heads (num_attention_heads)", offsetof(Block, attention.heads), 1 << 14},
    {"the number of KV heads (num_key_value_heads)", offsetof(Block, attention.kv_heads), 1 << 14},
    {"the head dimension (head_dim)", offsetof(Block, attention.head_dim), 1 << 14},
    {"the feed-forward width (intermediate_size)", offsetof(Block, mlp.width), 1 << 23},
    {0},
};

static int check_limits(const void *of, const Limit *limit, const char *file, cvn_err *err)
{
    for (; limit->name; limit++) {
        int64_t value;
        memcpy(&value, (const char *)of + limit->offset, sizeof value);
        if (value < 1 || value > limit->most)
            return err_set(err, CVN_EFORMAT,
                           "'%s': %s is %" PRId64 "; it must be from 1 to %" PRId64, file,
                           limit->name, value, limit->most);
    }
    return CVN_OK;
}

int model_check_layers(int64_t layers, const char *file, cvn_err *err)
{
    const Limit limit[] = {{"the number of layers (num_hidden_layers)", 0, MOST_LAYERS}, {0}};
    return check_limits(&layers, limit, file, err);
}

/* What a block can say and the graph cannot do; NULL: it can. any: some layer has experts; others may be without that have their
   numbers. */
static const char *undone_block(const Block *b, bool any)
{
    return !b->mlp.gated               ? "feed-forward parts without a gate"
           : b->experts.number && !any ? "experts"
           : b->experts.groups != 1 || b->experts.groups_chosen != 1
               ? "experts that are chosen by groups (n_group, topk_group)"
           : b->norms.gain == GAIN_NONE ? "layers whose norms have no weights"
                                        : NULL;
}

static const Limit expert_limits[] = {
    {"the number of experts (num_experts)", offsetof(Block, experts.number), 1 << 12},
    {"the experts of a token (num_experts_per_tok)", offsetof(Block, experts.chosen), 1 << 8},
    {0},
};

static int check_experts(const Block *b, const char *file, cvn_err *err)
{
    const Experts *e = &b->experts;
    TRY(check_limits(b, expert_limits, file, err));
    if (e->chosen > e->number)
        return err_set(
            err, CVN_EFORMAT,
            "'%s': each token has %" PRId64 " of %" PRId64
            " experts; there must be at least as many (num_experts_per_tok, num_experts)",
            file, e->chosen, e->number);
    if (e->shared_width < 0 || e->shared_width > 1 << 23 || e->width < 0 || e->width > 1 << 23)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the widths of experts and of the shared one are %" PRId64
                       " and %" PRId64 "; they must be from 0 to %d",
                       file, e->width, e->shared_width, 1 << 23);
    if (!(e->scale > 0 && e->scale <= 1e6))
        return err_set(err, CVN_EFORMAT,
                       "'%s': what experts give is multiplied by %g; it must be over 0 and at most "
                       "1e6 (routed_scaling_factor)",
                       file, e->scale);
    return CVN_OK;
}

static int check_block(const Block *b, const char *file, cvn_err *err)
{
    const Attention *a = &b->attention;
    TRY(check_limits(b, block_limits, file, err));
    TRY(b->experts.on ? check_experts(b, file, err) : CVN_OK);
    if (a->heads % a->kv_heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %" PRId64 " heads cannot share %" PRId64
                       " KV heads evenly (num_attention_heads, num_key_value_heads)",
                       file, a->heads, a->kv_heads);
    if (a->head_dim % 2 != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the head dimension is %" PRId64
                       "; rotary embedding needs an even one",
                       file, a->head_dim);
    if (a->heads * a->head_dim > INT64_C(1) << 20)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %" PRId64 " heads of %" PRId64 " are wider than 2^20", file, a->heads,
                       a->head_dim);
    if (a->window < 0 || a->window > INT32_MAX || a->chunk < 0 || a->chunk > INT32_MAX)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the attention window is %" PRId64 " and the chunk %" PRId64
                       " positions; they must be 0, for none, or below 2^31",
                       file, a->window, a->chunk);
    if (!(a->growth >= 0 && a->growth <= 100 && a->growth_span > 0))
        return err_set(err, CVN_EFORMAT,
                       "'%s': attn_scale is %g and floor_scale %" PRId64
                       "; they must be from 0 to 100, and over 0",
                       file, a->growth, a->growth_span);
    if (!(a->cap >= 0 && a->cap <= 1e6))
        return err_set(
            err, CVN_EFORMAT,
            "'%s': the soft cap on scores of attention is %g; it must be from 0, for none, "
            "to 1e6",
            file, a->cap);
    if (!(b->norms.eps > 0 &&
          b->norms.eps < 1)) /* with 0 the norm of a row of zeros is no number */
        return err_set(err, CVN_EFORMAT, "'%s': rms_norm_eps is %g; it must be over 0 and below 1",
                       file, b->norms.eps);
    if (b->mlp.activation == ACTIVATION_GELU)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': hidden_act is '%s'; 'silu', 'gelu_pytorch_tanh' and 'relu' are "
                       "supported",
                       file, activation_name(b->mlp.activation));
    if (!(b->mlp.limit >= 0 && b->mlp.limit <= 1e6 && b->mlp.alpha > 0 && b->mlp.alpha <= 1e3))
        return err_set(
            err, CVN_EFORMAT,
            "'%s': swiglu_limit is %g and swiglu_alpha %g; they must be from 0, for none, "
            "to 1e6, and over 0 and at most 1e3",
            file, b->mlp.limit, b->mlp.alpha);
    if (!(a->scale >= 0 && a->scale <= 1e6))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the scale of attention is %g; it must be from 0 to 1e6", file,
                       a->scale);
    return CVN_OK;
}

static int check_ids(const SpecialIds *ids, const char *what, int64_t vocab, const char *file,
                     cvn_err *err)
{
    for (int i = 0; i < ids->n; i++)
        if (ids->id[i] < 0 || ids->id[i] >= vocab)
            return err_set(err, CVN_EFORMAT,
                           "'%s': %s token %d is outside of the vocabulary of %" PRId64, file, what,
                           ids->id[i], vocab);
    return CVN_OK;
}

int model_check(const Model *m, const char *file, cvn_err *err)
{
    const char *what = NULL;
    TRY(check_limits(m, model_limits, file, err));
    TRY(model_check_layers(m->layers, file, err));
    for (int64_t i = 1; i < m->layers; i++)
        if (m->block[i].attention.local != m->block[0].attention.local &&
            !(m->block[i].attention.window > 0) && !m->block[i].attention.chunk &&
            !m->block[0].attention.chunk)
            return err_set(err, CVN_EFORMAT,
                           "'%s': some layers have a window (layer_types), but sliding_window does "
                           "not say how many positions they see",
                           file);
    bool experts = false;
    for (int64_t i = 0; i < m->layers; i++)
        experts = experts || m->block[i].experts.on;
    for (int64_t i = 0; i < m->layers; i++) {
        TRY(check_block(&m->block[i], file, err));
        what = what ? what : undone_block(&m->block[i], experts);
    }
    what = m->shared_layers  ? "layers that take keys and values of others (num_kv_shared_layers)"
           : m->layer_inputs ? "embeddings of each layer (hidden_size_per_layer_input)"
                             : what;
    if (what)
        return err_set(err, CVN_EUNSUPPORTED, "'%s': %s: not supported", file, what);
    if (!(m->init_range >= 0 && m->init_range <= 1))
        return err_set(err, CVN_EFORMAT, "'%s': initializer_range is %g; it must be from 0 to 1",
                       file, m->init_range);
    if (!(m->dropout.attention >= 0 && m->dropout.attention < 1 && m->dropout.hidden >= 0 &&
          m->dropout.hidden < 1))
        return err_set(
            err, CVN_EFORMAT,
            "'%s': attention_dropout is %g and hidden_dropout %g; give numbers from 0 to "
            "below 1",
            file, m->dropout.attention, m->dropout.hidden);
    if (m->dtype != CVN_F32 && m->dtype != CVN_BF16 && m->dtype != CVN_F16)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': weights of type %s; f32, bf16 or f16 is expected", file,
                       cvn_dtype_name(m->dtype));
    for (int64_t i = 0; i < m->layers; i++)
        TRY(rope_check(&m->block[i].attention, file, err));
    TRY(check_ids(&m->begin, "begin-of-text", m->vocab, file, err));
    return check_ids(&m->end, "end-of-text", m->vocab, file, err);
}
