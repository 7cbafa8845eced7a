#include "serve/engine.h"

#include "base/bytes.h"
#include "base/num.h"
#include "base/threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

cvn_engine_options cvn_engine_defaults(void)
{
    return (cvn_engine_options){.slots = 1};
}

cvn_engine_stats cvn_engine_get_stats(const cvn_engine *e)
{
    cvn_engine_stats stats = e->stats;
    stats.compilations = e->rt.backend->compilations(e->rt.devices);
    return stats;
}

void engine_make_inputs(cvn_engine *e, Inputs *in, int64_t n, int64_t drawn)
{
    const cvn_engine_options *o = &e->options;
    size_t tokens = (size_t)n, slots = (size_t)drawn;
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    Arena *arena = &e->arena;
    in->drawn = drawn;
    in->tokens = arena_array(arena, tokens, sizeof *in->tokens);
    in->targets = arena_array(arena, tokens, sizeof *in->targets);
    in->start = arena_array(arena, tokens, sizeof *in->start);
    in->slot = arena_array(arena, tokens, sizeof *in->slot);
    in->length = arena_array(arena, tokens, sizeof *in->length);
    in->wanted = arena_array(arena, slots, sizeof *in->wanted);
    in->top_k = arena_array(arena, slots, sizeof *in->top_k);
    in->temperature = arena_array(arena, slots, sizeof *in->temperature);
    in->top_p = arena_array(arena, slots, sizeof *in->top_p);
    in->min_p = arena_array(arena, slots, sizeof *in->min_p);
    in->key = arena_array(arena, slots * 2, sizeof *in->key);
    in->penalty = arena_array(arena, slots, sizeof *in->penalty);
    in->seen = o->penalties ? arena_array(arena, slots * vocab, 1) : NULL;
    in->bias = o->logits_processors ? arena_array(arena, slots * vocab, sizeof *in->bias) : NULL;
    in->mask = o->logits_processors ? memset(arena_array(arena, slots * vocab, 1), 1, slots * vocab)
                                    : NULL;
    if (e->adapters.n)
        in->select = arena_array(arena, tokens * (size_t)e->adapters.ranks, sizeof *in->select);
}

