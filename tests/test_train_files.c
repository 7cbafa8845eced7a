/* What caravan train leaves in the folder of a run: the report, TensorBoard's files, texts; adapters; and what
 * is still there when the disk is full. */
#include "shell.h"
#include "splitmix.h"

#include <jansson.h>
#include <math.h>

#define RUN                                                                                        \
    "caravan train --data text --preset stories260k --tokenizer " CVN_TEST_DATA                    \
    "/chat/tokenizer.json --seq 32 --batch 2 -t 2 "

static void a_run_has_its_files(void **state)
{
    expect(0, RUN "--steps 8 --sample-every 4 --prompt fox --z-loss 0.0001 --out run 2>&1",
           "finished after step 8 of 8");
    expect(0, "cat run/report.html",
           "caravan train --data text --out run --preset stories260k --tokenizer ");
    expect(0, "cat run/report.html", "matrix products: ");
    expect(0, "cat run/report.html", "Samples");
    expect(0, "cat run/report.html", "<path class=line");
    expect(0, "wc -l <run/metrics.jsonl; wc -l <run/samples.jsonl; ls run/tensorboard | wc -l",
           "8\n2\n1\n");
    expect(0, "ls run/checkpoints/step-00000008 | tr '\\n' ' '",
           "config.json generation_config.json manifest.json model.safetensors "
           "optimizer.safetensors tokenizer.json tokenizer_config.json");
    /* Without it transformers takes another class, which begins texts by a token that the model has not. */
    expect(0, "cat run/tokenizer_config.json run/checkpoints/step-00000008/tokenizer_config.json",
           "\"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    expect(0,
           "grep -c -e '\"bos_token\": \"<|begin_of_text|>\"' -e '\"eos_token\": \"<|' "
           "run/tokenizer_config.json",
           "2\n");
    expect(0, "cat run/metrics.prom", "caravan_train_step{run=\"run\"} 8\n");
    expect(1, RUN "--steps 8 --out run 2>&1", "already contains a run");
    expect(0, "caravan train --resume run --steps 10 2>&1", "finished after step 10 of 10");
    expect(0, "wc -l <run/metrics.jsonl; ls run/tensorboard | wc -l", "10\n");
}

/* Of a line of the history, which is that of W&B: its numbers, by the tags of the event files. */
static void the_history_is_that_of_the_metrics(void **state)
{
    char line[4096], other[4096];
    FILE *history = fopen(in_scratch("run/wandb-history.jsonl"), "r"),
         *metrics = fopen(in_scratch("run/metrics.jsonl"), "r");
    assert_true(history && metrics);
    double runtime = 0, timestamp = 1.6e9;
    for (int step = 1; step <= 10; step++) {
        assert_true(fgets(line, sizeof line, history) && fgets(other, sizeof other, metrics));
        json_auto_t *h = json_loads(line, 0, NULL), *m = json_loads(other, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(h, "_step")), step);
        assert_true(json_equal(json_object_get(h, "train/loss"), json_object_get(m, "loss")));
        assert_true(json_equal(json_object_get(h, "speed/mfu"), json_object_get(m, "mfu")));
        runtime += json_number_value(json_object_get(m, "seconds"));
        assert_true(fabs(json_number_value(json_object_get(h, "_runtime")) - runtime) < 1e-3);
        double now = json_number_value(json_object_get(h, "_timestamp"));
        assert_true(now >= timestamp && now < 1e11);
        timestamp = now;
    }
    assert_null(fgets(line, sizeof line, history));
    fclose(history);
    fclose(metrics);
}

static void the_dashboard_asks_for_numbers_that_are_written(void **state)
{
    expect(0,
           "caravan train --data text --preset stories260k --tokenizer " CVN_TEST_DATA
           "/chat/tokenizer.json --seq 32 --batch 2 -t 1 --mesh data=2 --steps 2 "
           "--validation text --evaluate-every 1 --out many 2>&1",
           "finished");
    expect(0,
           "for m in $(grep -o 'caravan_train_[a-z_]*' " CVN_TEST_DATA
           "/../../examples/grafana-training.json | sort -u); do grep -q \"^$m{run=\" "
           "many/metrics.prom && echo has || echo \"$m is missing\"; done | sort | uniq -c | "
           "tr -d ' '",
           "12has\n");
    expect(0, "grep -c '^# TYPE caravan_train_[a-z_]* gauge$' many/metrics.prom", "12\n");
}

