#include "sim/report.h"

#include "base/bytes.h"
#include "model/presets.h"
#include "sim/svg.h"
#include "sim/svg_chart.h"
#include "sim/timeline.h"
#include "sim/training.h"
#include "train/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- decoding ---- */

/* S3 ("Minimal Llama 3 inference", 2025): steps a second of Llama 3.1 70B in int8 on 16 v5e, prompts of 2,048 tokens or fewer. */
static const struct {
    const char *model, *chip, *name;
    int tp;
    double rows, steps; /* of a replica */
} measured[] = {
    {"llama3.1-70b", "v5e", "published, TP 16", 16, 8, 159},
    {"llama3.1-70b", "v5e", "published, TP 16", 16, 16, 135},
    {"llama3.1-70b", "v5e", "published, TP 16", 16, 32, 108},
    {"llama3.1-70b", "v5e", "published, TP 16", 16, 64, 68.7},
    {"llama3.1-70b", "v5e", "published, TP 16", 16, 128, 39.3},
    {"llama3.1-70b", "v5e", "published, TP 8", 8, 4, 84.4},
    {"llama3.1-70b", "v5e", "published, TP 8", 8, 8, 80.2},
    {"llama3.1-70b", "v5e", "published, TP 8", 8, 16, 74.5},
    {"llama3.1-70b", "v5e", "published, TP 8", 8, 32, 58.4},
    {"llama3.1-70b", "v5e", "published, TP 8", 8, 64, 50.2},
};

static bool same_shape(const SimShape *a, const char *preset)
{
    ModelShape shape;
    if (preset_shape(preset, &shape, NULL))
        return false;
    SimShape b = sim_shape_of(&shape);
    return a->dim == b.dim && a->layers == b.layers && a->kv_heads == b.kv_heads &&
           a->ffn == b.ffn && a->vocab == b.vocab;
}

static void add_measured(const SimReport *r, SvgChart *c, bool throughput)
{
    SvgSeries *s = &c->series[c->n];
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        if (same_shape(&r->serving.shape, measured[i].model) && measured[i].tp == r->serving.tp &&
            strcmp(measured[i].chip, r->serving.chip->chip.name) == 0) {
            snprintf(s->name, sizeof s->name, "%s", measured[i].name);
            s->dots = true;
            svg_add_point(s, measured[i].rows,
                          throughput ? measured[i].rows * measured[i].steps / r->serving.tp
                                     : 1e3 / measured[i].steps);
        }
    c->n += s->n > 0;
}

static void over_rows(StrBuf *out, const SimReport *r, bool throughput)
{
    static const double contexts[] = {512, 2048, 8192};
    SvgChart c = {.title = throughput ? "Decode throughput" : "Time per output token",
                  .across = "batch size of a replica",
                  .up = throughput ? "tokens a second and chip" : "ms",
                  .x = SVG_DOUBLES};
    for (int i = 0; i < 3; i++) {
        SvgSeries *s = &c.series[c.n++];
        snprintf(s->name, sizeof s->name, "%g tokens before", contexts[i]);
        for (double rows = 1; rows <= 256; rows *= 2) {
            double seconds = sim_step(&r->serving, rows, rows * contexts[i], 0, 0, 0).seconds;
            svg_add_point(s, rows, throughput ? rows / seconds / r->serving.tp : 1e3 * seconds);
        }
    }
    add_measured(r, &c, throughput);
    svg_chart(out, &c);
}

/* ---- prefills ---- */

/* Seconds that a replica of tp chips takes for a prompt; NAN where its weights do not fit or do not split so. */
static double prompt_seconds(const SimReport *r, const SimShape *shape, double tp, double tokens)
{
    SimServing a = r->serving;
    a.shape = *shape;
    a.tp = (int)tp;
    if (tp > shape->heads ||
        sim_shape_weights(shape) * chip_type_bytes[a.type] > tp * a.chip->chip.memory)
        return (double)NAN;
    return sim_step(&a, 0, 0, tokens, 1, tokens / 2).seconds;
}

static void over_prompts(StrBuf *out, const SimReport *r, bool throughput)
{
    SvgChart c = {.title = throughput ? "Prefill throughput" : "Prefill time",
                  .across = "tokens of the prompt",
                  .up = throughput ? "tokens a second and chip" : "ms",
                  .x = SVG_DOUBLES,
                  .y = throughput ? SVG_LINEAR : SVG_DECADES};
    for (double tp = 1; tp <= 32; tp *= 2) {
        SvgSeries *s = &c.series[c.n];
        snprintf(s->name, sizeof s->name, "%g chip%s a replica", tp, tp > 1 ? "s" : "");
        for (double tokens = 64; tokens <= 32768; tokens *= 2) {
            double seconds = prompt_seconds(r, &r->serving.shape, tp, tokens);
            svg_add_point(s, tokens, throughput ? tokens / seconds / tp : 1e3 * seconds);
        }
        c.n += s->n > 0;
    }
    svg_chart(out, &c);
}

