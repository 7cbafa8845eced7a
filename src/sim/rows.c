#include "sim/rows.h"

#include "model/presets.h"
#include "sim/search.h"

#include <math.h>
#include <string.h>

#define MOST (1 << 24)
#define AT(field) offsetof(RowQuestion, field)
#define OWN (double)NAN /* nothing changes what is there: the engine's */

typedef enum NumberKind { REAL, INT, INT64, FLAG } NumberKind;

/* Every column that has a number: where it goes, its default, and the least and the most that it may be. */
// clang-format off
static const struct {
    const char *name;
    size_t offset;
    NumberKind kind;
    double none, low, high;
} numbers[] = {
    {"chips", AT(training.chips), REAL, 0, 1, MOST},
    {"tp", AT(training.tp), REAL, 1, 1, 1024},
    {"tp", AT(serving.tp), INT, 1, 1, 1024},
    {"pp", AT(training.pp), REAL, 1, 1, 1024},
    {"pp", AT(serving.pp), INT, 1, 1, 1024},
    {"cp", AT(training.cp), REAL, 1, 1, 1024},
    {"batch", AT(rows), REAL, 0, 1e-9, 1 << 20},
    {"batch", AT(training.rows), REAL, 0, 1e-9, 1 << 20},
    {"batch", AT(serving.in_flight), INT64, 0, 1e-9, 1 << 20},
    {"seq", AT(training.seq), REAL, 0, 1, MOST},
    {"context", AT(context), REAL, 0, 0, MOST},
    {"input", AT(serving.input), INT64, 0, 1, MOST},
    {"output", AT(serving.output), INT64, 0, 1, MOST},
    {"speed", AT(speed), REAL, 1, 1e-3, 10},       /* of the chip's peaks: less power */
    {"price", AT(price), REAL, 0, 1e-6, 1e6}, /* dollars per chip and hour */
    {"bandwidth", AT(bandwidth), REAL, 0, 1, 1e18}, /* bytes a second; 0: the chip's */
    {"sharded", AT(training.sharded), FLAG, 1, 0, 1},
    {"micro", AT(training.micro), REAL, 0, 0, MOST},
    {"virtual_stages", AT(training.virtual_stages), REAL, 1, 0, 1024},
    {"recompute", AT(training.again), REAL, 0, 0, 1},
    {"recompute_attention", AT(training.attention_again), REAL, 0, 0, 1},
    {"cache_8bit", AT(serving.narrow), FLAG, 0, 0, 1},
    {"spread", AT(serving.spread), REAL, 0, 0, 1},
    {"budget", AT(serving.engine.budget), REAL, OWN, 1, MOST},
    {"memory_share", AT(serving.engine.fraction), REAL, OWN, 1e-3, 1},
    {"fused", AT(serving.engine.fused), REAL, OWN, 0, 16},
    {"ahead", AT(serving.engine.ahead), FLAG, OWN, 0, 1},
    {"wait", AT(serving.wait), INT, 0, 0, 1 << 20},
    {"prompts", AT(serving.prompts), INT64, 0, 0, MOST},
    {"requests", AT(serving.requests), INT64, 0, 0, MOST},
    {"dim", AT(serving.shape.dim), REAL, 0, 1, MOST},
    {"layers", AT(serving.shape.layers), REAL, 0, 1, 1 << 16},
    {"heads", AT(serving.shape.heads), REAL, 0, 1, 1 << 16},
    {"kv_heads", AT(serving.shape.kv_heads), REAL, 0, 1, 1 << 16},
    {"head_dim", AT(serving.shape.head_dim), REAL, 0, 1, 1 << 16},
    {"ffn", AT(serving.shape.ffn), REAL, 0, 1, MOST},
    {"vocab", AT(serving.shape.vocab), REAL, 0, 1, MOST},
    {"gates", AT(serving.shape.gates), REAL, 3, 2, 3},
    {"tied", AT(serving.shape.tied), FLAG, 0, 0, 1},
    {"norms", AT(serving.shape.norms), REAL, 0, 0, 16},
};
// clang-format on

