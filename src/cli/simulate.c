/* caravan simulate: predict step times and serving latency on TPUs and GPUs. */
#include "base/bytes.h"
#include "base/file.h"
#include "base/json_file.h"
#include "cli/ask.h"
#include "cli/check_compiled.h"
#include "cli/common.h"
#include "cli/figures.h"
#include "cli/rows.h"
#include "cli/terminal.h"
#include "cli/this_chip.h"
#include "sim/report.h"
#include "sim/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS,
    PRESET,
    MODEL,
    CHIP,
    PRICE,
    MESH,
    LAYOUT,
    GOAL,
    CHIPS,
    OVERLAP,
    TRAIN,
    PREFILL,
    DECODE,
    SERVE,
    SEQ,
    BATCH,
    MICRO_BATCH,
    CONTEXT,
    OPTIMIZER,
    REMAT,
    DTYPE,
    QUANTIZE,
    KV_CACHE,
    ACTIVATIONS,
    ENGINE,
    PRECISION,
    INPUT,
    OUTPUT,
    RATE,
    TRACE,
    HTML,
    SVG,
    CHECK,
    JSON
};

#define THIS "this"
#define COMMITTED "3-year"

static const char *const engine_choices[] = {"caravan", "vllm", "trtllm", "sglang", NULL};

static const char *choice_of_chip(size_t i)
{
    return i < chips_count() ? chip_at(i)->name : i == chips_count() ? "this" : NULL;
}

static const Option *const options[] = {
    OPTION(ROWS, "rows", .kind = ARG_INPUT, .required = true, .group = 1, .value = "FILE.csv",
           .help = "simulate each row of a table, compared with its measurement"),
    [PRESET] = ASK(PRESET),
    [MODEL] = ASK(MODEL),
    OPTION(CHIP, "chip", .kind = ARG_TEXT, .choice = choice_of_chip, .value = "NAME",
           .fallback = "h100_sxm",
           .help = "chip: a name from `caravan chips`, FILE.json, or this: the local machine, "
                   "whose steps are measured"),
    OPTION(PRICE, "price", .kind = ARG_TEXT, .choices = CHOICES(COMMITTED), .value = "DOLLARS",
           .refuses = "rows",
           .help = "price of a chip per hour, default the list price on demand; or 3-year"),
    [MESH] = ASK(MESH),
    [LAYOUT] = ASK(LAYOUT),
    OPTION(GOAL, "goal", .kind = ARG_CHOICE, .value = "GOAL", .fallback = "throughput",
           .choices = search_goal_names, .needs = "mesh",
           .help = "objective of --mesh auto, one of"),
    OPTION(CHIPS, "chips", .kind = ARG_TEXT, .choices = CHOICES("min"), .value = "N",
           .fallback = "min", .needs = "mesh", .help = "number of chips for --mesh auto, or min"),
    [OVERLAP] = SHARED(OVERLAP),
    [TRAIN] = ASK(TRAIN),
    [PREFILL] = ASK(PREFILL),
    [DECODE] = ASK(DECODE),
    OPTION(SERVE, "serve", .kind = ARG_FLAG, .group = 2,
           .help = "serving: --batch concurrent requests of --input and --output tokens"),
    [SEQ] = ASK(SEQ),
    [BATCH] = ASK(BATCH),
    [MICRO_BATCH] = ASK(MICRO_BATCH),
    OPTION(CONTEXT, "context", .letter = 'c', .kind = ARG_INT, .low = 1, .high = 1 << 30,
           .value = "N", .fallback = "2048", .help = "context length"),
    [OPTIMIZER] = ASK(OPTIMIZER),
    [REMAT] = ASK(REMAT),
    [DTYPE] = SHARED(DTYPE),
    [QUANTIZE] = SHARED(QUANTIZE),
    [KV_CACHE] = SHARED(KV_CACHE),
    [ACTIVATIONS] = SHARED(ACTIVATIONS),
    OPTION(ENGINE, "engine", .kind = ARG_CHOICE, .value = "NAME", .fallback = "caravan",
           .choices = engine_choices, .needs = "serve", .help = "scheduler to simulate, one of"),
    OPTION(PRECISION, "precision", .kind = ARG_CHOICE, .value = "TYPE", .fallback = "bf16",
           .choices = chip_type_names, .needs = "serve", .help = "type of matrix products, one of"),
    OPTION(INPUT, "input", .kind = ARG_INT, .low = 1, .high = 1 << 24, .value = "N",
           .fallback = "1024", .needs = "serve", .help = "prompt tokens of a request"),
    OPTION(OUTPUT, "output", .kind = ARG_INT, .low = 2, .high = 1 << 24, .value = "N",
           .fallback = "128", .needs = "serve", .help = "output tokens of a request"),
    OPTION(RATE, "rate", .kind = ARG_REAL, .low = 0, .high = 1e6, .value = "R", .fallback = "0",
           .needs = "serve", .help = "requests per second, Poisson; 0: --batch concurrent ones"),
    OPTION(TRACE, "trace", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "write a trace of the step for Perfetto"),
    OPTION(HTML, "html", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "write an HTML report"),
    OPTION(SVG, "svg", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "draw a timeline of the step"),
    OPTION(CHECK, "check", .kind = ARG_TEXT, .choices = CHOICES("tpu", "cuda"), .value = "DEVICE",
           .help = "also compile the step with the chip's compiler: tpu, cuda, pjrt:PLUGIN"),
    [JSON] = SHARED(JSON),
    SHARED(TEXT_ONLY),
    NULL,
};