/* ---- training ---- */

/* Seconds of a step of so many tokens, `seq` in a row, where each layer is computed again; NAN where it does not split so, or not fit:
   weights, gradients and the optimizer's averages, split over all chips, and what enters each layer. */
static double step_seconds(const SimReport *r, const SimShape *shape, double chips, double tp,
                           double tokens, double seq)
{
    CostModel chip = *r->serving.chip;
    double rows = tokens / seq, dp = chips / tp;
    cost_sustained(&chip);
    SimTraining a = {.chip = &chip,
                     .shape = *shape,
                     .chips = chips,
                     .tp = tp,
                     .pp = 1,
                     .cp = 1,
                     .sharded = true,
                     .stack = sim_stack_find(chip.chip.torus > 0 ? "pytorch-xla" : "xla"),
                     .rows = rows,
                     .seq = seq,
                     .again = 1,
                     .attention_again = 1};
    SimTrained step;
    double held = 16 * sim_shape_weights(shape) / chips +
                  2 * shape->layers * shape->dim * rows / dp * seq / tp;
    if (dp < 1 || rows < dp || tp > shape->heads || held > chip.chip.memory ||
        sim_train(&a, &step, NULL))
        return (double)NAN;
    return step.seconds;
}

/* The share of the chips' bf16 peak that a step reaches, in percent. */
static double share_of_peak(const SimReport *r, double chips, double tp, double tokens, double seq)
{
    const SimShape *shape = &r->serving.shape;
    return 100 * sim_shape_flops(shape, seq / 2) * tokens /
           (step_seconds(r, shape, chips, tp, tokens, seq) * chips * r->serving.chip->chip.bf16);
}

/* One curve for each way to split a layer: by chips, for steps of 4M tokens; or by the length of rows, one for each part of the
   batch. */
static void over_meshes(StrBuf *out, const SimReport *r, bool lengths)
{
    static const double splits[] = {1, 4, 16};
    double chips = r->figures->chips;
    char title[96];
    if (lengths)
        snprintf(title, sizeof title, "MFU by sequence length, on %.0f chip%s", chips,
                 chips == 1 ? "" : "s");
    else
        snprintf(title, sizeof title, "MFU by number of chips, steps of 4M tokens");
    SvgChart c = {
        .title = title,
        .across = lengths ? "sequence length, one sequence per data shard" : "chips",
        .up = "MFU, %; weights sharded over all chips, full recomputation, largest batch that fits",
        .x = SVG_DOUBLES,
        .y = SVG_LINEAR};
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        SvgSeries *s = &c.series[c.n];
        double tp = splits[i];
        snprintf(s->name, sizeof s->name, "model = %g", tp);
        for (double v = lengths ? 512 : 1; v <= (lengths ? 1 << 17 : 1 << 14); v *= 2)
            svg_add_point(s, v,
                          lengths ? share_of_peak(r, chips, tp, chips / tp * v, v)
                                  : share_of_peak(r, v, tp, 1 << 22, r->seq));
        c.n += s->n > 0;
    }
    svg_chart(out, &c);
}

/* ---- any task ---- */