static void a_report_says_what_was_used(void **state)
{
    expect(0, RUN "--steps 2 --warmup 1 --lr 0.002 --out told 2>&1", "finished");
    expect(0, "cat told/report.html", "<dt>lr</dt><dd>0.002</dd>");
    expect(0, RUN "--steps 30 --stop-after 1 --out used 2>&1", "stopped");
    expect(0, "cat used/report.html", "<dt>warmup</dt><dd>3</dd>");
    expect(0, "cat used/report.html", "<dt>weight-decay</dt><dd>0.1</dd>");
    expect(0,
           "! grep -E '<dt>(lr|warmup|weight-decay|micro-batch)</dt><dd>(-1|0|0.0)</dd>' "
           "used/report.html",
           "");
    /* The checkpoint keeps what was asked for, which more steps change. */
    expect(0, "grep -c '\"warmup\": -1' used/checkpoints/step-00000001/manifest.json", "1");
}

static void a_finished_run_says_so_and_stays_as_it_is(void **state)
{
    expect(0, RUN "--steps 2 --prompt fox --out done 2>&1", "finished after step 2 of 2");
    expect(0, "cd done && md5sum $(find . -type f | sort) >../before", "");
    expect(0, "caravan train --resume done 2>&1",
           "all 2 steps of 'done' are done; to continue, raise --steps");
    expect(0, "cd done && md5sum $(find . -type f | sort) >../after && cmp ../before ../after", "");
    /* What a process that was killed at the very end did not get to. */
    expect(0, "rm done/samples.jsonl done/model.safetensors && caravan train --resume done 2>&1",
           "finished after step 2 of 2");
    expect(0, "wc -l <done/samples.jsonl; ls done/model.safetensors", "1\ndone/model");
}

/* From its first moment on, before there is a checkpoint, and after. */
static void a_run_that_trains_is_no_run_that_ended(void **state)
{
    expect(0, "mkdir -p busy/checkpoints && touch busy/checkpoints/lock", "");
    expect(1, "flock busy/checkpoints/lock " CVN_BINARY " train --resume busy 2>&1",
           "another process is training into 'busy' and holds 'busy/checkpoints/lock'; wait");
    expect(1, "caravan train --resume busy 2>&1", "the run ended before its first");
    expect(0, RUN "--steps 4 --stop-after 2 --out held 2>&1", "stopped");
    expect(1, "flock held/checkpoints/lock " CVN_BINARY " train --resume held 2>&1",
           "another process is training into 'held'");
    expect(0, "caravan train --resume held 2>&1", "finished after step 4 of 4");
}

static void adapters_are_trained_exported_and_merged(void **state)
{
    const char *const tune =
        "caravan train --data text --init run --lora r=4,targets=q,v --steps 6 "
        "--seq 32 --batch 2 --save-every 3 --sample-every 3 --prompt fox -t 2 ";
    char line[512];
    snprintf(line, sizeof line, "%s --out tuned 2>&1", tune);
    expect(0, line, "the adapters are in tuned");
    expect(0, "ls tuned | tr '\\n' ' '",
           "adapter_config.json adapter_model.safetensors checkpoints");
    expect(0, "cat tuned/adapter_config.json", "/run\",");
    expect(0, "ls tuned/checkpoints/step-00000003", "adapter_model.safetensors");
    expect(0, "caravan export tuned adapter", "adapters of step 6 of tuned, in f32");
    expect(0, "cmp adapter/adapter_model.safetensors tuned/adapter_model.safetensors && echo same",
           "same");
    expect(0, "caravan export tuned merged --lora-merge", "merged: step 6 of tuned");
    expect(0, "caravan generate --model merged --prompt fox -n 3 2>&1", "");
    /* The adapters are taken as they lie, and say what the merged model says. */
    expect(0, "wc -l <tuned/samples.jsonl", "2\n");
    expect(0, "caravan export tuned exact --lora-merge --dtype f32", "exact: step 6");
    expect(0,
           "for m in exact tuned adapter tuned/checkpoints/step-00000006; do caravan score --model "
           "$m --dtype f32 --text 'the fox ran' | grep -ac perplexity; done",
           "1\n1\n1\n1\n");
    expect(
        0,
        "for m in exact tuned adapter tuned/checkpoints/step-00000006; do caravan score --model "
        "$m --dtype f32 --text 'the fox ran' | grep -av tokens/s | md5sum; done | sort | uniq -c",
        "      4 ");
    expect(0, "caravan generate --model tuned --prompt fox -n 3 2>&1", "");
    expect(1, "caravan train --data text --init tuned --lora r=4 --seq 32 --out more 2>&1",
           "merge them with caravan export --lora-merge");
    expect(0, "test ! -e more", "");
    expect(0, "caravan inspect --model tuned", "tuned: adapters for the Hugging Face folder ");
    expect(0, "sed -i 's#/run\"#/gone\"#' adapter/adapter_config.json", "");
    expect(1, "caravan generate --model adapter --prompt fox 2>&1",
           "/gone', which does not exist; give the base model with --model");
    expect(1, "caravan export run plain --lora-merge 2>&1", "is a full model, not an adapter");
    /* In two parts: the same adapters. */
    snprintf(line, sizeof line, "%s --out parts --stop-after 4 2>&1", tune);
    expect(0, line, "stopped after step 4 of 6");
    expect(0, "caravan train --resume parts 2>&1", "finished after step 6");
    expect(0, "caravan train --resume parts --layout tp 2>&1",
           "--layout has no effect without --mesh: ");
    expect(1, "caravan train --resume parts --steps 5 2>&1", "has done 6 steps; --steps is of the");
    expect(0, "cmp parts/adapter_model.safetensors tuned/adapter_model.safetensors && echo same",
           "same");
    expect(1, "caravan train --resume parts --lora r=8 --steps 8 2>&1", "--lora cannot change");
}

