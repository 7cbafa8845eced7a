/*
 * Training: from options to a model on the disk.
 *
 *     cvn_err err = {0};
 *     cvn_train_result result;
 *     const char *options = "{\"data\": [\"story.txt\"], \"preset\": \"tiny\", \"steps\": 1000, "
 *                           "\"out\": \"RUN\"}";
 *     if (cvn_train(options, NULL, &result, &err))
 *         puts(err.message);
 *
 * Options are a JSON object of the long options of `caravan train` (docs/TRAINING.md lists them).
 * RUN then holds checkpoints, metrics.jsonl, report.html and, when the call returns, the model as a
 * Hugging Face folder, which cvn_model_open takes.
 */
#ifndef CARAVAN_TRAIN_H
#define CARAVAN_TRAIN_H

#include "caravan/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cvn_cluster;

#ifdef __cplusplus
extern "C" {
#endif

/* A step that was done. */
typedef struct cvn_train_step {
    int64_t step, steps;      /* this one, from 1; all of the run */
    double loss;              /* nats per token */
    double validation_loss;   /* NaN where it was not measured */
    double lr;                /* learning rate */
    double grad_norm;         /* before clipping */
    double tokens_per_second; /* of this step */
    double mfu;               /* model FLOPs utilisation, 0 to 1 */
    double seconds;           /* of this step */
    double seconds_left;      /* until the last, as it looks now */
    size_t memory;            /* bytes of weights, optimizer and temporaries */
} cvn_train_step;

/* Called on the thread that called cvn_train; any may be NULL. */
typedef struct cvn_train_events {
    void *context;
    void (*note)(void *context, const char *sentence);    /* what is being done */
    void (*warning)(void *context, const char *sentence); /* what is not as it should be */
    void (*step)(void *context, const cvn_train_step *step);
    const volatile int *stop; /* nonzero: save and return after the current step; or NULL */
    /* The processes that the mesh spans (caravan/ranks.h), borrowed; NULL: this one. */
    struct cvn_cluster *cluster;
} cvn_train_events;

typedef struct cvn_train_result {
    int64_t step, steps; /* steps done, of how many */
    bool finished;       /* all of them; else cvn_train_resume goes on */
    double loss;         /* of the last step; NaN where none was done */
} cvn_train_result;

/* Trains. A folder that holds a run already is refused. */
int cvn_train(const char *options, const cvn_train_events *events, cvn_train_result *result,
              cvn_err *err);

/* Goes on with the run in a folder, from its newest whole checkpoint.
   Every later step is bit for bit what it would have been without the
   interruption. options: those that are to change, or NULL. */
int cvn_train_resume(const char *run, const char *options, const cvn_train_events *events,
                     cvn_train_result *result, cvn_err *err);

#ifdef __cplusplus
}
#endif
#endif
