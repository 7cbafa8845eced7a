/* What several commands share: options, choices, printing. */
#ifndef CVN_CLI_COMMON_H
#define CVN_CLI_COMMON_H

#include "base/strbuf.h"
#include "caravan/dtype.h"
#include "cli/options.h"
#include "text/bytes_json.h"
#include "text/tokenizer.h"
#include "train/checkpoint/export.h"

#include <jansson.h>

/* Options that several commands have, so that they are spelt and explained alike everywhere (shared.def). */
typedef enum SharedOption {
#define SHARE(name, ...) SHARED_##name,
#include "cli/shared.def"
#undef SHARE
    SHARED_OPTIONS
} SharedOption;
extern const Option shared_options[SHARED_OPTIONS];

/* SHARED(TOP_P): its address. */
#define SHARED(name) (&shared_options[SHARED_##name])

/* Choices: the names of presets; of layouts; of what is recomputed; the types that weights are stored in. */
const char *choice_of_preset(size_t i);
/* Some of them, for help: there are too many for a page. */
#define PRESETS_SHOWN                                                                              \
    "stories15m, llama3.2-1b, qwen3-4b …; an unknown name lists all; or a shape, "               \
    "family=NAME,dim=N,…"
const char *choice_of_layout(size_t i);

/* Of --mesh: that it is one, whatever lies on it; of --device: that there is such a kind. */
int check_mesh(const char *text, cvn_err *err);
int check_device(const char *text, cvn_err *err);

/* Whether a model's folder has a config.json and no weights: only its shape is there. */
bool is_shape(const char *folder);
const char *choice_of_remat(size_t i);
extern const char *const storage_choices[];

/* So many threads as are wanted, and no more than there are processors that this process may use: that is warned of, and so
   is a processor on which all of them are slow. */
int64_t limit_threads(int64_t wanted);

/* Warns of bytes of a text that a tokenizer leaves out. */
void warn_left_out(const Tokenizer *tokenizer, const char *source, const char *text, size_t n);

/* The dtype an ARG_CHOICE of dtype names stands for; CVN_DTYPE_COUNT when none was given. */
cvn_dtype dtype_of(const Value *value);

/* Prints a JSON value on one line, floats with 9 significant digits, which bring back every f32.
 * Takes the reference. */
int print_json(json_t *value, cvn_err *err);

/* Prints a text, and frees it. Returns the exit code. */
int print_text(StrBuf *text);

/* Everything that standard input or a file holds, NUL-terminated; "-" is standard input. *text is
 * malloc'ed. */
int read_input(const char *path, char **text, size_t *length, cvn_err *err);

/* Calls `take` with each line of a text that is not blank, and its number from 1; errors begin with "SOURCE:NUMBER: ". */
typedef int TakeLine(void *context, const char *line, size_t n, size_t number, cvn_err *err);
int each_line(const char *source, const char *text, size_t n, TakeLine *take, void *context,
              cvn_err *err);

/* A checkpoint as export and reshard are told it: RUN, or the folder of one of its checkpoints, and --step. A damaged one
 * that is passed over is warned of. */
int find_checkpoint(Checkpoint *checkpoint, const char *run, const Value *step, cvn_err *err);

#endif
