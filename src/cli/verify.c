/* caravan verify: computes again what a receipt says, and says whether it is the same. */
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/train_receipt.h"
#include "model/layouts.h"
#include "serve/receipt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL, OUT, DATA, THREADS, JSON };

static const Option *const options[] = {
    OPTION(MODEL, "model", .letter = 'm', .kind = ARG_INPUT, .model = true, .value = "DIR",
           .help = "the receipt's model; of training, the one that was trained further"),
    OPTION(OUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .value = "DIR",
           .help = "folder of the run, where a receipt of training is trained again"),
    OPTION(DATA, "data", .kind = ARG_INPUT, .repeats = true, .weighed = true, .value = "FILE",
           .help = "where its data lie now; repeatable"),
    [THREADS] = SHARED(THREADS),
    [JSON] = SHARED(JSON),
    SHARED(DUMP),
    SHARED(PROFILE),
    SHARED(TEXT_ONLY),
    NULL,
};

/* A run of the command. */
typedef struct Verify {
    const Args *args;
    const char *path;
    size_t receipts, same;
} Verify;

static const char *text_at(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

/* How the receipt says the model was run. */
static int options_of(const Args *args, const json_t *receipt, RunOptions *how, cvn_err *err)
{
    const json_t *program = json_object_get(receipt, "program");
    const char *dtype = text_at(program, "dtype");
    if (json_integer_value(json_object_get(receipt, "receipt")) != 1 || !dtype ||
        (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0))
        return err_set(err, CVN_EFORMAT, "not a receipt of version 1, as --receipt writes them");
    *how = (RunOptions){
        .path = args->value[MODEL].text,
        .dtype = strcmp(dtype, "f32") == 0 ? CVN_F32 : CVN_BF16,
        .quantize = text_at(program, "quantize"),
        .layout = layout_for("", false),
        .engine = {.slots = 1,
                   .threads = (int)args->value[THREADS].integer,
                   .logits_processors = true,
                   .penalties = true,
                   .kv_cache = text_at(program, "kv_cache"),
                   .activations = text_at(program, "activations"),
                   .numerics = text_at(program, "numerics"),
                   .context = json_integer_value(json_object_get(program, "context"))}};
    return CVN_OK;
}

/* What the model is must be what it was; that the kernels are others is only said, where that matters. */
static int check_model(const RunModel *run, const json_t *receipt, cvn_err *err)
{
    static const char *const parts[] = {"weights", "tokenizer", "template"};
    json_auto_t *is = NULL;
    TRY(receipt_model(run->engine, &is, err));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!json_equal(json_object_get(receipt, parts[i]), json_object_get(is, parts[i])))
            return err_set(err, CVN_EFORMAT, "the receipt is of another model: \"%s\" differs",
                           parts[i]);
    const json_t *was = json_object_get(receipt, "program"), *now = json_object_get(is, "program");
    const char *before = text_at(was, "kernels"), *after = text_at(now, "kernels");
    const char *numerics = text_at(now, "numerics");
    const bool portable = numerics && strcmp(numerics, "portable") == 0;
    if (!portable && before && after && strcmp(before, after) != 0)
        fprintf(stderr,
                "caravan: warning: the receipt was made by kernels \"%s\", these are \"%s\"\n",
                before, after);
    return CVN_OK;
}

static int print_same(const Verify *v, size_t number, const ReceiptDifference *d, cvn_err *err)
{
    bool same = d->at == d->n;
    char was[17], is[17];
    snprintf(was, sizeof was, "%016" PRIx64, d->was.chain);
    snprintf(is, sizeof is, "%016" PRIx64, d->is.chain);
    if (v->args->value[JSON].flag) {
        json_t *all = json_pack("{s:b,s:I}", "same", same, "tokens", (json_int_t)d->n);
        if (!same)
            all = json_with(all, "first",
                            json_pack("{s:I,s:i,s:i,s:f,s:f,s:s,s:s}", "at", (json_int_t)d->at,
                                      "token", d->was.id, "now", d->is.id, "logprob",
                                      (double)d->was.logprob, "logprob_now", (double)d->is.logprob,
                                      "chain", was, "chain_now", is));
        return print_json(all, err);
    }
    if (same)
        printf("receipt %zu: same, %zu tokens\n", number, d->n);
    else
        printf("receipt %zu: token %zu of %zu differs: was %d with ln p %.9g (%s), is %d with "
               "%.9g (%s)\n",
               number, d->at, d->n, d->was.id, (double)d->was.logprob, was, d->is.id,
               (double)d->is.logprob, is);
    return CVN_OK;
}

