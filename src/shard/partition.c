#include "shard/partition.h"

#include "graph/signature.h"
#include "shard/partition_impl.h"
#include "shard/projection.h"

#include <string.h>

/* ---- shardings of a choice ---- */

Sharding choice_sharding(const Rule *rule, const FactorSplit *choice, int t, int rank)
{
    Sharding s = {.rank = rank};
    for (int d = 0; d < rank; d++)
        for (int i = 0; i < rule->dim[t][d].n; i++)
            axes_add_list(&s.dim[d].axes, &choice->axes[rule->dim[t][d].factor[i]]);
    for (int f = 0; f < rule->n_factors && t >= rule->n_operands; f++) {
        bool sums = rule->factor[f].kind == FACTOR_REDUCE; /* and t does not have it */
        for (int d = 0; d < CVN_MAX_RANK; d++)
            for (int i = 0; i < rule->dim[t][d].n; i++)
                sums = sums && rule->dim[t][d].factor[i] != f;
        if (!sums)
            continue;
        axes_add_list(&s.unreduced, &choice->axes[f]);
        s.how = rule->factor[f].how;
    }
    return s;
}

/* ---- versions ---- */

static void add_key(StrBuf *key, const Sharding *s)
{
    for (int l = 0; l <= s->rank; l++) {
        const AxisList *list = l < s->rank ? &s->dim[l].axes : &s->unreduced;
        strbuf_putc(key, (char)list->n);
        strbuf_add(key, list->ref, (size_t)list->n * sizeof list->ref[0]);
    }
}

const Reshard *part_plan(Partitioner *p, const cvn_type *type, const Sharding *from,
                         const Sharding *to)
{
    StrBuf key = {0};
    SCOPED(cleanup_run) Cleanup cleanup;
    bool added = true;
    cleanup_push(&cleanup, strbuf_release, &key);
    strbuf_add(&key, type, sizeof *type);
    strbuf_putc(&key, (char)from->how);
    add_key(&key, from);
    add_key(&key, to);
    uint64_t unkept, *at = &unkept; /* without memory for the key the plan is not remembered */
    if (!key.failed)
        at = map_put(&p->plans, key.text, key.length, &added);
    if (added) {
        Reshard plan = reshard_plan(p->mesh, type, from, to, &p->arena);
        *at = (uintptr_t)arena_copy(&p->arena, &plan, sizeof plan);
    }
    return (const Reshard *)(uintptr_t)*at;
}

/* A gathered weight is forgotten when so many operations did not need it, and gathered again for
   the backward pass: about a layer of weights is whole at a time (Rajbhandari et al. 2019,
   arXiv:1910.02054), and not all of them. */
enum { KEEP_OPS = 100 };

static Version *best_version(Partitioner *p, const cvn_value *v, const Sharding *want,
                             const Reshard **plan)
{
    Version *best = NULL;
    for (Version *a = p->version[v->id]; a; a = a->next) {
        if (a->gathered && p->op - a->used > KEEP_OPS)
            continue;
        const Reshard *way = part_plan(p, &v->type, &a->sharding, want);
        if (best && way->cost >= (*plan)->cost)
            continue;
        best = a;
        *plan = way;
    }
    return best;
}

static void add_version(Partitioner *p, const cvn_value *v, const Sharding *sharding,
                        cvn_value *local, bool gathered)
{
    Version version = {*sharding, local, gathered, p->op, p->version[v->id]};
    p->version[v->id] = arena_copy(&p->arena, &version, sizeof version);
}

void part_note(Partitioner *p, const cvn_value *of, const Op *op, const AxisList *axes,
               double bytes)
{
    PartitionReport *r = p->report;
    PartitionCollective row = {.op = op, .bytes = bytes};
    StrBuf along = {0};
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &along);
    axes_print(&along, p->mesh, axes);
    row.along = arena_string(&r->arena, along.text ? along.text : "_");
    row.of = of->name ? arena_string(&r->arena, of->name) : op_info[of->def->kind].name;
    for (int i = 0; i < axes->n; i++)
        row.slow |= mesh_axis_is_slow(p->mesh, axes->ref[i].axis);
    r->collective = arena_more(&r->arena, r->collective, (size_t)r->n_collectives, sizeof row);
    r->collective[r->n_collectives++] = row;
}

/* step: one of a reshard of v, which has just emitted op. */
static void note_step(Partitioner *p, const cvn_value *v, const Op *op, const ReshardStep *step)
{
    const bool one_of_several = step->kind == RESHARD_PIECES;
    part_note(p, v, op, &step->axes,
              one_of_several ? (double)cvn_type_bytes(&op->result[0]->type) : step->bytes);
}

