/* A model without files: the shape of a config, weights made in memory. For measuring, where speed
   counts and what the model says does not. */
#ifndef CVN_SERVE_SYNTHETIC_H
#define CVN_SERVE_SYNTHETIC_H

#include "base/threads.h"
#include "serve/model.h"

/* Weights of dtype f32 or bf16, norms 1, the rest small and pseudo-random, filled by all threads of
   the pool (so that pages lie near the threads); without a pool there are none, and an engine on a
   mesh makes those of its devices.
   Free with cvn_model_free. */
int model_synthetic(const LlamaConfig *config, cvn_dtype dtype, Pool *pool, cvn_model **out,
                    cvn_err *err);

/* Fills a shard of a weight with such numbers: n elements
   of dtype, or of a quantized one that many of its own. */
void synthetic_shard(const Param *param, cvn_dtype dtype, int64_t n, void *data);

#endif
