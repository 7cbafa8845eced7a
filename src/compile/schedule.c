/*
 * A walk through the graph with two clocks, that of computing and that of the link. At every point the next operation
 * to compute is chosen, collectives are started so that the link has work until it ends, and those are ended that it
 * needs. The entries that this leaves behind, one after the other, are the new order.
 */
#include "compile/schedule.h"

#include "compile/liveness.h"

#include <stdlib.h>
#include <string.h>

/* Collectives under way, COLLECTIVES_IN_FLIGHT at most, and operations that are looked at for the next. */
enum { OPEN_MOST = COLLECTIVES_IN_FLIGHT - 8, LOOK_AHEAD = 256 };
/* Times the link needs, before its use, that something is fetched ahead: estimates are not exact. */
static const double EARLIER = 2;
static const double FAR = 1e300;

/* An operation of the graph. */
typedef struct Node {
    Op *op;
    double cost;  /* seconds of computing; 0 for collectives that can be split */
    double link;  /* seconds on the link, of collectives that can be split; else 0 */
    double there; /* when the collective under way will be there */
    double bytes; /* of its results */
    double tail;  /* seconds on the link of the longest path from here to the end */
    int due;      /* index of the first operation that computes with it, n when there is none */
    int users;    /* operations and outputs */
    int root; /* of a collective: the operation that makes its operand, past views and feeders */
    int fed;  /* the first collective whose root this is, or -1 */
    int next_fed; /* of a collective: the next with the same root, or -1 */
    int readers;  /* into edge: what must have read the memory that this writes; -1: nothing */
    bool ahead;   /* a collective of a parameter: fetched before its place */
    bool grows;   /* a collective with a result larger than its operand */
    bool view;    /* computes nothing */
    bool feeds;   /* it goes with the start of the collective that is its only user */
    bool given;   /* there from the beginning: a parameter, a constant, or a view of one */
    bool begun;   /* a collective that has started */
    bool placed;  /* it has its place in the new order */
} Node;

/* The operation `reader` reads a parameter that some other operation's result is written into. */
typedef struct Edge {
    int reader, next; /* next: of the same writer, or -1 */
} Edge;

/* A place in the new order: of an operation, or of the start of a collective. */
typedef struct Entry {
    int index;
    bool starts;
} Entry;

/* The new order as far as it has come. */
typedef struct Order {
    Entry *entry; /* [n], room for twice the operations */
    int n;
    int first; /* index of the first operation that has no place yet */
} Order;

/* Collectives that have not started. */
typedef struct Waiting {
    int *ahead; /* [n_ahead] those whose root is given, by when they are due */
    int n_ahead;
    int next;   /* into ahead: the first that has not started */
    int *ready; /* [n_ready] others that may start, or wait for one under way */
    int n_ready;
} Waiting;

/* Collectives under way. */
typedef struct UnderWay {
    int at[COLLECTIVES_IN_FLIGHT]; /* indices, in order of their start; -1: done */
    int n;                         /* from the oldest that is not done */
    double fetched;                /* bytes that are there ahead of their use, or under way */
    double held;                   /* bytes of operands of those that do not grow */
    double room;                   /* most bytes fetched, and most held */
} UnderWay;

/* Seconds. */
typedef struct Clocks {
    double now, link_free; /* of computing, of the link */
    double latency;        /* of the link */
    double window;         /* of computing, that an operation may be brought forward */
} Clocks;

typedef struct Scheduling {
    cvn_graph *g;
    Arena arena; /* of what follows */
    Node *node;  /* [n] in the order of the graph */
    int n;
    double *at; /* [n + 1] seconds of computing before each */
    int *def;   /* [n_values] index of the operation that makes it */
    Edge *edge; /* see Node.readers */
    Order order;
    Waiting waiting;
    UnderWay open;
    Clocks clock;
} Scheduling;

/* ---- what there is ---- */

/* An operation that only prepares the operand of one collective: a weight that is converted before it is gathered. */
static bool feeds(const Node *node, const Node *user)
{
    const Op *op = node->op;
    return op->n_operands == 1 && op->n_results == 1 && node->users == 1 && !node->given &&
           node->link <= 0 && !op_is_exchange(op) && user && (user->link > 0 || user->feeds) &&
           (node->view || op_info[op->kind].class_ == CLASS_UNARY || op->kind == OP_CONVERT ||
            op->kind == OP_TRANSPOSE);
}

