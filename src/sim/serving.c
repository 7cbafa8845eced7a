#include "sim/serving.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

SimShape sim_shape_of(const ModelShape *c)
{
    return (SimShape){(double)c->width,
                      (double)c->layers,
                      (double)c->heads,
                      (double)c->kv_heads,
                      (double)c->head_dim,
                      (double)c->ffn,
                      (double)c->vocab,
                      3,
                      c->tied,
                      0};
}

/* ---- engines ---- */

/* No source measured the time between an engine's steps apart from a whole model, so it is 0 for all engines. */
static const SimEngine engines[] = {
    {.name = "trtllm",
     .source = "TensorRT-LLM docs 1.0: max_num_tokens 8192, free_gpu_memory_fraction 0.9, "
               "GUARANTEED_NO_EVICT, no chunked context; "
               "overlap scheduler; norms and quantization fused with sums, rotation and cache with "
               "attention",
     .budget = 8192,
     .fraction = 0.9,
     .left = true,
     .launches = 4,
     .fused = 2,
     .ahead = true,
     .whole = true,
     .mixes = true},
    {.name = "vllm",
     .source = "vLLM docs 0.12: max_num_batched_tokens 8192 on GPUs of 70 GB or more, "
               "gpu_memory_utilization 0.9, chunked prefill, "
               "preemption by computing again",
     .budget = 8192,
     .fraction = 0.9,
     .launches = 5,
     .quantizes = 4,
     .chunks = true,
     .mixes = true},
    {.name = "sglang",
     .source = "SGLang docs 0.5: chunked_prefill_size 8192, mem_fraction_static 0.88, overlap "
               "schedule, prompts before tokens in steps of their own",
     .budget = 8192,
     .fraction = 0.88,
     .launches = 5,
     .ahead = true,
     .whole = true,
     .chunks = true},
    {.name = "caravan",
     .source = "docs/SERVING.md",
     .budget = 512,
     .fraction = 1,
     .launches = 5,
     .whole = true,
     .chunks = true},
};

const SimEngine *sim_engine_find(const char *name)
{
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strcmp(engines[i].name, name) == 0)
            return &engines[i];
    return NULL;
}

/* ---- a step ---- */

/* The cost on one chip of what depends on the number of tokens alone, which is all but attention. */
static Cost of_tokens(const SimServing *a, double m, double sampled)
{
    const SimShape *s = &a->shape;
    const CostModel *chip = a->chip;
    double tp = a->tp, kv = fmax(s->kv_heads, tp), q = s->heads * s->head_dim / tp;
    bool quantized = a->type == CHIP_INT8 || a->type == CHIP_FP8 || a->type == CHIP_FP4;
    Cost layer = {0}, c;
    c = cost_product(chip, a->type, m, q + 2 * kv * s->head_dim / tp, s->dim);
    cost_add(&layer, &c, 1);
    c = cost_product(chip, a->type, m, s->dim, q);
    cost_add(&layer, &c, 1);
    c = cost_product(chip, a->type, m, (s->gates - 1) * s->ffn / tp, s->dim);
    cost_add(&layer, &c, 1);
    c = cost_product(chip, a->type, m, s->dim, s->ffn / tp);
    cost_add(&layer, &c, 1);
    /* Norms read the sum and what is added, and write both; rotation and the activation read and write. */
    double moved =
        2 * m * (8 * s->dim + 3 * (q + 2 * kv * s->head_dim / tp) + s->gates * s->ffn / tp);
    if (quantized)
        moved += 3 * m * (2 * s->dim + q + s->ffn / tp);
    c = cost_move(chip, moved,
                  a->engine.launches + s->norms - (tp > 1 ? a->engine.fused : 0) +
                      (quantized ? a->engine.quantizes : 0));
    cost_add(&layer, &c, 1);
    c = cost_collective(chip, COST_ALL_REDUCE, tp, 1, 2 * m * s->dim);
    double ahead = fmin(layer.reading, cost_ahead(chip, 2 * c.seconds));
    cost_add(&layer, &c, 2);
    layer.seconds -= ahead;
    layer.spent[COST_LINK] -= ahead;
    Cost all = {0};
    cost_add(&all, &layer, s->layers);
    c = cost_collective(chip, COST_PERMUTE, a->pp > 1 ? 2 : 1, tp, 2 * m * s->dim / tp);
    cost_add(&all, &c, a->pp - 1);
    c = cost_product(chip, CHIP_BF16, sampled, s->vocab / tp, s->dim);
    cost_add(&all, &c, 1);
    c = cost_move(chip, 4 * sampled * s->vocab / tp, 4); /* looking up, the last norm, sampling */
    cost_add(&all, &c, 1);
    return all;
}

