/*
 * A back end: the devices of one kind, as a table of functions. Whatever runs graphs (run/program.h) does it through
 * this table, and knows nothing else of a device.
 *
 *     open       the devices of this process: their threads, clients, connections
 *     describe   how many, how much memory, what kind
 *     compile    the graph of one device, on shapes of shards, with its collectives -> an executable
 *     alloc      memory for one device's shard of a tensor: its handle
 *     upload     fills a shard, laid out as executables want it
 *     run, wait  an executable on all devices of this process
 *     download   reads a shard back
 *
 * All devices of a mesh run the same executable; each has its own handles. A tensor that an output goes into is
 * donated: the back end may write it where it lies, or put another handle in its place.
 *
 *     argument of parameter 7 on device 1          {.memory = handle}     a resident tensor
 *     argument of parameter 9 on every device      {.host = tokens}       host memory, for the length of the run
 *
 * Functions that fail return a negative code and fill the error; a function that a back end lacks is NULL only where
 * that is said.
 */
#ifndef CVN_RUN_BACKEND_H
#define CVN_RUN_BACKEND_H

#include "comm/cluster.h"
#include "comm/table.h"
#include "graph/signature.h"
#include "run/ceilings.h"
#include "shard/box.h"
#include "shard/partition.h"

typedef struct Devices Devices;       /* a back end's own: the devices of this process */
typedef struct Executable Executable; /* a back end's own: a compiled graph */
typedef struct Memory Memory;         /* a back end's own: the memory of a shard */

typedef struct DeviceOptions {
    /* Of the mesh, in all processes; divides among the ranks of the cluster. 0: none; graphs are only compiled, to be
       looked at, and nothing else is asked of the back end than to describe itself. */
    int n_devices;
    Cluster *cluster;   /* the other processes, borrowed; NULL: all devices are here */
    int threads;        /* per device; 0: this machine's, divided among its devices */
    const char *device; /* as backend_find reads it; NULL: the default */
    /* Of a back end that compiles for chips that are not here: which ("v5e:4x4"), and where it writes what it compiled last;
       NULL: for its own, nowhere. */
    const char *topology, *save;
    const char *dump_dir; /* where graphs and plans are written while compiling; NULL: nowhere */
    bool op_by_op;        /* operations one by one, nothing fused */
    bool portable;        /* the same bits on every processor (cpu_kernels_as) */
    bool split_attention; /* attention as the operations that it stands for */
    bool blocking;        /* nothing is computed while devices exchange */
    /* Of a back end that only adds up (sim/backend.h): whose devices it stands for; NULL: graphs are not compiled. */
    const struct Backend *described;
} DeviceOptions;

typedef struct DeviceInfo {
    const char *kind; /* "cpu avx512_bf16" */
    int n_local;      /* devices in this process */
    int first;        /* the number of the first of them on the mesh */
    int threads;      /* of each */
    /* Positions of a page of a cache, so that attention reads many pages as fast as one; 0: a slot has one page. */
    int page;
    bool discards; /* memory that is discarded goes back to the system */
    /* On one device a text has the same bits however it is cut into runs: what was decoded is as what is read. */
    bool chunk_invariant;
} DeviceInfo;

/* How a parameter that stays on the device lies there: dense and row-major in its type; or, above LAYOUT_PLAIN, in one of
   the back end's own orders. Of LAYOUT_FREE the back end chooses; what it chose is said by the executable. */
typedef int MemoryLayout;
enum { LAYOUT_FREE = -1, LAYOUT_PLAIN = 0 };

/* What a compiler of others says of a program, of one device. */
typedef struct Compiled {
    int64_t arguments, outputs, aliased,
        temporaries; /* bytes; aliased: outputs in arguments' place */
    int64_t program; /* bytes of its instructions, which lie there, too */
    int64_t peak;    /* of all of these together */
    double cycles;   /* estimated, summed over the schedule; 0: it does not say */
    double clock;    /* of the chip, in Hz; 0: nobody knows */
    struct {
        const char *kind; /* "all-reduce" */
        int64_t count;
    } collective[5];
} Compiled;

/* What is known of a compiled graph. Bytes and operations are of one device. */
typedef struct ExecutableInfo {
    size_t temporary_bytes; /* while it runs, beside parameters */
    size_t constant_bytes;
    double flops;
    int64_t n_operations, n_steps; /* of the graph, and of what is left of it */
    const MemoryLayout *layout;    /* [parameters] chosen, or as asked for */
    const size_t *parameter_bytes; /* [parameters] of a device's memory, in that layout */
    /* What was made of it, to be looked at (compile/plan.h); NULL: the back end does not say. */
    const struct Plan *plan;
    const Compiled *compiled; /* for chips that are not here; else NULL */
} ExecutableInfo;

typedef struct MemoryOptions {
    cvn_type type;       /* of the shard */
    MemoryLayout layout; /* never free */
    /* Of the first executable that has it, and which of its parameters it is: says what an own layout is. */
    const Executable *executable;
    int parameter;
    bool sparse;      /* large, filled bit by bit: what is not touched should cost nothing */
    size_t all_bytes; /* of it and all that is allocated with it on the device; a hint */
} MemoryOptions;

