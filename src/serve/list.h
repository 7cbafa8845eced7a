/*
 * A step of an engine: tokens of any slots as a list, in which each says its slot and its position. A slot that decodes has its token
 * there, and behind it what was drafted; one whose prompt is read, or whose text is scored, a chunk of it.
 *
 *     slot       2     5     5     5     7    7  …  7        a program of 128 tokens; two slots decode, one of them with
 *     position   40    9     10    11    0    1  …  99       two drafts, and a prompt of 100 tokens is read
 *     drawn      ×     ×     ×     ×                 ×       after each draft as if those before it had been decoded
 *
 * Programs are of 1, 2, 4, … tokens up to one for all slots (and drafts, which are in lists without chunks only), and of the sizes of
 * chunks. The longer ones draw behind as many of their tokens as there are slots.
 *
 * Where a text has not the same bits however it is cut into runs (chunk_invariant: other back ends, and meshes), chunks do not stand
 * beside tokens that are decoded: each is a row of a program of its size, one of each shard into which the mesh splits the slots.
 */
#ifndef CVN_SERVE_LIST_H
#define CVN_SERVE_LIST_H

#include "serve/engine.h"

enum {
    LIST_DRAFTS = 32, /* tokens of a run with drafts */
    LIST_SIZES = 64,
    DRAFT_MOST = 7, /* tokens drafted at once: attention takes so many and one more as one alone */
};

/* What programs give: a token drawn in a SampleMode, log-probabilities of all tokens, or their states. */
enum { LIST_SCORE = SAMPLE_MODE_COUNT, LIST_STATE, LIST_OUTPUTS, LIST_PROGRAMS = 2 * LIST_OUTPUTS };

typedef struct ListSize {
    int64_t tokens; /* of all shards */
    int64_t row; /* tokens that are a row: 1, or, of chunks of other back ends, those of a shard */
    int64_t wanted; /* that are drawn from; 0: as many as rows, the last of each */
    bool apart;     /* row i is of the slot that has page i (steps_decode) */
    bool chunks;    /* may stand in it, */
    bool scores;    /* also of texts that are scored or embedded */
    double seconds; /* least that a run with a chunk took (serve/pace.h); 0: not known */
} ListSize;

/* What a slot has in the list. */
typedef struct ListPart {
    const int32_t *token; /* borrowed */
    int64_t n;            /* 0: nothing */
    int64_t drawn;        /* behind the last so many of them a token is drawn */
    bool chunk;           /* is read, not decoded */
    bool more;            /* token[n] is what comes then, for LIST_SCORE */
    int64_t at, place;    /* of the first, and of the first that is drawn from: where it was */
} ListPart;

typedef struct Lists {
    Inputs in; /* of the largest */
    int n;     /* sizes; those of chunks and of decoding are one ladder, or two */
    ListSize size[LIST_SIZES];
    /* Without an executable there is none. Behind those of each output: the same for lists in which no slot has an adapter, which takes
       0.88 of the time with 16 ranks in stories15m in 8 bits. */
    Program step[LIST_PROGRAMS][LIST_SIZES];
    double seconds[LIST_SIZES];       /* of a run, lately; 0: not known */
    bool *adjusted;                   /* [drawn] in.bias and in.mask say something there */
    ListPart *part;                   /* [slots] */
    int32_t (*token)[DRAFT_MOST + 1]; /* [slots] of those that decode: its own, and drafts, … */
    int *n_draft;                     /* … so many */
    /* Of the last run, */
    int ran;
    const int32_t *next; /* what was drawn, */
    const float *logits; /* of these [wanted, vocab], where the program adjusts; else NULL */
    const Program *step_ran;
} Lists;

/* The smallest size for the parts, or -1. */
int list_fit(const cvn_engine *e, int output);

/* Tokens of the smallest size for chunks of n tokens of a shard, or of the largest of at most `most` where that has no room for them. */
int64_t list_chunk(const cvn_engine *e, int output, int64_t n, int64_t most);

/* Tokens of a shard. */
int64_t list_tokens(const cvn_engine *e, int size);

/* Takes all parts away. */
void list_clear(cvn_engine *e);

/* Runs the parts, of which drafts that may not come are dropped. Slots stay as they are. SAMPLE_GREEDY: or general, if one of them asks. */
int list_run(cvn_engine *e, int output, cvn_err *err);

/* The slot's next token is what was drawn behind i of its drafts. */
void list_draw(cvn_engine *e, int slot, int i);

/* Slots that decode, each with its token and no more than `drafts` of its drafts. */
void list_decoding(cvn_engine *e, int64_t drafts);

/* A step in which slots decode with the drafts that they have, and nothing is read. */
int decode_run(cvn_engine *e, cvn_err *err);

/* Slot's token and i of its drafts are in its cache, and what was drawn behind them is its next token, which is returned. */
int32_t decode_take(cvn_engine *e, int slot, int i);

#endif
