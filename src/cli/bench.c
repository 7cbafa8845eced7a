/* caravan bench: how fast a model runs here, and how near to what the machine can do. */
#include "serve/bench.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "cpu/registry.h"
#include "model/presets.h"
#include "serve/synthetic.h"

#include <stdlib.h>
#include <string.h>

enum { PRESET, MODEL, PREFILL, DECODE, BATCH, CONTEXT, REPEATS, DTYPE, THREADS, JSON, PROFILE };

static const char *preset_name(size_t i)
{
    return i < presets_count() ? preset_at(i).name : NULL;
}

static const Option *const options[] = {
    [PRESET] = &(const Option){"preset", .letter = 'p', .kind = ARG_CHOICE, .required = true,
                               .group = 1, .value = "NAME", .choice = preset_name,
                               .help = "shape with random weights made in memory, one of"},
    [MODEL] = &(const Option){"model", .letter = 'm', .kind = ARG_INPUT, .required = true,
                              .group = 1, .value = "DIR", .help = "a model on disk instead"},
    [PREFILL] = &(const Option){"prefill", .kind = ARG_INT, .low = 1, .high = 1 << 24, .value = "N",
                                .fallback = "512", .help = "tokens of the prompt"},
    [DECODE] = &(const Option){"decode", .kind = ARG_INT, .low = 1, .high = 1 << 20, .value = "N",
                               .fallback = "64", .help = "steps of decoding"},
    [BATCH] = &(const Option){"batch", .letter = 'b', .kind = ARG_INT, .low = 1, .high = 4096,
                              .value = "B", .fallback = "1", .help = "rows that decode together"},
    [CONTEXT] = &(const Option){"context", .letter = 'c', .kind = ARG_INT, .low = 1,
                                .high = 1 << 24, .value = "N", .fallback = "128",
                                .help = "positions that are filled before decoding"},
    [REPEATS] = &(const Option){"repeats", .kind = ARG_INT, .low = 1, .high = 1000, .value = "N",
                                .fallback = "3", .help = "prefills; the median counts"},
    [DTYPE] = &option_dtype,
    [THREADS] = &option_threads,
    [JSON] = &option_json,
    [PROFILE] = &option_profile,
    NULL,
};

/* Everything that one call measures. */
typedef struct Bench {
    cvn_model *model;
    cvn_engine *engine;
    Ceilings ceilings;
    BenchFigure prefill, decode;
    int threads;
} Bench;

/* Ceilings first, on the threads that will run the model; then the model, if it is to be made. */
static int open_bench(Bench *b, const Value *v, cvn_err *err)
{
    Pool *pool = pool_new((int)v[THREADS].integer, err);
    if (!pool)
        return CVN_EINVAL;
    b->threads = pool_threads(pool);
    cvn_dtype dtype = dtype_of(&v[DTYPE]);
    int code = ceilings_measure(pool, &b->ceilings, err);
    if (!code && v[PRESET].given) {
        LlamaConfig config;
        code = preset_config(v[PRESET].text, &config, err);
        if (!code)
            code = model_synthetic(&config, dtype == CVN_DTYPE_COUNT ? CVN_BF16 : dtype, pool,
                                   &b->model, err);
    }
    pool_free(pool);
    if (!code && !v[PRESET].given) {
        cvn_model_options open = {.dtype = dtype, .no_tokenizer = true};
        code = cvn_model_open(v[MODEL].text, &open, &b->model, err);
    }
    return code;
}

static int measure(Bench *b, const Value *v, cvn_err *err)
{
    int64_t prefill = v[PREFILL].integer, context = v[CONTEXT].integer, steps = v[DECODE].integer;
    int64_t needed = context + steps + 1;
    cvn_engine_options engine = cvn_engine_defaults();
    engine.rows = (int)v[BATCH].integer;
    engine.threads = b->threads;
    engine.context = prefill > needed ? prefill : needed;
    engine.profile_path = v[PROFILE].text;
    int code = cvn_engine_new(b->model, &engine, &b->engine, err);
    if (!code)
        code = bench_prefill(b->engine, &b->ceilings, prefill, (int)v[REPEATS].integer, &b->prefill,
                             err);
    if (!code)
        code = bench_decode(b->engine, &b->ceilings, context, steps, &b->decode, err);
    return code;
}

