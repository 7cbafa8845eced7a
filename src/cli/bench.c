/* caravan bench: how fast a model runs here, and how near to what the machine can do. */
#include "serve/bench.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/json_file.h"
#include "base/num.h"
#include "cli/bench_train.h"
#include "cli/common.h"
#include "cli/figures.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "io/stats.h"
#include "model/presets.h"
#include "serve/synthetic.h"
#include "sim/svg_chart.h"
#include "train/config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    PRESET,
    MODEL,
    PREFILL,
    DECODE,
    BATCH,
    CONTEXT,
    REPEATS,
    TABLE,
    BATCHES,
    CONTEXTS,
    EACH_BUCKET,
    LADDER,
    SWEEP,
    PROMPTS,
    SVG,
    TRAIN,
    SEQ,
    OPTIMIZER,
    REMAT,
    DTYPE,
    QUANTIZE,
    KV_CACHE,
    ADAPTER,
    ACTIVATIONS,
    NUMERICS,
    THREADS,
    DEVICE,
    MESH,
    LAYOUT,
    OVERLAP,
    LENGTHS,
    TRAFFIC,
    JSON,
    CSV,
    PROFILE,
    TEXT_ONLY
};

static const Option *const options[] = {
    OPTION(PRESET, "preset", .letter = 'p', .kind = ARG_CHOICE, .required = true, .group = 1,
           .value = "NAME", .choice = choice_of_preset, .brief = true, .or_shape = true,
           .help = "preset with random weights: " PRESETS_SHOWN),
    OPTION(MODEL, "model", .letter = 'm', .kind = ARG_INPUT, .model = true, .required = true,
           .group = 1, .value = "DIR", .help = "a model on disk instead of a preset"),
    OPTION(PREFILL, "prefill", .kind = ARG_INT, .high = 1 << 24, .value = "N", .fallback = "512",
           .help = "prompt tokens to prefill, 0: none"),
    OPTION(DECODE, "decode", .kind = ARG_INT, .high = 1 << 20, .value = "N", .fallback = "64",
           .help = "decode steps, 0: none"),
    OPTION(BATCH, "batch", .letter = 'b', .kind = ARG_INT, .low = 1, .high = 4096, .value = "B",
           .fallback = "1", .help = "batch size of decoding"),
    OPTION(CONTEXT, "context", .letter = 'c', .kind = ARG_INT, .low = 1, .high = 1 << 24,
           .value = "N", .fallback = "128", .help = "filled KV cache positions before decoding"),
    OPTION(REPEATS, "repeats", .kind = ARG_INT, .low = 1, .high = 1000, .value = "N",
           .fallback = "3", .help = "number of prefills; the median is reported"),
    OPTION(TABLE, "table", .kind = ARG_FLAG,
           .help = "also decode every batch size at every context"),
    OPTION(BATCHES, "batches", .kind = ARG_TOKENS, .low = 1, .high = 4096, .needs = "table",
           .value = "B,B,…", .fallback = "1,2,4,8,16,32,64,128", .help = "of --table"),
    OPTION(CONTEXTS, "contexts", .kind = ARG_TOKENS, .low = 1, .high = 1 << 24, .needs = "table",
           .value = "N,N,…", .fallback = "512,1024,2048,4096,8192", .help = "of --table"),
    OPTION(EACH_BUCKET, "each-bucket", .kind = ARG_FLAG,
           .help = "also prefill one chunk of each size"),
    OPTION(LADDER, "ladder", .kind = ARG_FLAG,
           .help = "compare eager, fused attention, compiled, and both"),
    OPTION(SWEEP, "sweep", .kind = ARG_FLAG,
           .help = "prefill prompts of many lengths, chunked and token by token"),
    OPTION(PROMPTS, "prompts", .kind = ARG_TOKENS, .low = 1, .high = 1 << 24, .needs = "sweep",
           .value = "N,N,…", .fallback = "10,100,250,500,750,1000,1250,1500",
           .help = "prompt lengths of --sweep, ascending"),
    OPTION(SVG, "svg", .kind = ARG_OUTPUT, .tried = true, .needs = "sweep", .value = "FILE",
           .help = "plot --sweep"),
    OPTION(TRAIN, "train", .kind = ARG_FLAG, .help = "measure a training step instead"),
    OPTION(SEQ, "seq", .kind = ARG_INT, .needs = "train", .low = 1, .high = 1 << 24, .value = "N",
           .help = "sequence length of training [1024, or the context]"),
    OPTION(OPTIMIZER, "optimizer", .kind = ARG_CHOICE, .needs = "train", .value = "NAME",
           .choice = train_optimizer_name, .fallback = "adamw", .help = "optimizer of training"),
    OPTION(REMAT, "remat", .kind = ARG_CHOICE, .needs = "train", .value = "NAME",
           .choice = choice_of_remat, .fallback = "none", .help = "activation recomputation"),
    [DTYPE] = SHARED(DTYPE),
    [QUANTIZE] = SHARED(QUANTIZE),
    [KV_CACHE] = SHARED(KV_CACHE),
    [ADAPTER] = SHARED(ADAPTER),
    [ACTIVATIONS] = SHARED(ACTIVATIONS),
    [NUMERICS] = SHARED(NUMERICS),
    [THREADS] = SHARED(THREADS),
    [DEVICE] = SHARED(DEVICE),
    [MESH] = SHARED(MESH),
    [LAYOUT] = SHARED(LAYOUT),
    [OVERLAP] = SHARED(OVERLAP),
    [LENGTHS] = SHARED(BUCKETS),
    [TRAFFIC] = SHARED(TRAFFIC),
    [JSON] = SHARED(JSON),
    OPTION(CSV, "csv", .kind = ARG_FLAG, .help = "print CSV, a row per measurement"),
    [PROFILE] = SHARED(PROFILE),
    [TEXT_ONLY] = SHARED(TEXT_ONLY),
    NULL,
};