static void bind_inputs(const cvn_engine *e, Program *p, const Inputs *in)
{
    const struct {
        Role role;
        void *host;
    } inputs[] = {
        {ROLE_TOKENS, in->tokens},   {ROLE_START, in->start},
        {ROLE_LENGTH, in->length},   {ROLE_KEY, in->key},
        {ROLE_TOP_K, in->top_k},     {ROLE_TOP_P, in->top_p},
        {ROLE_MIN_P, in->min_p},     {ROLE_SEEN, in->seen},
        {ROLE_BIAS, in->bias},       {ROLE_TEMPERATURE, in->temperature},
        {ROLE_PENALTY, in->penalty}, {ROLE_TARGETS, in->targets},
        {ROLE_SELECT, in->select},   {ROLE_MASK, in->mask},
        {ROLE_CACHE_SLOT, in->slot}, {ROLE_WANTED, in->wanted},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        program_bind(p, inputs[i].role, 0, inputs[i].host);
    pages_bind(e, p);
}

cvn_dtype engine_kv_dtype(const cvn_engine *e)
{
    const char *how = e->options.kv_cache;
    return how && strcmp(how, "int8") == 0 ? CVN_I8 : e->model->dtype;
}

static bool int8_activations(const cvn_engine_options *o)
{
    return o->activations && strcmp(o->activations, "int8") == 0;
}

static bool speculates(const cvn_engine_options *o)
{
    return ((o->speculate && strcmp(o->speculate, "off") != 0) || o->draft) && !o->no_generation;
}

/* Whether runs of several tokens add up as runs of one do. */
static bool rounds_alike(const cvn_engine_options *o)
{
    return !o->mesh || strcmp(o->layout, "dp") == 0 || strcmp(o->layout, "tp") == 0;
}

int engine_make_program(cvn_engine *e, Program *out, const ModelStep *step, const Inputs *in,
                        cvn_err *err)
{
    const ProgramOptions options = steps_options(&e->steps);
    cvn_graph *g = model_step(e->steps.model.model, step, err);
    if (!g)
        return err->code;
    int code = program_make(out, &e->rt, g, &options, err);
    cvn_graph_free(g);
    if (code == CVN_OK)
        bind_inputs(e, out, in);
    return code;
}

static void make_slots(cvn_engine *e, size_t slots)
{
    e->filled = arena_array(&e->arena, slots, sizeof *e->filled);
    e->job = arena_array(&e->arena, slots, sizeof(Job *));
    e->prompt = arena_array(&e->arena, slots, sizeof *e->prompt);
    e->room = arena_array(&e->arena, slots, sizeof *e->room);
    prefix_init(e);
    if (e->options.logits_processors)
        logits_init(e);
    for (size_t i = 0; i < slots; i++)
        engine_reset_slot(e, (int)i);
}

/* All programs that the options ask for. Scoring needs logits of every token of a chunk, so its chunks are shorter; where slots may
   not wait, all are of the shortest: of some back ends log-probabilities depend on where they end, and so may not depend on time. */
static int compile_programs(cvn_engine *e, cvn_err *err)
{
    static const int64_t sizes[] = {16, 32, 128};
    const cvn_engine_options *o = &e->options;
    int64_t largest = o->bucket[o->n_buckets - 1], score[3];
    int n = 0;
    e->steps = (Steps){.model = {e->model->io.desc, o->layout},
                       .slots = o->slots,
                       .context = o->context,
                       .compute = e->model->dtype,
                       .kv_int8 = engine_kv_dtype(e) == CVN_I8,
                       .int8_inputs = int8_activations(o),
                       .ranks = e->adapters.ranks,
                       .adapted = e->adapters.targets};
    TRY(steps_room(&e->steps, &e->rt, largest, o->kv_memory, err));
    e->n_caches = e->steps.caches.n * (e->steps.kv_int8 ? MODEL_CACHES_INT8 : MODEL_CACHES);
    pages_init(e, prefix_texts(e));
    make_slots(e, (size_t)o->slots);
    for (int i = 0; (o->scoring || o->pooling) && i < 3; i++)
        if (i == 0 || (sizes[i] <= largest && !(o->max_stall > 0)))
            score[n++] = num_min(sizes[i], largest);
    bool drafts = speculates(o) || (o->logits_processors && rounds_alike(o));
    e->load = arena_array(&e->arena, (size_t)o->slots, sizeof *e->load);
    TRY(lists_make(e, drafts && !o->no_generation, score, n, err));
    pages_divide(e);
    return drafts && !o->no_generation ? speculate_make(e, speculates(o), err) : CVN_OK;
}

static bool engine_portable(const cvn_engine_options *o)
{
    return o->numerics && strcmp(o->numerics, "portable") == 0;
}

/* Fills in defaults and refuses what makes no sense. */
static int check_options(cvn_engine_options *o, const Model *config, cvn_err *err)
{
    if (o->context == 0)
        o->context = model_context(config);
    if (o->context < 1 || o->context > model_longest_context(config))
        return err_set(err, CVN_EINVAL,
                       "the context is %" PRId64 "; the model has only %" PRId64
                       ", so give at most that",
                       o->context, model_longest_context(config));
    if (o->slots < 1 || o->slots > 4096)
        return err_set(err, CVN_EINVAL, "%d slots were requested; give 1 to 4096", o->slots);
    if (o->kv_cache && strcmp(o->kv_cache, "int8") != 0 && strcmp(o->kv_cache, "none") != 0)
        return err_set(err, CVN_EINVAL,
                       "unknown KV cache type '%s'; give int8, or none for the model's dtype",
                       o->kv_cache);
    if (o->activations && strcmp(o->activations, "int8") != 0 &&
        strcmp(o->activations, "none") != 0)
        return err_set(err, CVN_EINVAL, "unknown activation type '%s'; give int8 or none",
                       o->activations);
    if (o->numerics && strcmp(o->numerics, "fast") != 0 && strcmp(o->numerics, "exact") != 0 &&
        !engine_portable(o))
        return err_set(err, CVN_EINVAL, "unknown numerics '%s'; give fast, exact or portable",
                       o->numerics);
    if (o->pooling && strcmp(o->pooling, "mean") != 0 && strcmp(o->pooling, "last") != 0)
        return err_set(err, CVN_EINVAL, "unknown pooling '%s'; give mean or last", o->pooling);
    if (o->speculate && strcmp(o->speculate, "lookup") != 0 && strcmp(o->speculate, "off") != 0)
        return err_set(err, CVN_EINVAL,
                       "unknown speculative decoding method '%s'; give lookup or off",
                       o->speculate);
    if (speculates(o) && !rounds_alike(o))
        return err_set(err, CVN_EUNSUPPORTED,
                       "layout %s sums in another order for several tokens than for one, so "
                       "speculative decoding could change the text; use layout dp or tp",
                       o->layout);
    if (int8_activations(o) && !model_takes_int8(config))
        return err_set(err, CVN_EUNSUPPORTED,
                       "int8 activations require weights in int8 or in GGUF blocks; quantize the "
                       "weights to int8, too");
    if (!(o->max_stall >= 0))
        return err_set(err, CVN_EINVAL, "the maximum stall is %g s; give 0 or more", o->max_stall);
    if (o->n_buckets < 0 || o->n_buckets > CVN_MAX_BUCKETS)
        return err_set(err, CVN_EINVAL, "%d buckets were given; at most %d", o->n_buckets,
                       CVN_MAX_BUCKETS);
    if (o->n_buckets == 0)
        o->n_buckets = steps_buckets(o->context, o->bucket);
    for (int i = 0; i < o->n_buckets; i++)
        if (o->bucket[i] < 1 || (i && o->bucket[i] <= o->bucket[i - 1]))
            return err_set(err, CVN_EINVAL, "buckets must be positive and ascending");
    return CVN_OK;
}

int engine_check(const cvn_model *model, const cvn_engine_options *options, cvn_err *err)
{
    cvn_engine_options o = *options;
    Adapters adapters;
    Arena arena;
    o.layout = o.layout ? o.layout : "2d";
    TRY(check_options(&o, model->io.desc, err));
    TRY(arena_begin(&arena, err));
    int code = adapters_open(&adapters, model, o.adapter, o.n_adapters, &arena, err);
    adapters_close(&adapters);
    arena_free(&arena);
    return code;
}

static int check_memory(cvn_engine *e, cvn_err *err)
{
    cvn_engine_stats *s = &e->stats;
    s->weight_bytes =
        runtime_role_bytes(&e->rt, ROLE_WEIGHT) - load_looked_up_bytes(&e->rt, e->model);
    s->cache_bytes = runtime_role_bytes(&e->rt, ROLE_CACHE);
    s->arena_bytes = e->rt.temporary_bytes * (uint64_t)e->rt.info.n_local;
    uint64_t sum = s->weight_bytes + s->cache_bytes + s->arena_bytes;
    if (e->options.memory_limit && sum > e->options.memory_limit)
        return err_set(err, CVN_EMEM,
                       "the model needs %s (weights %s, KV cache %s, activations %s) and the limit "
                       "is %s; lower --context%s",
                       bytes_text((double)sum).text, bytes_text((double)s->weight_bytes).text,
                       bytes_text((double)s->cache_bytes).text,
                       bytes_text((double)s->arena_bytes).text,
                       bytes_text((double)e->options.memory_limit).text,
                       e->options.slots > 1 ? " or --slots" : "");
    return CVN_OK;
}

static int open_runtime(cvn_engine *e, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    const RuntimeOptions options = {.mesh = o->mesh,
                                    .devices = {.device = o->device,
                                                .cluster = o->cluster,
                                                .threads = o->threads,
                                                .dump_dir = o->dump_dir,
                                                .op_by_op = o->op_by_op,
                                                .portable = engine_portable(o),
                                                .blocking = o->blocking,
                                                .split_attention = o->split_attention}};
    e->opened = true;
    int code = runtime_open(&e->rt, &options, err);
    e->stats.threads = e->rt.info.threads;
    e->chunk_invariant = code == CVN_OK && e->rt.info.chunk_invariant && !o->mesh;
    return code;
}

static int start_engine(void *engine, cvn_err *err)
{
    cvn_engine *e = engine;
    cvn_engine_options *o = &e->options;
    const Model *config = e->model->io.desc;
    o->layout = o->layout ? o->layout : "2d";
    TRY(check_options(o, config, err));
    int64_t largest = o->bucket[o->n_buckets - 1], positions = num_max(o->context, largest);
    e->budget = largest;
    e->pace.clock = clock_seconds;
    TRY(adapters_open(&e->adapters, e->model, o->adapter, o->n_adapters, &e->arena, err));
    engine_make_inputs(e, &e->slots, o->slots, o->slots);
    LoadReport report;
    TRY(open_runtime(e, err));
    int64_t all = kv_cache_bytes(config, o->slots, positions, engine_kv_dtype(e));
    if (!o->kv_memory && (all < 0 || all > INT64_C(1) << 46))
        return err_set(err, CVN_EMEM,
                       "a KV cache of %d slots of %" PRId64
                       " positions does not fit in the address space; ask for fewer slots or a "
                       "shorter context",
                       o->slots, positions);
    TRY(compile_programs(e, err));
    windows_init(e);
    TRY(check_memory(e, err));
    TRY(runtime_reserve(&e->rt, err));
    TRY(runtime_allocate(&e->rt, ROLE_CACHE, err));
    double begin = clock_seconds();
    int code = load_weights(&e->rt, e->model, o, &report, err);
    if (code == CVN_OK)
        code = adapters_load(&e->adapters, &e->rt, err);
    e->stats.load_seconds = clock_seconds() - begin;
    e->warnings = report.warnings;
    e->read_bytes = report.read_bytes;
    if (code || !o->profile_path)
        return code;
    e->traces = true;
    return e->rt.backend->trace_begin(e->rt.devices, err);
}

int cvn_engine_new(const cvn_model *model, const cvn_engine_options *options, cvn_engine **out,
                   cvn_err *err)
{
    cvn_err local = {0};
    err = err ? err : &local;
    *out = NULL;
    cvn_engine *e = calloc(1, sizeof *e);
    if (!e)
        return err_set(err, CVN_EMEM, "no memory for an engine");
    e->model = model;
    e->options = options ? *options : cvn_engine_defaults();
    int code = arena_init(&e->arena, err);
    if (code == CVN_OK)
        code = protect(start_engine, e, "starting an engine", err);
    if (code) {
        e->options.profile_path = NULL;
        cvn_engine_free(e, NULL);
        return code;
    }
    *out = e;
    return CVN_OK;
}

int cvn_engine_free(cvn_engine *e, cvn_err *err)
{
    if (!e)
        return CVN_OK;
    int code = CVN_OK;
    if (e->traces && e->options.profile_path && !(e->failed && e->options.cluster))
        code = e->rt.backend->trace_write(e->rt.devices, e->options.profile_path, err);
    lists_free(e);
    logits_free(e);
    prefix_free(e);
    speculate_free(e);
    adapters_close(&e->adapters);
    if (e->opened)
        runtime_close(&e->rt);
    queue_free(&e->queue);
    strbuf_free(&e->warnings);
    arena_free(&e->arena);
    free(e);
    return code;
}

const char *cvn_engine_warnings(const cvn_engine *e)
{
    return e->warnings.text ? e->warnings.text : "";
}
