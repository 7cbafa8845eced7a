/*
 * Dialects as tables of fields. Every field that a client may send has a row: it is supported, or it changes no answer and is
 * accepted, or it is refused by name. A field without a row is unknown and refused, too.
 *
 *     {"temperature", FIELD_REAL, .low = 0, .high = 100, .at = offsetof(Ask, sampling.temperature)}
 *     {"stop", FIELD_READ, .read = read_stop}
 *     {"user", FIELD_NEUTRAL}
 *     {"tools", FIELD_ONLY, .only = "[[]]"}           a JSON array of the values that request nothing
 */
#ifndef CVN_SERVER_FIELDS_H
#define CVN_SERVER_FIELDS_H

#include "server/ask.h"

typedef enum FieldKind {
    FIELD_INT,     /* int64_t, in [low, high] */
    FIELD_REAL,    /* double, in [low, high] */
    FIELD_BOOL,    /* bool */
    FIELD_STRING,  /* const char * in the body, without NUL bytes */
    FIELD_READ,    /* by a function */
    FIELD_NEUTRAL, /* changes no answer */
    FIELD_ONLY,    /* not supported: some values request nothing, all others are refused */
} FieldKind;

typedef int FieldFn(Ask *ask, const char *name, const json_t *value, Refusal *why);

typedef struct Field {
    const char *name;
    FieldKind kind;
    double low, high; /* both 0: any */
    size_t at;        /* offset in Ask */
    FieldFn *read;
    const char *only;
} Field;

/* A dialect's tables, ended by NULL; rows of a table end with a name of NULL. */
typedef struct Fields {
    const char *name; /* "chat.completions" */
    const Field *const *tables;
} Fields;

extern const Fields fields_chat, fields_completions, fields_responses, fields_messages,
    fields_embeddings, fields_count_tokens, fields_tokenize, fields_detokenize,
    fields_apply_template;

/* Reads ask->body by the tables. A field that is null counts as absent. lenient: unknown fields and those that are not
   carried out are noted in ask->ignored. Returns 0 or a status. */
int fields_read(const Fields *fields, Ask *ask, bool lenient, Refusal *why);

#endif