/* One measurement. */
typedef struct Row {
    /* What it belongs to: "prefill", "decode", "table", "buckets", "ladder", "sweep". */
    const char *part;
    const BenchMode *mode;  /* how it was run */
    bool prefill;           /* else decode */
    int64_t batch, context; /* rows, positions filled before */
    int64_t tokens;         /* of a prefill; steps of decode at most */
    bool fits;              /* else there was no memory for it and the figure is nothing */
    BenchFigure figure;
    CommTable communication; /* of a prefill, or of a step of decoding, per device */
} Row;

/* Everything that one call measures. */
typedef struct Bench {
    const Value *value; /* the options */
    const char *name;   /* of the model */
    cvn_model *model;
    cvn_engine_options steps; /* the defaults, with chunk sizes and when EOS is looked for */
    Ceilings ceilings;        /* of all processes together */
    Cluster *cluster;         /* other processes, or NULL; the program's */
    int threads;              /* of this process, on which the ceilings were measured */
    int devices;              /* of the mesh; 1 without */
    uint64_t peak_bytes;      /* weights and activations of the widest engine */
    DeviceMemory memory;      /* of a device of the first engine */
    Row *row;                 /* [n_rows], owned */
    size_t n_rows;
} Bench;

enum { SWEEP_WAYS = 2 };
static const BenchMode sweep_ways[SWEEP_WAYS] = {{"buckets", false, false},
                                                 {"token by token", false, false}};

/* Measured once, and printed as itself; rows of other parts are lists. */
static bool is_single(const Row *row)
{
    return strcmp(row->part, "prefill") == 0 || strcmp(row->part, "decode") == 0;
}

/* Ceilings first, on the threads that will run the model; then the model, if it is to be made. */
static int open_bench(Bench *b, cvn_err *err)
{
    const Value *v = b->value;
    int threads = (int)v[THREADS].integer; /* of all devices here, 0: as many as there are cores */
    b->devices = 1;
    TRY(run_join(v[MESH].given, &b->cluster, err));
    TRY(check_layout(v[MESH].text, layout_said(v[MESH].text, &v[LAYOUT], false), err));
    if (v[MESH].given) {
        SCOPED(arena_free) Arena arena = {0};
        Mesh mesh;
        TRY(arena_begin(&arena, err));
        TRY(mesh_parse(&mesh, v[MESH].text, &arena, err));
        b->devices = (int)mesh.n_devices;
        threads *= (int)num_max(b->devices / cluster_size(b->cluster), 1);
    }
    Runtime rt;
    const RuntimeOptions alone = {.devices = {.threads = threads, .device = v[DEVICE].text}};
    b->name = v[PRESET].given ? v[PRESET].text : v[MODEL].text;
    live_line("measuring the machine");
    int code = runtime_open(&rt, &alone, err);
    b->threads = rt.info.threads;
    if (!code)
        code = runtime_ceilings(&rt, &b->ceilings, err);
    runtime_close(&rt);
    TRY(code);
    /* Each process has measured itself while the others did; all count as the first one does. */
    TRY(cluster_share(b->cluster, &b->ceilings, sizeof b->ceilings, err));
    ceilings_scale(&b->ceilings, cluster_size(b->cluster));
    live_line("loading %s", b->name);
    cvn_dtype dtype = dtype_of(&v[DTYPE]);
    if (v[PRESET].given || is_shape(b->name)) { /* whose weights are made up by whoever runs it */
        SCOPED(arena_free) Arena arena = {0};
        Model *model;
        QuantScheme scheme;
        TRY(arena_begin(&arena, err));
        TRY(preset_model(b->name, &model, &arena, err));
        TRY(quant_parse(v[QUANTIZE].text, &scheme, err));
        model_set_quant(model, scheme);
        dtype = dtype == CVN_DTYPE_COUNT ? CVN_BF16 : dtype;
        return model_synthetic(model, dtype, &b->model, err);
    }
    cvn_model_options open = {.dtype = dtype,
                              .no_tokenizer = true,
                              .quantize = v[QUANTIZE].text,
                              .text_only = v[TEXT_ONLY].flag};
    return cvn_model_open(v[MODEL].text, &open, &b->model, err);
}

