#include "serve/bench.h"

#include "serve/windows.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double bench_prefill_flops(const Model *c, int64_t n)
{
    double head = (double)(model_vocab(c) * model_width(c));
    double body = (double)model_size(c).matmul_params - head;
    double attention = 4 * (double)n * model_attention_pairs(c, 0, n - 1);
    return 2 * body * (double)n + 2 * head + attention;
}

/* Of the matrices that every token is multiplied with;
   of quantized ones with their scales, as stored. */
static double matrix_bytes(const Model *c, cvn_dtype dtype)
{
    SCOPED(arena_free) Arena arena = {0};
    if (!model_is_quantized(c) || arena_begin(&arena, NULL))
        return (double)model_size(c).matmul_params * (double)cvn_dtype_bytes(dtype, 1);
    ParamList params;
    params_list(&params, c, &arena);
    double bytes = 0;
    bool tied = !params_find(&params, PARAM_LM_HEAD, -1);
    for (int i = 0; i < params.n; i++) {
        const Param *p = &params.param[i];
        bool matrix = p->rank >= 2 && p->init == INIT_NORMAL;
        if ((matrix || p->form == PARAM_SCALES) && (p->kind != PARAM_EMBED || tied))
            bytes += (double)param_bytes(p, dtype);
    }
    return bytes;
}

double bench_decode_bytes(const Model *c, cvn_dtype dtype, cvn_dtype kv, int64_t slots,
                          int64_t filled)
{
    double weights = matrix_bytes(c, dtype);
    return weights + (double)kv_cache_bytes(c, slots, filled, kv);
}

/* Median and spread of the samples. */
static BenchFigure figure(double *seconds, int n)
{
    BenchFigure f = {.seconds = median(seconds, n)};
    f.spread = (seconds[n - 1] - seconds[0]) / f.seconds; /* median() has sorted them */
    return f;
}

/* That share the work, each with as much as this one, all measured at the same time. */
static double processes(const cvn_engine *e)
{
    return (double)cluster_size(e->options.cluster);
}

int bench_prefill(cvn_engine *e, int64_t n, int repeats, BenchFigure *out, cvn_err *err)
{
    static const double TURN = 0.02;
    SCOPED(scoped_free) int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    const cvn_request request = {.prompt = tokens, .n_prompt = n};
    SlotPrompt prompt = {.slot = 0, .request = &request};
    SCOPED(scoped_free) double *seconds = calloc((size_t)repeats, sizeof *seconds);
    SCOPED(scoped_free) double *peaks = calloc((size_t)repeats + 1, sizeof *peaks);
    cvn_dtype dtype = e->steps.int8_inputs ? CVN_I8 : e->model->dtype;
    int code = CVN_OK;
    if (!tokens || !seconds || !peaks)
        code = err_set(err, CVN_EMEM, "no memory for a prompt of %lld tokens", (long long)n);
    for (int64_t i = 0; i < n && !code; i++)
        tokens[i] = (int32_t)(i * 7919 % model_vocab(e->model->io.desc));
    for (int i = -1; i < repeats && !code; i++) {
        double begin = clock_seconds();
        engine_begin_slot(e, 0, &request, 0, 0);
        while (!code && e->filled[0] < n)
            code = engine_prefill(e, &prompt, 1, NULL, err);
        if (i >= 0)
            seconds[i] = clock_seconds() - begin;
        peaks[i + 1] = e->rt.backend->peak(e->rt.devices, dtype, TURN) * processes(e);
    }
    if (!code) {
        *out = figure(seconds, repeats);
        out->tokens_per_second = (double)n / out->seconds;
        out->peak = median(peaks, repeats + 1);
        out->utilization = bench_prefill_flops(e->model->io.desc, n) / out->seconds / out->peak;
    }
    engine_reset_slot(e, 0);
    return code;
}

static int read_number(void *context, const Box *box, void *out, cvn_err *err)
{
    enum { NUMBER = 0x3c }; /* bytes of it are 0.0115 in f32 and bf16 */
    const Buffer *cache = context;
    memset(out, NUMBER, cvn_dtype_bytes(cache->type.dtype, box_elements(box)));
    (void)err;
    return CVN_OK;
}

