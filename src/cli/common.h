/* Options that several commands share, so that they are spelt and explained alike everywhere. */
#ifndef CVN_CLI_COMMON_H
#define CVN_CLI_COMMON_H

#include "base/strbuf.h"
#include "caravan/dtype.h"
#include "cli/options.h"
#include "text/bytes_json.h"

#include <jansson.h>

extern const Option option_model;       /* --model, required: ARG_INPUT */
extern const Option option_dtype;       /* --dtype f32|bf16 of computation: dtype_of */
extern const Option option_quantize;    /* --quantize int8|int4[:group]: ARG_CHOICE */
extern const Option option_kv_cache;    /* --kv-cache int8: ARG_CHOICE */
extern const Option option_activations; /* --activations int8: ARG_CHOICE */
extern const Option option_threads;     /* --threads N, 0: all: ARG_INT */
extern const Option option_seed;        /* --seed N: ARG_INT */
extern const Option option_json;        /* --json: ARG_FLAG */
extern const Option option_shard_size;  /* --shard-size SIZE: ARG_SIZE */
extern const Option option_force;       /* --force: ARG_FLAG */

/* Choices: the names of presets; of what is recomputed; of back ends; the types that weights are stored in. */
const char *choice_of_preset(size_t i);
const char *choice_of_remat(size_t i);
const char *choice_of_device(size_t i);
extern const char *const storage_choices[];

/* Warns where more threads are wanted than there are cores that this process may use. */
void warn_threads(int64_t wanted);

/* The dtype an ARG_CHOICE of dtype names stands for; CVN_DTYPE_COUNT when none was given. */
cvn_dtype dtype_of(const Value *value);

/* Prints a JSON value on one line, floats with 9 significant digits, which bring back every f32.
 * Takes the reference. Returns the exit code. */
int print_json(json_t *value);

/* Prints a text, and frees it. Returns the exit code. */
int print_text(StrBuf *text);

/* Everything that standard input or a file holds, NUL-terminated; "-" is standard input. *text is
 * malloc'ed. */
int read_input(const char *path, char **text, size_t *length, cvn_err *err);

#endif
