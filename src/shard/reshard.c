#include "shard/reshard.h"

#include "base/map.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a digit is: DIM * AXES_MAX + position on a dimension, or one of these. */
enum { UNUSED = 255, UNREDUCED = 254 };
enum { MOST_STATES = 1024, SLOTS = 2 * MOST_STATES };

/* What a collective and each hop of it cost beside the
   bytes, in bytes, and how much slower the slow axis is. */
static const double START_BYTES = 4096, HOP_BYTES = 256, SLOW = 10;

typedef struct State {
    uint8_t at[AXES_MAX]; /* [n_digits] */
} State;

typedef struct Node {
    State state;
    double bytes; /* that a device holds */
    double cost;  /* of the moves from the start to it */
    double bound; /* lower bound of the cost from it to the goal */
    int parent;   /* -1 at the start */
    bool done;
    uint8_t kind, dim, from_dim, n_moved; /* the move that led here; dim UNUSED where it has none */
    uint8_t moved[AXES_MAX];              /* digits, in order */
} Node;

typedef struct Search {
    const Mesh *mesh;
    const cvn_type *type;
    int n_digits;
    AxisRef digit[AXES_MAX]; /* [n_digits] */
    State goal;
    double most; /* bytes that a device may hold */
    cvn_reduce how;
    int n;
    Node *node;                  /* [n], room for MOST_STATES */
    double promise[MOST_STATES]; /* [n] least cost of a way through it; INFINITY: looked at */
    uint16_t slot[SLOTS];        /* by the hash of their states: number of a node + 1; 0: none */
} Search;

/* The digits on a dimension, in order. */
typedef struct Digits {
    int n;
    uint8_t v[AXES_MAX]; /* [n] */
} Digits;

/* ---- digits ---- */

typedef struct Borders {
    int n;
    int32_t v[4 * AXES_MAX]; /* [n], ascending */
} Borders;

static void add_border(Borders *b, int32_t x)
{
    int i = b->n;
    for (int j = 0; j < b->n; j++)
        if (b->v[j] == x)
            return;
    for (; i > 0 && b->v[i - 1] > x; i--)
        b->v[i] = b->v[i - 1];
    b->v[i] = x;
    b->n++;
}

/* Every list of axes of a sharding: its dimensions, then the unreduced ones. */
static const AxisList *list_of(const Sharding *s, int i)
{
    return i < s->rank ? &s->dim[i].axes : &s->unreduced;
}

static void axis_borders(const Sharding *s, int axis, Borders *borders)
{
    for (int l = 0; l <= s->rank; l++)
        for (int i = 0; i < list_of(s, l)->n; i++) {
            AxisRef ref = list_of(s, l)->ref[i];
            if (ref.axis == axis) {
                add_border(borders, ref.pre);
                add_border(borders, ref.pre * ref.size);
            }
        }
}

/* Cuts the axes of both shardings into common digits; false when there are none, as for the parts 2
   and 3 of an axis of 6. */
static bool find_digits(Search *s, const Sharding *from, const Sharding *to)
{
    for (int axis = 0; axis < s->mesh->n_axes; axis++) {
        Borders b = {0};
        axis_borders(from, axis, &b);
        axis_borders(to, axis, &b);
        for (int i = 0; i + 1 < b.n; i++) {
            if (b.v[i + 1] % b.v[i])
                return false;
            AxisRef ref = {axis, b.v[i], b.v[i + 1] / b.v[i]};
            if (!sharding_uses(from, ref) && !sharding_uses(to, ref))
                continue;
            if (s->n_digits == AXES_MAX)
                return false;
            s->digit[s->n_digits++] = ref;
        }
    }
    return true;
}

/* The digits that a list is made of get these places, first, first + 1, … */
static void place(const Search *s, const AxisList *list, int first, int step, State *state)
{
    for (int i = 0; i < list->n; i++)
        for (int32_t pre = list->ref[i].pre, end = pre * list->ref[i].size; pre < end;)
            for (int j = 0; j < s->n_digits; j++)
                if (s->digit[j].axis == list->ref[i].axis && s->digit[j].pre == pre) {
                    state->at[j] = (uint8_t)first;
                    first += step;
                    pre *= s->digit[j].size;
                    break;
                }
}

static State state_of(const Search *s, const Sharding *sharding)
{
    State state;
    memset(&state, UNUSED, sizeof state);
    for (int d = 0; d < sharding->rank; d++)
        place(s, &sharding->dim[d].axes, d * AXES_MAX, 1, &state);
    place(s, &sharding->unreduced, UNREDUCED, 0, &state);
    return state;
}