/* ---- figures ---- */

/* What the time went to. */
static json_t *shares_json(const Cost *cost, double seconds)
{
    json_t *bounds = json_object();
    for (int b = 0; b < COST_BOUNDS; b++)
        bounds = json_with(bounds, cost_bound_names[b], json_real(cost->spent[b] / seconds));
    return bounds;
}

static json_t *figures_json(const SimFigures *f)
{
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o}", "model", f->model, "task",
                  f->task, "chip", f->chip->name, "chips", f->chips, "seconds", f->seconds,
                  "tokens_per_second", f->tokens / f->seconds, "tokens_per_second_and_chip",
                  f->tokens / f->seconds / f->chips, "mfu", figures_mfu(f), "mbu", figures_mbu(f),
                  "exposed_seconds", f->exposed, "shares", shares_json(&f->cost, f->seconds));
    if (f->weights > 0)
        o = json_with(o, "mbu_nominal", json_real(figures_mbu_nominal(f)));
    if (f->chip->price <= 0)
        return o;
    o = json_with(o, "dollars_per_million_tokens", json_real(figures_per_million(f)));
    return json_with(o, "price",
                     json_pack("{s:f,s:s}", "dollars_per_chip_and_hour", f->chip->price, "source",
                               f->chip->priced));
}

static void print_figures(const SimFigures *f)
{
    printf("  %-36s %12.3f ms\n", "time", 1e3 * f->seconds);
    printf("  %-36s %12.1f\n", "tokens a second", f->tokens / f->seconds);
    printf("  %-36s %12.1f\n", "tokens a second and chip", f->tokens / f->seconds / f->chips);
    printf("  %-36s %12.1f %%\n", "of the bf16 peak (MFU)", 100 * figures_mfu(f));
    printf("  %-36s %12.1f %%\n", "of the memory bandwidth (MBU)", 100 * figures_mbu(f));
    if (f->weights > 0)
        printf("  %-36s %12.1f %%\n", "  weights alone, once on all chips",
               100 * figures_mbu_nominal(f));
    if (f->chip->price > 0)
        printf("  %-36s %12.4f $ (%.2f $ per chip-hour: %s)\n", "a million tokens",
               figures_per_million(f), f->chip->price, f->chip->priced);
    else
        printf("  %-36s %12s $ (list price unknown: --price)\n", "a million tokens", "-");
    printf("  %-36s", "time spent on");
    for (int b = 0; b < COST_BOUNDS; b++)
        printf("%s %s %.1f %%", b ? "," : "", cost_bound_names[b],
               100 * f->cost.spent[b] / f->seconds);
    printf("\n  %-36s %12.3f ms\n", "waiting for links", 1e3 * f->exposed);
}

/* ---- a step ---- */

static int write_trace(const char *path, const Timed *t, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf out = {0};
    strbuf_puts(&out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                      "{\"ph\":\"M\",\"pid\":1,\"tid\":0,\"name\":\"thread_name\",\"args\":{"
                      "\"name\":\"chip\"}},\n"
                      "{\"ph\":\"M\",\"pid\":1,\"tid\":1,\"name\":\"thread_name\",\"args\":{"
                      "\"name\":\"links\"}}");
    for (int64_t i = 0; i < t->n_spans; i++)
        strbuf_printf(
            &out, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f}",
            t->span[i].link, t->span[i].name, 1e6 * t->span[i].begin, 1e6 * t->span[i].seconds);
    strbuf_puts(&out, "\n]}\n");
    return out.failed ? err_set(err, CVN_EMEM, "no memory for the trace")
                      : file_write(path, out.text, out.length, err);
}

