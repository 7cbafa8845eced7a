/*
 * The only way from a graph to something that runs:
 *
 *     simplify → mark → propagate → partition → compile → bind
 *
 * A graph on whole shapes becomes that of one device of the mesh (shard/partition.h), and an executable of the back end.
 * Its resident parameters are buffers of the runtime; the others are host memory that the caller names once, and that
 * each run reads. What a run updates of them is written back there. Results of a run are whole on every device, in every
 * process the same.
 */
#ifndef CVN_RUN_PROGRAM_H
#define CVN_RUN_PROGRAM_H

#include "run/runtime.h"

/* Marks what is known to lie somewhere, before shardings are propagated: a layout does. */
typedef int ProgramMark(void *context, cvn_graph *g, const Mesh *mesh, cvn_err *err);

typedef struct ProgramOptions {
    ProgramMark *mark; /* NULL: nothing is marked but what the runtime knows */
    void *context;
    const char *layout; /* what messages call the marks; may be NULL */
    /* Every process sees all of every input: none is split, whatever was marked. */
    bool whole_inputs;
    /* Gets those of all values of the graph, the caller's to free; NULL: nobody looks. */
    ShardResult *shardings;
} ProgramOptions;

typedef struct Program {
    Runtime *rt; /* borrowed */
    const char *name;
    const Executable *executable; /* the back end's; NULL: not made */
    ExecutableInfo info;
    Signature signature;
    PartitionReport report; /* owned */
    Buffer **buffer;        /* [parameters] of those that stay on the devices; else NULL */
    void **host;            /* [parameters] where the whole is in this process; NULL: its buffer */
    /* A helper thread that may still be writing the inputs of a role when a run begins; borrowed, or NULL. */
    struct HelperThread *pending;
    Role pending_role;
    Argument *argument;  /* [local devices * parameters] */
    const void **output; /* [outputs] of the last run */
} Program;

/* g is changed. Buffers that it is the first to have are then known, and not allocated. A program of {0} may be freed. */
int program_make(Program *p, Runtime *rt, cvn_graph *g, const ProgramOptions *options,
                 cvn_err *err);
void program_free(Program *p);

/* Where a parameter lies, whole, until it is said anew; ignored where the program has no such parameter. Returns whether
   it has. One that stays on the devices lies there instead, as if it had no buffer: in a mesh of one process only. */
bool program_bind(Program *p, Role role, int index, void *host);

/* From now on inputs of a role may be pending when a run begins: `helper` still writes them, and they are read when it is done. */
void program_set_pending(Program *p, Role role, struct HelperThread *helper);

/* All parameters must be bound and all buffers allocated. */
int program_run(Program *p, cvn_err *err);

/* A result of the last run, whole; it stays until the next run of any program of the runtime. */
const void *program_output(const Program *p, Role role, int index);

/* Whether devices of this process are given row `row` of an input, the first dimension. */
bool program_needs_row(const Program *p, Role role, int index, int64_t row);

#endif