/* What is known of operations by their users: from the last to the first. */
static void find_uses(Scheduling *s)
{
    int *user = arena_array(&s->arena, (size_t)s->n + 1, sizeof *user);
    for (int i = 0; i < s->n; i++)
        user[i] = -1;
    for (int i = 0; i < s->g->n_outputs; i++)
        s->node[s->def[s->g->output[i].value->id]].users++;
    for (int i = s->n - 1; i >= 0; i--) {
        Node *node = &s->node[i];
        node->feeds = feeds(node, user[i] < 0 ? NULL : &s->node[user[i]]);
        bool passes = node->view || node->link > 0 || node->feeds;
        for (int k = 0; k < node->op->n_operands; k++) {
            Node *from = &s->node[s->def[node->op->operand[k]->id]];
            int due = passes ? node->due : i;
            from->due = due < from->due ? due : from->due;
            from->tail =
                node->tail + node->link > from->tail ? node->tail + node->link : from->tail;
            user[from - s->node] = i;
            from->users++;
        }
    }
}

static int by_due(const void *left, const void *right, void *context)
{
    const Scheduling *s = context;
    int a = *(const int *)left, b = *(const int *)right;
    int first = s->node[a].due, second = s->node[b].due;
    return first != second ? (first > second) - (first < second) : (a > b) - (a < b);
}

static void find_roots(Scheduling *s)
{
    for (int i = 0; i < s->n; i++) {
        Node *node = &s->node[i];
        if (node->link <= 0)
            continue;
        node->root = s->def[node->op->operand[0]->id];
        Node *root = &s->node[node->root];
        for (; !root->given && (root->view || root->feeds); root = &s->node[node->root])
            node->root = s->def[root->op->operand[0]->id];
        node->ahead = root->given || root->ahead;
        if (root->given) {
            s->waiting.ahead[s->waiting.n_ahead++] = i;
        } else {
            node->next_fed = root->fed;
            root->fed = i;
        }
    }
    qsort_r(s->waiting.ahead, (size_t)s->waiting.n_ahead, sizeof *s->waiting.ahead, by_due, s);
}

/* An output that goes into a parameter is computed there, if all that read the parameter have done so. */
static void find_readers(Scheduling *s)
{
    const cvn_graph *g = s->g;
    int *writer = arena_array(&s->arena, g->n_values + 1, sizeof *writer), n = 0, most = 0;
    memset(writer, 0, (g->n_values + 1) * sizeof *writer);
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i].into) {
            int at = s->def[g->output[i].value->id];
            while (s->node[at].view)
                at = s->def[s->node[at].op->operand[0]->id];
            writer[g->output[i].into->id] = at;
        }
    for (int i = 0; i < s->n; i++)
        most += s->node[i].op->n_operands;
    s->edge = arena_array(&s->arena, (size_t)most + 1, sizeof *s->edge);
    for (int i = 0; i < s->n; i++)
        for (int k = 0; k < s->node[i].op->n_operands && !s->node[i].view; k++) {
            int from = s->def[s->node[i].op->operand[k]->id];
            while (s->node[from].view)
                from = s->def[s->node[from].op->operand[0]->id];
            if (s->node[from].op->kind != OP_PARAMETER)
                continue;
            Node *to = &s->node[writer[s->node[from].op->result[0]->id]];
            if (to - s->node <= i)
                continue;
            s->edge[n] = (Edge){i, to->readers};
            to->readers = n++;
        }
}

