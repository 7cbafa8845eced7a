#include "pjrt/topology.h"

#include "base/file.h"
#include "pjrt/optimized.h"

#include <stdlib.h>
#include <string.h>

/* ---- chips ---- */

/* Clocks of TPUs: v4 1,050 MHz (Jouppi et al., 2023), the others from the peak of bf16 that is published and the size of
   their matrix units. */
static const struct {
    const char *name;
    double clock;
} tpus[] = {{"v4", 1.05e9}, {"v5e", 1.5e9}, {"v5", 1.75e9}, {"v6e", 1.75e9}};

static double clock_of(const char *name)
{
    size_t n = strcspn(name, ":");
    for (size_t i = 0; i < sizeof tpus / sizeof *tpus; i++)
        if (strlen(tpus[i].name) == n && strncmp(name, tpus[i].name, n) == 0)
            return tpus[i].clock;
    return 0;
}

int topology_open(Topology *t, const Plugin *p, const char *name, Arena *arena, cvn_err *err)
{
    PjrtTopologyArgs args = PJRT_NEW(PjrtTopologyArgs, topology, .name = {name, strlen(name)});
    *t = (Topology){.name = arena_string(arena, name), .clock = clock_of(name)};
    TRY(plugin_call(p, PJRT_TOPOLOGY_CREATE, &args, err, "compile for '%s'", name));
    t->topology = args.topology;
    PjrtTopologyDevicesArgs devices = PJRT_NEW(PjrtTopologyDevicesArgs, n, .topology = t->topology);
    TRY(plugin_call(p, PJRT_TOPOLOGY_DEVICES, &devices, err, "list the devices of '%s'", name));
    t->n_devices = devices.n;
    return CVN_OK;
}

/* ---- what came of it ---- */

void compiled_memory(const Plugin *p, PjrtExecutable *executable, Compiled *out)
{
    PjrtCompiledMemoryArgs memory =
        PJRT_NEW(PjrtCompiledMemoryArgs, peak, .executable = executable);
    if (plugin_call(p, PJRT_EXECUTABLE_MEMORY_STATS, &memory, NULL, "describe it"))
        return;
    out->arguments = memory.arguments;
    out->outputs = memory.outputs;
    out->aliased = memory.aliased;
    out->temporaries = memory.temporaries;
    out->peak = memory.peak > 0
                    ? memory.peak
                    : memory.arguments + memory.outputs - memory.aliased + memory.temporaries;
}

/* It is worth something without this. */
static void read_program(const Plugin *p, PjrtExecutable *executable, Compiled *out)
{
    PjrtProgram program = PJRT_NEW(PjrtProgram, format, .code = NULL);
    PjrtOptimizedArgs args =
        PJRT_NEW(PjrtOptimizedArgs, program, .executable = executable, .program = &program);
    if (plugin_call(p, PJRT_EXECUTABLE_OPTIMIZED_PROGRAM, &args, NULL, "show its program"))
        return;
    program.code = malloc(program.n_code + 1);
    if (program.code &&
        plugin_call(p, PJRT_EXECUTABLE_OPTIMIZED_PROGRAM, &args, NULL, "show its program") == 0)
        optimized_read(program.code, program.n_code, out);
    free(program.code);
}

static int save_program(const Plugin *p, PjrtExecutable *executable, const char *path, cvn_err *err)
{
    PjrtSerializeArgs args = PJRT_NEW(PjrtSerializeArgs, release, .executable = executable);
    TRY(plugin_call(p, PJRT_EXECUTABLE_SERIALIZE, &args, err, "write its program"));
    int code = file_write(path, args.bytes.text, args.bytes.n, err);
    if (args.release)
        args.release(args.owner);
    return code;
}

int topology_compile(const Topology *t, const Plugin *p, const char *name,
                     const PjrtProgram *program, PjrtText options, int n, const char *save,
                     Compiled *out, cvn_err *err)
{
    PjrtCompileArgs args = PJRT_NEW(PjrtCompileArgs, executable, .topology = t->topology,
                                    .program = program, .options = options);
    if (t->n_devices != (size_t)n)
        return err_set(err, CVN_EINVAL,
                       "'%s' has %zu devices and the mesh %d; they must be as many", t->name,
                       t->n_devices, n);
    TRY(plugin_call(p, PJRT_COMPILE, &args, err, "compile '%s' for %s", name, t->name));
    *out = (Compiled){.clock = t->clock};
    compiled_memory(p, args.executable, out);
    read_program(p, args.executable, out);
    int code = save ? save_program(p, args.executable, save, err) : CVN_OK;
    plugin_destroy(p, PJRT_EXECUTABLE_DESTROY, args.executable);
    return code;
}
