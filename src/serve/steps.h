/*
 * The steps of an engine as graphs: decoding takes one token of every row, a section of a prompt several tokens of some
 * rows. Who plans what an engine would take makes the same programs of them, in the same order.
 *
 *     ModelStep step = steps_decode(&steps);                             first: it says how caches lie
 *     step = steps_section(&steps, steps_parts(&rt), 128);               then sections, on rows that fit
 *     program_make(&program, &rt, model_step(config, &step, err), &options, err)
 */
#ifndef CVN_SERVE_STEPS_H
#define CVN_SERVE_STEPS_H

#include "caravan/engine.h"
#include "model/forward.h"
#include "model/layouts.h"
#include "run/program.h"

/* What the steps of an engine have in common. */
typedef struct Steps {
    ModelLayout model; /* what it refers to is borrowed */
    int64_t rows;      /* of the caches */
    int64_t context;   /* tokens of a text */
    int64_t
        positions; /* of a row's cache: a padded section may write past the context, by less than its length */
    cvn_dtype compute;
    bool kv_int8, int8_inputs, penalty; /* as in ModelStep, … */
    int64_t ranks;                      /* … these, … */
    uint32_t adapted;                   /* … and this, too */
} Steps;

/* Lengths of sections for a context, ascending, where nobody asks for others; returns how many. */
int steps_buckets(int64_t context, int64_t bucket[CVN_MAX_BUCKETS]);

/* Draws greedily; decoding is of all rows, and 1 long. */
ModelStep steps_section(const Steps *steps, int64_t rows, int64_t seq);

/* Parts into which the mesh splits the caches' rows: a section has a row of each. */
int steps_parts(const Runtime *rt);

/* How programs of them are made; *steps is borrowed. */
ProgramOptions steps_options(Steps *steps);

#endif