/* Drops from the list what is no longer in the graph, and adds up the rest. */
static void count_collectives(const cvn_graph *g, PartitionReport *r)
{
    int64_t kept = 0, i = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op_info[op->kind].class_ != CLASS_COLLECTIVE || op->kind == OP_PARTITION_ID)
            continue;
        while (r->collective[i].op != op)
            i++;
        r->count[op->kind]++;
        r->bytes[op->kind] += r->collective[i].bytes;
        r->collective[kept++] = r->collective[i++];
    }
    r->n_collectives = kept;
}

static cvn_value *reshard(Partitioner *p, const cvn_value *v, const Version *from,
                          const Reshard *plan)
{
    cvn_value *x = from->local;
    Sharding now = from->sharding;
    const cvn_type begin = sharding_local(&now, &plan->padded);
    for (int d = 0; d < begin.rank; d++)
        x = emit_resize(&p->emit, x, d, begin.dim[d]);
    p->report->n_involuntary += plan->involuntary;
    for (int i = 0; i < plan->n; i++) {
        const Op *last = p->emit.g->last;
        x = emit_step(&p->emit, x, &plan->padded, &now, &plan->step[i]);
        for (const Op *op = last ? last->next : p->emit.g->first; op; op = op->next)
            if (op_info[op->kind].class_ == CLASS_COLLECTIVE && op->kind != OP_PARTITION_ID)
                note_step(p, v, op, &plan->step[i]);
        now = plan->step[i].after;
    }
    const cvn_type end = sharding_local(&now, &v->type);
    for (int d = 0; d < end.rank; d++)
        x = emit_resize(&p->emit, x, d, end.dim[d]);
    return x;
}

/* ---- constants: made where they are needed, as they are needed ---- */

static cvn_value *local_iota(Partitioner *p, const Op *op, const Sharding *want)
{
    const cvn_type *whole = &op->result[0]->type;
    cvn_type type = sharding_local(want, whole), i32 = type;
    const AxisList *axes = &want->dim[op->attr.axis].axes;
    int axis = (int)op->attr.axis;
    if (axes->n == 0)
        return cvn_iota(p->emit.g, type, axis);
    i32.dtype = CVN_I32;
    cvn_value *offset = emit_offset(&p->emit, axes, type.dim[axis]);
    cvn_value *count = cvn_iota(p->emit.g, i32, axis);
    count = cvn_add(p->emit.g, count, cvn_broadcast_in_dim(p->emit.g, offset, i32, NULL));
    return type.dtype == CVN_I32 ? count : cvn_convert(p->emit.g, count, type.dtype);
}

/* The choice that gives the result this sharding; false when the operation has none. */
static bool choice_for(const Op *op, const Rule *rule, const Sharding *want, FactorSplit *choice)
{
    Projection seen;
    project(want, rule, rule->n_operands, &seen);
    *choice = (FactorSplit){0};
    for (int f = 0; f < rule->n_factors; f++) {
        choice->axes[f] = seen.factor[f].axes;
        if (seen.factor[f].overflow.n ||
            (seen.factor[f].axes.n && rule->factor[f].kind != FACTOR_PASS))
            return false;
    }
    Sharding back = choice_sharding(rule, choice, rule->n_operands, want->rank);
    for (int t = 0; t < op->n_operands; t++)
        for (int d = 0; d < op->operand[t]->type.rank; d++)
            for (int i = 0; i < rule->dim[t][d].n && rule->dim[t][d].n > 1; i++)
                if (rule->factor[rule->dim[t][d].factor[i]].size %
                    axes_size(&choice->axes[rule->dim[t][d].factor[i]]))
                    return false;
    return sharding_same(&back, want);
}

/* NULL when it has to be made whole and cut. */
static cvn_value *constant_as(Partitioner *p, const cvn_value *v, const Sharding *want)
{
    const Op *op = v->def;
    cvn_graph *g = p->emit.g;
    cvn_type local = sharding_local(want, &v->type);
    bool small = v->type.dtype == CVN_I4 || v->type.dtype == CVN_I8;
    bool whole = true;
    for (int d = 0; d < want->rank; d++)
        whole = whole && want->dim[d].axes.n == 0;
    if (op->kind == OP_CONSTANT && (op->attr.literal.splat || whole)) {
        OpAttr attr = attr_copy(g, op->kind, &op->attr);
        return graph_add(g, op->kind, &attr, 0, NULL, &local);
    }
    if (op->kind == OP_IOTA && (!small || want->dim[op->attr.axis].axes.n == 0))
        return local_iota(p, op, want);
    if (op->kind == OP_CONSTANT || op->kind == OP_IOTA)
        return NULL;
    Rule rule = factor_rule(op, &p->arena);
    FactorSplit choice;
    if (!choice_for(op, &rule, want, &choice))
        return NULL;
    cvn_value **in = arena_array(&p->arena, (size_t)op->n_operands + 1, sizeof *in);
    for (int t = 0; t < op->n_operands; t++) {
        Sharding s = choice_sharding(&rule, &choice, t, op->operand[t]->type.rank);
        in[t] = part_value(p, op->operand[t], &s);
    }
    cvn_value *out[OP_MOST_RESULTS];
    part_emit(p, op, &rule, &choice, in, out);
    return out[v->result];
}

