#include "sim/rows.h"

#include "model/presets.h"

#include <math.h>
#include <string.h>

/* The numbers of a row. */
typedef struct Question {
    double chips, tp, pp, cp, batch, seq, context, input, output, speed, bandwidth;
    double sharded, micro, virtual_stages, recompute, recompute_attention, sums_overlap, gradient,
        attention;
    double narrow, spread, budget, fraction, wait, prompts, fused, ahead, requests;
    double dim, layers, heads, kv_heads, head_dim, ffn, vocab, gates, tied, norms;
} Question;

#define MOST (1 << 24)
#define AT(field) offsetof(Question, field)

/* Every column that has a number: its default, and the least and the most that it may be. */
static const struct {
    const char *name;
    size_t offset;
    double none, low, high;
} numbers[] = {
    {"chips", AT(chips), 0, 1, MOST},         /* all of them, in training */
    {"tp", AT(tp), 1, 1, 1024},               /* parts of a layer */
    {"pp", AT(pp), 1, 1, 1024},               /* of the layers */
    {"cp", AT(cp), 1, 1, 1024},               /* of a sequence, in training */
    {"batch", AT(batch), 0, 1e-9, 1 << 20},   /* rows of a step; requests in flight on a replica */
    {"seq", AT(seq), 0, 1, MOST},             /* tokens of a row, in training */
    {"context", AT(context), 0, 0, MOST},     /* keys that a token looks at, in decoding */
    {"input", AT(input), 0, 1, MOST},         /* tokens of a prompt */
    {"output", AT(output), 0, 1, MOST},       /* of its answer */
    {"speed", AT(speed), 1, 1e-3, 10},        /* share of the chip's peaks: less power */
    {"bandwidth", AT(bandwidth), 0, 1, 1e18}, /* bytes a second, in place of the chip's */
    {"sharded", AT(sharded), 1, 0, 1},        /* weights are split over the parts of the batch */
    {"micro", AT(micro), 0, 0, MOST},         /* rows that a part takes at a time; 0: all its own */
    {"virtual_stages", AT(virtual_stages), 1, 0, 1024}, /* of a chip's part of the layers */
    {"recompute", AT(recompute), 0, 0, 1}, /* share of the forward products done again */
    {"recompute_attention", AT(recompute_attention), 0, 0, 1}, /* of attention */
    {"sums_overlap", AT(sums_overlap), 0, 0, 1},   /* sums of parts go on beside products */
    {"gradient_bytes", AT(gradient), 2, 1, 8},     /* of one that is summed */
    {"attention_peak", AT(attention), 1, 1e-3, 1}, /* share of the peak, at most */
    {"cache_8bit", AT(narrow), 0, 0, 1},           /* keys and values in 8 bits */
    {"spread", AT(spread), 0, 0, 1},         /* lengths are drawn from [1 - spread, 1] of these */
    {"budget", AT(budget), 0, 0, MOST},      /* tokens of a step; 0: the engine's */
    {"memory_share", AT(fraction), 0, 0, 1}, /* that it uses; 0: the engine's */
    {"wait", AT(wait), 0, 0, 1 << 20},       /* steps that a prompt may wait for others */
    {"prompts", AT(prompts), 0, 0, MOST},    /* different ones that caches find again; 0: all are */
    {"fused", AT(fused), -1, 0, 16},         /* operations of a layer fused with sums */
    {"ahead", AT(ahead), 0, 0, 1},           /* steps are decided on while others run */
    {"requests", AT(requests), 0, 0, MOST},  /* 0: ten for each in flight */
    {"dim", AT(dim), 0, 1, MOST},            /* the model's, where it is no preset */
    {"layers", AT(layers), 0, 1, 1 << 16},
    {"heads", AT(heads), 0, 1, 1 << 16},
    {"kv_heads", AT(kv_heads), 0, 1, 1 << 16},
    {"head_dim", AT(head_dim), 0, 1, 1 << 16},
    {"ffn", AT(ffn), 0, 1, MOST},
    {"vocab", AT(vocab), 0, 1, MOST},
    {"gates", AT(gates), 3, 2, 3}, /* matrices of the feed-forward part */
    {"tied", AT(tied), 0, 0, 1},
    {"norms", AT(norms), 0, 0, 16}, /* operations more in a layer */
};

