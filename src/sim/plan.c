/* Building, marking, propagating, partitioning, planning; then adding up what came of it. */
#include "sim/plan.h"

#include "base/map.h"
#include "base/threads.h"
#include "compile/lower.h"
#include "compile/pipeline.h"
#include "cpu/registry.h"
#include "graph/simplify.h"
#include "shard/layouts.h"
#include "shard/partition.h"
#include "shard/propagate.h"

#include <math.h>
#include <string.h>

const char *const sim_role_names[SIM_ROLE_COUNT] = {
    [SIM_WEIGHT] = "weights",
    [SIM_ROUNDED] = "weights in bf16",
    [SIM_OPTIMIZER] = "optimizer state",
    [SIM_CACHE] = "KV cache",
    [SIM_INPUT] = "inputs",
    [SIM_ACTIVATION] = "activations",
};

/* Everything on the way. */
typedef struct Sim {
    const SimAsk *ask;
    SimAnswer *answer;
    ParamList params;
    Map kinds;         /* name of a parameter -> index in params, + 1 */
    cvn_graph *global; /* owned */
    ShardResult shards;
    Map rows; /* what tensors have in common, as text -> index in answer->tensor */
} Sim;

/* ---- the graph ---- */

static int build(Sim *s, cvn_err *err)
{
    const SimAsk *ask = s->ask;
    if (ask->task == SIM_TRAIN) {
        TrainStepOptions options = ask->train;
        options.batch = ask->batch;
        options.seq = ask->seq;
        options.compute = ask->compute;
        s->global = train_graph(TRAIN_STEP, &ask->config, &options, err);
    } else {
        LlamaStep step = {.batch = ask->batch,
                          .seq = ask->task == SIM_DECODE ? 1 : ask->seq,
                          .context = ask->context,
                          .compute = ask->compute,
                          .output = LLAMA_SAMPLE};
        s->global = llama_step(&ask->config, &step, err);
    }
    return s->global ? CVN_OK : err->code;
}

/* ---- tensors ---- */

/* "exp_avg.layers.3.q" -> "exp_avg.q", role optimizer; "cache.3.k" -> "cache.k". */
static SimRole role_of(Sim *s, const char *name, const char **kind)
{
    Arena *arena = &s->answer->arena;
    const char *weight = name;
    for (;;) {
        const uint64_t *at = map_get(&s->kinds, weight, strlen(weight));
        if (at) {
            const char *of = param_kind_name(s->params.param[*at].kind);
            *kind =
                weight == name ? of : arena_printf(arena, "%.*s%s", (int)(weight - name), name, of);
            if (strncmp(name, PARAM_ROUNDED, strlen(PARAM_ROUNDED)) == 0)
                return SIM_ROUNDED;
            return weight == name ? SIM_WEIGHT : SIM_OPTIMIZER;
        }
        const char *dot = strchr(weight, '.');
        if (!dot)
            break;
        weight = dot + 1;
    }
    bool cache = strncmp(name, "cache.", 6) == 0;
    *kind =
        cache ? arena_printf(arena, "cache.%s", strrchr(name, '.') + 1)
              : arena_string(arena, name); /* the graph, whose name it is, goes before the answer */
    return cache ? SIM_CACHE : SIM_INPUT;
}

/* Who split v, back to a mark: "dot_general from rms_norm, mark on tokens". */
static const char *chain(Sim *s, const cvn_value *v)
{
    enum { MOST_LINKS = 6 };
    StrBuf text = {0};
    const ShardOrigin *o = s->shards.origin[v->id];
    for (int i = 0; o; i++) {
        strbuf_puts(&text, i ? ", " : "");
        if (o->kind == ORIGIN_MARK) {
            strbuf_printf(&text, "mark on %s", v->name ? v->name : op_info[v->def->kind].name);
            break;
        }
        if (i == MOST_LINKS) {
            strbuf_puts(&text, "…");
            break;
        }
        strbuf_printf(&text, "%s%s", o->op ? op_info[o->op->kind].name : "output",
                      o->kind == ORIGIN_EXCHANGE ? " (partial sums scattered)" : "");
        v = o->from;
        o = shard_origin_before(&s->shards, o);
    }
    const char *kept = arena_string(&s->answer->arena, text.text ? text.text : "");
    strbuf_free(&text);
    return kept;
}