/* ---- measuring ---- */

static int new_engine(Bench *b, const BenchMode *mode, int64_t rows, int64_t context,
                      cvn_engine **engine, cvn_err *err)
{
    cvn_engine_options wanted = b->steps;
    wanted.slots = (int)rows;
    wanted.threads = b->value[MESH].given ? (int)b->value[THREADS].integer : b->threads;
    wanted.device = b->value[DEVICE].text;
    wanted.mesh = b->value[MESH].text;
    wanted.layout = layout_said(wanted.mesh, &b->value[LAYOUT], false);
    wanted.blocking = b->value[OVERLAP].integer == 1;
    wanted.cluster = b->cluster;
    wanted.context = context;
    wanted.kv_cache = b->value[KV_CACHE].text;
    wanted.adapter = &b->value[ADAPTER].text;
    wanted.n_adapters = b->value[ADAPTER].given;
    wanted.activations = b->value[ACTIVATIONS].text;
    wanted.numerics = b->value[NUMERICS].text;
    if (mode == &sweep_ways[1])
        wanted.bucket[0] = wanted.n_buckets = 1;
    wanted.op_by_op = mode->op_by_op;
    wanted.split_attention = mode->split_attention;
    wanted.profile_path = b->value[PROFILE].text;
    live_line("%s: compiling", mode->name);
    TRY(cvn_engine_new(b->model, &wanted, engine, err));
    cvn_engine_stats stats = cvn_engine_get_stats(*engine);
    uint64_t bytes = stats.weight_bytes + stats.arena_bytes;
    b->peak_bytes = bytes > b->peak_bytes ? bytes : b->peak_bytes;
    if (b->memory.total == 0)
        runtime_memory(&(*engine)->rt, &b->memory);
    return CVN_OK;
}

/* What is measured, for people. */
typedef struct RowText {
    char text[80];
} RowText;

static RowText row_text(const Row *row)
{
    RowText t;
    if (row->prefill)
        snprintf(t.text, sizeof t.text, "prefill %lld", (long long)row->tokens);
    else
        snprintf(t.text, sizeof t.text, "decode, batch %lld, context %lld", (long long)row->batch,
                 (long long)row->context);
    return t;
}

