/*
 * One walk along the graph with two clocks, that of computing and that of the link. Every operation keeps its index;
 * what moves gets the index before which it goes as its key, and sorting by keys is the new order.
 */
#include "compile/schedule.h"

#include "comm/comm.h"
#include "compile/liveness.h"
#include "compile/lower.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What a device computes and moves in a second. Only the ratio to the link counts; where the device is slower, what
   is fetched ahead waits a little longer. */
static const double FLOPS = 5e10, BYTES = 1e10;
static const Link LINK_DEFAULT = {50e-6, 2e9};
static const double EARLIER =
    2;                  /* times a link needs: how much before its use something is fetched */
enum { OPEN_MOST = 8 }; /* collectives under way; less than COLLECTIVES_IN_FLIGHT */

/* An operation of the graph. */
typedef struct Node {
    Op *op;
    double cost;  /* seconds of computing; 0 for collectives */
    double link;  /* seconds on the link, of collectives that can be split; else 0 */
    double there; /* when the collective under way will be there */
    double bytes; /* of its result */
    int use;      /* index of the first user that is no view, n when there is none */
    int users;    /* operations and outputs */
    int ready;    /* of a collective: the index from which on it could start */
    int begin;    /* of a collective: the index before which it should start */
    int start;    /* … before which it starts; -1 when it has not */
    int key;      /* the index before which it goes, its own where it stays */
    bool ahead;   /* a collective that is fetched before its place */
    bool first;   /* it goes before what stays at the index of its key */
    bool view;
    bool
        given; /* a parameter, a constant of the plan, or a view of one: there before the first step */
} Node;

typedef struct Scheduling {
    cvn_graph *g;
    Arena arena; /* of what follows */
    Node *node;  /* [n] in the order of the graph */
    double *at;  /* [n + 1] seconds of computing before each */
    int *def;    /* [n_values] index of the operation that makes it */
    int n;
    int next; /* the first collective that may be fetched ahead and has not started */
    int open[COLLECTIVES_IN_FLIGHT]; /* indices of collectives, in order of their start; -1: done */
    int n_open;                      /* of them, from the oldest that is not done */
    double fetched;                  /* bytes that are there ahead of their use, or under way */
    double now, link_free;           /* the clocks */
    double latency;
} Scheduling;

static Link link_or_default(Link link)
{
    return link.latency <= 0 && link.bandwidth <= 0 ? LINK_DEFAULT : link;
}

static double compute_seconds(const Op *op)
{
    if (!op_is_step(op) || op_info[op->kind].class_ == CLASS_COLLECTIVE)
        return 0;
    double flops = op_flops(op) / FLOPS, bytes = (double)op_bytes(op) / BYTES;
    return flops > bytes ? flops : bytes;
}

/* Without the latency. */
static double link_seconds(const Op *op, Link link)
{
    return link.bandwidth > 0 ? comm_ring_bytes(op) / link.bandwidth : 0;
}

static bool is_exchange(const Op *op)
{
    return op_info[op->kind].class_ == CLASS_COLLECTIVE && op->kind != OP_PARTITION_ID &&
           op_is_step(op);
}

/* ---- what there is ---- */

static void find_uses(Scheduling *s)
{
    for (int i = s->n - 1; i >= 0; i--) {
        Node *node = &s->node[i];
        int use = node->view ? node->use : i;
        for (int k = 0; k < node->op->n_operands; k++) {
            Node *from = &s->node[s->def[node->op->operand[k]->id]];
            from->use = use < from->use ? use : from->use;
            from->users++;
        }
    }
    for (int i = 0; i < s->g->n_outputs; i++)
        s->node[s->def[s->g->output[i].value->id]].users++;
}

/* An operation that only prepares the operand of one collective: a weight that is converted before it is gathered.
   It moves with the collective's start. */
static bool feeds(const Node *node)
{
    const Op *op = node->op;
    return op->n_operands == 1 && op->n_results == 1 && node->users == 1 && node->link <= 0 &&
           !is_exchange(op) &&
           (node->view || op_info[op->kind].class_ == CLASS_UNARY || op->kind == OP_CONVERT ||
            op->kind == OP_TRANSPOSE);
}

/* From where on a collective could start, if what feeds it moved too. Parameters and constants of the plan, which go to
   the front, are there from the beginning. */