static void add_tensor(Sim *s, SimRole role, const char *kind, const cvn_value *v)
{
    SimAnswer *a = s->answer;
    const Sharding *sharding = &s->shards.sharding[v->id];
    StrBuf key = {0};
    sharding_print(&key, &a->mesh, sharding);
    const char *spec = arena_string(&a->arena, key.text ? key.text : "");
    strbuf_printf(&key, " %d %s ", (int)role, kind);
    type_print(&key, &v->type);
    uint64_t *at = key.failed ? NULL : map_get(&s->rows, key.text, key.length);
    if (!at) {
        a->tensor = arena_more(&a->arena, a->tensor, (size_t)a->n_tensors, sizeof *a->tensor);
        at = map_put(&s->rows, key.text, key.length, NULL);
        *at = (uint64_t)a->n_tensors;
        SimTensor *t = &a->tensor[a->n_tensors++];
        *t = (SimTensor){
            .role = role, .kind = kind, .type = v->type, .spec = spec, .origin = chain(s, v)};
        for (int d = 0; d < v->type.rank; d++)
            t->shards[d] = (int)axes_size(&sharding->dim[d].axes);
    }
    SimTensor *t = &a->tensor[*at];
    double bytes = (double)cvn_dtype_bits(v->type.dtype) / 8;
    for (int d = 0; d < v->type.rank; d++)
        bytes *= (double)sharding_chunk(sharding, d, v->type.dim[d]);
    t->count++;
    t->device_bytes += bytes;
    a->role_bytes[role] += bytes;
    if (role == SIM_WEIGHT && s->ask->task == SIM_TRAIN)
        a->gradients += bytes;
    strbuf_free(&key);
}

/* Results that the field gives names to: of products, attention, norms and look-ups. */
static bool is_activation(const Op *op)
{
    return op->kind == OP_DOT_GENERAL || op->kind == OP_ATTENTION || op->kind == OP_RMS_NORM ||
           op->kind == OP_GATHER;
}

static void add_tensors(Sim *s)
{
    for (int i = 0; i < s->global->n_parameters; i++) {
        const cvn_value *v = s->global->parameter[i];
        const char *kind;
        SimRole role = role_of(s, v->def->attr.name, &kind);
        add_tensor(s, role, kind, v);
    }
    for (const Op *op = s->global->first; op; op = op->next)
        if (is_activation(op))
            add_tensor(s, SIM_ACTIVATION, op_info[op->kind].name, op->result[0]);
}

/* ---- the device's graph ---- */

/* Adds up the collectives of one kind, over the same axes. */
static void add_collective(Sim *s, const PartitionCollective *c)
{
    SimAnswer *a = s->answer;
    const OpAttr *attr = &c->op->attr;
    int64_t n = c->op->kind == OP_COLLECTIVE_PERMUTE ? 2 : attr->group_size;
    StrBuf text = {0};
    axes_print(&text, &a->mesh, &c->axes);
    const char *axes = text.text ? text.text : "";
    int i = 0;
    while (i < a->n_collectives &&
           (a->collective[i].kind != c->op->kind || a->collective[i].devices != n ||
            strcmp(a->collective[i].axes, axes) != 0))
        i++;
    if (i == a->n_collectives) {
        a->collective = arena_more(&a->arena, a->collective, (size_t)i, sizeof *a->collective);
        a->collective[a->n_collectives++] = (SimCollective){
            .kind = c->op->kind, .axes = arena_string(&a->arena, axes), .devices = n};
    }
    a->collective[i].count++;
    a->collective[i].bytes += op_ring_bytes(c->op);
    strbuf_free(&text);
}