/* Fills in a row's figure and keeps it. */
static int add_row(Bench *b, cvn_engine *engine, Row row, cvn_err *err)
{
    /* A measurement of a table takes this long, in seconds, or a few steps. */
    static const double briefly = 2, as_asked = 1e9;
    Row *more = heap_more(b->row, b->n_rows, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for %zu measurements", b->n_rows + 1);
    b->row = more;
    row.mode = row.mode ? row.mode : &bench_modes[BENCH_MODES - 1];
    int code = CVN_OK, repeats = (int)b->value[REPEATS].integer;
    int64_t runs = engine->rt.runs;
    CommTable before;
    engine->rt.backend->communication(engine->rt.devices, &before);
    live_line("%s: %s", row.mode->name, row_text(&row).text);
    if (row.fits && row.prefill)
        code = bench_prefill(engine, row.tokens, repeats, &row.figure, err);
    else if (row.fits)
        code = bench_decode(engine, row.context, row.tokens,
                            row.part[0] == 't' || row.part[0] == 's' ? briefly : as_asked,
                            &row.figure, err);
    TRY(code);
    /* A prefill was run once more than was measured; decoding runs once a step. */
    double n = row.prefill ? repeats + 1 : (double)(engine->rt.runs - runs);
    engine->rt.backend->communication(engine->rt.devices, &row.communication);
    comm_table_since(&row.communication, &before);
    comm_table_divide(&row.communication, n > 0 ? n : 1);
    b->row[b->n_rows++] = row;
    return CVN_OK;
}

static Row prompt_row(const char *part, const BenchMode *mode, int64_t tokens)
{
    return (Row){part, mode, .prefill = true, .batch = 1, .tokens = tokens, .fits = true};
}

/* The prefill and the decode that were asked for, run in one way. */
static int measure_both(Bench *b, const char *prefill_part, const char *decode_part,
                        const BenchMode *mode, cvn_err *err)
{
    const Value *v = b->value;
    int64_t most = cvn_model_context(b->model);
    Row prefill = prompt_row(prefill_part, mode, v[PREFILL].integer);
    Row decode = {.part = decode_part,
                  .mode = mode,
                  .batch = v[BATCH].integer,
                  .context = v[CONTEXT].integer,
                  .tokens = v[DECODE].integer,
                  .fits = true};
    if (!v[PREFILL].given && prefill.tokens > most)
        prefill.tokens = most;
    int64_t needed = decode.tokens ? decode.context + decode.tokens + 1 : 1;
    if (!prefill.tokens && !decode.tokens)
        return CVN_OK;
    cvn_engine *engine = NULL;
    int code = new_engine(b, mode, decode.batch, prefill.tokens > needed ? prefill.tokens : needed,
                          &engine, err);
    if (!code && prefill.tokens)
        code = add_row(b, engine, prefill, err);
    if (!code && decode.tokens)
        code = add_row(b, engine, decode, err);
    int closed = cvn_engine_free(engine, code ? NULL : err);
    return code ? code : closed;
}

static int measure_buckets(Bench *b, cvn_err *err)
{
    cvn_engine *engine = NULL;
    int64_t most = cvn_model_context(b->model);
    int code = new_engine(b, &bench_modes[BENCH_MODES - 1], 1, most, &engine, err);
    for (int i = 0; !code && i < engine->options.n_buckets; i++) {
        const Row row = prompt_row("buckets", NULL, engine->options.bucket[i]);
        if (row.tokens <= most)
            code = add_row(b, engine, row, err);
    }
    int closed = cvn_engine_free(engine, code ? NULL : err);
    return code ? code : closed;
}

/* The most tokens that an option of the table, or of the sweep, lists and the model has room for, with the steps after them. */
static int find_longest(const Bench *b, int list, const char *of, int64_t *longest, cvn_err *err)
{
    const Value *v = b->value;
    int64_t steps = v[DECODE].integer, most = cvn_model_context(b->model);
    *longest = 0;
    for (size_t i = 0; i < v[list].n_ids; i++)
        if (v[list].ids[i] + steps + 1 <= most)
            *longest = num_max(*longest, v[list].ids[i]);
    if (*longest)
        return CVN_OK;
    return err_set(err, CVN_EINVAL,
                   "%s has a context of %lld, too short for the %s's %s plus --decode %lld; give "
                   "shorter ones with --%s",
                   b->name, (long long)most, of, options[list]->name, (long long)steps,
                   options[list]->name);
}

/* One engine for each batch, wide enough for all contexts that the model has. */
static int measure_table(Bench *b, cvn_err *err)
{
    const Value *v = b->value, *batches = &v[BATCHES], *contexts = &v[CONTEXTS];
    int64_t steps = v[DECODE].integer, widest;
    TRY(find_longest(b, CONTEXTS, "table", &widest, err));
    int code = CVN_OK;
    for (size_t i = 0; i < batches->n_ids && !code; i++) {
        int64_t batch = batches->ids[i];
        cvn_engine *engine = NULL;
        code =
            new_engine(b, &bench_modes[BENCH_MODES - 1], batch, widest + steps + 1, &engine, err);
        for (size_t j = 0; j < contexts->n_ids && !code; j++) {
            Row row = {
                .part = "table", .batch = batch, .context = contexts->ids[j], .tokens = steps};
            row.fits = bench_fits(engine, batch, row.context + steps);
            if (!code)
                code = cluster_share(b->cluster, &row.fits, sizeof row.fits, err);
            if (row.context <= widest && row.context >= 1)
                code = add_row(b, engine, row, err);
        }
        int closed = cvn_engine_free(engine, code ? NULL : err);
        code = code ? code : closed;
    }
    return code;
}

/* Each length that there is room for, prompt and all that comes after it, by each of the two ways. */
static int measure_sweep(Bench *b, cvn_err *err)
{
    const Value *lengths = &b->value[PROMPTS];
    int64_t steps = b->value[DECODE].integer, longest;
    TRY(find_longest(b, PROMPTS, "sweep", &longest, err));
    int code = CVN_OK;
    for (int w = 0; w < SWEEP_WAYS && !code; w++) {
        cvn_engine *engine = NULL;
        code = new_engine(b, &sweep_ways[w], 1, longest + steps + 1, &engine, err);
        for (size_t i = 0; i < lengths->n_ids && !code; i++) {
            Row row = prompt_row("sweep", &sweep_ways[w], lengths->ids[i]);
            if (row.tokens > longest)
                continue;
            code = add_row(b, engine, row, err);
            row.prefill = false;
            row.context = row.tokens;
            row.tokens = steps;
            if (!code)
                code = add_row(b, engine, row, err);
        }
        int closed = cvn_engine_free(engine, code ? NULL : err);
        code = code ? code : closed;
    }
    return code;
}

/* How long a request takes, from its prompt to the last of its tokens, by the length of the prompt; with prompts read in buckets,
   and with one graph that takes them token by token. As in figure 6 of "The Path to Achieve Ultra-Low Inference Latency With
   LLaMA 65B on PyTorch/XLA" (2023). */
static int draw_sweep(const Bench *b, cvn_err *err)
{
    char title[160];
    const char *slash = strrchr(b->name, '/'), *name = slash && slash[1] ? slash + 1 : b->name;
    SvgChart chart = {.title = title,
                      .across = "tokens of the prompt",
                      .up = "seconds",
                      .x = SVG_LINEAR,
                      .y = SVG_LINEAR,
                      .n = 2 * SWEEP_WAYS};
    SvgSeries *whole = chart.series, *prompt = whole + SWEEP_WAYS;
    if (!ranks_speaks())
        return CVN_OK;
    snprintf(title, sizeof title, "%.32s%s: latency with %" PRId64 " output tokens", name,
             strlen(name) > 32 ? "…" : "", b->value[DECODE].integer);
    for (size_t w = 0; w < SWEEP_WAYS; w++) {
        snprintf(whole[w].name, sizeof whole->name, "%s", sweep_ways[w].name);
        snprintf(prompt[w].name, sizeof prompt->name, "%s, prompt only", sweep_ways[w].name);
    }
    for (size_t i = 0; i + 1 < b->n_rows; i++) {
        const Row *read = &b->row[i], *step = &b->row[i + 1];
        if (read->part[0] != 's' || !read->prefill)
            continue;
        double tokens = (double)read->tokens,
               generate = step->figure.seconds * (double)step->tokens;
        svg_add_point(&whole[read->mode - sweep_ways], tokens, read->figure.seconds + generate);
        svg_add_point(&prompt[read->mode - sweep_ways], tokens, read->figure.seconds);
    }
    SCOPED(strbuf_free) StrBuf svg = {0};
    svg_chart(&svg, &chart);
    return svg.failed ? err_set(err, CVN_EMEM, "no memory for the picture")
                      : file_write(b->value[SVG].text, svg.text, svg.length, err);
}

static int measure(Bench *b, cvn_err *err)
{
    const Value *v = b->value;
    TRY(measure_both(b, "prefill", "decode", &bench_modes[BENCH_MODES - 1], err));
    if (v[EACH_BUCKET].flag)
        TRY(measure_buckets(b, err));
    if (v[TABLE].flag)
        TRY(measure_table(b, err));
    if (v[SWEEP].flag)
        TRY(measure_sweep(b, err));
    if (v[SVG].given)
        TRY(draw_sweep(b, err));
    for (int i = 0; v[LADDER].flag && i < BENCH_MODES; i++)
        TRY(measure_both(b, "ladder", "ladder", &bench_modes[i], err));
    return CVN_OK;
}

/* ---- printing ---- */

/* A small model is read from a cache, faster than memory: then memory's bandwidth is no ceiling. */
static bool in_cache(const Row *row)
{
    return !row->prefill && row->figure.utilization > 1;
}

static json_t *row_json(const Row *row, int devices)
{
    const BenchFigure *f = &row->figure;
    if (row->prefill)
        return json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "mode", row->mode->name, "tokens",
                         (json_int_t)row->tokens, "seconds", f->seconds, "tokens_per_second",
                         f->tokens_per_second, "tokens_per_second_per_device",
                         f->tokens_per_second / devices, "mfu", f->utilization, "matmul_peak",
                         f->peak, "spread", f->spread);
    json_t *json =
        json_pack("{s:s,s:I,s:I,s:I}", "mode", row->mode->name, "batch", (json_int_t)row->batch,
                  "context", (json_int_t)row->context, "steps", (json_int_t)row->tokens);
    if (!row->fits)
        return json_with(json, "seconds_per_token", json_null());
    json_t *figures = json_pack(
        "{s:f,s:f,s:f,s:o,s:f,s:f,s:f}", "seconds_per_token", f->seconds, "tokens_per_second",
        f->tokens_per_second, "tokens_per_second_per_device", f->tokens_per_second / devices,
        "bandwidth_utilization", in_cache(row) ? json_null() : json_real(f->utilization),
        "read_bandwidth", f->bandwidth, "overhead_seconds", f->overhead, "spread", f->spread);
    return json_merged(json, figures);
}

