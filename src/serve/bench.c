#include "serve/bench.h"

#include "cpu/profile.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double bench_prefill_flops(const LlamaConfig *c, int64_t n)
{
    double head = (double)(c->vocab * c->dim);
    double body = (double)model_size(c).matmul_params - head;
    double pairs = (double)n * (double)(n + 1) / 2; /* of a query and a key that it sees */
    double attention = 4 * pairs * (double)(c->n_heads * c->head_dim * c->n_layers);
    return 2 * body * (double)n + 2 * head + attention;
}

/* Of the matrices that every token is multiplied with;
   of quantized ones with their scales, as stored. */
static double matrix_bytes(const LlamaConfig *c, cvn_dtype dtype)
{
    Arena arena;
    if (!quant_is_lossy(c->quant) || arena_init(&arena, NULL))
        return (double)model_size(c).matmul_params * (double)cvn_dtype_bytes(dtype, 1);
    ParamList params;
    params_list(&params, c, &arena);
    double bytes = 0;
    for (int i = 0; i < params.n; i++)
        if (params.param[i].form != PARAM_PLAIN)
            bytes += (double)param_bytes(&params.param[i], dtype);
    arena_free(&arena);
    return bytes;
}

double bench_decode_bytes(const LlamaConfig *c, cvn_dtype dtype, cvn_dtype kv, int64_t rows,
                          int64_t filled)
{
    double weights = matrix_bytes(c, dtype);
    return weights + (double)kv_cache_bytes(c, rows, filled, kv);
}

/* Median and spread of the samples. */
static BenchFigure figure(double *seconds, int n)
{
    BenchFigure f = {.seconds = median(seconds, n)};
    f.spread = (seconds[n - 1] - seconds[0]) / f.seconds; /* median() has sorted them */
    return f;
}

static void make_prompt(const cvn_engine *e, int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)(i * 7919 % e->model->io.config.vocab);
}

int bench_prefill(cvn_engine *e, const Ceilings *ceilings, int64_t n, int repeats, BenchFigure *out,
                  cvn_err *err)
{
    static const double TURN = 0.02;
    const cvn_sampling greedy = {.top_p = 1};
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    double *seconds = calloc((size_t)repeats, sizeof *seconds);
    double *peaks = calloc((size_t)repeats + 1, sizeof *peaks);
    cvn_dtype dtype = engine_product_dtype(e);
    double peak = ceilings_flops(ceilings, dtype);
    int code = CVN_OK;
    if (!tokens || !seconds || !peaks)
        code = err_set(err, CVN_EMEM, "no memory for a prompt of %lld tokens", (long long)n);
    else
        make_prompt(e, tokens, n);
    for (int i = -1; i < repeats && !code; i++) {
        engine_reset_row(e, 0);
        double begin = clock_seconds();
        code = engine_prefill(e, 0, tokens, n, &greedy, err);
        if (i >= 0)
            seconds[i] = clock_seconds() - begin;
        peaks[i + 1] = e->mesh ? peak : peak_run(engine_device(e)->pool, dtype, TURN);
    }
    if (!code) {
        *out = figure(seconds, repeats);
        out->tokens_per_second = (double)n / out->seconds;
        out->peak = median(peaks, repeats + 1);
        out->utilization = bench_prefill_flops(&e->model->io.config, n) / out->seconds / out->peak;
    }
    engine_reset_row(e, 0);
    free(tokens);
    free(seconds);
    free(peaks);
    return code;
}

/* Makes every row active, with n positions filled. */
static void fill_rows(cvn_engine *e, int64_t n)
{
    for (int row = 0; row < e->options.rows; row++) {
        engine_reset_row(e, row);
        e->filled[row] = n;
        e->rows.start[row] = (int32_t)n;
        engine_set_active(e, row, true);
    }
    engine_fill_caches(e, n);
}

/* Products and attention: the steps that read weights and caches. */
static bool is_traffic(const Step *step)
{
    OpKind kind = step->op->kind;
    return op_info[kind].class_ == CLASS_CONTRACT || kind == OP_LINEAR || kind == OP_LINEAR_INT8 ||
           kind == OP_ATTENTION;
}

/* Median seconds of a step with `context` positions filled in which thread 0 is in no traffic. */
static int measure_overhead(cvn_engine *e, int64_t context, double *out, cvn_err *err)
{
    enum { STEPS = 15 };
    double sample[STEPS];
    Device *device = engine_device(e);
    Profile *profile = profile_new(e->stats.threads, 1 << 16, err), *before = device->profile;
    if (!profile)
        return CVN_EMEM;
    fill_rows(e, context);
    device->profile = profile;
    int code = CVN_OK, n = 0;
    while (n < STEPS && !code && context + n < e->options.context) {
        profile_clear(profile);
        double begin = clock_seconds();
        code = engine_decode(e, err);
        double traffic = (double)profile_sum(profile, 0, is_traffic) * 1e-9;
        sample[n++] = clock_seconds() - begin - traffic;
    }
    device->profile = before;
    profile_free(profile);
    *out = code ? 0 : median(sample, n);
    return code;
}

