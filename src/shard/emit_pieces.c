/*
 * An exchange of pieces (pieces.h) as operations. A round cuts a window out
 * of the old shard, permutes it, and writes what is wanted of it into the
 * new one. The graph is the same on all devices, so where a window begins,
 * and which part of it is a piece, is looked up by the device's place.
 */
#include "shard/emit.h"

#include "base/num.h"

typedef struct PieceExchange {
    Emit *e;
    const cvn_type *before, *after; /* shards */
    int64_t margin[CVN_MAX_RANK]; /* [rank] around the new shard, for windows larger than a piece */
    cvn_value *into;              /* the new shard with its margins, as far as it is known */
} PieceExchange;

/* Where the window of a piece begins in the old shard: at the piece, or as much before it as makes
   the window end with the shard. */
static int64_t window_start(const PieceExchange *x, const PieceRound *round, const Piece *piece,
                            int d)
{
    int64_t last = x->before->dim[d] - round->window[d];
    return num_min(piece->from[d], last);
}

/* The same in the new shard, which may be before its
   beginning or so that it goes beyond its end. */
static int64_t window_target(const PieceExchange *x, const PieceRound *round, const Piece *piece,
                             int d)
{
    return piece->to[d] - (piece->from[d] - window_start(x, round, piece, d));
}

static void widen(PieceExchange *x, const PieceRound *round)
{
    for (int32_t i = 0; i < round->n; i++)
        for (int d = 0; d < x->after->rank; d++) {
            int64_t at = window_target(x, round, &round->piece[i], d);
            int64_t beyond = at + round->window[d] - x->after->dim[d];
            x->margin[d] = num_max(x->margin[d], num_max(-at, beyond));
        }
}

/* ---- numbers by place ---- */

/* A number for each place that takes part; other places have none. */
typedef struct Numbers {
    int32_t *v; /* [n_devices] */
    int32_t n_set, first;
    bool differ; /* not all numbers that were set are equal */
} Numbers;

static Numbers numbers(PieceExchange *x)
{
    size_t n = (size_t)x->e->mesh->n_devices;
    return (Numbers){.v = arena_array(&x->e->g->arena, n, sizeof(int32_t))};
}

static void set_number(Numbers *t, int32_t place, int64_t v)
{
    if (t->n_set++ == 0)
        t->first = (int32_t)v;
    t->differ = t->differ || t->first != v;
    t->v[place] = (int32_t)v;
}

/* The number of this device. With `all`, places without a number get 0. */
static cvn_value *number_here(PieceExchange *x, const Numbers *t, bool all)
{
    const int32_t n = x->e->mesh->n_devices;
    if (!t->differ && (!all || t->n_set == n))
        return emit_i32(x->e, t->first);
    return emit_lookup(x->e, t->v);
}

/* ---- a round ---- */

/* A mask that is true where the window holds elements that the device wants; NULL: on all devices it does so everywhere. */
static cvn_value *wanted(PieceExchange *x, const PieceRound *round)
{
    cvn_graph *g = x->e->g;
    cvn_value *mask = NULL;
    for (int d = 0; d < x->after->rank; d++) {
        Numbers low = numbers(x), high = numbers(x);
        for (int32_t i = 0; i < round->n; i++) {
            const Piece *p = &round->piece[i];
            int64_t begin = p->from[d] - window_start(x, round, p, d);
            set_number(&low, p->target, begin);
            set_number(&high, p->target, begin + p->size[d]);
        }
        bool everywhere = !low.differ && !high.differ && low.first == 0 &&
                          high.first == round->window[d] && high.n_set == x->e->mesh->n_devices;
        if (everywhere)
            continue;
        cvn_type row = CVN_TYPE(CVN_I32, round->window[d]), shape = *x->after;
        cvn_value *at = cvn_iota(g, row, 0);
        cvn_value *begin = cvn_broadcast_in_dim(g, number_here(x, &low, true), row, NULL);
        cvn_value *end = cvn_broadcast_in_dim(g, number_here(x, &high, true), row, NULL);
        cvn_value *in = cvn_compare_values(g, CVN_GE, at, begin);
        in = cvn_and(g, in, cvn_compare_values(g, CVN_LT, at, end));
        for (int i = 0; i < shape.rank; i++)
            shape.dim[i] = round->window[i];
        in = cvn_broadcast_in_dim(g, in, shape, &d);
        mask = mask ? cvn_and(g, mask, in) : in;
    }
    return mask;
}

static cvn_value *cut_window(PieceExchange *x, const PieceRound *round, cvn_value *shard)
{
    cvn_value *start[CVN_MAX_RANK];
    for (int d = 0; d < x->before->rank; d++) {
        Numbers at = numbers(x);
        for (int32_t i = 0; i < round->n; i++)
            set_number(&at, round->piece[i].source, window_start(x, round, &round->piece[i], d));
        start[d] = number_here(x, &at, false);
    }
    return cvn_dynamic_slice(x->e->g, shard, start, round->window);
}

static void write_window(PieceExchange *x, const PieceRound *round, cvn_value *window)
{
    cvn_graph *g = x->e->g;
    cvn_value *start[CVN_MAX_RANK], *mask = wanted(x, round);
    for (int d = 0; d < x->after->rank; d++) {
        Numbers at = numbers(x);
        for (int32_t i = 0; i < round->n; i++) {
            const Piece *p = &round->piece[i];
            set_number(&at, p->target, window_target(x, round, p, d) + x->margin[d]);
        }
        start[d] = number_here(x, &at, false);
    }
    if (mask)
        window = cvn_select(g, mask, window, cvn_dynamic_slice(g, x->into, start, round->window));
    x->into = cvn_dynamic_update_slice(g, x->into, window, start);
}

cvn_value *emit_pieces(Emit *e, cvn_value *shard, const cvn_type *after, const Pieces *pieces)
{
    const cvn_type before = shard->type;
    PieceExchange x = {.e = e, .before = &before, .after = after};
    int64_t end[CVN_MAX_RANK];
    cvn_type wide = *after;
    widen(&x, &pieces->own);
    for (int r = 0; r < pieces->n_rounds; r++)
        widen(&x, &pieces->round[r]);
    for (int d = 0; d < after->rank; d++) {
        wide.dim[d] += 2 * x.margin[d];
        end[d] = x.margin[d] + after->dim[d];
    }
    x.into = cvn_splat(e->g, wide, 0);
    if (pieces->own.n)
        write_window(&x, &pieces->own, cut_window(&x, &pieces->own, shard));
    for (int r = 0; r < pieces->n_rounds; r++) {
        const PieceRound *round = &pieces->round[r];
        int64_t *pair = arena_array(&e->g->arena, 2 * (size_t)round->n, sizeof *pair);
        for (int32_t i = 0; i < round->n; i++) {
            pair[2 * i] = mesh_device(e->mesh, round->piece[i].source);
            pair[2 * i + 1] = mesh_device(e->mesh, round->piece[i].target);
        }
        cvn_value *window = cut_window(&x, round, shard);
        write_window(&x, round, cvn_collective_permute(e->g, window, round->n, pair));
    }
    return cvn_slice(e->g, x.into, x.margin, end, NULL);
}
