#include "sim/published.h"

#include <math.h>
#include <string.h>

/* How some tables were measured, where their scripts say it: what differs from an engine's own defaults. */
typedef struct Protocol {
    double spread; /* of lengths */
    double budget; /* tokens of a step; 0: the engine's */
    int wait; /* batch_wait_timeout_iters, of prompts as long as their answers on fewer than 8 chips */
    bool narrow;     /* keys and values in fp8 */
    int64_t prompts; /* different ones */
    double fused;    /* operations of a layer fused with sums; < 0: the engine's */
    bool ahead;      /* besides the engine's own */
} Protocol;

/* Rows without a backend's version are InferenceMAX's (github.com/InferenceMAX/InferenceMAX, benchmarks/, October 2025): ten
   requests for each in flight, lengths drawn from [0.8, 1] of those named (random-range-ratio), with TensorRT-LLM max_num_tokens
   16384, an fp8 cache and, for 1024 and 1024 tokens on fewer than 8 GPUs, a wait of 20 steps; with vLLM --async-scheduling, and on
   Blackwell an fp8 cache and norms fused with sums. Others are taken to have lengths as named. A checkpoint that NVIDIA quantized to fp8 or fp4
   has an fp8 cache in TensorRT-LLM (hf_quant_config.json: kv_cache_quant_algo FP8). */
static Protocol protocol_of(const SimServing *a, bool versioned)
{
    bool blackwell = a->chip->chip.fp4 > 0, quantized = a->type != CHIP_BF16;
    bool trtllm = strcmp(a->engine.name, "trtllm") == 0,
         sglang = strcmp(a->engine.name, "sglang") == 0;
    if (versioned)
        return (Protocol){.spread = sglang && a->input % 1000 ? 0 : 0.05,
                          .narrow = trtllm && quantized,
                          .prompts = !sglang && a->input % 1000 == 0 ? 100 : 0,
                          .fused = -1};
    if (trtllm)
        return (Protocol){.spread = 0.2,
                          .budget = 16384,
                          .wait = a->input == 1024 && a->output == 1024 && a->tp < 8 ? 20 : 0,
                          .narrow = true,
                          .fused = -1};
    return (Protocol){
        .spread = 0.2, .narrow = blackwell, .fused = blackwell ? 2 : -1, .ahead = true};
}

void published_protocol(SimServing *ask, bool versioned)
{
    Protocol p = protocol_of(ask, versioned);
    ask->narrow = p.narrow;
    ask->spread = p.spread;
    ask->wait = p.wait;
    ask->prompts = p.prompts;
    ask->engine.ahead |= p.ahead;
    if (p.budget > 0)
        ask->engine.budget = p.budget;
    if (p.fused >= 0)
        ask->engine.fused = p.fused;
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