static int print_trained(const Verify *v, size_t number, const TrainDifference *d, cvn_err *err)
{
    if (v->args->value[JSON].flag) {
        json_t *all =
            json_pack("{s:b,s:I}", "same", !d->step && !d->weights, "steps", (json_int_t)d->steps);
        if (d->step) /* a number that is not finite becomes null */
            all = json_with(all, "first",
                            json_pack("{s:I,s:o*,s:o*,s:o*,s:o*}", "step", (json_int_t)d->step,
                                      "loss", json_real(d->loss), "loss_now",
                                      json_real(d->loss_now), "grad_norm", json_real(d->grad_norm),
                                      "grad_norm_now", json_real(d->grad_norm_now)));
        return print_json(all, err);
    }
    if (d->step)
        printf("receipt %zu: step %" PRId64 " of %" PRId64 " differs: the loss was %.9g, is %.9g; "
               "the gradient's norm was %.9g, is %.9g\n",
               number, d->step, d->steps, d->loss, d->loss_now, d->grad_norm, d->grad_norm_now);
    else
        printf("receipt %zu: %s, %" PRId64 " steps%s\n", number,
               d->weights ? "the weights at the end differ" : "same", d->steps,
               d->weights ? ", all of them the same" : " and the weights at the end");
    return CVN_OK;
}

static int verify_training(Verify *v, const json_t *receipt, size_t number, cvn_err *err)
{
    const Value *value = v->args->value;
    TrainDifference d;
    if (!value[OUT].given)
        return err_set(err, CVN_EINVAL,
                       "it is a receipt of training; give --out DIR, a new folder to train in");
    const TrainAgain how = {.out = value[OUT].text,
                            .base = value[MODEL].given ? value[MODEL].text : NULL,
                            .data = value[DATA].texts,
                            .n_data = value[DATA].n_texts,
                            .threads = limit_threads(value[THREADS].integer),
                            .stop = run_interrupt_step(false)};
    TRY(train_receipt_replay(receipt, &how, &d, err));
    v->receipts++;
    v->same += !d.step && !d.weights;
    return print_trained(v, number, &d, err);
}

static int verify_line(void *context, const char *line, size_t n, size_t number, cvn_err *err)
{
    Verify *v = context;
    RunModel run = {0};
    RunOptions how;
    ReceiptDifference d = {0};
    json_error_t where;
    json_auto_t *receipt = json_loadb(line, n, 0, &where);
    if (!receipt)
        return err_set(err, CVN_EFORMAT, "not JSON; give what --receipt wrote");
    if (train_receipt_is(receipt))
        return verify_training(v, receipt, number, err);
    if (!v->args->value[MODEL].given)
        return err_set(err, CVN_EINVAL, "give the receipt's model with --model");
    TRY(options_of(v->args, receipt, &how, err));
    int code = run_model_open(&run, &how, err);
    if (!code)
        code = run_model_start(&run, &how, 1, 1, err);
    if (!code)
        code = check_model(&run, receipt, err);
    if (!code)
        code = receipt_replay(run.engine, receipt, &d, err);
    run_model_close(&run, err);
    if (code)
        return code;
    v->receipts++;
    v->same += d.at == d.n;
    return print_same(v, number, &d, err);
}

static int run(const Args *args, cvn_err *err)
{
    Verify v = {.args = args, .path = args->operand[0]};
    SCOPED(scoped_free) char *text = NULL;
    size_t n;
    TRY(read_input(v.path, &text, &n, err));
    TRY(each_line(v.path, text, n, verify_line, &v, err));
    if (!v.receipts)
        return err_set(err, CVN_EFORMAT, "%s has no receipts; give what --receipt wrote", v.path);
    return v.same == v.receipts ? CVN_OK
                                : err_set(err, CVN_EUNSUPPORTED, "%zu of %zu receipts differ",
                                          v.receipts - v.same, v.receipts);
}

const Command command_verify = {
    "verify",
    .about = "compute a receipt again, and compare bit for bit",
    .usage = "RECEIPT [options]",
    .examples = "verify r.json -m my-llama\tsame, or the first token that differs\n"
                "verify run.json -o again\tthe same of training: its first step\n",
    .notes =
        "A receipt is what --receipt FILE of generate and chat wrote, a line for each text, or of "
        "train. The model must be that of the receipt. On another set of instructions last bits "
        "differ, "
        "unless the receipt was made with --numerics portable (docs/NUMERICS.md).",
    .operands = "RECEIPT",
    .min_operands = 1,
    .max_operands = 1,
    .options = options,
    .run = run,
};
