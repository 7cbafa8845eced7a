#include "shard/pieces.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

/* Which devices send a piece in a round, and which get one: [n_devices] by place. */
typedef struct Busy {
    bool *sends, *gets;
} Busy;

/* The pieces that are sent, and the places that hold each shard. */
typedef struct Planning {
    const Mesh *mesh;
    const cvn_type *type;
    const Sharding *from, *to;
    Arena *arena;
    int64_t n;
    Piece *piece;                 /* [n] */
    int32_t *holder, *first;      /* places by the shard they hold; where each shard's begin */
    Busy *busy;                   /* [n_rounds] */
    int64_t before[CVN_MAX_RANK]; /* [rank] shape of a shard under `from` */
    int64_t after[CVN_MAX_RANK];  /* [rank] and under `to` */
} Planning;

/* Which shard along each dimension has index `at`, as one number. */
static int32_t shard_number(const Sharding *s, const int64_t *at)
{
    int64_t number = 0;
    for (int d = 0; d < s->rank; d++)
        number = number * axes_size(&s->dim[d].axes) + at[d];
    return (int32_t)number;
}

static void shard_of(const Mesh *mesh, const Sharding *s, int32_t place, int64_t *at)
{
    for (int d = 0; d < s->rank; d++)
        at[d] = axes_digit(mesh, &s->dim[d].axes, place);
}

static void find_holders(Planning *p)
{
    int32_t n = p->mesh->n_devices, n_shards = 1;
    int64_t at[CVN_MAX_RANK];
    for (int d = 0; d < p->from->rank; d++)
        n_shards *= axes_size(&p->from->dim[d].axes);
    p->first = arena_array(p->arena, (size_t)n_shards + 2, sizeof *p->first);
    p->holder = arena_array(p->arena, (size_t)n, sizeof *p->holder);
    for (int32_t place = 0; place < n; place++) {
        shard_of(p->mesh, p->from, place, at);
        p->first[shard_number(p->from, at) + 2]++;
    }
    for (int32_t s = 2; s < n_shards + 2; s++)
        p->first[s] += p->first[s - 1];
    for (int32_t place = 0; place < n; place++) {
        shard_of(p->mesh, p->from, place, at);
        p->holder[p->first[shard_number(p->from, at) + 1]++] = place;
    }
}

/* Plans a piece from every shard that overlaps the one that the target wants. */
static void cut_target(Planning *p, int32_t target, PieceRound *own)
{
    const int rank = p->from->rank;
    int64_t want[CVN_MAX_RANK], mine[CVN_MAX_RANK], at[CVN_MAX_RANK];
    int64_t low[CVN_MAX_RANK], high[CVN_MAX_RANK]; /* of the shards that meet it */
    shard_of(p->mesh, p->to, target, want);
    shard_of(p->mesh, p->from, target, mine);
    for (int d = 0; d < rank; d++) {
        int64_t begin = want[d] * p->after[d], end = num_min(begin + p->after[d], p->type->dim[d]);
        if (begin >= end)
            return;
        at[d] = low[d] = begin / p->before[d];
        high[d] = num_pieces(end, p->before[d]);
    }
    for (int d = 0; d >= 0;) {
        /* The shard's number stands in `source` until the piece gets a round and a holder. */
        Piece piece = {.target = target, .source = shard_number(p->from, at)};
        for (int i = 0; i < rank; i++) {
            int64_t has = at[i] * p->before[i], wants = want[i] * p->after[i], n = p->type->dim[i];
            int64_t from = num_min(n, num_max(has, wants));
            int64_t to = num_min(n, num_min(has + p->before[i], wants + p->after[i]));
            piece.from[i] = from - has;
            piece.to[i] = from - wants;
            piece.size[i] = to - from;
        }
        if (memcmp(at, mine, (size_t)rank * sizeof *at) == 0) {
            piece.source = target;
            own->piece[own->n++] = piece;
        } else {
            p->piece = arena_more(p->arena, p->piece, (size_t)p->n, sizeof piece);
            p->piece[p->n++] = piece;
        }
        for (d = rank - 1; d >= 0 && ++at[d] == high[d]; d--)
            at[d] = low[d];
    }
}