static int open_graph(Scheduling *s, cvn_graph *g, const KernelSet *backend, Link link,
                      cvn_err *err)
{
    *s = (Scheduling){.g = g, .clock.latency = link.latency};
    TRY(arena_begin(&s->arena, err));
    size_t most = (size_t)g->n_ops + 1;
    s->node = arena_array(&s->arena, most, sizeof *s->node);
    s->at = arena_array(&s->arena, most, sizeof *s->at);
    s->waiting.ahead = arena_array(&s->arena, most, sizeof *s->waiting.ahead);
    s->waiting.ready = arena_array(&s->arena, most, sizeof *s->waiting.ready);
    s->order.entry = arena_array(&s->arena, 2 * most, sizeof *s->order.entry);
    s->def = arena_array(&s->arena, (size_t)g->n_values + 1, sizeof *s->def);
    s->at[0] = 0;
    for (Op *op = g->first; op; op = op->next) {
        size_t offset;
        const Kernel *kernel = op_is_exchange(op) ? kernel_find(backend, op) : NULL;
        Node *node = &s->node[s->n];
        *node = (Node){.op = op,
                       .due = (int)g->n_ops,
                       .view = op_is_view(op, &offset),
                       .fed = -1,
                       .next_fed = -1,
                       .readers = -1};
        node->given = node->view ? s->node[s->def[op->operand[0]->id]].given
                                 : op->n_operands == 0 && !op_is_step(op);
        node->cost = compute_seconds(op);
        if (kernel && kernel->start)
            node->link = link_seconds(op, link) + link.latency;
        for (int k = 0; k < op->n_results; k++) {
            s->def[op->result[k]->id] = s->n;
            node->bytes += (double)cvn_type_bytes(&op->result[k]->type);
        }
        node->grows = node->link > 0 && node->bytes > (double)cvn_type_bytes(&op->operand[0]->type);
        s->at[s->n + 1] = s->at[s->n] + node->cost;
        s->n++;
    }
    find_uses(s);
    find_roots(s);
    find_readers(s);
    return CVN_OK;
}

/* ---- places ---- */

static void finish(Scheduling *s, int i);

static void place(Scheduling *s, int i)
{
    s->order.entry[s->order.n++] = (Entry){.index = i};
    s->node[i].placed = true;
}

/* Collectives that may start now that their root is computed, or under way. */
static void add_ready(Scheduling *s, int root)
{
    for (int c = s->node[root].fed; c >= 0; c = s->node[c].next_fed)
        s->waiting.ready[s->waiting.n_ready++] = c;
}

static double held_bytes(const Node *node)
{
    return node->grows ? 0 : (double)cvn_type_bytes(&node->op->operand[0]->type);
}

/* The collective at index c ends here; the device waits for it if it must. */
static void end(Scheduling *s, int c)
{
    Node *node = &s->node[c];
    s->clock.now = node->there > s->clock.now ? node->there : s->clock.now;
    s->open.fetched -= node->ahead ? node->bytes : 0;
    s->open.held -= held_bytes(node);
    int past = 0;
    for (int k = 0; k < s->open.n; k++)
        s->open.at[k] = s->open.at[k] == c ? -1 : s->open.at[k];
    while (past < s->open.n && s->open.at[past] < 0)
        past++;
    s->open.n -= past;
    memmove(s->open.at, s->open.at + past, (size_t)s->open.n * sizeof *s->open.at);
    place(s, c);
}

/* The collective at index c starts here, after what feeds it. */
static void begin(Scheduling *s, int c)
{
    Node *node = &s->node[c];
    finish(s, s->def[node->op->operand[0]->id]);
    while (s->open.n == OPEN_MOST)
        end(s, s->open.at[0]);
    for (int k = 0;
         k < s->open.n && s->open.held + held_bytes(node) > s->open.room;) /* the oldest first */
        if (s->open.at[k] >= 0 && !s->node[s->open.at[k]].grows) {
            end(s, s->open.at[k]);
            k = 0;
        } else {
            k++;
        }
    double from = s->clock.link_free > s->clock.now ? s->clock.link_free : s->clock.now;
    s->clock.link_free = from + node->link - s->clock.latency;
    node->there = from + node->link;
    node->begun = true;
    s->open.at[s->open.n++] = c;
    s->open.fetched += node->ahead ? node->bytes : 0;
    s->open.held += held_bytes(node);
    s->order.entry[s->order.n++] = (Entry){.index = c, .starts = true};
    add_ready(s, c);
}

