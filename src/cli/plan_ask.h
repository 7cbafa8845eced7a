/* What is to run on which devices, as plan and compile are asked it. */
#ifndef CVN_CLI_PLAN_ASK_H
#define CVN_CLI_PLAN_ASK_H

#include "cli/common.h"
#include "io/model.h"
#include "sim/plan.h"

/* The first options of such a command, in this order. */
enum {
    PRESET,
    MODEL,
    MESH,
    LAYOUT,
    DEVICE,
    THREADS,
    OVERLAP,
    TRAIN,
    PREFILL,
    SEQ,
    BATCH,
    CONTEXT,
    OPTIMIZER,
    REMAT,
    DTYPE,
    ASK_OPTIONS
};
extern const Option ask_option[ASK_OPTIONS]; /* but for those that are shared */

/* Of a list of options. */
#define ASK(name) [name] = &ask_option[name]
#define PLAN_ASK_OPTIONS                                                                           \
    ASK(PRESET), ASK(MODEL), ASK(MESH),                                                            \
        ASK(LAYOUT), [DEVICE] = SHARED(DEVICE), ASK(THREADS), [OVERLAP] = SHARED(OVERLAP),         \
                     ASK(TRAIN), ASK(PREFILL), ASK(SEQ), ASK(BATCH), ASK(CONTEXT), ASK(OPTIMIZER), \
                     ASK(REMAT), [DTYPE] = SHARED(DTYPE)

/* What they say; model is empty before, to be closed after, and the config may borrow from it. What a plugin would take for temporaries only its compiler knows (caravan compile): a plan of it has the
   CPU's. */
int plan_ask(SimAsk *ask, IoModel *model, const Value *v, cvn_err *err);

/* Bytes of a device by what they are for. */
json_t *plan_memory_json(const SimAnswer *a);

#endif