static int find_ready(const Scheduling *s, const Node *node)
{
    const Node *from = &s->node[s->def[node->op->operand[0]->id]];
    while (feeds(from))
        from = &s->node[s->def[from->op->operand[0]->id]];
    const Node *root = from;
    while (root->view)
        root = &s->node[s->def[root->op->operand[0]->id]];
    if (is_exchange(root->op))
        return (int)(node - s->node);
    return from->given ? 0 : (int)(from - s->node) + 1;
}

static int open_graph(Scheduling *s, cvn_graph *g, const Backend *backend, Link link, cvn_err *err)
{
    *s = (Scheduling){.g = g, .latency = link.latency};
    int rc = arena_init(&s->arena, err);
    if (rc)
        return rc;
    s->node = arena_array(&s->arena, (size_t)g->n_ops + 1, sizeof *s->node);
    s->at = arena_array(&s->arena, (size_t)g->n_ops + 1, sizeof *s->at);
    s->def = arena_array(&s->arena, (size_t)g->n_values + 1, sizeof *s->def);
    for (Op *op = g->first; op; op = op->next) {
        size_t offset;
        const Kernel *kernel = is_exchange(op) ? lower_kernel(backend, op) : NULL;
        Node *node = &s->node[s->n];
        *node = (Node){.op = op, .use = (int)g->n_ops, .view = op_is_view(op, &offset)};
        node->given = node->view ? s->node[s->def[op->operand[0]->id]].given
                                 : op->n_operands == 0 && !op_is_step(op);
        node->cost = compute_seconds(op);
        if (kernel && kernel->start)
            node->link = link_seconds(op, link) + link.latency;
        for (int k = 0; k < op->n_results; k++) {
            s->def[op->result[k]->id] = s->n;
            node->bytes += (double)cvn_type_bytes(&op->result[k]->type);
        }
        s->at[s->n + 1 <= g->n_ops ? s->n + 1 : s->n] = s->at[s->n] + node->cost;
        s->n++;
    }
    find_uses(s);
    return CVN_OK;
}

/* The latest begin of each collective that can be fetched ahead, from the last to the first: the link carries one
   after the other. */
static void find_begins(Scheduling *s)
{
    double next = 1e300; /* when the link is wanted by those after it */
    for (int i = s->n - 1; i >= 0; i--) {
        Node *node = &s->node[i];
        if (node->link <= 0)
            continue;
        node->ready = find_ready(s, node);
        node->ahead = s->at[i] - s->at[node->ready] > 0;
        double end = node->ahead ? s->at[i] : s->at[i] + node->link;
        end = end < next ? end : next;
        double begin = end - EARLIER * node->link;
        next = end - (node->link - s->latency);
        node->begin = i;
        while (node->ahead && node->begin > node->ready && s->at[node->begin] > begin)
            node->begin--;
    }
}

/* ---- the walk ---- */

/* The collective at index c ends before index i; the device waits for it if it must. */
static void end(Scheduling *s, int c, int i)
{
    Node *node = &s->node[c];
    node->key = i;
    s->now = node->there > s->now ? node->there : s->now;
    s->fetched -= node->ahead ? node->bytes : 0;
    int past = 0;
    for (int k = 0; k < s->n_open; k++)
        s->open[k] = s->open[k] == c ? -1 : s->open[k];
    while (past < s->n_open && s->open[past] < 0)
        past++;
    s->n_open -= past;
    memmove(s->open, s->open + past, (size_t)s->n_open * sizeof *s->open);
}

/* The collective at index c, and what feeds it, go before index i. */
static void begin(Scheduling *s, int c, int i)
{
    if (s->n_open == OPEN_MOST)
        end(s, s->open[0], i);
    Node *node = &s->node[c];
    node->start = i;
    double from = s->link_free > s->now ? s->link_free : s->now;
    s->link_free = from + node->link - s->latency;
    node->there = from + node->link;
    s->open[s->n_open++] = c;
    s->fetched += node->ahead ? node->bytes : 0;
    Node *feeder = &s->node[s->def[node->op->operand[0]->id]];
    for (; i < c && feeds(feeder); feeder = &s->node[s->def[feeder->op->operand[0]->id]]) {
        feeder->first = true;
        feeder->key = (int)(feeder - s->node) > i ? i : feeder->key;
    }
}