/* Bytes of a weight in most matrices. */
static double weight_bytes(const Model *model)
{
    const QuantScheme scheme = model_quant(model), *q = &scheme;
    const BlockInfo *block = q->kind == QUANT_BLOCKS ? &block_info[q->blocks->block] : NULL;
    return block                   ? (double)block->bytes / (double)block->elements
           : q->kind == QUANT_INT8 ? 1
           : q->kind == QUANT_INT4 ? quant_bits(*q) / 8
                                   : 2;
}

static SimFigures step_figures(const Args *args, const SimAsk *ask, const SimAnswer *a)
{
    const double wide = weight_bytes(ask->model);
    return (SimFigures){.model = ask_name(args),
                        .task = ask_tasks[ask->task],
                        .chip = ask->chip,
                        .chips = (double)a->devices,
                        .seconds = a->timed.seconds,
                        .tokens = (double)(ask->batch * (ask->task == SIM_DECODE ? 1 : ask->seq)),
                        .model_flops = a->model_flops,
                        .weights = ask->task == SIM_DECODE
                                       ? wide * (double)model_size(ask->model).matmul_params
                                       : 0,
                        .exposed = a->timed.exposed,
                        .cost = a->timed.cost};
}

/* checked: what the chip's compiler says, or NULL. */
static int print_step(const Args *args, const SimAsk *ask, const SimAnswer *a,
                      const CheckedStep *checked, cvn_err *err)
{
    const Value *v = args->value;
    const Chip *chip = ask->chip;
    const SimFigures f = step_figures(args, ask, a);
    bool fits = a->memory.total <= chip->memory;
    if (v[JSON].flag) {
        json_t *o = figures_json(&f);
        o = json_with(o, "mesh", json_string(ask->mesh));
        o = json_with(o, "layout", json_string(ask->layout));
        o = json_with(o, "batch", json_integer(ask->batch));
        o = json_with(o, "device_memory", device_memory_json(&a->memory));
        if (a->n_stages > 1)
            o = json_with(o, "bubble", json_real(a->bubble));
        o = json_with(o, "fits", json_boolean(fits));
        if (checked)
            o = json_with(o, "check",
                          json_pack("{s:f,s:f,s:f,s:f}", "peak", checked->peak, "cycles",
                                    checked->cycles, "seconds", checked->seconds, "compile_seconds",
                                    checked->took));
        return print_json(o, err);
    }
    printf("%s, %s of %" PRId64 " row%s", f.model, f.task, ask->batch, ask->batch == 1 ? "" : "s");
    if (ask->task != SIM_DECODE)
        printf(" of %" PRId64 " tokens", ask->seq);
    printf(", on %.0f x %s, mesh %s, layout %s\n\n", f.chips, chip->name,
           ask->mesh[0] ? ask->mesh : "of one device", ask->layout);
    print_figures(&f);
    if (a->n_stages > 1)
        printf("  %-36s %12.1f %% (%d stages, %d micro-batches)\n", "pipeline bubble",
               100 * a->bubble, a->n_stages, a->micro);
    printf("  %-36s %12s of %s%s\n", "memory of a chip", bytes_text(a->memory.total).text,
           bytes_text(chip->memory).text, fits ? "" : ": does not fit");
    if (!checked)
        return EXIT_OK;
    printf("  %-36s %12s: %+.1f %%\n", "peak memory, according to its compiler",
           bytes_text(checked->peak).text, 100 * (a->memory.total / checked->peak - 1));
    if (checked->cycles > 0)
        printf("  %-36s %12.0f\n", "cycles, according to its compiler", checked->cycles);
    if (checked->seconds > 0)
        printf("  %-36s %12.3f ms: %+.1f %%\n", "  which take", 1e3 * checked->seconds,
               100 * (a->timed.seconds / checked->seconds - 1));
    printf("  %-36s %12.1f s\n", "  compiled in", checked->took);
    return EXIT_OK;
}

