/*
 * JSON Schema, drafts 4, 6, 7, 2019-09 and 2020-12, as formulas. A document is walked once, for what its schemas are called ($id, anchors;
 * document.c); what a schema says is computed when it is asked for, so that what nothing refers to costs nothing and may be wrong.
 * What a dialect knows is the table of keywords in schema.c.
 *
 * What is not supported is refused by name, with the path of the keyword: "#/properties/a/pattern: …".
 */
#ifndef CVN_CONSTRAIN_SCHEMA_H
#define CVN_CONSTRAIN_SCHEMA_H

#include "constrain/formula.h"

enum {
    SCHEMA_LIMIT = 200000, /* schemas of a document */
    SCHEMA_OUTCOMES = 256, /* ways in which a schema with unevaluated… can be fulfilled */
    SCHEMA_EXPONENT = 400, /* powers of ten of numbers in schemas, and their digits */
};

typedef enum SchemaDraft {
    DRAFT_4,
    DRAFT_6,
    DRAFT_7,
    DRAFT_2019,
    DRAFT_2020
} SchemaDraft; /* by age */

typedef struct Schema {
    const JsonValue *value; /* an object, or true or false */
    const char *base;       /* the URI that references in it are relative to, without fragment */
    const char *path;       /* "#/properties/a", for messages */
    SchemaDraft draft;
    uint32_t scope; /* of Schemas.scope */
    bool one_of;    /* not the schema, but what its oneOf says */
    bool doing;     /* its formula is being made */
    bool done;
    Formula formula;
} Schema;

/* $dynamicAnchor; or $recursiveAnchor, whose name is "". */
typedef struct Dynamic {
    /* Of the resource that it is in: resources are the same where these pointers are. */
    const char *base;
    const char *name;
    uint32_t schema;
} Dynamic;

/* The dynamic anchors that were met on the way to a schema, each name once. */
typedef struct DynamicScope {
    uint32_t *at; /* [n] of Schemas.dynamic */
    uint32_t n;
} DynamicScope;

typedef struct Schemas {
    Solver *e;
    Schema *at;
    uint32_t n;
    Dynamic *dynamic;
    uint32_t n_dynamic;
    DynamicScope *scope; /* [n_scopes], the first is empty */
    uint32_t n_scopes;
    Map scopes;
    Map by_value;  /* address of a JsonValue, scope -> index */
    Map resources; /* URI -> index of the schema that it names */
    Map anchors;   /* URI#anchor -> index */
    Map formats;   /* name, draft -> term */
    bool assert_format;
} Schemas;

/* The draft of a number of options.draft; false: there is none. */
bool schema_draft(int number, SchemaDraft *out);

/* The formula of a document; F_FALSE with solver->failed where it is refused. */
Formula schema_read(Solver *e, const JsonValue *document, SchemaDraft draft, bool assert_format);

/* What a keyword holds: a schema, a list of them, or an object whose members are schemas. */
enum { HOLDS_ONE = 1, HOLDS_LIST = 2, HOLDS_MEMBERS = 4 };

typedef struct Keyword {
    const char *name;
    Formula (*say)(Schemas *, uint32_t, const JsonValue *);
    uint8_t drafts; /* a bit for each that knows it */
    uint8_t holds;
    bool applies;
} Keyword;

extern const Keyword schema_keywords[];
extern const size_t n_schema_keywords;

/* Document.c: the index of the root, of a schema that is noted with all below it, of what oneOf says. */
uint32_t schema_root(Schemas *s, const JsonValue *document, SchemaDraft draft);
uint32_t schema_walk(Schemas *s, const Schema *schema);
uint32_t schema_of_one_of(Schemas *s, uint32_t of, const JsonValue *list);
bool is_schema(const JsonValue *value);

/* Inside: the index of a schema at `key` (or item i) below another. */
uint32_t schema_below(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                      const char *key);
/* What $ref, $dynamicRef or $recursiveRef leads to. */
uint32_t schema_reference(Schemas *s, uint32_t of, const char *keyword, const JsonValue *reference);
Formula schema_refuse(Schemas *s, uint32_t of, const char *keyword, const char *why);
/* A keyword that the schema has and its dialect knows, or NULL. */
const JsonValue *schema_keyword(const Schemas *s, uint32_t of, const char *keyword);

/* What the keywords say that do not apply other schemas to the same value, and unevaluated… */
Formula schema_plain(Schemas *s, uint32_t of);

/* The names that `properties` and `patternProperties` speak of. */
Term schema_own_names(Schemas *s, uint32_t of, uint32_t **known, uint32_t *n_known);

/* Evaluated.c: the formula of a schema with unevaluatedItems or unevaluatedProperties. */
Formula schema_evaluated(Schemas *s, uint32_t of);

/* Format.c: the term of a format's texts. 1: known; 0: there is no such format, which then says nothing; -1: refused. */
int format_term(TermTable *terms, const JsonValue *name, SchemaDraft draft, Term *out);
Term format_base64(TermTable *terms);

#endif
