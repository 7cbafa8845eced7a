/*
 * The inside of an engine: its compiled programs and the state of its slots.
 *
 * Everything runs through run/program.h: weights and caches are buffers that lie on the devices, one or several, and what
 * a run is given of the slots' state is host memory. A step takes a list of tokens of any slots (serve/list.h). Where a mesh splits
 * the slots of the caches into shards, the list is split alike, and tokens lie with their slots.
 */
#ifndef CVN_SERVE_ENGINE_H
#define CVN_SERVE_ENGINE_H

#include "base/threads.h"
#include "model/forward.h"
#include "run/program.h"
#include "serve/adapters.h"
#include "serve/load.h"
#include "serve/model.h"
#include "serve/queue.h"
#include "serve/steps.h"

/* Inputs for n tokens, each a row or several to a row, of which some are drawn from. */
typedef struct Inputs {
    int64_t drawn;
    int32_t *tokens, *targets;      /* [n] */
    int32_t *slot, *start, *length; /* [n] of the caches, that a row goes on in; -1: none */
    float *select;                  /* [n * ranks] of adapters; NULL without any */
    int32_t *wanted, *top_k;        /* [drawn], as all that follow: rows */
    float *temperature, *top_p, *min_p, *penalty;
    uint8_t *seen; /* [drawn * vocab] 1: the token is in the slot; NULL without penalties */
    float *bias;   /* [drawn * vocab] of logits; NULL without options.logits_processors */
    uint8_t
        *mask; /* [drawn * vocab] 1: the token may come; NULL without options.logits_processors */
    uint32_t *key; /* [drawn * 2] */
} Inputs;

/* Of serve/pace.h. */
typedef struct StallPace {
    double (*clock)(void); /* in seconds */
    double late;           /* runs lately, in multiples of the least that they took */
    double decode;         /* seconds of a step lately, at worst */
    double since;          /* when slots that decode got their last tokens */
    /* When those of other engines did that take turns with this one; 0: none decode. */
    double beside;
} StallPace;

struct cvn_engine {
    const cvn_model *model; /* borrowed */
    cvn_engine_options options;
    Arena arena;
    Runtime rt;                  /* owned: the devices, weights and caches */
    bool opened;                 /* rt is to be closed */
    bool chunk_invariant;        /* a text has the same bits however it is cut into runs */
    const volatile int *watched; /* borrowed: nonzero ends what is computed; or NULL */
    bool traces;                 /* what runs is recorded, for options.profile_path */
    bool failed;                 /* a run has: of several processes there is no trace then */
    StrBuf warnings;             /* about weights */
    double read_bytes;           /* of files, that the weights here were made of */
    Adapters adapters;           /* owned */
    Steps steps;                 /* what programs are made of */
    int n_caches;                /* tensors of all caches */
    int shards;                  /* into which the mesh splits the caches' slots */
    Inputs slots;    /* their state: the last token of each, which is not in its cache, … */
    int64_t *filled; /* [slots] positions in the slot's cache; slots.start is always the same */
    struct SlotWindow *window; /* [texts] what is kept of each (serve/windows.h); NULL: all */
    struct Pages *pages;       /* who holds which (serve/pages.h) */
    /* [slots + 1] the logits processor of each slot (serve/logits.h), and one to look ahead with; NULL without
       options.logits_processors. */
    struct SlotLogits *logits;
    struct cvn_vocabulary *words; /* owned: of the tokenizer, once a request has a constraint … */
    struct HelperThread *helper;  /* owned: makes masks while steps run, from then on */
    struct Prefix *prefix;        /* texts that are kept (serve/prefix.h) */
    /* With options.speculate or logits_processors (serve/speculate.h); else NULL. */
    struct Speculation *speculation;
    Queue queue;               /* requests that have not ended (serve/scheduler.h) */
    Job **job;                 /* [slots] the request that works on the slot, or NULL */
    struct SlotPrompt *prompt; /* [slots] of those that are being read */
    int64_t *room;             /* [slots] tokens that each may still draw */
    int *load;                 /* [shards] slots that are taken */
    struct Lists *lists;       /* the programs: serve/list.h */
    int64_t budget;            /* tokens of a shard that a run may have now */
    StallPace pace;
    cvn_engine_stats stats;
};

/* Of keys and values in the cache. */
cvn_dtype engine_kv_dtype(const cvn_engine *e);

