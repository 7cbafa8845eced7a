/*
 * ServerMetrics for Prometheus at /metrics, with the names and types of vLLM, for which dashboards and gateways exist. The server's
 * lock guards them.
 */
#ifndef CVN_SERVER_METRICS_H
#define CVN_SERVER_METRICS_H

#include "base/strbuf.h"

#include <stdint.h>

typedef enum Histogram {
    HIST_FIRST_TOKEN,
    HIST_INTER_TOKEN,
    HIST_WHOLE,
    HIST_QUEUE,
    HIST_PREFILL,
    HIST_DECODE,
    HIST_INFERENCE,
    HIST_PROMPT_TOKENS,
    HIST_GENERATION_TOKENS,
    HIST_STEP_TOKENS,
    HIST_COUNT
} Histogram;

typedef enum FinishedReason {
    REASON_STOP,
    REASON_LENGTH,
    REASON_ABORT,
    REASON_COUNT
} FinishedReason;

enum { METRICS_MAX_BUCKETS = 24 };

typedef struct ServerMetrics {
    struct {
        uint64_t bucket[METRICS_MAX_BUCKETS +
                        1]; /* values up to that bound, and not up to the one before */
        double sum;
        uint64_t count;
    } histogram[HIST_COUNT];
    uint64_t finished[REASON_COUNT];
    uint64_t prompt_tokens, generation_tokens, cached_tokens, queried_tokens;
} ServerMetrics;

/* A model: counters and gauges. */
typedef struct Gauges {
    const char *model;
    const ServerMetrics *metrics;
    int running, waiting, slots;
    int64_t preemptions;
    double cache_share; /* of the positions of all slots, 0 to 1 */
    int64_t context;
    double weight_bytes, decode_seconds; /* of weights; in decode steps */
    int64_t decodes;
    int adapters;
    StrBuf running_adapters,
        waiting_adapters; /* the caller's: "a,b", of texts that are under way, and that wait */
} Gauges;

void metrics_observe(ServerMetrics *metrics, Histogram which, double value);
/* Of n models. refused: requests that were answered with an error. */
void metrics_text(const Gauges *gauges, int n, uint64_t refused, StrBuf *out);

#endif
