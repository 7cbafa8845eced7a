#include "run/program.h"

#include "base/helper.h"
#include "base/map.h"
#include "graph/simplify.h"
#include "shard/reshard.h"

#include <stdlib.h>
#include <string.h>

/* ---- marks ---- */

static void mark_whole(cvn_graph *g, cvn_value *v)
{
    cvn_mark_sharding(g, v, &(cvn_spec){.rank = v->type.rank});
}

/* Host memory, for the length of a run. */
static bool is_input(const Binding *b)
{
    return b->role == ROLE_NONE || b->role >= ROLE_RESIDENT;
}

/* Whether a value lies as a tensor does that stays: what is given of it as a result is a value of its own. */
static bool stays(const Program *p, const cvn_graph *g, const cvn_value *v)
{
    bool is = false;
    for (int i = 0; i < g->n_parameters; i++)
        is = is || (g->parameter[i] == v && !is_input(&p->signature.parameter[i]));
    for (int i = 0; i < g->n_outputs; i++)
        is = is || (g->output[i].value == v && p->signature.into[i] >= 0);
    return is;
}

/* Resident tensors that are known lie as they do; what the host gives and takes is whole, but where a layout splits an
   input. */
static int mark_known(const Program *p, cvn_graph *g, const ProgramOptions *o, cvn_err *err)
{
    const Runtime *rt = p->rt;
    for (int i = 0; i < g->n_parameters; i++) {
        cvn_value *v = g->parameter[i];
        const Binding *is = &p->signature.parameter[i];
        const Buffer *b = is_input(is) ? NULL : runtime_buffer(rt, is->role, is->index);
        cvn_spec spec;
        if (b) {
            TRY(sharding_to_spec(&rt->mesh, &b->sharding, &g->arena, &spec, err));
            cvn_mark_sharding(g, v, &spec);
        } else if (is->role == ROLE_TOTAL ||
                   (is_input(is) && (o->whole_inputs || p->signature.donated[i] || !v->spec))) {
            mark_whole(g, v);
        }
    }
    for (int i = 0; i < g->n_outputs; i++) {
        int into = p->signature.into[i];
        Role role = p->signature.output[i].role;
        cvn_value *v = g->output[i].value;
        if (into < 0 && stays(p, g, v))
            v = g->output[i].value = cvn_reshape(g, v, v->type.rank, v->type.dim);
        if (into < 0 || is_input(&p->signature.output[i]))
            mark_whole(g, v);
        else if (role == ROLE_CACHE && g->parameter[into]->spec)
            cvn_mark_sharding(g, v, g->parameter[into]->spec);
    }
    return CVN_OK;
}

/* ---- buffers ---- */

static Buffer *add_buffer(Program *p, int parameter)
{
    Runtime *rt = p->rt;
    const Binding *is = &p->signature.parameter[parameter];
    const PartitionTensor *t = &p->report.parameter[parameter];
    const int key[] = {(int)is->role, is->index};
    Buffer *b = arena_alloc(&rt->arena, sizeof *b);
    *b = (Buffer){.role = is->role,
                  .index = is->index,
                  .type = t->global,
                  .local = t->local,
                  .sharding = t->sharding,
                  .held = 1};
    *map_put(&rt->buffers, key, sizeof key, NULL) = (uint64_t)(uintptr_t)b;
    *(rt->last ? &rt->last->next : &rt->first) = b;
    rt->last = b;
    return b;
}

/* Finds the buffers of all resident parameters; those that are new get a place in the list. */
static int take_buffers(Program *p, const cvn_graph *g, const char *layout, cvn_err *err)
{
    for (int i = 0; i < p->signature.n_parameters; i++) {
        const Binding *is = &p->signature.parameter[i];
        const PartitionTensor *t = &p->report.parameter[i];
        const char *name = g->parameter[i]->def->attr.name;
        if (is_input(is)) {
            if (p->signature.donated[i] && !cvn_type_equal(&t->local, &t->global))
                return err_set(err, CVN_EUNSUPPORTED,
                               "input '%s' is updated in place and cannot be sharded", name);
            continue;
        }
        Buffer *b = runtime_buffer(p->rt, is->role, is->index);
        if (b &&
            !(cvn_type_equal(&b->type, &t->global) && sharding_same(&b->sharding, &t->sharding)))
            return err_set(err, CVN_EUNSUPPORTED,
                           "layout %s shards %s differently in different steps; use another one",
                           layout ? layout : "of this graph", name);
        if (!b) {
            b = add_buffer(p, i);
            b->name = arena_string(&p->rt->arena, name);
        }
        p->buffer[i] = b;
    }
    return CVN_OK;
}