/* What cvn_engine_new would refuse of options and adapters before it makes anything. */
int engine_check(const cvn_model *model, const cvn_engine_options *options, cvn_err *err);

/* For n tokens, with all that the engine's programs read. */
void engine_make_inputs(cvn_engine *e, Inputs *in, int64_t n, int64_t drawn);
/* Row `at` of other inputs is drawn as a slot is, but for what is said of single tokens. */
void engine_copy_sampling(const cvn_engine *e, Inputs *in, int64_t at, int slot);
/* Makes a program that reads these inputs. */
int engine_make_program(cvn_engine *e, Program *out, const ModelStep *step, const Inputs *in,
                        cvn_err *err);

/* Begins a text on a slot, whose cache holds the first `keep` tokens of the prompt already; the rest is to be prefilled. The last so many
   of the prompt were drawn for the same request. */
void engine_begin_slot(cvn_engine *e, int slot, const cvn_request *request, int64_t drawn,
                       int64_t keep);

/* A prompt of which the slot's cache holds `filled` tokens, fewer than there are. */
typedef struct SlotPrompt {
    int slot;
    const cvn_request *request;
    int64_t computed; /* tokens that engine_prefill computed of it */
} SlotPrompt;

/* Reads a chunk of the first of n prompts, of no more tokens than the budget has, and beside it others for which there is room, and
   which are not read for longer because of it. Where that completes a prompt the next token is drawn, which becomes the slot's token
   for decoding. Active slots decode in the same run, where texts have the same bits either way: *decoded, they did. */
int engine_prefill(cvn_engine *e, SlotPrompt *prompt, int n, bool *decoded, cvn_err *err);

/* Slots that decode in the run of a chunk; 0: none, or they would have most of the budget. */
int engine_decodes_beside(const cvn_engine *e);

/* One decode step: every active slot's token goes into its cache and the next is drawn into
 * slots.tokens. After an error, CVN_EINTERRUPTED among them, all slots are as they were. */
int engine_decode(cvn_engine *e, cvn_err *err);

/* Marks tokens, which are in the vocabulary, as being in a slot. */
void engine_add_seen(cvn_engine *e, int slot, const int32_t *tokens, int64_t n);

/* What lies in a slot's cache from position n on does not count any more, or, for measuring, does. */
void engine_set_filled(cvn_engine *e, int slot, int64_t n);

/* Forgets a slot's text, and gives its pages up. */
void engine_reset_slot(cvn_engine *e, int slot);

/* The slot without a request whose shard has the fewest requests, or in this shard (-1: any), if it can be one that holds nothing, the
   first of them; -1: all have one. */
int engine_free_slot(cvn_engine *e, int shard);

/* Makes the programs (serve/list.h), with drafts or without, and those that score or embed chunks of n sizes. */
int lists_make(cvn_engine *e, bool drafts, const int64_t *score, int n, cvn_err *err);
void lists_free(cvn_engine *e);

/* What an engine makes with it, for all slots, of parts that stand on it: pages.c, prefix.c, windows.c, logits.c and, with options.speculate and
   for what constraints force, speculate.c. */
void pages_init(cvn_engine *e, int kept); /* texts beside those of slots */
void pages_divide(cvn_engine *e);         /* once programs say how the mesh splits slots */
void pages_bind(const cvn_engine *e, Program *p);
int prefix_texts(const cvn_engine *e); /* that are kept, at most */
void prefix_init(cvn_engine *e);
void prefix_free(cvn_engine *e);
void windows_init(cvn_engine *e);
void logits_init(cvn_engine *e);
void logits_free(cvn_engine *e);
int speculate_make(cvn_engine *e, bool looks_up, cvn_err *err);
void speculate_free(cvn_engine *e);

/* Refuses a prompt or sampling settings that make no sense or that the engine was not made for; i is the request's number
   in messages. */
int engine_check_request(const cvn_engine *e, const cvn_request *request, int i, cvn_err *err);

/* Embeddings (cvn_engine_embed) of n texts, as many as there is room for at once; out[i]: of each. */
int engine_embed(cvn_engine *e, int adapter, const TokenIds *text, int n, float *const *out,
                 cvn_err *err);

/* Whether the token ends the text of a request. */
bool engine_ends(const cvn_engine *e, const cvn_request *request, int32_t token);

#endif
