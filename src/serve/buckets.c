#include "serve/buckets.h"

#include "base/file.h"
#include "base/heap.h"
#include "base/json_file.h"
#include "base/num.h"
#include "base/protect.h"
#include "serve/steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 16, PLACES = 64, MOST = 7 };

/* Tokens that are computed of a prompt. */
static double computed(int64_t length, const int64_t *bucket, int n)
{
    const int64_t largest = bucket[n - 1], rest = (length - 1) % largest + 1;
    int i = 0;
    while (bucket[i] < rest)
        i++;
    return (double)(length - rest + bucket[i]);
}

/* Of all prompts: the share that is padding. */
static double padding(const int64_t *length, size_t n, const int64_t *bucket, int buckets)
{
    double tokens = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        tokens += (double)length[i];
        all += computed(length[i], bucket, buckets);
    }
    return all > 0 ? 1 - tokens / all : 0;
}

void buckets_choose(const int64_t *length, size_t n, int64_t largest, BucketChoice *out)
{
    const int places = (int)num_max(1, largest / STEP);
    double rests[PLACES + 1] = {0},
                          whole = 0;   /* how many end in each place; tokens of whole chunks */
    double best[MOST + 1][PLACES + 1]; /* tokens of rests up to a place, in so many sizes */
    int before[MOST + 1][PLACES + 1];
    *out = (BucketChoice){.prompts = (int64_t)n, .n = 1, .bucket = {largest}};
    for (size_t i = 0; i < n && largest > STEP; i++) {
        const int64_t rest = (length[i] - 1) % largest + 1;
        rests[(rest + STEP - 1) / STEP]++;
        whole += (double)(length[i] - rest);
    }
    for (int k = 0; k <= MOST; k++)
        for (int j = 0; j <= places; j++) {
            best[k][j] = j == 0 ? 0 : INFINITY;
            before[k][j] = 0;
            double prompts = 0;
            for (int i = j - 1; k > 0 && i >= 0; i--) {
                prompts += rests[i + 1];
                const double tokens = best[k - 1][i] + prompts * STEP * j;
                if (tokens < best[k][j]) {
                    best[k][j] = tokens;
                    before[k][j] = i;
                }
            }
        }
    int k = 1;
    while (k < MOST && whole + best[k][places] > 1.01 * (whole + best[MOST][places]))
        k++;
    if (largest > STEP) {
        out->n = 0;
        for (int j = places; j > 0; j = before[k--][j])
            out->bucket[out->n++] = (int64_t)j * STEP;
        for (int i = 0; i < out->n / 2; i++) {
            const int64_t other = out->bucket[i];
            out->bucket[i] = out->bucket[out->n - 1 - i];
            out->bucket[out->n - 1 - i] = other;
        }
    }
    int64_t usual[CVN_MAX_BUCKETS];
    const int usuals = steps_buckets(largest, usual);
    out->padding = padding(length, n, out->bucket, out->n);
    out->usual = padding(length, n, usual, usuals);
}

/* Of one line: tokens of a prompt that are computed; 0: it has none. */
static int64_t tokens_of(const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, JSON_DECODE_ANY, NULL);
    int64_t tokens = json_integer_value(o); /* 0 of what is no number */
    if (json_is_object(o))
        tokens = json_integer_value(json_object_get(o, "prompt_tokens")) -
                 json_integer_value(json_object_get(o, "cached_tokens"));
    json_decref(o);
    return tokens;
}

int buckets_of_log(const char *path, int64_t context, BucketChoice *out, cvn_err *err)
{
    SCOPED(file_map_release) FileMap file = {0};
    SCOPED(scoped_free) int64_t *length = NULL;
    size_t n = 0;
    TRY(file_map(&file, path, err));
    const char *at = (const char *)file.data, *end = at + file.size;
    while (at < end) {
        const char *line = at, *stop = memchr(at, '\n', (size_t)(end - at));
        at = stop ? stop + 1 : end;
        const int64_t tokens = tokens_of(line, (size_t)((stop ? stop : end) - line));
        if (tokens < 1)
            continue;
        int64_t *more = heap_more(length, n, sizeof *more);
        if (!more)
            return err_set(err, CVN_EMEM, "no memory for %zu prompts", n + 1);
        length = more;
        length[n++] = num_min(tokens, context);
    }
    if (n == 0)
        return err_set(err, CVN_EFORMAT,
                       "%s: no line has the length of a prompt; give an access log of serve, or a "
                       "number of tokens per line",
                       path);
    int64_t usual[CVN_MAX_BUCKETS];
    buckets_choose(length, n, usual[steps_buckets(context, usual) - 1], out);
    return CVN_OK;
}