static Digits digits_on(const Search *s, const State *state, int d)
{
    Digits digits = {0};
    for (int i = 0; i < s->n_digits; i++)
        if (state->at[i] / AXES_MAX == d)
            digits.v[state->at[i] % AXES_MAX] = (uint8_t)i, digits.n++;
    return digits;
}

static bool same_state(const State *a, const State *b)
{
    return memcmp(a->at, b->at, sizeof a->at) == 0;
}

static Sharding sharding_at(const Search *s, const State *state)
{
    Sharding sharding = {.rank = s->type->rank, .how = s->how};
    for (int d = 0; d < sharding.rank; d++) {
        Digits on = digits_on(s, state, d);
        for (int i = 0; i < on.n; i++)
            axes_add(&sharding.dim[d].axes, s->digit[on.v[i]]);
    }
    for (int i = 0; i < s->n_digits; i++)
        if (state->at[i] == UNREDUCED)
            axes_add(&sharding.unreduced, s->digit[i]);
    return sharding;
}

/* ---- sizes and costs ---- */

static int64_t shards_on(const Search *s, const Digits *on, int n)
{
    int64_t shards = 1;
    for (int i = 0; i < n; i++)
        shards *= s->digit[on->v[i]].size;
    return shards;
}

/* Chunks of the finer of two splittings make up those of the coarser; also where the coarser is the
   whole dimension, which can be padded and trimmed. */
static bool agree(const Search *s, const Digits *on, int d, int coarse, int fine)
{
    int64_t n = s->type->dim[d], few = shards_on(s, on, coarse), many = shards_on(s, on, fine);
    return few == 1 || num_pieces(n, few) == num_pieces(n, many) * (many / few);
}

static double local_bytes(const Search *s, const State *state)
{
    double bytes = (double)cvn_dtype_bytes(s->type->dtype, 2) / 2;
    int64_t shards[CVN_MAX_RANK + 1];
    for (int d = 0; d < s->type->rank; d++)
        shards[d] = 1;
    for (int i = 0; i < s->n_digits; i++)
        if (state->at[i] < UNREDUCED)
            shards[state->at[i] / AXES_MAX] *= s->digit[i].size;
    for (int d = 0; d < s->type->rank; d++)
        bytes *= (double)num_pieces(s->type->dim[d], shards[d]);
    return bytes;
}

/* What each device sends in a move over n devices, where `small` and `large` are the bytes of its
   shard on the two sides. */
static double bytes_of(ReshardKind kind, double n, double small, double large)
{
    switch (kind) {
    case RESHARD_SLICE:
        return 0;
    case RESHARD_ALL_GATHER:
    case RESHARD_REDUCE_SCATTER:
        return (small * n > large ? small * n : large) * (n - 1) / n;
    case RESHARD_ALL_REDUCE:
        return 2 * small * (n - 1) / n;
    case RESHARD_ALL_TO_ALL:
        return large * (n - 1) / n;
    case RESHARD_PERMUTE:
    case RESHARD_PIECES:
    case RESHARD_KINDS:
        break;
    }
    return large;
}

/* ---- the search ---- */

static double bytes_between(const Search *s, const Node *parent, const Node *node, double *group)
{
    double before = parent->bytes, after = node->bytes;
    *group = 1;
    for (int i = 0; i < node->n_moved; i++)
        *group *= s->digit[node->moved[i]].size;
    return bytes_of((ReshardKind)node->kind, *group, fmin(before, after), fmax(before, after));
}

/* The node of a state, or a new one; NULL where there are too many, or devices would hold too much. */
static Node *node_at(Search *s, const State *state)
{
    size_t at = hash_bytes(state->at, sizeof state->at) % SLOTS;
    for (; s->slot[at]; at = (at + 1) % SLOTS)
        if (same_state(&s->node[s->slot[at] - 1].state, state))
            return &s->node[s->slot[at] - 1];
    double bytes = local_bytes(s, state);
    if (s->n == MOST_STATES || bytes > s->most)
        return NULL;
    Node *node = &s->node[s->n++];
    s->slot[at] = (uint16_t)s->n;
    *node = (Node){.state = *state, .bytes = bytes, .cost = INFINITY, .parent = -1};
    /* The bound is at most the cost of any way to the goal. Where slices alone do not lead there, some move is no slice; after the
       last such move each device holds at least its shard at the goal, and received at least half of it in that move. */
    for (int i = 0; i < s->n_digits; i++)
        if (state->at[i] != s->goal.at[i] && state->at[i] != UNUSED)
            node->bound = START_BYTES + local_bytes(s, &s->goal) / 2;
    return node;
}

