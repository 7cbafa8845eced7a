/* caravan opt: runs passes on a graph in text, on any machine, and prints what they make of it; or carries it out. */
#include "base/file.h"
#include "base/suggest.h"
#include "cli/common.h"
#include "cli/opt_run.h"
#include "cli/terminal.h"
#include "compile/pipeline.h"
#include "cpu/registry.h"
#include "graph/passes.h"
#include "graph/stablehlo/stablehlo.h"
#include "graph/text/text.h"
#include "shard/passes.h"
#include "shard/propagate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES, MESH, EMIT, DEVICES, DUMP, RUN, INPUTS, SEED, CHECK, OUTPUT, QUIET };
enum { EMIT_TEXT, EMIT_STABLEHLO, EMIT_SPECS, EMIT_NOTHING };

static const Option *const options[] = {
    OPTION(PASSES, "passes", .letter = 'p', .kind = ARG_TEXT, .value = "LIST",
           .help = "comma-separated passes to run in order"),
    OPTION(MESH, "mesh", .letter = 'm', .kind = ARG_TEXT, .value = "MESH",
           .help = "device mesh of propagate, partition and --run, such as data=4,model=2"),
    OPTION(EMIT, "emit", .letter = 'e', .kind = ARG_CHOICE, .value = "FORM", .group = 1,
           .fallback = "text", .choices = CHOICES("text", "stablehlo", "specs", "nothing"),
           .help = "output, one of"),
    OPTION(DEVICES, "devices", .kind = ARG_INT, .high = 1 << 20, .value = "N", .fallback = "0",
           .help = "devices of the StableHLO module, 0: as many as it names"),
    OPTION(DUMP, "dump", .kind = ARG_OUTPUT, .value = "DIR",
           .help = "write the graph before the first and after each pass"),
    OPTION(RUN, "run", .letter = 'r', .kind = ARG_FLAG, .group = 1,
           .help = "execute the graph and print its results"),
    OPTION(INPUTS, "inputs", .letter = 'i', .kind = ARG_INPUT, .needs = "run", .value = "FILE",
           .help = "parameter values by name, safetensors"),
    OPTION(SEED, "seed", .letter = 's', .kind = ARG_INT, .needs = "run", .value = "N",
           .fallback = "0", .help = "seed of random inputs, where none are given"),
    OPTION(CHECK, "check", .letter = 'c', .kind = ARG_FLAG, .needs = "run",
           .help = "compare the results with the interpreter's"),
    OPTION(OUTPUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .value = "FILE",
           .help = "output file, results as safetensors; default standard output"),
    OPTION(QUIET, "quiet", .letter = 'q', .kind = ARG_FLAG,
           .help = "do not print what each pass did"),
    NULL,
};

/* Tables of passes: one for each folder that has some. */
static const GraphPass *const *const tables[] = {graph_passes, compile_passes, shard_passes};

enum { MOST_PASSES = 64 };

/* The i-th pass of all tables, or NULL. */
static const GraphPass *pass_at(size_t i)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const GraphPass *const *pass = tables[t]; *pass; pass++)
            if (i-- == 0)
                return *pass;
    return NULL;
}

static const char *pass_name(const void *unused, size_t i)
{
    (void)unused;
    const GraphPass *pass = pass_at(i);
    return pass ? pass->name : NULL;
}

/* "simplify,dead" into pass[MOST_PASSES]. */
static int parse_passes(const char *text, const GraphPass **pass, int *n, cvn_err *err)
{
    *n = 0;
    while (text && *text) {
        char name[64];
        size_t length = strcspn(text, ",");
        snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), text);
        const GraphPass *found;
        for (size_t i = 0; (found = pass_at(i)) && strcmp(found->name, name) != 0;)
            i++;
        const char *near = found ? NULL : suggest(name, pass_name, NULL);
        if (!found && near)
            return err_set(err, CVN_EINVAL, "unknown pass %s; did you mean %s?", name, near);
        if (!found)
            return err_set(err, CVN_EINVAL, "unknown pass '%s'; caravan opt --help lists them",
                           name);
        if (*n == MOST_PASSES)
            return err_set(err, CVN_EINVAL, "--passes names more than %d passes", MOST_PASSES);
        pass[(*n)++] = found;
        text += length;
        if (*text == ',')
            text++;
    }
    return CVN_OK;
}

/* What a pass did, for people: standard output holds the graph alone. */
static void report(const GraphPass *pass, bool changed, const cvn_graph *g)
{
    fprintf(stderr, "%s: %s, %" PRId64 " operations\n", pass->name,
            changed ? "changed" : "unchanged", g->n_ops);
}

/* What follows from the marks: of every value its spec, who set it, and the operations along which it came. */
static int emit_specs(const cvn_graph *g, StrBuf *out, cvn_err *err)
{
    Mesh mesh;
    ShardResult result;
    if (!g->mesh)
        return err_set(err, CVN_EINVAL,
                       "specs require a mesh; give one with --mesh data=2,model=2");
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    TRY(mesh_parse(&mesh, g->mesh, &arena, err));
    TRY(shard_propagate(g, &mesh, &result, err));
    shard_report(out, g, &mesh, &result);
    shard_result_free(&result);
    return out->failed ? err_set(err, CVN_EMEM, "no memory to print the specs") : CVN_OK;
}

