/* Estimates by shapes and constants; and the peak by liveness. */
#include "compile/schedule_cost.h"

#include "compile/liveness.h"

#include <stdlib.h>
#include <string.h>

/* What a device computes and moves in a second. Only the ratio to the link counts; where the device is slower, what
   is fetched ahead waits a little longer. */
static const double FLOPS = 5e11, BYTES = 5e10;
static const Link LINK_DEFAULT = {50e-6, 2e9};

Link link_or_default(Link link)
{
    return link.latency <= 0 && link.bandwidth <= 0 ? LINK_DEFAULT : link;
}

double compute_seconds(const Op *op)
{
    if (!op_is_step(op) || op_info[op->kind].class_ == CLASS_COLLECTIVE)
        return 0;
    double flops = op_flops(op) / FLOPS, bytes = (double)op_bytes(op) / BYTES;
    return flops > bytes ? flops : bytes;
}

double link_seconds(const Op *op, Link link)
{
    return link.bandwidth > 0 ? op_ring_bytes(op) / link.bandwidth : 0;
}

bool op_is_exchange(const Op *op)
{
    return op_info[op->kind].class_ == CLASS_COLLECTIVE && op->kind != OP_PARTITION_ID &&
           op_is_step(op);
}

int graph_peak(const cvn_graph *g, double *peak, cvn_err *err)
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

/* A collective starts now, and its bytes go when those before have gone. Returns when the link is free again. */
static double send(const Op *op, Link link, double now, double link_free, double *there,
                   ScheduleCost *cost)
{
    double seconds = link_seconds(op, link);
    link_free = (link_free > now ? link_free : now) + seconds;
    there[op->result[0]->id] = link_free + link.latency;
    cost->link += seconds + link.latency;
    return link_free;
}

ScheduleCost schedule_cost(const cvn_graph *g, Link link)
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
