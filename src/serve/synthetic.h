/* A model without files: the shape of a config, weights made in memory. For measuring, where speed counts and
   what the model says does not. */
#ifndef CVN_SERVE_SYNTHETIC_H
#define CVN_SERVE_SYNTHETIC_H

#include "base/threads.h"
#include "serve/model.h"

/* Weights of dtype f32 or bf16, norms 1, the rest small and pseudo-random, filled by all threads of the pool (so
   that pages lie near the threads). Free with cvn_model_free. */
int model_synthetic(const LlamaConfig *config, cvn_dtype dtype, Pool *pool, cvn_model **out,
                    cvn_err *err);

#endif
