/*
 * Speculative decoding: tokens are drafted, and one run verifies them, by sampling after each of them the token that decoding one
 * by one would sample.
 *
 *     text       the cat sat on the mat and the cat
 *     drafted    sat on the mat                         what followed when the text last went on so
 *     drawn      after "cat" sat, "sat" on, "on" a      "sat on" stand, and "a" is drawn: 3 tokens of one run
 *
 * A draft stands where it equals what is drawn at its place, with the random number, the filters and the biases of that place,
 * as if those before it had been decoded one by one: a text is the same whatever is drafted, and however much. So that may
 * depend on time: of the programs there are that one runs which promises most tokens per second, by how long each took and by
 * how often drafts of the kind stood in that slot.
 *
 * Drafts stand behind their slot's token in the list that is decoded (serve/list.h). Where a text has the same bits however it is cut into runs (chunk_invariant of the engine;
 * tests/test_cut.c), that is a matter of time alone. Elsewhere products of more rows may round otherwise (cpu/kernels/choice.c), and a
 * text would depend on its drafts.
 */
#ifndef CVN_SERVE_SPECULATE_H
#define CVN_SERVE_SPECULATE_H

#include "serve/list.h"

enum {
    DRAFT_MODEL =
        4, /* kind of a draft model's drafts; those below have the same tokens before them, the more the higher */
    DRAFT_FORCED, /* what a constraint lets come alone: it stands */
    DRAFT_KINDS
};

typedef struct SlotDraft {
    const int32_t *text; /* [n] of the request, the last one drawn included; borrowed */
    int64_t n;
    int32_t draft[DRAFT_MOST];
    int n_draft, stood; /* drafts; those that stood so far */
    int kind;
    float rate[DRAFT_KINDS]; /* of drafts that stood, lately */
} SlotDraft;

/* Writes up to DRAFT_MOST drafts of how a slot goes on; returns how many. */
typedef int DraftFn(void *context, int slot, int32_t *draft);

/* Of serve/draft_model.c. */
typedef struct DraftModel {
    cvn_engine *e; /* owned */
    /* [slots] [context + 1] tokens in its caches; of each slot as many as are filled */
    int32_t **held;
    cvn_request *request; /* [slots] texts as prompts */
} DraftModel;

typedef struct Speculation {
    bool looks_up;        /* options.speculate: else only what is forced is drafted */
    SlotDraft *slot;      /* [slots] */
    DraftModel model;     /* with options.draft */
    double draft_seconds; /* seconds of a token that it drafts */
    DraftFn *from;        /* instead of looking texts up, whatever that promises: for tests */
    void *context;        /* of `from` */
} Speculation;

/* The slot has another request; it has drawn a token. */
void speculate_begin(cvn_engine *e, int slot, const cvn_request *request);
void speculate_add(cvn_engine *e, int slot);

/* Drafts what followed when the text last went on as it does now, where it is the same for longest; a text that repeats
   itself goes on so. */
void speculate_look_up(SlotDraft *slot);

/* Drafts how the slots that decode go on, of each no more than `most` [slots] tokens in all, and draws. *ran is false, and
   nothing is done, where decoding promises more. After an error all slots are as they were. */
int speculate_run(cvn_engine *e, const int64_t *most, bool *ran, cvn_err *err);

int draft_model_open(DraftModel *model, const cvn_engine *of, cvn_err *err);

/* Drafts at most `most` tokens of those slots that decode and whose drafts are to be its own. */
int draft_model_propose(DraftModel *model, const cvn_engine *of, int most, cvn_err *err);

#endif
