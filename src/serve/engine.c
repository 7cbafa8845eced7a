#include "serve/engine.h"

#include "base/bytes.h"
#include "cpu/registry.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

cvn_engine_options cvn_engine_defaults(void)
{
    return (cvn_engine_options){.rows = 1, .eos_interval = 1};
}

cvn_engine_stats cvn_engine_get_stats(const cvn_engine *e)
{
    cvn_engine_stats stats = e->stats;
    stats.compilations = e->cache.compilations;
    return stats;
}

/* vocab: of the flags of tokens seen; 0 where there are none. */
static void make_inputs(Inputs *in, Arena *arena, size_t rows, size_t seq, size_t vocab)
{
    in->tokens = arena_array(arena, rows * seq, sizeof *in->tokens);
    in->targets = arena_array(arena, rows * seq, sizeof *in->targets);
    in->start = arena_array(arena, rows, sizeof *in->start);
    in->length = arena_array(arena, rows, sizeof *in->length);
    in->top_k = arena_array(arena, rows, sizeof *in->top_k);
    in->temperature = arena_array(arena, rows, sizeof *in->temperature);
    in->top_p = arena_array(arena, rows, sizeof *in->top_p);
    in->min_p = arena_array(arena, rows, sizeof *in->min_p);
    in->key = arena_array(arena, rows * 2, sizeof *in->key);
    in->penalty = arena_array(arena, rows, sizeof *in->penalty);
    in->seen = vocab ? arena_array(arena, rows * vocab, 1) : NULL;
}

