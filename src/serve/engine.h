/*
 * The inside of an engine: compiled programs and the state of the rows.
 *
 * A program is a plan and its table of parameter addresses. Weights and, for the decode program,
 * caches never change place, so the table is made once; a prefill program, which works on one row,
 * gets that row's cache addresses before each run. Decode reads and advances the rows' state in
 * place: tokens and start are parameters that its outputs are computed into, so steps follow each
 * other with nothing in between.
 */
#ifndef CVN_SERVE_ENGINE_H
#define CVN_SERVE_ENGINE_H

#include "base/threads.h"
#include "comm/table.h"
#include "compile/cache.h"
#include "cpu/executor.h"
#include "cpu/trace.h"
#include "model/llama.h"
#include "serve/kv.h"
#include "serve/mesh.h"
#include "serve/model.h"

/* Inputs for `rows` rows of up to `seq` tokens: [rows] each unless said otherwise. */
typedef struct Inputs {
    int32_t *tokens, *start, *length, *top_k, *targets; /* tokens, targets: [rows * seq] */
    float *temperature, *top_p, *min_p, *penalty;
    uint8_t *seen; /* [rows * vocab] 1: the token is in the row; NULL without penalties */
    uint32_t *key; /* [rows * 2] */
} Inputs;

typedef struct Program {
    const Plan *plan; /* borrowed from the executable cache; NULL when not compiled */
    void **param;     /* [parameters of the graph] */
    void **output;    /* [outputs of the graph] */
    int first_cache;  /* index of cache.0.k among the parameters */
    int first_result; /* index of the first output after the caches */
    int64_t seq;
    int row;          /* on a mesh: whose caches a program of one row gets */
    MeshProgram mesh; /* on a mesh: the tables of its devices */
} Program;

struct cvn_engine {
    const cvn_model *model; /* borrowed */
    cvn_engine_options options;
    Arena arena;
    Device *device;   /* owned; NULL on a mesh */
    EngineMesh *mesh; /* owned; NULL on one device */
    Trace *trace;     /* owned: what is recorded for options.profile_path; or NULL */
    bool failed;      /* a run has: of several processes there is no trace then */
    Cache cache;
    KvCache kv;
    SampleMode most; /* modes up to this one are compiled */
    Inputs rows;     /* of the decode program: [options.rows], seq 1 */
    Inputs one;      /* of prefill and scoring: one row of the largest bucket */
    int64_t *filled; /* [rows] positions in the row's cache */
    int64_t *resets; /* [rows] how often the row's text was forgotten */
    Program fill[CVN_MAX_BUCKETS];
    Program prefill[SAMPLE_MODE_COUNT][CVN_MAX_BUCKETS];
    Program score[CVN_MAX_BUCKETS];
    Program decode[SAMPLE_MODE_COUNT];
    int n_score_buckets;
    int64_t score_bucket[CVN_MAX_BUCKETS];
    cvn_engine_stats stats;
};

/* Of keys and values in the cache. */
cvn_dtype engine_kv_dtype(const cvn_engine *e);

/* Of what enters products: the model's, or i8 where rows are brought to 8 bits. */
cvn_dtype engine_product_dtype(const cvn_engine *e);

/* Appends n >= 1 tokens to a row's cache and draws the next one, which becomes the row's token for
 * decoding. */
int engine_prefill(cvn_engine *e, int row, const int32_t *tokens, int64_t n,
                   const cvn_sampling *sampling, cvn_err *err);

/* One decode step: every active row's token goes into its cache and the next is drawn into
 * rows.tokens. */
int engine_decode(cvn_engine *e, cvn_err *err);

/* A row takes part in decoding while it is active. */
void engine_set_active(cvn_engine *e, int row, bool active);

/* Says which tokens a row's repeat penalty is for; prefill and decode add theirs. */
void engine_set_seen(cvn_engine *e, int row, const int32_t *tokens, int64_t n);

/* Forgets a row's text. */
void engine_reset_row(cvn_engine *e, int row);

/* Gives the memory of a row's cache back. */
void engine_release_row(cvn_engine *e, int row);

/* Fills n positions of every row's cache with some number, for measuring. */
void engine_fill_caches(cvn_engine *e, int64_t n);

/* What the devices have communicated until now; nothing on one device. */
void engine_communication(const cvn_engine *e, CommTable *out);

/* The only device, or the first one here. */
Device *engine_device(const cvn_engine *e);

/* Refuses a prompt or sampling settings that make no
   sense; i is the request's number in messages. */
int engine_check_request(const cvn_request *request, int i, cvn_err *err);

/* Whether the token ends a text by the model's own settings. */
bool engine_is_eos(const cvn_engine *e, int32_t token);

/* Whether a text ends with its newest token, the n_tokens-th generated, and why. `filled` is the fill of the row's
   cache when it was drawn; go_on what on_token said. */
bool engine_ends(const cvn_engine *e, const cvn_request *request, int32_t token, int64_t n_tokens,
                 int64_t filled, bool go_on, cvn_finish *why);

#endif
