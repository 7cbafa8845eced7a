/* caravan/ranks.h: the processes of a mesh, over src/comm/cluster.h. */
#include "caravan/ranks.h"

#include "base/map.h"
#include "comm/cluster.h"
#include "cpu/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A process is a rank once. */
static struct {
    cvn_ranks_options options;
    Cluster *cluster; /* owned; NULL when alone */
} joined;

/* On the watchdog's thread: this process is of no more use. */
static void lost(void *context, Cluster *cluster, const cvn_err *err, bool speaks)
{
    (void)context;
    if (speaks && joined.options.lost)
        joined.options.lost(joined.options.context, err->message);
    cluster_abort(cluster, 1);
}

/* "0.1.0 with kernels for avx2: caravan bench …": kernels fuse differently where processors differ, and with it the order of
   collectives would. What is long is cut, and told apart by its hash. */
static void describe(char *out, size_t size, const char *settings)
{
    size_t n = (size_t)snprintf(out, size, "%s with kernels for %s: %s", CVN_VERSION,
                                cpu_kernels()->name, settings);
    if (n >= size)
        snprintf(out + size - 24, 24, "... (%016llx)",
                 (unsigned long long)hash_bytes(settings, strlen(settings)));
}

bool cvn_ranks_launched(void)
{
    return transport_launched();
}

int cvn_ranks_join(const cvn_ranks_options *options, cvn_cluster **out, cvn_err *err)
{
    char settings[400];
    *out = joined.cluster;
    if (joined.cluster || !transport_launched())
        return CVN_OK;
    joined.options = *options;
    describe(settings, sizeof settings, options->settings ? options->settings : "");
    ClusterOptions how = {.settings = settings, .lost = lost, .ending = options->ending};
    const char *timeout = getenv("CARAVAN_RANK_TIMEOUT"); /* seconds */
    if (timeout && *timeout) {
        char *end;
        how.timeout = strtod(timeout, &end);
        if (*end || !(how.timeout >= 1 && how.timeout <= 86400))
            return err_set(err, CVN_EINVAL,
                           "CARAVAN_RANK_TIMEOUT is \"%s\"; give seconds from 1 to 86400", timeout);
    }
    int code = cluster_open(&how, &joined.cluster, err);
    *out = joined.cluster;
    return code;
}

int cvn_ranks_rank(const cvn_cluster *ranks)
{
    return cluster_rank(ranks);
}

int cvn_ranks_size(const cvn_cluster *ranks)
{
    return cluster_size(ranks);
}

int cvn_ranks_share(cvn_cluster *ranks, void *data, size_t bytes, cvn_err *err)
{
    return cluster_share(ranks, data, bytes, err);
}

void cvn_ranks_fail(cvn_cluster *ranks, const char *sentence)
{
    cvn_err err = {.code = CVN_EINVAL};
    if (!ranks)
        return;
    snprintf(err.message, sizeof err.message, "%s", sentence);
    if (cluster_fail(ranks, &err) && joined.options.lost)
        joined.options.lost(joined.options.context, sentence);
    cluster_abort(ranks, 1);
}

void cvn_ranks_leave(cvn_cluster *ranks)
{
    if (ranks && ranks == joined.cluster)
        joined.cluster = NULL;
    cluster_close(ranks);
}
