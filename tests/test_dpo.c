/* Learning from pairs of answers, from the file to the model. That the loss is the field's: test_train_curve.c. */
#include "shell.h"

#define PAIRS                                                                                      \
    "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo '{\"prompt\": \"The '$i'\", \"chosen\": \" fox " \
    "ran\", \"rejected\": \" hen sat '$i'\"}'; done >pairs.jsonl; "
#define TRAIN "caravan train --dpo pairs.jsonl --init model --seq 24 --batch 4 -t 1 --lr 1e-3 "

/* The better answers become likelier, and a run that was interrupted goes on as if it had not been. */
static void the_better_answers_win(void **state)
{
    (void)state;
    expect(0, PAIRS TRAIN "--steps 12 --validation pairs.jsonl --evaluate-every 4 --out whole 2>&1",
           "reference: log-probabilities of 'model'");
    expect(0, "head -n 1 whole/metrics.jsonl", "\"loss\":0.693147");
    expect(0, "tail -n 1 whole/metrics.jsonl", ",\"accuracy\":1}");
    expect(0,
           TRAIN "--steps 12 --out parts --stop-after 5 2>&1 | tail -n 2; "
                 "caravan train --resume parts 2>&1 | grep -c reference; "
                 "cmp whole/model.safetensors parts/model.safetensors && echo same",
           "1\nsame");
    expect(0, TRAIN "--steps 12 --mesh data=2 --layout dp --out mesh 2>&1", "finished");
    expect(0,
           "for r in whole mesh; do sed 's/{[^}]*\"step\":[0-9]*,\"loss\":\\([^,]*\\).*/\\1/' "
           "$r/metrics.jsonl >$r.loss; "
           "done; paste whole.loss mesh.loss | "
           "awk '{d = $1 - $2} d * d > 1e-8 {bad++} END {print \"far:\", bad + 0, NR}'",
           "far: 0 12");
}

/* A prompt that is not named is what both answers begin with; messages are answers, too. */
static void pairs_come_in_the_forms_that_people_have(void **state)
{
    expect(0,
           "echo '{\"chosen\": \"The fox ran\", \"rejected\": \"The fox sat\"}' >implied; "
           "echo '{\"prompt\": \"The fox\", \"chosen\": \" ran\", \"rejected\": \" sat\"}' >named; "
           "for f in implied named; do caravan train --dpo $f --init model --seq 24 --batch 2 -t 1 "
           "--steps 2 --out run-$f 2>&1 | grep warning; done; "
           "cmp run-implied/model.safetensors run-named/model.safetensors && echo same",
           "same");
    expect(0,
           "q='{\"role\": \"user\", \"content\": \"hi\"}'; a() { echo "
           "'{\"role\": \"assistant\", \"content\": \"'$1'\"}'; }; "
           "echo \"{\\\"chosen\\\": [$q, $(a yes)], \\\"rejected\\\": [$q, $(a no)]}\" >talk; "
           "caravan train --dpo talk --init model --lora r=2 --seq 64 --batch 2 -t 1 --steps 2 "
           "--out run-talk 2>&1",
           "in 2 documents, 2 sequences");
    expect(0, TRAIN "--steps 1 --seq 4 --out cut 2>&1",
           "warning: 24 of 24 answers with their prompts are longer");
}

static void what_is_no_pair_is_refused_by_name(void **state)
{
    expect(1, "echo '{\"text\": \"a\"}' >bad; caravan train --dpo bad --init model --out no 2>&1",
           "bad:1: this is not a preference pair; give {\"prompt\": ");
    expect(1, "caravan train --data pairs.jsonl --init model --out no 2>&1",
           "this is a preference pair; use caravan train --dpo");
    expect(1,
           "echo '{\"chosen\": \"a\", \"rejected\": [1]}' >bad; "
           "caravan train --dpo bad --init model --out no 2>&1",
           "must be two strings or two lists of messages");
    expect(2, "caravan train --dpo pairs.jsonl --preset tiny --out no 2>&1", "--init DIR");
    expect(1, TRAIN "--batch 3 --out no 2>&1", "even --batch");
    expect(2, "caravan train --dpo pairs.jsonl --data bad --init model --out no 2>&1",
           "either --data");
    expect(2, "caravan train --data bad --init model --beta 1 --out no 2>&1", "--dpo");
}

/* Small: it is written anew with every run. */
static int make_small(void **state)
{
    int status = make_scratch(state);
    if (status)
        return status;
    StrBuf output =
        shell("caravan init -p dim=32,layers=2,heads=4,kv_heads=2,ffn=64,vocab=512,context=512 "
              "-s 3 --tokenizer " CVN_TEST_DATA "/chat/tokenizer.json -o model",
              &status);
    strbuf_free(&output);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_better_answers_win),
        cmocka_unit_test(pairs_come_in_the_forms_that_people_have),
        cmocka_unit_test(what_is_no_pair_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, make_small, remove_scratch);
}
