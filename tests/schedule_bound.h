/*
 * What no order of steps can hide: a lower bound of the time that a device waits for its link, whatever it computes in
 * the meantime, with endless memory. The larger of two:
 *
 * - The link as one machine. An exchange cannot begin before all that it depends on has been computed, and all that
 *   depends on it is computed after its end. So of any set of them: the least that comes before, the time of them all
 *   on the link, and the least that comes after, follow each other; what exceeds all computing is waiting.
 * - A chain of exchanges, each of which needs the one before. Their times do not overlap, and while one is under way
 *   only that can be computed which neither it needs nor needs it. So of any stretch of the chain: its time, less all
 *   that can be computed beside any of it; stretches that follow each other add up.
 */
#ifndef TESTS_SCHEDULE_BOUND_H
#define TESTS_SCHEDULE_BOUND_H

#include "comm/comm.h"
#include "compile/schedule.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Sets of operations, by index: rows of `words` words. */
typedef struct Relations {
    uint64_t *before, *after; /* [n * words] what an operation depends on; what depends on it */
    double *cost;             /* [n] seconds of computing */
    double *link;             /* [n] seconds on the link, without the latency; -1: no exchange */
    int *exchange;            /* [n_exchanges] indices */
    int n, words, n_exchanges;
    double total; /* of cost */
} Relations;

static inline bool relations_has(const Relations *r, const uint64_t *set, int i, int j)
{
    return set[(size_t)i * (size_t)r->words + (size_t)j / 64] >> (j % 64) & 1;
}

static inline void relations_add(const Relations *r, uint64_t *set, int to, int from)
{
    for (int w = 0; w < r->words; w++)
        set[(size_t)to * (size_t)r->words + (size_t)w] |=
            set[(size_t)from * (size_t)r->words + (size_t)w];
    set[(size_t)to * (size_t)r->words + (size_t)from / 64] |= (uint64_t)1 << (from % 64);
}

static inline void relations_find(Relations *r, const cvn_graph *g, Link link, StepSeconds *seconds)
{
    size_t n = (size_t)g->n_ops, words = n / 64 + 1;
    const Op **ops = calloc(n, sizeof *ops);
    int *def = calloc((size_t)g->n_values + 1, sizeof *def);
    *r = (Relations){.before = calloc(n * words, sizeof(uint64_t)),
                     .after = calloc(n * words, sizeof(uint64_t)),
                     .cost = calloc(n, sizeof(double)),
                     .link = calloc(n, sizeof(double)),
                     .exchange = calloc(n, sizeof(int)),
                     .n = (int)n,
                     .words = (int)words};
    int i = 0;
    for (const Op *op = g->first; op; op = op->next, i++) {
        ops[i] = op;
        r->cost[i] = compute_seconds(op) > 0 ? seconds(op) : 0;
        r->total += r->cost[i];
        r->link[i] = op_is_exchange(op) ? link_seconds(op, link) : -1;
        if (r->link[i] >= 0)
            r->exchange[r->n_exchanges++] = i;
        for (int k = 0; k < op->n_results; k++)
            def[op->result[k]->id] = i;
        for (int k = 0; k < op->n_operands; k++)
            relations_add(r, r->before, i, def[op->operand[k]->id]);
    }
    for (i = (int)n - 1; i >= 0; i--)
        for (int k = 0; k < ops[i]->n_operands; k++)
            relations_add(r, r->after, def[ops[i]->operand[k]->id], i);
    free(ops);
    free(def);
}

static inline double bound_of_link(const Relations *r, double latency)
{
    double *head = calloc((size_t)r->n, sizeof *head), *tail = calloc((size_t)r->n, sizeof *tail);
    double most = 0;
    for (int c = 0; c < r->n_exchanges; c++)
        for (int j = 0; j < r->n; j++) {
            int i = r->exchange[c];
            head[i] += relations_has(r, r->before, i, j) ? r->cost[j] : 0;
            tail[i] += relations_has(r, r->after, i, j) ? r->cost[j] : 0;
        }
    for (int a = 0; a < r->n_exchanges; a++)
        for (int b = 0; b < r->n_exchanges; b++) {
            double first = head[r->exchange[a]], last = tail[r->exchange[b]], sum = 0;
            for (int c = 0; c < r->n_exchanges; c++) {
                int i = r->exchange[c];
                sum += head[i] >= first && tail[i] >= last ? r->link[i] : 0;
            }
            if (sum > 0 && first + sum + latency + last > most)
                most = first + sum + latency + last;
        }
    free(head);
    free(tail);
    return most - r->total;
}

