/* Shared by the two files of the parser: its state, and how attributes are read. */
#ifndef CVN_GRAPH_TEXT_PARSE_H
#define CVN_GRAPH_TEXT_PARSE_H

#include "base/map.h"
#include "graph/graph.h"
#include "graph/text/lex.h"

/* A list that grows while it is read; its memory is used again for the next one. */
typedef struct List {
    void *data;    /* [cap], owned, heap */
    size_t n, cap; /* entries, of a size that the user of the list knows */
} List;

/* A result as it is declared, before its operation is known. */
typedef struct Declared {
    const char *at; /* position of its name */
    Span name;
    cvn_type type;
    bool has_spec;
    cvn_spec spec;
} Declared;

typedef struct Parser {
    Lexer lex;
    cvn_graph *g;
    const char *filename;   /* in g's arena, for source positions */
    const char *counted_to; /* lines are counted once ... */
    int line;               /* ... and this is the line of counted_to */
    Arena scratch;          /* of the maps */
    Map values;             /* name -> cvn_value */
    Map parameters;         /* names given by the attribute */
    List numbers;           /* of double */
    List ints;              /* of int64_t */
    List operands;          /* of cvn_value * */
    Span *given;            /* of a region: how its body calls each operand, in scratch */
    bool body;              /* what is being read is the body of a region */
} Parser;

/* The place of one more entry of `size` bytes; NULL with an error set when there is no memory. */
void *parse_append(Parser *p, List *list, size_t size);

/* "{name=value, ...}", or nothing, of an operation of
   this kind. *at: where the "name" attribute is. */
int parse_attrs(Parser *p, OpKind kind, const Declared *declared, OpAttr *attr, const char **at);

#endif