/* ---- compiling ---- */

static int compile(Program *p, const cvn_graph *local, cvn_err *err)
{
    Runtime *rt = p->rt;
    int n = p->signature.n_parameters;
    MemoryLayout *layout = arena_array(&rt->arena, (size_t)n, sizeof *layout);
    size_t input_bytes = 0;
    for (int i = 0; i < n; i++) {
        const Buffer *b = p->buffer[i];
        input_bytes += b ? 0 : cvn_type_bytes(&p->report.parameter[i].local);
        bool free = b && b->role == ROLE_WEIGHT && !p->signature.donated[i];
        layout[i] = b && b->executable ? b->layout : free ? LAYOUT_FREE : LAYOUT_PLAIN;
    }
    if (rt->backend->compile(rt->devices, local, &p->report, &rt->mesh, layout, &p->executable,
                             err))
        return err->code;
    rt->backend->executable(p->executable, &p->info);
    for (int i = 0; i < n; i++) {
        Buffer *b = p->buffer[i];
        if (!b || b->executable)
            continue;
        b->executable = p->executable;
        b->parameter = i;
        b->layout = p->info.layout[i];
        b->bytes =
            b->layout == LAYOUT_PLAIN ? cvn_type_bytes(&b->local) : p->info.parameter_bytes[i];
    }
    if (p->info.temporary_bytes > rt->temporary_bytes)
        rt->temporary_bytes = p->info.temporary_bytes;
    if (input_bytes > rt->input_bytes)
        rt->input_bytes = input_bytes;
    rt->constant_bytes += p->info.constant_bytes;
    return CVN_OK;
}

/* Notes which axes of the mesh split anything, be it only between products. */
static void note_used(Runtime *rt, const ShardResult *r)
{
    _Static_assert(MESH_MAX_AXES <= 32, "a bit for each axis");
    for (uint32_t v = 0; v < r->n_values; v++)
        for (int d = 0; d < r->sharding[v].rank; d++)
            for (int k = 0; k < r->sharding[v].dim[d].axes.n; k++)
                rt->used |= 1u << r->sharding[v].dim[d].axes.ref[k].axis;
}

int program_make(Program *p, Runtime *rt, cvn_graph *g, const ProgramOptions *o, cvn_err *err)
{
    *p = (Program){.rt = rt, .name = arena_string(&rt->arena, g->name)};
    signature_of(&p->signature, g, &rt->arena);
    size_t n = (size_t)p->signature.n_parameters;
    p->buffer = arena_array(&rt->arena, n, sizeof(Buffer *));
    p->host = arena_array(&rt->arena, n, sizeof(void *));
    p->argument = arena_array(&rt->arena, n * (size_t)rt->info.n_local, sizeof *p->argument);
    p->output = arena_array(&rt->arena, (size_t)p->signature.n_outputs, sizeof(void *));
    ShardResult own, *shardings = o->shardings ? o->shardings : &own;
    if (graph_simplify(g, NULL, err) || (o->mark && o->mark(o->context, g, &rt->mesh, err)) ||
        mark_known(p, g, o, err) || cvn_graph_check(g, err) ||
        shard_propagate(g, &rt->mesh, shardings, err))
        return err->code;
    note_used(rt, shardings);
    cvn_graph *local = NULL; /* of a device */
    int code = shard_partition(g, &rt->mesh, shardings, &local, &p->report, err);
    if (shardings == &own)
        shard_result_free(&own);
    if (code == CVN_OK)
        code = take_buffers(p, local, o->layout, err);
    p->report.whole = g;
    if (code == CVN_OK && rt->devices)
        code = compile(p, local, err);
    p->report.whole = NULL;
    cvn_graph_free(local);
    if (code) {
        program_free(p);
        return code;
    }
    arena_keep(&p->report.arena);
    return CVN_OK;
}

