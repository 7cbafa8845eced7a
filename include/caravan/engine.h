/*
 * Running a model: open it, make an engine for it, generate and score.
 *
 *     cvn_model *model;
 *     cvn_engine *engine;
 *     cvn_err err = {0};
 *     cvn_engine_options options = cvn_engine_defaults();
 *     if (cvn_model_open("my-llama", &(cvn_model_options){.dtype = CVN_BF16}, &model, &err) ||
 *         cvn_engine_new(model, &options, &engine, &err))
 *         puts(err.message);
 *
 * An engine has `slots`, whose texts share a KV cache in pages (options.kv_memory; address space, of which memory is what is filled).
 * Everything it will run is compiled when it is made: a program for each number of tokens in a run. Nothing is compiled later. One
 * thread at a time may call into an engine; it uses many.
 */
#ifndef CARAVAN_ENGINE_H
#define CARAVAN_ENGINE_H

#include "caravan/dtype.h"
#include "caravan/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvn_model cvn_model;
typedef struct cvn_engine cvn_engine;
struct cvn_cluster;
struct cvn_constraint;

typedef struct cvn_model_options {
    /* Of weights that are not quantized, activations and cache: CVN_F32 or CVN_BF16; CVN_DTYPE_COUNT: the file's, or bf16
       where the file's is f16. */
    cvn_dtype dtype;
    /* While loading: "int8", "int4", "int4:32", "int4:64", "int4:128", "fp8", or a type of GGUF files, "q4_0" to "q8_0", in any case;
       NULL: as the file is; "none": the same, but what it has in blocks (GGUF, FP8) is widened to dtype. */
    const char *quantize;
    bool no_tokenizer;     /* do not look for one; text cannot go in or out */
    const char *tokenizer; /* a file or folder to take it from; NULL: the model's own */
    /* Of a model that sees or hears, open the text model alone; false: refuse it. The warnings say what is left out. */
    bool text_only;
} cvn_model_options;

/* The path of a model by its name, as the program finds it: a path that exists is itself; else a model of that name in the
   folders of $CARAVAN_MODELS, in the folder that `caravan pull` fetches into ($XDG_DATA_HOME/caravan/models, by default
   ~/.local/share/caravan/models), in the cache of Hugging Face, or here. *path is malloc'ed: the caller frees it; NULL on an
   error: CVN_EIO where there is none, CVN_EMEM. */
int cvn_model_find(const char *name, char **path, cvn_err *err);

/* Opens a Hugging Face folder, a Meta folder or a GGUF file. options: NULL for the file's dtype.
   Weights are mapped, and copied only where the file's dtype is another or they are laid out anew.
   *out is the caller's to free; NULL on an error: CVN_EIO where nothing can be read, CVN_EFORMAT
   for files that say something wrong, CVN_EUNSUPPORTED, CVN_EINVAL for options, CVN_EMEM. */
int cvn_model_open(const char *path, const cvn_model_options *options, cvn_model **out,
                   cvn_err *err);
/* NULL is allowed. No engine of the model may be left. */
void cvn_model_free(cvn_model *model);

/* Lines that the user should see (NaN weights, settings that were ignored), or "". The model's. */
const char *cvn_model_warnings(const cvn_model *model);
int64_t cvn_model_context(const cvn_model *model); /* positions that it was made for */
int64_t cvn_model_vocab(const cvn_model *model);   /* ids are from 0 to below this */
cvn_dtype cvn_model_dtype(const cvn_model *model); /* of weights, activations and cache */
/* A model without one takes token ids; a tokenizer that cannot be read is a warning. */
bool cvn_model_has_tokenizer(const cvn_model *model);

/* The ids that begin and end a text; -1 where the tokenizer has none, or there is no tokenizer. */
int32_t cvn_model_bos(const cvn_model *model);
int32_t cvn_model_eos(const cvn_model *model);

/* How text becomes ids, some of these together. */
enum {
    CVN_ENCODE_BOS = 1, /* the begin-of-text token is in front */
    CVN_ENCODE_SPECIAL =
        2 /* special tokens in the text are their ids; else they are text like any other */
};
/* Text to ids. *ids is malloc'ed: the caller frees it. Conversations: chat.h. */
int cvn_model_encode(const cvn_model *model, const char *text, size_t n, unsigned flags,
                     int32_t **ids, int64_t *n_ids, cvn_err *err);
