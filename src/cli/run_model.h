/* What generate, score and chat have in common: opening a model, getting ids from what was typed, an engine, Ctrl-C. */
#ifndef CVN_CLI_RUN_MODEL_H
#define CVN_CLI_RUN_MODEL_H

#include "caravan/constrain.h"
#include "caravan/engine.h"
#include "cli/options.h"
#include "cli/ranks.h"
#include "io/save.h"
#include "text/tokenizer.h"

#include <jansson.h>

/* Of lists of options: how to draw tokens, and how to run a model. */
#define SAMPLING_OPTIONS                                                                           \
    SHARED(TEMPERATURE), SHARED(TOP_K), SHARED(TOP_P), SHARED(MIN_P), SHARED(REPEAT_PENALTY),      \
        SHARED(SEED), SHARED(IGNORE_EOS)
#define CONSTRAINT_OPTIONS                                                                         \
    SHARED(JSON_SCHEMA), SHARED(REGEX), SHARED(GRAMMAR), SHARED(ONE_OF), SHARED(ANY_ORDER),        \
        SHARED(PRETTY)
#define RUN_MODEL_OPTIONS                                                                          \
    SHARED(DTYPE), SHARED(QUANTIZE), SHARED(KV_CACHE), SHARED(ACTIVATIONS), SHARED(NUMERICS),      \
        SHARED(THREADS), SHARED(MEMORY), SHARED(KV_MEMORY), SHARED(DEVICE), SHARED(MESH),          \
        SHARED(LAYOUT), SHARED(OVERLAP), SHARED(TEXT_ONLY)

typedef struct RunOptions {
    const char *path;
    cvn_dtype dtype;           /* CVN_DTYPE_COUNT: the model's */
    const char *quantize;      /* while loading, or NULL */
    bool text_only;            /* of a model that sees or hears */
    const char *draft;         /* a model that guesses, or NULL */
    bool needs_tokenizer;      /* without one there is nothing to do */
    bool tokenizer_later;      /* the command opens it */
    const char *mesh, *layout; /* of several devices; NULL: one */
    bool chosen;               /* the layout, by the mesh */
    bool takes_ids;            /* the command could be given --tokens instead */
    bool special;              /* special tokens in text that is typed are their ids */
    const char *tokenizer;     /* in place of the model's, or NULL */
    cvn_engine_options engine; /* context 0: as much as the run needs */
} RunOptions;

typedef struct RunModel {
    Cluster *cluster; /* other processes, or NULL; the program's */
    cvn_model *model;
    cvn_model *draft; /* or NULL */
    cvn_engine *engine;
    unsigned encoding; /* how text that is typed is encoded: TOKENIZER_BOS, … */
    double load_seconds, compile_seconds;
} RunModel;

/* The layout that --layout says: "auto" is the one that suits the mesh (model/layouts.h). */
const char *layout_said(const char *mesh, const Value *layout, bool training);

/* That there is such a layout, and that it knows the axes of the mesh; NULL: no mesh. */
int check_layout(const char *mesh, const char *layout, cvn_err *err);

/* Joins the other processes, where a launcher has started several: they need a mesh. *cluster is NULL without. */
int run_join(bool mesh, Cluster **cluster, cvn_err *err);

/* What --temperature and its like say. */
cvn_sampling run_model_sampling(const Args *args);

/* What --json-schema and its like ask of the text; NULL: nothing. */
int run_model_constraint(const Args *args, cvn_constraint **out, cvn_err *err);

/* What the options say that commands share: those above and --model, --dtype, --quantize, --threads, --seed. The rest
   is the command's to set. The engine can sample as the options say, and no more. */
RunOptions run_model_options(const Args *args);

/* What --buckets says to an engine. */
void run_model_buckets(const Value *buckets, cvn_engine_options *engine);

/* The chunk sizes that --traffic leads to, of a model whose texts have so many tokens at most, which the user is told of. Nothing where
   it is not given. */
int run_model_traffic(const Value *traffic, int64_t context, cvn_engine_options *engine,
                      cvn_err *err);

/* Opens the model and prints its warnings; Ctrl-C is noted from now on. */
int run_model_open(RunModel *run, const RunOptions *options, cvn_err *err);

/* The ids that were typed: a list, a text or a file, one of which is given. */
int run_model_input(const RunModel *run, const Value *ids, const char *text, const char *file,
                    TokenIds *out, cvn_err *err);

/* What run_model_start would refuse of options and adapters, without making anything. */
int run_model_check(const RunModel *run, const RunOptions *options, cvn_err *err);

/* Makes the engine. The context is at most what prompt and new tokens need. */
int run_model_start(RunModel *run, const RunOptions *options, int64_t n_prompt, int64_t n_new,
                    cvn_err *err);
int run_model_close(RunModel *run, cvn_err *err);

/* Becomes nonzero with Ctrl-C. A second Ctrl-C ends the program. */
const volatile int *run_interrupt(void);

/* From now on Ctrl-C and SIGTERM set the flag: what is half written is taken away, what was learnt is saved. Of several
   processes SIGTERM is the launcher's, when one has died; it passes SIGUSR1 on to all, which takes its place. For
   commands that open no model by run_model_open. */
const volatile int *run_interrupt_once(bool several);

/* The same for steps that take long: with SIGHUP, and it is said at once that the flag is set. What comes within a second is
   the same wish; a later Ctrl-C or SIGTERM ends the program. */
const volatile int *run_interrupt_step(bool several);

/* From now on Ctrl-C only ever sets the flag, which the caller may clear, and interrupts reads; of several processes,
   which could not stop at the same step, it ends the program. */
volatile int *run_interrupt_keep(bool several);

/* How a command that writes a model does so, as its --shard-size, --force and --threads say; from now on Ctrl-C ends
   it, and takes away what is half written. */
SaveOptions save_options(const Args *args, cvn_dtype dtype);

json_t *json_ids(const int32_t *ids, size_t n);

#endif
