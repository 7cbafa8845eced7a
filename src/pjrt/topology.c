#include "pjrt/topology.h"

#include "base/file.h"
#include "pjrt/optimized.h"
#include "pjrt/toolkit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- chips ---- */

/* Clocks of TPUs: v4 1,050 MHz (Jouppi et al., 2023), the others from the peak of bf16 that is published and the size of
   their matrix units. */
static const struct {
    const char *name;
    double clock;
} tpus[] = {{"v4", 1.05e9}, {"v5e", 1.5e9}, {"v5", 1.75e9}, {"v6e", 1.75e9}};

/* GPUs, by what NVIDIA publishes and what their drivers report. */
typedef struct Gpu {
    const char *name, *long_name;
    int64_t bandwidth, memory, l2, shared, shared_block; /* bytes, a second or in all */
    int cores, fpus, major;                              /* of a core; of the compute capability */
    const char *clock;                                   /* GHz */
} Gpu;

static const Gpu gpus[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 3352320000000, 84942979072, 52428800, 233472, 232448, 132,
     128, 9, "1.98"},
    {"h200", "NVIDIA H200 141GB HBM3e", 4800000000000, 151397597184, 52428800, 233472, 232448, 132,
     128, 9, "1.98"},
    {"a100", "NVIDIA A100-SXM4-80GB", 2039040000000, 85100068864, 41943040, 167936, 166912, 108, 64,
     8, "1.41"},
};

static bool begins(const char *name, const char *chip)
{
    size_t n = strcspn(name, ":");
    return strlen(chip) == n && strncmp(name, chip, n) == 0;
}

static double clock_of(const char *name)
{
    for (size_t i = 0; i < sizeof tpus / sizeof *tpus; i++)
        if (begins(name, tpus[i].name))
            return tpus[i].clock;
    return 0;
}

/* A chip as XLA's GpuTargetConfigProto, in text. */
static const char *describe_gpu(const Gpu *g, Arena *arena)
{
    return arena_printf(
        arena,
        "gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 "
        "shared_memory_per_block: 49152 shared_memory_per_core: %" PRId64
        " threads_per_core_limit: 2048 core_count: %d fpus_per_core: %d "
        "block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
        "memory_bandwidth: %" PRId64 " l2_cache_size: %" PRId64
        " clock_rate_ghz: %s device_memory_size: %" PRId64
        " shared_memory_per_block_optin: %" PRId64
        " cuda_compute_capability { major: %d } registers_per_core_limit: 65536 "
        "registers_per_block_limit: 65536 } platform_name: \"CUDA\" "
        "dnn_version_info { major: 9 minor: 10 } device_description_str: \"%s\"",
        g->shared, g->cores, g->fpus, g->bandwidth, g->l2, g->clock, g->memory, g->shared_block,
        g->major, g->long_name);
}

static PjrtNamed text_option(const char *name, const char *value)
{
    return (PjrtNamed)PJRT_NEW(PjrtNamed, n, .name = {name, strlen(name)}, .kind = PJRT_STRING,
                               .string = value, .n = strlen(value));
}

static const Gpu *gpu_of(const char *name)
{
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++)
        if (begins(name, gpus[i].name))
            return &gpus[i];
    return NULL;
}

/* The options of a topology, 2 at most. A chip of v4 is one device of two cores ("megacore"), as its users see it. */
static size_t options_of(const char *name, PjrtNamed *option, Arena *arena)
{
    if (begins(name, "v4")) {
        option[0] = text_option("chip_config_name", "megacore");
        return 1;
    }
    const Gpu *gpu = gpu_of(name);
    if (!gpu)
        return 0;
    const char *count = name + strlen(gpu->name);
    option[0] = text_option("target_config", describe_gpu(gpu, arena));
    option[1] = text_option("topology", arena_printf(arena, "1x1x%s", *count ? count + 1 : "1"));
    return 2;
}

int topology_open(Topology *t, const Plugin *p, const char *name, Arena *arena, cvn_err *err)
{
    PjrtNamed option[2];
    PjrtTopologyArgs args =
        PJRT_NEW(PjrtTopologyArgs, topology, .name = {name, strlen(name)}, .option = option,
                 .n_options = options_of(name, option, arena));
    const char *toolkit;
    if (gpu_of(name))
        TRY(toolkit_find(p->path, toolkit_system, arena, &toolkit, err));
    *t = (Topology){.name = arena_string(arena, name), .clock = clock_of(name)};
    TRY(plugin_call(p, PJRT_TOPOLOGY_CREATE, &args, err, "compile for '%s'", name));
    t->topology = args.topology;
    PjrtTopologyDevicesArgs devices = PJRT_NEW(PjrtTopologyDevicesArgs, n, .topology = t->topology);
    TRY(plugin_call(p, PJRT_TOPOLOGY_DEVICES, &devices, err, "list the devices of '%s'", name));
    t->n_devices = devices.n;
    return CVN_OK;
}

/* ---- results ---- */

void compiled_memory(const Plugin *p, PjrtExecutable *executable, Compiled *out)
{
    PjrtCompiledMemoryArgs memory =
        PJRT_NEW(PjrtCompiledMemoryArgs, peak, .executable = executable);
    if (plugin_call(p, PJRT_EXECUTABLE_MEMORY_STATS, &memory, NULL, "describe it"))
        return;
    out->program = memory.code;
    out->arguments = memory.arguments;
    out->outputs = memory.outputs;
    out->aliased = memory.aliased;
    out->temporaries = memory.temporaries;
    /* libtpu's peak is that of what is alive, in memory on the chip too, where weights are on their way to a product, but without
       gaps; its temporaries are what is taken of the device's memory, and not said of large programs. */
    int64_t kept = memory.arguments + memory.outputs - memory.aliased;
    out->peak = memory.peak;
    if (memory.temporaries == 0 && memory.peak > kept)
        out->temporaries = memory.peak - kept;
    if (out->peak <= 0 || out->peak > kept + out->temporaries)
        out->peak = kept + out->temporaries;
}

/* Reads the program that the plugin made of the graph. A failure is ignored, because the other results are useful without it. */
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
                       "'%s' has %zu devices, but the mesh has %d; the numbers must be equal",
                       t->name, t->n_devices, n);
    TRY(plugin_call(p, PJRT_COMPILE, &args, err, "compile '%s' for %s", name, t->name));
    *out = (Compiled){.clock = t->clock};
    compiled_memory(p, args.executable, out);
    read_program(p, args.executable, out);
    int code = save ? save_program(p, args.executable, save, err) : CVN_OK;
    plugin_destroy(p, PJRT_EXECUTABLE_DESTROY, args.executable);
    return code;
}