/* Ids to bytes: *length of them and a NUL, malloc'ed: the caller frees *text. CVN_EINVAL for an id
 * outside of the vocabulary. Both fail where there is no tokenizer. */
int cvn_model_decode(const cvn_model *model, const int32_t *ids, int64_t n, char **text,
                     size_t *length, cvn_err *err);

/* Ids to text as they come: a character whose bytes come from several tokens is held back until it is whole. What all calls
   give together is what the same ids are at once. */
typedef struct cvn_decoder cvn_decoder;
enum {
    CVN_DECODE_SPECIAL = 1, /* special tokens are written out; else they are skipped */
    CVN_DECODE_CONTINUE = 2 /* other text stands before this, so that a leading space is kept */
};
/* The model is borrowed. *out is the caller's to free; NULL on an error: CVN_EINVAL without a tokenizer, CVN_EMEM. */
int cvn_decoder_new(const cvn_model *model, unsigned flags, cvn_decoder **out, cvn_err *err);
/* NULL is allowed. */
void cvn_decoder_free(cvn_decoder *decoder);
/* *length bytes and a NUL at *text, the decoder's until it is called again. end: nothing comes behind these ids, and what was
   held back is given, too. CVN_EINVAL for an id outside of the vocabulary. */
int cvn_decoder_push(cvn_decoder *decoder, const int32_t *ids, int64_t n, bool end,
                     const char **text, size_t *length, cvn_err *err);

enum { CVN_MAX_BUCKETS = 16 };

typedef struct cvn_engine_options {
    int slots;       /* texts generated at once, 1 to 4096 */
    int64_t context; /* positions per slot; 0: the model's */
    int threads;     /* 0: one per core that this process may use */
    bool sampling;   /* compile for temperature, top-k, top-p, min-p; else only greedy requests */
    bool penalties;  /* and for repeat penalties, greedy or not */
    /* And for all that a request says of single tokens: bias, presence and frequency penalties, min_tokens, on_logits,
       constraint. It includes sampling. */
    bool logits_processors;
    bool scoring;       /* compile for cvn_engine_score */
    bool no_generation; /* leave out what only cvn_engine_generate needs */
    bool op_by_op;      /* neither simplify nor fuse, and meet at every operation: for comparison */
    bool split_attention; /* attention in its parts instead of one kernel: for comparison */
    /* Slots keep what they hold when a request has ended, and a prompt that begins alike computes only what is new in it.
       Texts stay what they are; memory that was filled is not given back. */
    bool reuse;
    /* "lookup": the next tokens are guessed to be those that followed when the text last went on as it does now, and several
       are drawn by one run, where that is faster. Texts stay what they are. NULL or "off": one by one. */
    const char *speculate;
    /* A small model of the same vocabulary that guesses where the text says nothing; borrowed. NULL: none. */
    const cvn_model *draft;
    /* [n_adapters] folders of adapters of low rank (LoRA), as PEFT writes them, that requests choose from; borrowed. */
    const char *const *adapter;
    int n_adapters;
    /* "mean" or "last": compile for cvn_engine_embed, which gives the mean over the tokens, or that of the last one; NULL:
       not. */
    const char *pooling;
    /* Seconds for which slots that decode may wait, between two of their tokens, while prompts are read: these are read in
       chunks as long as that allows, by what chunks took, but at least of the shortest bucket. 0: any. */
    double max_stall;
    int n_buckets; /* prefill lengths, ascending; 0: 16, 32, 64, 128, 256, 384, 512 */
    int64_t bucket[CVN_MAX_BUCKETS]; /* [n_buckets] tokens */
    /* Keys and values in "int8", half the bytes of bf16; NULL or "none": in the model's dtype. */
    const char *kv_cache;
    /* "int8": what enters matrices of 8 bits is rounded to 8 bits too, which makes prompts, and decoding
       of several texts, up to twice as fast and costs some accuracy; NULL or "none": not. */
    const char *activations;
    /* "portable": the same bits on every processor, whatever its instructions, which costs some speed; NULL, "fast" or "exact":
       those that are fastest here, and the same however a text is cut into runs. */
    const char *numerics;
    uint64_t memory_limit; /* refuse to start when more would be needed; 0: no limit */
    /* Bytes that the KV cache may take on all devices, at least what one text of `context` tokens does: requests for which there is
       no room wait. 0: what all slots can fill. */
    uint64_t kv_memory;
    const char *device; /* "cpu", "tpu", "cuda", "pjrt:PLUGIN,option=value"; NULL: "cpu" */
    const char *mesh;   /* devices to run on, "data=2,model=2"; NULL: one. threads are per device */
    const char *layout; /* how the model lies on the mesh: "dp", "tp", "fsdp", "2d", "fsdp+tp" */
    bool blocking;      /* on a mesh: compute nothing while devices exchange, for comparison */
    /* The processes that the mesh spans (caravan/ranks.h), borrowed; NULL: this one. */
    struct cvn_cluster *cluster;
    /* Called by cvn_engine_new while weights are read: so many of all tensors' bytes have been. Or NULL. */
    void (*on_load)(void *context, uint64_t done, uint64_t all);
    void *on_load_context;
    const char *dump_dir;     /* write each graph after each pass here, or NULL */
    const char *profile_path; /* write a Chrome trace here when the engine is freed, or NULL */
} cvn_engine_options;

