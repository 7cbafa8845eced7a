#include "cpu/mesh_devices.h"

#include "comm/account.h"
#include "cpu/registry.h"

int mesh_devices_describe(MeshDevices *m, const char *spec, Arena *arena, cvn_err *err)
{
    *m = (MeshDevices){0};
    int code = mesh_parse(&m->mesh, spec, arena, err);
    m->n_local = code ? 0 : m->mesh.n_devices;
    return code;
}

int mesh_devices_open(MeshDevices *m, const char *spec, Arena *arena, Cluster *cluster, int threads,
                      cvn_err *err)
{
    int code = mesh_devices_describe(m, spec, arena, err);
    if (code)
        return code;
    int n_ranks = cluster_size(cluster);
    if (m->mesh.n_devices % n_ranks)
        return err_set(err, CVN_EINVAL,
                       "a mesh of %d devices cannot be divided among %d processes; start as many "
                       "processes as there are devices, or a divisor of that",
                       (int)m->mesh.n_devices, n_ranks);
    m->n_local = m->mesh.n_devices / n_ranks;
    m->comm = comm_new(m->n_local, cluster ? cluster_transport(cluster) : NULL, err);
    if (!m->comm)
        return err->code;
    m->first = comm_first(m->comm);
    m->group = group_new(m->comm, threads, cpu_backend(), err);
    if (!m->group)
        return err->code;
    m->cluster = cluster;
    if (cluster)
        cluster_set_comm(cluster, m->comm);
    return CVN_OK;
}

int mesh_devices_missing(cvn_err *err)
{
    return err_set(err, CVN_EINVAL,
                   "several processes were started; say with --mesh how they divide the model, "
                   "for 4 of them --mesh data=2,model=2");
}

void mesh_devices_close(MeshDevices *m)
{
    if (m->cluster)
        cluster_set_comm(m->cluster, NULL);
    group_free(m->group);
    comm_free(m->comm);
    *m = (MeshDevices){0};
}

static int name_axes(MeshDevices *m, const PartitionReport *report, cvn_err *err)
{
    StrBuf axes = {0};
    int code = CVN_OK;
    for (int64_t i = 0; m->comm && i < report->n_collectives && code == CVN_OK; i++) {
        const OpAttr *attr = &report->collective[i].op->attr;
        strbuf_clear(&axes);
        axes_print(&axes, &m->mesh, &report->collective[i].axes);
        code = comm_name_axes(m->comm, &attr->groups, attr->group_size, axes.text ? axes.text : "",
                              err);
    }
    strbuf_free(&axes);
    return code;
}

int mesh_devices_cut(MeshDevices *m, const cvn_graph *g, cvn_graph **local, PartitionReport *report,
                     cvn_err *err)
{
    ShardResult result;
    *local = NULL;
    *report = (PartitionReport){0};
    int code = cvn_graph_check(g, err);
    if (code == CVN_OK)
        code = shard_propagate(g, &m->mesh, &result, err);
    if (code)
        return code;
    code = shard_partition(g, &m->mesh, &result, local, report, err);
    shard_result_free(&result);
    if (code)
        return code;
    code = name_axes(m, report, err);
    if (code) {
        cvn_graph_free(*local);
        partition_report_free(report);
        *local = NULL;
    }
    return code;
}

uint32_t mesh_devices_used(const PartitionReport *report)
{
    uint32_t used = 0;
    for (int i = 0; i < report->n_parameters; i++) {
        const Sharding *s = &report->parameter[i].sharding;
        for (int d = 0; d < s->rank; d++)
            for (int k = 0; k < s->dim[d].axes.n; k++)
                used |= 1u << s->dim[d].axes.ref[k].axis;
    }
    _Static_assert(MESH_MAX_AXES <= 32, "a bit for each axis");
    return used;
}

int mesh_devices_idle(const MeshDevices *m, uint32_t used)
{
    for (int i = 0; i < m->mesh.n_axes; i++)
        if (m->mesh.axis[i].size > 1 && !(used & 1u << i))
            return i;
    return -1;
}