/* Of keys and values. */
static const char *kv_name(const Bench *b)
{
    const Value *v = &b->value[KV_CACHE];
    bool eight = v->given && strcmp(v->text, "int8") == 0;
    return eight ? v->text : cvn_dtype_name(cvn_model_dtype(b->model));
}

/* How the weights are quantized: "int8", or the types of a file that runs as it is. */
static const char *weights_text(const Bench *b, StrBuf *out)
{
    const IoModel *io = &b->model->io;
    char quant[16];
    if (model_in_blocks(io->desc))
        io_types_text(&io->tensors, out);
    else
        strbuf_puts(out, quant_text(model_quant(io->desc), quant, sizeof quant));
    return out->text ? out->text : "";
}

/* Of what enters products with weights in 8 bits. */
static const char *activations_name(const Bench *b)
{
    const Value *v = &b->value[ACTIVATIONS];
    return v->given && strcmp(v->text, "none") != 0 ? v->text
                                                    : cvn_dtype_name(cvn_model_dtype(b->model));
}

static int print_bench_json(const Bench *b, cvn_err *err)
{
    const Ceilings *c = &b->ceilings;
    json_t *ceilings =
        json_pack("{s:f,s:f,s:f,s:f}", "read_bandwidth", c->bandwidth, "matmul_f32", c->flops_f32,
                  "matmul_bf16", c->flops_bf16, "matmul_int8", c->flops_int8);
    SCOPED(strbuf_free) StrBuf quant = {0};
    json_t *all =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:I,s:o,s:o}", "model", b->name, "quantize",
                  weights_text(b, &quant), "kv_cache", kv_name(b), "activations",
                  activations_name(b), "dtype", cvn_dtype_name(cvn_model_dtype(b->model)),
                  "kernels", kernels_name(b->value[DEVICE].text), "threads", b->threads,
                  "peak_bytes", (json_int_t)b->peak_bytes, "device_memory",
                  device_memory_json(&b->memory), "ceilings", ceilings);
    for (size_t i = 0; i < b->n_rows; i++) {
        const Row *row = &b->row[i];
        if (is_single(row)) {
            all = json_with(all, row->part, row_json(row, b->devices));
            continue;
        }
        json_t *list = json_object_get(all, row->part);
        list = json_append(list ? json_incref(list) : json_array(), row_json(row, b->devices));
        all = json_with(all, row->part, list);
    }
    json_t *communication = json_array();
    for (size_t i = 0; i < b->n_rows; i++)
        if (is_single(&b->row[i]))
            communication =
                add_communication(communication, b->row[i].part, &b->row[i].communication);
    if (b->value[MESH].given)
        all = json_with(all, "communication", communication);
    else
        json_decref(communication);
    return print_json(all, err);
}