/* One slot of the model's whole context, greedy, on
   all cores: slots 1, and 0 for all that has a 0. */
cvn_engine_options cvn_engine_defaults(void);

/* Compiles and plans everything. options: NULL for the defaults; strings in them are borrowed until
   the engine is freed. The model is borrowed too. *out is the caller's to free; NULL on an error:
   CVN_EINVAL for options, CVN_EMEM where it would not fit, with the sum, CVN_EUNSUPPORTED. */
int cvn_engine_new(const cvn_model *model, const cvn_engine_options *options, cvn_engine **out,
                   cvn_err *err);
/* Writes the profile if one was asked for; 0 or the
   error of that. The engine is freed in any case. */
int cvn_engine_free(cvn_engine *engine, cvn_err *err);

/* How the next token is drawn. All 0: the likeliest, always. */
typedef struct cvn_sampling {
    float temperature; /* 0: greedy, top_k, top_p and min_p do not matter; else at least 0.001 */
    int32_t top_k;     /* keep the k likeliest; 0: all */
    float top_p;       /* keep the smallest set of probability >= p, above 0; 1: all */
    float min_p;       /* keep what has at least min_p of the likeliest's probability; 0: all */
    /* 1 or 0: off. Tokens that are in the slot already have their logits divided by it where
       positive and multiplied where negative (Keskar et al., CTRL, 2019). */
    float repeat_penalty;
    /* With options.logits_processors. Taken from the logit of each token that was generated, once; for each time that it was. */
    float presence_penalty, frequency_penalty;
    uint64_t seed; /* same seed, same text, whatever else runs beside it */
} cvn_sampling;

typedef enum cvn_finish {
    CVN_FINISH_EOS,       /* an end token */
    CVN_FINISH_LENGTH,    /* max_tokens */
    CVN_FINISH_CONTEXT,   /* the context is full */
    CVN_FINISH_STOPPED,   /* the callback said so */
    CVN_FINISH_CANCELLED, /* cvn_engine_cancel, or the call that submitted it was interrupted */
    CVN_FINISH_CONSTRAINT /* what its constraint lets come next could not be found out: cvn_result.why */
} cvn_finish;

/* Added to the logit of a token. */
typedef struct cvn_bias {
    int32_t token;
    float bias;
} cvn_bias;

/* The model's own logits [vocab], of which the token was drawn that on_token is called for next. */
typedef void cvn_logits_fn(void *context, int request, const float *logits, int32_t token);

