/*
 * Graphs become programs of the plugin: StableHLO, compiled once for each text, and kept on disk where there is a folder for it.
 */
#include "base/cpu.h"
#include "base/strbuf.h"
#include "compile/plan.h"
#include "graph/stablehlo/stablehlo.h"
#include "pjrt/devices.h"
#include "pjrt/executables.h"
#include "pjrt/options.h"
#include "pjrt/shardings.h"

#include <string.h>
#include <sys/stat.h>

/* The key of a compiled module: everything that it depends on. For XLA's own CPU devices the processor is part of it. */
static void key_of(const Devices *c, StrBuf *key, const StrBuf *text, PjrtText options)
{
    struct stat file = {0};
    stat(c->plugin.path, &file);
    strbuf_printf(key, "%s %s 0.%d %lld.%lld %x %zu ", c->kind, c->version,
                  c->plugin.api->version.minor, (long long)file.st_size, (long long)file.st_mtime,
                  (unsigned)cpu_features(), options.n);
    strbuf_add(key, options.text, options.n);
    strbuf_add(key, text->text, text->length);
}

/* Loads a module that is kept on disk. False: none is kept, or the plugin refuses it. */
static bool load_kept(Devices *c, Executable *x, const StrBuf *key)
{
    FileMap map;
    size_t n;
    const uint8_t *bytes =
        executables_find(c->plugin.executables, key->text, key->length, &map, &n);
    if (!bytes)
        return false;
    PjrtDeserializeArgs args =
        PJRT_NEW(PjrtDeserializeArgs, n_options, .client = c->client, .bytes = bytes, .n = n);
    bool taken =
        plugin_call(&c->plugin, PJRT_DESERIALIZE_AND_LOAD, &args, NULL, "load a program") == 0;
    file_unmap(&map);
    x->loaded = taken ? args.loaded : NULL;
    return taken;
}

static void keep_compiled(Devices *c, PjrtExecutable *executable, const StrBuf *key)
{
    PjrtSerializeArgs args = PJRT_NEW(PjrtSerializeArgs, release, .executable = executable);
    if (plugin_call(&c->plugin, PJRT_EXECUTABLE_SERIALIZE, &args, NULL, "write its program"))
        return;
    executables_keep(c->plugin.executables, key->text, key->length, args.bytes.text, args.bytes.n);
    if (args.release)
        args.release(args.owner);
}

/* Makes the executable for the devices of this process: from the disk if it was compiled before, else by compiling. */
static int load_module(Devices *c, Executable *x, const PjrtProgram *program, PjrtText options,
                       const StrBuf *key, cvn_err *err)
{
    bool keeps = c->plugin.executables && !key->failed, kept = keeps && load_kept(c, x, key);
    PjrtClientCompileArgs args = PJRT_NEW(PjrtClientCompileArgs, loaded, .client = c->client,
                                          .program = program, .options = options);
    if (!kept) {
        TRY(plugin_call(&c->plugin, PJRT_CLIENT_COMPILE, &args, err, "compile '%s'", x->name));
        x->loaded = args.loaded;
        c->modules.compilations++;
    }
    PjrtLoadedExecutableArgs of =
        PJRT_NEW(PjrtLoadedExecutableArgs, executable, .loaded = x->loaded);
    TRY(plugin_call(&c->plugin, PJRT_LOADED_EXECUTABLE, &of, err, "describe '%s'", x->name));
    compiled_memory(&c->plugin, of.executable, &x->compiled);
    if (keeps && !kept)
        keep_compiled(c, of.executable, key);
    plugin_destroy(&c->plugin, PJRT_EXECUTABLE_DESTROY, of.executable);
    return CVN_OK;
}

static int compile_module(Devices *c, Executable *x, StrBuf *text, int n, cvn_err *err)
{
    StrBuf options = {0}, key = {0};
    Cleanup cleanup[2];
    cleanup_push(&cleanup[0], strbuf_release, &options);
    cleanup_push(&cleanup[1], strbuf_release, &key);
    compile_options_print(&options, n, c->id, c->plugin.partitions);
    const PjrtProgram program = PJRT_NEW(PjrtProgram, format, .code = text->text,
                                         .n_code = text->length, .format = {"mlir", 4});
    const PjrtText how = {options.text, options.length};
    if (c->client && c->plugin.executables)
        key_of(c, &key, text, how);
    int code = options.failed ? err_set(err, CVN_EMEM, "no memory to compile '%s'", x->name)
               : c->modules.topology.topology
                   ? topology_compile(&c->modules.topology, &c->plugin, x->name, &program, how, n,
                                      c->modules.save, &x->compiled, err)
                   : load_module(c, x, &program, how, &key, err);
    cleanup_run(&cleanup[1]);
    cleanup_run(&cleanup[0]);
    x->info.temporary_bytes = (size_t)x->compiled.temporaries;
    x->info.compiled = c->modules.topology.topology ? &x->compiled : NULL;
    c->modules.compilations += c->modules.topology.topology && !code;
    return code;
}

