/* The model of tests/data/llama/gqa in f32, opened once for all tests of a file: a group's set-up and tear-down. */
#ifndef CVN_TESTS_GQA_MODEL_H
#define CVN_TESTS_GQA_MODEL_H

#include "caravan/caravan.h"
#include "unit.h"

static cvn_model *model;

static int open_model(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true};
    must(cvn_model_open(CVN_TEST_DATA "/llama/gqa", &options, &model, &err), &err);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    cvn_model_free(model);
    return 0;
}

#endif
