#include "sim/cost.h"

#include <math.h>

const char *const cost_bound_names[COST_BOUNDS] = {[COST_COMPUTE] = "compute",
                                                   [COST_MEMORY] = "memory",
                                                   [COST_LINK] = "link",
                                                   [COST_HOST] = "host"};

void cost_model(CostModel *model, const Chip *chip)
{
    model->chip = *chip;
    chip_fit(chip, &model->fit);
    model->stretch = 1;
}

void cost_sustained(CostModel *model)
{
    for (int t = 0; t < CHIP_TYPES; t++)
        model->fit.product[t].compute *= model->fit.sustained;
    model->fit.prefill_compute *= model->fit.sustained;
    model->stretch = COST_TRAINING;
}

static Cost stretched(const CostModel *model, Cost c)
{
    c.seconds *= model->stretch;
    c.reading *= model->stretch;
    for (int b = 0; b < COST_BOUNDS; b++)
        c.spent[b] *= model->stretch;
    return c;
}

/* Beyond its start the time is assigned to the larger of computing and memory. */
static Cost finish(const CostModel *model, Cost c, double compute, double memory, double start)
{
    CostBound most = memory > compute ? COST_MEMORY : COST_COMPUTE;
    c.spent[most] = c.seconds - start;
    c.spent[COST_HOST] = start;
    c.reading = fmax(0, c.seconds - start - fmax(compute, c.bound[COST_COMPUTE]));
    return stretched(model, c);
}

Cost cost_product(const CostModel *model, ChipType type, double m, double n, double k)
{
    const ChipProduct *p = &model->fit.product[type];
    const Chip *chip = &model->chip;
    /* Types that a chip does not support are widened to bf16. */
    double peak = chip_peak(chip, type) > 0 ? chip_peak(chip, type) : chip->bf16;
    double wide = chip_type_bytes[type], in = type >= CHIP_WEIGHT8 ? 2 : fmin(wide, 1);
    Cost c = {.flops = 2 * m * n * k,
              .bytes = n * k * wide + m * k * (type == CHIP_BF16 ? 2 : in) + 2 * m * n};
    double tile = chip_type_rows[type];
    double compute = 2 * ceil(m / tile) * tile * n * (k + p->ends) / (peak * p->compute);
    double memory = (n * k * wide + m * k * in + 2 * m * n) / (chip->bandwidth * p->memory);
    double most = fmax(compute, memory), least = fmin(compute, memory);
    double act = p->act * m * k / chip->bandwidth;
    c.seconds = p->start + most * pow(1 + pow(least / most, p->sharp), 1 / p->sharp) + act;
    c.bound[COST_COMPUTE] = c.flops / peak;
    c.bound[COST_MEMORY] = (n * k * wide) / chip->bandwidth;
    c.bound[COST_HOST] = chip->launch;
    c.seconds = fmax(c.seconds, fmax(c.bound[COST_COMPUTE], c.bound[COST_MEMORY]));
    return finish(model, c, compute, memory + act, fmin(p->start, c.seconds));
}

Cost cost_decode(const CostModel *model, double bytes, bool narrow)
{
    const ChipFit *fit = &model->fit;
    Cost c = {.bytes = bytes, .flops = 2 * bytes / (narrow ? 1 : 2)};
    c.bound[COST_MEMORY] = bytes / model->chip.bandwidth;
    c.bound[COST_HOST] = model->chip.launch;
    double memory = c.bound[COST_MEMORY] / fit->decode_memory[narrow];
    c.seconds = fit->decode_start[narrow] + memory;
    return finish(model, c, 0, memory, fit->decode_start[narrow]);
}

Cost cost_prefill(const CostModel *model, double rows, double heads, double keys, double dim,
                  double times)
{
    const ChipFit *fit = &model->fit;
    Cost c = {.flops = 4 * times * rows * heads * keys * dim};
    double peak = model->chip.bf16;
    c.bound[COST_COMPUTE] = c.flops / peak;
    c.bound[COST_HOST] = model->chip.launch;
    double compute = 4 * times * rows * heads * (keys + fit->prefill_extra / 2) * dim /
                     (peak * fit->prefill_compute);
    c.seconds = fit->prefill_start + compute;
    return finish(model, c, compute, 0, fit->prefill_start);
}