/* Enters the state that a move leads to, or records a cheaper way to it if it is known. */
static void reach(Search *s, int parent, Node *move)
{
    static const double hops[RESHARD_KINDS] = {0, 1, 1, 2, 1, 0, 0};
    double group;
    Node *node = node_at(s, &move->state);
    if (!node || node->done)
        return;
    move->bytes = node->bytes;
    move->bound = node->bound;
    move->parent = parent;
    double bytes = bytes_between(s, &s->node[parent], move, &group);
    double cost = bytes + START_BYTES + HOP_BYTES * hops[move->kind] * (group - 1);
    if (move->kind == RESHARD_SLICE)
        cost = 1;
    bool slow = false;
    for (int i = 0; i < move->n_moved; i++)
        slow = slow || mesh_axis_is_slow(s->mesh, s->digit[move->moved[i]].axis);
    move->cost = s->node[parent].cost + cost * (slow ? SLOW : 1);
    if (move->cost >= node->cost)
        return;
    *node = *move;
    s->promise[node - s->node] = move->cost + move->bound;
}

/* How many digits at the head of a dimension are where they should be, and need never move. */
static int settled(const Search *s, const Digits *on, int d)
{
    Digits want = digits_on(s, &s->goal, d);
    int n = 0;
    while (n < on->n && n < want.n && on->v[n] == want.v[n])
        n++;
    bool all = n == on->n && n == want.n;
    return all || (agree(s, on, d, n, on->n) && agree(s, &want, d, n, want.n)) ? n : 0;
}

static int goal_dim(const Search *s, int digit)
{
    return s->goal.at[digit] < UNREDUCED ? s->goal.at[digit] / AXES_MAX : -1;
}

/* Digits `run` go to the end of dimension d: sliced, scattered or sent there. */
static void try_append(Search *s, int parent, ReshardKind kind, int d, int from_dim,
                       const uint8_t *run, int n)
{
    Node node = {.state = s->node[parent].state, .kind = (uint8_t)kind, .dim = (uint8_t)d};
    Digits on = digits_on(s, &node.state, d);
    int before = on.n;
    for (int i = 0; i < n; i++) {
        node.state.at[run[i]] = (uint8_t)(d * AXES_MAX + on.n);
        on.v[on.n++] = run[i];
        node.moved[node.n_moved++] = run[i];
    }
    node.from_dim = (uint8_t)from_dim;
    if (agree(s, &on, d, before, on.n))
        reach(s, parent, &node);
}

/* Slices and scatters: single digits, and what a dimension still lacks, to any length. */
static void appends(Search *s, int parent)
{
    for (int d = 0; d < s->type->rank; d++) {
        Digits want = digits_on(s, &s->goal, d), on = digits_on(s, &s->node[parent].state, d);
        bool prefix = on.n <= want.n && memcmp(on.v, want.v, (size_t)on.n) == 0;
        for (int i = 0; i < want.n; i++)
            for (int n = 1; i + n <= want.n; n++) {
                uint8_t at = s->node[parent].state.at[want.v[i]];
                bool same = at >= UNREDUCED && (n == 1 || (prefix && i == on.n));
                for (int j = i; j < i + n; j++)
                    same = same && s->node[parent].state.at[want.v[j]] == at;
                if (same)
                    try_append(s, parent, at == UNUSED ? RESHARD_SLICE : RESHARD_REDUCE_SCATTER, d,
                               0, want.v + i, n);
            }
    }
}

/* Digits that are unused go where they should be, behind others that are: at once, since all that
   comes later has less to move then. False where there are none. */
static bool slices_home(Search *s, int parent)
{
    const State *now = &s->node[parent].state;
    for (int d = 0; d < s->type->rank; d++) {
        Digits want = digits_on(s, &s->goal, d), on = digits_on(s, now, d);
        int n = on.n;
        if (settled(s, &on, d) < n)
            continue;
        while (n < want.n && now->at[want.v[n]] == UNUSED)
            n++;
        while (n > on.n && !agree(s, &want, d, n, want.n))
            n--;
        if (n > on.n && agree(s, &want, d, on.n, n)) {
            try_append(s, parent, RESHARD_SLICE, d, 0, want.v + on.n, n - on.n);
            return true;
        }
    }
    return false;
}