/* Starts what is to be fetched ahead and is due, in order, while there is room. */
static void begin_due(Scheduling *s, int i, double room)
{
    for (; s->next < s->n; s->next++) {
        const Node *node = &s->node[s->next];
        if (node->link <= 0 || !node->ahead || node->start >= 0)
            continue;
        if (node->begin > i || node->ready > i || s->n_open == OPEN_MOST ||
            s->fetched + node->bytes > room)
            return;
        begin(s, s->next, i);
    }
}

/* Ends what is used by the operation at index i, and what has only its operand to hold on to and should be there. */
static void end_due(Scheduling *s, int i)
{
    for (int k = 0; k < s->n_open;) {
        int c = s->open[k];
        const Node *node = c < 0 ? NULL : &s->node[c];
        if (node && (node->use <= i || (!node->ahead && node->there <= s->now && c < i))) {
            end(s, c, i);
            k = 0;
        } else {
            k++;
        }
    }
}

static void walk(Scheduling *s, double room)
{
    s->now = s->link_free = s->fetched = 0;
    s->n_open = s->next = 0;
    for (int i = 0; i < s->n; i++) {
        s->node[i].key = s->node[i].given ? -1 : i;
        s->node[i].start = -1;
        s->node[i].first = false;
    }
    for (int i = 0; i < s->n; i++) {
        Node *node = &s->node[i];
        if (node->view && node->key < s->node[s->def[node->op->operand[0]->id]].key)
            node->key = s->node[s->def[node->op->operand[0]->id]].key;
        end_due(s, i);
        begin_due(s, i, room);
        if (node->link > 0 && node->start < 0)
            begin(s, i, i);
        s->now += node->cost;
    }
    while (s->n_open) {
        int oldest = s->open[0];
        end(s, oldest, s->n);
    }
    /* Views of what ended after their place, now that all ends are known. */
    for (int i = 0; i < s->n; i++) {
        Node *node = &s->node[i];
        int from = node->view ? s->node[s->def[node->op->operand[0]->id]].key : 0;
        node->key = node->key > from || from <= i ? node->key : from;
    }
}

/* ---- the order ---- */

/* A place in the new order: first what moved before an index, then what starts there, then what stayed. */
typedef struct Entry {
    int key, rank, index;
} Entry;

static int by_place(const void *left, const void *right)
{
    const Entry *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank - b->rank;
    return a->index - b->index;
}

static int add_entries(const Scheduling *s, Entry *entry)
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        const Node *node = &s->node[i];
        bool exchange = node->link > 0 && node->start >= 0;
        bool moved = exchange || node->first || node->key != i;
        entry[n++] = (Entry){node->key, moved ? 0 : 2, i};
        if (exchange && node->start < node->key)
            entry[n++] = (Entry){node->start, 1, i};
    }
    qsort(entry, (size_t)n, sizeof *entry, by_place);
    return n;
}

/* The operations one after another as the entries say; what starts hangs on the operation that follows it. */
static void link_operations(Scheduling *s, const Entry *entry, int n)
{
    cvn_graph *g = s->g;
    Op *last = NULL, *starts = NULL, **tail = &starts;
    for (int i = 0; i < s->n; i++) {
        Op *op = s->node[i].op;
        op->starts = op->next_start = NULL;
        op->split = false;
    }
    for (int i = 0; i < n; i++) {
        Op *op = s->node[entry[i].index].op;
        if (entry[i].rank == 1) {
            op->split = true;
            *tail = op;
            tail = &op->next_start;
            continue;
        }
        op->starts = starts;
        starts = NULL;
        tail = &starts;
        op->prev = last;
        *(last ? &last->next : &g->first) = op;
        last = op;
    }
    last->next = NULL;
    g->last = last;
}

static int order(Scheduling *s, bool original, cvn_err *err)
{
    if (s->n == 0)
        return CVN_OK;
    Entry *entry = malloc(2 * (size_t)s->n * sizeof *entry);
    if (!entry)
        return err_set(err, CVN_EMEM, "no memory to order the steps of '%s'", s->g->name);
    int n = 0;
    for (; original && n < s->n; n++)
        entry[n] = (Entry){n, 2, n};
    if (!original)
        n = add_entries(s, entry);
    link_operations(s, entry, n);
    free(entry);
    return CVN_OK;
}