/* A weight's floats, made from what is quantized: like a constant, where and as they are needed, so
   that what travels is quantized. */
static bool part_is_made(const cvn_value *v)
{
    return v->def->kind == OP_DEQUANTIZE;
}

double part_cost(Partitioner *p, const cvn_value *v, const Sharding *want)
{
    const Reshard *plan = NULL;
    if (p->constant[v->id])
        return 0;
    if (!part_is_made(v))
        return best_version(p, v, want, &plan) ? plan->cost : 0;
    Rule rule = factor_rule(v->def, &p->arena);
    Sharding whole = sharding_open(v->type.rank);
    FactorSplit choice;
    double cost = 0;
    if (!choice_for(v->def, &rule, want, &choice)) /* it is made whole then */
        choice_for(v->def, &rule, &whole, &choice);
    for (int t = 0; t < v->def->n_operands; t++) {
        Sharding s = choice_sharding(&rule, &choice, t, v->def->operand[t]->type.rank);
        cost += part_cost(p, v->def->operand[t], &s);
    }
    return cost;
}

cvn_value *part_value(Partitioner *p, const cvn_value *v, const Sharding *want)
{
    const Reshard *plan = NULL;
    Version *from = best_version(p, v, want, &plan);
    if (from)
        from->used = p->op;
    if (from && plan->n == 0)
        return from->local;
    cvn_value *local = NULL;
    if (p->constant[v->id] || part_is_made(v)) {
        local = constant_as(p, v, want);
        if (!local && (!from || part_is_made(v))) {
            Sharding whole = sharding_open(v->type.rank);
            part_value(p, v, &whole);
            from = best_version(p, v, want, &plan);
        }
    }
    bool gathers = false;
    const cvn_value *weight = v; /* a parameter, perhaps in another type */
    while (weight->def->kind == OP_CONVERT)
        weight = weight->def->operand[0];
    if (!local) {
        for (int i = 0; i < plan->n && weight->def->kind == OP_PARAMETER; i++)
            gathers = gathers || plan->step[i].kind == RESHARD_ALL_GATHER;
        local = reshard(p, v, from, plan);
    }
    add_version(p, v, want, local, gathers);
    return local;
}

/* ---- the graph ---- */

/* The version of a value where it is the only one, is a partial sum, and is needed by one operation alone; else NULL. */
static const Version *partial_sum(const Partitioner *p, const cvn_value *v)
{
    const Version *only = p->version[v->id];
    bool partial = only && !only->next && only->sharding.unreduced.n > 0 && p->uses[v->id] == 1;
    return partial && only->sharding.how == CVN_SUM ? only : NULL;
}

/* A partial sum that nothing needs for about a layer is reduced now: the gradients of all weights,
   each as large as on one device, would wait for the clipping at the end otherwise. */
static void reduce_early(Partitioner *p, const cvn_value *v)
{
    const Version *only = p->version[v->id];
    if (only->sharding.unreduced.n && p->first_use[v->id] - p->op > KEEP_OPS)
        part_value(p, v, &p->sharding[v->id]);
}

/* Partial sums over the same devices are added before they are reduced, so that they are reduced once. The gradients that a
   value gets from several products are such sums. */
static bool add_partial_sums(Partitioner *p, const Op *op)
{
    if (op->kind != OP_ADD)
        return false;
    const Version *a = partial_sum(p, op->operand[0]), *b = partial_sum(p, op->operand[1]);
    if (!a || !b || !sharding_same(&a->sharding, &b->sharding))
        return false;
    cvn_value *sum = cvn_add(p->emit.g, a->local, b->local);
    add_version(p, op->result[0], &a->sharding, sum, false);
    reduce_early(p, op->result[0]);
    return true;
}

