#include "train/mesh.h"

#include "base/num.h"
#include "graph/simplify.h"
#include "shard/layouts.h"
#include "shard/reshard.h"
#include "train/step.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- what stays on the devices ---- */

static void add_tensor(TrainMesh *m, const char *name, const cvn_type *type)
{
    *map_put(&m->by_name, name, strlen(name), NULL) = (uint64_t)m->n;
    m->tensor[m->n++] = (MeshTensor){.type = *type};
}

/* In the order of the state, under the names that graphs use. */
static void list_tensors(TrainMesh *m, const TrainMeshOptions *o)
{
    const TrainState *state = o->state;
    int n_frozen = state->frozen ? state->model.n : 0;
    size_t most = (size_t)(state->saved.n + 2 * state->n_weights + n_frozen + 1);
    m->rounded = arena_array(&m->arena, (size_t)state->n_weights, sizeof *m->rounded);
    m->tensor = arena_array(&m->arena, most, sizeof *m->tensor);
    map_init(&m->by_name, &m->arena);
    for (int i = 0; i < state->n_weights; i++)
        add_tensor(m, state->params.param[i].name, &state->saved.tensor[i].type);
    for (int i = 0; i < state->n_weights; i++) {
        const Param *p = &state->params.param[i];
        OptimizerSlot slot[OPTIMIZER_MAX_SLOTS];
        int n = optimizers[o->optimizer].slots(p, slot);
        for (int k = 0; k < n; k++)
            add_tensor(m, arena_printf(&m->arena, "%s.%s", slot[k].name, p->name), &slot[k].type);
    }
    m->n_state = m->n;
    for (int i = 0; i < n_frozen; i++)
        add_tensor(m, state->model.param[i].name, &state->frozen[i].type);
    for (int i = 0; i < state->n_weights; i++) {
        const CheckpointTensor *copy = &state->rounded[i];
        m->rounded[i] = copy->name ? m->n : -1;
        if (copy->name)
            add_tensor(m, arena_printf(&m->arena, PARAM_ROUNDED "%s", copy->name), &copy->type);
    }
    m->n_kept = m->n;
    for (int i = 0; i < state->n_weights && o->accumulates; i++)
        add_tensor(m, arena_printf(&m->arena, "sum.%s", state->params.param[i].name),
                   &state->saved.tensor[i].type);
    const cvn_type total = CVN_TYPE(CVN_F32, TRAIN_TOTALS);
    if (o->accumulates)
        add_tensor(m, "total", &total);
}

static MeshTensor *find_tensor(const TrainMesh *m, const char *name)
{
    const uint64_t *at = map_get(&m->by_name, name, strlen(name));
    return at ? &m->tensor[*at] : NULL;
}

/* All but the devices. */
static int begin(TrainMesh *m, const TrainMeshOptions *o, cvn_err *err)
{
    *m = (TrainMesh){.config = *o->config};
    int code = arena_init(&m->arena, err);
    if (code)
        return code;
    m->spec = arena_string(&m->arena, o->mesh);
    m->layout = arena_string(&m->arena, o->layout ? o->layout : "2d");
    list_tensors(m, o);
    return CVN_OK;
}

int train_mesh_open(TrainMesh *m, const TrainMeshOptions *o, cvn_err *err)
{
    int code = begin(m, o, err);
    return code ? code
                : mesh_devices_open(&m->devices, m->spec, &m->arena, o->cluster, o->threads, err);
}

int train_mesh_describe(TrainMesh *m, const TrainMeshOptions *o, cvn_err *err)
{
    int code = begin(m, o, err);
    return code ? code : mesh_devices_describe(&m->devices, m->spec, &m->arena, err);
}

void train_mesh_close(TrainMesh *m)
{
    if (m->block)
        munmap(m->block, m->block_bytes);
    mesh_devices_close(&m->devices);
    arena_free(&m->arena);
    *m = (TrainMesh){0};
}

/* ---- graphs ---- */

/* Numbers are the same everywhere; tokens, and whatever else
   a graph has per token, are split as the layout says. */
