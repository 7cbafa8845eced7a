/*
 * Serving, simulated: requests arrive, an engine's scheduler makes steps of prompts and tokens, and every step takes what its
 * operations take (sim/cost.h). Nothing is compiled: the operations of a transformer's step are those that its shapes say, so that a
 * step costs a microsecond to think of and models that Caravan does not run can be asked about.
 *
 *     128 requests in flight of 1024 tokens that answer with 1024 each, Llama 3.1 70B in fp8 on 4 H200, as TensorRT-LLM does it
 *     -> 746 ms to the first token, 20 ms for each one after it
 *
 * A request that ends is replaced at once, so that the time of a token has other requests' prompts in it.
 */
#ifndef CVN_SIM_SERVING_H
#define CVN_SIM_SERVING_H

#include "model/model.h"
#include "sim/cost.h"

#include <stdbool.h>

/* What of a model its time depends on. */
typedef struct SimShape {
    double dim, layers, heads, kv_heads, head_dim, ffn, vocab;
    double gates; /* matrices of the feed-forward part: 3 with a gate, 2 without */
    bool tied;    /* the head is the embedding */
    double norms; /* operations more in a layer: norms of queries and of keys */
} SimShape;

SimShape sim_shape_of(const ModelShape *shape);

/* An engine, as far as time depends on it. */
typedef struct SimEngine {
    const char *name;
    const char *source;
    double budget;   /* tokens of a step, at most */
    double fraction; /* of a chip's memory that it uses; */
    bool left;       /* or, for its cache, of what weights and activations leave of it */
    /* Small operations of a layer: norms, rotation, writing the cache, activation; */
    double launches;
    double fused;     /* of those, what goes into the sums of tensor parallelism */
    double quantizes; /* and more where activations are quantized */
    double host;      /* seconds between steps, that the chip waits; 0: nobody says */
    bool ahead;       /* a step is decided on while the one before it runs */
    bool whole;       /* a request is let in only when there is room for all that it may become */
    bool chunks;      /* prompts may be read in sections */
    bool mixes;       /* prompts are read in the same steps as tokens are made */
} SimEngine;

/* "trtllm", "vllm", "sglang", "caravan"; NULL. */
const SimEngine *sim_engine_find(const char *name);

typedef struct SimServing {
    const CostModel *chip;
    SimShape shape;
    SimEngine engine;
    ChipType type; /* of products */
    bool narrow;   /* keys and values in 8 bits */
    int tp, pp;    /* one replica: tp x pp chips */
    int64_t in_flight;
    /* Requests a second that come by themselves (Poisson), however many are in flight; 0: each that ends is replaced. */
    double rate;
    int64_t input, output; /* tokens of a request */
    double spread;         /* lengths are drawn from [1 - spread, 1] of these, evenly */
    /* different ones, all of which the cache keeps; 0: every request's is its own */
    int64_t prompts;
    int64_t requests;  /* 0: ten for each in flight, or of a rate 512 */
    int64_t most_rows; /* that are worked on at a time; 0: all in flight */
    int wait; /* steps that a prompt may wait for others, as long as there are fewer tokens than the budget has */
} SimServing;

typedef struct SimServed {
    double ttft, tpot; /* seconds, means over requests */
    double tokens;     /* a second, made, of a replica */
    double seconds;    /* all of it */
    int64_t steps;
    double weights, room; /* bytes: of a replica; of its caches */
    Cost cost;            /* of all steps, of one chip */
} SimServed;

int sim_serve(const SimServing *ask, SimServed *out, cvn_err *err);

/* One step: `rows` tokens that look at `keys` keys together, and `count` prompts of `tokens` new tokens together, each query of
   which looks at `mean` keys. Of one chip. */
Cost sim_step(const SimServing *ask, double rows, double keys, double tokens, double count,
              double mean);

#endif
