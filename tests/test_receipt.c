/* Receipts: what was drawn is drawn again with the same bits, whatever was drawn beside it, and what was changed is found. */
#include "base/json_file.h"
#include "caravan/engine.h"
#include "serve/receipt.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>

enum { TEXTS = 3, DRAWN = 24 };

typedef struct Served {
    cvn_model *model;
    cvn_engine *engine;
    Receipt receipt[TEXTS];
} Served;

static void hear(void *context, int index, const float *logits, int32_t token)
{
    Served *s = context;
    receipt_add(&s->receipt[index], logits, cvn_model_vocab(s->model), token);
}

static void open_served(Served *s, int slots)
{
    cvn_err err = {0};
    *s = (Served){0};
    const cvn_model_options how = {.dtype = CVN_BF16, .no_tokenizer = true};
    must(cvn_model_open(CVN_TEST_DATA "/llama/mistral", &how, &s->model, &err), &err);
    const cvn_engine_options options = {
        .slots = slots, .threads = 1, .context = 40, .logits_processors = true, .penalties = true};
    must(cvn_engine_new(s->model, &options, &s->engine, &err), &err);
}

static void close_served(Served *s)
{
    for (int i = 0; i < TEXTS; i++)
        receipt_free(&s->receipt[i]);
    cvn_engine_free(s->engine, NULL);
    cvn_model_free(s->model);
}

static const int32_t prompt[] = {1, 17, 40, 22, 9};
static const cvn_bias bias = {.token = 5, .bias = 3};

static cvn_request request_of(int i)
{
    return (cvn_request){.prompt = prompt,
                         .n_prompt = 5 - i,
                         .max_tokens = DRAWN,
                         .ignore_eos = true,
                         .bias = &bias,
                         .n_bias = i == 2,
                         .on_logits = hear,
                         .sampling = {.temperature = 0.9f,
                                      .top_k = i ? 30 : 0,
                                      .top_p = 0.95f,
                                      .repeat_penalty = i ? 1.1f : 1,
                                      .seed = UINT64_C(0xfedcba9876543210) + (uint64_t)i}};
}

/* Of texts that were drawn beside each other; to be released. */
static void make_receipts(json_t *out[TEXTS])
{
    Served s;
    cvn_err err = {0};
    cvn_request request[TEXTS];
    cvn_result result[TEXTS];
    json_t *model;
    open_served(&s, TEXTS);
    for (int i = 0; i < TEXTS; i++)
        request[i] = request_of(i);
    must(cvn_engine_generate(s.engine, request, TEXTS, NULL, &s, NULL, result, &err), &err);
    must(receipt_model(s.engine, &model, &err), &err);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(s.receipt[i].n, DRAWN);
        json_auto_t *made = receipt_json(&s.receipt[i], model, &request[i]);
        char *text = json_dumps(made, 0); /* what a file would hold */
        assert_non_null(text);
        out[i] = json_loads(text, 0, NULL);
        free(text);
    }
    json_decref(model);
    close_served(&s);
}

static size_t differs_at(Served *s, const json_t *receipt)
{
    cvn_err err = {0};
    ReceiptDifference d;
    must(receipt_replay(s->engine, receipt, &d, &err), &err);
    assert_int_equal(d.n, DRAWN);
    return d.at;
}

static void what_was_drawn_in_company_is_drawn_again_alone(void **state)
{
    json_t *receipt[TEXTS];
    Served s;
    make_receipts(receipt);
    open_served(&s, 1);
    for (int i = 0; i < TEXTS; i++) {
        assert_int_equal(
            json_is_true(json_object_get(json_object_get(receipt[i], "request"), "drawn")),
            i != 2); /* biases are not in it */
        assert_int_equal(differs_at(&s, receipt[i]), DRAWN);
    }
    for (int i = 0; i < TEXTS; i++)
        json_decref(receipt[i]);
    close_served(&s);
}

static void what_was_changed_is_found_where_it_is(void **state)
{
    json_t *receipt[TEXTS];
    Served s;
    make_receipts(receipt);
    open_served(&s, 1);
    /* a log-probability by its last bit, a token, a digest of logits */
    json_t *list = json_object_get(receipt[0], "logprobs");
    float x = (float)json_number_value(json_array_get(list, 7));
    json_array_set_new(list, 7, json_real((double)nextafterf(x, 0)));
    assert_int_equal(differs_at(&s, receipt[0]), 7);
    list = json_object_get(receipt[1], "tokens");
    json_int_t token = json_integer_value(json_array_get(list, 11));
    json_array_set_new(list, 11, json_integer(token == 3 ? 4 : 3));
    assert_int_equal(differs_at(&s, receipt[1]), 11);
    json_array_set_new(json_object_get(receipt[2], "chain"), 0, json_string("0123456789abcdef"));
    assert_int_equal(differs_at(&s, receipt[2]), 0);
    for (int i = 0; i < TEXTS; i++)
        json_decref(receipt[i]);
    close_served(&s);
}

static void bad_receipts_are_refused(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"request\": {\"prompt\": []}, \"tokens\": [1]}",
        "{\"request\": {\"prompt\": [1]}, \"tokens\": [-1]}",
        "{\"request\": {\"prompt\": [1, \"2\"]}, \"tokens\": [1]}",
        "{\"request\": {\"prompt\": [1]}, \"tokens\": [99999999]}",
    };
    Served s;
    open_served(&s, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cvn_err err = {0};
        ReceiptDifference d;
        json_auto_t *receipt = json_loads(bad[i], 0, NULL);
        assert_int_equal(receipt_replay(s.engine, receipt, &d, &err), CVN_EFORMAT);
    }
    close_served(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_drawn_in_company_is_drawn_again_alone),
        cmocka_unit_test(what_was_changed_is_found_where_it_is),
        cmocka_unit_test(bad_receipts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