/* Whether there is time for another step; of several processes the first one says. */
static int go_on(const cvn_engine *e, double deadline, bool *go, cvn_err *err)
{
    *go = clock_seconds() < deadline;
    return cluster_share(e->options.cluster, go, sizeof *go, err);
}

/* Steps in turns with reads. */
typedef struct Turns {
    ReadProbe *probe;     /* owned; NULL on a mesh, whose devices have threads of their own */
    double bytes;         /* that a step reads */
    double before;        /* bandwidth of the reads before these steps */
    double *seconds;      /* owned [most]: of the steps that count */
    double *share;        /* owned [most]: of the bandwidth, turn by turn */
    double *bandwidth;    /* owned [most]: of the reads after each turn */
    int64_t steps, turns; /* that there are; turns <= steps */
} Turns;

static int open_turns(Turns *t, cvn_engine *e, const Ceilings *ceilings, int64_t most, cvn_err *err)
{
    t->before = ceilings->bandwidth;
    t->seconds = calloc((size_t)most, sizeof *t->seconds);
    t->share = calloc((size_t)most, sizeof *t->share);
    t->bandwidth = calloc((size_t)most, sizeof *t->bandwidth);
    if (!t->seconds || !t->share || !t->bandwidth)
        return err_set(err, CVN_EMEM, "no memory for %lld steps", (long long)most);
    if (e->mesh)
        return CVN_OK;
    int code = read_probe_new(engine_device(e)->pool, &t->probe, err);
    if (!code)
        t->before = read_probe_run(t->probe, 0);
    return code;
}

static void close_turns(Turns *t)
{
    read_probe_free(t->probe);
    free(t->seconds);
    free(t->share);
    free(t->bandwidth);
}

/* Runs steps for TURN seconds, but no more than `most`, and then reads for as long. */
static int take_turn(Turns *t, cvn_engine *e, int64_t most, int64_t *taken, cvn_err *err)
{
    static const double TURN = 0.01, LONGEST = 0.05;
    double begin = clock_seconds(), end = begin, *seconds = t->seconds + t->steps;
    int64_t n = 0;
    while (n < most && end - begin < TURN) {
        int code = engine_decode(e, err);
        if (code)
            return code;
        double now = clock_seconds();
        seconds[n++] = now - end;
        end = now;
    }
    *taken = n;
    if (t->probe && n > 1)
        memmove(seconds, seconds + 1, (size_t)--n * sizeof *seconds);
    double sum = 0, after = t->before;
    for (int64_t i = 0; i < n; i++)
        sum += seconds[i];
    if (t->probe)
        after = read_probe_run(t->probe, sum < LONGEST ? sum : LONGEST);
    t->bandwidth[t->turns] = after;
    t->share[t->turns++] = 2 * (double)n * t->bytes / sum / (t->before + after);
    t->before = after;
    t->steps += n;
    return CVN_OK;
}

int bench_decode(cvn_engine *e, const Ceilings *ceilings, int64_t context, int64_t steps,
                 double seconds, BenchFigure *out, cvn_err *err)
{
    enum { LEAST = 3 };
    int rows = e->options.rows;
    Turns t = {.bytes = bench_decode_bytes(&e->model->io.config, e->model->dtype,
                                           engine_kv_dtype(e), rows, context + 1 + steps / 2)};
    fill_rows(e, context);
    int code = engine_decode(e, err); /* not counted */
    if (!code)
        code = open_turns(&t, e, ceilings, steps, err);
    double start = clock_seconds();
    int64_t n = 0;
    for (bool go = true; !code && n < steps;) {
        int64_t taken = 0;
        if (n >= LEAST && ((code = go_on(e, start + seconds, &go, err)) || !go))
            break;
        code = take_turn(&t, e, steps - n, &taken, err);
        n += taken;
    }
    if (!code) {
        *out = figure(t.seconds, (int)t.steps);
        out->tokens_per_second = rows / out->seconds;
        out->utilization = median(t.share, (int)t.turns);
        out->bandwidth = median(t.bandwidth, (int)t.turns);
        code = measure_overhead(e, context, &out->overhead, err);
    }
    for (int row = 0; row < rows; row++)
        engine_reset_row(e, row);
    close_turns(&t);
    return code;
}

const BenchMode bench_modes[BENCH_MODES] = {
    {"eager", true, true},
    {"+ fused attention", true, false},
    {"compiled", false, true},
    {"compiled + fused attention", false, false},
};

bool bench_fits(const cvn_engine *e, int64_t rows, int64_t positions)
{
    int64_t bytes = kv_cache_bytes(&e->model->io.config, rows, positions, engine_kv_dtype(e));
    double available = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return bytes >= 0 && (double)bytes < 0.8 * available;
}