static double cache_bytes(const SimServing *a)
{
    return 2 * (a->narrow ? 1.0 : 2.0) * a->shape.head_dim;
}

Cost sim_step(const SimServing *a, double rows, double keys, double tokens, double count,
              double mean)
{
    const SimShape *s = &a->shape;
    /* Recorded graphs, and what products are rounded up to. */
    double m = rows + tokens, unit = m < 64 ? 1 : m < 512 ? 8 : 64;
    Cost c = of_tokens(a, ceil(m / unit) * unit, rows + count), more;
    if (rows > 0) {
        more =
            cost_decode(a->chip, keys * fmax(s->kv_heads / a->tp, 1) * cache_bytes(a), a->narrow);
        cost_add(&c, &more, s->layers);
    }
    if (tokens > 0) {
        more = cost_prefill(a->chip, tokens, s->heads / a->tp, mean, s->head_dim, 1);
        cost_add(&c, &more, s->layers);
    }
    c.seconds += a->engine.host;
    c.spent[COST_HOST] += a->engine.host;
    c.bound[COST_HOST] += a->engine.host;
    return c;
}

/* ---- the scheduler ---- */

/* Seconds that a request takes from its client into a scheduler's hands: HTTP, and its prompt's tokens. Assumed; that it is more
   than nothing matters most: the step that begins when an answer ends goes by before the request that comes for it is seen. */
#define REACHES 5e-3

enum { BLOCK = 16 }; /* tokens of a cache that are kept or dropped together */

typedef struct Request {
    int64_t input, output;
    /* tokens to be read before it makes more: those of the prompt, and what was made before it was put off */
    int64_t goal;
    int64_t keys;  /* of it in the cache */
    int64_t found; /* of its prompt in the cache when it comes */
    int64_t made;
    int64_t next;                 /* tokens of it that the step reads */
    double arrived, ready, first; /* sent; in the scheduler's hands; answered with a token */
} Request;

typedef struct Serving {
    const SimServing *ask;
    SimServed *out;
    Request *request; /* [in_flight] */
    Request **row;    /* [rows] that are worked on, in the order in which they were let in */
    Request **queue;  /* [waiting], from `head` on of twice as many as there can be */
    int64_t rows, waiting, head;
    int64_t places; /* of requests */
    int64_t begun, ended, all;
    double now;        /* seconds */
    double coming;     /* when the last request comes, of a rate */
    double seen;       /* until when requests have come that the scheduler knows of */
    double began;      /* of the last step */
    double used, room; /* tokens of the cache */
    uint64_t random;
    int waited;
    Cost *memo; /* [memo_size] of steps of tokens alone, by their rows */
} Serving;

/* Draws a number from 0 to 1, evenly, by Knuth's MMIX generator. */
static double chance(Serving *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->random >> 11) * 0x1p-53;
}

static int64_t drawn(Serving *s, int64_t length)
{
    return (int64_t)fmax(2, (double)length * (1 - s->ask->spread * chance(s)));
}

static void arrive(Serving *s, Request *r)
{
    if (s->ask->rate > 0)
        s->coming -= log(1 - chance(s)) / s->ask->rate;
    double sent = s->ask->rate > 0 ? s->coming : s->now;
    *r = (Request){.arrived = sent, .ready = sent + REACHES, .first = -1};
    r->input = r->goal = drawn(s, s->ask->input);
    r->output = drawn(s, s->ask->output);
    /* A prompt that came before is still in the cache, but for its last block. */
    if (s->ask->prompts > 0 && s->begun >= s->ask->prompts)
        r->found = (int64_t)fmax(0, (double)r->input - BLOCK);
    if (s->head + s->waiting == 2 * s->places) {
        memmove(s->queue, s->queue + s->head, (size_t)s->waiting * sizeof *s->queue);
        s->head = 0;
    }
    s->queue[s->head + s->waiting++] = r;
    s->begun++;
}

static double needs(const Serving *s, const Request *r)
{
    return (double)(s->ask->engine.whole ? r->input + r->output : r->goal);
}