/* What of the question serving is simulated by: the model, its numbers, the chips of a replica. */
static void replica_of(const SimAsk *ask, const Mesh *mesh, SimServing *serving)
{
    const ModelShape shape = model_shape(ask->model);
    serving->shape = sim_shape_of(&shape);
    const double wide = weight_bytes(ask->model);
    serving->type = ask->int8_inputs ? CHIP_INT8
                    : wide > 1.5     ? CHIP_BF16
                    : wide > 0.75    ? CHIP_WEIGHT8
                                     : CHIP_WEIGHT4;
    serving->narrow = ask->kv_int8;
    serving->tp = 1;
    serving->pp = 1;
    for (int i = 0; i < mesh->n_axes; i++)
        if (strcmp(mesh->axis[i].name, "model") == 0)
            serving->tp = (int)mesh->axis[i].size;
}

/* As `draw` does: the page, or one picture. */
static int write_report(const char *path, void (*draw)(StrBuf *, const SimReport *),
                        const Args *args, const SimAsk *ask, const SimAnswer *a, cvn_err *err)
{
    CostModel chip;
    SCOPED(strbuf_free) StrBuf page = {0};
    const SimFigures figures = step_figures(args, ask, a);
    SimReport r = {.figures = &figures,
                   .task = ask->task,
                   .mesh = ask->mesh,
                   .layout = ask->layout,
                   .memory = a->memory.total,
                   .rows = (double)ask->batch,
                   .seq = (double)ask->seq,
                   .context = (double)ask->context,
                   .timed = &a->timed,
                   .layers = (double)model_layers(ask->model)};
    cost_model(&chip, ask->chip);
    r.serving = (SimServing){.chip = &chip, .engine = *sim_engine_find("caravan")};
    replica_of(ask, &a->rt.mesh, &r.serving);
    draw(&page, &r);
    return page.failed ? err_set(err, CVN_EMEM, "no memory for the page")
                       : file_write(path, page.text, page.length, err);
}

/* Steps are measured, on the threads that a device has here. */
static int on_this(SimAsk *ask, const StepClock *clock, int *devices, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    Mesh mesh;
    TRY(arena_begin(&arena, err));
    TRY(mesh_parse(&mesh, ask->mesh, &arena, err));
    *devices = mesh.n_devices;
    ask->threads = threads_available() / *devices;
    if (ask->threads < 1)
        return err_set(err, CVN_EINVAL,
                       "--mesh: %d devices cannot be measured on this machine's %d threads; use at "
                       "most as many",
                       *devices, threads_available());
    ask->clock = clock;
    return CVN_OK;
}

static int simulate_step(const Args *args, const Chip *chip, cvn_err *err)
{
    const Value *v = args->value;
    SimAsk ask;
    SCOPED(sim_answer_free) SimAnswer answer = {0};
    CheckedStep checked;
    SCOPED(io_close_model) IoModel model = {0};
    int devices = 1;
    const StepClock clock = {this_clock, &devices};
    TRY(ask_of(args, v[CONTEXT].integer, &model, &ask, err));
    ask.chip = chip;
    ask.spans = v[TRACE].given || v[HTML].given || v[SVG].given;
    if (strcmp(v[CHIP].text, THIS) == 0)
        TRY(on_this(&ask, &clock, &devices, err));
    TRY(sim_plan(&ask, &answer, err));
    if (answer.n_stages > 1 && (ask.spans || v[CHECK].given))
        return err_set(err, CVN_EUNSUPPORTED,
                       "--trace, --html, --svg and --check do not support stages; leave their axis "
                       "out of --mesh");
    if (v[TRACE].given)
        TRY(write_trace(v[TRACE].text, &answer.timed, err));
    if (v[HTML].given)
        TRY(write_report(v[HTML].text, report_html, args, &ask, &answer, err));
    if (v[SVG].given)
        TRY(write_report(v[SVG].text, report_svg, args, &ask, &answer, err));
    if (v[CHECK].given)
        TRY(check_compiled(&ask, v[CHECK].text, answer.devices, &checked, err));
    return print_step(args, &ask, &answer, v[CHECK].given ? &checked : NULL, err);
}

/* ---- meshes ---- */