static int emit(const cvn_graph *g, const Args *args, StrBuf *out, cvn_err *err)
{
    StableHloOptions hlo = {.n_devices = args->value[DEVICES].integer};
    switch (args->value[EMIT].integer) {
    case EMIT_TEXT:
        graph_print(out, g);
        return out->failed ? err_set(err, CVN_EMEM, "no memory to print the graph") : CVN_OK;
    case EMIT_STABLEHLO:
        return graph_print_stablehlo(out, g, &hlo, err);
    case EMIT_SPECS:
        return emit_specs(g, out, err);
    default:
        return CVN_OK;
    }
}

static int run_graph(const cvn_graph *g, const Args *args, cvn_err *err)
{
    const Value *value = args->value;
    const OptRun how = {.inputs = value[INPUTS].text,
                        .seed = (uint64_t)value[SEED].integer,
                        .mesh = value[MESH].text,
                        .check = value[CHECK].flag,
                        .out = value[OUTPUT].text,
                        .quiet = value[QUIET].flag};
    return opt_run(g, &how, err);
}

static int print_graph(const cvn_graph *g, const Args *args, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf out = {0};
    const char *path = args->value[OUTPUT].text;
    TRY(emit(g, args, &out, err));
    if (path)
        return file_write(path, out.text, out.length, err);
    if (out.length && fwrite(out.text, 1, out.length, stdout) != out.length)
        return err_set(err, CVN_EIO, "cannot write the graph to standard output");
    return CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    const char *path = args->operand[0];
    const GraphPass *pass[MOST_PASSES];
    int n;
    SCOPED(graph_release) cvn_graph *g = NULL;
    if (parse_passes(args->value[PASSES].text, pass, &n, err))
        return EXIT_USAGE;
    TRY(opt_open(path, &g, err));
    if (args->value[MESH].text)
        g->mesh = arena_string(&g->arena, args->value[MESH].text);
    Dump dump;
    const CompileOptions how_compiled = {.backend = cpu_kernels(), .n_threads = 1};
    const Compile compile = {.options = &how_compiled, .free_layout = true};
    PassOptions how = {
        .context = &compile, .dump = &dump, .report = args->value[QUIET].flag ? NULL : report};
    TRY(dump_init(&dump, args->value[DUMP].text, NULL, err));
    TRY(passes_run(g, pass, n, &how, err));
    return (args->value[RUN].flag ? run_graph : print_graph)(g, args, err);
}

const Command command_opt = {
    "opt",
    .about = "run compiler passes on a graph, or execute it",
    .usage = "[options] FILE",
    .examples =
        "opt --passes simplify model.txt\tthe graph after simplification\n"
        "opt --passes decompose,simplify --dump steps model.txt\talso steps/00-input.txt, "
        "steps/01-decompose.txt, …\n"
        "opt --passes propagate --mesh data=2,model=2 model.txt\tthe sharding of every value\n"
        "opt --emit specs --mesh data=2,model=2 model.txt\tshardings with their origin: which "
        "mark, through which operations\n"
        "opt --passes propagate,partition --mesh data=2,model=2 model.txt\tthe program of each "
        "device\n"
        "opt --run --check --mesh data=2,model=2 model.txt\texecute on 4 devices and compare with "
        "the interpreter\n"
        "opt --run --inputs a.safetensors --out b.safetensors model.txt\twith inputs from a file\n"
        "opt --emit stablehlo model.txt\ta StableHLO module for XLA\n"
        "opt --emit nothing model.txt\tonly verify the graph\n",
    .notes =
        "Passes: simplify (constant folding, common subexpressions, exact identities), "
        "decompose (replace composites by primitive operations), dead (remove dead "
        "operations), pack (store weights of matrix products in the layout of the kernels), "
        "fuse_linear (make one of products that share their input), "
        "fuse (group operations into regions that the back end executes as one), "
        "propagate (sharding propagation from the values marked <data,_>, on --mesh), "
        "partition (SPMD partitioning: the graph of one device, with collectives).\n"
        "FILE may be - for standard input, and a module in StableHLO; docs/GRAPH.md describes the "
        "text form, docs/STABLEHLO.md what is read of modules. The graph "
        "is verified before the first pass and after each one. A summary of each pass goes to "
        "standard error.\n"
        "--run executes it on one device, where marks are ignored, or on --mesh, whose axes "
        "need not divide the sizes. Random inputs are floats of mean 0 and variance 1, bools, "
        "and integers from 0 to 15, or below the size that they index. --check fails where a "
        "result differs from the interpreter's by more than 1e-5 of its largest element (2e-2 "
        "for results of bf16, f16 or quantized inputs), or at all for integers.",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};