static void partition_op(Partitioner *p, const Op *op)
{
    if (add_partial_sums(p, op))
        return;
    Rule rule = factor_rule(op, &p->arena);
    FactorSplit choice;
    part_choose(p, op, &rule, &choice);
    cvn_value **in = arena_array(&p->arena, (size_t)op->n_operands + 1, sizeof *in);
    for (int t = 0; t < op->n_operands; t++) {
        Sharding want = choice_sharding(&rule, &choice, t, op->operand[t]->type.rank);
        in[t] = part_value(p, op->operand[t], &want);
    }
    cvn_at(p->emit.g, op->file, op->line);
    cvn_value *out[OP_MOST_RESULTS];
    part_emit(p, op, &rule, &choice, in, out);
    for (int i = 0; i < op->n_results && out[i] != p->emit.g->poison; i++) {
        const cvn_value *v = op->result[i];
        cvn_value *local = out[i];
        Sharding natural = choice_sharding(&rule, &choice, op->n_operands + i, v->type.rank);
        if (v->name && !local->name)
            local->name = arena_string(&p->emit.g->arena, v->name);
        add_version(p, v, &natural, local, false);
        reduce_early(p, v);
    }
}

static int partition(Partitioner *p, cvn_err *err)
{
    const cvn_graph *g = p->g;
    size_t n = g->n_values + (size_t)1;
    p->constant = arena_array(&p->arena, n, sizeof *p->constant);
    p->version = arena_array(&p->arena, n, sizeof(Version *));
    map_init(&p->plans, &p->arena);
    shard_constants(g, p->constant);
    p->uses = graph_uses(g, &p->arena);
    p->first_use = arena_array(&p->arena, n, sizeof *p->first_use);
    int64_t at = g->n_ops;
    for (uint32_t i = 0; i < g->n_values; i++)
        p->first_use[i] = at;
    for (const Op *op = g->last; op; op = op->prev) {
        at--;
        for (int i = 0; i < op->n_operands; i++)
            p->first_use[op->operand[i]->id] = at;
    }
    PartitionReport *r = p->report;
    r->parameter = arena_array(&r->arena, (size_t)g->n_parameters, sizeof *r->parameter);
    r->output = arena_array(&r->arena, (size_t)g->n_outputs, sizeof *r->output);
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        const Sharding *sharding = &p->sharding[v->id];
        cvn_type local = sharding_local(sharding, &v->type);
        cvn_graph *to = p->emit.g;
        cvn_value *x = cvn_parameter(to, arena_string(&to->arena, v->def->attr.name), local);
        graph_role(x, (Role)v->role, v->index);
        if (v->name)
            x->name = arena_string(&to->arena, v->name);
        add_version(p, v, sharding, x, false);
        r->parameter[r->n_parameters++] = (PartitionTensor){v->type, local, *sharding};
    }
    for (const Op *op = g->first; op && !p->emit.g->err.code; op = op->next, p->op++)
        if (op->kind != OP_PARAMETER && !p->constant[op->result[0]->id] &&
            !part_is_made(op->result[0]))
            partition_op(p, op);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_value *v = g->output[i].value, *into = g->output[i].into;
        const Sharding *want = &p->sharding[into ? into->id : v->id];
        cvn_value *x = part_value(p, v, want);
        cvn_output_into(p->emit.g, x, into ? part_value(p, into, want) : NULL);
        r->output[r->n_outputs++] =
            (PartitionTensor){v->type, sharding_local(want, &v->type), *want};
    }
    TRY(cvn_graph_check(p->emit.g, err));
    graph_remove_dead(p->emit.g);
    count_collectives(p->emit.g, r);
    return CVN_OK;
}

int shard_partition(const cvn_graph *global, const Mesh *mesh, const ShardResult *result,
                    cvn_graph **local, PartitionReport *report, cvn_err *err)
{
    SCOPED(graph_release) cvn_graph *copy = NULL, *out = NULL;
    SCOPED(shard_result_free) ShardResult again = {0};
    *report = (PartitionReport){0};
    *local = NULL;
    for (const Op *op = global->first; op; op = op->next)
        if (op_info[op->kind].class_ == CLASS_COLLECTIVE)
            return err_set(err, CVN_EUNSUPPORTED,
                           "graph '%s' already contains %s; only a graph on global shapes, without "
                           "collectives, can be partitioned",
                           global->name, op_info[op->kind].name);
    TRY(arena_begin(&report->arena, err));
    Partitioner p = {.mesh = mesh, .report = report};
    int code = part_prepare(global, mesh, result, &copy, &again, err);
    if (code == CVN_OK && !(out = cvn_graph_new(global->name, err)))
        code = CVN_EMEM;
    if (code == CVN_OK)
        code = arena_begin(&p.arena, err);
    if (code == CVN_OK) {
        p.g = copy ? copy : global;
        p.sharding = copy ? again.sharding : result->sharding;
        emit_init(&p.emit, out, mesh);
        code = partition(&p, err);
        arena_free(&p.arena);
    }
    if (code)
        arena_free(&report->arena);
    *local = code ? NULL : out;
    out = code ? out : NULL;
    return code;
}

void partition_report_free(PartitionReport *report)
{
    arena_free(&report->arena);
}