/* Columns with names as values, and columns that only readers use. */
static const char *const words[] = {
    "id",    "ask",    "model",     "chip",    "precision", "engine",
    "stack", "layout", "optimizer", "missing", /* what is not known of the row, which is refused */
    "on",    "how",    "group",     "why",     "source",    "notes"};

const char *const row_figure_columns[ROW_FIGURES] = {
    "mfu_percent",  "tokens_per_second_and_chip", "seconds",
    "milliseconds", "steps_per_second",           "ttft_ms",
    "tpot_ms",      "dollars_per_million"};
const char *const row_figure_titles[ROW_FIGURES] = {
    "MFU, %", "tokens/s and chip", "s", "ms", "steps/s", "TTFT, ms", "TPOT, ms", "$ per million"};

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
    if (csv->columns == 1 && !*csv->name[0])
        return err_set(err, CVN_EFORMAT, "%s is empty; its first line must name the columns", path);
    for (int i = 0; i < csv->columns; i++)
        if (!known(csv->name[i]))
            return err_set(err, CVN_EFORMAT,
                           "%s: unknown column \"%s\"; docs/FORESIGHT.md lists the columns", path,
                           csv->name[i]);
    for (size_t i = 0; i < COUNT(needed); i++)
        if (!csv_has(csv, needed[i]))
            return err_set(err, CVN_EFORMAT,
                           "%s has no column \"%s\": its first line must name the columns, such as "
                           "id, ask, model, chip, precision, batch, input, output, tp, engine",
                           path, needed[i]);
    return CVN_OK;
}

/* ---- reading a row ---- */

static int read_numbers(const Csv *csv, int64_t row, RowQuestion *q, cvn_err *err)
{
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const char *text = csv_at(csv, row, numbers[i].name);
        double x = csv_number(csv, row, numbers[i].name, numbers[i].none);
        char *at = (char *)q + numbers[i].offset;
        if (*text && !(x >= numbers[i].low && x <= numbers[i].high))
            return err_set(err, CVN_EUNSUPPORTED, "%s is \"%s\"; give a number from %g to %g",
                           numbers[i].name, text, numbers[i].low, numbers[i].high);
        if (isnan(x))
            continue;
        if (numbers[i].kind == REAL)
            *(double *)at = x;
        else if (numbers[i].kind == INT)
            *(int *)at = (int)x;
        else if (numbers[i].kind == INT64)
            *(int64_t *)at = (int64_t)x;
        else
            *(bool *)at = x >= 1;
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
                       "ask is \"%s\"; give train, prefill, decode, generate or serve", name);
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
    return err_set(err, CVN_EUNSUPPORTED, "unknown precision \"%s\"", name);
}

/* The chip of a row, with what the row says otherwise. */
static int read_chip(const Csv *csv, int64_t row, RowQuestion *q, cvn_err *err)
{
    const char *name = csv_at(csv, row, "chip");
    const Chip *found = chip_find(name);
    if (!found)
        return err_set(err, CVN_EUNSUPPORTED, "unknown chip \"%s\"", name);
    Chip chip = *found;
    if (chip_peak(&chip, q->serving.type) <= 0)
        return err_set(err, CVN_EUNSUPPORTED, "%s has no %s", name,
                       chip_type_names[q->serving.type]);
    chip.bf16 *= q->speed;
    chip.int8 *= q->speed;
    chip.fp8 *= q->speed;
    chip.fp4 *= q->speed;
    if (q->bandwidth > 0)
        chip.bandwidth = q->bandwidth;
    cost_model(&q->chip, &chip);
    if (q->ask == TRAIN) {
        q->chip.fit.prefill_compute =
            fmin(q->chip.fit.prefill_compute, q->training.stack->attention);
        cost_sustained(&q->chip);
    }
    return CVN_OK;
}