/* Counts what a device's graph does, and plans its memory. */
static int study_local(Sim *s, const cvn_graph *local, const PartitionReport *report, cvn_err *err)
{
    SimAnswer *a = s->answer;
    for (const Op *op = local->first; op; op = op->next) {
        a->operations++;
        a->flops += op_flops(op);
    }
    for (int64_t i = 0; i < report->n_collectives; i++)
        add_collective(s, &report->collective[i]);
    a->n_involuntary = report->n_involuntary;
    if (!s->ask->compile)
        return CVN_OK;
    CompileOptions options = {
        .backend = cpu_backend(), .n_threads = 1, .blocking = s->ask->blocking};
    Plan *plan;
    int code = compile_graph(local, &options, &plan, err);
    if (code)
        return code;
    a->temporaries = (double)plan->arena_bytes + (double)plan->constant_bytes;
    a->steps = plan->n_steps;
    peak_find(plan, &a->arena, &a->peak);
    plan_free(plan);
    return CVN_OK;
}

/* 2 operations per weight and token forward and twice that backward, and causal attention. */
static double model_flops(const SimAsk *ask)
{
    const LlamaConfig *c = &ask->config;
    double tokens = (double)(ask->batch * (ask->task == SIM_DECODE ? 1 : ask->seq));
    double keys = ask->task == SIM_DECODE ? (double)ask->context : (double)(ask->seq + 1) / 2;
    double attention = 4 * tokens * keys * (double)(c->n_heads * c->head_dim * c->n_layers);
    double forward = 2 * (double)model_size(c).matmul_params * tokens + attention;
    return ask->task == SIM_TRAIN ? 3 * forward : forward;
}

static int run(Sim *s, cvn_err *err)
{
    SimAnswer *a = s->answer;
    const SimAsk *ask = s->ask;
    params_list(&s->params, &ask->config, &a->arena);
    map_init(&s->kinds, &a->arena);
    map_init(&s->rows, &a->arena);
    for (int i = 0; i < s->params.n; i++)
        *map_put(&s->kinds, s->params.param[i].name, strlen(s->params.param[i].name), NULL) =
            (uint64_t)i;
    int code = mesh_parse(&a->mesh, ask->mesh, &a->arena, err);
    if (!code)
        code = build(s, err);
    if (!code &&
        ask->task == SIM_TRAIN) /* as a trainer does (train/mesh.c), for the same collectives */
        code = graph_simplify(s->global, NULL, err);
    if (!code)
        code = llama_mark(s->global, &ask->config, &a->mesh, ask->layout, err);
    if (!code)
        code = shard_propagate(s->global, &a->mesh, &s->shards, err);
    if (code)
        return code;
    a->n_conflicts = s->shards.n_conflicts;
    add_tensors(s);
    cvn_graph *local = NULL;
    PartitionReport report = {0};
    code = shard_partition(s->global, &a->mesh, &s->shards, &local, &report, err);
    shard_result_free(&s->shards);
    cvn_graph_free(s->global);
    s->global = NULL;
    if (!code)
        code = study_local(s, local, &report, err);
    partition_report_free(&report);
    cvn_graph_free(local);
    a->model_flops = model_flops(ask);
    a->total = a->temporaries;
    for (int role = 0; role < SIM_ACTIVATION; role++)
        a->total += a->role_bytes[role];
    return code;
}

int sim_plan(const SimAsk *ask, SimAnswer *answer, cvn_err *err)
{
    double begin = clock_seconds();
    *answer = (SimAnswer){0};
    int code = arena_init(&answer->arena, err);
    if (code)
        return code;
    Sim s = {.ask = ask, .answer = answer};
    code = run(&s, err);
    cvn_graph_free(s.global);
    answer->seconds = clock_seconds() - begin;
    return code;
}

void sim_answer_free(SimAnswer *answer)
{
    arena_free(&answer->arena);
    *answer = (SimAnswer){0};
}