static int print_bench_json(const Bench *b, const Value *v)
{
    cvn_engine_stats stats = cvn_engine_get_stats(b->engine);
    json_t *ceilings =
        json_pack("{s:f,s:f,s:f}", "read_bandwidth", b->ceilings.bandwidth, "matmul_f32",
                  b->ceilings.flops_f32, "matmul_bf16", b->ceilings.flops_bf16);
    json_t *prefill =
        json_pack("{s:I,s:f,s:f,s:f,s:f}", "tokens", (json_int_t)v[PREFILL].integer, "seconds",
                  b->prefill.seconds, "tokens_per_second", b->prefill.tokens_per_second, "mfu",
                  b->prefill.utilization, "spread", b->prefill.spread);
    json_t *decode = json_pack(
        "{s:I,s:I,s:I,s:f,s:f,s:f,s:f}", "batch", (json_int_t)v[BATCH].integer, "context",
        (json_int_t)v[CONTEXT].integer, "steps", (json_int_t)v[DECODE].integer, "seconds_per_token",
        b->decode.seconds, "tokens_per_second", b->decode.tokens_per_second,
        "bandwidth_utilization", b->decode.utilization, "spread", b->decode.spread);
    return print_json(json_pack("{s:s,s:s,s:s,s:i,s:I,s:o,s:o,s:o}", "model",
                                v[PRESET].given ? v[PRESET].text : v[MODEL].text, "dtype",
                                cvn_dtype_name(cvn_model_dtype(b->model)), "kernels",
                                cpu_backend()->name, "threads", b->threads, "peak_bytes",
                                (json_int_t)(stats.weight_bytes + stats.arena_bytes), "ceilings",
                                ceilings, "prefill", prefill, "decode", decode));
}

static int print_bench(const Bench *b, const Value *v)
{
    const Ceilings *c = &b->ceilings;
    printf("%s, %s, %d threads, %s kernels\n", v[PRESET].given ? v[PRESET].text : v[MODEL].text,
           cvn_dtype_name(cvn_model_dtype(b->model)), b->threads, cpu_backend()->name);
    printf("ceilings   reads %.1f GB/s, f32 %.0f GFLOP/s, bf16 %.0f GFLOP/s\n", c->bandwidth / 1e9,
           c->flops_f32 / 1e9, c->flops_bf16 / 1e9);
    printf("prefill    %lld tokens   %8.3f s   %8.1f tokens/s   MFU %.1f%%   spread %.0f%%\n",
           (long long)v[PREFILL].integer, b->prefill.seconds, b->prefill.tokens_per_second,
           100 * b->prefill.utilization, 100 * b->prefill.spread);
    printf("decode     batch %lld, context %lld   %8.2f ms/step   %8.1f tokens/s   bandwidth "
           "%.1f%%   spread %.0f%%\n",
           (long long)v[BATCH].integer, (long long)v[CONTEXT].integer, 1e3 * b->decode.seconds,
           b->decode.tokens_per_second, 100 * b->decode.utilization, 100 * b->decode.spread);
    return EXIT_OK;
}

static int run(const Args *args)
{
    const Value *v = args->value;
    cvn_err err = {0}, closing = {0};
    Bench bench = {0};
    int code = open_bench(&bench, v, &err);
    if (!code)
        code = measure(&bench, v, &err);
    int exit_code = EXIT_OK;
    if (!code)
        exit_code = v[JSON].flag ? print_bench_json(&bench, v) : print_bench(&bench, v);
    int closed = cvn_engine_free(bench.engine, &closing);
    cvn_model_free(bench.model);
    if (code || closed)
        return fail(code ? &err : &closing);
    return exit_code;
}

const Command command_bench = {
    "bench",
    .about = "measure speed against the machine's ceilings",
    .usage = "(--preset NAME | --model DIR) [options]",
    .examples = "bench --preset llama3.2-1b\tprefill of 512 tokens, then 64 steps of decoding\n"
                "bench --preset stories110m --batch 8 --json\teight texts at once, for scripts\n",
    .notes =
        "Read bandwidth and multiply-add peaks are measured first, on the same threads. MFU is the "
        "model's operations over the peak of its type; bandwidth is the bytes that a step must "
        "read (weights once, filled KV) over the measured bandwidth.",
    .options = options,
    .run = run,
};