/* Of the model and of adapters: bits of elements that are dropped follow from the seed and the sequence. */
static void a_run_with_dropout_goes_on_with_the_same_bits(void **state)
{
    static const char *const kinds[] = {
        "--preset stories260k --tokenizer " CVN_TEST_DATA
        "/chat/tokenizer.json --attention-dropout 0.2 --hidden-dropout 0.1 --micro-batch 1",
        "--init run --lora r=2,dropout=0.25"};
    for (int i = 0; i < 2; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "train() { out=$1; shift; caravan train --data text --seq 16 --batch 2 --steps 5 "
                 "--validation 0.2 -t 1 --out $out \"$@\" 2>&1; }; rm -rf drop; mkdir drop; "
                 "train drop/whole %s && train drop/part %s --stop-after 2",
                 kinds[i], kinds[i]);
        expect(0, line, "stopped after step 2");
        expect(0, "caravan train --resume drop/part 2>&1", "finished after step 5");
        expect(0, "cmp drop/part/*model.safetensors drop/whole/*model.safetensors", "");
        expect(
            0,
            "for f in part whole; do sed 's/\"tokens_per.*//' drop/$f/metrics.jsonl; done | sort | "
            "uniq -c | grep -c '^ *2 '",
            "5\n");
    }
    expect(0, "grep lora_dropout drop/whole/adapter_config.json", "0.25");
    expect(2, "caravan train --data text --init run --hidden-dropout 1 --out none 2>&1",
           "give a number from -1 to 0.99");
    expect(2, "caravan train --data text --init run --lora r=2,dropout=1 --out none 2>&1",
           "dropout=1 is not a number from 0 to 0.99");
}

/* What config.json says of dropout is done in training, unless options say otherwise, and nowhere else. */
static void a_models_own_dropout_is_done(void **state)
{
    expect(
        0,
        "cp -r run own && sed -i 's/\"attention_dropout\": 0.0/\"attention_dropout\": 0.5, "
        "\"resid_pdrop\": 0.25/' own/config.json && tune() { caravan train --data text --seq 16 "
        "--batch 2 --steps 1 -t 1 --lr 1e-4 \"$@\" 2>&1; } && tune --init run --out t-plain && "
        "tune --init own --out t-own && tune --init own --attention-dropout 0 --hidden-dropout 0 "
        "--out t-off && tune --init run --attention-dropout 0.5 --hidden-dropout 0.25 --out t-on",
        "finished");
    expect(
        0,
        "for t in plain own off on; do sed 's/.*\"loss\":\\([^,]*\\),.*/\\1/' "
        "t-$t/metrics.jsonl; done | awk '{l[NR] = $1} END {print (l[1] != l[2]), (l[1] == l[3]), "
        "(l[2] == l[4])}'",
        "1 1 1");
    expect(0, "cat t-on/config.json", "\"attention_dropout\": 0.5");
    expect(0, "cat t-own/config.json", "\"hidden_dropout\": 0.25");
    expect(0, "cat t-own/report.html", "<dt>hidden-dropout</dt><dd>0.25</dd>");
    expect(
        0,
        "for m in run own; do caravan generate -m $m -p fox -n 5 -t 1 --temperature 0 2>&1 | head "
        "-n 1; done | uniq | wc -l",
        "1");
    expect(1,
           "sed -i 's/\"attention_dropout\": 0.5/\"attention_dropout\": 1.5/' own/config.json; "
           "caravan inspect -m own 2>&1",
           "attention_dropout is 1.5 and hidden_dropout 0.25; give numbers from 0 to below 1");
}

