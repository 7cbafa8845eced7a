/*
 * What the files of this back end share: the devices, their executables and buffers, and the functions of its table that are
 * not in backend.c.
 */
#ifndef CVN_PJRT_DEVICES_H
#define CVN_PJRT_DEVICES_H

#include "base/map.h"
#include "pjrt/plugin.h"
#include "pjrt/profile.h"
#include "pjrt/topology.h"
#include "run/backend.h"

struct Executable {
    PjrtLoaded *loaded; /* owned; NULL: it was compiled for chips that are not here */
    Compiled compiled;
    const char *name;
    ExecutableInfo info;
    Signature signature;
    cvn_type *parameter, *output; /* [parameters], [outputs] of the module */
    void **result; /* [outputs] owned: in host memory, of the first device; those that go nowhere */
    /* Of a run: [local devices][parameters], [local devices][outputs]. */
    PjrtBuffer **argument, **made;
    PjrtBuffer ***arguments, ***mades;
    PjrtEvent **done;        /* [local devices] */
    struct Executable *next; /* in the order in which they were made */
};

/* What devices can do: bytes that are read and written, operations of products. */
typedef enum CeilingKind {
    COPIES,
    PRODUCTS_F32,
    PRODUCTS_BF16,
    PRODUCTS_INT8,
    CEILINGS
} CeilingKind;

struct Memory {
    PjrtBuffer *buffer; /* owned; NULL: all 0, and not there yet */
    cvn_type type;
};

/* What was compiled, and what it is compiled for. */
typedef struct Modules {
    Map by_text; /* Executable * */
    Executable *first;
    int64_t compilations;
    Topology topology; /* that graphs are compiled for, where there is no client */
    const char *save;
    const char *dump_dir;
} Modules;

/* The run that was begun last. */
typedef struct Running {
    int64_t begun;                /* clock_ns when it began on the devices */
    double seconds;               /* how long it took there */
    const Executable *executable; /* since the last wait; or NULL */
    const Argument *argument;     /* of that run */
} Running;

struct Devices {
    Arena arena; /* of executables */
    Plugin plugin;
    PjrtClient *client;  /* owned */
    Cluster *cluster;    /* the other processes, borrowed, or NULL; and */
    Keys *keys;          /* owned: what their plugins tell each other */
    PjrtDevice **device; /* [n] of the mesh, those of this process */
    int64_t *id;         /* [all of the mesh] the plugin's numbers of them */
    int n;               /* 0: graphs are only compiled */
    const char *kind, *version;
    Modules modules;
    /* Programs that find out what the devices can do; NULL: not yet. */
    const Executable *ceiling[CEILINGS];
    Running running;
    const volatile int *interrupt;
    PjrtProfile *profile; /* owned; NULL: runs are not recorded */
};

/* program.c: a graph as a program of the plugin, compiled once. */
int pjrt_compile(Devices *c, const cvn_graph *local, const PartitionReport *report,
                 const Mesh *mesh, const MemoryLayout *layout, const Executable **out,
                 cvn_err *err);

/* backend.c */
int pjrt_zeros(Devices *c, int d, Memory *m, cvn_err *err);
int pjrt_run(Devices *c, const Executable *x, const Argument *argument, const void **output,
             cvn_err *err);
int pjrt_wait(Devices *c, cvn_err *err);

/* ceilings.c: operations and bytes per second of all devices of this process; 0: the measurement failed. */
double pjrt_peak(Devices *c, cvn_dtype dtype, double seconds);
double pjrt_reads(Devices *c, double seconds);

#endif
