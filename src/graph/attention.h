/* The operands of attention: q, k, v, start, length, of its gradient then dy, and then those that may be missing, in this
   order: the scales of k and v, where these are of 8 bits; the slot of each row, i32 [batch], and the table of pages, i32 [slots, n];
   the first key of each query, i32 [batch, seq]; the sinks, which the attribute of that name says. */
#ifndef CVN_GRAPH_ATTENTION_H
#define CVN_GRAPH_ATTENTION_H

#include "graph/graph.h"

enum { ATTENTION_MOST_OPERANDS = 11 };

/* Operands that are always there. */
static inline int attention_least(const Op *op)
{
    return op->kind == OP_ATTENTION ? 5 : 6;
}

/* Which operand is the scale of k; that of v is the next. -1: k and v are floats. */
static inline int attention_scales(const Op *op)
{
    bool eight = op->kind == OP_ATTENTION && op->operand[1]->type.dtype == CVN_I8;
    return eight ? attention_least(op) : -1;
}

/* Which operand is i32 [batch], the slot of each row of q; the next is the table of pages, i32 [slots, n]. -1: rows of q look at
   their own of k and v. */
static inline int attention_slot_at(const Op *op)
{
    int at = attention_least(op) + (attention_scales(op) < 0 ? 0 : 2);
    bool more = op->kind == OP_ATTENTION && op->n_operands > at + op->attr.sinks;
    return more && op->operand[at]->type.rank == 1 ? at : -1;
}

/* Which operand is i32 [batch, seq], the first key that each query sees; -1: key 0. */
static inline int attention_first_at(const Op *op)
{
    int at = attention_least(op) + (attention_scales(op) < 0 ? 0 : 2) +
             (attention_slot_at(op) < 0 ? 0 : 2);
    return op->n_operands > at + op->attr.sinks ? at : -1;
}

static inline cvn_value *attention_first(const Op *op)
{
    int at = attention_first_at(op);
    return at < 0 ? NULL : op->operand[at];
}

/* Which operand is [heads], a logit for each head that takes part in the softmax; -1: there is none. */
static inline int attention_sinks(const Op *op)
{
    return op->attr.sinks ? op->n_operands - 1 : -1;
}

/* cvn_attention in plain operations (ops/attention_plain.c): where it has a mask, sees keys behind it, or drops weights. */
cvn_value *attention_plain(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v, cvn_value *start,
                           cvn_value *length, const cvn_attention_spec *spec);

/* Whether it has to be so. */
static inline bool attention_is_plain(const cvn_attention_spec *spec)
{
    return spec->mask || spec->any_key || spec->dropout != 0;
}

/* Keys that queries at positions first … last see on average, each those before it and itself, and `reach` at most. */
static inline double attention_mean_keys(int64_t first, int64_t last, int64_t reach)
{
    int64_t n = last - first + 1, short_ones = reach - 1 - first; /* that see fewer than reach */
    short_ones = short_ones < 0 ? 0 : short_ones > n ? n : short_ones;
    double sum = (double)short_ones * ((double)first + (double)(short_ones + 1) / 2);
    return (sum + (double)(n - short_ones) * (double)reach) / (double)n;
}

/* Positions of a row's keys: those of all pages of its slot. */
static inline int64_t attention_context(const Op *op)
{
    int slot = attention_slot_at(op);
    int64_t page = op->operand[1]->type.dim[2];
    return slot < 0 ? page : page * op->operand[slot + 1]->type.dim[1];
}

/* So many keys a query sees at most. */
static inline int64_t attention_reach(const Op *op)
{
    int64_t n = attention_context(op), window = op->attr.sliding_window,
            chunk = op->attr.attention_chunk;
    n = window && window < n ? window : n;
    return chunk && chunk < n ? chunk : n;
}

/* Attention that goes over the keys block by block (Milakov and Gimelshein 2018, arXiv:1805.02867): of the keys so far, for each query
   the largest score, the sum of exp(score - largest), and that of these times the values. In f32, or f64 where the data are. */
typedef struct AttentionSoFar {
    cvn_value *y;          /* [batch, kv_heads, seq, group, head_dim] */
    cvn_value *most, *sum; /* [batch, kv_heads, seq, group] */
} AttentionSoFar;

/* Those of no key but the sinks. */
AttentionSoFar attention_begin(cvn_graph *g, const Op *op);
/* That operand i is i32 [batch]; that it is a table of pages, i32 [slots, n]. */
int attention_check_rows(const Op *op, int i, int64_t batch, const char *name, cvn_err *err);
int attention_check_table(const Op *op, int i, cvn_err *err);
/* Whether slots and the table of their pages are both given, or neither; else the graph has the error. */
bool attention_slots_whole(cvn_graph *g, const cvn_value *slot, const cvn_value *table);
/* Rows whose slot, i32 [batch], is one of so many: bools [batch]. */
cvn_value *attention_slot_there(cvn_graph *g, cvn_value *slot, int64_t slots);

/* The first key that each query sees, i32 [batch, seq]; NULL: key 0. */
cvn_value *attention_first_keys(cvn_graph *g, const Op *op);
/* The same with the keys at, at + 1, … (i32 scalar), as many as k, v and their scales among op's operands have. first: of
   attention_first_keys, or NULL. */
AttentionSoFar attention_step(cvn_graph *g, const Op *op, cvn_value *first, cvn_value *at,
                              AttentionSoFar before);
/* Of rows whose slot is not there no query is real: so many are of each, i32 [batch]. */
cvn_value *attention_length(cvn_graph *g, const Op *op);
/* x, keys, values or scales [pages, kv_heads, page, …], of each row: [batch, kv_heads, n page, …]. */
cvn_value *attention_own(cvn_graph *g, cvn_value *x, cvn_value *slot, cvn_value *table);
/* What op is of all keys. */
cvn_value *attention_end(cvn_graph *g, const Op *op, AttentionSoFar all);

#endif
