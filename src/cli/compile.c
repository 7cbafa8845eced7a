/* caravan compile: a step for chips that are not here, by their own compiler. */
#include "base/bytes.h"
#include "base/json_file.h"
#include "cli/ask.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "run/backend.h"

#include <inttypes.h>

enum { TOPOLOGY = ASKED, OUT, JSON };

static const Option *const options[] = {
    ASKED_OPTIONS,
    OPTION(TOPOLOGY, "topology", .kind = ARG_TEXT, .required = true, .value = "CHIPS",
           .help = "target chips: v5e:4x4, v4:2x2x4, h100:8"),
    OPTION(OUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "write the executable"),
    [JSON] = SHARED(JSON),
    NULL,
};

static void size_row(const char *name, int64_t bytes)
{
    printf("  %-16s %16" PRId64 "  %12s\n", name, bytes, bytes_text((double)bytes).text);
}

static void print_compiled(const Compiled *c, const SimAnswer *plan, double seconds)
{
    const DeviceMemory *m = &plan->memory;
    printf("memory of each device, according to its compiler\n");
    size_row("arguments", c->arguments);
    size_row("outputs", c->outputs);
    size_row("  in their place", c->aliased);
    size_row("temporaries", c->temporaries);
    size_row("program", c->program);
    size_row("peak", c->peak);
    printf("as planned\n");
    size_row("arguments", (int64_t)(m->total - m->temporaries));
    size_row("temporaries", (int64_t)m->temporaries);
    size_row("together", (int64_t)m->total);
    if (c->cycles > 0)
        printf("cycles, estimated  %.0f", c->cycles);
    if (c->cycles > 0 && c->clock > 0)
        printf(": %.3f ms at %.2f GHz", c->cycles / c->clock * 1e3, c->clock / 1e9);
    if (c->cycles > 0)
        putchar('\n');
    for (size_t i = 0; i < sizeof c->collective / sizeof *c->collective; i++)
        if (c->collective[i].count)
            printf("%-18s %" PRId64 "\n", c->collective[i].kind, c->collective[i].count);
    printf("compiled in %.1f s\n", seconds);
}

static json_t *number_or_null(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static int print_compiled_json(const Compiled *c, const SimAnswer *plan, double seconds,
                               cvn_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof c->collective / sizeof *c->collective; i++)
        if (c->collective[i].count)
            list = json_append(list, json_pack("{s:s,s:I}", "kind", c->collective[i].kind, "count",
                                               (json_int_t)c->collective[i].count));
    return print_json(
        json_pack("{s:{s:I,s:I,s:I,s:I,s:I,s:I},s:{s:o},s:o,s:o,s:o,s:f}", "device_memory",
                  "arguments", (json_int_t)c->arguments, "outputs", (json_int_t)c->outputs,
                  "aliased", (json_int_t)c->aliased, "temporaries", (json_int_t)c->temporaries,
                  "program", (json_int_t)c->program, "peak", (json_int_t)c->peak, "plan",
                  "device_memory", ask_memory_json(plan), "cycles", number_or_null(c->cycles),
                  "seconds", number_or_null(c->clock > 0 ? c->cycles / c->clock : 0), "collectives",
                  list, "compile_seconds", seconds),
        err);
}

/* The chip's compiler first: what it cannot do need not be planned. */
static int compile(const Args *args, IoModel *model, SimAnswer *compiled, SimAnswer *plan,
                   cvn_err *err)
{
    SimAsk planned, ask;
    const Value *v = args->value;
    TRY(ask_of(args, args_value(args, ASK(CONTEXT))->integer, model, &planned, err));
    ask = planned;
    ask.name = args_value(args, SHARED(DEVICE))->text;
    TRY(backend_find(ask.name, &ask.device, err));
    if (ask.device == planned.device)
        return err_set(err, CVN_EINVAL,
                       "compiling for chips requires --device tpu, cuda or pjrt:PLUGIN");
    ask.topology = v[TOPOLOGY].text;
    ask.save = v[OUT].text;
    TRY(sim_plan(&planned, plan, err));
    if (plan->n_stages > 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "compile does not support stages; leave their axis out of --mesh");
    return sim_plan(&ask, compiled, err);
}

static int run(const Args *args, cvn_err *err)
{
    SCOPED(io_close_model) IoModel model = {0};
    SCOPED(sim_answer_free) SimAnswer compiled = {0}, plan = {0};
    TRY(compile(args, &model, &compiled, &plan, err));
    if (args->value[JSON].flag)
        return print_compiled_json(compiled.compiled, &plan, compiled.seconds, err);
    print_compiled(compiled.compiled, &plan, compiled.seconds);
    return EXIT_OK;
}

const Command command_compile = {
    "compile",
    .about = "compile a step ahead of time for TPUs or GPUs",
    .usage = "--topology CHIPS --device DEVICE (MODEL | -p NAME) [options]",
    .examples = "compile -p llama3.2-1b --topology v5e:2x2 --device tpu --mesh model=4\t"
                "does it fit, and how long does a step take?\n"
                "compile -p llama3.1-8b --topology h100:1 --device cuda\tthe same for a GPU\n",
    .notes =
        "The plugin of --device compiles the step for --topology without a chip, and its memory is "
        "shown beside that of `caravan plan`. The mesh has as many devices as the topology. Cycles "
        "are the compiler's estimates, summed over all operations as if none overlapped.",
    .options = options,
    .run = run,
};