void program_free(Program *p)
{
    partition_report_free(&p->report);
    *p = (Program){0};
}

/* ---- running ---- */

bool program_bind(Program *p, Role role, int index, void *host)
{
    int i = signature_parameter(&p->signature, role, index);
    if (i >= 0)
        p->host[i] = host;
    return i >= 0;
}

void program_set_pending(Program *p, Role role, struct HelperThread *helper)
{
    p->pending = helper;
    p->pending_role = role;
}

/* Whether devices have their own copies or shards of a parameter that lies with the host. */
static bool is_staged(const Program *p, int i)
{
    const PartitionTensor *t = &p->report.parameter[i];
    return !cvn_type_equal(&t->local, &t->global) ||
           (p->signature.donated[i] && p->rt->info.n_local > 1);
}

/* The first time; what devices have of their own is taken. */
static int stage(Program *p, int i, int d, cvn_err *err)
{
    Argument *a = &p->argument[d * p->signature.n_parameters + i];
    const PartitionTensor *t = &p->report.parameter[i];
    size_t bytes = cvn_type_bytes(&t->local);
    if (!a->host && !(a->host = arena_try(&p->rt->arena, bytes + 1)))
        return err_set(err, CVN_EMEM, "no memory for a device's %zu bytes of input %d of '%s'",
                       bytes, i, p->name);
    shard_scatter(&p->rt->mesh, &t->sharding, &t->global, p->host[i], p->rt->info.first + d,
                  a->host);
    return CVN_OK;
}

/* What a run updated of what devices had their own copies or shards of. */
static int write_back(Program *p, int i, cvn_err *err)
{
    const Runtime *rt = p->rt;
    const PartitionTensor *t = &p->report.parameter[i];
    if (cvn_type_equal(&t->local, &t->global)) {
        memcpy(p->host[i], p->argument[i].host, cvn_type_bytes(&t->global));
        return CVN_OK;
    }
    const void **shard = malloc((size_t)rt->info.n_local * sizeof *shard);
    if (!shard)
        return err_set(err, CVN_EMEM, "no memory to gather '%s'", p->buffer[i]->name);
    for (int d = 0; d < rt->info.n_local; d++)
        shard[d] = p->argument[d * p->signature.n_parameters + i].host;
    shard_gather(&rt->mesh, &t->sharding, &t->global, shard, p->host[i]);
    free(shard);
    return CVN_OK;
}

int program_run(Program *p, cvn_err *err)
{
    Runtime *rt = p->rt;
    int n = p->signature.n_parameters;
    for (int i = 0; i < n; i++) {
        bool pending = p->pending && p->signature.parameter[i].role == p->pending_role;
        if (pending && is_staged(p, i))
            helper_wait(p->pending);
        for (int d = 0; d < rt->info.n_local; d++) {
            Argument *a = &p->argument[d * n + i];
            a->memory = NULL;
            a->pending = pending ? p->pending : NULL;
            if (p->buffer[i] && !p->host[i])
                a->memory = p->buffer[i]->memory ? p->buffer[i]->memory[d] : NULL;
            else if (!is_staged(p, i))
                a->host = p->host[i];
            else if (stage(p, i, d, err))
                return err->code;
        }
    }
    rt->runs++;
    if (rt->backend->run(rt->devices, p->executable, p->argument, p->output, err) ||
        rt->backend->wait(rt->devices, err))
        return err->code;
    for (int i = 0; i < n; i++)
        if (p->host[i] && p->signature.donated[i] && is_staged(p, i) && write_back(p, i, err))
            return err->code;
    return CVN_OK;
}

const void *program_output(const Program *p, Role role, int index)
{
    int i = signature_output(&p->signature, role, index);
    return i < 0 ? NULL : p->output[i];
}

bool program_needs_row(const Program *p, Role role, int index, int64_t row)
{
    int i = signature_parameter(&p->signature, role, index);
    for (int d = 0; i >= 0 && d < p->rt->info.n_local; d++) {
        const PartitionTensor *t = &p->report.parameter[i];
        const Box shard =
            box_of_shard(&p->rt->mesh, &t->sharding, &t->global, p->rt->info.first + d).box;
        if (row >= shard.first[0] && row < shard.first[0] + shard.count[0])
            return true;
    }
    return false;
}
