/* Rows that say in words what was measured ("FSDP 32, TP 8"; "local 16, global 512"). */
#include "base/num.h"
#include "sim/published.h"
#include "sim/training.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Behind the words; NULL. Where a word is meant, what comes before it is no letter. */
static const char *behind(const char *text, const char *words)
{
    size_t n = strlen(words);
    for (const char *p = text; (p = strstr(p, words)); p++)
        if (p == text || !isalpha((unsigned char)p[-1]))
            return p + n;
    return NULL;
}

/* The number behind the words, with commas among its digits; or `none`. */
static double number_behind(const char *text, const char *words, double none)
{
    const char *p = behind(text, words);
    double n = 0;
    bool some = false;
    for (; p && (isdigit((unsigned char)*p) || (some && *p == ',')); p++)
        if (*p != ',') {
            n = 10 * n + (*p - '0');
            some = true;
        }
    return some ? n : none;
}

/* As many as a count may be. */
static int64_t count_of(double n)
{
    return (int64_t)fmax(1, fmin(n, 1 << 24));
}

/* The chip whose name a description begins with or has, and what of it differs: less power is slower, as its cube root (power
   goes with the clock and the square of a voltage that goes with it). */
static int hardware(const char *words, CostModel *model, cvn_err *err)
{
    static const struct {
        const char *words, *chip;
        double watts;
    } known[] = {{"v5p", "v5p", 0},          {"v5e", "v5e", 0},
                 {"v6e", "v6e", 0},          {"v4", "v4", 0},
                 {"TPU7x", "tpu7x", 0},      {"GB200", "gb200", 1200},
                 {"b200", "b200_sxm", 1000}, {"B200", "b200_sxm", 1000},
                 {"h200", "h200_sxm", 700},  {"H200", "h200_sxm", 700},
                 {"h100", "h100_sxm", 700},  {"H100", "h100_sxm", 700},
                 {"A100", "a100_sxm", 400},  {"L40S", "l40s", 350},
                 {"MI300X", "mi300x", 750}};
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && !strstr(words, known[i].words))
        i++;
    if (i == n || strstr(words, "half a chip"))
        return err_set(err, CVN_EUNSUPPORTED, "no chip here is \"%s\"", words);
    Chip chip = *chip_find(known[i].chip);
    double watts = number_behind(words, "limited to ", number_behind(words, "TB/s ", 0));
    if (known[i].watts > 0 && watts > 0 && watts < known[i].watts) {
        double slower = cbrt(watts / known[i].watts);
        chip.bf16 *= slower;
        chip.int8 *= slower;
        chip.fp8 *= slower;
    }
    const char *rate = strstr(words, "TB/s");
    if (rate) {
        while (rate > words && (isdigit((unsigned char)rate[-1]) || rate[-1] == '.'))
            rate--;
        chip.bandwidth = 1e12 * strtod(rate, NULL);
    }
    cost_model(model, &chip);
    return CVN_OK;
}

static ChipType precision(const char *words, bool *narrow)
{
    *narrow = strstr(words, "KV)") != NULL;
    return strstr(words, "int8 x int8")                                     ? CHIP_INT8
           : strstr(words, "8-bit") || strstr(words, "int8")                ? CHIP_WEIGHT8
           : strncmp(words, "fp4", 3) == 0                                  ? CHIP_FP4
           : strncmp(words, "fp8", 3) == 0 || strncmp(words, "FP8", 3) == 0 ? CHIP_FP8
                                                                            : CHIP_BF16;
}

/* ---- training ---- */

/* What MaxText's scripts say (github.com/AI-Hypercomputer/maxtext, src/maxtext/configs/tpu/v5e and v5p, <n>b.sh, and formerly
   MaxText/configs/v5p/gpt3_175b/v5p_1024.sh): rows on a chip, parts of a layer, what is computed again of a forward pass, and
   numbers of products. remat_policy minimal keeps products; qkv_proj_offloaded, queries, keys and values: 0.79 of its products'
   weights are others'. */
static const struct {
    const char *model, *chip;
    double rows, tp, again;
    ChipType type;
} maxtext[] = {{"16B (", "v5e", 6, 1, 1, CHIP_BF16},  {"32B (", "v5e", 4, 1, 1, CHIP_BF16},
               {"64B (", "v5e", 2, 1, 1, CHIP_BF16},  {"128B (", "v5e", 1, 16, 0.79, CHIP_BF16},
               {"32B (", "v5p", 6, 4, 0, CHIP_BF16},  {"64B (", "v5p", 3, 4, 0, CHIP_BF16},
               {"128B (", "v5p", 1, 8, 0, CHIP_BF16}, {"256B (", "v5p", 1, 8, 0, CHIP_BF16},
               {"512B (", "v5p", 2, 8, 1, CHIP_BF16}, {"1024B (", "v5p", 2, 16, 1, CHIP_BF16},
               {"175B-M", "v5p", 4, 8, 1, CHIP_INT8}};

