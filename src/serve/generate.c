/* Generating for many requests at once: they are submitted together, and steps run until all have ended. */
#include "serve/scheduler.h"

#include <stdlib.h>

typedef struct Batch {
    const cvn_request *request;
    cvn_token_fn *on_token;
    void *context;
    cvn_result *result;
    int left; /* that have not ended */
} Batch;

typedef struct Item {
    Batch *batch;
    int index, id;
    bool ended;
} Item;

static bool on_token(void *context, int id, int32_t token)
{
    const Item *item = context;
    const Batch *b = item->batch;
    (void)id;
    return !b->on_token || b->on_token(b->context, item->index, token);
}

static void on_logits(void *context, int id, const float *logits, int32_t token)
{
    const Item *item = context;
    const Batch *b = item->batch;
    (void)id;
    b->request[item->index].on_logits(b->context, item->index, logits, token);
}

static void on_end(void *context, int id, const cvn_result *result)
{
    Item *item = context;
    (void)id;
    item->batch->result[item->index] = *result;
    item->batch->left--;
    item->ended = true;
}

int cvn_engine_generate(cvn_engine *e, const cvn_request *request, int n, cvn_token_fn *heard,
                        void *context, const volatile int *interrupt, cvn_result *result,
                        cvn_err *err)
{
    return generate_all(e, NULL, request, n, heard, context, interrupt, result, err);
}

int generate_all(cvn_engine *e, const void *owner, const cvn_request *request, int n,
                 cvn_token_fn *heard, void *context, const volatile int *interrupt,
                 cvn_result *result, cvn_err *err)
{
    if (e->queue.busy)
        return err_set(err, CVN_EINVAL,
                       "a step callback may submit and cancel requests, but not generate");
    for (int i = 0; i < n; i++)
        TRY(engine_check_request(e, &request[i], i, err));
    Batch b = {.request = request, .on_token = heard, .context = context, .result = result};
    SCOPED(scoped_free) Item *item = calloc((size_t)n + 1, sizeof *item);
    int code = item ? CVN_OK : err_set(err, CVN_EMEM, "no memory for %d requests", n);
    for (int i = 0; i < n && code == CVN_OK; i++) {
        const cvn_listener listener = {on_token, on_end, &item[i]};
        cvn_request one = request[i];
        one.on_logits = one.on_logits ? on_logits : NULL;
        item[i] = (Item){.batch = &b, .index = i};
        result[i] = (cvn_result){.finish = CVN_FINISH_CANCELLED};
        code = scheduler_submit(e, &one, &listener, owner, &item[i].id, err);
        b.left += code == CVN_OK;
    }
    if (code == CVN_OK)
        code = scheduler_run(e, &b.left, interrupt, err);
    for (int i = 0; i < n && b.left; i++)
        if (item[i].id && !item[i].ended)
            cvn_engine_cancel(e, item[i].id, NULL);
    return code;
}