static int print_bench_csv(const Bench *b)
{
    SCOPED(strbuf_free) StrBuf quant = {0};
    const char *weights = weights_text(b, &quant);
    printf("model,dtype,quantize,kv_cache,activations,kernels,threads,read_bandwidth,matmul_peak,"
           "part,mode,phase,batch,context,"
           "tokens,seconds,spread,tokens_per_second,utilization,overhead_seconds\n");
    for (size_t i = 0; i < b->n_rows; i++) {
        const Row *row = &b->row[i];
        const BenchFigure *f = &row->figure;
        printf("\"%s\",%s,\"%s\",%s,%s,%s,%d,%.6g,%.6g,%s,%s,%s,%lld,%lld,%lld,", b->name,
               cvn_dtype_name(cvn_model_dtype(b->model)), weights, kv_name(b), activations_name(b),
               kernels_name(b->value[DEVICE].text), b->threads,
               row->prefill ? b->ceilings.bandwidth : f->bandwidth,
               row->prefill ? f->peak : b->ceilings.flops_bf16, row->part, row->mode->name,
               row->prefill ? "prefill" : "decode", (long long)row->batch, (long long)row->context,
               (long long)row->tokens);
        if (row->fits && in_cache(row))
            printf("%.9g,%.4g,%.6g,,%.4g\n", f->seconds, f->spread, f->tokens_per_second,
                   f->overhead);
        else if (row->fits)
            printf("%.9g,%.4g,%.6g,%.4g,%.4g\n", f->seconds, f->spread, f->tokens_per_second,
                   f->utilization, f->overhead);
        else
            printf(",,,,\n");
    }
    return EXIT_OK;
}

