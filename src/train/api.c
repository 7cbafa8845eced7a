/* The public functions: options as JSON text, and events in public structs. */
#include "caravan/train.h"

#include "base/json_file.h"
#include "train/run.h"

#include <string.h>

static void on_note(void *context, const char *sentence)
{
    const cvn_train_events *e = context;
    if (e->note)
        e->note(e->context, sentence);
}

static void on_warning(void *context, const char *sentence)
{
    const cvn_train_events *e = context;
    if (e->warning)
        e->warning(e->context, sentence);
}

static bool on_step(void *context, const TrainProgress *p)
{
    const cvn_train_events *e = context;
    cvn_train_step step = {.step = p->row.step,
                           .steps = p->steps,
                           .loss = p->row.loss,
                           .validation_loss = p->row.validation_loss,
                           .lr = p->row.lr,
                           .grad_norm = p->row.grad_norm,
                           .tokens_per_second = p->row.tokens_per_second,
                           .mfu = p->row.mfu,
                           .seconds = p->row.seconds,
                           .seconds_left = p->left,
                           .memory = p->memory};
    if (e->step)
        e->step(e->context, &step);
    return true;
}

#define DOING "reading the options of a run"

typedef struct Asked {
    const char *options;
    const char *run; /* that goes on; NULL: a new one */
    const cvn_train_events *events;
    cvn_train_result *out;
} Asked;

static int train(void *of, cvn_err *err)
{
    static const cvn_train_events silent = {0};
    const Asked *a = of;
    const cvn_train_events *public = a->events ? a->events : &silent;
    TrainEvents events = {.context = (void *)(uintptr_t) public,
                          .note = on_note,
                          .warning = on_warning,
                          .step = on_step,
                          .stop = public->stop,
                          .cluster = public->cluster};
    TrainResult result = {0};
    TrainConfig config = train_config_defaults();
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    bool *given = arena_array(&arena, (size_t)train_n_keys, sizeof *given);
    json_t *json = json_object_parse("the options", a->options, strlen(a->options), err);
    CLEANUP(json_release, json);
    int code =
        json ? train_config_read(&config, "the options", json, given, &arena, err) : err->code;
    config.out = a->run ? a->run : config.out;
    if (code == CVN_OK)
        code = train_run(&config, given, a->run != NULL, &events, &result, err);
    *a->out = (cvn_train_result){.step = result.step,
                                 .steps = result.steps,
                                 .finished = result.finished,
                                 .loss = result.loss};
    return code;
}

int cvn_train(const char *options, const cvn_train_events *events, cvn_train_result *result,
              cvn_err *err)
{
    Asked asked = {options, NULL, events, result};
    return protect(train, &asked, DOING, err);
}

int cvn_train_resume(const char *run, const char *options, const cvn_train_events *events,
                     cvn_train_result *result, cvn_err *err)
{
    Asked asked = {options ? options : "{}", run, events, result};
    return protect(train, &asked, DOING, err);
}