/* The address of a graph's parameter by its name, after the weights and caches. */
static void *named_input(const Inputs *in, const char *name)
{
    const struct {
        const char *name;
        void *address;
    } inputs[] = {
        {"tokens", in->tokens},   {"start", in->start},     {"length", in->length},
        {"key", in->key},         {"top_k", in->top_k},     {"top_p", in->top_p},
        {"min_p", in->min_p},     {"targets", in->targets}, {"temperature", in->temperature},
        {"penalty", in->penalty}, {"seen", in->seen},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (strcmp(inputs[i].name, name) == 0)
            return inputs[i].address;
    return NULL;
}

/* The table of addresses of a program whose plan is made; g is the graph of the whole step. */
static int bind_program(cvn_engine *e, Program *p, const cvn_graph *g, const Inputs *in,
                        cvn_err *err)
{
    int n_weights = e->model->io.params.n, n_caches = e->kv.n_tensors, code = CVN_OK;
    if (p->plan->arena_bytes > e->stats.arena_bytes)
        e->stats.arena_bytes = p->plan->arena_bytes;
    p->first_cache = n_weights;
    p->first_result = n_caches;
    p->param = arena_array(&e->arena, (size_t)g->n_parameters, sizeof *p->param);
    p->output = arena_array(&e->arena, (size_t)g->n_outputs, sizeof *p->output);
    for (int i = 0; i < n_weights && !e->mesh; i++)
        p->param[i] = (void *)(uintptr_t)e->model->weights.weight[i].data;
    for (int i = 0; i < n_caches; i++)
        p->param[n_weights + i] = kv_row(&e->kv, i, 0);
    for (int i = n_weights + n_caches; i < g->n_parameters; i++) {
        const char *name = g->parameter[i]->def->attr.name;
        p->param[i] = named_input(in, name);
        if (!p->param[i])
            code = err_set(err, CVN_EINVAL, "graph %s has a parameter '%s' that is not bound",
                           g->name, name);
    }
    return code;
}

/* Compiles one step and makes its table of addresses. */
static int make_program(cvn_engine *e, Program *p, const LlamaStep *step, const Inputs *in,
                        cvn_err *err)
{
    cvn_graph *g = llama_step(&e->model->io.config, step, err), *local = NULL;
    PartitionReport report = {0};
    if (!g)
        return err->code;
    int code = e->mesh ? engine_mesh_partition(e->mesh, g, &local, &report, err) : CVN_OK;
    if (!code)
        code = cache_get(&e->cache, local ? local : g, &p->plan, err);
    if (!code)
        code = bind_program(e, p, g, in, err);
    if (!code && e->mesh)
        code =
            engine_mesh_bind(e->mesh, p->plan, &report, e->kv.n_tensors, &e->arena, &p->mesh, err);
    p->seq = step->seq;
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    return code;
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

cvn_dtype engine_product_dtype(const cvn_engine *e)
{
    return int8_activations(&e->options) ? CVN_I8 : e->model->dtype;
}

/* All programs that the options ask for. */
static int compile_programs(cvn_engine *e, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    LlamaStep step = {.batch = 1,
                      .context = o->context,
                      .compute = e->model->dtype,
                      .kv_int8 = engine_kv_dtype(e) == CVN_I8,
                      .int8_inputs = int8_activations(o),
                      .penalty = o->penalties};
    step.context += o->bucket[o->n_buckets - 1];
    int code = CVN_OK;
    for (int i = 0; i < o->n_buckets && !code && !o->no_generation; i++) {
        step.seq = o->bucket[i];
        step.output = LLAMA_FILL;
        if (i == o->n_buckets - 1) /* only whole sections of the largest bucket are not the last */
            code = make_program(e, &e->fill[i], &step, &e->one, err);
        step.output = LLAMA_SAMPLE;
        for (int m = 0; m <= (int)e->most && !code; m++) {
            step.sample = (SampleMode)m;
            code = make_program(e, &e->prefill[m][i], &step, &e->one, err);
        }
    }
    for (int i = 0; i < e->n_score_buckets && !code; i++) {
        step.seq = e->score_bucket[i];
        step.output = LLAMA_SCORE;
        code = make_program(e, &e->score[i], &step, &e->one, err);
    }
    step.batch = o->rows;
    step.seq = 1;
    step.output = LLAMA_SAMPLE;
    for (int m = 0; m <= (int)e->most && !code && !o->no_generation; m++) {
        step.sample = (SampleMode)m;
        code = make_program(e, &e->decode[m], &step, &e->rows, err);
    }
    return code;
}

/* Fills in defaults and refuses what makes no sense. */
static int check_options(cvn_engine_options *o, const LlamaConfig *config, cvn_err *err)
{
    /* The published ones, and below them what keeps a
       turn of a dialog from paying for 128 tokens. */
    static const int64_t buckets[] = {16, 32, 64, 128, 256, 384, 512};
    enum { BUCKETS = sizeof buckets / sizeof buckets[0] };
    if (o->context == 0)
        o->context = config->max_context;
    if (o->context < 1 || o->context > config->max_context)
        return err_set(err, CVN_EINVAL,
                       "a context of %" PRId64 " was asked for; the model has %" PRId64
                       ", so give at most that",
                       o->context, config->max_context);
    if (o->rows < 1 || o->rows > 4096)
        return err_set(err, CVN_EINVAL, "%d rows were asked for; give 1 to 4096", o->rows);
    if (o->kv_cache && strcmp(o->kv_cache, "int8") != 0 && strcmp(o->kv_cache, "none") != 0)
        return err_set(err, CVN_EINVAL,
                       "a KV cache in '%s' was asked for; give int8, or none for the model's dtype",
                       o->kv_cache);
    if (o->activations && strcmp(o->activations, "int8") != 0 &&
        strcmp(o->activations, "none") != 0)
        return err_set(err, CVN_EINVAL, "activations in '%s' were asked for; give int8 or none",
                       o->activations);
    if (int8_activations(o) && config->quant.kind != QUANT_INT8)
        return err_set(err, CVN_EUNSUPPORTED,
                       "activations in int8 need weights in int8; quantize them too");
    if (o->eos_interval < 1)
        o->eos_interval = 1;
    if (o->n_buckets < 0 || o->n_buckets > CVN_MAX_BUCKETS)
        return err_set(err, CVN_EINVAL, "%d buckets were given; at most %d", o->n_buckets,
                       CVN_MAX_BUCKETS);
    for (int i = 0; i < BUCKETS && o->n_buckets == i; i++) {
        o->bucket[i] = buckets[i];
        o->n_buckets = i + 1;
        if (buckets[i] >= o->context)
            break;
    }
    for (int i = 0; i < o->n_buckets; i++)
        if (o->bucket[i] < 1 || (i && o->bucket[i] <= o->bucket[i - 1]))
            return err_set(err, CVN_EINVAL, "buckets must be positive and ascending");
    return CVN_OK;
}

/* Scoring needs logits of every token of a section, so its sections are shorter. */
static void choose_score_buckets(cvn_engine *e)
{
    const cvn_engine_options *o = &e->options;
    static const int64_t sizes[] = {16, 128};
    int64_t largest = o->bucket[o->n_buckets - 1];
    for (int i = 0; o->scoring && i < 2; i++)
        if (sizes[i] <= largest || i == 0)
            e->score_bucket[e->n_score_buckets++] = sizes[i] < largest ? sizes[i] : largest;
}

static int check_memory(const cvn_engine *e, cvn_err *err)
{
    uint64_t arena = e->stats.arena_bytes;
    uint64_t sum = e->stats.weight_bytes + e->stats.cache_bytes + arena;
    if (e->options.memory_limit && sum > e->options.memory_limit)
        return err_set(err, CVN_EMEM,
                       "the model needs %s (weights %s, KV cache %s, activations %s) and the limit "
                       "is %s; lower --context or the number of texts",
                       bytes_text((double)sum).text, bytes_text((double)e->stats.weight_bytes).text,
                       bytes_text((double)e->stats.cache_bytes).text,
                       bytes_text((double)arena).text,
                       bytes_text((double)e->options.memory_limit).text);
    return CVN_OK;
}

/* One device, or those of a mesh. */
static int make_devices(cvn_engine *e, int64_t positions, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    if (!o->mesh) {
        e->device = device_new(o->threads, cpu_backend(), err);
        e->stats.threads = e->device ? device_threads(e->device) : 0;
        return e->device ? CVN_OK : err->code;
    }
    e->mesh = calloc(1, sizeof *e->mesh);
    if (!e->mesh)
        return err_set(err, CVN_EMEM, "no memory for a mesh");
    int code = engine_mesh_init(e->mesh, e->model, o, positions, engine_kv_dtype(e), err);
    e->stats.threads = code ? 0 : group_threads(e->mesh->devices.group);
    return code;
}

/* The devices of this process, *n of them. */
static Device *const *local_devices(const cvn_engine *e, int *n)
{
    *n = e->mesh ? e->mesh->devices.n_local : 1;
    return e->mesh ? group_devices(e->mesh->devices.group) : &e->device;
}

/* What the devices of this process hold, once all steps are known. */
static int count_memory(cvn_engine *e, cvn_err *err)
{
    uint64_t arena = e->stats.arena_bytes;
    int n;
    Device *const *device = local_devices(e, &n);
    e->stats.weight_bytes = e->mesh ? e->mesh->block_bytes : e->model->weight_bytes;
    e->stats.cache_bytes = e->mesh ? engine_mesh_cache_bytes(e->mesh) : e->kv.bytes;
    e->stats.arena_bytes = arena * (uint64_t)n;
    int code = check_memory(e, err);
    for (int d = 0; d < n && !code; d++)
        code = device_reserve(device[d], arena, err);
    return code;
}

static int start_engine(cvn_engine *e, cvn_err *err)
{
    cvn_engine_options *o = &e->options;
    const LlamaConfig *config = &e->model->io.config;
    if (check_options(o, config, err))
        return err->code;
    e->most = !o->sampling ? SAMPLE_GREEDY : o->filters ? SAMPLE_FILTER : SAMPLE_RANDOM;
    choose_score_buckets(e);
    int64_t largest = o->bucket[o->n_buckets - 1];
    /* A padded section may write past the context; the extra positions are where it does. */
    if (kv_init(&e->kv, config, o->rows, o->context + largest, engine_kv_dtype(e), err))
        return err->code;
    size_t seen = o->penalties ? (size_t)config->vocab : 0;
    make_inputs(&e->rows, &e->arena, (size_t)o->rows, 1, seen);
    make_inputs(&e->one, &e->arena, 1, (size_t)largest, seen);
    e->filled = arena_array(&e->arena, (size_t)o->rows, sizeof *e->filled);
    e->resets = arena_array(&e->arena, (size_t)o->rows, sizeof *e->resets);
    for (int i = 0; i < o->rows; i++)
        engine_reset_row(e, i);
    if (make_devices(e, o->context + largest, err))
        return err->code;
    CompileOptions compile = {.backend = cpu_backend(),
                              .n_threads = e->stats.threads,
                              .dump_dir = o->dump_dir,
                              .op_by_op = o->op_by_op,
                              .blocking = o->blocking,
                              .split_attention = o->split_attention};
    if (cache_init(&e->cache, &compile, err) || compile_programs(e, err) || count_memory(e, err))
        return err->code;
    if (!o->profile_path)
        return CVN_OK;
    int n;
    Device *const *device = local_devices(e, &n);
    e->trace = trace_begin(device, n, 0, err);
    return e->trace ? CVN_OK : err->code;
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
        code = start_engine(e, err);
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
    if (e->trace && e->options.profile_path && !(e->failed && e->options.cluster))
        code = trace_write(e->trace, e->options.cluster, e->options.profile_path, err);
    trace_free(e->trace);
    device_free(e->device);
    if (e->mesh)
        engine_mesh_free(e->mesh);
    free(e->mesh);
    cache_free(&e->cache);
    kv_free(&e->kv);
    arena_free(&e->arena);
    free(e);
    return code;
}

/* On return its outputs are in program->output. */
static int run_program(cvn_engine *e, Program *program, cvn_err *err)
{
    int code;
    if (e->mesh)
        code = engine_mesh_run(e->mesh, &program->mesh, program->param, program->row,
                               program->output, err);
    else
        code = executor_run(e->device, program->plan, program->param, program->output, err);
    e->failed = e->failed || code != CVN_OK;
    return code;
}

void engine_communication(const cvn_engine *e, CommTable *out)
{
    *out = (CommTable){0};
    if (e->mesh)
        comm_table(e->mesh->devices.comm, out);
}

Device *engine_device(const cvn_engine *e)
{
    int n;
    return local_devices(e, &n)[0];
}

void engine_release_row(cvn_engine *e, int row)
{
    if (e->mesh)
        engine_mesh_release(e->mesh, row);
    else
        kv_release(&e->kv, row);
}

/* Rows from `first` on, `count` of them. */
static void fill_cache(const KvCache *kv, int first, int count, int64_t n)
{
    enum { NUMBER = 0x3c }; /* bytes of it are 0.0115 in f32 and bf16 */
    for (int row = first; row < first + count; row++)
        for (int i = 0; i < kv->n_tensors; i++)
            for (int64_t h = 0; h < kv->kv_heads; h++)
                memset((char *)kv_row(kv, i, row) + (size_t)h * kv_shape(kv, i)->head, NUMBER,
                       kv_shape(kv, i)->position * (size_t)n);
}

void engine_fill_caches(cvn_engine *e, int64_t n)
{
    if (!e->mesh) {
        fill_cache(&e->kv, 0, e->options.rows, n);
        return;
    }
    const MeshProgram *decode = &e->decode[0].mesh;
    int count = (int)decode->plan->parameter[e->decode[0].first_cache].type.dim[0];
    for (int d = 0; d < e->mesh->devices.n_local; d++) {
        int first = (int)decode->first_row[d], most = e->options.rows - first;
        fill_cache(&e->mesh->kv[d], first, count < most ? count : most, n);
    }
}

void engine_set_active(cvn_engine *e, int row, bool active)
{
    e->rows.length[row] = active;
}

void engine_reset_row(cvn_engine *e, int row)
{
    e->filled[row] = 0;
    e->resets[row]++;
    e->rows.tokens[row] = 0;
    e->rows.start[row] = 0;
    e->rows.length[row] = 0;
    e->rows.temperature[row] = 0;
    e->rows.top_p[row] = 1;
    e->rows.penalty[row] = 1;
    engine_set_seen(e, row, NULL, 0);
}

/* Marks tokens, which are in the vocabulary, as being in a row. */
static void add_seen(cvn_engine *e, int row, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)e->model->io.config.vocab;
    for (int64_t i = 0; e->rows.seen && i < n; i++)
        e->rows.seen[(size_t)row * vocab + (size_t)tokens[i]] = 1;
}

void engine_set_seen(cvn_engine *e, int row, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)e->model->io.config.vocab;
    if (e->rows.seen)
        memset(e->rows.seen + (size_t)row * vocab, 0, vocab);
    add_seen(e, row, tokens, n);
}