/* ---- memory ---- */

/* Most bytes of results alive. */
static int find_peak(const cvn_graph *g, double *peak, cvn_err *err)
{
    Arena arena;
    Liveness live;
    int rc = arena_init(&arena, err);
    if (rc)
        return rc;
    liveness_find(g, &arena, &live);
    double *change = arena_array(&arena, (size_t)live.n_steps + 2, sizeof *change);
    memset(change, 0, ((size_t)live.n_steps + 2) * sizeof *change);
    for (const Op *op = g->first; op; op = op->next)
        for (int k = 0; k < op->n_results; k++) {
            const cvn_value *v = op->result[k];
            if (live.alias[v->id].root != v || live.def[v->id] < 0)
                continue;
            change[live.def[v->id]] += (double)cvn_type_bytes(&v->type);
            change[live.last[v->id] + 1] -= (double)cvn_type_bytes(&v->type);
        }
    double now = 0;
    *peak = 0;
    for (int i = 0; i < live.n_steps; i++) {
        now += change[i];
        *peak = now > *peak ? now : *peak;
    }
    arena_free(&arena);
    return CVN_OK;
}

/* What may be alive at most, given what was in the graph's own order. */
static double allowed_peak(const Scheduling *s, double peak, double largest, size_t memory_limit)
{
    double allowed = peak + peak / 8 + 2 * largest, parameters = 0;
    for (int i = 0; i < s->g->n_parameters; i++)
        parameters += (double)cvn_type_bytes(&s->g->parameter[i]->type);
    double limit = (double)memory_limit - parameters;
    if (memory_limit && allowed > limit)
        allowed = limit > peak ? limit : peak;
    return allowed;
}

int schedule_graph(cvn_graph *g, const Backend *backend, const ScheduleOptions *options,
                   cvn_err *err)
{
    bool any = false;
    for (const Op *op = g->first; op; op = op->next)
        any = any || is_exchange(op);
    if (!any)
        return CVN_OK;
    Scheduling s;
    int rc = open_graph(&s, g, backend, link_or_default(options->link), err);
    if (rc)
        return rc;
    find_begins(&s);
    double before = 0, peak = 0, largest = 0;
    for (int i = 0; i < s.n; i++)
        if (s.node[i].link > 0 && s.node[i].bytes > largest)
            largest = s.node[i].bytes;
    rc = find_peak(g, &before, err);
    double allowed = allowed_peak(&s, before, largest, options->memory_limit);
    double room = before / 4 > 2 * largest ? before / 4 : 2 * largest;
    bool fits = false;
    for (int attempt = 0; attempt < 4 && !rc && !fits;
         attempt++, room = attempt < 3 ? room / 2 : 0) {
        walk(&s, room);
        rc = order(&s, false, err);
        if (!rc)
            rc = find_peak(g, &peak, err);
        fits = peak <= allowed;
    }
    if (!rc && !fits)
        rc = order(&s, true, err);
    arena_free(&s.arena);
    return rc;
}

/* ---- what it costs ---- */

ScheduleCost schedule_cost(const cvn_graph *g, Link link)
{
    ScheduleCost cost = {0};
    link = link_or_default(link);
    double *there = calloc((size_t)g->n_values + 1, sizeof *there), now = 0, link_free = 0;
    if (!there)
        return cost;
    for (const Op *op = g->first; op; op = op->next) {
        const Op *begins = op->starts;
        bool whole = is_exchange(op) && !op->split;
        for (; begins || whole; begins = begins ? begins->next_start : NULL) {
            const Op *c = begins ? begins : op;
            double from = link_free > now ? link_free : now;
            link_free = from + link_seconds(c, link);
            there[c->result[0]->id] = link_free + link.latency;
            cost.link += link_seconds(c, link) + link.latency;
            if (!begins)
                break;
        }
        double wait = is_exchange(op) ? there[op->result[0]->id] - now : 0;
        cost.exposed += wait > 0 ? wait : 0;
        now += wait > 0 ? wait : 0;
        now += compute_seconds(op);
        cost.compute += compute_seconds(op);
    }
    free(there);
    if (find_peak(g, &cost.peak, NULL))
        cost.peak = 0;
    return cost;
}
