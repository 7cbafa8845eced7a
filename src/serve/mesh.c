#include "serve/mesh.h"

#include "base/num.h"
#include "base/room.h"
#include "io/weights_quantize.h"
#include "serve/synthetic.h"
#include "shard/layouts.h"
#include "shard/region.h"
#include "shard/reshard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- marks ---- */

/* The axis, as far as it divides n: "model", "model.1.4", or nothing. */
static void split(const EngineMesh *m, cvn_graph *g, cvn_spec *spec, int d, int64_t n,
                  const char *axis, bool whole)
{
    int at = mesh_axis(&m->devices.mesh, axis, strlen(axis));
    if (at < 0)
        return;
    AxisRef ref = {at, 1, m->devices.mesh.axis[at].size};
    int64_t common = num_gcd(n, ref.size);
    if (common == 1 || (whole && common != ref.size))
        return;
    char name[AXIS_NAME_SIZE];
    axis_name(&m->devices.mesh, axis_first(ref, (int32_t)common), name, sizeof name);
    spec->dim[d].axis[spec->dim[d].n++] = arena_string(&g->arena, name);
}

/* Caches [rows, kv_heads, positions, head_dim]: rows by data, heads by model. */
static void mark_cache(const EngineMesh *m, cvn_graph *g, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    split(m, g, &spec, 0, v->type.dim[0], "data", true);
    split(m, g, &spec, 1, v->type.dim[1], "model", false);
    cvn_mark_sharding(g, v, &spec);
}

static bool is_cache(const cvn_value *v)
{
    return v && v->def->kind == OP_PARAMETER && strncmp(v->def->attr.name, "cache.", 6) == 0;
}

/* Everything that the host sees is whole on every device. */
static void mark_host(const EngineMesh *m, cvn_graph *g)
{
    for (int i = m->n_weights; i < g->n_parameters; i++) {
        cvn_value *v = g->parameter[i];
        if (is_cache(v))
            mark_cache(m, g, v);
        else
            cvn_mark_sharding(g, v, &(cvn_spec){.rank = v->type.rank});
    }
    for (int i = 0; i < g->n_outputs; i++) {
        cvn_value *v = g->output[i].value;
        if (is_cache(g->output[i].into))
            mark_cache(m, g, v);
        else
            cvn_mark_sharding(g, v, &(cvn_spec){.rank = v->type.rank});
    }
}

/* ---- what each device holds ---- */

/* That so many elements of a weight's tensor were read. */
static void count_read(EngineMesh *m, int param, double elements)
{
    const IoTensor *tensor = m->model->io.source[param];
    size_t bytes = tensor->bytes;
    for (int i = 0; i < tensor->n_parts; i++)
        bytes += tensor->part[i].bytes;
    m->read_bytes += (double)bytes / (double)tensor->n * elements;
}

/* One shard, from the files; what is padding stays zero. */
static int read_shard(EngineMesh *m, int param, const PartitionTensor *t, int device, char *out,
                      cvn_err *err)
{
    const cvn_model *model = m->model;
    const int64_t room = cvn_type_elements(&t->local);
    if (!model->io.source) {
        synthetic_shard(&model->io.params.param[param], model->dtype, room, out);
        return CVN_OK;
    }
    const RegionArray shard = region_of_shard(&m->devices.mesh, &t->sharding, &t->global, device);
    const RegionArray dense = region_packed(&shard.region);
    const int64_t *first = shard.region.first, *count = shard.region.count,
                  n = region_elements(&shard.region);
    if (n == 0)
        return CVN_OK;
    count_read(m, param, (double)n);
    if (n == room)
        return weights_read_box(&model->io, param, first, count, model->dtype, out, err);
    size_t size = cvn_dtype_bytes(t->global.dtype, 1);
    char *part = malloc((size_t)n * size);
    if (!part)
        return err_set(err, CVN_EMEM, "no memory for %zu bytes of weight %s", (size_t)n * size,
                       model->io.params.param[param].name);
    int rc = weights_read_box(&model->io, param, first, count, model->dtype, part, err);
    if (rc == CVN_OK)
        region_copy(&dense, part, &shard, out, size);
    free(part);
    return rc;
}

/* Which panels, units and groups a device has; without scales, of none. */
static PanelBox panel_box(const EngineMesh *m, const PartitionTensor *q,
                          const PartitionTensor *scale, int device)
{
    const Mesh *mesh = &m->devices.mesh;
    Region part = region_of_shard(mesh, &q->sharding, &q->global, device).region;
    PanelBox box = {.panel = part.first[0],
                    .panels = part.count[0],
                    .unit = part.first[1],
                    .units = part.count[1]};
    if (scale) {
        part = region_of_shard(mesh, &scale->sharding, &scale->global, device).region;
        box.group = part.first[1];
        box.groups = part.count[1];
    }
    return box;
}