static void set_sampling(Inputs *in, int row, const cvn_sampling *s)
{
    in->temperature[row] = s->temperature;
    in->top_k[row] = s->top_k;
    in->top_p[row] = s->top_p > 0 ? s->top_p : 1; /* 0: of a greedy request */
    in->min_p[row] = s->min_p;
    in->penalty[row] = s->repeat_penalty > 0 ? s->repeat_penalty : 1;
    in->key[2 * row] = (uint32_t)s->seed;
    in->key[2 * row + 1] = (uint32_t)(s->seed >> 32);
}

/* The cheapest program that draws as row `row` wants. */
static SampleMode row_mode(const Inputs *in, int row, int64_t vocab)
{
    if (in->temperature[row] <= 0)
        return SAMPLE_GREEDY;
    bool filters =
        (in->top_k[row] > 0 && in->top_k[row] < vocab) || in->top_p[row] < 1 || in->min_p[row] > 0;
    return filters ? SAMPLE_FILTER : SAMPLE_RANDOM;
}

static int check_mode(const cvn_engine *e, SampleMode mode, cvn_err *err)
{
    if (mode > e->most)
        return err_set(err, CVN_EINVAL,
                       "the request samples with %s; make the engine with options.%s",
                       mode == SAMPLE_FILTER ? "top-k, top-p or min-p" : "a temperature",
                       mode == SAMPLE_FILTER ? "filters" : "sampling");
    return CVN_OK;
}