/* Makes every slot active, with n positions filled, with some number. */
static int fill_slots(cvn_engine *e, int64_t n, cvn_err *err)
{
    for (int slot = 0; slot < e->options.slots; slot++) {
        engine_reset_slot(e, slot);
        windows_take(e, slot, n);
        engine_set_filled(e, slot, n);
        e->slots.length[slot] = true;
    }
    for (int i = 0; i < e->n_caches; i++) {
        Buffer *cache = runtime_buffer(&e->rt, ROLE_CACHE, i);
        const Source source = {.read = read_number, .context = cache};
        TRY(buffer_fill(&e->rt, cache, &source, err));
    }
    return CVN_OK;
}

/* Median seconds of a step with `context` positions filled that are spent in no product or attention. */
static int measure_overhead(cvn_engine *e, int64_t context, double *out, cvn_err *err)
{
    enum { STEPS = 15 };
    double sample[STEPS];
    const Backend *backend = e->rt.backend;
    int code = fill_slots(e, context, err), n = 0;
    *out = 0;
    if (code || !backend->traffic)
        return code;
    while (n < STEPS && !code && context + n < e->options.context) {
        backend->traffic(e->rt.devices, true);
        double begin = clock_seconds();
        code = engine_decode(e, err);
        double seconds = clock_seconds() - begin;
        sample[n++] = seconds - backend->traffic(e->rt.devices, false);
    }
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
    double bytes;         /* that a step reads */
    double before;        /* bandwidth of the reads before these steps */
    double *seconds;      /* [most] of the steps that count */
    double *share;        /* [most] of the bandwidth, turn by turn */
    double *bandwidth;    /* [most] of the reads after each turn */
    int64_t steps, turns; /* that there are; turns <= steps */
} Turns;

static double reads(const cvn_engine *e, double seconds)
{
    return e->rt.backend->reads(e->rt.devices, seconds) * processes(e);
}

/* Runs steps for TURN seconds, but no more than `most`, and then reads for as long. */
static int take_turn(Turns *t, cvn_engine *e, int64_t most, int64_t *taken, cvn_err *err)
{
    static const double TURN = 0.01, LONGEST = 0.05;
    const double end = clock_seconds() + TURN;
    double *seconds = t->seconds + t->steps;
    int64_t n = 0;
    for (bool go = true; go && n < most;) {
        double begin = clock_seconds();
        TRY(engine_decode(e, err));
        seconds[n++] = clock_seconds() - begin;
        TRY(go_on(e, end, &go, err));
    }
    *taken = n;
    if (n > 1)
        memmove(seconds, seconds + 1, (size_t)--n * sizeof *seconds);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += seconds[i];
    double after = reads(e, sum < LONGEST ? sum : LONGEST);
    t->bandwidth[t->turns] = after;
    t->share[t->turns++] = 2 * (double)n * t->bytes / sum / (t->before + after);
    t->before = after;
    t->steps += n;
    return CVN_OK;
}

int bench_decode(cvn_engine *e, int64_t context, int64_t steps, double seconds, BenchFigure *out,
                 cvn_err *err)
{
    enum { LEAST = 3 };
    int slots = e->options.slots;
    SCOPED(scoped_free) double *room = calloc((size_t)steps * 3, sizeof *room);
    if (!room)
        return err_set(err, CVN_EMEM, "no memory for %lld steps", (long long)steps);
    Turns t = {.bytes = bench_decode_bytes(e->model->io.desc, e->model->dtype, engine_kv_dtype(e),
                                           slots, context + 1 + steps / 2),
               .seconds = room,
               .share = room + steps,
               .bandwidth = room + 2 * steps};
    int code = fill_slots(e, context, err);
    if (!code)
        code = engine_decode(e, err); /* not counted */
    if (!code)
        t.before = reads(e, 0);
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
        out->tokens_per_second = slots / out->seconds;
        out->utilization = median(t.share, (int)t.turns);
        out->bandwidth = median(t.bandwidth, (int)t.turns);
        code = measure_overhead(e, context, &out->overhead, err);
    }
    for (int slot = 0; slot < slots; slot++)
        engine_reset_slot(e, slot);
    return code;
}

const BenchMode bench_modes[BENCH_MODES] = {
    {"eager", true, true},
    {"+ fused attention", true, false},
    {"compiled", false, true},
    {"compiled + fused attention", false, false},
};

bool bench_fits(const cvn_engine *e, int64_t slots, int64_t positions)
{
    int64_t bytes = kv_cache_bytes(e->model->io.desc, slots, positions, engine_kv_dtype(e));
    double available = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return bytes >= 0 && (double)bytes < 0.8 * available;
}
