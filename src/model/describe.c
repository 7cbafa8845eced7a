/* What a model is, for people: the lines and the JSON of `caravan inspect`, from the description alone. */
#include "base/json_file.h"
#include "model/block.h"

#include <inttypes.h>

static const char *rope_name(const Rope *r)
{
    return r->scaling == ROPE_PLAIN ? "plain" : rope_scaling_name(r->scaling);
}

static json_t *ids_json(const SpecialIds *ids)
{
    json_t *list = json_array();
    for (int i = 0; i < ids->n; i++)
        list = json_append(list, json_integer(ids->id[i]));
    return list;
}

static void add_ids(StrBuf *out, const char *name, const SpecialIds *ids)
{
    strbuf_printf(out, "%s", name);
    for (int i = 0; i < ids->n; i++)
        strbuf_printf(out, "%s%" PRIi32, i ? ", " : " ", ids->id[i]);
    if (ids->n == 0)
        strbuf_puts(out, " none");
}

/* Layers that rotate nothing. */
static int64_t without_rope(const Model *m)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m->layers; i++)
        n += m->block[i].attention.rope.off;
    return n;
}

/* The first layer that sees a window, NULL where none does, and how many do. */
static const Attention *windowed(const Model *m, int64_t *n)
{
    const Attention *first = NULL;
    *n = 0;
    for (int64_t i = m->layers; i-- > 0;)
        if (model_window(m, i)) {
            first = &m->block[i].attention;
            ++*n;
        }
    return first;
}

/* How many of these a block has: all, none, or some, one by one. */
static void add_biases(StrBuf *out, const char *part, const bool *has, const char *const *name,
                       int n)
{
    int some = 0;
    for (int i = 0; i < n; i++)
        some += has[i];
    if (some == n)
        strbuf_printf(out, ", %s biases", part);
    for (int i = 0; i < n && some < n; i++)
        if (has[i])
            strbuf_printf(out, ", %s bias", name[i]);
}

/* A layer that has experts; NULL: none has. */
static const Block *with_experts(const Model *m)
{
    for (int64_t i = 0; i < m->layers; i++)
        if (m->block[i].experts.on)
            return &m->block[i];
    return NULL;
}

void model_describe(const Model *m, StrBuf *out)
{
    static const char *const in_attention[] = {"q", "k", "v", "o"};
    static const char *const in_mlp[] = {"gate", "up", "down"};
    const ModelShape s = model_shape(m);
    const Block *b = &m->block[0];
    const Attention *a = &b->attention;
    const Rope *r = &model_rotating(m)->rope;
    int64_t windows;
    const Attention *window = windowed(m, &windows);
    strbuf_printf(out,
                  "shape       dim %" PRIi64 ", %" PRIi64 " layers, %" PRIi64 " heads of %" PRIi64
                  ", %" PRIi64 " kv heads, ffn %" PRIi64 ", vocabulary %" PRIi64 "\n",
                  s.width, s.layers, s.heads, s.head_dim, s.kv_heads, s.ffn, s.vocab);
    strbuf_printf(out, "context     %" PRIi64 " positions; rope theta %g, %s", s.context, r->theta,
                  rope_name(r));
    bool alpha = r->scaling == ROPE_DYNAMIC && r->alpha != 0;
    if (r->scaling != ROPE_PLAIN)
        strbuf_printf(out, " scaling by %s%g", alpha ? "alpha " : "", alpha ? r->alpha : r->factor);
    if (r->scaling == ROPE_YARN)
        strbuf_printf(out, " from %" PRIi64 " positions, attention by %g", r->original_context,
                      r->sharpness);
    strbuf_puts(out, r->interleaved ? ", interleaved pairs" : ", half-split pairs");
    if (without_rope(m))
        strbuf_printf(out, "; none in %" PRIi64 " layer%s", without_rope(m),
                      without_rope(m) == 1 ? "" : "s");
    if (window)
        strbuf_printf(out, "; %s of %" PRIi64 " in %" PRIi64 " layer%s",
                      window->chunk ? "chunks" : "a window",
                      window->chunk ? window->chunk : window->window, windows,
                      windows == 1 ? "" : "s");
    if (window && !window->rope.off && window->rope.theta != r->theta)
        strbuf_printf(out, ", rope theta %g", window->rope.theta);
    strbuf_printf(out, "\ndetails     rms eps %g, %s head", b->norms.eps,
                  s.tied ? "tied" : "separate");
    if (a->cap > 0)
        strbuf_printf(out, ", scores capped at %g", a->cap);
    if (m->logits_cap > 0)
        strbuf_printf(out, ", logits capped at %g", m->logits_cap);
    const Block *sparse = with_experts(m);
    if (sparse)
        strbuf_printf(out, ", %" PRIi64 " of %" PRIi64 " experts of %" PRIi64,
                      sparse->experts.chosen, sparse->experts.number, experts_width(sparse));
    if (sparse && sparse->experts.shared_width)
        strbuf_printf(out, " beside a shared one of %" PRIi64, sparse->experts.shared_width);
    add_biases(out, "attention", (bool[]){a->q_bias, a->k_bias, a->v_bias, a->o_bias}, in_attention,
               4);
    add_biases(out, "mlp", (bool[]){b->mlp.gate_bias, b->mlp.up_bias, b->mlp.down_bias}, in_mlp, 3);
    strbuf_puts(out, "\ntokens      ");
    add_ids(out, "begin", &m->begin);
    add_ids(out, "; end", &m->end);
    strbuf_putc(out, '\n');
}

json_t *model_describe_json(const Model *m)
{
    const ModelShape s = model_shape(m);
    const Block *b = &m->block[0];
    const Rope *r = &model_rotating(m)->rope;
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:b, s:o, s:o}", "dim",
                  (json_int_t)s.width, "layers", (json_int_t)s.layers, "heads", (json_int_t)s.heads,
                  "kv_heads", (json_int_t)s.kv_heads, "head_dim", (json_int_t)s.head_dim, "ffn",
                  (json_int_t)s.ffn, "vocab", (json_int_t)s.vocab, "context", (json_int_t)s.context,
                  "rms_eps", b->norms.eps, "rope_theta", r->theta, "rope_scaling", rope_name(r),
                  "tied", s.tied, "bos", ids_json(&m->begin), "eos", ids_json(&m->end));
    if (without_rope(m))
        json = json_with(json, "layers_without_rope", json_integer(without_rope(m)));
    const Block *sparse = with_experts(m);
    if (sparse) {
        json = json_with(json, "experts", json_integer(sparse->experts.number));
        json = json_with(json, "experts_per_token", json_integer(sparse->experts.chosen));
        json = json_with(json, "expert_ffn", json_integer(experts_width(sparse)));
        json = json_with(json, "shared_ffn", json_integer(sparse->experts.shared_width));
    }
    int64_t windows;
    const Attention *window = windowed(m, &windows);
    if (window) {
        json = json_with(json, "window", json_integer(window->window));
        json = json_with(json, "layers_with_window", json_integer(windows));
    }
    return json;
}