/* A device's part of a weight; of a quantized one that is made of floats, its scales with it. */
static int read_one(EngineMesh *m, const PartitionReport *report, int d, int i, cvn_err *err)
{
    const IoModel *io = &m->model->io;
    const Param *param = &io->params.param[i];
    void **shard = &m->shard[d * m->n_weights];
    int device = m->devices.first + d;
    if (param->form == PARAM_PLAIN || !io->source)
        return read_shard(m, i, &report->parameter[i], device, shard[i], err);
    if (param->form == PARAM_PANELS) {
        bool scaled = param->scale >= 0;
        const PartitionTensor *scale = scaled ? &report->parameter[param->scale] : NULL;
        PanelBox box = panel_box(m, &report->parameter[i], scale, device);
        bool in_groups = param->quant.groups != 1 || !io->quantizes;
        double columns = in_groups ? (double)box.units / (double)param->quant.units : 1;
        count_read(m, i,
                   (double)io->source[i]->n * columns * (double)box.panels /
                       (double)param->quant.panels);
        return weights_read_panels(io, i, &box, shard[i], scaled ? shard[param->scale] : NULL, err);
    }
    if (!io->quantizes) {
        PanelBox box = panel_box(m, &report->parameter[i], &report->parameter[i], device);
        weights_read_scales(io, i, &box, shard[i]);
    }
    return CVN_OK;
}

static int read_weights(EngineMesh *m, const PartitionReport *report, cvn_err *err)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n_weights; i++)
        bytes += num_padded(cvn_type_bytes(&report->parameter[i].local), CACHE_LINE);
    m->block_bytes = bytes * (size_t)m->devices.n_local;
    if (room_check_memory(m->block_bytes, "the weights of the devices here", err)) {
        m->block_bytes = 0;
        return err->code;
    }
    void *map = mmap(NULL, m->block_bytes + 1, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        m->block_bytes = 0;
        return err_set(err, CVN_EMEM, "no memory for %.1f MiB of weights", (double)bytes / 0x1p20);
    }
    m->block = map;
    m->weight = arena_array(&m->arena, (size_t)m->n_weights, sizeof *m->weight);
    m->shard =
        arena_array(&m->arena, (size_t)m->devices.n_local * (size_t)m->n_weights, sizeof *m->shard);
    char *at = m->block;
    for (int d = 0; d < m->devices.n_local; d++)
        for (int i = 0; i < m->n_weights; i++) {
            m->weight[i] = report->parameter[i].sharding;
            m->shard[d * m->n_weights + i] = at;
            at += num_padded(cvn_type_bytes(&report->parameter[i].local), CACHE_LINE);
        }
    int rc = CVN_OK;
    for (int d = 0; d < m->devices.n_local && !rc; d++)
        for (int i = 0; i < m->n_weights && !rc; i++)
            rc = read_one(m, report, d, i, err);
    return rc;
}

static int make_caches(EngineMesh *m, const PartitionReport *report, cvn_err *err)
{
    LlamaConfig config = m->model->io.config;
    config.n_kv_heads = report->parameter[m->n_weights].local.dim[1];
    int rc = CVN_OK;
    for (int d = 0; d < m->devices.n_local && !rc; d++)
        rc = kv_init(&m->kv[d], &config, m->rows, m->positions, m->kv_dtype, err);
    return rc;
}

/* ---- steps ---- */

static int check_weights(const EngineMesh *m, const PartitionReport *report, cvn_err *err)
{
    for (int i = 0; i < m->n_weights; i++)
        if (!sharding_same(&m->weight[i], &report->parameter[i].sharding))
            return err_set(
                err, CVN_EUNSUPPORTED,
                "layout %s would hold weight %s differently in different steps; take another one",
                m->layout, m->model->io.params.param[i].name);
    return CVN_OK;
}

int engine_mesh_partition(EngineMesh *m, cvn_graph *g, cvn_graph **local, PartitionReport *report,
                          cvn_err *err)
{
    int rc = llama_mark(g, &m->model->io.config, &m->devices.mesh, m->layout, err);
    if (rc)
        return rc;
    mark_host(m, g);
    rc = mesh_devices_cut(&m->devices, g, local, report, err);
    if (rc)
        return rc;
    if (m->weight)
        rc = check_weights(m, report, err);
    else if (!(rc = read_weights(m, report, err)))
        rc = make_caches(m, report, err);
    if (rc) {
        cvn_graph_free(*local);
        partition_report_free(report);
        *local = NULL;
    }
    return rc;
}

