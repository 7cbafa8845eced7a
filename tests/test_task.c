/* Questions with several answers, as lm-evaluation-harness finds them (tests/oracles/task.py). */
#include "shell.h"

#include "base/json_file.h"
#include "unit.h"

#include <math.h>

#define QUESTIONS CVN_TEST_DATA "/task/questions.jsonl"

static void it_is_the_harness(void **state)
{
    cvn_err err = {0};
    json_t *expected = json_object_read(CVN_TEST_DATA "/task/expected.json", &err);
    int status;
    StrBuf output = shell("caravan init -p stories260k -s 3 --dtype f32 --tokenizer " CVN_TEST_DATA
                          "/chat/tokenizer.json -o asked >/dev/null 2>&1 && "
                          "caravan score -m asked -t 1 --json --task " QUESTIONS,
                          &status);
    assert_int_equal(status, 0);
    json_t *got = json_loads(output.text, 0, NULL);
    assert_true(expected && got);
    const char *key;
    json_t *value, *question;
    json_object_foreach(expected, key, value) if (json_is_number(value))
    {
        double have = json_number_value(json_object_get(got, key));
        if (!(fabs(have - json_number_value(value)) < 1e-9))
            fail_msg("%s is %g and not %g", key, have, json_number_value(value));
    }
    size_t i, k;
    json_array_foreach(json_object_get(expected, "questions"), i, question)
    {
        const json_t *ours = json_array_get(json_object_get(got, "questions"), i);
        assert_true(
            json_equal(json_object_get(ours, "choice"), json_object_get(question, "choice")));
        json_array_foreach(json_object_get(question, "logprobs"), k, value)
        {
            double have = json_number_value(json_array_get(json_object_get(ours, "logprobs"), k));
            if (!(fabs(have - json_number_value(value)) < 1e-3))
                fail_msg("question %zu, choice %zu: %g and not %g", i, k, have,
                         json_number_value(value));
        }
    }
    json_decref(got);
    json_decref(expected);
    strbuf_free(&output);
}

static void what_is_no_question_is_refused(void **state)
{
    expect(1, "echo '{\"context\": \"a\"}' >q; caravan score -m model --task q 2>&1",
           "q:1: a question is {\"context\": text, \"choices\": [texts], \"answer\": index}");
    expect(1,
           "echo '{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"d\"}' >q; "
           "caravan score -m model --task q 2>&1",
           "q:1: \"answer\" is not one of the 2 choices");
    expect(1, "echo >q; caravan score -m model --task q 2>&1", "'q' has no questions");
    expect(1, "caravan score -m bare --task " QUESTIONS " 2>&1", "tokenizer");
}

static void training_asks_at_its_end(void **state)
{
    expect(0,
           "yes 'the fox ran over a hill' | head -c 9000 >a; caravan train --data a --preset "
           "stories260k --tokenizer model --seq 32 --batch 2 -t 1 --steps 2 --out run "
           "--evaluate " QUESTIONS " 2>&1",
           "questions.jsonl': 24 questions, accuracy 0.");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_harness),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(training_asks_at_its_end),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
