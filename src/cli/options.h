/*
 * Commands and their options as data. A command is one file with one Command in it; its options are
 * rows from which the parser, the help, the man page and the completions are all made.
 *
 *     enum { MODEL, TOP_P };
 *     static const Option *const options[] = {
 *         [MODEL] = SHARED(MODEL),
 *         OPTION(TOP_P, "top-p", .kind = ARG_REAL, .high = 1, .value = "P", .fallback = "1",
 *                .help = "keep the likeliest tokens of sum P"),
 *         NULL,
 *     };
 *     const Command command_generate = {"generate", …, .options = options, .run = run};
 *
 * and in run: args->value[TOP_P].real.
 *
 * A value comes from the command line (--top-p 0.9, --top-p=0.9, -t4), else from the environment
 * (CARAVAN_TOP_P), else it is the fallback. An empty variable counts as unset. Where a command has --model, and neither it nor
 * what stands in its place is given, the first operand is the model: `chat my-llama`.
 */
#ifndef CVN_CLI_OPTIONS_H
#define CVN_CLI_OPTIONS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ArgKind {
    ARG_FLAG,   /* takes no value; in the environment 1, true, yes, on or 0, false, no, off */
    ARG_INT,    /* Value.integer, in [low, high] */
    ARG_REAL,   /* Value.real, in [low, high] */
    ARG_SIZE,   /* Value.integer in bytes, in [low, high]: 4096, 64K, 2.5G (powers of 1024) */
    ARG_TEXT,   /* Value.text */
    ARG_INPUT,  /* Value.text: path of a file or folder that must exist; "-" is standard input */
    ARG_OUTPUT, /* Value.text: path of something to make */
    ARG_CHOICE, /* Value.integer: index of the choice; Value.text: its name */
    ARG_TOKENS, /* Value.ids: token ids or other numbers in [low, high], "1,2,3" */
} ArgKind;

typedef struct Option {
    const char *name; /* long, without dashes */
    /* Other long names, a blank between two, that are understood and shown nowhere; or NULL. */
    const char *aliases;
    char letter; /* short, or 0 */
    ArgKind kind;
    bool required; /* some option of the group must be given, or this one when group is 0 */
    bool repeats;  /* ARG_TEXT, ARG_INPUT: may be given several times; Value.texts */
    bool tried;    /* ARG_OUTPUT: a file; that it can be written is seen before anything is done */
    bool weighed;  /* ARG_INPUT: may have a weight behind it, as FILE=0.7 */
    bool named;    /* ARG_INPUT: may have a name in front, as NAME=DIR (option_named) */
    bool model;    /* ARG_INPUT: the name of a model will do, too (model_names.h) */
    bool hidden;   /* not in the help and completions; hidden options stand behind the others */
    bool brief;    /* ARG_CHOICE: help names some choices itself, and all are not listed */
    int group;     /* options of one group exclude each other; 0: none */
    double low, high; /* range of numbers; both 0: any that is not negative */
    /* ARG_INPUT: may stand without its value before another option and at the end; the value is "" then. */
    bool optional;
    bool or_shape; /* ARG_CHOICE of presets: may be a shape of one's own (model/presets.h) */
    /* Options, by a blank apart, beside which this one would say nothing; or NULL. */
    const char *refuses;
    int (*check)(const char *text, cvn_err *err); /* ARG_TEXT: refuses a value, or NULL */
    const char *needs; /* an option of the command without which this one says nothing, or NULL */
    const char *value; /* name of the value in help: "DIR", "N" */
    const char *fallback; /* value when none is given, as it would be typed; NULL: none */
    /* ARG_CHOICE: their names, ended by NULL; or the i-th, NULL past the last, where they are known elsewhere. ARG_TEXT: some
     * values, which completions offer; others are taken, too. */
    const char *const *choices;
    const char *(*choice)(size_t i);
    /* ARG_CHOICE: the name that is meant by another one, else what was typed; NULL: there are no others */
    const char *(*alias)(const char *text);
    const char *help; /* a phrase without a full stop */
} Option;

/* A command's own option, in its place in the list. */
#define OPTION(index, ...) [index] = (&(const Option){__VA_ARGS__})
#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The path in what was typed, and the bytes of the name in front of it; 0: there is none. */
const char *option_named(const char *text, size_t *name);

/* The i-th name of an ARG_CHOICE, or value that an ARG_TEXT offers; NULL past the last. */
const char *option_choice(const Option *option, size_t i);

typedef struct Value {
    bool given; /* on the command line or in the environment */
    bool on_command_line;
    bool flag;        /* ARG_FLAG */
    const char *text; /* as typed; the fallback; or NULL */
    int64_t integer;
    double real;
    int32_t *ids; /* [n_ids], owned by the Args */
    size_t n_ids;
    const char **texts; /* [n_texts], the array owned by the Args; of options that repeat */
    size_t n_texts;
} Value;

enum { CLI_MAX_OPTIONS = 64, CLI_MAX_OPERANDS = 64, CLI_MAX_MODELS = 16 };

/* What was typed. Strings are argv's and the environment's. */
typedef struct Args {
    const struct Command *command;         /* borrowed */
    Value value[CLI_MAX_OPTIONS];          /* in the order of the command's options */
    const char *operand[CLI_MAX_OPERANDS]; /* what is not an option */
    int n_operands;
    char *model[CLI_MAX_MODELS]; /* owned: paths of models that were named */
    int n_models;
    bool help; /* --help was seen: nothing else counts */
} Args;

typedef struct Command {
    const char *name;
    const char *about;    /* a phrase for the list of commands */
    const char *usage;    /* what follows the name in the usage line */
    const char *examples; /* lines: a command without "caravan ", a tab, what it does */
    const char *notes;    /* paragraphs after the options, or NULL; lines of one are joined */
    const char *operands; /* name of operands in messages, or NULL where none are taken */
    int min_operands, max_operands;
    bool model_first;             /* the first operand may be a model's name */
    const Option *const *options; /* ended by NULL */
    /* Returns the exit code, or the negative code of an error. What is in *err is told in any case, and is no success. */
    int (*run)(const Args *args, cvn_err *err);
} Command;

/* The commands there are, ended by NULL (commands.def). */
extern const Command *const commands[];

/* Reads argv[0 … argc-1], which follow the command's name. CVN_EINVAL is a mistake in what was typed,
 * CVN_EIO a path that is not there. Free the Args in any case. */
int args_parse(Args *args, const Command *command, int argc, char **argv, cvn_err *err);
void args_free(Args *args);

/* The value of an option that several commands share; one that was not given where this command has no such
 * option. */
const Value *args_value(const Args *args, const Option *option);

/* The i-th option that is shown, NULL past the last. */
const Option *option_shown(const Command *command, int i);

/* The option whose value the first operand may be, its model; -1: the command has none. */
int option_operand(const Command *command);

/* Reads a value that was typed elsewhere; `name` says where, for messages. Free value->ids. */
int option_read(const Option *option, const char *name, const char *text, Value *value,
                cvn_err *err);

/* Index of the option with this name, or alias, of n bytes, or -1. */
int option_find(const Command *command, const char *name, size_t n);

/* "CARAVAN_TOP_P" for "top-p", into text of `size` bytes. */
void option_variable(const Option *option, char *text, size_t size);

#endif