int engine_mesh_bind(EngineMesh *m, const Plan *plan, const PartitionReport *report, int n_caches,
                     Arena *arena, MeshProgram *p, cvn_err *err)
{
    int np = plan->n_parameters, no = plan->n_outputs, inputs = m->n_weights + n_caches;
    m->used |= mesh_devices_used(report);
    *p = (MeshProgram){.plan = plan, .n_caches = n_caches};
    p->param = arena_array(arena, (size_t)m->devices.n_local * (size_t)np, sizeof *p->param);
    p->output = arena_array(arena, (size_t)m->devices.n_local * (size_t)no, sizeof *p->output);
    p->first_row = arena_array(arena, (size_t)m->devices.n_local, sizeof *p->first_row);
    for (int i = inputs; i < np; i++)
        if (!cvn_type_equal(&report->parameter[i].local, &report->parameter[i].global))
            return err_set(err, CVN_EUNSUPPORTED, "input '%s' would be split over devices",
                           plan->parameter[i].name);
    for (int d = 0; d < m->devices.n_local; d++) {
        const PartitionTensor *cache = &report->parameter[m->n_weights];
        const Region rows = region_of_shard(&m->devices.mesh, &cache->sharding, &cache->global,
                                            m->devices.first + d)
                                .region;
        p->first_row[d] = rows.first[0];
        for (int i = 0; i < m->n_weights; i++)
            p->param[d * np + i] = m->shard[d * m->n_weights + i];
        for (int i = inputs; i < np; i++)
            p->param[d * np + i] = arena_array(arena, plan->parameter[i].bytes + 1, 1);
    }
    return CVN_OK;
}

int engine_mesh_run(EngineMesh *m, MeshProgram *p, void *const *host, int row, void **output,
                    cvn_err *err)
{
    int np = p->plan->n_parameters, inputs = m->n_weights + p->n_caches;
    for (int d = 0; d < m->devices.n_local; d++) {
        void **param = p->param + (size_t)d * (size_t)np;
        for (int i = 0; i < p->n_caches; i++)
            param[m->n_weights + i] = kv_row(&m->kv[d], i, row + (int)p->first_row[d]);
        for (int i = inputs; i < np; i++)
            memcpy(param[i], host[i], p->plan->parameter[i].bytes);
    }
    m->steps++;
    cluster_set_step(m->devices.cluster, m->steps);
    int rc = group_run(m->devices.group, p->plan, p->param, p->output, err);
    if (rc)
        return rc;
    for (int i = inputs; i < np; i++)
        if (p->plan->parameter[i].donated)
            memcpy(host[i], p->param[i], p->plan->parameter[i].bytes);
    memcpy(output, p->output, (size_t)p->plan->n_outputs * sizeof *output);
    return CVN_OK;
}

void engine_mesh_release(EngineMesh *m, int row)
{
    for (int d = 0; d < m->devices.n_local; d++)
        kv_release(&m->kv[d], row);
}

/* ---- from start to end ---- */

int engine_mesh_init(EngineMesh *m, const cvn_model *model, const cvn_engine_options *o,
                     int64_t positions, cvn_dtype kv, cvn_err *err)
{
    *m = (EngineMesh){.model = model, .rows = o->rows, .positions = positions, .kv_dtype = kv};
    int rc = arena_init(&m->arena, err);
    if (!rc)
        rc = mesh_devices_open(&m->devices, o->mesh, &m->arena, o->cluster, o->threads, err);
    if (rc)
        return rc;
    m->layout = arena_string(&m->arena, o->layout ? o->layout : "2d");
    m->n_weights = model->io.params.n;
    m->kv = arena_array(&m->arena, (size_t)m->devices.n_local, sizeof *m->kv);
    return CVN_OK;
}

void engine_mesh_free(EngineMesh *m)
{
    for (int d = 0; m->kv && d < m->devices.n_local; d++)
        kv_free(&m->kv[d]);
    if (m->block)
        munmap(m->block, m->block_bytes + 1);
    mesh_devices_close(&m->devices);
    arena_free(&m->arena);
    *m = (EngineMesh){0};
}

size_t engine_mesh_cache_bytes(const EngineMesh *m)
{
    size_t bytes = 0;
    for (int d = 0; d < m->devices.n_local; d++)
        bytes += m->kv[d].bytes;
    return bytes;
}