/* Points a one-row program at a row's cache and stages a section of tokens. */
static void stage_section(cvn_engine *e, Program *p, int row, const int32_t *tokens, int64_t n)
{
    for (int i = 0; i < e->kv.n_tensors; i++)
        p->param[p->first_cache + i] = kv_row(&e->kv, i, row);
    p->row = row;
    memcpy(e->one.tokens, tokens, (size_t)n * sizeof *tokens);
    memset(e->one.tokens + n, 0, (size_t)(p->seq - n) * sizeof *tokens);
    e->one.start[0] = (int32_t)e->filled[row];
    e->one.length[0] = (int32_t)n;
    size_t vocab = (size_t)e->model->io.config.vocab;
    if (e->one.seen)
        memcpy(e->one.seen, e->rows.seen + (size_t)row * vocab, vocab);
}

/* The smallest bucket that holds n tokens, or the largest there is. */
static int choose_bucket(const int64_t *bucket, int n_buckets, int64_t n)
{
    int i = 0;
    while (i < n_buckets - 1 && bucket[i] < n)
        i++;
    return i;
}

static int check_tokens(const cvn_engine *e, int row, const int32_t *tokens, int64_t n,
                        cvn_err *err)
{
    int64_t context = e->options.context, vocab = e->model->io.config.vocab;
    if (n < 1)
        return err_set(err, CVN_EINVAL, "the prompt has no tokens");
    if (e->filled[row] + n > context)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " tokens do not fit in a context of %" PRId64
                       "; shorten the prompt or raise --context",
                       e->filled[row] + n, context);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return err_set(err, CVN_EINVAL,
                           "token %d at place %" PRId64 " is not in the vocabulary of %" PRId64,
                           (int)tokens[i], i, vocab);
    return CVN_OK;
}

