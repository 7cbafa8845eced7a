/*
 * How a model writes calls of tools. That is learnt from its chat template, which is shown a conversation with calls and
 * writes
 *
 *     <tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>\n<tool_call>\n{"name": "NAME", …
 *     '------- before -----'    '-- between -'         '------ after ---'
 *                                                      '-------------- again -------------'
 *
 * or, where arguments are not one object of JSON,
 *
 *     <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
 *     '------- before ------'    '---- first -----'  '---------- next -----------'  '---------- close + after ---------'
 *                                                'middle'
 *
 * which may differ for values that are strings and others. Thoughts in front of a call are no part of it.
 */
#ifndef CVN_TEXT_CALL_SYNTAX_H
#define CVN_TEXT_CALL_SYNTAX_H

#include "text/chat_template.h"

/* How arguments are written: as JSON; each between marks; as those of a function of Python; as an object whose names have no
   quotes. */
typedef enum CallArguments { CALL_JSON, CALL_TAGGED, CALL_PYTHON, CALL_BARE } CallArguments;

/* What stands around a value, all owned. */
typedef struct CallValue {
    char *first, *middle; /* from the name to the first key; from a key to its value */
    char *next, *close; /* from a value to the next key; from the last one to `after` or `again` */
    char *end;          /* what both begin with, as far as no value has it */
} CallValue;

/* How calls are written; texts are owned. */
typedef struct CallSyntax {
    bool known;
    bool plain;  /* no template writes them: plain_calls.h does */
    bool system; /* the template has a place for system messages */
    CallArguments arguments;
    char *before, *between;  /* of a call; `between` of JSON only */
    char *after;             /* behind the last call */
    char *again;             /* between two calls, to the next name; NULL: one only */
    CallValue string, other; /* of arguments that are not JSON */
    char *none;              /* as `close`, where there are no arguments */
    /* By what a call begins in an answer: text that may stand anywhere; NULL: `before`, and where that is
       one byte a name and what follows it, at the beginning of the answer but for white space. */
    char *mark;
} CallSyntax;

void call_syntax_learn(CallSyntax *syntax, const ChatTemplate *chat, const Tokenizer *tokenizer,
                       const int32_t *stops, size_t n_stops);
void call_syntax_free(CallSyntax *syntax);

/* Whether a text is, but for white space, what calls without a mark begin with (1), may become that (0), or is not (-1). */
int call_syntax_like(const CallSyntax *syntax, const char *text);

/* Takes the calls out of a text that begins with one, as {"id", "type", "function": {"name", "arguments": {…}}} into the array;
   what is left goes to `rest`. tools: as templates are given them, for the types of arguments; or NULL. */
void calls_read(const CallSyntax *syntax, const json_t *tools, const char *text, json_t *calls,
                StrBuf *rest);

/* The value of an argument of a call as JSON, owned. It is text where its schema asks for text, or what is written is no value.
   tools, name: of which function; or NULL. */
json_t *call_value(const json_t *tools, const char *name, const char *key, const char *text,
                   size_t n, bool string);

/* The value at *at, which is then behind it, as JSON, Python or Gemma write it; NULL: there is none. */
json_t *loose_value(const char **at);

#endif
