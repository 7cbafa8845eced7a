#include "server/routes.h"

#include "base/threads.h"

#include <stdlib.h>
#include <sys/random.h>

uint64_t routes_random(void)
{
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)clock_ns() * UINT64_C(0x9e3779b97f4a7c15);
    return random;
}

void server_progress(Server *s, int model, uint64_t done, uint64_t all)
{
    pthread_mutex_lock(&s->lock);
    s->load.model = model;
    s->load.bytes = done;
    s->load.of = all;
    pthread_mutex_unlock(&s->lock);
}

static int health(Server *s, Ask *ask, json_t **out, Refusal *why)
{
    static const char *const states[] = {"loading", "ok", "draining", "stopped"};
    (void)ask;
    (void)why;
    pthread_mutex_lock(&s->lock);
    ServerState state = s->state;
    *out = json_pack("{s:s,s:f}", "status", states[state], "seconds", clock_seconds() - s->started);
    if (state == SERVER_LOADING) {
        const char *model = s->options.model[s->load.model].name;
        json_object_set_new(*out, "model", json_text_of(model, strlen(model)));
        json_object_set_new(*out, "bytes_loaded", json_integer((json_int_t)s->load.bytes));
        json_object_set_new(*out, "bytes", json_integer((json_int_t)s->load.of));
    }
    pthread_mutex_unlock(&s->lock);
    return state == SERVER_READY ? 200 : 503;
}

static int version(Server *s, Ask *ask, json_t **out, Refusal *why)
{
    (void)s;
    (void)ask;
    (void)why;
    *out = json_pack("{s:s}", "version", CVN_VERSION);
    return 200;
}

static int models(Server *s, Ask *ask, json_t **out, Refusal *why)
{
    (void)ask;
    pthread_mutex_lock(&s->lock);
    bool ready = s->state != SERVER_LOADING;
    pthread_mutex_unlock(&s->lock);
    if (!ready)
        return refuse(why, 503, NULL, "the server is loading the model");
    json_t *data = json_array();
    for (int i = 0; i < s->options.n_models; i++) {
        const Served *m = &s->served[i];
        for (int k = -1; k < m->is->n_adapters; k++) {
            json_t *model =
                json_pack("{s:s,s:s,s:I,s:s,s:I}", "id", k < 0 ? m->is->name : m->is->adapter[k],
                          "object", "model", "created", s->created, "owned_by", "caravan",
                          "max_model_len", (json_int_t)m->context);
            if (k >= 0)
                json_object_set_new(model, "parent", json_string(m->is->name));
            json_array_append_new(data, model);
        }
    }
    *out = json_pack("{s:s,s:o}", "object", "list", "data", data);
    return 200;
}

/* Names of adapters that texts have which are under way, or that have no token yet. */
static void list_adapters(const Server *s, const Served *m, bool waiting, StrBuf *out)
{
    for (int i = 0; i < m->is->n_adapters; i++) {
        const Exchange *x = s->queue.first;
        while (x && (x->ask.served != m || x->ask.adapter != i || waiting == (x->time.first > 0)))
            x = x->next;
        if (x)
            strbuf_printf(out, "%s%s", out->length ? "," : "", m->is->adapter[i]);
    }
}

static void metrics(Server *s, StrBuf *out)
{
    int n = s->options.n_models;
    Gauges *all = calloc((size_t)n, sizeof *all);
    out->failed = out->failed || !all;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n && all; i++) {
        const Served *m = &s->served[i];
        int waiting = m->now.n_choices - m->now.running;
        all[i] = (Gauges){.model = m->is->name,
                          .metrics = &m->now.metrics,
                          .running = m->now.n_choices ? m->now.running : 0,
                          .waiting = waiting > 0 ? waiting : 0,
                          .slots = m->slots,
                          .preemptions = m->now.stats.preemptions,
                          .cache_share = m->now.cache_share,
                          .context = m->context,
                          .weight_bytes = (double)m->now.stats.weight_bytes,
                          .decode_seconds = m->now.stats.decode_seconds,
                          .decodes = m->now.stats.decodes,
                          .adapters = m->is->n_adapters};
        list_adapters(s, m, false, &all[i].running_adapters);
        list_adapters(s, m, true, &all[i].waiting_adapters);
    }
    if (all)
        metrics_text(all, n, s->refused, out);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < n && all; i++) {
        strbuf_free(&all[i].running_adapters);
        strbuf_free(&all[i].waiting_adapters);
    }
    free(all);
}

#define PAGE(kind) .is_public = true, .page = page_##kind, .page_end = page_##kind##_end

const Route routes[] = {
    {"POST", "/v1/chat/completions", .dialect = &dialect_chat},
    {"POST", "/v1/completions", .dialect = &dialect_completions},
    {"POST", "/v1/responses", .dialect = &dialect_responses},
    {"POST", "/v1/messages", .dialect = &dialect_messages},
    {"POST", "/v1/embeddings", .dialect = &dialect_embeddings},
    {"POST", "/v1/messages/count_tokens", .answer = answer_count_tokens,
     .fields = &fields_count_tokens},
    {"POST", "/tokenize", .answer = answer_tokenize, .fields = &fields_tokenize},
    {"POST", "/detokenize", .answer = answer_detokenize, .fields = &fields_detokenize},
    {"POST", "/apply-template", .answer = answer_apply_template, .fields = &fields_apply_template},
    {"GET", "/v1/models", .answer = models},
    {"GET", "/health", .answer = health, .is_public = true},
    {"GET", "/version", .answer = version},
    {"GET", "/openapi.json", .answer = answer_openapi},
    {"GET", "/", PAGE(html), .type = "text/html; charset=utf-8"},
    {"GET", "/page.css", PAGE(css), .type = "text/css; charset=utf-8"},
    {"GET", "/page.js", PAGE(js), .type = "text/javascript; charset=utf-8"},
    {"GET", "/metrics", .text = metrics, .type = "text/plain; version=0.0.4; charset=utf-8"},
};

const size_t n_routes = sizeof routes / sizeof *routes;

const Route *routes_find(const char *path, const char *method)
{
    const Route *found = NULL;
    for (size_t i = 0; i < n_routes; i++)
        if (strcmp(routes[i].path, path) == 0) {
            found = found ? found : &routes[i];
            if (strcmp(routes[i].method, method) == 0)
                return &routes[i];
        }
    return found;
}
