/*
 * Compiling for chips that are not here. A topology says which and how many:
 *
 *     v5e:4x4, v4:2x2x4, v5:4x4x4 …      TPUs, as libtpu calls them
 *     h100:8                             GPUs, by the table in topology.c
 */
#ifndef CVN_PJRT_TOPOLOGY_H
#define CVN_PJRT_TOPOLOGY_H

#include "pjrt/plugin.h"
#include "run/backend.h"

typedef struct Topology {
    PjrtTopology *topology; /* owned by whoever has it */
    const char *name;       /* "v5e:4x4" */
    size_t n_devices;
    double clock; /* of each, in Hz; 0: nobody knows */
} Topology;

int topology_open(Topology *t, const Plugin *p, const char *name, Arena *arena, cvn_err *err);

/* Compiles a program called `name` for n devices, which must be all; says what came of it, and writes it to the file
   `save`, if that is not NULL. */
int topology_compile(const Topology *t, const Plugin *p, const char *name,
                     const PjrtProgram *program, PjrtText options, int n, const char *save,
                     Compiled *out, cvn_err *err);

/* What a plugin says of an executable's memory; all 0 where it says nothing. */
void compiled_memory(const Plugin *p, PjrtExecutable *executable, Compiled *out);

#endif