static void roofline(StrBuf *out, const SimReport *r)
{
    const SimServing *a = &r->serving;
    const CostModel *chip = a->chip;
    double peak = chip_peak(&chip->chip, a->type), rate = chip->chip.bandwidth;
    const SimShape *s = &a->shape;
    double q = s->heads * s->head_dim / a->tp, ffn = s->ffn / a->tp;
    double own = r->rows * r->seq / (r->figures->chips / a->tp);
    const struct {
        const char *name;
        double m, keys;
    } sizes[] = {{"decoding", r->rows, r->context},
                 {r->task == SIM_TRAIN ? "forward" : "prefill",
                  r->task == SIM_DECODE ? 2048 : fmax(1, own), 0}};
    SvgChart c = {.title = "Roofline with the operations of a layer",
                  .across = "operations a byte",
                  .up = "TFLOP/s"};
    SvgSeries *roof = &c.series[c.n++];
    snprintf(roof->name, sizeof roof->name, "%.0f TFLOP/s, %.3g TB/s", peak / 1e12, rate / 1e12);
    svg_add_point(roof, 0.5, 0.5 * rate / 1e12);
    svg_add_point(roof, peak / rate, peak / 1e12);
    svg_add_point(roof, 8192, peak / 1e12);
    for (int i = r->task != SIM_DECODE; i < 2; i++) {
        SvgSeries *dots = &c.series[c.n++];
        double m = sizes[i].m, prompt = i && r->task != SIM_DECODE ? r->seq : m;
        const Cost ops[] = {
            cost_product(chip, a->type, m, q + 2 * s->kv_heads * s->head_dim / a->tp, s->dim),
            cost_product(chip, a->type, m, s->dim, q),
            cost_product(chip, a->type, m, (s->gates - 1) * ffn, s->dim),
            cost_product(chip, a->type, m, s->dim, ffn),
            i ? cost_prefill(chip, m, s->heads / a->tp, prompt / 2, s->head_dim, 1)
              : cost_decode(chip,
                            m * sizes[i].keys * 4 * s->head_dim * fmax(1, s->kv_heads / a->tp),
                            a->narrow)};
        snprintf(dots->name, sizeof dots->name, "%s, %.0f token%s", sizes[i].name, m,
                 m == 1 ? "" : "s");
        dots->dots = true;
        for (int k = 0; k < 5; k++)
            svg_add_point(dots, ops[k].bytes > 0 ? ops[k].flops / ops[k].bytes : prompt / 2,
                          ops[k].flops / ops[k].seconds / 1e12);
    }
    svg_chart(out, &c);
}

enum { COLUMNS = 3 };

/* What a task costs, by model: a cell is in chip hours, for a million tokens or, of training, for 1e9. */
static double cost_cell(const SimReport *r, const SimShape *shape, double size)
{
    SimServing a = r->serving;
    a.shape = *shape;
    double tp = a.tp, chips = r->figures->chips;
    switch (r->task) {
    case SIM_TRAIN:
        return step_seconds(r, shape, chips, tp, size, r->seq) * chips / size * 1e9 / 3600;
    case SIM_PREFILL:
        return prompt_seconds(r, shape, tp, size) * tp / size * 1e6 / 3600;
    default:
        if (sim_shape_weights(shape) * chip_type_bytes[a.type] > tp * a.chip->chip.memory ||
            tp > shape->heads)
            return (double)NAN;
        return sim_step(&a, size, size * r->context, 0, 0, 0).seconds * tp / size * 1e6 / 3600;
    }
}

static void cost_by_model(StrBuf *out, const SimReport *r)
{
    static const struct {
        const char *what, *head;
        double size[COLUMNS];
    } tables[] = {
        [SIM_TRAIN] = {"Training on 1e9 tokens", "M tokens a step", {1 << 20, 1 << 22, 1 << 24}},
        [SIM_PREFILL] = {"Prefill of 1e6 prompt tokens", "tokens each", {512, 2048, 8192}},
        [SIM_DECODE] = {"Decoding 1e6 tokens", "at a time", {1, 8, 64}}};
    const Chip *chip = &r->serving.chip->chip;
    double price = chip->price > 0 ? chip->price : 1;
    strbuf_printf(out, "<figure><h2>%s, by model</h2><p>%s", tables[r->task].what,
                  chip->price > 0 ? "Dollars, at " : "Chip-hours; list price unknown");
    if (chip->price > 0) {
        strbuf_printf(out, "%.2f per chip-hour: ", chip->price);
        svg_escape(out, chip->priced);
    }
    strbuf_puts(out, "</p>\n<table><tr><th>model<th>weights");
    for (int k = 0; k < COLUMNS; k++)
        strbuf_printf(out, "<th>%g %s",
                      tables[r->task].size[k] / (r->task == SIM_TRAIN ? 1 << 20 : 1),
                      tables[r->task].head);
    for (size_t i = 0; i < presets_count(); i++) {
        ModelShape known;
        double cell[COLUMNS];
        bool some = false;
        if (preset_shape(preset_at(i).name, &known, NULL))
            continue;
        SimShape shape = sim_shape_of(&known);
        for (int k = 0; k < COLUMNS; k++) {
            cell[k] = cost_cell(r, &shape, tables[r->task].size[k]);
            some |= isfinite(cell[k]);
        }
        if (!some || sim_shape_weights(&shape) < 5e8)
            continue;
        strbuf_printf(out, "\n<tr><td>%s<td>%.3gB", preset_at(i).name,
                      sim_shape_weights(&shape) / 1e9);
        for (int k = 0; k < COLUMNS; k++)
            if (isfinite(cell[k])) {
                strbuf_puts(out, "<td>");
                chart_number(out, price * cell[k]);
            } else {
                strbuf_puts(out, "<td>&ndash;");
            }
    }
    strbuf_puts(out, "</table></figure>\n");
}

