/*
 * Context-free grammars as rules over terms. Two notations are read, told apart by "::=" in the text:
 *
 *     llama.cpp's GBNF, from the rule `root`          Lark's, from the rule `start`
 *
 *     root  ::= item ("," item)*                      start: item ("," item)*
 *     item  ::= [a-z]+ | "(" root ")"                 item: NAME | "(" start ")"
 *                                                     NAME: /[a-z]+/
 *                                                     %ignore " "
 *
 *     in both     "text" with \n \t \r \\ \" \xHH \uHHHH \UHHHHHHHH    ( )    |    ? * +    names of rules
 *     GBNF        [a-z_\]] [^"\\]    .    {m} {m,} {m,n}    # comments
 *     Lark        /regex/ (pattern.h)    "a".."z"    "text"i (ASCII)    [ ] as ( )?    ~m ~m..n    // comments
 *                 ?rule !rule _rule    TERMINAL.priority    -> alias    %ignore    %import common.NAME, (A, B), -> NAME
 *
 * A text is of the language that the rules make; Lark's terminals are no more than their texts: there is no lexer that
 * would take the longest. What %ignore names may stand before the first terminal of a text and behind each.
 *
 * What no rule leads back to is a term (term.h), and terms beside each other are one. What is left is a pushdown automaton
 * (automaton.h), which has to know the next symbol: a rule may begin with itself where it names itself first, which is read as
 * a repetition of what follows; rules that begin with each other are refused, and so are Lark's templates, %declare, %extend,
 * %override, flags of expressions, and GBNF's tokens.
 */
#ifndef CVN_CONSTRAIN_GRAMMAR_H
#define CVN_CONSTRAIN_GRAMMAR_H

#include "constrain/formula.h"

enum {
    GRAMMAR_RULES = 20000,    /* those that are made on the way, too */
    GRAMMAR_SYMBOLS = 200000, /* of all rules */
    GRAMMAR_REPEAT = 2000     /* most times of a repetition of what is no term */
};

/* A symbol: its kind in the low bits, above it a term or the number of a rule. */
enum { SYMBOL_END, SYMBOL_TERM, SYMBOL_RULE, SYMBOL_BITS = 2 };

typedef struct GrammarRule {
    uint32_t *at; /* [n] where its alternatives begin in Grammar.symbol */
    uint32_t n;
} GrammarRule;

typedef struct Grammar {
    const uint32_t *symbol;  /* alternatives, each ended by SYMBOL_END */
    const GrammarRule *rule; /* the first is the start */
} Grammar;

/* Everything lies in the solver's arena. CVN_EFORMAT for what is malformed, CVN_EUNSUPPORTED for what is refused. */
int grammar_read(Solver *e, const char *text, size_t n, Grammar *out, cvn_err *err);

#endif