typedef struct cvn_request {
    const int32_t *prompt; /* [n_prompt] token ids, borrowed during the call, at most the context */
    int64_t n_prompt;      /* at least 1 */
    int64_t max_tokens;    /* most to generate; 0: none, the result is empty */
    bool ignore_eos;       /* go on past end tokens */
    cvn_sampling sampling; /* what it asks for must be among the engine's options */
    /* [n_bias] borrowed during the call; with options.logits_processors, as what follows. */
    const cvn_bias *bias;
    int64_t n_bias;
    int64_t min_tokens;       /* no end token before there are so many */
    cvn_logits_fn *on_logits; /* called with the listener's context, or NULL */
    /* What the text must be (constrain.h), or NULL. Borrowed until the request has ended; requests of one engine may share
       it. Nothing that it does not allow is drawn, whatever logits and biases are. End tokens are drawn only where the text
       is complete, and end it whatever ignore_eos says; where nothing else may come, before min_tokens, too. What
       CVN_FINISH_LENGTH or CVN_FINISH_CONTEXT ended is only the beginning of such a text. The model needs a tokenizer. */
    struct cvn_constraint *constraint;
    /* [n_forced] borrowed until the request has ended, with options.logits_processors: the first tokens of the text, whatever
       is drawn; on_logits has the logits as they are. */
    const int32_t *forced;
    int64_t n_forced;
    /* [n_end] borrowed during the call: tokens that end the text as the model's own end tokens do. */
    const int32_t *end;
    int64_t n_end;
    /* Of options.adapter: 0 is the first, and the only choice where there are none; -1: the model as it is. */
    int adapter;
    uint64_t key; /* who asks, any number: they take turns */
    int priority; /* lower goes first, but none is passed by more than 256 that came later */
    /* With options.reuse: only requests of the same salt share what slots hold. */
    uint64_t cache_salt;
} cvn_request;

typedef struct cvn_result {
    int64_t n_tokens; /* generated and handed over, the end token included */
    int64_t reused;   /* tokens of the prompt that were in the slot's cache already (session.h) */
    int64_t computed; /* tokens of the prompt that were not */
    cvn_finish finish;
    const char *why; /* of CVN_FINISH_CONSTRAINT, until the engine is used again; else NULL */
    double prefill_seconds; /* in programs that read this request's prompt */
    double first_seconds;   /* from when it was submitted to its first token (TTFT) */
    double total_seconds;   /* from when it was submitted to its last token */
} cvn_result;

/* Called for each token, in order within a request. Return false to stop that request. */
typedef bool cvn_token_fn(void *context, int request, int32_t token);

/* Called once, when a request has ended. */
typedef void cvn_end_fn(void *context, int request, const cvn_result *result);

/* Who hears of a request; each function may be NULL. They are called by cvn_engine_step, or by cvn_engine_cancel, on the
   caller's thread, and may submit and cancel requests. */
typedef struct cvn_listener {
    cvn_token_fn *on_token;
    cvn_end_fn *on_end;
    void *context;
} cvn_listener;

/*
 * Requests one by one, as a server has them:
 *
 *     cvn_engine_submit(engine, &request, &listener, &id, &err);        whenever one comes
 *     while (!cvn_engine_step(engine, &left, &err) && left)             calls listeners
 *         ;                                                             submit more, cancel some
 *
 * Slots are given by priority, fairly to those who ask, and first come first served, and each step goes on with all of them. A text depends on its request alone,
 * not on what runs beside it. cvn_engine_generate and sessions submit and step, too; they may be called while requests are
 * under way, which then go on meanwhile.
 */

/* Submits a request: it waits for a slot until some step gives it one. The request, its prompt and the listener (NULL: nobody
   hears of it) are copied. *id (id may be NULL) is positive, and callbacks have it as `request`. Nothing is computed.
   CVN_EINVAL where the engine cannot do what is asked for, CVN_EMEM. */
int cvn_engine_submit(cvn_engine *engine, const cvn_request *request, const cvn_listener *listener,
                      int *id, cvn_err *err);

/* Reads some chunks of prompts, no more tokens than the largest bucket has, and decodes: a token of all slots that have read theirs
   with each chunk, and, where none is left, one more; hands over what was generated. *left (left may be NULL): requests
   that have not ended, 0 when there is nothing to do. CVN_EINVAL from within a callback. After another error, such as
   CVN_EINTERRUPTED, nothing is lost that was handed over, nothing is half done, and the next step goes on from there. */
int cvn_engine_step(cvn_engine *engine, int *left, cvn_err *err);

/* Ends a request, whatever it is doing, with CVN_FINISH_CANCELLED: at once, or, from within a callback, at the end of the
   step; no token of it is handed over any more. CVN_EINVAL where there is none, as it has ended already. Requests that have
   not ended when the engine is freed are dropped, and nobody is told. */
int cvn_engine_cancel(cvn_engine *engine, int id, cvn_err *err);