int engine_prefill(cvn_engine *e, int row, const int32_t *tokens, int64_t n,
                   const cvn_sampling *sampling, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    if (check_tokens(e, row, tokens, n, err))
        return CVN_EINVAL;
    set_sampling(&e->one, 0, sampling);
    set_sampling(&e->rows, row, sampling);
    SampleMode mode = row_mode(&e->one, 0, e->model->io.config.vocab);
    if (check_mode(e, mode, err))
        return CVN_EINVAL;
    if (e->one.penalty[0] != 1 && !e->one.seen) /* 1 stands for no penalty, exactly */
        return err_set(err, CVN_EINVAL,
                       "the request has a repeat penalty; make the engine with options.penalties");
    add_seen(e, row, tokens, n);
    double begin = clock_seconds();
    Program *p = NULL;
    for (int64_t done = 0; done < n;) {
        int b = choose_bucket(o->bucket, o->n_buckets, n - done);
        int64_t part = n - done < o->bucket[b] ? n - done : o->bucket[b];
        bool last = done + part == n;
        p = last ? &e->prefill[mode][b] : &e->fill[b];
        stage_section(e, p, row, tokens + done, part);
        int code = run_program(e, p, err);
        if (code)
            return code;
        e->stats.prefills++;
        e->filled[row] += part;
        done += part;
    }
    const int32_t *next = p->output[p->first_result];
    e->rows.tokens[row] = next[0];
    e->rows.start[row] = (int32_t)e->filled[row];
    e->stats.prefill_tokens += n;
    e->stats.prefill_seconds += clock_seconds() - begin;
    return CVN_OK;
}