/* Whether waiting prompts are held back until more have come. */
static bool holds(Serving *s)
{
    double tokens = 0;
    bool busy = false;
    for (int64_t i = s->head; i < s->head + s->waiting && s->queue[i]->ready <= s->seen; i++)
        tokens += (double)s->queue[i]->goal;
    for (int64_t i = 0; i < s->rows; i++)
        busy |= s->row[i]->keys >= s->row[i]->goal;
    bool hold =
        tokens > 0 && busy && tokens < 0.9 * s->ask->engine.budget && s->waited < s->ask->wait;
    s->waited = hold ? s->waited + 1 : 0;
    return hold;
}

/* Chooses the rows that are decoded in a step and the prompts that are read. */
static void choose(Serving *s)
{
    const SimEngine *e = &s->ask->engine;
    double budget = e->budget;
    int64_t most = s->ask->most_rows ? s->ask->most_rows : s->places;
    bool hold = s->ask->wait > 0 && holds(s), reads = false;
    for (int64_t i = 0; i < s->rows; i++)
        if (s->row[i]->keys >= s->row[i]->goal && e->mixes)
            budget--;
    for (int64_t i = 0; i < s->rows; i++) {
        Request *r = s->row[i];
        r->next = 0;
        if (r->keys < r->goal && budget > 0) {
            r->next = (int64_t)fmin((double)(r->goal - r->keys), budget);
            budget -= (double)r->next;
            reads = true;
        }
    }
    int64_t let = 0;
    while (!hold && let < s->waiting && budget > 0 && s->rows < most) {
        Request *r = s->queue[s->head + let];
        if (r->ready > s->seen || s->used + needs(s, r) > s->room ||
            (!e->chunks && (double)(r->goal - r->found) > budget && reads))
            break;
        r->keys = r->found;
        r->next = r->goal - r->keys;
        if (e->chunks)
            r->next = (int64_t)fmin((double)r->next, budget);
        budget -= (double)r->next;
        s->used += needs(s, r);
        s->row[s->rows++] = r;
        reads = true;
        let++;
    }
    s->waiting -= let;
    s->head = s->waiting > 0 ? s->head + let : 0;
    /* There is no memory for the next tokens: the row that came last is preempted, and begins again later. */
    for (int64_t i = 0; !e->whole && i < s->rows; i++)
        s->used += s->row[i]->keys >= s->row[i]->goal;
    while (!e->whole && s->used > s->room && s->rows > 1) {
        Request *r = s->row[--s->rows];
        s->used -= r->keys >= r->goal ? (double)r->keys + 1 : (double)r->goal;
        r->goal = r->input + r->made;
        r->keys = r->next = r->found = 0;
        if (s->head == 0) {
            memmove(s->queue + 1, s->queue, (size_t)s->waiting * sizeof *s->queue);
            s->head = 1;
        }
        s->queue[--s->head] = r;
        s->waiting++;
    }
}

static void step(Serving *s)
{
    const SimServing *a = s->ask;
    double rows = 0, keys = 0, tokens = 0, count = 0, looked = 0;
    if (s->rows == 0 && s->queue[s->head]->ready > s->now) { /* nothing to do until then */
        double idle = s->queue[s->head]->ready - s->now;
        Cost c = {.seconds = idle, .spent[COST_HOST] = idle};
        cost_add(&s->out->cost, &c, 1);
        s->now += idle;
    }
    s->seen = s->rows > 0 && a->engine.ahead ? s->began : s->now;
    s->began = s->now;
    choose(s);
    for (int64_t i = 0; i < s->rows; i++)
        if (s->row[i]->next > 0) {
            double next = (double)s->row[i]->next;
            tokens += next;
            looked += next * ((double)s->row[i]->keys + next / 2);
            count++;
        }
    bool makes = a->engine.mixes || tokens <= 0;
    for (int64_t i = 0; i < s->rows && makes; i++)
        if (s->row[i]->keys >= s->row[i]->goal) {
            rows++;
            keys += (double)s->row[i]->keys;
        }
    Cost c = {0};
    if (tokens <= 0 && rows > 0 && rows <= (double)s->places) {
        Cost *known = &s->memo[(int64_t)rows];
        if (known->seconds <= 0)
            *known = sim_step(a, rows, 0, 0, 0, 0);
        c = *known;
        /* More keys cost the time to read their bytes, and nothing else. */
        Cost none = cost_decode(a->chip, 0, a->narrow);
        Cost more = cost_decode(a->chip, keys * fmax(a->shape.kv_heads / a->tp, 1) * cache_bytes(a),
                                a->narrow);
        cost_add(&c, &none, -a->shape.layers);
        cost_add(&c, &more, a->shape.layers);
    } else {
        c = sim_step(a, rows, keys, tokens, count, tokens > 0 ? looked / tokens : 0);
    }
    cost_add(&s->out->cost, &c, 1);
    s->now += c.seconds;
    s->out->steps++;
    int64_t left = 0;
    for (int64_t i = 0; i < s->rows; i++) {
        Request *r = s->row[i];
        bool decoded = r->next == 0 && r->keys >= r->goal && makes;
        if (r->next > 0) {
            r->keys += r->next;
            if (r->keys >= r->goal && r->first < 0) {
                r->first = s->now;
                r->made = 1;
            }
        } else if (decoded) {
            r->keys++;
            r->made++;
        }
        if (!decoded || r->made < r->output) {
            s->row[left++] = r;
            continue;
        }
        s->used -= a->engine.whole ? (double)(r->input + r->output) : (double)r->keys;
        s->out->ttft += r->first - r->arrived;
        s->out->tpot += (s->now - r->first) / (double)(r->output - 1);
        s->out->tokens += (double)r->output;
        s->ended++;
        if (s->begun < s->all)
            arrive(s, r);
    }
    s->rows = left;
}