/* The chain of exchanges that takes longest, from its first on; their number. */
static inline int longest_chain(const Relations *r, double latency, int *chain)
{
    double *length = calloc((size_t)r->n, sizeof *length);
    int *previous = calloc((size_t)r->n, sizeof *previous), best = -1, n = 0;
    for (int c = 0; c < r->n_exchanges; c++) {
        int i = r->exchange[c];
        previous[i] = -1;
        for (int d = 0; d < c; d++) {
            int j = r->exchange[d];
            if (relations_has(r, r->before, i, j) &&
                (previous[i] < 0 || length[j] > length[previous[i]]))
                previous[i] = j;
        }
        length[i] = r->link[i] + latency + (previous[i] < 0 ? 0 : length[previous[i]]);
        best = best < 0 || length[i] > length[best] ? i : best;
    }
    for (int i = best; i >= 0; i = previous[i])
        n++;
    for (int i = best, k = n; i >= 0; i = previous[i])
        chain[--k] = i;
    free(length);
    free(previous);
    return n;
}

static inline double bound_of_chain(const Relations *r, double latency)
{
    int *chain = calloc((size_t)r->n + 1, sizeof *chain), n = longest_chain(r, latency, chain);
    double *from = calloc((size_t)n + 1, sizeof *from); /* the bound of the chain from there on */
    bool *beside = calloc((size_t)r->n, sizeof *beside);
    for (int a = n - 1; a >= 0; a--) {
        double time = 0;
        memset(beside, 0, (size_t)r->n * sizeof *beside);
        from[a] = from[a + 1];
        for (int b = a; b < n; b++) {
            time += r->link[chain[b]] + latency;
            for (int j = 0; j < r->n; j++) {
                if (beside[j] || relations_has(r, r->before, chain[b], j) ||
                    relations_has(r, r->after, chain[b], j))
                    continue;
                beside[j] = true;
                time -= r->cost[j];
            }
            if (time + from[b + 1] > from[a])
                from[a] = time + from[b + 1];
        }
    }
    double bound = from[0];
    free(chain);
    free(from);
    free(beside);
    return bound;
}

/* Seconds that a device must wait for its link in any order of the graph's steps. */
static inline double schedule_bound(const cvn_graph *g, Link link, StepSeconds *seconds)
{
    Relations r;
    relations_find(&r, g, link, seconds);
    double bound = fmax(0, fmax(bound_of_link(&r, link.latency), bound_of_chain(&r, link.latency)));
    free(r.before);
    free(r.after);
    free(r.cost);
    free(r.link);
    free(r.exchange);
    return bound;
}

/* ---- what an order costs ---- */

/* What the order of a graph's steps is estimated to cost. */
typedef struct ScheduleCost {
    double compute; /* seconds of computing */
    double link;    /* seconds that the link is busy, and latencies */
    double exposed; /* of these, that the device has nothing to compute */
    double peak;    /* most bytes alive, outputs and temporaries, rounded as nothing is */
} ScheduleCost;

/* A collective starts now, and its bytes go when those before have gone. Returns when the link is free again. */
static inline double send(const Op *op, Link link, double now, double link_free, double *there,
                          ScheduleCost *cost)
{
    double seconds = link_seconds(op, link);
    link_free = (link_free > now ? link_free : now) + seconds;
    there[op->result[0]->id] = link_free + link.latency;
    cost->link += seconds + link.latency;
    return link_free;
}

static inline ScheduleCost schedule_cost(const cvn_graph *g, Link link)
{
    ScheduleCost cost = {0};
    link = link_or_default(link);
    double now = 0, link_free = 0;
    double *there = calloc((size_t)g->n_values + 1, sizeof *there); /* when results arrive */
    if (!there)
        return cost;
    for (const Op *op = g->first; op; op = op->next) {
        for (const Op *c = op->starts; c; c = c->next_start)
            link_free = send(c, link, now, link_free, there, &cost);
        if (op_is_exchange(op) && !op->split)
            link_free = send(op, link, now, link_free, there, &cost);
        double wait = op_is_exchange(op) ? there[op->result[0]->id] - now : 0;
        cost.exposed += wait > 0 ? wait : 0;
        now += wait > 0 ? wait : 0;
        now += compute_seconds(op);
        cost.compute += compute_seconds(op);
    }
    free(there);
    if (graph_peak(g, &cost.peak, NULL))
        cost.peak = 0;
    return cost;
}

#endif
