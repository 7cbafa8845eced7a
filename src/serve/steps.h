/*
 * The steps of an engine as graphs: decoding takes one token of every slot, a chunk of a prompt several tokens of some
 * slots. Who plans what an engine would take makes the same programs of them, in the same order.
 *
 *     ModelStep step = steps_decode(&steps);                             first: it says how caches lie
 *     step = steps_chunk(&steps, steps_shards(&rt), 128);               then chunks, on slots that fit
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
    int64_t slots;     /* of the caches */
    int64_t context;   /* tokens of a text */
    int64_t positions; /* of a slot's cache, in … */
    int64_t page;      /* … pages of so many, of which … */
    int64_t *pages;    /* [caches.pools] … there are so many for all slots (steps_room), … */
    int64_t *most;     /* [caches.tables] … and one holds so many at a time */
    Caches caches;
    /* Each slot has one page, and decoding may take slots in the order of these (steps_decode). */
    bool apart;
    cvn_dtype compute;
    bool kv_int8, int8_inputs; /* as in ModelStep, … */
    int64_t ranks;             /* … these, … */
    uint64_t adapted;          /* … and this, too */
} Steps;

/* The default chunk sizes for a context, ascending; returns how many. */
int steps_buckets(int64_t context, int64_t bucket[CVN_MAX_BUCKETS]);

/* What is kept of tables with a window (serve/windows.h), in positions: more than that, for a text that is taken back a little. */
enum { WINDOW_SLACK = 64 };

/* Room of the caches: in pages, where the devices read such well, as many as `memory` bytes have, or, with 0, as all slots hold at most; else
   one to a slot. It is that of the context, or of a chunk of `largest`; what a padded chunk has behind that is written nowhere. */
int steps_room(Steps *steps, Runtime *rt, int64_t largest, uint64_t memory, cvn_err *err);

/* Draws greedily. */
ModelStep steps_chunk(const Steps *steps, int64_t rows, int64_t seq);

/* A token of each slot. Where caches are apart, row i goes on in the i-th of them: no key is gathered, which on a TPU takes longer
   than attention. A row of nobody begins behind the last position, where nothing is written. */
ModelStep steps_decode(const Steps *steps);

/* Shards of the caches' slots on the mesh: a chunk has a slot of each. */
int steps_shards(const Runtime *rt);

/* How programs of them are made; *steps is borrowed. */
ProgramOptions steps_options(Steps *steps);

#endif
