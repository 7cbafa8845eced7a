/* What plan, compile and simulate are asked: which model, on which mesh, doing what. */
#ifndef CVN_CLI_ASK_H
#define CVN_CLI_ASK_H

#include "cli/common.h"
#include "io/model.h"
#include "sim/plan.h"

/* ASK(MESH): its address. */
#define ASK(name) SHARED(ASK_##name)

/* The first options of plan and compile, so many; simulate has some of them. */
enum { ASKED = 20 };
#define ASKED_OPTIONS                                                                              \
    ASK(PRESET), ASK(MODEL), ASK(MESH), ASK(LAYOUT), SHARED(DEVICE), ASK(THREADS),                 \
        SHARED(OVERLAP), ASK(TRAIN), ASK(PREFILL), ASK(DECODE), ASK(SEQ), ASK(BATCH),              \
        ASK(CONTEXT), ASK(OPTIMIZER), ASK(REMAT), SHARED(DTYPE), SHARED(QUANTIZE),                 \
        SHARED(KV_CACHE), SHARED(ACTIVATIONS), SHARED(TEXT_ONLY)

/* The question that was typed; context 0: the model's. Refuses what an engine or a trainer would. The config may borrow from the
   model, a {0} that is closed (io_close_model) when there are no more questions. What a plugin would take for temporaries only
   its compiler knows (caravan compile): a plan of it has the CPU's. */
int ask_of(const Args *args, int64_t context, IoModel *model, SimAsk *ask, cvn_err *err);

/* The model as it was named. */
const char *ask_name(const Args *args);
extern const char *const ask_tasks[];

/* Bytes of a device by what they are for. */
json_t *ask_memory_json(const SimAnswer *a);

#endif