/* Each way, and what it loses most to. */
static void print_ways(const SearchFound *found, const SearchAsk *ask)
{
    const Chip *chip = ask->ask.chip;
    bool trains = ask->ask.task == SIM_TRAIN;
    printf("%-22s %-10s %-9s %7s %12s %13s %10s  %s\n", "mesh", "layout", trains ? "remat" : "",
           "batch", "ms", "tokens/s/chip", "memory", "time spent on");
    for (int i = 0; i < found->n; i++) {
        const SearchWay *w = &found->way[i];
        printf("%-22s %-10s %-9s %7" PRId64 " %12.2f %13.1f %10s ", w->mesh[0] ? w->mesh : "one",
               w->layout, trains ? remat_policy_names[w->remat] : "", w->batch, 1e3 * w->seconds,
               w->tokens / w->seconds / (double)w->chips, bytes_text(w->memory).text);
        for (int b = 0; b < COST_BOUNDS; b++)
            printf(" %s %.0f %%", cost_bound_names[b], 100 * w->cost.spent[b] / w->seconds);
        printf("\n");
    }
    printf("\n%d ways, of which %d fit in %s; found in %.1f s\n", found->tried, found->fit,
           bytes_text(chip->memory).text, found->seconds);
}

static int search_meshes(const Args *args, const Chip *chip, cvn_err *err)
{
    const Value *v = args->value;
    SCOPED(io_close_model) IoModel model = {0};
    SearchFound found;
    char *end = NULL;
    SearchAsk ask = {.goal = (SearchGoal)v[GOAL].integer,
                     .layout = strcmp(v[LAYOUT].text, "auto") == 0 ? NULL : v[LAYOUT].text,
                     .remat = !v[REMAT].given,
                     .batch = !v[BATCH].given && !v[TRAIN].flag};
    ask.chips = strcmp(v[CHIPS].text, "min") == 0 ? 0 : strtoll(v[CHIPS].text, &end, 10);
    if (end && (*end || ask.chips < 1 || ask.chips > 1 << 20))
        return err_set(err, CVN_EINVAL, "--chips is \"%s\"; give a number from 1 to %d, or min",
                       v[CHIPS].text, 1 << 20);
    TRY(ask_of(args, v[CONTEXT].integer, &model, &ask.ask, err));
    ask.ask.chip = chip;
    TRY(sim_search(&ask, &found, err));
    if (!v[JSON].flag) {
        printf("%s, %s, on %s, for %s\n\n", ask_name(args), ask_tasks[ask.ask.task], chip->name,
               search_goal_names[ask.goal]);
        print_ways(&found, &ask);
        return EXIT_OK;
    }
    json_t *list = json_array();
    for (int i = 0; i < found.n; i++) {
        const SearchWay *w = &found.way[i];
        json_t *way =
            json_pack("{s:s,s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f,s:o}", "mesh", w->mesh, "layout",
                      w->layout, "remat", remat_policy_names[w->remat], "batch",
                      (json_int_t)w->batch, "chips", (json_int_t)w->chips, "seconds", w->seconds,
                      "tokens_per_second", w->tokens / w->seconds, "memory", w->memory,
                      "exposed_seconds", w->exposed, "shares", shares_json(&w->cost, w->seconds));
        list = json_append(list, way);
    }
    return print_json(json_pack("{s:i,s:i,s:f,s:o}", "tried", found.tried, "fit", found.fit,
                                "search_seconds", found.seconds, "best", list),
                      err);
}

/* ---- serving ---- */

static int serve_ask(const Args *args, SimServing *serving, double *replicas, cvn_err *err)
{
    const Value *v = args->value;
    SimAsk ask;
    Mesh mesh;
    SCOPED(io_close_model) IoModel model = {0};
    SCOPED(arena_free) Arena arena = {0};
    if (arena_begin(&arena, err) || ask_of(args, v[CONTEXT].integer, &model, &ask, err) ||
        mesh_parse(&mesh, ask.mesh, &arena, err))
        return err->code;
    replica_of(&ask, &mesh, serving);
    if (serving->type == CHIP_BF16)
        serving->type = (ChipType)v[PRECISION].integer;
    serving->engine = *sim_engine_find(v[ENGINE].text);
    *replicas = (double)mesh.n_devices / serving->tp;
    serving->in_flight = (int64_t)((double)ask.batch / *replicas);
    serving->input = v[INPUT].integer;
    serving->output = v[OUTPUT].integer;
    serving->rate = v[RATE].real / *replicas;
    if (serving->in_flight < 1)
        return err_set(err, CVN_EINVAL,
                       "--batch %" PRId64 " is less than a request for each of %g replicas",
                       ask.batch, *replicas);
    return CVN_OK;
}

