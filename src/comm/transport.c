/* How processes find each other: by an address, or through the plug-in, which is found and loaded here. */
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

/* The first of some variables that is set: a number from 0 on; -1: none is, or it has none. */
static int number_of(const char *const *names, const char **found)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        char *end;
        if (!text || !*text)
            continue;
        *found = *names;
        const long n = strtol(text, &end, 10);
        return *end || n < 0 || n > INT_MAX ? -1 : (int)n;
    }
    *found = NULL;
    return -1;
}

/* Our own; mpirun of Open MPI; that of others; srun. mpirun may run in a step of Slurm, and knows better. */
static const char *const sizes[] = {"CARAVAN_PROCESSES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                    "SLURM_STEP_NUM_TASKS", NULL};
static const char *const numbers[] = {"CARAVAN_PROCESS", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                      "PMI_RANK",        "SLURM_PROCID",         NULL};

static const char *coordinator(void)
{
    const char *address = getenv("CARAVAN_COORDINATOR");
    return address && *address ? address : NULL;
}

bool transport_meets(void)
{
    return coordinator() != NULL;
}

bool transport_launched(void)
{
    const char *found;
    return coordinator() || number_of(sizes + 1, &found) > 1;
}

int transport_number(void)
{
    const char *found;
    return number_of(coordinator() ? numbers : numbers + 1, &found);
}

/* At an address: of two or more, and each with a number below. */
static Transport *meet(const char *address, cvn_err *err)
{
    const char *size, *number;
    const int n = number_of(sizes, &size), rank = number_of(numbers, &number);
    const bool is_size = n >= 2 && n <= TRANSPORT_MOST_RANKS, is_rank = rank >= 0 && rank < n;
    if (is_size && is_rank)
        return transport_tcp(address, rank, n, err);
    const char *name = !is_size ? size : number, *wants = !is_size ? sizes[0] : numbers[0];
    err_set(err, CVN_EINVAL, "CARAVAN_COORDINATOR is set, and %s is '%.40s'; give %s %s",
            name ? name : wants, name ? getenv(name) : "", wants,
            !is_size ? "how many processes there are, from 2 to 4096"
                     : "the number of this process, from 0 on and less than there are");
    return NULL;
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
    if (coordinator())
        return meet(coordinator(), err);
    /* Started several times, but with nothing by which the processes could find each other: srun without an MPI. Each would
       take itself for the only one. */
    if (transport_launched() && !getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMIX_RANK") &&
        !getenv("PMI_RANK")) {
        err_set(err, CVN_EUNSUPPORTED,
                "srun started several processes that cannot find each other; start them with srun "
                "--mpi=pmix, or set CARAVAN_COORDINATOR=HOST:PORT");
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
