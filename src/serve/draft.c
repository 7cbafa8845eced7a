#include "serve/draft.h"

#include "base/num.h"

#include <inttypes.h>
#include <string.h>

int draft_open(Draft *d, const cvn_engine *of, cvn_err *err)
{
    const cvn_engine_options *o = &of->options;
    const Model *own = o->draft->io.desc, *config = of->model->io.desc;
    if (of->rt.mesh.n_devices > 1)
        return err_set(
            err, CVN_EUNSUPPORTED,
            "a draft model runs on one device only; leave out the mesh or the draft model");
    if (model_vocab(own) != model_vocab(config) || model_longest_context(own) < o->context)
        return err_set(err, CVN_EINVAL,
                       "the draft model has a vocabulary of %" PRId64 " and a context of %" PRId64
                       ", the model %" PRId64 " and %" PRId64
                       "; take a draft of the same vocabulary, or a shorter context",
                       model_vocab(own), model_longest_context(own), model_vocab(config),
                       o->context);
    const cvn_engine_options options = {.rows = o->rows,
                                        .context = o->context,
                                        .threads = o->threads,
                                        .sampling = of->most >= SAMPLE_RANDOM,
                                        .filters = of->most >= SAMPLE_FILTER,
                                        .n_buckets = 3,
                                        .bucket = {4, 32, 256}};
    TRY(cvn_engine_new(o->draft, &options, &d->e, err));
    size_t rows = (size_t)o->rows;
    d->held = arena_array(&d->e->arena, rows, sizeof *d->held);
    d->request = arena_array(&d->e->arena, rows, sizeof *d->request);
    for (size_t i = 0; i < rows; i++)
        d->held[i] = arena_array(&d->e->arena, (size_t)o->context + 1, sizeof(int32_t));
    return CVN_OK;
}

void draft_close(Draft *d)
{
    cvn_engine_free(d->e, NULL);
}

/* A row goes on from what it holds of the text, and draws as the engine's does. */
static void begin(Draft *d, const cvn_engine *of, int row, const int32_t *text, int64_t n)
{
    int32_t *held = d->held[row];
    int64_t same = 0, most = num_min(d->e->filled[row], n - 1);
    while (same < most && held[same] == text[same])
        same++;
    engine_set_filled(d->e, row, same);
    memcpy(held, text, (size_t)n * sizeof *held);
    d->request[row] = (cvn_request){.prompt = held, .n_prompt = n};
    engine_copy_sampling(of, &d->e->rows, row, row);
}

int draft_guess(Draft *d, const cvn_engine *of, int32_t *const *text, const int64_t *n, int most,
                int32_t *const *guess, int *n_guess, cvn_err *err)
{
    int rows = d->e->options.rows, active = 0;
    for (int row = 0; row < rows; row++) {
        engine_set_active(d->e, row, false);
        if (text[row])
            begin(d, of, row, text[row], n[row]);
    }
    for (int left = 1;
         left;) { /* what is new of the texts; each row has then drawn its first guess */
        left = 0;
        for (int row = 0; row < rows; row++)
            if (text[row] && d->e->filled[row] < d->request[row].n_prompt)
                d->e->prompt[left++] = (RowPrompt){.row = row, .request = &d->request[row]};
        if (left)
            TRY(engine_prefill(d->e, d->e->prompt, left, err));
    }
    for (int row = 0; row < rows; row++)
        engine_set_active(d->e, row, text[row] != NULL);
    for (int i = 0; i < most; i++) {
        if (i && active)
            TRY(engine_decode(d->e, err));
        active = 0;
        for (int row = 0; row < rows; row++) {
            if (!d->e->rows.length[row])
                continue;
            guess[row][i] = d->held[row][n[row] + i] = d->e->rows.tokens[row];
            n_guess[row] = i + 1;
            active++;
            if (d->e->filled[row] >= of->options.context)
                engine_set_active(d->e, row, false);
        }
    }
    return CVN_OK;
}
