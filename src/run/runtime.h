/*
 * A mesh of devices, one or more, and the tensors that stay on them from run to run.
 *
 *     Runtime rt;
 *     runtime_open(&rt, &options, &err);                  the devices of "data=2,model=2", or the only one
 *     program_make(&decode, &rt, graph, …);               run/program.h: cut, compiled; says how weights lie
 *     buffer_fill(&rt, runtime_buffer(&rt, ROLE_WEIGHT, 3), &source, &err);
 *     program_run(&decode, &err);
 *
 * One device is a mesh of one. A buffer is a tensor that lies on the mesh by a sharding: each device of this process has
 * its shard. It is known by its role and index (graph/signature.h); the first program with such a parameter says how it
 * lies, and those that follow are cut to fit. Weights, caches, the state of an optimizer are all buffers; all are filled in
 * one way, by a source that gives boxes of the whole: a file, random numbers, a checkpoint. No process ever holds a tensor
 * whole unless one of its devices does.
 *
 * Rows. Caches have a row for each text, and a program may work on fewer rows than there are. Where rows are split over
 * the mesh into n shards, a program for n rows works on one of each shard:
 *
 *     cache [4 rows, …] on data=2         device 0: rows 0, 1, spare       device 1: rows 2, 3, spare
 *     program with 2 rows, of rows 1, -1: device 0: row 1                   device 1: its spare row
 */
#ifndef CVN_RUN_RUNTIME_H
#define CVN_RUN_RUNTIME_H

#include "base/map.h"
#include "run/backend.h"

typedef struct Buffer {
    Role role;
    int index;
    const char *name; /* in the graph that made it known */
    cvn_type type,
        local; /* of the whole; of a shard, with its padding and, where rows are split, a spare row */
    Sharding sharding;            /* on the mesh */
    MemoryLayout layout;          /* of its shards */
    const Executable *executable; /* the first that has it, as its parameter number … */
    int parameter;
    size_t bytes; /* of a shard, as it lies */
    /* So many of it are taken, in slots (train/stages.h); 0: none. */
    double held;
    Memory **memory; /* [n_local]; NULL until it is allocated */
    Memory ***slot;  /* [n_slots] of such, memory is one of them; NULL: there is but one */
    int n_slots;
    struct Buffer *next; /* in the order in which they became known */
} Buffer;

typedef struct RuntimeOptions {
    const Backend *backend; /* NULL: that of devices.device */
    const char *mesh;       /* "data=2,model=2"; NULL or "": one device */
    DeviceOptions devices;  /* n_devices is taken from the mesh */
    bool describes; /* nothing will run: there are no devices, programs are cut and not compiled,
                               and buffers are known by how they would lie */
} RuntimeOptions;

typedef struct Runtime {
    Arena arena; /* of all that is no memory of devices */
    const Backend *backend;
    Devices *devices; /* owned; NULL: it only describes */
    DeviceInfo info;
    Mesh mesh;
    const char *spec; /* of the mesh, as given; "": one device */
    Cluster *cluster; /* borrowed, or NULL */
    Buffer *first, *last;
    Map buffers;            /* role and index -> Buffer * */
    size_t temporary_bytes; /* the most that a program takes, on a device */
    size_t constant_bytes;  /* of all programs together */
    size_t input_bytes;     /* the most that the inputs of a program take, on a device */
    uint32_t used;          /* a bit for each axis that splits a value of some program */
    int64_t runs;           /* of programs, so far */
} Runtime;

/* The devices: those of the mesh are divided among the processes of the cluster, which must come out even. On an error,
   too, *rt is to be closed. */
int runtime_open(Runtime *rt, const RuntimeOptions *options, cvn_err *err);
/* Safe on {0}. Programs must not be run any more. */
void runtime_close(Runtime *rt);

/* The error of several processes that were given no mesh. */
int runtime_mesh_missing(cvn_err *err);

/* The first axis of more than one device by which no program divides anything, so that its devices all do the same; -1:
   there is none. */
int runtime_idle_axis(const Runtime *rt);

/* NULL: no program has one. */
Buffer *runtime_buffer(const Runtime *rt, Role role, int index);

/* Bytes, on the devices of this process together, of what is held of the buffers of a role; allocated or not. */
size_t runtime_role_bytes(const Runtime *rt, Role role);

/* Bytes that one device needs for all programs together, by what they are for. */
typedef struct DeviceMemory {
    double weights,
        rounded_weights;    /* of the model; in training, once more in the type of products */
    double optimizer, sums; /* its state; gradients of several micro-batches */
    double kv_cache;        /* as it is allocated, with a spare row where rows are split */
    double inputs;
    double temporaries, constants; /* constants are among the temporaries */
    double total;
} DeviceMemory;

void runtime_memory(const Runtime *rt, DeviceMemory *out);

/* What the devices of this process can do: medians, which takes about a second. Reading memory takes 256 MiB, which are
   kept to measure again. */
int runtime_ceilings(const Runtime *rt, Ceilings *out, cvn_err *err);

/* Operations per second with operands of a dtype alone, in about 40 ms; none, or less, where it can't be measured. */
double runtime_peak(const Runtime *rt, cvn_dtype dtype);

/* Takes memory, all 0, for each buffer of a role that has none yet. */
int runtime_allocate(Runtime *rt, Role role, cvn_err *err);
/* … and for temporaries of all programs made until now. */
int runtime_reserve(Runtime *rt, cvn_err *err);

/* Takes memory, all 0, for n tensors in place of one, of a buffer that has none yet; and says which of them runs that begin from
   now on read and write. */
int buffer_slots(Runtime *rt, Buffer *buffer, int n, cvn_err *err);
void buffer_use_slot(Buffer *buffer, int slot);

/* Fills it, on the devices of this process; takes memory where it has none. Boxes are those of shards. */
int buffer_fill(Runtime *rt, Buffer *buffer, const Source *source, cvn_err *err);

/* Gives its memory back: it has none. */
void buffer_release(Runtime *rt, Buffer *buffer);

/* All 0 again. */
int buffer_clear(Runtime *rt, Buffer *buffer, cvn_err *err);

/* What local device d holds of it, and the array in which it lies. */
BoxArray buffer_shard(const Runtime *rt, const Buffer *buffer, int d);

/* The bytes of its shard on local device d where the host can address them, or NULL. */
void *buffer_address(const Runtime *rt, const Buffer *buffer, int d);

/* Shards into which its rows, the first dimension, are split; and in which of them a row is. */
int buffer_row_shards(const Buffer *buffer);
int buffer_row_shard(const Buffer *buffer, int64_t row);

/* A row of a cache [rows, heads, positions, width] is done with: its memory may go back to the system, by pages, which are 0 then, where
   the back end can do that. */
void buffer_discard(Runtime *rt, Buffer *buffer, int64_t row);

#endif