static void all_reduces(Search *s, int parent)
{
    Node node = {.state = s->node[parent].state, .kind = RESHARD_ALL_REDUCE, .dim = UNUSED};
    for (int i = 0; i < s->n_digits; i++)
        if (node.state.at[i] == UNREDUCED && s->goal.at[i] != UNREDUCED) {
            node.state.at[i] = UNUSED;
            node.moved[node.n_moved++] = (uint8_t)i;
        }
    if (node.n_moved)
        reach(s, parent, &node);
}

/* The last digits of a dimension go to others, or to none. */
static void removals(Search *s, int parent)
{
    for (int d = 0; d < s->type->rank; d++) {
        Digits on = digits_on(s, &s->node[parent].state, d);
        for (int keep = settled(s, &on, d); keep < on.n; keep++) {
            if (!agree(s, &on, d, keep, on.n))
                continue;
            Node node = {.state = s->node[parent].state, .kind = RESHARD_ALL_GATHER};
            node.dim = (uint8_t)d;
            int to = goal_dim(s, on.v[keep]);
            for (int i = keep; i < on.n; i++) {
                node.state.at[on.v[i]] = UNUSED;
                node.moved[node.n_moved++] = on.v[i];
                to = goal_dim(s, on.v[i]) == to ? to : -1;
            }
            if (to >= 0 && to != d)
                try_append(s, parent, RESHARD_ALL_TO_ALL, to, d, on.v + keep, on.n - keep);
            reach(s, parent, &node);
        }
    }
}

/* Digits of one size change places so that one is where it should be; or all at once. */
static void permutes(Search *s, int parent)
{
    State now = s->node[parent].state;
    for (int b = 0; b < s->n_digits; b++) {
        uint8_t want = s->goal.at[b];
        if (want >= UNREDUCED || now.at[b] == want || now.at[b] == UNREDUCED)
            continue;
        for (int a = 0; a < s->n_digits; a++) {
            if (now.at[a] != want || s->digit[a].size != s->digit[b].size)
                continue;
            Node node = {.state = now, .kind = RESHARD_PERMUTE, .dim = UNUSED, .n_moved = 2};
            node.state.at[a] = now.at[b];
            node.state.at[b] = want;
            node.moved[0] = (uint8_t)a;
            node.moved[1] = (uint8_t)b;
            reach(s, parent, &node);
        }
    }
    Node all = {.state = s->goal, .kind = RESHARD_PERMUTE, .dim = UNUSED};
    bool fits = true;
    for (int d = 0; d < s->type->rank; d++) {
        Digits have = digits_on(s, &now, d), want = digits_on(s, &s->goal, d);
        fits = fits && shards_on(s, &have, have.n) == shards_on(s, &want, want.n);
    }
    for (int i = 0; i < s->n_digits; i++) {
        fits = fits && (now.at[i] == UNREDUCED) == (s->goal.at[i] == UNREDUCED);
        if (now.at[i] != s->goal.at[i])
            all.moved[all.n_moved++] = (uint8_t)i;
    }
    if (fits)
        reach(s, parent, &all);
}

/* The node of the goal; -1 when it was not found among so many states. */
static int search(Search *s)
{
    for (;;) {
        int best = 0;
        for (int i = 1; i < s->n; i++)
            if (s->promise[i] < s->promise[best])
                best = i;
        if (s->promise[best] == INFINITY)
            return -1;
        if (same_state(&s->node[best].state, &s->goal))
            return best;
        s->node[best].done = true;
        s->promise[best] = INFINITY;
        if (slices_home(s, best))
            continue;
        appends(s, best);
        all_reduces(s, best);
        removals(s, best);
        permutes(s, best);
    }
}

static void write_step(const Search *s, int at, Reshard *plan, int slot)
{
    const Node *node = &s->node[at];
    ReshardStep *step = &plan->step[slot];
    double group;
    *step = (ReshardStep){.kind = (ReshardKind)node->kind,
                          .dim = node->dim == UNUSED ? -1 : node->dim,
                          .from_dim = node->from_dim,
                          .after = sharding_at(s, &node->state)};
    step->bytes = bytes_between(s, &s->node[node->parent], node, &group);
    plan->bytes += step->bytes;
    for (int i = 0; i < node->n_moved; i++) {
        if (node->kind != RESHARD_PERMUTE)
            axes_add(&step->axes, s->digit[node->moved[i]]);
    }
}