int engine_decode(cvn_engine *e, cvn_err *err)
{
    SampleMode mode = SAMPLE_GREEDY;
    for (int i = 0; i < e->options.rows; i++) {
        if (!e->rows.length[i])
            continue;
        add_seen(e, i, &e->rows.tokens[i], 1);
        SampleMode wanted = row_mode(&e->rows, i, e->model->io.config.vocab);
        mode = wanted > mode ? wanted : mode;
        if (e->filled[i] >= e->options.context)
            return err_set(err, CVN_EINVAL, "row %d has filled its context of %" PRId64, i,
                           e->options.context);
    }
    double begin = clock_seconds();
    int code = run_program(e, &e->decode[mode], err);
    if (code)
        return code;
    e->stats.decodes++;
    e->stats.decode_seconds += clock_seconds() - begin;
    for (int i = 0; i < e->options.rows; i++) {
        e->filled[i] += e->rows.length[i];
        e->stats.decoded_tokens += e->rows.length[i];
    }
    return CVN_OK;
}

int cvn_engine_score(cvn_engine *e, const int32_t *token, int64_t n, float *logprob,
                     int32_t *argmax, cvn_err *err)
{
    if (!e->n_score_buckets)
        return err_set(err, CVN_EINVAL, "the engine cannot score; make it with options.scoring");
    engine_reset_row(e, 0);
    if (check_tokens(e, 0, token, n, err))
        return CVN_EINVAL;
    logprob[0] = 0;
    double begin = clock_seconds();
    for (int64_t done = 0; done < n;) {
        int b = choose_bucket(e->score_bucket, e->n_score_buckets, n - done);
        int64_t part = n - done < e->score_bucket[b] ? n - done : e->score_bucket[b];
        Program *p = &e->score[b];
        stage_section(e, p, 0, token + done, part);
        for (int64_t i = 0; i < p->seq; i++)
            e->one.targets[i] = done + i + 1 < n ? token[done + i + 1] : -1;
        int code = run_program(e, p, err);
        if (code)
            return code;
        const float *got = p->output[p->first_result];
        for (int64_t i = 0; i < part && done + i + 1 < n; i++)
            logprob[done + i + 1] = got[i];
        memcpy(argmax + done, p->output[p->first_result + 1], (size_t)part * sizeof *argmax);
        e->stats.prefills++;
        e->filled[0] += part;
        done += part;
    }
    e->stats.prefill_tokens += n;
    e->stats.prefill_seconds += clock_seconds() - begin;
    engine_reset_row(e, 0);
    return CVN_OK;
}
