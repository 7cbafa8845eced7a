#include "sim/search.h"

#include "base/threads.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *const search_goal_names[SEARCH_GOALS + 1] = {"latency", "throughput", "cost"};

enum { MOST_WAYS = 4096, FEW = 2 };

typedef struct Search {
    const SearchAsk *ask;
    SearchWay *way; /* [n]: those that fit [fit], and then those that are to be tried */
    int n, fit;
    atomic_int next; /* to be tried */
    int tried;
    double nearest; /* bytes that the way took that came nearest */
} Search;

/* The number by which plans are compared; smaller is better. */
static double worth(const SearchAsk *a, const SearchWay *w)
{
    switch (a->goal) {
    case SEARCH_LATENCY:
        return w->seconds;
    case SEARCH_THROUGHPUT:
        return w->seconds / w->tokens;
    default:
        return w->seconds / w->tokens * (double)w->chips;
    }
}

/* Plans a candidate for a model of so many layers. */
static int plan(const SimAsk *asked, SearchWay *w, int64_t layers, cvn_err *err)
{
    SimAsk ask = *asked;
    SimAnswer a;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    ask.mesh = w->mesh;
    ask.layout = w->layout;
    ask.batch = w->batch;
    ask.train.remat = w->remat;
    ask.model = model_of_layers(ask.model, layers, &arena);
    int code = sim_plan(&ask, &a, err);
    if (code == CVN_OK) {
        w->seconds = a.timed.seconds;
        w->exposed = a.timed.exposed;
        w->memory = a.memory.total;
        w->model_flops = a.model_flops;
        w->cost = a.timed.cost;
    }
    sim_answer_free(&a);
    return code;
}

/* Extrapolates what two numbers of layers take, the second twice the first: `times` as many layers as the second has beyond it. */
static double further(double few, double some, double times)
{
    return fmax(0, few + (some - few) * times);
}

int search_try(const SimAsk *ask, SearchWay *w, int64_t few, cvn_err *err)
{
    SearchWay some = *w;
    const int64_t layers = model_layers(ask->model);
    const double times = (double)(layers - few) / (double)few;
    w->tokens = (double)(w->batch * (ask->task == SIM_DECODE ? 1 : ask->seq));
    if (layers <= 2 * few)
        return plan(ask, w, layers, err);
    TRY(plan(ask, w, few, err));
    TRY(plan(ask, &some, 2 * few, err));
    Cost each = some.cost;
    cost_add(&each, &w->cost, -1);
    w->seconds = further(w->seconds, some.seconds, times);
    w->exposed = further(w->exposed, some.exposed, times);
    w->memory = further(w->memory, some.memory, times);
    w->model_flops = further(w->model_flops, some.model_flops, times);
    cost_add(&w->cost, &each, times);
    return CVN_OK;
}

/* Each thread plans the next candidate that no thread has taken. */
static void try_some(void *of, int thread, int n_threads)
{
    Search *s = of;
    (void)thread, (void)n_threads;
    for (int i; (i = atomic_fetch_add(&s->next, 1)) < s->n;) {
        cvn_err err = {0};
        if (search_try(&s->ask->ask, &s->way[i], FEW, &err))
            s->way[i].chips = 0; /* a way that cannot be planned is none */
    }
}

/* Those that were added; what fits stays. */
static int try_added(Search *s, cvn_err *err)
{
    Pool *pool = pool_new(0, err);
    if (!pool)
        return err->code;
    atomic_store(&s->next, s->fit);
    pool_run(pool, try_some, s);
    pool_free(pool);
    s->tried += s->n - s->fit;
    for (int i = s->fit; i < s->n; i++) {
        const SearchWay *w = &s->way[i];
        if (w->chips == 0)
            continue;
        s->nearest = s->nearest > 0 ? fmin(s->nearest, w->memory) : w->memory;
        if (w->memory <= s->ask->ask.chip->memory)
            s->way[s->fit++] = *w;
    }
    s->n = s->fit;
    return CVN_OK;
}

