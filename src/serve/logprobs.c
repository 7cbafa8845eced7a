/* How likely a token is by its logits, and which tokens are the likeliest: what a listener to logits asks. */
#include "base/log_sum.h"
#include "caravan/engine.h"

/* The n likeliest with their logits, in order; of equals the lower id. Returns how many. */
static int find_top(const float *logits, int64_t vocab, cvn_logprob *top, int n)
{
    int found = 0;
    for (int64_t v = 0; v < vocab; v++) {
        int at = found;
        if (at == n && (n == 0 || !(logits[v] > top[n - 1].logprob)))
            continue;
        at -= at == n;
        for (; at > 0 && logits[v] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (cvn_logprob){(int32_t)v, logits[v]};
        found += found < n;
    }
    return found;
}

int cvn_logprobs(const float *logits, int64_t vocab, int32_t token, float *logprob, int *rank,
                 cvn_logprob *top, int n)
{
    float peak, log = log_sum_floats(logits, vocab, &peak);
    *logprob = -(log + (peak - logits[token]));
    if (rank)
        *rank = 1;
    for (int64_t v = 0; rank && v < vocab; v++)
        *rank += logits[v] > logits[token];
    int found = find_top(logits, vocab, top, n);
    for (int i = 0; i < found; i++)
        top[i].logprob = -(log + (peak - top[i].logprob));
    return found;
}