static int mark(TrainMesh *m, cvn_graph *g, cvn_err *err)
{
    const cvn_spec *batch = NULL;
    for (int i = 0; i < g->n_parameters; i++)
        if (strcmp(g->parameter[i]->def->attr.name, "tokens") == 0)
            batch = g->parameter[i]->spec;
    for (int i = 0; i < g->n_parameters; i++) {
        cvn_value *v = g->parameter[i];
        const MeshTensor *t = find_tensor(m, v->def->attr.name);
        if (t && t->known) {
            cvn_spec spec;
            int code = sharding_to_spec(&m->devices.mesh, &t->sharding, &g->arena, &spec, err);
            if (code)
                return code;
            cvn_mark_sharding(g, v, &spec);
        } else if (v->type.rank < 2 && (!t || strcmp(v->def->attr.name, "total") == 0)) {
            cvn_mark_sharding(g, v, &(cvn_spec){.rank = v->type.rank});
        } else if (!t && !v->spec && batch && v->type.rank == batch->rank) {
            cvn_mark_sharding(g, v, batch);
        }
    }
    for (int i = 0; i < g->n_outputs; i++)
        if (!g->output[i].into)
            cvn_mark_sharding(g, g->output[i].value,
                              &(cvn_spec){.rank = g->output[i].value->type.rank});
    return CVN_OK;
}

/* What the first graph with a tensor finds is how it lies from then on. */
static int take_shardings(TrainMesh *m, const cvn_graph *g, const PartitionReport *report,
                          cvn_err *err)
{
    for (int i = 0; i < report->n_parameters; i++) {
        const PartitionTensor *p = &report->parameter[i];
        const char *name = g->parameter[i]->def->attr.name;
        MeshTensor *t = find_tensor(m, name);
        if (!t)
            continue;
        if (t->known && !sharding_same(&t->sharding, &p->sharding))
            return err_set(
                err, CVN_EUNSUPPORTED,
                "layout %s would hold %s differently in different steps; take another one",
                m->layout, name);
        t->known = true;
        t->sharding = p->sharding;
        t->local = p->local;
    }
    return CVN_OK;
}

int train_mesh_cut(TrainMesh *m, cvn_graph *g, MeshStep *step, cvn_graph **local, cvn_err *err)
{
    *local = NULL;
    int code = graph_simplify(g, NULL, err);
    if (code == CVN_OK)
        code = llama_mark(g, &m->config, &m->devices.mesh, m->layout, err);
    if (code == CVN_OK)
        code = mark(m, g, err);
    if (code == CVN_OK)
        code = mesh_devices_cut(&m->devices, g, local, &step->report, err);
    if (code)
        return code;
    code = take_shardings(m, *local, &step->report, err);
    if (code) {
        cvn_graph_free(*local);
        *local = NULL;
    }
    return code;
}

void train_mesh_step_free(MeshStep *step)
{
    partition_report_free(&step->report);
    *step = (MeshStep){0};
}

/* ---- memory ---- */

static size_t bytes_of(const TrainMesh *m, int first, int end)
{
    size_t sum = 0;
    for (int i = first; i < end; i++)
        sum += m->tensor[i].known ? num_padded(cvn_type_bytes(&m->tensor[i].local), CACHE_LINE) : 0;
    return sum * (size_t)m->devices.n_local;
}

size_t train_mesh_state_bytes(const TrainMesh *m)
{
    return bytes_of(m, 0, m->n_kept);
}

size_t train_mesh_sum_bytes(const TrainMesh *m)
{
    return bytes_of(m, m->n_kept, m->n);
}

