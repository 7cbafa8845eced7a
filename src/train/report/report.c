#include "train/report/report.h"

#include "base/bytes.h"
#include "base/file.h"
#include "text/utf8.h"
#include "train/report/chart.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* One look for light and dark: everything is made of these few colours. */
static const char style[] =
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#1b1f24;--soft:#667080;"
    "--edge:#e3e6ea;--line:#2f6fde;--point:#d9662b}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#111418;--card:#1a1e24;--ink:#e6e9ed;"
    "--soft:#98a2b0;--edge:#2b313a;--line:#6ea1ff;--point:#f0935a}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}"
    "main{max-width:1080px;margin:0 auto;padding:32px 20px 60px}"
    "h1{font-size:24px;line-height:1.25;margin:0}h2{font-size:16px;margin:36px 0 12px}"
    ".soft,figcaption,dt,.none{color:var(--soft)}header p{margin:4px 0 0}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;"
    "margin:24px 0 12px}"
    ".tile,figure,article,pre,.table{background:var(--card);border:1px solid var(--edge);"
    "border-radius:10px}"
    ".tile{padding:12px 16px}.tile "
    "b{display:block;font-size:21px;font-weight:600;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));"
    "gap:12px}"
    "figure{margin:0;padding:14px 14px 6px}.charts figure:first-child{grid-column:1/-1}"
    "figcaption{font-size:13px}figcaption b{color:var(--ink);font-size:14px;margin-right:4px}"
    ".mark{color:var(--point);margin-left:8px}"
    "svg{display:block;width:100%;height:auto}svg text{font-size:12px;fill:var(--soft);"
    "font-variant-numeric:tabular-nums}"
    ".grid{stroke:var(--edge);stroke-width:1}.band{fill:var(--line);opacity:.16}"
    "path{stroke-linejoin:round;stroke-linecap:round}"
    ".line{fill:none;stroke:var(--line);stroke-width:2}"
    ".raw{fill:none;stroke:var(--line);stroke-width:1;opacity:.35}.point{fill:var(--point)}"
    ".column{fill:transparent}.column:hover{fill:var(--soft);opacity:.18}\n"
    "article{padding:12px 16px;margin:0 0 10px}article p{margin:4px 0 0;white-space:pre-wrap;"
    "overflow-wrap:anywhere}article i{font-style:normal;color:var(--soft)}"
    "details summary{cursor:pointer;color:var(--soft);margin:0 0 10px}"
    "pre{padding:12px 16px;margin:0;overflow-x:auto;font:13px/1.5 ui-monospace,monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere}"
    ".table{padding:6px 16px;columns:320px 3;column-gap:40px}"
    ".table div{display:flex;justify-content:space-between;gap:16px;break-inside:avoid;"
    "padding:3px 0}"
    "table{border-spacing:0;font-variant-numeric:tabular-nums}"
    "td,th{text-align:right;padding:3px 14px;font-weight:400}th{color:var(--soft)}"
    "td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}"
    "dl,dd{margin:0}dd{text-align:right;overflow-wrap:anywhere}\n";

static const Chart charts[] = {
    {"Loss", "nats per token", offsetof(MetricsRow, loss), offsetof(MetricsRow, validation_loss),
     "validation", .smooth = true, .wide = true},
    {"Learning rate", "", offsetof(MetricsRow, lr), 0, NULL, .from_zero = true},
    {"Gradient norm", "before clipping", offsetof(MetricsRow, grad_norm), 0, NULL, .smooth = true,
     .from_zero = true},
    {"Tokens per second", "", offsetof(MetricsRow, tokens_per_second), 0, NULL, .smooth = true,
     .from_zero = true},
    {"Model FLOPs utilization", "of the measured matrix peak", offsetof(MetricsRow, mfu), 0, NULL,
     .smooth = true, .from_zero = true, .percent = true},
};

