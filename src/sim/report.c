#include "sim/report.h"

#include "model/presets.h"
#include "sim/svg.h"
#include "sim/svg_chart.h"
#include "sim/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* S3 ("Minimal Llama 3 inference", 2025): steps a second of Llama 3.1 70B in int8 on 16 v5e, prompts of 2,048 tokens or fewer. */
static const struct {
    const char *model, *chip, *name;
    int tp;
    double rows, steps; /* of a replica */
} measured[] = {
    {"llama-3.1-70b", "v5e", "published, TP 16", 16, 8, 159},
    {"llama-3.1-70b", "v5e", "published, TP 16", 16, 16, 135},
    {"llama-3.1-70b", "v5e", "published, TP 16", 16, 32, 108},
    {"llama-3.1-70b", "v5e", "published, TP 16", 16, 64, 68.7},
    {"llama-3.1-70b", "v5e", "published, TP 16", 16, 128, 39.3},
    {"llama-3.1-70b", "v5e", "published, TP 8", 8, 4, 84.4},
    {"llama-3.1-70b", "v5e", "published, TP 8", 8, 8, 80.2},
    {"llama-3.1-70b", "v5e", "published, TP 8", 8, 16, 74.5},
    {"llama-3.1-70b", "v5e", "published, TP 8", 8, 32, 58.4},
    {"llama-3.1-70b", "v5e", "published, TP 8", 8, 64, 50.2},
};

static void add_measured(const Report *r, SvgChart *c, bool throughput)
{
    const SimShape *shape = sim_shape_find(r->model);
    SvgSeries *s = &c->series[c->n];
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        if (shape && shape == sim_shape_find(measured[i].model) &&
            measured[i].tp == r->serving.tp &&
            strcmp(measured[i].chip, r->serving.chip->chip.name) == 0) {
            snprintf(s->name, sizeof s->name, "%s", measured[i].name);
            s->dots = true;
            svg_add_point(s, measured[i].rows,
                          throughput ? measured[i].rows * measured[i].steps / r->serving.tp
                                     : 1e3 / measured[i].steps);
        }
    c->n += s->n > 0;
}

static void over_rows(StrBuf *out, const Report *r, bool throughput)
{
    static const double contexts[] = {512, 2048, 8192};
    SvgChart c = {.title = throughput ? "Throughput of decoding" : "Time of a token",
                  .across = "rows of a replica",
                  .up = throughput ? "tokens a second and chip" : "ms"};
    double chips = r->serving.tp * r->serving.pp;
    for (int i = 0; i < 3; i++) {
        SvgSeries *s = &c.series[c.n++];
        snprintf(s->name, sizeof s->name, "%g tokens before", contexts[i]);
        for (double rows = 1; rows <= 256; rows *= 2) {
            double seconds = sim_step(&r->serving, rows, rows * contexts[i], 0, 0, 0).seconds;
            svg_add_point(s, rows, throughput ? rows / seconds / chips : 1e3 * seconds);
        }
    }
    add_measured(r, &c, throughput);
    svg_chart(out, &c);
}

static void cost_by_size(StrBuf *out, const Report *r)
{
    static const double batches[] = {1, 8, 64};
    double price = r->serving.chip->chip.price;
    SvgChart c = {.title = "Cost of decoding by size, one replica as this one",
                  .across = "weights, 1e9",
                  .up = price > 0 ? "dollars for a million tokens"
                                  : "chip hours for a million tokens"};
    for (int i = 0; i < 3; i++) {
        SvgSeries *s = &c.series[c.n++];
        snprintf(s->name, sizeof s->name, "%g row%s", batches[i], i ? "s" : "");
        for (size_t k = 0; k < presets_count(); k++) {
            Model config;
            SimServing a = r->serving;
            if (strncmp(preset_at(k).name, "llama", 5) != 0 ||
                preset_config(preset_at(k).name, &config, NULL))
                continue;
            a.shape = sim_shape_of(&config);
            double chips = a.tp * a.pp, weights = sim_shape_weights(&a.shape);
            if (weights * chip_type_bytes[a.type] > chips * a.chip->chip.memory ||
                a.tp > a.shape.heads)
                continue;
            double seconds =
                sim_step(&a, batches[i], batches[i] * r->context, 0, 0, 0).seconds / batches[i];
            s->dots = true;
            svg_add_point(s, weights / 1e9, (price > 0 ? price : 1) * chips * seconds / 3600 * 1e6);
        }
    }
    svg_chart(out, &c);
}

static void mfu_by_mesh(StrBuf *out, const Report *r)
{
    CostModel chip = *r->serving.chip;
    SvgChart c = {.title = "Training: share of the peak by mesh, 4096 tokens a row, 4 rows a chip",
                  .across = "model (the rest is data)",
                  .up = "MFU, %"};
    cost_sustained(&chip);
    for (double chips = 8; chips <= 512; chips *= 8) {
        SvgSeries *s = &c.series[c.n++];
        snprintf(s->name, sizeof s->name, "%g chips", chips);
        for (double tp = 1; tp <= 32 && tp <= chips; tp *= 2) {
            SimTraining a = {.chip = &chip,
                             .shape = r->serving.shape,
                             .chips = chips,
                             .tp = tp,
                             .pp = 1,
                             .cp = 1,
                             .sharded = true,
                             .sums_overlap = chip.chip.torus > 0,
                             .rows = 4 * chips,
                             .seq = 4096,
                             .again = 1,
                             .attention_again = 1};
            SimTrained step;
            if (sim_train(&a, &step, NULL))
                continue;
            double flops = sim_shape_flops(&a.shape, 2048) * a.rows * a.seq;
            svg_add_point(s, tp, 100 * flops / (step.seconds * chips * chip.chip.bf16));
        }
    }
    svg_chart(out, &c);
}