/* From now on, once *flag is not 0, whatever the engine is computing ends within a fraction of a second, and calls
 * return CVN_EINTERRUPTED until it is 0 again; requests stay as they were before the step that was ended. A handler of
 * signals, or another thread, may set it. NULL: nobody does. With a cluster, steps are not ended but followed by the error. */
void cvn_engine_watch(cvn_engine *engine, const volatile int *flag);

/* Runs all requests, as many at once as there are slots; a slot that ends is filled with the next
   request while the others decode. result: [n], the caller's. on_token and interrupt may be NULL.
   All requests are checked before anything is computed: CVN_EINVAL. `interrupt` is looked at
   between steps: nonzero ends the call with CVN_EINTERRUPTED, results so far being filled in, those of requests that had
   not ended with CVN_FINISH_CANCELLED. */
int cvn_engine_generate(cvn_engine *engine, const cvn_request *request, int n,
                        cvn_token_fn *on_token, void *context, const volatile int *interrupt,
                        cvn_result *result, cvn_err *err);

/* logprob[i] = ln p(token[i] | tokens before it), for i >= 1; logprob[0] is 0 and means nothing.
   argmax[i] is the likeliest token after token[0 … i]. Each is [n], the caller's. Uses a slot that no request has, and the
   first adapter where there are some.
   CVN_EINVAL where there is none, where n exceeds the context or the engine was made without options.scoring. */
int cvn_engine_score(cvn_engine *engine, const int32_t *token, int64_t n, float *logprob,
                     int32_t *argmax, cvn_err *err);

/* The same for whoever wants more of each place: on_logits(context, i, the logits [vocab] after the tokens before it,
   token[i]) for each i >= 1, in order. adapter: as that of a request. With options.scoring and options.logits_processors. */
int cvn_engine_score_logits(cvn_engine *engine, int adapter, const int32_t *token, int64_t n,
                            cvn_logits_fn *on_logits, void *context, cvn_err *err);

/* How likely a token is. */
typedef struct cvn_logprob {
    int32_t token;
    float logprob; /* ln p(token) */
} cvn_logprob;

/* By logits [vocab], as a cvn_logits_fn is given them: ln p(token), its rank (which may be NULL; 1: it is the
   likeliest; equals have the same), and in top [n] the n likeliest, in order, of equals the
   lower id first. Returns how many there are: n, or vocab where that is less. */
int cvn_logprobs(const float *logits, int64_t vocab, int32_t token, float *logprob, int *rank,
                 cvn_logprob *top, int n);

/* What the model's last layer, normed, makes of a text, pooled as options.pooling says, and of length 1: out [the model's
   width], the caller's. Uses a slot that no request has. CVN_EINVAL as above, and without options.pooling. */
int cvn_engine_embed(cvn_engine *engine, int adapter, const int32_t *token, int64_t n, float *out,
                     cvn_err *err);
int64_t cvn_model_width(const cvn_model *model); /* numbers of an embedding */

typedef struct cvn_engine_stats {
    int64_t compilations;                    /* since the engine was made, its warm-up included */
    int64_t prefills;                        /* runs that read, score or embed */
    int64_t decodes;                         /* runs that only decode, without drafts */
    int64_t verifies;                        /* with drafts */
    int64_t drafted_tokens, accepted_tokens; /* by speculation; of those: that stood */
    double prefill_seconds;                  /* in `prefills` */
    double decode_seconds;                   /* in the others */
    int64_t decoded_tokens;                  /* by any run, over all slots */
    int64_t prefill_tokens;                  /* real ones, without padding */
    /* mapped or copied, without a table of which rows are looked up in the file */
    uint64_t weight_bytes;
    uint64_t arena_bytes; /* of activations: allocated = as planned */
    uint64_t cache_bytes; /* of address space; filled as far as texts went */
    int64_t preemptions;  /* requests that gave their pages up, and were read again */
    double load_seconds;  /* of making the engine, those in which it read and packed weights */
    int threads;          /* of each device */
} cvn_engine_stats;

cvn_engine_stats cvn_engine_get_stats(const cvn_engine *engine);

/* What was noticed about the weights while they were read, NaN and infinities, one line each; "" when
   nothing. */
const char *cvn_engine_warnings(const cvn_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