void report_escape(StrBuf *out, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        int n = utf8_length(text, left);
        unsigned char c = (unsigned char)*text;
        if (n <= 0 || (c < ' ' && c != '\n' && c != '\t') || c == 0x7f)
            strbuf_puts(out, "\xef\xbf\xbd");
        else if (c == '&')
            strbuf_puts(out, "&amp;");
        else if (c == '<')
            strbuf_puts(out, "&lt;");
        else if (c == '>')
            strbuf_puts(out, "&gt;");
        else if (c == '"')
            strbuf_puts(out, "&quot;");
        else if (c == '\'')
            strbuf_puts(out, "&#39;");
        else
            strbuf_add(out, text, (size_t)n);
        text += n > 0 ? n : 1;
        left -= n > 0 ? (size_t)n : 1;
    }
}

/* "1 h 05 min", "3 min 20 s", "12.5 s". */
static void put_duration(StrBuf *out, double seconds)
{
    long long whole = (long long)seconds;
    if (whole >= 3600)
        strbuf_printf(out, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
    else if (whole >= 60)
        strbuf_printf(out, "%lld min %02lld s", whole / 60, whole % 60);
    else
        strbuf_printf(out, "%.3g s", seconds);
}

/* Mean of what is finite among the last rows. */
static double recent(const RunMetrics *metrics, size_t offset)
{
    size_t n = metrics->n, first = n > 20 ? n - 20 : 0;
    double sum = 0;
    int finite = 0;
    for (size_t i = first; i < n; i++) {
        double number = metrics_number(&metrics->row[i], offset);
        if (isfinite(number)) {
            sum += number;
            finite++;
        }
    }
    return finite ? sum / finite : (double)NAN;
}

static void put_percent(StrBuf *out, double part)
{
    strbuf_printf(out, "%.3g%%", 100 * part);
}

/* A number as `put` writes it. */
static void put_tile(StrBuf *out, double number, void (*put)(StrBuf *out, double number),
                     const char *label)
{
    strbuf_puts(out, "<div class=tile><b>");
    if (isfinite(number))
        put(out, number);
    else
        strbuf_puts(out, "&ndash;");
    strbuf_printf(out, "</b><span>%s</span></div>\n", label);
}

static void put_tiles(StrBuf *out, const Report *report)
{
    const RunMetrics *metrics = report->metrics;
    double seconds = 0, validation = (double)NAN;
    for (size_t i = 0; i < metrics->n; i++) {
        seconds += isfinite(metrics->row[i].seconds) ? metrics->row[i].seconds : 0;
        if (isfinite(metrics->row[i].validation_loss))
            validation = metrics->row[i].validation_loss;
    }
    strbuf_puts(out, "<div class=tiles>\n");
    put_tile(out, recent(metrics, offsetof(MetricsRow, loss)), chart_number,
             "loss, mean of the last steps");
    if (isfinite(validation))
        put_tile(out, validation, chart_number, "validation loss");
    put_tile(out, (double)report->tokens, chart_number, "tokens seen");
    put_tile(out, recent(metrics, offsetof(MetricsRow, tokens_per_second)), chart_number,
             "tokens per second");
    put_tile(out, recent(metrics, offsetof(MetricsRow, mfu)), put_percent,
             "model FLOPs utilization");
    put_tile(out, seconds, put_duration, "training time");
    strbuf_puts(out, "</div>\n");
}

static void put_sample(StrBuf *out, const Sample *sample)
{
    strbuf_puts(out, "<article><span class=soft>after step ");
    chart_number(out, (double)sample->step);
    strbuf_puts(out, "</span><p><i>");
    report_escape(out, sample->prompt);
    strbuf_puts(out, "</i>");
    report_escape(out, sample->text);
    strbuf_puts(out, "</p></article>\n");
}

/* The newest first; those of the last sampling open, the others folded. */
static void put_samples(StrBuf *out, const Samples *samples)
{
    if (!samples || samples->n == 0)
        return;
    strbuf_puts(out, "<h2>Samples</h2>\n");
    size_t i = samples->n;
    for (; i > 0 && samples->sample[i - 1].step == samples->sample[samples->n - 1].step; i--)
        put_sample(out, &samples->sample[i - 1]);
    if (i == 0)
        return;
    strbuf_puts(out, "<details><summary>Earlier texts</summary>\n");
    for (; i > 0; i--)
        put_sample(out, &samples->sample[i - 1]);
    strbuf_puts(out, "</details>\n");
}

/* A text as it is, a list with commas, anything else as JSON. */
static void put_value(StrBuf *out, const json_t *value)
{
    size_t i;
    const json_t *entry;
    if (json_is_array(value)) {
        json_array_foreach(value, i, entry)
        {
            strbuf_puts(out, i ? ", " : "");
            put_value(out, entry);
        }
        return;
    }
    SCOPED(scoped_free)
    char *shown =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    report_escape(out, json_is_string(value) ? json_string_value(value) : shown ? shown : "");
}

static void put_config(StrBuf *out, const char *text)
{
    json_auto_t *config = text ? json_loads(text, 0, NULL) : NULL;
    json_t *value;
    const char *key;
    if (!json_is_object(config) || json_object_size(config) == 0)
        return;
    strbuf_puts(out, "<h2>Options</h2>\n<dl class=table>\n");
    json_object_foreach(config, key, value)
    {
        strbuf_puts(out, "<div><dt>");
        report_escape(out, key);
        strbuf_puts(out, "</dt><dd>");
        put_value(out, value);
        strbuf_puts(out, "</dd></div>\n");
    }
    strbuf_puts(out, "</dl>\n");
}

static void put_block(StrBuf *out, const char *title, const char *text)
{
    if (!text)
        return;
    strbuf_printf(out, "<h2>%s</h2>\n<pre>", title);
    report_escape(out, text);
    strbuf_puts(out, "</pre>\n");
}

static void put_communication_row(StrBuf *out, const char *kind, const CommRow *row)
{
    strbuf_printf(out, "<tr><td>%s<td>", kind);
    report_escape(out, row->axes);
    strbuf_printf(out, "<td>%lld<td>", (long long)row->count);
    strbuf_puts(out, bytes_text(row->bytes).text);
    strbuf_printf(out, "<td>%.3f ms<td>%.3f ms\n", 1e3 * row->seconds, 1e3 * row->exposed);
}

static void put_communication(StrBuf *out, const CommTable *table)
{
    if (!table || table->n == 0)
        return;
    CommRow sum = comm_table_sum(table);
    strbuf_puts(out, "<h2>Communication of a step, per device</h2>\n<table class=table>\n"
                     "<tr><th>collective<th>axis<th>count<th>bytes sent<th>in flight<th>exposed\n");
    for (int i = 0; i < table->n; i++)
        put_communication_row(out, op_info[table->row[i].kind].name, &table->row[i]);
    put_communication_row(out, "together", &sum);
    strbuf_puts(out, "</table>\n");
}

static void put_header(StrBuf *out, const Report *report)
{
    char when[64] = "";
    time_t now = time(NULL);
    struct tm local;
    const RunMetrics *metrics = report->metrics;
    int64_t step = metrics->n ? metrics->row[metrics->n - 1].step : 0;
    if (localtime_r(&now, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    strbuf_puts(out, "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
                     "<meta name=viewport content=\"width=device-width\">\n<title>");
    report_escape(out, report->title ? report->title : "Training");
    strbuf_printf(out, "</title>\n<style>%s</style></head>\n<body><main>\n<header><h1>", style);
    report_escape(out, report->title ? report->title : "Training");
    strbuf_printf(out, "</h1><p class=soft>%s step ", report->finished ? "Finished at" : "At");
    chart_number(out, (double)step);
    if (report->steps > step) {
        strbuf_puts(out, " of ");
        chart_number(out, (double)report->steps);
    }
    strbuf_printf(out, " &middot; written %s</p></header>\n", when);
}

int report_write(const char *run, const Report *report, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf out = {0};
    put_header(&out, report);
    put_tiles(&out, report);
    strbuf_puts(&out, "<div class=charts>\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        chart_draw(&out, &charts[i], report->metrics->row, report->metrics->n);
    strbuf_puts(&out, "</div>\n");
    put_samples(&out, report->samples);
    put_communication(&out, report->communication);
    put_config(&out, report->config);
    put_block(&out, "Machine", report->machine);
    put_block(&out, "Command", report->command);
    strbuf_puts(&out, "</main></body></html>\n");
    return out.failed ? err_set(err, CVN_EMEM, "no memory to write '%s/" REPORT_NAME "'", run)
                      : file_write(file_path(run, REPORT_NAME).text, out.text, out.length, err);
}