static void roofline(StrBuf *out, const Report *r)
{
    const SimServing *a = &r->serving;
    const CostModel *chip = a->chip;
    double peak = chip_peak(&chip->chip, a->type), rate = chip->chip.bandwidth;
    const SimShape *s = &a->shape;
    double q = s->heads * s->head_dim / a->tp, ffn = s->ffn / a->tp;
    const struct {
        const char *name;
        double m;
    } sizes[] = {{"decoding", r->rows}, {"prefill of 2048", 2048}};
    SvgChart c = {.title = "Roofline, and a layer's operations on it",
                  .across = "operations a byte",
                  .up = "TFLOP/s"};
    SvgSeries *roof = &c.series[c.n++];
    snprintf(roof->name, sizeof roof->name, "%.0f TFLOP/s, %.2f TB/s", peak / 1e12, rate / 1e12);
    svg_add_point(roof, 0.5, 0.5 * rate / 1e12);
    svg_add_point(roof, peak / rate, peak / 1e12);
    svg_add_point(roof, 8192, peak / 1e12);
    for (int i = 0; i < 2; i++) {
        SvgSeries *dots = &c.series[c.n++];
        double m = sizes[i].m;
        const Cost ops[] = {
            cost_product(chip, a->type, m, q + 2 * s->kv_heads * s->head_dim / a->tp, s->dim),
            cost_product(chip, a->type, m, s->dim, q),
            cost_product(chip, a->type, m, (s->gates - 1) * ffn, s->dim),
            cost_product(chip, a->type, m, s->dim, ffn),
            i ? cost_prefill(chip, m, s->heads / a->tp, m / 2, s->head_dim, 1)
              : cost_decode(chip, m * r->context * 4 * s->head_dim * fmax(1, s->kv_heads / a->tp),
                            a->narrow)};
        snprintf(dots->name, sizeof dots->name, "%s, %g tokens", sizes[i].name, m);
        dots->dots = true;
        for (int k = 0; k < 5; k++)
            svg_add_point(dots, ops[k].bytes > 0 ? ops[k].flops / ops[k].bytes : m / 2,
                          ops[k].flops / ops[k].seconds / 1e12);
    }
    svg_chart(out, &c);
}

/* Two layers or so from the middle of the step. */
void report_svg(StrBuf *out, const Report *r)
{
    enum { WIDE = 1260, LANE = 34, LEFT = 64, TOP = 44 };
    const Timed *t = r->timed;
    double length = fmin(t->seconds, 3 * t->seconds / fmax(1, r->layers));
    double from = (t->seconds - length) / 2, wide = WIDE - LEFT - 14;
    const char *kind[SVG_COLORS];
    int kinds = 0;
    svg_begin(out, WIDE, TOP + 2 * LANE + 60);
    svg_printf(out, 14, 24, "name", SVG_START, "%s: %.2f of its %.2f ms", r->task, 1e3 * length,
               1e3 * t->seconds);
    svg_text(out, 14, TOP + 18, "note", SVG_START, "chip");
    svg_text(out, 14, TOP + LANE + 18, "note", SVG_START, "links");
    for (int64_t i = 0; i < t->n_spans; i++) {
        const TimedSpan *s = &t->span[i];
        double begin = fmax(s->begin, from), end = fmin(s->begin + s->seconds, from + length);
        char class[4];
        int k = 0;
        if (end <= begin)
            continue;
        while (k < kinds && strcmp(kind[k], s->name) != 0)
            k++;
        if (k == kinds && kinds < SVG_COLORS - 1)
            kind[kinds++] = s->name;
        snprintf(class, sizeof class, "c%d", k < SVG_COLORS - 1 ? k : SVG_COLORS - 1);
        svg_box(out, LEFT + (begin - from) / length * wide, TOP + (s->link ? LANE : 0),
                fmax(0.3, (end - begin) / length * wide - 0.5), LANE - 8, class);
    }
    for (int k = 0; k <= kinds; k++) {
        char class[4];
        snprintf(class, sizeof class, "c%d", k < kinds ? k : SVG_COLORS - 1);
        svg_box(out, LEFT + 170.0 * k, TOP + 2 * LANE + 14, 10, 10, class);
        svg_text(out, LEFT + 170.0 * k + 16, TOP + 2 * LANE + 23, "note", SVG_START,
                 k < kinds ? kind[k] : "others");
    }
    svg_end(out);
}

void report_html(StrBuf *out, const Report *r)
{
    strbuf_puts(out,
                "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>caravan simulate"
                "</title><style>body{font-family:system-ui,sans-serif;margin:24px;color:#1c2733}"
                "main{display:flex;flex-wrap:wrap;gap:16px}svg{border:1px solid #dde4ea}"
                "h1{font-size:22px}</style>\n<h1>");
    /* Names are of presets or folders: what HTML would read otherwise is left out. */
    for (const char *p = r->model; *p; p++)
        if (*p != '<' && *p != '&' && *p != '>')
            strbuf_putc(out, *p);
    strbuf_printf(out, " on %s, %s, %d chip%s a replica</h1>\n<main>\n", r->serving.chip->chip.name,
                  chip_type_names[r->serving.type], r->serving.tp, r->serving.tp == 1 ? "" : "s");
    over_rows(out, r, false);
    over_rows(out, r, true);
    cost_by_size(out, r);
    mfu_by_mesh(out, r);
    roofline(out, r);
    report_svg(out, r);
    strbuf_puts(out, "</main></html>\n");
}