/* Gives elements of a tensor: those of a box of the whole, packed, in the whole's dtype. Called from several threads at
   once, for different boxes. */
typedef struct Source {
    int (*read)(void *context, const Box *box, void *out, cvn_err *err);
    void *context;
    /* Where the whole tensor lies, row-major, read-only and for as long as the memory lives, as in a mapped file; NULL: it
       does not, or a part of it is wanted. */
    const void *mapped;
} Source;

/* Where a parameter is on one device, for one run. */
typedef struct Argument {
    Memory *memory; /* of a resident tensor; or NULL */
    void *host;     /* of another: dense, in the parameter's type; written when donated */
    /* A helper thread that may still be writing there, and is waited for before it is read (base/helper.h); borrowed, or NULL. */
    struct HelperThread *pending;
} Argument;

typedef struct Backend {
    const char *name; /* "cpu" */
    int (*open)(const DeviceOptions *options, Devices **out, cvn_err *err);
    /* NULL is allowed. All memory was freed before, and no executable is used any more. */
    void (*close)(Devices *devices);
    void (*describe)(const Devices *devices, DeviceInfo *out);

    /* The graph of a device, which is not changed, with the report that it was cut with; layout [parameters]. The
       same graph with the same layouts is compiled once, and belongs to the devices. */
    int (*compile)(Devices *devices, const cvn_graph *local, const PartitionReport *report,
                   const Mesh *mesh, const MemoryLayout *layout, const Executable **out,
                   cvn_err *err);
    void (*executable)(const Executable *executable, ExecutableInfo *out);
    int64_t (*compilations)(const Devices *devices); /* so far */

    /* Takes memory on local device d, all 0. */
    int (*alloc)(Devices *devices, int d, const MemoryOptions *options, Memory **out, cvn_err *err);
    void (*free)(Devices *devices, Memory *memory); /* NULL is allowed */
    /* Fills a shard with its box of the whole tensor, read from source. Padding stays 0. NULL where a back end holds no
       numbers. */
    int (*upload)(Devices *devices, int d, Memory *memory, const BoxArray *shard,
                  const Source *source, cvn_err *err);
    /* The address of a shard in the plain layout, writable, if the host can address it; else NULL. The function may be NULL. */
    void *(*address)(Memory *memory);
    /* Copies bytes [offset, offset + bytes) of a shard in the plain layout to host memory. */
    int (*download)(Devices *devices, const Memory *memory, size_t offset, size_t bytes, void *out,
                    cvn_err *err);
    /* Says that bytes [offset, offset + bytes) are not needed any more; afterwards they read as 0 or as before. May be NULL. */
    void (*discard)(Devices *devices, Memory *memory, size_t offset, size_t bytes);
    /* Allocates memory for the temporaries of all executables; without this call the first run does. */
    int (*reserve)(Devices *devices, size_t temporary_bytes, cvn_err *err);

    /* Starts a run on all devices of this process: argument [local devices * parameters], output [outputs] gets where the
       first local device has its results in host memory when wait returns; they stay until the next run. output may be
       NULL. */
    int (*run)(Devices *devices, const Executable *executable, const Argument *argument,
               const void **output, cvn_err *err);
    int (*wait)(Devices *devices, cvn_err *err);
    /* Of the functions that follow only `communication` is there in a back end that only adds up costs. */

    /* From now on a run ends as soon as it can with CVN_EINTERRUPTED once *flag is not 0, and its outputs are invalid. Signal
       handlers and other threads may set the flag. NULL ends the watch. Of the processes of a mesh all watch or none, and
       a flag that one of them sees ends the run in all. */
    void (*watch)(Devices *devices, const volatile int *flag);

    /* What its devices have communicated until now. */
    void (*communication)(const Devices *devices, CommTable *out);
    /* From now on runs are recorded; and what was is written, by all processes together: NULL where none can be. */
    int (*trace_begin)(Devices *devices, cvn_err *err);
    int (*trace_write)(Devices *devices, const char *path, cvn_err *err);
    /* What the devices of this process can do together (run/ceilings.h): one sample, of about so many seconds, for measuring
       in turns with something that is held against it. 0: it is not known; reads are negative without memory for them. */
    double (*peak)(Devices *devices, cvn_dtype dtype, double seconds);
    double (*reads)(Devices *devices, double seconds);
    /* Seconds that the first device here spent in steps that read weights and caches, products and attention, in the last
       run that was recorded; `record` says whether the next ones are. NULL: nobody knows. */
    double (*traffic)(Devices *devices, bool record);
} Backend;

/* The back ends of this program, ended by NULL; the first one is the default. (backends.c, below all of them.) */
extern const Backend *const backends[];

/* The back end of a device, "cpu", "tpu", "pjrt:PATH,option=value"; NULL: the default. */
int backend_find(const char *device, const Backend **out, cvn_err *err);

#endif
