#include "sim/published.h"

#include <math.h>
#include <string.h>

/* How some tables were measured, where their scripts say it: what differs from an engine's own defaults, which are left where 0. */
typedef struct Protocol {
    double spread;   /* of lengths */
    double budget;   /* tokens of a step */
    double fraction; /* of memory */
    int wait; /* batch_wait_timeout_iters, of prompts as long as their answers on fewer than 8 chips */
    bool narrow;     /* keys and values in fp8 */
    int64_t prompts; /* different ones */
    double fused;    /* operations of a layer fused with sums; < 0: the engine's */
    bool ahead;      /* besides the engine's own */
} Protocol;

/* Rows without a backend's version: InferenceMAX (github.com/InferenceMAX/InferenceMAX, benchmarks/, October 2025). Ten requests for
   each in flight, lengths drawn from [0.8, 1] of those named (random-range-ratio), with TensorRT-LLM max_num_tokens 16384, an fp8
   cache and, for 1024 and 1024 tokens on fewer than 8 GPUs, a wait of 20 steps; with vLLM --async-scheduling, and on Blackwell an
   fp8 cache and norms fused with sums. */
static Protocol of_inferencemax(const SimServing *a, bool trtllm)
{
    bool blackwell = a->chip->chip.fp4 > 0;
    if (trtllm)
        return (Protocol){.spread = 0.2,
                          .budget = 16384,
                          .wait = a->input == 1024 && a->output == 1024 && a->tp < 8 ? 20 : 0,
                          .narrow = true,
                          .fused = -1};
    return (Protocol){
        .spread = 0.2, .narrow = blackwell, .fused = blackwell ? 2 : -1, .ahead = true};
}

/* The others: AIConfigurator's evaluation (github.com/ai-dynamo/aiconfigurator, v0.2.0 to v0.7.0). Its client (eval/benchmarks/
   genai_perf_runner.py) sends ten requests for each in flight, of exactly the lengths named (standard deviations of 0); the engines
   that it sets up take as many tokens in a step as are in flight, and a prompt, and 1500 (cli/backends/trtllm.py; rule_plugin/
   vllm.rule), TensorRT-LLM 0.8 of what is left of memory (extra_engine_args.*.yaml.j2). A checkpoint that NVIDIA quantized has an
   fp8 cache in TensorRT-LLM (hf_quant_config.json: kv_cache_quant_algo FP8). From 2026 on the client is aiperf with as many different
   prompts as it has when nobody says, 100 (its template bench_run), which caches find again: taken to be so where lengths are whole thousands.
   SGLang's rows of 1024 tokens are of its own benchmark; of those of whole thousands no client is known that would
   give them: their lengths are taken to differ by 5 %. */
static Protocol of_aiconfigurator(const SimServing *a, bool trtllm)
{
    bool thousands = a->input % 1000 == 0;
    if (strcmp(a->engine.name, "sglang") == 0)
        return (Protocol){.spread = thousands ? 0.05 : 0, .fused = -1};
    return (Protocol){.budget = (double)(a->in_flight + a->input + 1500),
                      .fraction = trtllm ? 0.8 : 0,
                      .narrow = trtllm && a->type != CHIP_BF16,
                      .prompts = thousands ? 100 : 0,
                      .fused = -1};
}

void published_protocol(SimServing *ask, bool versioned)
{
    bool trtllm = strcmp(ask->engine.name, "trtllm") == 0;
    Protocol p = versioned ? of_aiconfigurator(ask, trtllm) : of_inferencemax(ask, trtllm);
    ask->narrow = p.narrow;
    ask->spread = p.spread;
    ask->wait = p.wait;
    ask->prompts = p.prompts;
    ask->engine.ahead |= p.ahead;
    if (p.budget > 0)
        ask->engine.budget = p.budget;
    if (p.fraction > 0)
        ask->engine.fraction = p.fraction;
    if (p.fused >= 0)
        ask->engine.fused = p.fused;
}

bool published_clients_known(const Csv *csv, int64_t row)
{
    return !*csv_at(csv, row, "backend_version") || !*csv_at(csv, row, "measured");
}

static int whole(const Csv *csv, int64_t row, const char *column, int64_t none, int64_t *out,
                 cvn_err *err)
{
    double x = csv_number(csv, row, column, (double)none);
    if (!(x >= 1 && x <= 1 << 24) || x != floor(x))
        return err_set(err, CVN_EUNSUPPORTED,
                       "%s is \"%s\", where a whole number from 1 on is wanted", column,
                       csv_at(csv, row, column));
    *out = (int64_t)x;
    return CVN_OK;
}

static int type_of(const Csv *csv, int64_t row, ChipType *type, cvn_err *err)
{
    static const struct {
        const char *name;
        ChipType type;
    } names[] = {{"", CHIP_BF16},         {"bf16", CHIP_BF16}, {"fp16", CHIP_BF16},
                 {"bfloat16", CHIP_BF16}, {"fp8", CHIP_FP8},   {"int8", CHIP_INT8},
                 {"fp4", CHIP_FP4},       {"nvfp4", CHIP_FP4}};
    const char *name = csv_at(csv, row, "precision");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            bool block = names[i].type == CHIP_FP8 &&
                         strcmp(csv_at(csv, row, "gemm_quant"), "fp8_block") == 0;
            *type = block ? CHIP_FP8_BLOCK : names[i].type;
            return CVN_OK;
        }
    return err_set(err, CVN_EUNSUPPORTED, "no precision \"%s\" is known", name);
}

int published_ask(const Csv *csv, int64_t row, SimServing *ask, CostModel *chip, cvn_err *err)
{
    const Chip *known = chip_find(csv_at(csv, row, "system"));
    const SimShape *shape = sim_shape_find(csv_at(csv, row, "model"));
    const char *backend = csv_at(csv, row, "backend");
    const SimEngine *engine = sim_engine_find(*backend ? backend : "vllm");
    int64_t tp, pp;
    if (!known)
        return err_set(err, CVN_EUNSUPPORTED, "there is no chip \"%s\"",
                       csv_at(csv, row, "system"));
    if (!shape)
        return err_set(err, CVN_EUNSUPPORTED, "no shape of \"%s\" is known",
                       csv_at(csv, row, "model"));
    if (!engine)
        return err_set(err, CVN_EUNSUPPORTED, "no engine \"%s\" is known", backend);
    cost_model(chip, known);
    *ask = (SimServing){.chip = chip, .shape = *shape, .engine = *engine};
    if (type_of(csv, row, &ask->type, err) || whole(csv, row, "isl", 0, &ask->input, err) ||
        whole(csv, row, "osl", 0, &ask->output, err) ||
        whole(csv, row, "batch", 0, &ask->in_flight, err) || whole(csv, row, "tp", 1, &tp, err) ||
        whole(csv, row, "pp", 1, &pp, err))
        return err->code;
    if (chip_peak(known, ask->type) <= 0)
        return err_set(err, CVN_EUNSUPPORTED, "%s has no %s", known->name,
                       chip_type_names[ask->type]);
    if (tp > 1024 || pp > 1024 || (double)tp > shape->heads || (double)pp > shape->layers)
        return err_set(err, CVN_EUNSUPPORTED,
                       "%lld x %lld chips are more than the model has heads or layers",
                       (long long)tp, (long long)pp);
    ask->tp = (int)tp;
    ask->pp = (int)pp;
    published_protocol(ask, *csv_at(csv, row, "backend_version") != '\0');
    return CVN_OK;
}