/* The shape of the model: from the columns, or from the preset that has the model's name. */
static int read_shape(const Csv *csv, int64_t row, RowQuestion *q, cvn_err *err)
{
    const char *name = csv_at(csv, row, "model");
    SimShape *s = &q->serving.shape;
    ModelShape preset;
    if (s->dim > 0 && !(s->layers > 0 && s->heads > 0 && s->kv_heads > 0 && s->head_dim > 0 &&
                        s->ffn > 0 && s->vocab > 0))
        return err_set(err, CVN_EUNSUPPORTED,
                       "dim requires layers, heads, kv_heads, head_dim, ffn and vocab");
    if (s->dim <= 0 && preset_shape(name, &preset, NULL))
        return err_set(err, CVN_EUNSUPPORTED,
                       "unknown preset \"%s\"; describe another model by dim, layers, heads, "
                       "kv_heads, head_dim, ffn and vocab",
                       name);
    if (s->dim <= 0)
        *s = sim_shape_of(&preset);
    q->training.shape = *s;
    q->training.type = q->serving.type;
    if (q->serving.tp > s->heads || q->serving.pp > s->layers)
        return err_set(err, CVN_EUNSUPPORTED,
                       "%d x %d chips are more than the model has heads or layers", q->serving.tp,
                       q->serving.pp);
    return CVN_OK;
}

/* Reads how requests are served. */
static int read_engine(const Csv *csv, int64_t row, SimServing *a, cvn_err *err)
{
    const char *name = csv_at(csv, row, "engine");
    const SimEngine *engine = sim_engine_find(*name ? name : "vllm");
    if (!engine)
        return err_set(err, CVN_EUNSUPPORTED, "unknown engine \"%s\"", name);
    a->engine = *engine;
    return CVN_OK;
}

/* The software that trains, and what of it the compiler is asked for. */
static int read_stack(const Csv *csv, int64_t row, RowQuestion *q, cvn_err *err)
{
    const char *stack = csv_at(csv, row, "stack"), *optimizer = csv_at(csv, row, "optimizer");
    int kind = 0;
    q->training.stack = *stack ? sim_stack_find(stack) : sim_stack_at(0);
    q->layout = csv_at(csv, row, "layout");
    if (!q->training.stack)
        return err_set(err, CVN_EUNSUPPORTED, "unknown stack \"%s\"", stack);
    while (*optimizer && kind < OPTIMIZER_COUNT && strcmp(optimizers[kind].name, optimizer) != 0)
        kind++;
    if (kind == OPTIMIZER_COUNT)
        return err_set(err, CVN_EUNSUPPORTED, "unknown optimizer \"%s\"", optimizer);
    q->optimizer = (OptimizerKind)kind;
    return CVN_OK;
}