/* Columns with names, and those that are for people. */
static const char *const words[] = {"id",      "ask", "model", "chip", "precision", "engine",
                                    "missing", /* what is not known of the row, which is refused */
                                    "on",      "how", "group", "why",  "source",    "notes"};

const char *const row_figure_columns[ROW_FIGURES] = {
    "mfu_percent",  "tokens_per_second_and_chip", "seconds",
    "milliseconds", "steps_per_second",           "ttft_ms",
    "tpot_ms"};
const char *const row_figure_titles[ROW_FIGURES] = {"MFU, %",  "tokens/s and chip", "s",       "ms",
                                                    "steps/s", "TTFT, ms",          "TPOT, ms"};

#define WITHIN "within_percent" /* error that the row is held to */

enum { TRAIN, PREFILL, DECODE, GENERATE, SERVE, ASKS };

static const struct {
    const char *name;
    const char *needs[4]; /* columns */
} asks[ASKS] = {[TRAIN] = {"train", {"chips", "batch", "seq"}},
                [PREFILL] = {"prefill", {"input"}},
                [DECODE] = {"decode", {"batch", "context"}},
                [GENERATE] = {"generate", {"batch", "input", "output"}},
                [SERVE] = {"serve", {"batch", "input", "output"}}};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static bool known(const char *column)
{
    bool found = strcmp(column, WITHIN) == 0;
    for (size_t i = 0; i < COUNT(numbers); i++)
        found |= strcmp(numbers[i].name, column) == 0;
    for (size_t i = 0; i < COUNT(words); i++)
        found |= strcmp(words[i], column) == 0;
    for (size_t i = 0; i < ROW_FIGURES; i++)
        found |= strcmp(row_figure_columns[i], column) == 0;
    return found;
}

int rows_check(const Csv *csv, const char *path, cvn_err *err)
{
    static const char *const needed[] = {"id", "ask", "model", "chip"};
    for (int i = 0; i < csv->columns; i++)
        if (!known(csv->name[i]))
            return err_set(err, CVN_EFORMAT,
                           "%s: no column \"%s\" is known; docs/FORESIGHT.md lists those there are",
                           path, csv->name[i]);
    for (size_t i = 0; i < COUNT(needed); i++)
        if (!csv_has(csv, needed[i]))
            return err_set(
                err, CVN_EFORMAT,
                "%s has no column \"%s\": its first line is to name columns, as id, ask, "
                "model, chip, precision, batch, input, output, tp, engine",
                path, needed[i]);
    return CVN_OK;
}

/* ---- reading a row ---- */

static int read_numbers(const Csv *csv, int64_t row, Question *q, cvn_err *err)
{
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const char *text = csv_at(csv, row, numbers[i].name);
        double x = csv_number(csv, row, numbers[i].name, numbers[i].none);
        if (*text && !(x >= numbers[i].low && x <= numbers[i].high))
            return err_set(err, CVN_EUNSUPPORTED,
                           "%s is \"%s\", where a number from %g to %g is wanted", numbers[i].name,
                           text, numbers[i].low, numbers[i].high);
        *(double *)((char *)q + numbers[i].offset) = x;
    }
    return CVN_OK;
}

static int read_ask(const Csv *csv, int64_t row, int *ask, cvn_err *err)
{
    const char *name = csv_at(csv, row, "ask");
    *ask = 0;
    while (*ask < ASKS && strcmp(asks[*ask].name, name) != 0)
        (*ask)++;
    if (*ask == ASKS)
        return err_set(err, CVN_EUNSUPPORTED,
                       "ask is \"%s\", where train, prefill, decode, generate or serve is wanted",
                       name);
    for (size_t i = 0; asks[*ask].needs[i]; i++)
        if (!*csv_at(csv, row, asks[*ask].needs[i]))
            return err_set(err, CVN_EUNSUPPORTED, "%s needs a number in the column %s", name,
                           asks[*ask].needs[i]);
    return CVN_OK;
}