Cost cost_move(const CostModel *model, double bytes, double launches)
{
    Cost c = {.bytes = bytes};
    c.bound[COST_MEMORY] = bytes / model->chip.bandwidth;
    c.bound[COST_HOST] = launches * model->chip.launch;
    double memory = c.bound[COST_MEMORY] / model->fit.product[CHIP_BF16].memory;
    c.seconds = memory + c.bound[COST_HOST];
    return finish(model, c, 0, memory, c.bound[COST_HOST]);
}

/* ---- collectives ---- */

/* A sum that was timed, between the sizes that were by powers. */
static double measured_sum(const double *seconds, double bytes)
{
    double at = log2(fmax(bytes, 8192) / 8192) / 2;
    int i = (int)fmin(at, CHIP_REDUCE_SIZES - 2);
    return seconds[i] * pow(seconds[i + 1] / seconds[i], at - i);
}

/* What a chip sends of the whole tensor, in shares of it: around a ring, or halving. */
static double share_sent(CostCollective kind, double n)
{
    return kind == COST_PERMUTE ? 1 : (kind == COST_ALL_REDUCE ? 2 : 1) * (n - 1) / n;
}

/* The time of a collective within a domain. */
static Cost fast(const CostModel *model, CostCollective kind, double n, double bytes)
{
    const Chip *chip = &model->chip;
    Cost c = {.sent = bytes * share_sent(kind, n)};
    if (kind == COST_ALL_TO_ALL)
        c.sent /= n; /* each has its share of the whole */
    c.bound[COST_LINK] = chip->link > 0 ? c.sent / chip->link : 0;
    /* On a torus a group lies as compactly as it can, and uses the links along all of its sides: its ring along each of them
       passes half of them each way. */
    double sides = fmax(1, fmin(chip->torus, floor(log2(n))));
    double width = chip->torus ? chip->link * sides / chip->torus : chip->link;
    double steps = chip->torus ? sides * pow(n, 1 / sides) / 2 : log2(n);
    /* Of a link's width: headers and waiting. A guess, but for sums that were timed. */
    double share = 0.8;
    c.seconds = chip->latency * (kind == COST_ALL_REDUCE ? 2 : 1) * fmax(steps, 1) +
                c.sent / (width * share);
    int group = n <= 2 ? 0 : n <= 4 ? 1 : 2;
    const double *timed = model->fit.reduce[group];
    if (timed[0] > 0 && kind != COST_PERMUTE && n <= 8) {
        /* A gather or a scatter is half of a sum. */
        double sum = measured_sum(timed, bytes);
        c.seconds = kind == COST_ALL_REDUCE ? sum : fmax(sum / 2, timed[0]);
    } else if (timed[0] > 0 && kind == COST_ALL_REDUCE) {
        c.seconds = measured_sum(model->fit.reduce[2], bytes);
    }
    c.seconds = fmax(c.seconds, c.bound[COST_LINK]);
    return c;
}

Cost cost_collective(const CostModel *model, CostCollective kind, double n, double stride,
                     double bytes)
{
    const Chip *chip = &model->chip;
    double inside = fmax(1, fmin(n, floor(chip->domain / fmax(stride, 1))));
    double outside = n / inside;
    Cost c = {0};
    if (n <= 1)
        return c;
    if (inside > 1)
        c = fast(model, kind, inside, outside > 1 && kind == COST_PERMUTE ? 0 : bytes);
    if (outside > 1) {
        /* Hierarchical: every chip of a domain exchanges its share of the tensor with its peers of the others. */
        double sent = bytes / inside * share_sent(kind, outside);
        double seconds = chip->net > 0 ? sent / (chip->net * 0.8) : INFINITY;
        seconds += chip->net_latency * log2(fmax(outside, 2));
        c.sent += sent;
        c.bound[COST_LINK] += sent / chip->net;
        c.seconds += seconds;
    }
    c.spent[COST_LINK] = c.seconds;
    return stretched(model, c);
}

double cost_ahead(const CostModel *model, double waited)
{
    const Chip *chip = &model->chip;
    return fmin(waited, chip->ahead / (chip->bandwidth * model->fit.product[CHIP_BF16].memory));
}

void cost_add(Cost *sum, const Cost *more, double times)
{
    sum->seconds += times * more->seconds;
    sum->flops += times * more->flops;
    sum->bytes += times * more->bytes;
    sum->sent += times * more->sent;
    sum->reading += times * more->reading;
    for (int b = 0; b < COST_BOUNDS; b++) {
        sum->bound[b] += times * more->bound[b];
        sum->spent[b] += times * more->spent[b];
    }
}
