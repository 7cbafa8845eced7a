/*
 * Weights on their way to the devices: from a model's files, shard by shard, or made up where the model has none
 * (serve/synthetic.h). Each device reads what it holds and nothing else. A tensor that a device wants as the file has it is
 * used where it lies in the mapping; the others are converted as they are read, and the file's pages given back.
 */
#ifndef CVN_SERVE_LOAD_H
#define CVN_SERVE_LOAD_H

#include "run/runtime.h"
#include "serve/model.h"

typedef struct LoadReport {
    double read_bytes; /* of files, that weights were made of or lie in */
    StrBuf warnings;   /* tensors with NaN or infinite elements, one a line; the caller's to free */
} LoadReport;

/* Fills every weight that the runtime knows, and says how far it is (options.on_load; options: NULL for nobody). */
int load_weights(Runtime *rt, const cvn_model *model, const cvn_engine_options *options,
                 LoadReport *report, cvn_err *err);

/* Bytes of the embedding's buffer where it lies in the file and there is a head besides: of it only rows are looked up. */
size_t load_looked_up_bytes(const Runtime *rt, const cvn_model *model);

#endif
