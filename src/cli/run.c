/* caravan run: carries a graph or a module in StableHLO out, on a mesh of devices. */
#include "cli/opt_run.h"
#include "cli/options.h"
#include "graph/text/text.h"

#include <string.h>

enum { MESH, MARK, INPUTS, SEED, CHECK, OUTPUT, QUIET };

static const Option *const options[] = {
    OPTION(MESH, "mesh", .letter = 'm', .kind = ARG_TEXT, .value = "MESH",
           .help = "device mesh to shard the program over, such as data=4,model=2"),
    OPTION(MARK, "mark", .kind = ARG_TEXT, .repeats = true, .needs = "mesh", .value = "NAME=SPEC",
           .help = "sharding of a parameter: for each dimension its axes, or _; may be repeated"),
    OPTION(INPUTS, "inputs", .letter = 'i', .kind = ARG_INPUT, .value = "FILE",
           .help = "parameter values by name, safetensors"),
    OPTION(SEED, "seed", .letter = 's', .kind = ARG_INT, .value = "N", .fallback = "0",
           .help = "seed of random inputs, where none are given"),
    OPTION(CHECK, "check", .letter = 'c', .kind = ARG_FLAG,
           .help = "compare the results with the interpreter's"),
    OPTION(OUTPUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .value = "FILE",
           .help = "output file, results as safetensors; default standard output"),
    OPTION(QUIET, "quiet", .letter = 'q', .kind = ARG_FLAG, .help = "do not report the check"),
    NULL,
};

/* "arg0=data,_" */
static int mark(cvn_graph *g, const char *text, cvn_err *err)
{
    const char *spec = strchr(text, '=');
    size_t n = spec ? (size_t)(spec - text) : 0;
    for (int i = 0; i < g->n_parameters && spec; i++) {
        const char *name = g->parameter[i]->def->attr.name;
        if (strlen(name) == n && memcmp(name, text, n) == 0)
            return graph_parse_mark(g, g->parameter[i], spec + 1, err);
    }
    return spec ? err_set(err, CVN_EINVAL, "--mark %s: '%.*s' is not a parameter of graph '%s'",
                          text, (int)(n < 200 ? n : 200), text, g->name)
                : err_set(err, CVN_EINVAL, "--mark %s: expected NAME=SPEC, such as arg0=data,_",
                          text);
}

static int run(const Args *args, cvn_err *err)
{
    const Value *value = args->value;
    SCOPED(graph_release) cvn_graph *g = NULL;
    TRY(opt_open(args->operand[0], &g, err));
    for (size_t i = 0; i < value[MARK].n_texts; i++)
        TRY(mark(g, value[MARK].texts[i], err));
    const OptRun how = {.inputs = value[INPUTS].text,
                        .seed = (uint64_t)value[SEED].integer,
                        .mesh = value[MESH].text,
                        .check = value[CHECK].flag,
                        .out = value[OUTPUT].text,
                        .quiet = value[QUIET].flag};
    return opt_run(g, &how, err);
}

const Command command_run = {
    "run",
    .about = "run a StableHLO module or a graph",
    .usage = "[options] FILE",
    .examples =
        "run --check model.mlir\ta module that JAX exported, on random inputs\n"
        "run --inputs a.safetensors --out b.safetensors model.mlir\twith inputs from a file\n"
        "run --mesh data=4 --mark arg0=data,_ model.mlir\tthe first argument by rows, on 4 "
        "devices\n",
    .notes = "FILE is a module in StableHLO, MLIR text as jax.jit(f).lower(...).as_text() prints "
             "it, or a graph in text; - is standard input. The module is simplified, sharded over "
             "the mesh from the marked parameters on, fused and compiled like a model. Parameters "
             "are called as the arguments of its function main: arg0, arg1. docs/STABLEHLO.md says "
             "which operations are supported. Random inputs and --check are those of opt --run.\n",
    .operands = "FILE",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};