static int simulate_serving(const Args *args, const Chip *chip, cvn_err *err)
{
    const Value *v = args->value;
    CostModel model;
    SimServing ask = {.chip = &model};
    SimServed served;
    double replicas = 1;
    cost_model(&model, chip);
    TRY(serve_ask(args, &ask, &replicas, err));
    TRY(sim_serve(&ask, &served, err));
    const SimFigures f = {.model = ask_name(args),
                          .task = "serving",
                          .chip = chip,
                          .chips = replicas * ask.tp,
                          .seconds = served.seconds,
                          .tokens = served.tokens * served.seconds * replicas,
                          .model_flops = served.cost.flops * replicas * ask.tp,
                          .exposed = served.cost.spent[COST_LINK],
                          .cost = served.cost};
    if (v[JSON].flag) {
        json_t *o = figures_json(&f);
        o = json_with(o, "ttft_ms", json_real(1e3 * served.ttft));
        o = json_with(o, "tpot_ms", json_real(1e3 * served.tpot));
        return print_json(json_with(o, "requests_per_second",
                                    json_real(served.tokens * replicas / (double)ask.output)),
                          err);
    }
    printf("%s, %s %g, input %" PRId64 ", output %" PRId64
           " tokens, on %.0f x %s, served by %s\n\n",
           f.model, ask.rate > 0 ? "requests per second" : "concurrency",
           ask.rate > 0 ? v[RATE].real : (double)ask.in_flight * replicas, ask.input, ask.output,
           f.chips, chip->name, ask.engine.name);
    printf("  %-36s %12.2f ms\n  %-36s %12.3f ms\n", "time to first token (TTFT)",
           1e3 * served.ttft, "time per output token (TPOT)", 1e3 * served.tpot);
    print_figures(&f);
    return EXIT_OK;
}

/* Dollars, or those that three years are committed for. */
static int price_as(const char *text, Chip *chip, cvn_err *err)
{
    char *end;
    const double dollars = strtod(text, &end);
    if (strcmp(text, COMMITTED) == 0) {
        if (chip->committed <= 0)
            return err_set(err, CVN_EINVAL,
                           "no price of %s for three years is known; give --price in dollars per "
                           "chip and hour",
                           chip->name);
        chip->price = chip->committed;
        chip->priced = chip->commitment;
        return CVN_OK;
    }
    if (end == text || *end || !(dollars >= 1e-6 && dollars <= 1e6))
        return err_set(err, CVN_EINVAL,
                       "--price is \"%s\"; give dollars per chip and hour, or " COMMITTED, text);
    chip->price = dollars;
    chip->priced = "--price";
    return CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    json_auto_t *held = NULL;
    Chip chip;
    if (v[ROWS].given)
        return answer_rows(v[ROWS].text, v[JSON].flag, err);
    bool here = strcmp(v[CHIP].text, THIS) == 0, finds = strcmp(v[MESH].text, "auto") == 0;
    if (here && (v[SERVE].flag || finds)) {
        err_set(
            err, CVN_EINVAL,
            "--chip this measures steps; --serve and --mesh auto need a chip's name or FILE.json");
        return EXIT_USAGE;
    }
    TRY(here ? this_chip(&chip, err) : chip_open(v[CHIP].text, &chip, &held, err));
    if (v[PRICE].given)
        TRY(price_as(v[PRICE].text, &chip, err));
    return (v[SERVE].flag ? simulate_serving
            : finds       ? search_meshes
                          : simulate_step)(args, &chip, err);
}

const Command command_simulate = {
    "simulate",
    .about = "predict step times and serving latency on TPUs and GPUs",
    .usage = "(MODEL | --preset NAME | --rows FILE.csv) [options]",
    .examples =
        "simulate --preset llama3.1-8b --chip v5e --mesh model=4 --layout tp\tdecoding\n"
        "simulate --preset llama2-70b --chip v5p --mesh data=64 --train\ta training step\n"
        "simulate --preset llama3.1-8b --serve --engine vllm --batch 64\tlatencies\n"
        "simulate -p llama2-70b --chip v5e --chips 16 --mesh auto\tsearch for the best mesh\n"
        "simulate --rows table.csv\tcompare the rows of a table with measurements\n",
    .notes = "Steps are those of the programs that plan builds, with times from a roofline model. "
             "Serving runs a scheduler over simulated steps; a replica spans the mesh axis model.",
    .options = options,
    .run = run,
};