/* The operation at index i, and first all that it needs and that is not placed: views, and collectives. */
static void finish(Scheduling *s, int i)
{
    Node *node = &s->node[i];
    if (node->placed)
        return;
    if (node->link > 0) {
        if (!node->begun)
            begin(s, i);
        end(s, i);
        return;
    }
    for (int k = 0; k < node->op->n_operands; k++)
        finish(s, s->def[node->op->operand[k]->id]);
    for (int e = node->readers; e >= 0; e = s->edge[e].next)
        finish(s, s->edge[e].reader);
    place(s, i);
    s->clock.now += node->cost;
    add_ready(s, i);
}

/* ---- what is next ---- */

/* When the result of the operation at index i can be there; FAR or more when a collective has to start first, -1 when
   something has to be computed first. */
static double reach(const Scheduling *s, int i)
{
    double least = 0;
    for (;; i = s->def[s->node[i].op->operand[0]->id]) {
        const Node *node = &s->node[i];
        if (node->placed)
            return least;
        if (node->link > 0 && node->begun)
            return node->there > least ? node->there : least;
        if (node->link > 0)
            least = FAR;
        else if (!node->view && !node->feeds)
            return -1;
    }
}

/* When the operation at index i can be computed; -1 when others have to be first. */
static double available(const Scheduling *s, int i)
{
    const Node *node = &s->node[i];
    double most = 0;
    for (int k = 0; k < node->op->n_operands; k++) {
        double when = reach(s, s->def[node->op->operand[k]->id]);
        if (when < 0)
            return -1;
        most = when > most ? when : most;
    }
    for (int e = node->readers; e >= 0; e = s->edge[e].next) {
        double when = reach(s, s->edge[e].reader);
        if (when < 0)
            return -1;
        most = when > most ? when : most;
    }
    return most;
}

/* Has a place of its own in the order of computing. */
static bool computes(const Node *node)
{
    return node->link <= 0 && !node->view && !node->feeds && !node->given;
}

/* What to compute next, -1 at the end: of what need not wait, within the window, the one with most communication after
   it; otherwise the one that waits least. */
static int choose(Scheduling *s)
{
    while (s->order.first < s->n &&
           (s->node[s->order.first].placed || !computes(&s->node[s->order.first])))
        s->order.first++;
    int best = -1, waits = -1, last = s->order.first + LOOK_AHEAD;
    double least = 0;
    for (int i = s->order.first;
         i < s->n && i < last && s->at[i] - s->at[s->order.first] <= s->clock.window; i++) {
        const Node *node = &s->node[i];
        if (node->placed || !computes(node))
            continue;
        double when = available(s, i);
        if (when < 0)
            continue;
        if (when <= s->clock.now && (best < 0 || node->tail > s->node[best].tail))
            best = i;
        if (when > s->clock.now && (waits < 0 || when < least)) {
            waits = i;
            least = when;
        }
    }
    return best >= 0 ? best : waits;
}

/* Whether something that takes memory until it is used is wanted soon. */
static bool is_soon(const Scheduling *s, const Node *node)
{
    double queue = s->clock.link_free > s->clock.now ? s->clock.link_free - s->clock.now : 0;
    double at = s->at[s->order.first < s->n ? s->order.first : s->n];
    return s->at[node->due] - at <= s->clock.window + EARLIER * (queue + node->link);
}

/* The collective to start next, the one that is due first; -1 when there is none. */
static int next_to_begin(Scheduling *s)
{
    while (s->waiting.next < s->waiting.n_ahead && s->node[s->waiting.ahead[s->waiting.next]].begun)
        s->waiting.next++;
    int best = -1;
    if (s->waiting.next < s->waiting.n_ahead) {
        const Node *node = &s->node[s->waiting.ahead[s->waiting.next]];
        if (s->open.fetched + node->bytes <= s->open.room && is_soon(s, node))
            best = s->waiting.ahead[s->waiting.next];
    }
    for (int k = 0; k < s->waiting.n_ready; k++) {
        int c = s->waiting.ready[k];
        const Node *node = &s->node[c];
        if (node->begun) {
            s->waiting.ready[k--] = s->waiting.ready[--s->waiting.n_ready];
            continue;
        }
        double when = reach(s, s->def[node->op->operand[0]->id]);
        if (when < 0 || when > s->clock.now || (node->grows && !is_soon(s, node)))
            continue;
        if (best < 0 || node->due < s->node[best].due ||
            (node->due == s->node[best].due && c < best))
            best = c;
    }
    return best;
}

