/* What a report says of a run besides its curves: the command that begins it anew, and the machine. */
#include "train/run_impl.h"

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/json_file.h"

static void put_option(StrBuf *out, const char *name, const json_t *value)
{
    SCOPED(scoped_free)
    char *text =
        json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    strbuf_printf(out, " --%s ", name);
    strbuf_word(out, json_is_string(value) ? json_string_value(value) : text ? text : "");
}

/* Every option that is not what it is by default. */
static void put_command(StrBuf *out, const TrainConfig *config)
{
    const TrainConfig plain = train_config_defaults();
    json_auto_t *json = train_config_json(config);
    const json_t *value;
    strbuf_puts(out, "caravan train");
    for (int i = 0; i < train_n_keys; i++) {
        const TrainKey *key = &train_keys[i];
        size_t k;
        json_t *entry;
        if (train_config_same(config, &plain, key) || !(value = json_object_get(json, key->name)))
            continue;
        if (!json_is_array(value))
            put_option(out, key->name, value);
        json_array_foreach(value, k, entry)
        {
            put_option(out, key->name, entry);
        }
    }
}

/* The options as the run took them: where one stands for a default, what that was. NULL: no memory. */
static char *used_options(const Run *r)
{
    const TrainerOptions *o = &r->trainer.options;
    const bool own_rate = o->optimizer.kind == OPTIMIZER_ADAFACTOR && o->optimizer.lr == 0;
    const struct {
        const char *key;
        json_t *value;
    } used[] = {
        {"lr", own_rate ? json_string("adafactor's own") : json_real(o->optimizer.lr)},
        {"weight-decay", json_real(o->optimizer.weight_decay)},
        {"attention-dropout", json_real(o->dropout.attention)},
        {"hidden-dropout", json_real(o->dropout.hidden)},
        {"warmup", json_integer(o->schedule.warmup)},
        {"decay", o->schedule.kind == SCHEDULE_WSD ? json_integer(o->schedule.decay) : NULL},
        {"micro-batch", json_integer(o->micro_batch)},
        {"remat", json_string(remat_policy_names[o->remat])},
        {"memory", json_integer((json_int_t)o->memory_limit)},
        {"threads", json_integer(r->trainer.stage->rt.info.threads)},
    };
    json_auto_t *json = r->kept.text ? json_loads(r->kept.text, 0, NULL) : NULL;
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        if (!used[i].value || json_object_set_new(json, used[i].key, used[i].value))
            json_object_del(json, used[i].key);
    return json ? json_dumps(json, JSON_REAL_PRECISION(6)) : NULL;
}

static void put_machine(StrBuf *out, const Run *r)
{
    char brand[CPU_BRAND_SIZE];
    const TrainerOptions *o = &r->trainer.options;
    cpu_brand(brand);
    int threads = r->trainer.stage->rt.info.threads;
    if (r->pace.peak > 0)
        strbuf_printf(out,
                      "%s%s%d thread%s\n"
                      "matrix products: %.1f GFLOP/s in %s, measured in the run\n",
                      brand, *brand ? "; " : "", threads, threads == 1 ? "" : "s",
                      r->pace.peak / 1e9, cvn_dtype_name(o->compute));
    else
        strbuf_printf(out, "%s\n", r->trainer.stage->rt.info.kind);
    strbuf_printf(out, "memory: %s of weights, optimizer and temporaries; recomputed: %s",
                  bytes_text((double)r->trainer.bytes).text, remat_policy_names[o->remat]);
}

void run_communication(const Run *r, CommTable *out)
{
    int64_t steps = r->trainer.state.saved.step - r->pace.first;
    *out = r->pace.communication;
    if (steps > 0)
        comm_table_divide(out, (double)steps);
}

void run_report(Run *r)
{
    cvn_err err = {0};
    if (!run_is_first(r))
        return;
    SCOPED(strbuf_free) StrBuf title = {0}, command = {0}, machine = {0};
    const TrainConfig *c = &r->config;
    strbuf_printf(&title, "%s on %s%s", c->init ? c->init : c->preset, c->data[0],
                  c->n_data > 1 ? " and more" : "");
    put_command(&command, c);
    put_machine(&machine, r);
    CommTable communication;
    run_communication(r, &communication);
    SCOPED(scoped_free) char *options = used_options(r);
    const CheckpointState *saved = &r->trainer.state.saved;
    Report report = {.title = title.text,
                     .command = command.text,
                     .machine = machine.text,
                     .config = options,
                     .metrics = &r->log.metrics,
                     .samples = &r->log.samples,
                     .communication = &communication,
                     .steps = c->steps,
                     .tokens = saved->tokens,
                     .finished = saved->step >= c->steps};
    if (report_write(r->out, &report, &err) &&
        !r->log.no_room) /* of a full disk was told already */
        run_warn(r, "cannot write the report: %s", err.message);
}