static int64_t volume(const Piece *piece)
{
    int64_t n = 1;
    for (int d = 0; d < CVN_MAX_RANK; d++)
        n *= piece->size[d] ? piece->size[d] : 1;
    return n;
}

/* Large pieces come first, so that the pieces of a round have about the same size; equal ones are ordered by target. */
static int by_volume(const void *a, const void *b)
{
    const Piece *x = a, *y = b;
    int64_t m = volume(x), n = volume(y);
    if (m != n)
        return m > n ? -1 : 1;
    if (x->target != y->target)
        return x->target < y->target ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* A holder of the piece's shard that sends nothing in this round yet; -1: none. */
static int32_t free_holder(const Planning *p, const Piece *piece, const bool *sends)
{
    for (int32_t i = p->first[piece->source]; i < p->first[piece->source + 1]; i++)
        if (!sends[p->holder[i]])
            return p->holder[i];
    return -1;
}

static void measure(const Planning *p, PieceRound *round)
{
    int32_t group = p->mesh->n_devices;
    if (p->mesh->n_axes && mesh_axis_is_slow(p->mesh, 0))
        group /= p->mesh->axis[0].size;
    for (int32_t i = 0; i < round->n; i++) {
        const Piece *piece = &round->piece[i];
        round->slow = round->slow || piece->source / group != piece->target / group;
        for (int d = 0; d < p->from->rank; d++)
            round->window[d] = num_max(round->window[d], piece->size[d]);
    }
}

/* The first round in which its target gets nothing yet and one of its holders sends nothing. */
static void assign(Planning *p, const Piece *piece, Pieces *pieces)
{
    int32_t holder = -1;
    int r = 0;
    for (; r < pieces->n_rounds; r++) {
        holder = p->busy[r].gets[piece->target] ? -1 : free_holder(p, piece, p->busy[r].sends);
        if (holder >= 0)
            break;
    }
    if (holder < 0) {
        size_t n = (size_t)p->mesh->n_devices;
        pieces->round = arena_more(p->arena, pieces->round, (size_t)r, sizeof(PieceRound));
        p->busy = arena_more(p->arena, p->busy, (size_t)r, sizeof(Busy));
        pieces->round[r] = (PieceRound){.piece = arena_array(p->arena, n, sizeof(Piece))};
        p->busy[r].sends = arena_array(p->arena, n, sizeof(bool));
        p->busy[r].gets = arena_array(p->arena, n, sizeof(bool));
        pieces->n_rounds++;
        holder = free_holder(p, piece, p->busy[r].sends);
    }
    PieceRound *round = &pieces->round[r];
    p->busy[r].sends[holder] = p->busy[r].gets[piece->target] = true;
    round->piece[round->n] = *piece;
    round->piece[round->n++].source = holder;
}

Pieces *pieces_plan(const Mesh *mesh, const cvn_type *type, const Sharding *from,
                    const Sharding *to, Arena *arena)
{
    Planning p = {.mesh = mesh, .type = type, .from = from, .to = to, .arena = arena};
    Pieces *pieces = arena_array(arena, 1, sizeof *pieces);
    for (int d = 0; d < type->rank; d++) {
        p.before[d] = sharding_chunk(from, d, type->dim[d]);
        p.after[d] = sharding_chunk(to, d, type->dim[d]);
    }
    pieces->own.piece = arena_array(arena, (size_t)mesh->n_devices, sizeof(Piece));
    find_holders(&p);
    for (int32_t target = 0; target < mesh->n_devices; target++)
        cut_target(&p, target, &pieces->own);
    if (p.n)
        qsort(p.piece, (size_t)p.n, sizeof *p.piece, by_volume);
    for (int64_t i = 0; i < p.n; i++)
        assign(&p, &p.piece[i], pieces);
    measure(&p, &pieces->own);
    for (int r = 0; r < pieces->n_rounds; r++)
        measure(&p, &pieces->round[r]);
    return pieces;
}

double piece_bytes(const PieceRound *round, const cvn_type *type)
{
    int64_t n = 1;
    for (int d = 0; d < type->rank; d++)
        n *= round->window[d];
    return (double)cvn_dtype_bytes(type->dtype, n);
}