static int read_type(const Csv *csv, int64_t row, ChipType *type, cvn_err *err)
{
    const char *name = csv_at(csv, row, "precision");
    for (int t = 0; t < CHIP_TYPES; t++)
        if (strcmp(chip_type_names[t], *name ? name : "bf16") == 0) {
            *type = (ChipType)t;
            return CVN_OK;
        }
    return err_set(err, CVN_EUNSUPPORTED, "no precision \"%s\" is known", name);
}

/* The chip, as far as the row does not say otherwise. */
static int read_chip(const Csv *csv, int64_t row, const Question *q, ChipType type,
                     CostModel *model, cvn_err *err)
{
    const char *name = csv_at(csv, row, "chip");
    const Chip *found = chip_find(name);
    if (!found)
        return err_set(err, CVN_EUNSUPPORTED, "there is no chip \"%s\"", name);
    Chip chip = *found;
    if (chip_peak(&chip, type) <= 0)
        return err_set(err, CVN_EUNSUPPORTED, "%s has no %s", name, chip_type_names[type]);
    chip.bf16 *= q->speed;
    chip.int8 *= q->speed;
    chip.fp8 *= q->speed;
    chip.fp4 *= q->speed;
    if (q->bandwidth > 0)
        chip.bandwidth = q->bandwidth;
    cost_model(model, &chip);
    model->fit.prefill_compute = fmin(model->fit.prefill_compute, q->attention);
    return CVN_OK;
}

/* Of the columns, else of the preset that the model's name is. */
static int read_shape(const Csv *csv, int64_t row, const Question *q, SimShape *shape, cvn_err *err)
{
    const char *name = csv_at(csv, row, "model");
    Model config;
    *shape = (SimShape){q->dim, q->layers, q->heads, q->kv_heads,  q->head_dim,
                        q->ffn, q->vocab,  q->gates, q->tied >= 1, q->norms};
    bool whole = q->layers > 0 && q->heads > 0 && q->kv_heads > 0 && q->head_dim > 0 &&
                 q->ffn > 0 && q->vocab > 0;
    if (q->dim > 0 && !whole)
        return err_set(err, CVN_EUNSUPPORTED,
                       "dim comes with layers, heads, kv_heads, head_dim, ffn and vocab");
    if (q->dim <= 0 && preset_config(name, &config, NULL))
        return err_set(err, CVN_EUNSUPPORTED,
                       "no preset is \"%s\": dim, layers, heads, kv_heads, head_dim, ffn and vocab "
                       "say what another model is",
                       name);
    if (q->dim <= 0)
        *shape = sim_shape_of(&config);
    if (q->tp > shape->heads || q->pp > shape->layers)
        return err_set(err, CVN_EUNSUPPORTED,
                       "%g x %g chips are more than the model has heads or layers", q->tp, q->pp);
    return CVN_OK;
}

static void read_training(const Question *q, SimTraining *a)
{
    a->chips = q->chips;
    a->tp = q->tp;
    a->pp = q->pp;
    a->cp = q->cp;
    a->sharded = q->sharded >= 1;
    a->sums_overlap = q->sums_overlap >= 1;
    a->rows = q->batch;
    a->seq = q->seq;
    a->micro = q->micro;
    a->virtual_stages = q->virtual_stages;
    a->again = q->recompute;
    a->attention_again = q->recompute_attention;
    a->gradient = q->gradient;
}

/* How requests are served: as the engine does it by itself, but for what the row says. */
static int read_serving(const Csv *csv, int64_t row, const Question *q, SimServing *a, cvn_err *err)
{
    const char *name = csv_at(csv, row, "engine");
    const SimEngine *engine = sim_engine_find(*name ? name : "vllm");
    if (!engine)
        return err_set(err, CVN_EUNSUPPORTED, "no engine \"%s\" is known", name);
    a->engine = *engine;
    a->engine.ahead |= q->ahead >= 1;
    if (q->budget > 0)
        a->engine.budget = q->budget;
    if (q->fraction > 0)
        a->engine.fraction = q->fraction;
    if (q->fused >= 0)
        a->engine.fused = q->fused;
    a->narrow = q->narrow >= 1;
    a->tp = (int)q->tp;
    a->pp = (int)q->pp;
    a->in_flight = (int64_t)q->batch;
    a->input = (int64_t)q->input;
    a->output = (int64_t)q->output;
    a->spread = q->spread;
    a->prompts = (int64_t)q->prompts;
    a->requests = (int64_t)q->requests;
    a->wait = (int)q->wait;
    return CVN_OK;
}

