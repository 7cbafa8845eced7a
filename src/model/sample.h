/*
 * Drawing a token from logits, inside the graph.
 *
 * Each row has its own settings, as tensors, so that no setting compiles anything. The randomness
 * is counter-based: the noise of vocabulary entry v at position p of a row is a pure function of
 * (row's key, p, v), so a seed gives a row the same text whatever else is in the batch, on any
 * mesh.
 *
 * Drawing is by the Gumbel-max rule: argmax(logits / temperature + gumbel noise) is distributed as
 * softmax(logits / temperature). Filters (top-k, then top-p, then min-p, each on what the former
 * left) only remove candidates. What a row has no use for changes none of its bits, so that one program draws for all rows; the
 * greedy one, which takes 0.89 of its time in stories15m in 8 bits, draws what it draws for rows without a temperature.
 */
#ifndef CVN_MODEL_SAMPLE_H
#define CVN_MODEL_SAMPLE_H

#include "caravan/graph.h"

typedef enum SampleMode {
    SAMPLE_GREEDY,  /* argmax; no further parameters */
    SAMPLE_GENERAL, /* all below */
    SAMPLE_MODE_COUNT
} SampleMode;

/* Adds the parameters that the mode needs and returns the tokens, i32 [batch].
   logits f32 [batch, vocab]; position i32 [batch]: of the token that is drawn.
   Parameters: temperature f32 [batch] (<= 0: greedy), key u32 [batch, 2];
   top_k i32 [batch] (<= 0: off), top_p f32 [batch] (>= 1: off), min_p f32 [batch] (<= 0: off). */
cvn_value *sample_tokens(cvn_graph *g, SampleMode mode, cvn_value *logits, cvn_value *position);

/* The logits f32 [batch, vocab] with a penalty on tokens that were seen: divided by it where positive,
   multiplied where negative (Keskar et al., CTRL, 2019, with the sign heeded).
   Parameters: penalty f32 [batch] (1: off), seen i1 [batch, vocab]. */
cvn_value *sample_penalty(cvn_graph *g, cvn_value *logits);

/* The logits f32 [batch, vocab] with a bias added. Parameter: bias f32 [batch, vocab]. */
cvn_value *sample_bias(cvn_graph *g, cvn_value *logits);

#endif