/* Attention of PyTorch's programs: that of 2023 and 2024 is FlashAttention-2, which reaches 35 % of an H100 (arXiv 2407.08608). MPT's
   has slopes, which were in Triton alone then (llm-foundry, submit_benchmarks.py: attn_impl triton), where FlashAttention-2 is 1.3
   to 2.5 times as fast (arXiv 2307.08691, section 4.1): 1.9. */
#define FLASH_2 0.35
#define FLASH_TRITON (FLASH_2 / 1.9)

static int ask_training(const Csv *csv, int64_t row, SimTraining *a, CostModel *chip, cvn_err *err)
{
    const char *how = csv_at(csv, row, "parallelism"), *batch = csv_at(csv, row, "batch"),
               *notes = csv_at(csv, row, "notes"), *model = csv_at(csv, row, "model");
    bool narrow, known = false;
    a->chip = chip;
    a->chips = csv_number(csv, row, "chips", NAN);
    a->type = precision(csv_at(csv, row, "precision"), &narrow);
    a->tp = number_behind(how, "TP ", number_behind(how, "tensor_parallelism ", 1));
    a->pp = number_behind(how, "PP ", 1);
    a->cp = number_behind(how, "CP ", 1);
    a->sharded = !strstr(how, "FSDP 0") && !strstr(how, "DP 1") && !strstr(how, "PP ");
    a->sharded |= strstr(how, "FSDP ") && number_behind(how, "FSDP ", 2) > 0;
    a->virtual_stages = number_behind(how, "VP ", number_behind(how, "interleave ", 1));
    a->seq = csv_number(csv, row, "seq", NAN);
    if (!(a->seq > 0)) /* the scripts of the tables that do not say it */
        a->seq = strstr(model, "GPT") ? 2048 : 8192;
    double dp = a->chips / (a->tp * a->pp * a->cp),
           tokens = number_behind(notes, "tokens per step ", 0);
    a->rows = number_behind(batch, "global ", 0);
    if (a->rows <= 0)
        a->rows = dp * number_behind(batch, "local ", 0) +
                  a->chips * number_behind(batch, "per device ", 0);
    if (a->rows <= 0)
        a->rows = tokens > 0 ? tokens / a->seq : strtod(batch, NULL);
    a->micro = number_behind(batch, "micro ", a->pp > 1);
    bool keeps =
        strstr(notes, "ckpointing False") || strncmp(csv_at(csv, row, "hardware"), "DGX", 3) == 0;
    a->again = keeps ? 0 : strstr(notes, "selective AC") ? 0.5 : strstr(notes, "seqsel") ? 0 : 1;
    a->attention_again = strstr(notes, "seqsel") ? 1 : a->again >= 1;
    a->sums_overlap = strstr(how, "AsyncTP") != NULL;
    a->sums_overlap |= strncmp(csv_at(csv, row, "hardware"), "DGX", 3) == 0;
    const char *source = csv_at(csv, row, "source");
    bool mpt = strstr(source, "llm-foundry"), torch = mpt || strstr(source, "torchtitan");
    if (torch)
        chip->fit.prefill_compute = fmin(chip->fit.prefill_compute, mpt ? FLASH_TRITON : FLASH_2);
    /* Both sum gradients in f32: Composer's mixed_precision DEFAULT, torchtitan's mixed_precision_reduce. */
    a->gradient = torch ? 4 : 2;
    for (size_t i = 0; i < sizeof maxtext / sizeof *maxtext; i++)
        if (strstr(model, "MaxText") && behind(model, maxtext[i].model) &&
            strcmp(maxtext[i].chip, chip->chip.name) == 0) {
            known = true;
            a->tp = maxtext[i].tp;
            a->type = maxtext[i].type;
            a->rows = a->chips * maxtext[i].rows;
            a->again = maxtext[i].again;
            a->attention_again = maxtext[i].again > 0;
        }
    if (!known && strstr(model, "(MaxText)"))
        return err_set(err, CVN_EUNSUPPORTED, "how \"%s\" was run is not known", model);
    cost_sustained(chip);
    return CVN_OK;
}

static int training_figure(const Csv *csv, int64_t row, const SimShape *shape, CostModel *chip,
                           PublishedFigure *out, cvn_err *err)
{
    SimTraining ask = {.shape = *shape};
    SimTrained step;
    const char *metric = csv_at(csv, row, "metric");
    TRY(ask_training(csv, row, &ask, chip, err));
    TRY(sim_train(&ask, &step, err));
    double tokens = ask.rows * ask.seq / step.seconds / ask.chips;
    if (strcmp(metric, "MFU") == 0) /* attention counted whole, as these tables do */
        out->simulated = 100 * tokens * sim_shape_flops(shape, ask.seq) / chip->chip.bf16;
    else if (strcmp(metric, "throughput") == 0)
        out->simulated = tokens;
    else if (strstr(metric, "step time") || strstr(metric, "iteration time"))
        out->simulated = step.seconds;
    else
        return err_set(err, CVN_EUNSUPPORTED, "\"%s\" is not simulated", metric);
    return CVN_OK;
}