int rows_ask(const Csv *csv, int64_t row, RowQuestion *out, cvn_err *err)
{
    Question q;
    ChipType type = CHIP_BF16;
    SimShape shape;
    const char *missing = csv_at(csv, row, "missing");
    *out = (RowQuestion){0};
    if (*missing)
        return err_set(err, CVN_EUNSUPPORTED, "%s", missing);
    TRY(read_ask(csv, row, &out->ask, err));
    TRY(read_numbers(csv, row, &q, err));
    TRY(read_type(csv, row, &type, err));
    TRY(read_chip(csv, row, &q, type, &out->chip, err));
    TRY(read_shape(csv, row, &q, &shape, err));
    out->rows = q.batch;
    out->context = q.context;
    out->training = (SimTraining){.shape = shape, .type = type};
    out->serving = (SimServing){.shape = shape, .type = type};
    if (out->ask != TRAIN)
        return read_serving(csv, row, &q, &out->serving, err);
    read_training(&q, &out->training);
    cost_sustained(&out->chip);
    return CVN_OK;
}

double rows_measured(const Csv *csv, int64_t row, RowFigure figure)
{
    return csv_number(csv, row, row_figure_columns[figure], (double)NAN);
}

double rows_within(const Csv *csv, int64_t row)
{
    return csv_number(csv, row, WITHIN, (double)NAN) / 100;
}

/* ---- answering it ---- */

static int answer_training(const SimTraining *a, double *simulated, cvn_err *err)
{
    SimTrained step;
    TRY(sim_train(a, &step, err));
    double tokens = a->rows * a->seq / step.seconds / a->chips;
    simulated[ROW_SECONDS] = step.seconds;
    simulated[ROW_TOKENS] = tokens;
    /* Attention counts whole, as tables of training do. */
    simulated[ROW_MFU] = 100 * tokens * sim_shape_flops(&a->shape, a->seq) / a->chip->chip.bf16;
    return CVN_OK;
}

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

static int answer_serving(const SimServing *a, double *simulated, cvn_err *err)
{
    SimServed served;
    TRY(sim_serve(a, &served, err));
    simulated[ROW_TOKENS] = served.tokens / (a->tp * a->pp);
    simulated[ROW_TTFT] = 1e3 * served.ttft;
    simulated[ROW_TPOT] = 1e3 * served.tpot;
    return CVN_OK;
}

int rows_answer(RowQuestion *q, double simulated[ROW_FIGURES], cvn_err *err)
{
    const SimServing *a = &q->serving;
    double seconds, input = (double)a->input, prompts = fmax(1, q->rows);
    q->serving.chip = q->training.chip = &q->chip;
    for (int f = 0; f < ROW_FIGURES; f++)
        simulated[f] = (double)NAN;
    switch (q->ask) {
    case TRAIN:
        return answer_training(&q->training, simulated, err);
    case PREFILL:
        seconds = sim_step(a, 0, 0, prompts * input, prompts, input / 2).seconds;
        simulated[ROW_SECONDS] = seconds;
        simulated[ROW_MILLISECONDS] = 1e3 * seconds;
        return CVN_OK;
    case DECODE:
        seconds = sim_step(a, q->rows, q->rows * q->context, 0, 0, 0).seconds;
        simulated[ROW_MILLISECONDS] = 1e3 * seconds;
        simulated[ROW_STEPS] = 1 / seconds;
        return CVN_OK;
    case GENERATE:
        simulated[ROW_TOKENS] = q->rows * (double)a->output / together(a, q->rows) / a->tp;
        return CVN_OK;
    default:
        return answer_serving(a, simulated, err);
    }
}