/* ---- without a search ---- */

/* Reduces what is to be reduced, and exchanges the rest piece by piece. */
static void plan_by_pieces(const Mesh *mesh, const cvn_type *type, const Sharding *from,
                           const Sharding *to, Arena *arena, Reshard *plan)
{
    Sharding now = *from;
    AxisList pending = from->unreduced;
    for (int i = 0; i < to->unreduced.n; i++)
        pending = axes_remove(&pending, to->unreduced.ref[i]);
    plan->padded = *type;
    plan->step = arena_array(arena, 2, sizeof *plan->step);
    if (pending.n) {
        const cvn_type local = sharding_local(from, type);
        double n = axes_size(&pending), bytes = (double)cvn_type_bytes(&local);
        ReshardStep *step = &plan->step[plan->n++];
        now.unreduced = to->unreduced;
        *step = (ReshardStep){RESHARD_ALL_REDUCE, .dim = -1, .axes = pending, .after = now};
        step->bytes = bytes_of(RESHARD_ALL_REDUCE, n, bytes, bytes);
        bool slow = false;
        for (int i = 0; i < pending.n; i++)
            slow = slow || mesh_axis_is_slow(mesh, pending.ref[i].axis);
        plan->cost += (step->bytes + START_BYTES + 2 * HOP_BYTES * (n - 1)) * (slow ? SLOW : 1);
    }
    ReshardStep *step = &plan->step[plan->n++];
    *step = (ReshardStep){.kind = RESHARD_PIECES, .dim = -1, .after = *to};
    step->pieces = pieces_plan(mesh, type, &now, to, arena);
    double cost = 1; /* as a slice */
    for (int r = 0; r < step->pieces->n_rounds; r++) {
        const PieceRound *round = &step->pieces->round[r];
        double bytes = piece_bytes(round, type);
        step->bytes += bytes;
        cost += (bytes + START_BYTES) * (round->slow ? SLOW : 1);
    }
    plan->cost += cost;
    for (int i = 0; i < plan->n; i++)
        plan->bytes += plan->step[i].bytes;
}

static bool plan_by_search(Search *s, const Sharding *from, const Sharding *to, Arena *arena,
                           Reshard *plan)
{
    s->goal = state_of(s, to);
    const State start = state_of(s, from);
    s->most = fmax(local_bytes(s, &start), local_bytes(s, &s->goal));
    node_at(s, &start)->cost = s->promise[0] = 0;
    int at = search(s), n = 0;
    for (int i = at; i > 0; i = s->node[i].parent)
        n++;
    if (at < 0)
        return false;
    plan->n = n;
    plan->step = arena_array(arena, (size_t)n, sizeof *plan->step);
    plan->cost = s->node[at].cost;
    for (int i = at; i > 0; i = s->node[i].parent)
        write_step(s, i, plan, --n);
    return true;
}

Reshard reshard_plan(const Mesh *mesh, const cvn_type *type, const Sharding *from,
                     const Sharding *to, Arena *arena)
{
    Reshard plan = {.padded = *type};
    Search s = {.mesh = mesh, .type = &plan.padded, .how = from->how};
    for (int d = 0; d < type->rank; d++) {
        const Sharding *split = from->dim[d].axes.n ? from : to;
        int64_t chunk = sharding_chunk(split, d, type->dim[d]);
        if (from->dim[d].axes.n == 0 || to->dim[d].axes.n == 0)
            plan.padded.dim[d] = chunk * axes_size(&split->dim[d].axes);
    }
    if (sharding_same(from, to))
        return plan;
    s.node = malloc(MOST_STATES * sizeof *s.node);
    if (!s.node)
        protect_abandon(MOST_STATES * sizeof *s.node);
    Cleanup cleanup;
    cleanup_push(&cleanup, free, s.node);
    bool found = find_digits(&s, from, to) && plan_by_search(&s, from, to, arena, &plan);
    cleanup_run(&cleanup);
    if (!found)
        plan_by_pieces(mesh, type, from, to, arena, &plan);
    const cvn_type begin = sharding_local(from, &plan.padded);
    const cvn_type end = sharding_local(to, &plan.padded);
    int64_t most = num_max(cvn_type_elements(&begin), cvn_type_elements(&end));
    for (int i = 0; i < plan.n; i++) {
        const cvn_type now = sharding_local(&plan.step[i].after, &plan.padded);
        plan.involuntary = plan.involuntary || cvn_type_elements(&now) > most;
    }
    return plan;
}