/* A token's latency is the time of the step that makes it, however many rows make one; a prompt's is shared by its tokens. */
static void print_row(const Row *row, int devices)
{
    const BenchFigure *f = &row->figure;
    RowText what = row_text(row);
    if (!row->fits) {
        printf("  %-36s does not fit in memory\n", what.text);
        return;
    }
    printf("  %-36s %10.2f ms %9.1f tokens/s ", what.text, 1e3 * f->seconds, f->tokens_per_second);
    if (devices > 1)
        printf("%9.1f tokens/s per device ", f->tokens_per_second / devices);
    printf("%9.3f ms/token %s ", 1e3 * f->seconds / (row->prefill ? (double)row->tokens : 1),
           row->prefill ? "MFU      " : "bandwidth");
    if (in_cache(row))
        printf("of a cache");
    else
        printf("%5.1f%%", 100 * f->utilization);
    printf("   spread %.0f%%", 100 * f->spread);
    if (row->prefill)
        printf("   measured peak %.0f GFLOP/s\n", f->peak / 1e9);
    else
        printf("   overhead %.0f us/step   measured reads %.1f GB/s\n", 1e6 * f->overhead,
               f->bandwidth / 1e9);
}

static int print_bench(const Bench *b)
{
    const Ceilings *c = &b->ceilings;
    SCOPED(strbuf_free) StrBuf quant = {0};
    printf("%s, %s, %s %s, KV cache %s, %d threads, %s kernels\n", b->name,
           cvn_dtype_name(cvn_model_dtype(b->model)),
           model_in_blocks(b->model->io.desc) ? "weights" : "quantized", weights_text(b, &quant),
           kv_name(b), b->threads, kernels_name(b->value[DEVICE].text));
    if (b->value[MESH].given)
        printf("  mesh %s, layout %s, %d %s\n", b->value[MESH].text,
               layout_said(b->value[MESH].text, &b->value[LAYOUT], false), cluster_size(b->cluster),
               b->cluster ? "processes" : "process");
    printf("  ceilings: reads %.1f GB/s, f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s, int8 %.0f GOP/s\n",
           c->bandwidth / 1e9, c->flops_f32 / 1e9, c->flops_bf16 / 1e9, c->flops_int8 / 1e9);
    for (size_t i = 0; i < b->n_rows; i++) {
        const Row *row = &b->row[i];
        bool modes = row->part[0] == 'l' || row->part[0] == 's';
        bool first = i == 0 || strcmp(row->part, row[-1].part) != 0 || row->mode != row[-1].mode;
        if (!is_single(row) && first)
            printf("%s%s%s\n", row->part, modes ? ": " : "", modes ? row->mode->name : "");
        print_row(row, b->devices);
    }
    for (size_t i = 0; i < b->n_rows; i++)
        if (is_single(&b->row[i]))
            print_communication(stdout,
                                b->row[i].prefill ? "communication of a prefill, per device"
                                                  : "communication of a decode step, per device",
                                &b->row[i].communication);
    return EXIT_OK;
}

