/*
 * Receipts of training: what a run came from and what it was, so that whoever has the same files can train it again and see that
 * every step is the same. A receipt is a JSON object on one line:
 *
 *     "receipt"     1, the version of this form
 *     "trained"     the options of the run as its checkpoints keep them: with the key of its data, and the folder it was started in
 *     "program"     version and kernels; numerics, types and the mesh are among the options
 *     "base"        digest of the weights of the model that was trained further; null for a new one
 *     "loss"        of each step, 9 digits, which give the same f32 back; null where it was not finite
 *     "grad_norm"   likewise
 *     "weights"     digest of the weights that came out; "tokenizer" likewise. Both are those of serve/receipt.h: a receipt of a text
 *                   by this model has the same ones, so that the two together say how the text came from the data
 */
#ifndef CVN_CLI_TRAIN_RECEIPT_H
#define CVN_CLI_TRAIN_RECEIPT_H

#include "train/run.h"

#include <jansson.h>

/* The receipt of a run that is finished. */
int train_receipt_write(const char *path, const TrainRecord *record, cvn_err *err);

/* Whether a receipt is of training. */
bool train_receipt_is(const json_t *receipt);

typedef struct TrainAgain {
    const char *out;  /* a new folder for the run */
    const char *base; /* where the model that is trained further lies now; NULL: where it was */
    const char *const *data; /* [n_data] where the data lie now; none: where they were */
    size_t n_data;
    int64_t threads;
    const volatile int *stop; /* as TrainEvents has it */
} TrainAgain;

/* How the two differ: in what happened at `step`; 0: nowhere. */
typedef struct TrainDifference {
    int64_t step, steps;
    double loss, loss_now, grad_norm, grad_norm_now;
    bool weights; /* all steps are the same, and the weights at the end are not */
} TrainDifference;

/* Trains the run of a receipt again, up to the first step that differs. */
int train_receipt_replay(const json_t *receipt, const TrainAgain *how, TrainDifference *out,
                         cvn_err *err);

#endif
