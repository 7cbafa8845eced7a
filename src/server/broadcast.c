/*
 * A server whose model is divided among several processes, as mpirun starts them. Rank 0 alone listens. What the model computes
 * takes all ranks, so all of them admit, generate and end the same requests in the same steps: before each step rank 0 says
 * which have come since, as they were sent, and which nobody waits for any more. The others have no connections; what they
 * generate nobody reads.
 *
 *     {"new": [{"path": "/v1/completions", "seed": 7, "key": -1, "now": 1700000000, "body": {…}}],
 *      "end": [[3, 1]]}        the third that came, because its client has gone (Ending)
 *
 * So nothing that an engine's thread does may depend on the time, on chance, or on what only connections know, but by way of
 * these orders. In one process they are carried out without being written.
 */
#include "server/internal.h"

#include "comm/cluster.h"
#include "server/routes.h"

#include <stdlib.h>
#include <time.h>

Exchange *exchange_read(Server *s, const Dialect *dialect, Ask *ask, Refusal *why)
{
    json_t *order = NULL;
    ask->input.now = ask->input.now ? ask->input.now : (int64_t)time(NULL);
    if (s->several)
        order = json_pack("{s:s,s:i,s:I,s:o}", "path", dialect->path, "key", ask->queue.key, "now",
                          (json_int_t)ask->input.now, "body", json_deep_copy(ask->body));
    Exchange *x = NULL;
    if (!fields_read(dialect->fields, ask, s->options.lenient, why) &&
        !dialect->finish(s, ask, why)) {
        ask_forget_text(ask);
        if (!ask->sampling.has_seed)
            ask->sampling.seed = (int64_t)routes_random();
        if (order)
            json_object_set_new(order, "seed", json_integer(ask->sampling.seed));
        x = exchange_new(s, dialect, ask);
        if (!x || (s->several && !order))
            refuse(why, 500, NULL, "no memory for the request");
    }
    if (!why->status) {
        x->order = order;
        return x;
    }
    json_decref(order);
    if (x)
        exchange_free(x);
    return NULL;
}

/* What connections know by now: new exchanges are numbered, and those that nobody waits for are to end. */
static void look(Server *s, json_t *new, json_t *end)
{
    pthread_mutex_lock(&s->lock);
    for (Exchange *x = s->queue.first; x; x = x->next) {
        if (!x->number) {
            x->number = ++s->queue.last_number;
            json_array_append_new(new, x->order);
            x->order = NULL;
        }
        Ending ending = x->end.cancelled ? ENDING_GONE : x->end.late ? ENDING_LATE : ENDING_NOT;
        if (ending && !x->end.ending)
            json_array_append_new(end, json_pack("[I,i]", (json_int_t)x->number, (int)ending));
        x->end.ending = x->end.ending ? x->end.ending : ending;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- another rank ---- */

static int admit(Server *s, const json_t *order, cvn_err *err)
{
    Refusal why = {0};
    Ask ask;
    const char *path = json_string_value(json_object_get(order, "path"));
    const Route *route = path ? routes_find(path, "POST") : NULL;
    ask_init(&ask);
    ask.body = json_incref(json_object_get(order, "body"));
    ask.queue.key = (int)json_integer_value(json_object_get(order, "key"));
    ask.input.now = json_integer_value(json_object_get(order, "now"));
    Exchange *x = route && route->dialect ? exchange_read(s, route->dialect, &ask, &why) : NULL;
    ask_free(&ask);
    if (!x)
        return err_set(err, CVN_EINVAL, "a request accepted by rank 0 is refused on this rank: %s",
                       why.err.message);
    json_decref(x->order);
    x->order = NULL;
    x->ask.sampling.seed = json_integer_value(json_object_get(order, "seed"));
    x->number = ++s->queue.last_number;
    pthread_mutex_lock(&s->lock);
    worker_link(s, x);
    pthread_mutex_unlock(&s->lock);
    return CVN_OK;
}

static int obey(Server *s, const char *text, size_t n, cvn_err *err)
{
    json_t *orders = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *value;
    size_t i;
    int code = orders ? CVN_OK : err_set(err, CVN_EFORMAT, "cannot parse the message of rank 0");
    json_array_foreach(json_object_get(orders, "new"), i, value)
    {
        code = code ? code : admit(s, value, err);
    }
    json_array_foreach(json_object_get(orders, "end"), i, value)
    {
        Exchange *x = s->queue.first;
        while (x && x->number != json_integer_value(json_array_get(value, 0)))
            x = x->next;
        if (x)
            x->end.ending = (Ending)json_integer_value(json_array_get(value, 1));
    }
    json_decref(orders);
    return code;
}

/* ---- all ranks ---- */

int broadcast_requests(Server *s, bool *more, cvn_err *err)
{
    Cluster *cluster = s->served[0].engine->options.cluster;
    json_t *new = json_array(), *end = json_array();
    char *text = NULL;
    if (!server_follows(s))
        look(s, new, end);
    if (s->several && !server_follows(s) && (json_array_size(new) || json_array_size(end))) {
        json_t *orders = json_pack("{s:O,s:O}", "new", new, "end", end);
        text = json_dumps(orders, JSON_COMPACT);
        json_decref(orders);
    }
    json_decref(new);
    json_decref(end);
    int64_t head[] = {*more, text ? (int64_t)strlen(text) : 0};
    int code = cluster_share(cluster, head, sizeof head, err);
    *more = head[0] != 0;
    if (code == CVN_OK && head[1] && s->several) {
        text = text ? text : malloc((size_t)head[1]);
        code = text ? cluster_share(cluster, text, (size_t)head[1], err)
                    : err_set(err, CVN_EMEM, "no memory for requests");
    }
    if (code == CVN_OK && head[1] && server_follows(s))
        code = obey(s, text, (size_t)head[1], err);
    free(text);
    return code;
}
