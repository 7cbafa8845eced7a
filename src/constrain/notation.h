/* The inside of grammar.h: what is read, before rules are made of it. */
#ifndef CVN_CONSTRAIN_NOTATION_H
#define CVN_CONSTRAIN_NOTATION_H

#include "constrain/formula.h"

enum { GRAMMAR_DEPTH = 100 }; /* groups within groups */

typedef enum PartKind {
    PART_TERM,
    PART_RULE,
    PART_ALL,   /* one after the other */
    PART_ONE,   /* of several */
    PART_REPEAT /* the first and only, min to max times */
} PartKind;

typedef struct GrammarPart {
    uint8_t kind;
    Term term;         /* PART_TERM */
    uint32_t rule;     /* PART_RULE: of Notation.rule */
    uint32_t min, max; /* PART_REPEAT; TERM_MANY: no end */
    struct GrammarPart **part;
    uint32_t n;
} GrammarPart;

typedef struct NamedRule {
    const char *name;
    size_t length;
    GrammarPart *body; /* NULL: not defined */
    Term term;         /* of those that are regular, once it is known */
    uint8_t state;
} NamedRule;

typedef struct Notation {
    Solver *e;
    Map names;
    NamedRule *rule;
    uint32_t n_rules;
    uint32_t start;
} Notation;

GrammarPart *part_term(Solver *e, Term term);
GrammarPart *part_rule(Solver *e, uint32_t rule);
GrammarPart *part_repeat(Solver *e, GrammarPart *of, uint32_t min, uint32_t max);
/* Of parts that are copied; one alone is itself. */
GrammarPart *part_list(Solver *e, PartKind kind, GrammarPart **part, uint32_t n);

/* The number of a rule, which may be defined later. */
uint32_t notation_rule(Notation *notation, const char *name, size_t n);

int notation_read(Notation *notation, const char *text, size_t n, cvn_err *err);

#endif
