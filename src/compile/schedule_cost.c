/* Estimates by shapes and constants; and the peak by liveness. */
#include "compile/schedule.h"

#include "compile/liveness.h"

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
    SCOPED(arena_free) Arena arena = {0};
    Liveness live;
    TRY(arena_begin(&arena, err));
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
    return CVN_OK;
}
