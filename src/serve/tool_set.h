/*
 * The tools that an answer may call: their names and the schemas of their arguments, as constraints. (call_writer.h has how calls
 * are generated under them.)
 */
#ifndef CVN_SERVE_TOOL_SET_H
#define CVN_SERVE_TOOL_SET_H

#include "caravan/constrain.h"
#include "text/answer.h"

#include <jansson.h>

enum { TOOLS_MAX = 256, TOOL_NAME_MAX = 128 };

typedef struct Tool {
    const char *name;          /* in ToolSet.shown */
    const json_t *parameters;  /* in ToolSet.shown */
    cvn_constraint *arguments; /* owned: what they are */
} Tool;

/* Invariant: names is NULL exactly where no tool can be called. Constraints are used by one thread at a time. */
typedef struct ToolSet {
    json_t *shown;         /* owned array, as templates want them; or NULL */
    Tool *tool;            /* [n] owned */
    int n;                 /* at most TOOLS_MAX */
    int only;              /* the one that can be called, or -1 */
    cvn_constraint *names; /* owned: of the tools' names */
    cvn_constraint *again; /* owned: what follows a call, another or the end; NULL: one call only */
    size_t same_end;       /* bytes that both begin with */
} ToolSet;

/* All fill a set that is zero before the first; tool_set_free also after an error. A set of up to `most` tools. */
int tool_set_init(ToolSet *set, size_t most, cvn_err *err);
/* A tool: `function` has "name", and may have "description" and "strict"; parameters: their schema, or NULL. A schema that is
   not supported is taken for that of any object, unless the tool is strict. */
int tool_set_add(ToolSet *set, const json_t *function, const json_t *parameters, cvn_err *err);
/* After all are added: makes the constraints of calls. named: the only one that may be called, or NULL; CVN_EINVAL where there is no
   such tool. several: an answer may have more than one call. */
int tool_set_allow(ToolSet *set, const CallSyntax *syntax, const char *named, bool several,
                   cvn_err *err);
void tool_set_free(ToolSet *set);

/* How JSON is written in calls. */
extern const cvn_constrain_options tools_written;

#endif
