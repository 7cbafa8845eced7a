/*
 * JSON Schema, drafts 7 and 2020-12, as formulas. A document is walked once, for what its schemas are called ($id, anchors);
 * what a schema says is computed when it is asked for, so that what nothing refers to costs nothing and may be wrong.
 *
 * What is not supported is refused by name, with the path of the keyword: "#/properties/a/$dynamicRef: …".
 */
#ifndef CVN_CONSTRAIN_SCHEMA_H
#define CVN_CONSTRAIN_SCHEMA_H

#include "constrain/formula.h"

enum {
    SCHEMA_LIMIT = 200000, /* schemas of a document */
    SCHEMA_OUTCOMES = 256, /* ways in which a schema with unevaluated… can be fulfilled */
    SCHEMA_EXPONENT = 400, /* powers of ten of numbers in schemas, and their digits */
};

typedef enum Draft { DRAFT_2020, DRAFT_7 } Draft;

typedef struct Schema {
    const JsonValue *value; /* an object, or true or false */
    const char *base;       /* the URI that references in it are relative to, without fragment */
    const char *path;       /* "#/properties/a", for messages */
    Draft draft;
    bool one_of; /* not the schema, but what its oneOf says */
    bool doing;  /* its formula is being made */
    bool done;
    Formula formula;
} Schema;

typedef struct Schemas {
    Engine *e;
    Schema *at;
    uint32_t n;
    Map by_value;  /* address of a JsonValue -> index */
    Map resources; /* URI -> index of the schema that it names */
    Map anchors;   /* URI#anchor -> index */
    Map formats;   /* name -> term */
    bool assert_format;
} Schemas;

/* The formula of a document; F_FALSE with engine->failed where it is refused. */
Formula schema_read(Engine *e, const JsonValue *document, Draft draft, bool assert_format);

/* Inside: the index of a schema at `key` (or item i) below another. */
uint32_t schema_below(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                      const char *key);
uint32_t schema_reference(Schemas *s, uint32_t of, const JsonValue *reference);
Formula schema_refuse(Schemas *s, uint32_t of, const char *keyword, const char *why);
const JsonValue *schema_keyword(const Schemas *s, uint32_t of, const char *keyword);

/* What the keywords say that do not apply other schemas to the same value, and unevaluated… */
Formula schema_plain(Schemas *s, uint32_t of);

/* The names that `properties` and `patternProperties` speak of. */
Term schema_own_names(Schemas *s, uint32_t of, uint32_t **known, uint32_t *n_known);

/* Evaluated.c: the formula of a schema with unevaluatedItems or unevaluatedProperties. */
Formula schema_evaluated(Schemas *s, uint32_t of);

/* Format.c: the term of a format's texts. 1: known; 0: there is no such format, which then says nothing; -1: refused. */
int format_term(Terms *terms, const JsonValue *name, Term *out);

#endif
