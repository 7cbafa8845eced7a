/*
 * How tool calls are generated so that each can be parsed: in phases, of which each is a request to the engine that continues where
 * the one before it ended. What stands around names and arguments (CallSyntax) is given to the model, not sampled:
 *
 *     NAME        which tool is called, one of the set's
 *     ARGUMENTS   under its schema, where they are one object of JSON; else by turns
 *     KEY         which argument follows, in the order of the schema, or that none does
 *     VALUE       under the schema of that argument; a string ends by the mark that stands behind it
 *     AGAIN       whether another call follows
 */
#ifndef CVN_SERVE_CALL_WRITER_H
#define CVN_SERVE_CALL_WRITER_H

#include "serve/tool_set.h"

typedef enum CallPhase {
    CALL_NOT,
    CALL_NAME,
    CALL_ARGUMENTS,
    CALL_KEY,
    CALL_VALUE,
    CALL_AGAIN
} CallPhase;

/* A tool call. */
typedef struct Call {
    char id[12]; /* letters and digits, 9 of them: what the strictest template takes */
    const Tool *tool;
    StrBuf arguments; /* as JSON, as far as they are known */
    size_t sent;      /* by whoever streams it: bytes of the arguments … */
    bool opened;      /* … and whether its name was sent */
} Call;

/* Invariant: n is at most `most` and counts the call that is being written (call_writer_count says how many may be shown). */
typedef struct CallWriter {
    const ToolSet *set; /* borrowed, as are these */
    const CallSyntax *syntax;
    const Tokenizer *tokenizer;
    CallPhase phase;
    Call *call; /* [most] owned */
    int n, most;
    StrBuf picked; /* of the phase, but where it is JSON of the arguments */
    Decoder decoder;
    cvn_constraint *made; /* owned: of KEY and VALUE */
    int key;              /* the argument that was written last, or -1 */
    const char *end;      /* the mark that ends VALUE, which is a string then; or NULL */
    size_t known;         /* bytes of that string that are in the arguments */
} CallWriter;

int call_writer_init(CallWriter *w, const ToolSet *set, const CallSyntax *syntax,
                     const Tokenizer *tokenizer, int most, cvn_err *err);
void call_writer_free(CallWriter *w);

/* Text that nobody draws, as tokens behind `tokens`. */
void call_writer_give(const CallWriter *w, const char *text, size_t n, TokenIds *tokens);
/* What stands in front of a name is in `tokens`: the first call begins. */
void call_writer_begin(CallWriter *w, TokenIds *tokens);
/* A token of a phase, but for the one that ends it. */
void call_writer_push(CallWriter *w, int32_t token);
/* A phase has ended by an end token, the last of `tokens`, which is taken off. Whether another phase follows. */
bool call_writer_next(CallWriter *w, TokenIds *tokens);
/* Of the phase; NULL in CALL_NOT. */
cvn_constraint *call_writer_constraint(const CallWriter *w);
/* How many calls may be shown. A call that equals an earlier one ends the answer and is not part of it; one that may still become
   such is not counted while the answer goes on. */
int call_writer_count(const CallWriter *w, bool ended);

#endif
