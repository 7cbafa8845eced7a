/* The sizes, dtypes and operands of an attention, and of its gradient, in one place for the kernels of both. */
#ifndef CVN_CPU_KERNELS_ATTENTION_OPERANDS_H
#define CVN_CPU_KERNELS_ATTENTION_OPERANDS_H

#include "base/num.h"
#include "compile/kernel.h"
#include "cpu/kernels/tile.h"
#include "graph/attention.h"

/* So many positions of a row are taken one by one, where their keys lie; more by blocks of keys, with the same bits, or on
   tiles of AMX, with others: there, several tokens that are drawn by one run (serve/speculate.h) are no more than these. */
enum { ATTENTION_FEW = 8 };

/* Keys of a block, and of the least page that kernels take. */
enum { ATTENTION_KEYS = 64 };

/* k and v are [batch, kv_heads, context, head_dim], or, with slots, [pages, kv_heads, page, head_dim]. */
typedef struct AttentionOperands {
    const Op *op;
    cvn_dtype q_dtype, kv_dtype;
    int64_t batch, seq, heads, head_dim, kv_heads, context, page, slots;
    int64_t row_pages;    /* of a slot: the context is so many pages */
    int64_t longest;      /* positions of a run, at most */
    int64_t group;        /* heads for each KV head */
    int64_t steps, tiles; /* of 32 and of 16 elements in head_dim, rounded up */
    float scale;
    float exponent;        /* scale * log2(e): weights are 2^(exponent * (score - peak)) */
    float cap;             /* scaled scores s become cap tanh(s / cap); 0: they stay */
    int64_t window, chunk; /* of keys that a query sees; 0: no such */
    const void *q, *k, *v;
    const int32_t *start, *length; /* [batch] */
    const int32_t *slot;           /* [batch], or NULL: row b has page b */
    const int32_t *table;          /* [slots, row_pages], where there are slots */
    const int32_t *first;          /* [batch, seq], or NULL for zeros */
    const void *sinks;             /* [heads] of sinks_dtype, or NULL */
    cvn_dtype sinks_dtype;
    /* bf16 [batch, kv_heads, context] of k and v in 8 bits, or NULL */
    const uint16_t *k_scale, *v_scale;
    void *out;                   /* of an attention */
    const void *dy;              /* of a gradient, as out */
    void *dq, *dk, *dv, *dsinks; /* likewise */
} AttentionOperands;

/* Sizes and dtypes alone where there are no args. */
static inline AttentionOperands attention_of(const Op *op, const KernelArgs *args)
{
    const cvn_type *q = op_in(op, 0), *k = op_in(op, 1);
    AttentionOperands a = {.op = op,
                           .q_dtype = q->dtype,
                           .kv_dtype = k->dtype,
                           .batch = q->dim[0],
                           .seq = q->dim[1],
                           .heads = q->dim[2],
                           .head_dim = q->dim[3],
                           .kv_heads = k->dim[1],
                           .context = attention_context(op),
                           .page = k->dim[2],
                           .row_pages = 1,
                           .group = k->dim[1] ? q->dim[2] / k->dim[1] : 0,
                           .steps = num_pieces(q->dim[3], 32),
                           .tiles = num_pieces(q->dim[3], 16),
                           .scale = (float)op->attr.scale,
                           .exponent = (float)op->attr.scale * 1.44269504088896341f,
                           .cap = (float)op->attr.cap,
                           .window = op->attr.sliding_window,
                           .chunk = op->attr.attention_chunk};
    int slot = attention_slot_at(op);
    a.longest = a.seq == 1 && slot >= 0 ? a.batch : a.seq;
    if (slot >= 0) {
        a.slots = op_in(op, slot + 1)->dim[0];
        a.row_pages = op_in(op, slot + 1)->dim[1];
    }
    if (!args)
        return a;
    int scales = attention_scales(op), first = attention_first_at(op), sinks = attention_sinks(op);
    bool backward = op->kind == OP_ATTENTION_BACKWARD;
    a.q = args->in[0];
    a.k = args->in[1];
    a.v = args->in[2];
    a.start = args->in[3];
    a.length = args->in[4];
    a.slot = slot < 0 ? NULL : args->in[slot];
    a.table = slot < 0 ? NULL : args->in[slot + 1];
    a.first = first < 0 ? NULL : args->in[first];
    a.sinks = sinks < 0 ? NULL : args->in[sinks];
    a.sinks_dtype = sinks < 0 ? CVN_F32 : op_in(op, sinks)->dtype;
    a.k_scale = scales < 0 ? NULL : args->in[scales];
    a.v_scale = scales < 0 ? NULL : args->in[scales + 1];
    if (!backward) {
        a.out = args->out[0];
        return a;
    }
    a.dy = args->in[5];
    a.dq = args->out[0];
    a.dk = args->out[1];
    a.dv = args->out[2];
    a.dsinks = a.sinks ? args->out[3] : NULL;
    return a;
}

/* Whether positions are counted in 32 bits, and no block of so many of a slot lies in two pages. */
static inline bool attention_pages_match(const Op *op, int64_t block)
{
    int64_t page = op->operand[1]->type.dim[2], context = attention_context(op);
    return context <= INT32_MAX / 2 && page > 0 && (page == context || page % block == 0);
}

/* Whether there are no sinks, or some of a type that kernels read. */
static inline bool attention_sinks_match(const Op *op)
{
    return !op->attr.sinks || tile_dtype(op_in(op, attention_sinks(op))->dtype);
}