/* Starts collectives so that the link has work until then. */
static void begin_due(Scheduling *s, double until)
{
    while (s->clock.link_free <= until && s->open.n < OPEN_MOST) {
        int c = next_to_begin(s);
        if (c < 0)
            return;
        begin(s, c);
    }
}

static void walk(Scheduling *s, double room, double window)
{
    s->clock.now = s->clock.link_free = s->open.fetched = s->open.held = 0;
    s->open.n = s->waiting.next = s->order.first = s->waiting.n_ready = s->order.n = 0;
    s->open.room = room;
    s->clock.window = window;
    for (int i = 0; i < s->n; i++)
        s->node[i].placed = s->node[i].begun = false;
    for (int i = 0; i < s->n; i++)
        if (s->node[i].given)
            place(s, i);
    for (int i = choose(s); i >= 0; i = choose(s)) {
        begin_due(s, s->clock.now);
        i = choose(s);
        double when = available(s, i);
        begin_due(s, (when > s->clock.now && when < FAR ? when : s->clock.now) + s->node[i].cost);
        finish(s, i);
        for (int k = 0; k < s->open.n;
             k++) { /* what has only its operand to hold on to, and should be there */
            const Node *node = s->open.at[k] < 0 ? NULL : &s->node[s->open.at[k]];
            if (node && !node->grows && node->there <= s->clock.now) {
                end(s, s->open.at[k]);
                k = -1;
            }
        }
    }
    for (int i = 0; i < s->n; i++)
        finish(s, i);
}

/* ---- the order ---- */

/* The operations one after another as the entries say; what starts hangs on the operation that follows it. */
static void link_operations(Scheduling *s)
{
    cvn_graph *g = s->g;
    Op *last = NULL, *starts = NULL, **tail = &starts;
    for (int i = 0; i < s->n; i++) {
        Op *op = s->node[i].op;
        op->starts = op->next_start = NULL;
        op->split = false;
    }
    for (int i = 0; i < s->order.n; i++) {
        Op *op = s->node[s->order.entry[i].index].op;
        bool whole = i + 1 < s->order.n && s->order.entry[i + 1].index == s->order.entry[i].index;
        if (s->order.entry[i].starts && whole)
            continue;
        if (s->order.entry[i].starts) {
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

/* ---- memory ---- */

int schedule_graph(cvn_graph *g, const KernelSet *backend, Link link, cvn_err *err)
{
    /* How much of it is tried: bringing forward what is computed, and fetching ahead. */
    static const double windows[] = {1, 0.25, 0, 0, 0}, rooms[] = {1, 0.5, 1, 0.25, 0};
    bool any = false;
    for (const Op *op = g->first; op; op = op->next)
        any = any || op_is_exchange(op);
    if (!any)
        return CVN_OK;
    Scheduling s;
    TRY(open_graph(&s, g, backend, link_or_default(link), err));
    double before = 0, peak = 0, largest = 0, window = 0, longest = 0;
    for (int i = 0; i < s.n; i++) {
        const Node *node = &s.node[i];
        largest = node->link > 0 && node->bytes > largest ? node->bytes : largest;
        window = node->link > window ? node->link : window;
        longest = node->cost > longest ? node->cost : longest;
    }
    window = 2 * (window + longest);
    int rc = graph_peak(g, &before, err);
    double allowed = before + before / 8 + 2 * largest; /* to be alive at most */
    double room = before / 4 > 2 * largest ? before / 4 : 2 * largest;
    bool fits = false;
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms && !rc && !fits; i++) {
        walk(&s, room * rooms[i], window * windows[i]);
        link_operations(&s);
        rc = graph_peak(g, &peak, err);
        fits = peak <= allowed;
    }
    if (rc || !fits) { /* as it was */
        s.order.n = 0;
        for (int i = 0; i < s.n; i++)
            place(&s, i);
        link_operations(&s);
    }
    arena_free(&s.arena);
    return rc;
}
