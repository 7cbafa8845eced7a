/*
 * The draft model (options.draft): a smaller model that drafts tokens, with slots of its own beside those of the engine. Its
 * cache is compared with the text, so that it computes only tokens that are new, and those that it drafted wrong:
 *
 *     text             the cat sat on a          (the draft drafted "the mat" behind "on")
 *     its slot holds    the cat sat on the        keeps 4 tokens, reads "a", and drafts what follows
 *
 * It draws as the slot does, with the random numbers of the places that it drafts: so drafts stand more often than two models
 * would agree by chance.
 */
#ifndef CVN_SERVE_DRAFT_MODEL_H
#define CVN_SERVE_DRAFT_MODEL_H

#include "serve/engine.h"

typedef struct DraftModel {
    cvn_engine *e; /* owned */
    /* [slots] [context + 1] tokens in its caches; of each slot as many as are filled */
    int32_t **held;
    cvn_request *request; /* [slots] texts as prompts */
} DraftModel;

int draft_model_open(DraftModel *model, const cvn_engine *of, cvn_err *err);
void draft_model_close(DraftModel *model);

/* Drafts at most `most` tokens of those slots whose text is not NULL: draft[slot][most], and n_draft[slot]. text[slot] has n[slot]
   tokens and ends with the slot's token. */
int draft_model_propose(DraftModel *model, const cvn_engine *of, const int32_t *const *text,
                        const int64_t *n, int most, int32_t *const *draft, int *n_draft,
                        cvn_err *err);

#endif