/* What a softmax begins with: the sink of a head is its largest score so far, and their sum is 1. */
static inline float attention_sink(const AttentionOperands *a, int64_t head, float *sum)
{
    float sink = -INFINITY;
    *sum = a->sinks ? 1.0f : 0.0f;
    return a->sinks ? *tile_read(a->sinks_dtype, a->sinks, head, 1, &sink) : sink;
}

/* The number, in the cache, of the key at a position of a row and a KV head. */
static inline int64_t attention_key(const AttentionOperands *a, int64_t b, int64_t h,
                                    int64_t position)
{
    int64_t page = a->slot ? a->table[a->slot[b] * a->row_pages + position / a->page] : b;
    return (page * a->kv_heads + h) * a->page + position % a->page;
}

/* Whether position s of a row, or of the run that begins with it, is no padding. */
static inline bool attention_real(const AttentionOperands *a, int64_t b, int64_t s)
{
    bool slot = !a->slot || (a->slot[b] >= 0 && a->slot[b] < a->slots);
    return slot && (a->seq == 1 ? a->length[b + s] > 0 : s < a->length[b]);
}

/* Positions that are taken together as those of row b: its own, or, of rows of one position, those rows from b on which go on in
   one slot, as a prompt does in a list of tokens. What is said of position s of a row holds for these as well. */
static inline int64_t attention_run(const AttentionOperands *a, int64_t b)
{
    int64_t n = 1;
    if (a->seq != 1 || !a->slot)
        return a->seq;
    while (b + n < a->batch && a->slot[b + n] == a->slot[b] && a->start[b + n] == a->start[b] + n &&
           (a->length[b + n] > 0) == (a->length[b] > 0))
        n++;
    return n;
}

/* Keys that position s of a row sees, as far as the context goes; its padding is not looked at. */
static inline int64_t attention_keys(const AttentionOperands *a, int64_t b, int64_t s)
{
    int64_t n = (int64_t)a->start[b] + s + 1;
    return n < 0 ? 0 : num_min(n, a->context);
}

/* The first of them. */
static inline int64_t attention_first_key(const AttentionOperands *a, int64_t b, int64_t s)
{
    int64_t n = a->first ? a->first[b * a->seq + s] : 0, position = (int64_t)a->start[b] + s;
    if (a->window)
        n = num_max(n, position - a->window + 1);
    if (a->chunk && position > 0)
        n = num_max(n, position / a->chunk * a->chunk);
    return n > 0 ? n : 0;
}

/* Keys first[i] … seen[i] - 1 are what query r0 + i of row b sees, both 0 where that is none, as of padding; of `all` queries, of
   which those past `rows` are as the last one. Query r is position r / group of head r % group of a KV head. Returns the end of
   the keys that any of them sees; *begin: the first. */
static inline int64_t attention_see(const AttentionOperands *a, int64_t b, int64_t r0, int64_t rows,
                                    int64_t all, int32_t *first, int32_t *seen, int64_t *begin)
{
    int64_t last = 0;
    *begin = INT32_MAX;
    for (int64_t i = 0; i < all; i++) {
        int64_t s = (r0 + num_min(i, rows - 1)) / a->group, from = attention_first_key(a, b, s);
        int64_t end = attention_real(a, b, s) ? attention_keys(a, b, s) : 0;
        if (from >= end)
            from = end = 0;
        else
            *begin = num_min(*begin, from);
        last = num_max(last, end);
        first[i] = (int32_t)from;
        seen[i] = (int32_t)end;
    }
    return last;
}

/* What n queries see together. */
typedef struct Seen {
    const int32_t *first, *seen; /* [n] */
    int64_t least_first, most_first, least, most;
} Seen;

static inline Seen seen_by(const int32_t *first, const int32_t *seen, int64_t n)
{
    Seen s = {first, seen, INT32_MAX, 0, INT32_MAX, 0};
    for (int64_t i = 0; i < n; i++) {
        s.least = num_min(seen[i], s.least);
        s.most = num_max(seen[i], s.most);
        s.least_first = num_min(first[i], s.least_first);
        s.most_first = num_max(first[i], s.most_first);
    }
    return s;
}

/* A block of positions of the heads that share KV head h of row b. */
typedef struct Positions {
    int64_t b, h, from, n;
    int64_t turn;        /* the next of this thread */
    int64_t run, before; /* the run that it is in begins with this row, behind so many blocks */
} Positions;

/* The thread's next block of at most `most` positions of runs of more than `few`; false: there is none, or nobody wants the
   results. Later positions see more keys than earlier ones, so threads take turns, forth and back. */
static inline bool attention_next(const AttentionOperands *a, const KernelArgs *args, int64_t few,
                                  int64_t most, Positions *p)
{
    const int64_t threads = args->n_threads;
    while (p->run < a->batch && !kernel_cancelled(args)) {
        int64_t n = attention_run(a, p->run), blocks = n > few ? num_pieces(n, most) : 0;
        int64_t i = p->turn * threads + (p->turn % 2 ? threads - 1 - args->thread : args->thread);
        i -= p->before;
        if (i >= a->kv_heads * blocks) {
            p->before += a->kv_heads * blocks;
            p->run += a->seq == 1 ? n : 1;
            continue;
        }
        p->turn++;
        p->b = p->run;
        p->h = i / blocks;
        p->from = i % blocks * most;
        p->n = num_min(most, n - p->from);
        return true;
    }
    return false;
}

#endif