int train_mesh_allocate(TrainMesh *m, size_t arena_bytes, cvn_err *err)
{
    for (int i = 0; i < m->n; i++)
        if (!m->tensor[i].known)
            return err_set(err, CVN_EUNSUPPORTED, "a tensor of the state is in no step");
    size_t bytes = bytes_of(m, 0, m->n);
    void *block =
        mmap(NULL, bytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return err_set(err, CVN_EMEM, "no memory for %zu bytes of weights and optimizer state",
                       bytes);
    m->block = block;
    m->block_bytes = bytes + 64;
    m->data = arena_array(&m->arena, (size_t)m->devices.n_local * (size_t)m->n, sizeof *m->data);
    char *at = m->block;
    for (int i = 0; i < m->devices.n_local * m->n; i++) {
        m->data[i] = at;
        at += num_padded(cvn_type_bytes(&m->tensor[i % m->n].local), CACHE_LINE);
    }
    int code = CVN_OK;
    for (int d = 0; d < m->devices.n_local && code == CVN_OK; d++)
        code = device_reserve(group_device(m->devices.group, d), arena_bytes, err);
    return code;
}

void train_mesh_clear_sums(TrainMesh *m)
{
    for (int i = 0; i < m->devices.n_local * m->n; i++)
        if (i % m->n >= m->n_kept)
            memset(m->data[i], 0, cvn_type_bytes(&m->tensor[i % m->n].local));
}

/* Tensors from number `tensor` on are those of the list. */
static int fill_from(TrainMesh *m, int tensor, const ParamList *params, SaveFill fill,
                     void *context, cvn_err *err)
{
    int code = CVN_OK;
    for (int d = 0; d < m->devices.n_local; d++)
        for (int i = 0; i < params->n && code == CVN_OK; i++) {
            const MeshTensor *t = &m->tensor[tensor + i];
            void *shard = m->data[d * m->n + tensor + i];
            const Region all = region_whole(&t->type);
            const RegionArray whole = region_packed(&all);
            const RegionArray part =
                region_of_shard(&m->devices.mesh, &t->sharding, &t->type, m->devices.first + d);
            RegionWalk w;
            region_walk(&w, &part.region, &whole, &part);
            while (code == CVN_OK && region_next(&w))
                code = save_fill_as(fill, context, &params->param[i], w.a, w.n, t->type.dtype,
                                    shard, w.b, err);
        }
    return code;
}

int train_mesh_fill(TrainMesh *m, const ParamList *params, SaveFill fill, void *context,
                    cvn_err *err)
{
    return fill_from(m, 0, params, fill, context, err);
}

int train_mesh_fill_frozen(TrainMesh *m, const ParamList *model, SaveFill fill, void *context,
                           cvn_err *err)
{
    return fill_from(m, m->n_state, model, fill, context, err);
}

int64_t train_mesh_rounded(const TrainMesh *m, int d, int i, const float **weight,
                           uint16_t **rounded)
{
    void **data = &m->data[d * m->n];
    *weight = data[i];
    *rounded = data[m->rounded[i]];
    return cvn_type_elements(&m->tensor[i].local);
}

/* ---- running ---- */

int train_mesh_bind(TrainMesh *m, const Plan *plan, MeshStep *step, Arena *arena, cvn_err *err)
{
    size_t np = (size_t)plan->n_parameters, no = (size_t)plan->n_outputs,
           n = (size_t)m->devices.n_local;
    step->param = arena_array(arena, n * np, sizeof *step->param);
    step->output = arena_array(arena, n * no, sizeof *step->output);
    if (step->report.n_parameters != plan->n_parameters)
        return err_set(err, CVN_EUNSUPPORTED, "a step lost inputs when it was compiled");
    for (size_t d = 0; d < n; d++)
        for (size_t i = 0; i < np; i++) {
            const uint64_t *at =
                map_get(&m->by_name, plan->parameter[i].name, strlen(plan->parameter[i].name));
            step->param[d * np + i] = at ? m->data[d * (size_t)m->n + *at]
                                         : arena_array(arena, plan->parameter[i].bytes + 1, 1);
        }
    return CVN_OK;
}

void train_mesh_rows(const TrainMesh *m, const Plan *plan, const MeshStep *step, bool *need,
                     int64_t rows)
{
    memset(need, 0, (size_t)rows * sizeof *need);
    for (int i = 0; i < plan->n_parameters; i++) {
        const PartitionTensor *p = &step->report.parameter[i];
        if (find_tensor(m, plan->parameter[i].name) || p->global.rank != 2)
            continue;
        for (int d = 0; d < m->devices.n_local; d++) {
            RegionArray part =
                region_of_shard(&m->devices.mesh, &p->sharding, &p->global, m->devices.first + d);
            for (int64_t r = 0; r < part.region.count[0]; r++)
                need[part.region.first[0] + r] = true;
        }
    }
}

int train_mesh_run(TrainMesh *m, const Plan *plan, MeshStep *step, void *const *host, void **output,
                   cvn_err *err)
{
    int np = plan->n_parameters;
    for (int i = 0; i < np; i++) {
        const PartitionTensor *p = &step->report.parameter[i];
        if (find_tensor(m, plan->parameter[i].name))
            continue;
        for (int d = 0; d < m->devices.n_local; d++)
            shard_scatter(&m->devices.mesh, &p->sharding, &p->global, host[i], m->devices.first + d,
                          step->param[d * np + i]);
    }
    int code = group_run(m->devices.group, plan, step->param, step->output, err);
    if (code == CVN_OK)
        memcpy(output, step->output, (size_t)plan->n_outputs * sizeof *output);
    return code;
}