/* The bytes of all weights: matrices in their type, the embedding and the head in bf16. */
static double weight_bytes(const SimServing *a)
{
    const SimShape *s = &a->shape;
    double q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    double layer = s->dim * (2 * q + 2 * kv) + s->gates * s->dim * s->ffn;
    return s->layers * layer * chip_type_bytes[a->type] + (s->tied ? 2 : 4) * s->vocab * s->dim;
}

int sim_serve(const SimServing *ask, SimServed *out, cvn_err *err)
{
    double chips = ask->tp * ask->pp;
    *out = (SimServed){.weights = weight_bytes(ask)};
    double token = cache_bytes(ask) * fmax(ask->shape.kv_heads, ask->tp) * ask->shape.layers;
    /* Beside them: activations of the largest step, twice as wide as the feed-forward part, and what a process takes. */
    double other =
        2 * ask->engine.budget * (4 * ask->shape.dim + 2 * ask->shape.ffn / ask->tp) + 1.5e9;
    double memory = ask->chip->chip.memory, fraction = ask->engine.fraction;
    out->room = ask->engine.left ? fraction * (chips * (memory - other) - out->weights)
                                 : chips * (memory * fraction - other) - out->weights;
    Serving s = {.ask = ask, .out = out, .room = floor(out->room / token), .random = 1};
    if (ask->in_flight < 1 || ask->input < 1 || ask->output < 2 || ask->in_flight > 1 << 20)
        return err_set(err, CVN_EINVAL,
                       "serving needs at least one request with 1 input and 2 output tokens");
    if (s.room < (double)(ask->input + ask->output))
        return err_set(err, CVN_EINVAL,
                       "%.1f GB of weights leave no memory for a request of %lld input and %lld "
                       "output tokens on %g x %s",
                       out->weights / 1e9, (long long)ask->input, (long long)ask->output, chips,
                       ask->chip->chip.name);
    s.all = ask->requests ? ask->requests : ask->rate > 0 ? 512 : 10 * ask->in_flight;
    size_t n = ask->rate > 0 ? (size_t)s.all : (size_t)ask->in_flight;
    s.places = (int64_t)n;
    s.request = calloc(n, sizeof *s.request);
    s.row = calloc(n, sizeof *s.row);
    s.queue = calloc(2 * n + 1, sizeof *s.queue);
    s.memo = calloc(n + 1, sizeof *s.memo);
    int code = s.request && s.row && s.queue && s.memo
                   ? CVN_OK
                   : err_set(err, CVN_EMEM, "no memory for %zu requests", n);
    for (size_t i = 0; i < n && code == CVN_OK && s.begun < s.all; i++)
        arrive(&s, &s.request[i]);
    while (code == CVN_OK && s.ended < s.all)
        step(&s);
    free(s.request);
    free(s.row);
    free(s.queue);
    free(s.memo);
    out->seconds = s.now;
    out->ttft /= (double)s.all;
    out->tpot /= (double)s.all;
    out->tokens /= fmax(s.now, 1e-12);
    return code;
}
