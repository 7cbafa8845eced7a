#include "server/metrics.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const double SECONDS[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                 1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double BETWEEN[] = {0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4,
                                 0.5,   0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
static const double COUNTS[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

#define BOUNDS(list) list, sizeof list / sizeof *list

static const struct {
    const char *name, *help;
    const double *bound;
    size_t n;
} histograms[HIST_COUNT] = {
    [HIST_FIRST_TOKEN] = {"time_to_first_token_seconds", "Time to first token", BOUNDS(SECONDS)},
    [HIST_INTER_TOKEN] = {"inter_token_latency_seconds", "Inter-token latency", BOUNDS(BETWEEN)},
    [HIST_WHOLE] = {"e2e_request_latency_seconds", "End-to-end latency of requests",
                    BOUNDS(SECONDS)},
    [HIST_QUEUE] = {"request_queue_time_seconds", "Time in the queue", BOUNDS(SECONDS)},
    [HIST_PREFILL] = {"request_prefill_time_seconds", "Prefill time", BOUNDS(SECONDS)},
    [HIST_DECODE] = {"request_decode_time_seconds", "Decode time", BOUNDS(SECONDS)},
    [HIST_INFERENCE] = {"request_inference_time_seconds", "Time in a slot", BOUNDS(SECONDS)},
    [HIST_PROMPT_TOKENS] = {"request_prompt_tokens", "Prompt tokens", BOUNDS(COUNTS)},
    [HIST_GENERATION_TOKENS] = {"request_generation_tokens", "Tokens generated", BOUNDS(COUNTS)},
    [HIST_STEP_TOKENS] = {"iteration_tokens_total",
                          "Tokens per engine step, prefilled and generated", BOUNDS(COUNTS)},
};

_Static_assert(sizeof SECONDS / sizeof *SECONDS <= METRICS_MAX_BUCKETS, "bounds that have buckets");
_Static_assert(sizeof BETWEEN / sizeof *BETWEEN <= METRICS_MAX_BUCKETS, "bounds that have buckets");
_Static_assert(sizeof COUNTS / sizeof *COUNTS <= METRICS_MAX_BUCKETS, "bounds that have buckets");

void metrics_observe(ServerMetrics *m, Histogram which, double value)
{
    size_t i = 0;
    while (i < histograms[which].n && value > histograms[which].bound[i])
        i++;
    m->histogram[which].bucket[i]++;
    m->histogram[which].sum += value;
    m->histogram[which].count++;
}

/* A label's value: what would end it is left out. */
static void put_label(StrBuf *out, const char *text)
{
    for (; *text; text++)
        if (*text != '"' && *text != '\\' && *text != '\n')
            strbuf_putc(out, *text);
}

static void put_head(StrBuf *out, const char *name, const char *type, const char *help)
{
    strbuf_printf(out, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, type);
}

static void put_line(StrBuf *out, const char *name, const char *label, const char *value,
                     const char *model, double x)
{
    strbuf_printf(out, "vllm:%s{model_name=\"", name);
    put_label(out, model);
    strbuf_puts(out, "\"");
    if (label)
        strbuf_printf(out, ",%s=\"%s\"", label, value);
    strbuf_printf(out, "} %.15g\n", x);
}

static void put_histogram(StrBuf *out, const ServerMetrics *m, Histogram which, const char *model)
{
    const char *name = histograms[which].name;
    char line[96], bound[32];
    uint64_t sum = 0;
    snprintf(line, sizeof line, "%s_bucket", name);
    for (size_t i = 0; i <= histograms[which].n; i++) {
        sum += m->histogram[which].bucket[i];
        snprintf(bound, sizeof bound, "%.15g",
                 i < histograms[which].n ? histograms[which].bound[i] : 0);
        put_line(out, line, "le", i < histograms[which].n ? bound : "+Inf", model, (double)sum);
    }
    snprintf(line, sizeof line, "%s_sum", name);
    put_line(out, line, NULL, NULL, model, m->histogram[which].sum);
    snprintf(line, sizeof line, "%s_count", name);
    put_line(out, line, NULL, NULL, model, (double)m->histogram[which].count);
}

/* What has one number for each model. */
enum { PLAIN = 8 };
static const struct {
    const char *name, *type, *help;
} plain[PLAIN] = {
    {"num_requests_running", "gauge", "Running requests"},
    {"num_requests_waiting", "gauge", "Queued requests"},
    {"kv_cache_usage_perc", "gauge", "KV cache usage, 0 to 1"},
    {"prompt_tokens_total", "counter", "Prompt tokens"},
    {"generation_tokens_total", "counter", "Tokens generated"},
    {"prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache"},
    {"prefix_cache_hits", "counter", "Prompt tokens found in the prefix cache"},
    {"num_preemptions_total", "counter", "Requests that gave their pages up and are read again"},
};

static double plain_value(const Gauges *g, int which)
{
    const ServerMetrics *m = g->metrics;
    const double value[PLAIN] = {g->running,
                                 g->waiting,
                                 g->cache_share,
                                 (double)m->prompt_tokens,
                                 (double)m->generation_tokens,
                                 (double)m->queried_tokens,
                                 (double)m->cached_tokens,
                                 (double)g->preemptions};
    return value[which];
}

/* What vLLM says of adapters: which are used at this moment. */
static void put_adapters(const Gauges *g, StrBuf *out)
{
    strbuf_printf(out, "vllm:lora_requests_info{model_name=\"");
    put_label(out, g->model);
    strbuf_printf(out, "\",max_lora=\"%d\",running_lora_adapters=\"", g->adapters);
    put_label(out, g->running_adapters.text ? g->running_adapters.text : "");
    strbuf_puts(out, "\",waiting_lora_adapters=\"");
    put_label(out, g->waiting_adapters.text ? g->waiting_adapters.text : "");
    strbuf_printf(out, "\"} %lld\n", (long long)time(NULL));
}

void metrics_text(const Gauges *g, int n, uint64_t refused, StrBuf *out)
{
    static const char *const reasons[REASON_COUNT] = {"stop", "length", "abort"};
    for (int i = 0; i < PLAIN; i++) {
        put_head(out, plain[i].name, plain[i].type, plain[i].help);
        for (int k = 0; k < n; k++)
            put_line(out, plain[i].name, NULL, NULL, g[k].model, plain_value(&g[k], i));
    }
    put_head(out, "request_success_total", "counter", "Finished requests by reason");
    for (int i = 0; i < n * REASON_COUNT; i++)
        put_line(out, "request_success_total", "finished_reason", reasons[i % REASON_COUNT],
                 g[i / REASON_COUNT].model,
                 (double)g[i / REASON_COUNT].metrics->finished[i % REASON_COUNT]);
    for (int i = 0; i < HIST_COUNT; i++) {
        put_head(out, histograms[i].name, "histogram", histograms[i].help);
        for (int k = 0; k < n; k++)
            put_histogram(out, g[k].metrics, (Histogram)i, g[k].model);
    }
    put_head(out, "cache_config_info", "gauge", "Slots, and context length of each");
    for (int k = 0; k < n; k++) {
        strbuf_puts(out, "vllm:cache_config_info{model_name=\"");
        put_label(out, g[k].model);
        strbuf_printf(out, "\",rows=\"%d\",context=\"%" PRId64 "\"} 1\n", g[k].slots, g[k].context);
    }
    put_head(out, "lora_requests_info", "gauge", "LoRA adapters in use, and since when");
    for (int k = 0; k < n; k++)
        put_adapters(&g[k], out);
    strbuf_puts(
        out, "# HELP caravan:weight_bytes_per_second Bytes of weights read per second of decoding\n"
             "# TYPE caravan:weight_bytes_per_second gauge\n");
    for (int k = 0; k < n; k++) {
        strbuf_puts(out, "caravan:weight_bytes_per_second{model_name=\"");
        put_label(out, g[k].model);
        strbuf_printf(out, "\"} %.6g\n",
                      g[k].decode_seconds > 0
                          ? g[k].weight_bytes * (double)g[k].decodes / g[k].decode_seconds
                          : 0);
    }
    strbuf_printf(out,
                  "# HELP caravan:requests_refused_total Requests answered with an error\n"
                  "# TYPE caravan:requests_refused_total counter\n"
                  "caravan:requests_refused_total %" PRIu64 "\n",
                  refused);
}
