#include "sim/peak.h"

#include "base/map.h"
#include "compile/liveness.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Working state; arrays by the id of a value are of roots. */
typedef struct Peaking {
    const Plan *plan;
    Arena *arena, scratch;
    Liveness live;
    int *last; /* [n_values] the last step that it has its place to itself */
    Peak *peak;
    Map rows; /* text of what rows have in common -> index in peak->row */
} Peaking;

static bool in_arena(const Step *step, int k)
{
    /* The result of a collective under way has its place from the start on; the end only fills it. */
    return step->out[k].space == SPACE_ARENA && step->out[k].bytes > 0 && step->phase != STEP_DONE;
}

/* A value whose memory the result of step i takes over ends before that step. */
static void take_places(Peaking *p, int i)
{
    const Step *step = &p->plan->step[i];
    for (int k = 0; k < step->op->n_operands; k++) {
        const cvn_value *root = p->live.alias[step->op->operand[k]->id].root;
        for (int r = 0; r < step->op->n_results; r++)
            if (in_arena(step, r) && ref_overlap(&step->in[k], &step->out[r]) &&
                p->last[root->id] >= i)
                p->last[root->id] = i - 1;
    }
}

/* Whether a value is a gathered weight, perhaps in another type or order. */
static bool is_gathered(const cvn_value *v)
{
    bool gathered = false;
    for (; v->def->kind != OP_PARAMETER && v->def->n_operands == 1; v = v->def->operand[0])
        gathered = gathered || v->def->kind == OP_ALL_GATHER;
    return gathered && v->def->kind == OP_PARAMETER && v->type.dtype != CVN_I32;
}

/* The change in bytes that are alive at each step: [n_steps + 1]. */
static double *changes(Peaking *p, bool gathered)
{
    const Plan *plan = p->plan;
    double *change = arena_array(&p->scratch, (size_t)plan->n_steps + 2, sizeof *change);
    for (int i = 0; i < plan->n_steps; i++)
        for (int k = 0; k < plan->step[i].op->n_results; k++) {
            const Step *step = &plan->step[i];
            int last = p->last[step->op->result[k]->id];
            if (!in_arena(step, k) || last < i || (gathered && !is_gathered(step->op->result[k])))
                continue;
            change[i] += (double)step->out[k].bytes;
            change[(last < plan->n_steps ? last : plan->n_steps - 1) + 1] -=
                (double)step->out[k].bytes;
        }
    return change;
}

/* The step at which most bytes are alive. */
static void find_step(Peaking *p)
{
    const Plan *plan = p->plan;
    const double *change = changes(p, false), *gather = changes(p, true);
    double now = 0, gathered = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        now += change[i];
        gathered += gather[i];
        p->peak->gathered = gathered > p->peak->gathered ? gathered : p->peak->gathered;
        double here = now + (double)plan->step[i].scratch.bytes;
        if (here <= p->peak->bytes)
            continue;
        p->peak->bytes = here;
        p->peak->step = i;
        p->peak->at = op_info[plan->step[i].op->kind].name;
    }
}

/* "layers.17.gate" -> "gate": what a value is called, or the one it was made from by moving elements. */
static const char *name_of(const cvn_value *v)
{
    while (!v->name && v->def->kind != OP_PARAMETER && v->def->n_operands == 1)
        v = v->def->operand[0];
    const char *name = v->name ? v->name : v->def->kind == OP_PARAMETER ? v->def->attr.name : "";
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static void add_row(Peaking *p, const char *of, const cvn_type *type, const char *made,
                    const char *end, int first, int last, double bytes)
{
    StrBuf key = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &key);
    strbuf_printf(&key, "%s|%s|%s|", of, made, end);
    type_print(&key, type);
    bool added;
    uint64_t *at = map_put(&p->rows, key.failed ? "" : key.text, key.length, &added);
    cleanup_run(&cleanup);
    if (added) {
        *at = (uint64_t)p->peak->n;
        p->peak->row[p->peak->n++] = (PeakRow){
            .of = of, .type = *type, .made = made, .end = end, .first = first, .last = last};
    }
    PeakRow *row = &p->peak->row[*at];
    row->count++;
    row->bytes += bytes;
}

/* The kind of operation that reads a value last. */
static const char *end_of(const Peaking *p, const cvn_value *v)
{
    int last = p->live.last[v->id];
    return last < p->plan->n_steps ? op_info[p->plan->step[last].op->kind].name : "output";
}

static int larger(const void *a, const void *b)
{
    const PeakRow *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void list_alive(Peaking *p)
{
    const Plan *plan = p->plan;
    int at = p->peak->step, n = 1;
    for (int i = 0; i <= at; i++)
        n += plan->step[i].op->n_results;
    p->peak->row = arena_array(p->arena, (size_t)n, sizeof *p->peak->row);
    for (int i = 0; i <= at; i++) {
        const Step *step = &plan->step[i];
        for (int k = 0; k < step->op->n_results; k++) {
            const cvn_value *v = step->op->result[k];
            if (in_arena(step, k) && p->last[v->id] >= at)
                add_row(p, arena_string(p->arena, name_of(v)), &v->type,
                        op_info[step->op->kind].name, end_of(p, v), i, p->live.last[v->id],
                        (double)step->out[k].bytes);
        }
    }
    const Step *step = &plan->step[at];
    cvn_type scratch = CVN_TYPE(CVN_I8, (int64_t)step->scratch.bytes);
    const char *kind = op_info[step->op->kind].name;
    if (step->scratch.bytes)
        add_row(p, "scratch", &scratch, kind, kind, at, at, (double)step->scratch.bytes);
    qsort(p->peak->row, (size_t)p->peak->n, sizeof *p->peak->row, larger);
}

void peak_find(const Plan *plan, Arena *arena, Peak *peak)
{
    *peak = (Peak){.at = ""};
    Peaking p = {.plan = plan, .arena = arena, .peak = peak};
    if (plan->n_steps == 0 || arena_begin(&p.scratch, NULL))
        return;
    map_init(&p.rows, &p.scratch);
    liveness_find(plan->graph, &p.scratch, &p.live);
    p.last = arena_copy(&p.scratch, p.live.last, plan->graph->n_values * sizeof *p.last);
    for (int i = 0; i < plan->n_steps; i++)
        take_places(&p, i);
    find_step(&p);
    list_alive(&p);
    arena_free(&p.scratch);
}