/* local: what a device has of the module's parameters and outputs. */
static void describe(Devices *c, Executable *x, const cvn_graph *local, const cvn_graph *module)
{
    Arena *arena = &c->arena;
    size_t n = (size_t)local->n_parameters, outputs = (size_t)local->n_outputs;
    size_t devices = (size_t)c->n;
    MemoryLayout *layout = arena_array(arena, n, sizeof *layout);
    size_t *bytes = arena_array(arena, n, sizeof *bytes);
    signature_of(&x->signature, local, arena);
    x->parameter = arena_array(arena, n, sizeof *x->parameter);
    x->output = arena_array(arena, outputs, sizeof *x->output);
    x->result = arena_array(arena, outputs, sizeof *x->result);
    for (size_t i = 0; i < n; i++) {
        layout[i] = LAYOUT_PLAIN;
        bytes[i] = cvn_type_bytes(&local->parameter[i]->type);
        x->parameter[i] = module->parameter[i]->type;
    }
    for (size_t i = 0; i < outputs; i++)
        x->output[i] = module->output[i].value->type;
    x->info.layout = layout;
    x->info.parameter_bytes = bytes;
    for (const Op *op = local->first; op; op = op->next) {
        x->info.n_operations++;
        x->info.flops += op_flops(op);
    }
    x->argument = arena_array(arena, devices * n, sizeof(PjrtBuffer *));
    x->made = arena_array(arena, devices * outputs, sizeof(PjrtBuffer *));
    x->arguments = arena_array(arena, devices, sizeof(PjrtBuffer **));
    x->mades = arena_array(arena, devices, sizeof(PjrtBuffer **));
    x->done = arena_array(arena, devices, sizeof(PjrtEvent *));
    for (size_t d = 0; d < devices; d++) {
        x->arguments[d] = x->argument + d * n;
        x->mades[d] = x->made + d * outputs;
    }
}

static int print_module(const Devices *c, StrBuf *text, const cvn_graph *module,
                        const PartitionReport *report, const Mesh *mesh, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    StableHloOptions how = {.n_devices = mesh->n_devices,
                            .rows = strstr(c->plugin.path, "libtpu") ? 2 : 0};
    int code = CVN_OK;
    if (c->plugin.partitions)
        code = shardings_of(&how, module, report, mesh, &arena, err);
    if (code == CVN_OK)
        code = graph_print_stablehlo(text, module, &how, err);
    return code;
}

static int compile_text(Devices *c, Executable *x, const cvn_graph *local, const cvn_graph *module,
                        const PartitionReport *report, const Mesh *mesh, const Executable **out,
                        cvn_err *err)
{
    StrBuf text = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &text);
    int code = print_module(c, &text, module, report, mesh, err);
    const uint64_t *known = code ? NULL : map_get(&c->modules.by_text, text.text, text.length);
    if (known) {
        x = (Executable *)(uintptr_t)*known;
    } else if (code == CVN_OK) {
        describe(c, x, local, c->plugin.partitions ? local : module);
        x->next = c->modules.first;
        c->modules.first = x;
        code = compile_module(c, x, &text, mesh->n_devices, err);
        if (code == CVN_OK)
            *map_put(&c->modules.by_text, text.text, text.length, NULL) = (uint64_t)(uintptr_t)x;
    }
    cleanup_run(&cleanup);
    *out = x;
    return code;
}

int pjrt_compile(Devices *c, const cvn_graph *local, const PartitionReport *report,
                 const Mesh *mesh, const MemoryLayout *layout, const Executable **out, cvn_err *err)
{
    (void)layout;
    Executable *x = arena_alloc(&c->arena, sizeof *x);
    x->name = arena_string(&c->arena, local->name);
    const cvn_graph *module = c->plugin.partitions ? report->whole : local;
    return compile_text(c, x, local, module, report, mesh, out, err);
}