static int run_train(const Value *v, cvn_err *err)
{
    static const int of_engines[] = {PREFILL, DECODE,  CONTEXT,  TABLE,    EACH_BUCKET,
                                     LADDER,  SWEEP,   QUANTIZE, KV_CACHE, ACTIVATIONS,
                                     LENGTHS, TRAFFIC, ADAPTER};
    Cluster *cluster;
    for (size_t i = 0; i < sizeof of_engines / sizeof *of_engines; i++)
        if (v[of_engines[i]].on_command_line)
            err_set(err, CVN_EINVAL, "--%s has no effect with --train; leave one of them out",
                    options[of_engines[i]]->name);
    if (!v[PRESET].given || (v[CSV].flag && v[JSON].flag))
        err_set(err, CVN_EINVAL,
                v[CSV].flag ? "--json and --csv exclude each other; give one of them"
                            : "--train needs a --preset");
    if (err->code)
        return EXIT_USAGE;
    const char *layout = layout_said(v[MESH].text, &v[LAYOUT], true);
    TRY(run_join(v[MESH].given, &cluster, err));
    TRY(check_layout(v[MESH].text, layout, err));
    cvn_dtype dtype = dtype_of(&v[DTYPE]);
    TrainBench bench = {.trainer = {.batch = v[BATCH].integer,
                                    .seq = v[SEQ].given ? v[SEQ].integer : 0,
                                    .compute = dtype == CVN_DTYPE_COUNT ? CVN_BF16 : dtype,
                                    .exact = v[NUMERICS].integer > 0,
                                    .portable = strcmp(v[NUMERICS].text, "portable") == 0,
                                    .remat = (RematPolicy)v[REMAT].integer,
                                    .threads = (int)v[THREADS].integer,
                                    .device = v[DEVICE].text,
                                    .mesh = v[MESH].text,
                                    .layout = layout,
                                    .cluster = cluster},
                        .repeats = (int)v[REPEATS].integer,
                        .profile = v[PROFILE].text};
    return bench_train(v[PRESET].text, bench, (OptimizerKind)v[OPTIMIZER].integer,
                       v[JSON].flag  ? BENCH_JSON
                       : v[CSV].flag ? BENCH_CSV
                                     : BENCH_TEXT,
                       err);
}

/* That there is something to measure. */
static int check_work(const Value *v, cvn_err *err)
{
    bool decodes = v[DECODE].integer > 0;
    if (v[JSON].flag && v[CSV].flag)
        return err_set(err, CVN_EINVAL, "--json and --csv exclude each other; give one of them");
    if ((v[TABLE].flag || v[SWEEP].flag) && !decodes)
        return err_set(err, CVN_EINVAL, "--%s measures decoding, and --decode is 0",
                       v[TABLE].flag ? "table" : "sweep");
    if (!decodes && v[PREFILL].integer == 0 && !v[EACH_BUCKET].flag)
        return err_set(err, CVN_EINVAL,
                       "--prefill and --decode are both 0: there is nothing to measure");
    return CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    if (v[TRAIN].flag)
        return run_train(v, err);
    if (check_work(v, err))
        return EXIT_USAGE;
    Bench bench = {.value = v};
    bench.steps = cvn_engine_defaults();
    run_model_buckets(&v[LENGTHS], &bench.steps);
    int code = open_bench(&bench, err);
    if (!code)
        code = run_model_traffic(&v[TRAFFIC], cvn_model_context(bench.model), &bench.steps, err);
    if (!code)
        code = measure(&bench, err);
    live_line_end();
    if (!code)
        code = v[JSON].flag  ? print_bench_json(&bench, err)
               : v[CSV].flag ? print_bench_csv(&bench)
                             : print_bench(&bench);
    cvn_model_free(bench.model);
    free(bench.row);
    return code;
}

const Command command_bench = {
    "bench",
    .about = "benchmark prefill, decoding and training",
    .usage = "(MODEL | --preset NAME) [options]",
    .examples =
        "bench --preset llama3.2-1b\tprefill 512 tokens, then 64 decode steps\n"
        "bench --preset stories110m --batch 8 --json\tbatch size 8, as JSON\n"
        "bench --preset llama3.2-1b --table --batches 1,8,32\tthree batch sizes at all contexts\n"
        "bench --preset stories110m --ladder --csv\tspeedup of compilation and fused attention\n"
        "bench -m my-llama --sweep --decode 256 --svg sweep.svg\trequest latency by prompt length\n"
        "bench --train --preset stories110m --seq 1024 --batch 2\ta training step\n"
        "bench --train --preset stories15m --mesh data=4 --layout fsdp\tthe same on 4 devices, "
        "with communication\n",
    .notes = "tokens/s is the throughput of the whole batch, ms/token the latency of one token. "
             "MFU is the model's FLOPs, without recomputation, over the measured peak of the type; "
             "bandwidth is the bytes that a step must read over the measured memory bandwidth. "
             "Overhead is a step's time outside of matrix products and attention. A mesh's table "
             "shows the bytes each device sends and the exposed communication time.",
    .options = options,
    .run = run,
};