/* Ten times that of all weights, whatever the rank, for alpha does not follow the rank. */
static void adapters_have_a_rate_of_their_own(void **state)
{
    expect(0,
           "for lora in '' '--lora r=2' '--lora r=8'; do caravan train --data text --init run "
           "$lora --seq 16 --batch 2 --steps 1 --schedule constant -t 1 --out rate 2>&1 | grep -v "
           "caravan; sed 's/.*\"lr\":\\([^,]*\\),.*/rate \\1/' rate/metrics.jsonl >>rates; "
           "grep -h lora_alpha rate/adapter_config.json; rm -r rate; done 2>&1",
           "\"lora_alpha\": 32.0");
    expect(0, "awk '{r[NR] = $2} END {print NR, r[2] / r[1], r[3] / r[1], (r[1] > 1e-4)}' rates",
           "3 10 10 1");
}

/* A page of text is learned by heart, and said again from its first words. */
static void a_page_is_overfitted(void **state)
{
    if (SANITIZED) {
        print_message("skipped: two hundred steps show a sanitizer nothing that eight do not\n");
        skip();
    }
    expect(0,
           "caravan train --data " CVN_TEST_DATA
           "/train/page.txt --preset stories260k --tokenizer " CVN_TEST_DATA
           "/chat/tokenizer.json --packing whole --seq 128 --batch 5 --steps 200 "
           "--lr 0.01 -t 2 --out page 2>&1",
           "finished after step 200 of 200, loss 0.0");
    expect(0, "tail -n 1 page/metrics.jsonl | grep -E '\"loss\":(0\\.0[0-4]|[0-9.]+e-)'", "loss");
    expect(0, "caravan generate --model page --prompt 'The lighthouse at' -n 30 --temperature 0",
           " the end of the long pier had been dark for nine years");
}

/* Files may have 300 KiB: metrics have room, checkpoints have not. */
static void a_full_disk_leaves_the_old_checkpoints(void **state)
{
    expect(0, RUN "--steps 9 --save-every 3 --stop-after 3 --out full 2>&1",
           "stopped after step 3");
    /* Twelve steps: what became of the save of step 6 is seen when that of step 9 begins, before the end. */
    expect(1, "ulimit -f 600; caravan train --resume full --steps 12 2>&1",
           "warning: step 6 was not saved: cannot write 'full/checkpoints/step-00000006.partial/");
    expect(0, "ls full/checkpoints | tr '\\n' ' '", "lock step-00000003 ");
    expect(
        1, "ulimit -f 600; caravan train --resume full 2>&1",
        "step 9 was not saved; fix the error that follows, then use --resume to "
        "continue from the last checkpoint: cannot write 'full/checkpoints/step-00000009.partial/");
    /* What is said to be typed can be typed. */
    expect(0, RUN "--steps 2 --stop-after 1 --out \"it's\" 2>&1",
           "resume with: caravan train --resume 'it'\\''s'\n");
    expect(1, "ulimit -f 600; " RUN "--steps 2 --out none 2>&1",
           "step 2 was not saved, and no step before it; fix the error that follows, then start "
           "again: ");
    /* One warning, however often it fails; the last failure is the error. */
    expect(1,
           "ulimit -f 600; caravan train --resume full --steps 12 --save-every 1 "
           ">log 2>&1",
           "");
    expect(0, "grep -c 'not saved' log; grep -c warning log", "2\n1\n");
    expect(0, "caravan train --resume full 2>&1", "finished after step 9");
    expect(0, RUN "--steps 9 --out whole 2>&1", "finished");
    expect(0, "cmp full/model.safetensors whole/model.safetensors && echo same", "same");
    expect(0, "wc -l <full/metrics.jsonl", "9\n");
}