void report_svg(StrBuf *out, const SimReport *r)
{
    timeline_draw(out, r->figures->task, r->timed, r->layers);
}

/* ---- the page ---- */

static void tile(StrBuf *out, const char *number, const char *unit, const char *what)
{
    strbuf_printf(out, "<div><b>%s</b> %s<br>", number, unit);
    svg_escape(out, what);
    strbuf_puts(out, "</div>\n");
}

static void tiles(StrBuf *out, const SimReport *r)
{
    const SimFigures *f = r->figures;
    char text[64];
    StrBuf rate = {0};
    strbuf_puts(out, "<section>\n");
    snprintf(text, sizeof text, "%.4g", f->seconds < 1 ? 1e3 * f->seconds : f->seconds);
    tile(out, text, f->seconds < 1 ? "ms" : "s", "the step");
    chart_number(&rate, f->tokens / f->seconds);
    tile(out, rate.text ? rate.text : "", "tokens/s", "of all chips");
    strbuf_free(&rate);
    snprintf(text, sizeof text, "%.1f", 100 * figures_mfu(f));
    tile(out, text, "%", "of the peak in bf16 (MFU)");
    snprintf(text, sizeof text, "%.1f", 100 * figures_mbu(f));
    tile(out, text, "%", "of the memory's bandwidth");
    snprintf(text, sizeof text, "%.1f", 100 * f->exposed / f->seconds);
    tile(out, text, "%", "waiting for links");
    snprintf(text, sizeof text, "of %s on a chip", bytes_text(f->chip->memory).text);
    tile(out, bytes_text(r->memory).text, "", text);
    if (f->chip->price > 0) {
        snprintf(text, sizeof text, "%.4g", figures_per_million(f));
        tile(out, text, "$", "a million tokens");
    }
    strbuf_puts(out, "</section>\n");
}

void report_html(StrBuf *out, const SimReport *r)
{
    const SimFigures *f = r->figures;
    strbuf_puts(
        out, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
             "content=\"width=device-width\"><title>caravan simulate</title><style>"
             "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;padding:24px;max-width:1280px;"
             "color:#1c2733;background:#f6f7f9}h1{font-size:24px;margin:0}"
             "h2{font-size:14px;margin:0}p{margin:2px 0 12px;color:#4a5a6a;font-size:14px}"
             "section{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}"
             "section div,figure{background:#fff;border:1px solid #dde4ea;border-radius:8px}"
             "section div{padding:8px 16px;color:#4a5a6a;font-size:12px}"
             "section b{font-size:20px;color:#1c2733}"
             "main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,520px),1fr));"
             "gap:16px}figure{margin:0;padding:10px;overflow-x:auto}figure.wide{grid-column:1/-1}"
             "figure p{font-size:11px}svg{display:block;width:100%;height:auto}"
             "table{border-collapse:collapse;font-size:13px;width:100%;"
             "font-variant-numeric:tabular-nums}"
             "td,th{text-align:right;padding:3px 8px;border-bottom:1px solid #eef1f4}"
             "th{font-weight:400;color:#4a5a6a}td:first-child,th:first-child{text-align:left}"
             "</style>\n<h1>");
    svg_escape(out, f->model);
    strbuf_printf(out, " on %.0f &times; ", f->chips);
    svg_escape(out, f->chip->name);
    strbuf_printf(out, "</h1>\n<p>%s of %.0f row%s", f->task, r->rows, r->rows == 1 ? "" : "s");
    if (r->task != SIM_DECODE)
        strbuf_printf(out, " of %.0f tokens", r->seq);
    strbuf_puts(out, ", mesh ");
    svg_escape(out, r->mesh[0] ? r->mesh : "of one device");
    strbuf_printf(out, ", layout %s, products in %s</p>\n", r->layout,
                  chip_type_names[r->serving.type]);
    tiles(out, r);
    strbuf_puts(out, "<main><figure class=\"wide\">\n");
    report_svg(out, r);
    strbuf_puts(out, "</figure><figure>\n");
    timeline_parts(out, r->timed);
    static void (*const pictures[])(StrBuf *, const SimReport *, bool) = {
        [SIM_TRAIN] = over_meshes, [SIM_PREFILL] = over_prompts, [SIM_DECODE] = over_rows};
    for (int i = 0; i < 2; i++) {
        strbuf_puts(out, "</figure><figure>\n");
        pictures[r->task](out, r, i);
    }
    strbuf_puts(out, "</figure><figure>\n");
    roofline(out, r);
    strbuf_puts(out, "</figure>\n");
    cost_by_model(out, r);
    strbuf_puts(out, "</main></html>\n");
}
