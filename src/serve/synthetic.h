/* A model without files: the shape of a config, weights made in memory. For measuring, where speed
   counts and what the model says does not. */
#ifndef CVN_SERVE_SYNTHETIC_H
#define CVN_SERVE_SYNTHETIC_H

#include "serve/model.h"
#include "shard/box.h"

/* Norms are 1, the rest is small and pseudo-random; whatever makes the weights asks synthetic_box for them. Free with
   cvn_model_free. */
int model_synthetic(const Model *config, cvn_dtype dtype, cvn_model **out, cvn_err *err);

/* The numbers of a box of a weight, packed, in the type of its array (param_type). */
void synthetic_box(const Param *param, cvn_dtype dtype, const Box *box, void *out);

#endif
