#include "base/cores.h"

#include "base/file.h"
#include "base/num.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef CVN_HAVE_HWLOC
#include <hwloc.h>
#endif

/* The affinity mask of the calling thread, of *bytes; the mask grows until the kernel is content with its
   size. NULL when there is none to be had. Free with CPU_FREE. */
static cpu_set_t *affinity(size_t *bytes)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            return NULL;
        *bytes = CPU_ALLOC_SIZE((size_t)cpus);
        if (sched_getaffinity(0, *bytes, set) == 0)
            return set;
        CPU_FREE(set);
        if (errno != EINVAL)
            return NULL;
    }
    return NULL;
}

static int affinity_count(void)
{
    size_t bytes;
    cpu_set_t *set = affinity(&bytes);
    long n = set ? CPU_COUNT_S(bytes, set) : sysconf(_SC_NPROCESSORS_ONLN);
    if (set)
        CPU_FREE(set);
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n;
}

/* First line of DIRECTORY/NAME; false when it cannot be read. */
static bool read_line(const char *directory, const char *name, char *line, int size)
{
    FILE *file = fopen(file_path(directory, name).text, "re");
    if (!file)
        return false;
    bool ok = fgets(line, size, file) != NULL;
    fclose(file);
    return ok;
}

/* The smaller of `limit` and the quota said in one control group's directory, in processors rounded
 * up. */
static int quota_of(const char *directory, int limit)
{
    char line[128];
    double quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) {
        char *rest = NULL;
        quota = strtod(line, &rest); /* "max 100000" reads as 0: no limit */
        period = strtod(rest, NULL);
    } else if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtod(line, NULL); /* -1: no limit */
        if (read_line(directory, "cpu.cfs_period_us", line, sizeof line))
            period = strtod(line, NULL);
    }
    if (quota <= 0 || period <= 0 || quota / period >= limit)
        return limit;
    int whole = (int)(quota / period);
    whole += whole < quota / period;
    return whole < 1 ? 1 : whole;
}

/* The quota of this process's control groups, or `limit`. A line of /proc/self/cgroup is
   "ID:CONTROLLERS:PATH"; version 2 has no controllers. */
static int quota(int limit)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return limit;
    char line[PATH_MAX], directory[PATH_MAX + 64];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        bool v2 = controllers[1] == 0;
        if (!v2 && !strstr(controllers, "cpu"))
            continue;
        /* From the control group up to the root: every level's quota holds. */
        const char *root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        snprintf(directory, sizeof directory, "%s%s", root, path);
        limit = quota_of(directory, limit);
        for (char *slash; strlen(directory) > strlen(root) && (slash = strrchr(directory, '/'));) {
            *slash = 0;
            limit = quota_of(directory, limit);
        }
    }
    fclose(file);
    return limit;
}

#ifdef CVN_HAVE_HWLOC

/* A topology with cores and NUMA nodes only, as Linux tells it: hwloc's own questions to each processor take longer
   than starting a small model. */
static bool load_topology(hwloc_topology_t *topology)
{
    *topology = NULL;
    if (hwloc_topology_init(topology))
        return false;
#if HWLOC_API_VERSION >= 0x00020100
    hwloc_topology_set_components(*topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
    return hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
           hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) ==
               0 &&
           hwloc_topology_load(*topology) == 0;
}

/* Cores that share a processor with the mask, in hwloc's order, which goes through NUMA nodes one by one. */
static bool find_topology(Cores *cores)
{
    size_t bytes;
    cpu_set_t *mask = affinity(&bytes);
    hwloc_topology_t topology = NULL;
    bool ok = mask && load_topology(&topology);
    cores->n_cores = 0;
    for (hwloc_obj_t core = NULL;
         ok && (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));) {
        int first = -1;
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0 && first < 0;
             cpu = hwloc_bitmap_next(core->cpuset, cpu))
            if (CPU_ISSET_S((size_t)cpu, bytes, mask))
                first = cpu;
        if (first >= 0 && cores->n_cores < CORES_MAX)
            cores->cpu[cores->n_cores++] = first;
    }
    if (ok)
        cores->n_nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    if (topology)
        hwloc_topology_destroy(topology);
    if (mask)
        CPU_FREE(mask);
    return ok && cores->n_cores > 0;
}

#else

static bool find_topology(Cores *cores)
{
    (void)cores;
    return false;
}

#endif

void cores_find(Cores *cores)
{
    *cores = (Cores){.n_nodes = 1, .n_processors = affinity_count()};
    cores->known = find_topology(cores);
    if (!cores->known)
        cores->n_cores = (int)num_min(cores->n_processors, CORES_MAX);
    if (cores->n_nodes < 1)
        cores->n_nodes = 1;
    cores->n = quota(cores->n_cores);
}

int cores_usable(void)
{
    if (affinity_count() == 1)
        return 1;
    Cores cores;
    cores_find(&cores);
    return cores.n;
}

bool cores_bind(int cpu)
{
    size_t bytes = CPU_ALLOC_SIZE((size_t)cpu + 1);
    cpu_set_t *set = CPU_ALLOC((size_t)cpu + 1);
    if (!set)
        return false;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S((size_t)cpu, bytes, set);
    bool ok = sched_setaffinity(0, bytes, set) == 0;
    CPU_FREE(set);
    return ok;
}

void cores_visit(int cpu)
{
    if (sched_getcpu() == cpu)
        return;
    size_t bytes;
    cpu_set_t *before = affinity(&bytes);
    if (before && CPU_ISSET_S((size_t)cpu, bytes, before) && cores_bind(cpu))
        sched_setaffinity(0, bytes, before);
    if (before)
        CPU_FREE(before);
}
