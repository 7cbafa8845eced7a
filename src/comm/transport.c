/* Finding and loading the plug-in that talks to other processes. */
#include "comm/transport.h"

#include "base/threads.h"

#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLUGIN "libcaravan-mpi.so"

bool transport_launched(void)
{
    /* mpirun of Open MPI; that of others; srun. mpirun
       may run in a step of Slurm, and knows better. */
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"};
    for (int i = 0; i < 3; i++) {
        const char *text = getenv(sizes[i]);
        if (text && *text)
            return strtol(text, NULL, 10) > 1;
    }
    return false;
}

/* Open MPI finds its own modules through the loader's global scope. */
static void *load(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* In the folder of a file, or in ../lib/caravan from there. */
static void *load_beside(const char *file)
{
    char path[PATH_MAX + 64];
    const char *slash = strrchr(file, '/');
    if (!slash)
        return NULL;
    snprintf(path, sizeof path, "%.*s/" PLUGIN, (int)(slash - file), file);
    void *object = load(path);
    snprintf(path, sizeof path, "%.*s/../lib/caravan/" PLUGIN, (int)(slash - file), file);
    return object ? object : load(path);
}

static void *find_plugin(void)
{
    const char *told = getenv("CARAVAN_MPI");
    if (told && *told)
        return load(told);
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n < 0 ? 0 : n] = 0;
    Dl_info library = {0}; /* of another program, such as Python */
    void *object = NULL;
    if (dladdr((void *)(uintptr_t)find_plugin, &library) && library.dli_fname)
        object = load_beside(library.dli_fname);
    object = object ? object : load_beside(program);
    return object ? object : load(PLUGIN);
}

/* The plug-in in an object that was loaded; NULL for one of another version. */
static const TransportPlugin *plugin_of(void *object)
{
    const TransportPlugin *plugin = dlsym(object, "caravan_transport");
    return plugin && plugin->abi == TRANSPORT_ABI ? plugin : NULL;
}

bool transport_describe(char *text, size_t size)
{
    char mpi[64];
    Dl_info where = {0};
    void *object = find_plugin();
    const TransportPlugin *plugin = object ? plugin_of(object) : NULL;
    if (!plugin) {
        snprintf(text, size, "%s", object ? PLUGIN " is of another version" : dlerror());
        return false;
    }
    plugin->describe(mpi, sizeof mpi);
    snprintf(text, size, "%s, %s", mpi, dladdr(plugin, &where) ? where.dli_fname : PLUGIN);
    return true;
}

Transport *transport_open(cvn_err *err)
{
    /* Started several times, but with nothing by which the processes could find each other: srun without an MPI. Each would
       take itself for the only one. */
    if (transport_launched() && !getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK") &&
        !getenv("PMI_RANK")) {
        err_set(err, CVN_EUNSUPPORTED,
                "srun started several processes that cannot find each other; start them with srun "
                "--mpi=pmix, or with mpirun in the job");
        return NULL;
    }
    void *object = find_plugin();
    if (!object) {
        err_set(err, CVN_EUNSUPPORTED,
                "several processes were launched, but " PLUGIN
                " cannot be loaded (%s); build Caravan where Open MPI is installed, or set "
                "CARAVAN_MPI to where it is",
                dlerror());
        return NULL;
    }
    const TransportPlugin *plugin = plugin_of(object);
    if (!plugin) {
        err_set(err, CVN_EUNSUPPORTED,
                PLUGIN " belongs to another version of Caravan; install both together");
        return NULL;
    }
    Transport *t =
        plugin->open(err); /* the object stays loaded: MPI does not survive being unloaded */
    if (t && t->n_ranks < 2) {
        t->close(t);
        err_set(err, CVN_EUNSUPPORTED,
                "several processes were launched, but MPI_COMM_WORLD has only this one; launch "
                "them with the mpirun or PMI of the Open MPI that " PLUGIN " was built with");
        return NULL;
    }
    return t;
}

int transport_begin(Transport *t, bool sends, int rank, int tag, void *data, size_t bytes,
                    Transfer *transfer, double seconds, cvn_err *err)
{
    int64_t begin = clock_ns();
    for (;;) {
        int code = sends ? t->send(t, rank, tag, data, bytes, transfer, err)
                         : t->receive(t, rank, tag, data, bytes, transfer, err);
        if (code != CVN_EINTERRUPTED || (double)(clock_ns() - begin) > seconds * 1e9)
            return code;
    }
}

int transport_wait(Transport *t, Transfer *transfer, int n, double seconds, cvn_err *err)
{
    int64_t begin = clock_ns();
    for (int64_t i = 0;; i++) {
        bool done = false;
        int code = t->test(t, transfer, n, &done, err);
        if (code || done)
            return code;
        if ((double)(clock_ns() - begin) > seconds * 1e9)
            return err_set(err, CVN_EIO,
                           "another rank has not responded for %.0f s; check whether it still "
                           "runs, and its output",
                           seconds);
        if (i > 100)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        else
            sched_yield();
    }
}