int rows_ask(const Csv *csv, int64_t row, RowQuestion *q, cvn_err *err)
{
    const char *missing = csv_at(csv, row, "missing");
    *q = (RowQuestion){0};
    if (*missing)
        return err_set(err, CVN_EUNSUPPORTED, "%s", missing);
    TRY(read_ask(csv, row, &q->ask, err));
    TRY(read_type(csv, row, &q->serving.type, err));
    TRY(read_engine(csv, row, &q->serving, err));
    TRY(read_numbers(csv, row, q, err));
    TRY(read_stack(csv, row, q, err));
    TRY(read_chip(csv, row, q, err));
    return read_shape(csv, row, q, err);
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

/* The program of the layout, as `simulate --mesh` times it, from a few layers. */
static int program_seconds(const RowQuestion *q, double *seconds, cvn_err *err)
{
    const SimTraining *a = &q->training;
    const SimShape *s = &a->shape;
    char name[256];
    Model *model;
    SearchWay way;
    SCOPED(arena_free) Arena arena = {0};
    if (!q->device || a->pp > 1 || a->cp > 1 || a->micro > 0 || a->type != CHIP_BF16 ||
        s->gates != 3 || (a->again > 0 && a->again < 1))
        return err_set(err, CVN_EUNSUPPORTED,
                       "a layout is that of a program of Caravan, which has no pipelines, parts of "
                       "sequences or micro-batches here, products in bf16 and gated feed-forward "
                       "parts, and recomputes all or nothing; leave out layout");
    snprintf(name, sizeof name,
             "dim=%.0f,layers=%.0f,heads=%.0f,kv_heads=%.0f,head_dim=%.0f,ffn=%.0f,vocab=%.0f,"
             "context=%.0f",
             s->dim, s->layers, s->heads, s->kv_heads, s->head_dim, s->ffn, s->vocab, a->seq);
    TRY(arena_begin(&arena, err));
    TRY(preset_model(name, &model, &arena, err));
    const SimAsk ask = {
        .model = model,
        .task = SIM_TRAIN,
        .seq = (int64_t)a->seq,
        .compute = CVN_BF16,
        .chip = &q->chip.chip,
        .device = q->device,
        .threads = 1,
        .blocking = !a->stack->gathers_overlap,
        .train = {.clip = 1,
                  .optimizer = optimizer_defaults(q->optimizer, model_size(model).params)}};
    way = search_way((int64_t)(a->chips / a->tp), (int64_t)a->tp, q->layout, (int64_t)a->rows,
                     a->again > 0 ? REMAT_BLOCK : REMAT_NONE);
    TRY(search_try(&ask, &way, 4, err));
    *seconds = way.seconds;
    return CVN_OK;
}

static int answer_training(const RowQuestion *q, double *simulated, cvn_err *err)
{
    const SimTraining *a = &q->training;
    SimTrained step;
    if (*q->layout)
        TRY(program_seconds(q, &step.seconds, err));
    else
        TRY(sim_train(a, &step, err));
    double tokens = a->rows * a->seq / step.seconds / a->chips;
    simulated[ROW_SECONDS] = step.seconds;
    simulated[ROW_TOKENS] = tokens;
    /* Attention counts whole, as tables of training do. */
    simulated[ROW_MFU] = 100 * tokens * sim_shape_flops(&a->shape, a->seq) / a->chip->chip.bf16;
    return CVN_OK;
}

/* Times a batch whose requests begin and end together. */
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

/* What the chips cost for as long as it takes to make a million tokens. */
static double dollars(const RowQuestion *q, double tokens_per_second_and_chip)
{
    double price = q->price > 0 ? q->price : q->chip.chip.price;
    return price > 0 ? price / 3600 / tokens_per_second_and_chip * 1e6 : (double)NAN;
}

static int answer(RowQuestion *q, double simulated[ROW_FIGURES], cvn_err *err)
{
    const SimServing *a = &q->serving;
    double seconds, input = (double)a->input, prompts = fmax(1, q->rows);
    switch (q->ask) {
    case TRAIN:
        return answer_training(q, simulated, err);
    case PREFILL:
        seconds = sim_step(a, 0, 0, prompts * input, prompts, input / 2).seconds;
        simulated[ROW_SECONDS] = seconds;
        simulated[ROW_MILLISECONDS] = 1e3 * seconds;
        return CVN_OK;
    case DECODE:
        seconds = sim_step(a, q->rows, q->rows * q->context, 0, 0, 0).seconds;
        simulated[ROW_MILLISECONDS] = 1e3 * seconds;
        simulated[ROW_STEPS] = 1 / seconds;
        simulated[ROW_TOKENS] = q->rows / seconds / (a->tp * a->pp);
        return CVN_OK;
    case GENERATE:
        simulated[ROW_TOKENS] = q->rows * (double)a->output / together(a, q->rows) / a->tp;
        return CVN_OK;
    default:
        return answer_serving(a, simulated, err);
    }
}

int rows_answer(RowQuestion *q, double simulated[ROW_FIGURES], cvn_err *err)
{
    q->serving.chip = q->training.chip = &q->chip;
    for (int f = 0; f < ROW_FIGURES; f++)
        simulated[f] = (double)NAN;
    TRY(answer(q, simulated, err));
    simulated[ROW_DOLLARS] = dollars(q, simulated[ROW_TOKENS]);
    return CVN_OK;
}