/* ---- everything else ---- */

/* A batch that begins and ends together. */
static double together(const SimServing *a, double rows)
{
    double input = (double)a->input, output = (double)a->output,
           at_once = fmax(1, floor(a->engine.budget / input)), seconds = 0;
    for (double left = rows; left > 0; left -= at_once) {
        double n = fmin(left, at_once);
        seconds += sim_step(a, 0, 0, n * input, n, input / 2).seconds;
    }
    return seconds + (output - 1) * sim_step(a, rows, rows * (input + output / 2), 0, 0, 0).seconds;
}

static int serving_figure(const Csv *csv, int64_t row, const SimShape *shape, CostModel *chip,
                          PublishedFigure *out, cvn_err *err)
{
    const char *how = csv_at(csv, row, "parallelism"), *batch = csv_at(csv, row, "batch"),
               *seq = csv_at(csv, row, "seq"), *metric = csv_at(csv, row, "metric"),
               *kind = csv_at(csv, row, "kind"), *unit = csv_at(csv, row, "unit");
    bool trtllm = strstr(how, "trtllm") || strstr(csv_at(csv, row, "source"), "TensorRT") ||
                  strstr(csv_at(csv, row, "model"), "NIM");
    SimServing a = {.chip = chip,
                    .shape = *shape,
                    .engine = *sim_engine_find(trtllm ? "trtllm" : "vllm"),
                    .pp = 1};
    SimServed served;
    a.type = precision(csv_at(csv, row, "precision"), &a.narrow);
    a.tp = (int)count_of(number_behind(how, "TP ", 1));
    a.input = count_of(number_behind(
        seq, "in ", number_behind(seq, "context ", number_behind(seq, "in/out ", 1))));
    const char *slash = strchr(seq, '/');
    slash = slash && strncmp(seq, "in/out", 6) == 0 ? strchr(slash + 1, '/') : slash;
    a.output = count_of(number_behind(seq, "out ", slash ? strtod(slash + 1, NULL) : 2));
    double rows =
        number_behind(batch, "batch ", number_behind(batch, "concurrency ", strtod(batch, NULL)));
    a.in_flight = count_of(rows);
    if (a.tp > shape->heads || (chip_peak(&chip->chip, a.type) <= 0))
        return err_set(err, CVN_EUNSUPPORTED, "%s has no %s", chip->chip.name,
                       chip_type_names[a.type]);
    if (strcmp(kind, "prefill") == 0) {
        if (!*seq)
            return err_set(err, CVN_EUNSUPPORTED, "how long its prompts were is not printed");
        out->simulated = 1e3 * sim_step(&a, 0, 0, (double)a.input, 1, (double)a.input / 2).seconds;
    } else if (strcmp(kind, "decode") == 0) {
        /* Without a context: a short prompt, and some 200 tokens after it. */
        double keys = behind(seq, "context ") ? (double)a.input : 100;
        double seconds = sim_step(&a, rows, rows * keys, 0, 0, 0).seconds;
        out->simulated = strcmp(unit, "ms") == 0 ? 1e3 * seconds : 1 / seconds;
    } else if (strcmp(kind, "generate") == 0) {
        out->simulated = rows * (double)a.output / together(&a, rows) / a.tp;
    } else if (strcmp(kind, "serve-max") == 0 && !strstr(batch, "concurrency")) {
        a.in_flight = 2048;
        a.requests = 3 * a.in_flight;
        a.narrow = a.type != CHIP_BF16;
        TRY(sim_serve(&a, &served, err));
        out->simulated = served.tokens / a.tp;
    } else if (strcmp(kind, "serve") == 0 && strcmp(unit, "ms") == 0) {
        const char *version = behind(how, trtllm ? "trtllm " : "vllm ");
        published_protocol(&a, !version || isdigit((unsigned char)*version));
        TRY(sim_serve(&a, &served, err));
        out->simulated = 1e3 * served.tpot;
    } else {
        return err_set(err, CVN_EUNSUPPORTED, "\"%s\" of \"%s\" is not simulated", metric, kind);
    }
    return CVN_OK;
}

bool published_worded(const Csv *csv)
{
    return csv_has(csv, "metric");
}

int published_figure(const Csv *csv, int64_t row, PublishedFigure *out, cvn_err *err)
{
    const char *kind = csv_at(csv, row, "kind"), *model = csv_at(csv, row, "model");
    CostModel chip;
    *out = (PublishedFigure){.published = csv_number(csv, row, "value", NAN)};
    const SimShape *shape = sim_shape_find(model);
    if (strncmp(kind, "micro", 5) == 0)
        return err_set(err, CVN_EUNSUPPORTED, "a single operation is no model");
    TRY(hardware(csv_at(csv, row, "hardware"), &chip, err));
    if (!shape)
        return err_set(err, CVN_EUNSUPPORTED, "no shape of \"%s\" is known", model);
    return strcmp(kind, "train") == 0 ? training_figure(csv, row, shape, &chip, out, err)
                                      : serving_figure(csv, row, shape, &chip, out, err);
}
