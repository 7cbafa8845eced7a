/*
 * Chunk sizes for the prompts that a server is given. A prompt is computed in chunks of the largest size, and its rest in the smallest
 * that has room for it: what is then too much is padding. Fewer sizes are compiled sooner; these are as few as come within 1 % of the best
 * that seven do.
 *
 *     prompts of 100, 130 and 700 tokens, at most 512 at a time: rests of 100, 130 and 188
 *     -> 112, 144, 192, 512: 956 tokens computed for 930
 *
 * Sizes are multiples of 16, which is what tiles of kernels have.
 */
#ifndef CVN_SERVE_BUCKETS_H
#define CVN_SERVE_BUCKETS_H

#include "caravan/engine.h"

typedef struct BucketChoice {
    int64_t prompts;
    int n;
    int64_t bucket[CVN_MAX_BUCKETS]; /* [n] ascending; the last is the largest */
    double padding,
        usual; /* share of padding in what is computed: of these sizes, of the defaults */
} BucketChoice;

/* For prompts of length[n] tokens, at most `largest` at a time (a multiple of 16 up to 1024, or less than 16). */
void buckets_choose(const int64_t *length, size_t n, int64_t largest, BucketChoice *out);

/* For those of a log: a number per line, or objects as `serve --access-log` writes them, with "prompt_tokens" of which "cached_tokens"
   are not computed. Lines without are skipped; of `context` tokens at most. CVN_EFORMAT where no line has one. */
int buckets_of_log(const char *path, int64_t context, BucketChoice *out, cvn_err *err);

#endif