/* Of what a terminal of 60 columns has no room for, the time that is left is not; validation losses stay. */
static void a_narrow_terminal_shows_what_matters_most(void **state)
{
    if (system("command -v script >/dev/null") != 0)
        skip(); /* of util-linux: a terminal for a command */
    expect(0,
           "script -qec \"stty cols 60; " CVN_BINARY " train --data text --preset stories260k "
           "--tokenizer " CVN_TEST_DATA "/chat/tokenizer.json --seq 32 --batch 2 -t 2 --steps 4 "
           "--validation 0.2 --evaluate-every 2 --out narrow\" /dev/null </dev/null >terminal",
           "");
    expect(0, "tr '\\r' '\\n' <terminal | grep '^step' | grep -c 'left 0:0'", "4\n");
    expect(0, "tr '\\r' '\\n' <terminal | grep '^step' | awk 'length($0) > 63' | wc -l", "0\n");
    expect(0, "grep -c validation terminal", "2\n"); /* each on a line of its own */
}

/* A process that is killed tidies nothing up; the next one does, and leaves what a living one has. */
static void what_a_killed_process_left_is_removed(void **state)
{
    const char *const litter =
        "mkdir -p left/.new-dead00 left/.new-alive0 && echo x | tee "
        "left/.new-dead00/tokenizer.json "
        "left/model.safetensors.tmp-123-0 left/mine.tmp-x >left/config.json.tmp-7-12";
    expect(0, litter, "");
    expect(0,
           "flock left/.new-alive0 " CVN_BINARY " train --data text --preset stories260k "
           "--tokenizer " CVN_TEST_DATA "/chat/tokenizer.json --seq 32 --batch 2 -t 2 --steps 2 "
           "--stop-after 1 --out left 2>&1",
           "stopped after step 1");
    expect(0, "ls -A left | grep -e new -e tmp | tr '\\n' ' '", ".new-alive0 mine.tmp-x ");
    expect(0, litter, "");
    expect(0, "caravan train --resume left 2>&1", "finished after step 2");
    expect(0, "ls -A left | grep -e new -e tmp | tr '\\n' ' '", "mine.tmp-x ");
    expect(1, "ls -A left | grep -c new-", "0\n");
}

/* Before a tokenizer is made and data are read, which may take hours; and nothing is left behind. */
static void mistakes_are_told_before_the_data_are_read(void **state)
{
    static const char *const cases[][2] = {
        {"--mesh data=2,data=2", "names an axis twice"},
        {"--mesh data=2 --layout nope", "is not a layout"},
        {"--batch 3 --micro-batch 2", "give a --micro-batch that divides it"},
        {"--steps 2 --warmup 3", "does not fit in 2 steps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "caravan train --data none.jsonl --preset tiny --tokenizer " CVN_TEST_DATA
                 "/chat/tokenizer.json --seq 32 %s --out wrong 2>&1",
                 cases[i][0]);
        expect(0, "echo '{\"messages\": []}' >none.jsonl", "");
        expect(i == 1 ? 1 : 2, line, cases[i][1]);
    }
    expect(1, "caravan train --data none.jsonl --preset tiny --out wrong 2>&1",
           "none.jsonl:1: \"messages\" is empty");
    expect(0, "test ! -e wrong", "");
}

static int prepare(void **state)
{
    static const char *const words[] = {"the ", "fox ", "ran ", "over ", "a ", "hill.\n"};
    char path[128];
    uint64_t random = 3;
    if (make_scratch(state))
        return -1;
    snprintf(path, sizeof path, "%s/text", scratch);
    FILE *file = fopen(path, "w");
    for (int i = 0; file && i < 3000; i++)
        fputs(words[splitmix(&random) % 6], file);
    return file ? fclose(file) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_told_before_the_data_are_read),
        cmocka_unit_test(a_run_has_its_files),
        cmocka_unit_test(the_history_is_that_of_the_metrics),
        cmocka_unit_test(the_dashboard_asks_for_numbers_that_are_written),
        cmocka_unit_test(a_report_says_what_was_used),
        cmocka_unit_test(a_finished_run_says_so_and_stays_as_it_is),
        cmocka_unit_test(a_run_that_trains_is_no_run_that_ended),
        cmocka_unit_test(a_run_with_dropout_goes_on_with_the_same_bits),
        cmocka_unit_test(a_models_own_dropout_is_done),
        cmocka_unit_test(adapters_have_a_rate_of_their_own),
        cmocka_unit_test(adapters_are_trained_exported_and_merged),
        cmocka_unit_test(a_page_is_overfitted),
        cmocka_unit_test(a_full_disk_leaves_the_old_checkpoints),
        cmocka_unit_test(a_narrow_terminal_shows_what_matters_most),
        cmocka_unit_test(what_a_killed_process_left_is_removed),
    };
    return cmocka_run_group_tests(tests, prepare, remove_scratch);
}