SearchWay search_way(int64_t data, int64_t model, const char *layout, int64_t batch,
                     RematPolicy remat)
{
    SearchWay w = {.layout = layout, .batch = batch, .chips = data * model, .remat = remat};
    if (data > 1 && model > 1)
        snprintf(w.mesh, sizeof w.mesh, "data=%lld,model=%lld", (long long)data, (long long)model);
    else if (data * model > 1)
        snprintf(w.mesh, sizeof w.mesh, "%s=%lld", data > 1 ? "data" : "model",
                 (long long)(data * model));
    return w;
}

static void add_mesh(Search *s, int64_t data, int64_t model, int64_t batch)
{
    static const char *const alone[] = {"dp", "fsdp", NULL},
                             *const within[] = {"tp", "tp-scatter", NULL},
                             *const both[] = {"dp+tp", "fsdp+tp", "2d", NULL};
    const char *said[] = {s->ask->layout, NULL};
    const char *const *layouts = s->ask->layout ? said
                                 : data == 1    ? within
                                 : model == 1   ? alone
                                                : both;
    bool trains = s->ask->ask.task == SIM_TRAIN;
    for (; *layouts; layouts++)
        for (int r = 0; r < (trains && s->ask->remat ? REMAT_POLICY_COUNT : 1); r++) {
            RematPolicy remat = s->ask->remat ? (RematPolicy)r : s->ask->ask.train.remat;
            if (s->n < MOST_WAYS)
                s->way[s->n++] = search_way(data, model, *layouts, batch, remat);
        }
}

static int try_chips(Search *s, int64_t chips, cvn_err *err)
{
    const SimAsk *a = &s->ask->ask;
    const int64_t heads = model_shape(a->model).heads;
    for (int64_t model = 1; model <= chips && model <= heads; model++)
        for (int64_t batch = a->batch, data = chips / model; batch <= a->batch * 256; batch *= 4) {
            if (chips % model == 0 && batch % data == 0 && heads % model == 0)
                add_mesh(s, data, model, batch);
            if (!s->ask->batch)
                break;
        }
    return try_added(s, err);
}

static int better(const void *x, const void *y, void *ask)
{
    double a = worth(ask, x), b = worth(ask, y);
    return (a > b) - (a < b);
}

static int search(Search *s, SearchFound *out, cvn_err *err)
{
    SearchAsk ask = *s->ask;
    if (ask.chips > 0)
        TRY(try_chips(s, ask.chips, err));
    /* Any count may be the least that does; but no chip of more takes less than its share of what all took here. */
    for (int64_t chips = 1, next; ask.chips == 0 && s->n == 0 && chips <= 1 << 16; chips = next) {
        s->nearest = 0;
        TRY(try_chips(s, chips, err));
        next = (int64_t)fmax((double)chips + 1,
                             ceil((double)chips * s->nearest / ask.ask.chip->memory));
    }
    out->tried = s->tried;
    out->fit = s->n;
    qsort_r(s->way, (size_t)s->n, sizeof *s->way, better, &ask);
    for (int i = 0; i < s->n && out->n < SEARCH_BEST; i++) {
        TRY(plan(&ask.ask, &s->way[i], model_layers(ask.ask.model), err));
        if (s->way[i].memory <= ask.ask.chip->memory)
            out->way[out->n++] = s->way[i];
    }
    qsort_r(out->way, (size_t)out->n, sizeof *out->way, better, &ask);
    if (s->tried == 0)
        return err_set(
            err, CVN_EINVAL,
            "a batch of %lld cannot be divided among groups of %lld chips; use another --batch",
            (long long)ask.ask.batch, (long long)ask.chips);
    if (out->n == 0)
        return err_set(err, CVN_EINVAL,
                       "none of %d shardings fits in a chip's %.1f GB; the smallest needs %.1f GB; "
                       "use more chips",
                       s->tried, ask.ask.chip->memory / 1e9, s->nearest / 1e9);
    return CVN_OK;
}

int sim_search(const SearchAsk *ask, SearchFound *found, cvn_err *err)
{
    double begin = clock_seconds();
    Search s = {.ask = ask, .way = calloc(MOST_WAYS, sizeof *s.way)};
    *found = (SearchFound){.n = 0};
    int code = s.way ? search(&s, found, err) : err_set(err, CVN_EMEM, "no memory for a search");
    free(s.way);
    found->seconds = clock_seconds() - begin;
    return code;
}
