/* caravan train as people type it: what the command line and a file of options say together, and runs that go on from
 * elsewhere. */
#include "shell.h"

#define SMALL "--seq 16 --batch 2 -t 1 "

static void what_is_typed_wins_over_the_file(void **state)
{
    expect(0,
           "echo '{\"data\": \"text\", \"preset\": \"stories260k\", \"steps\": 1}' >new.json; "
           "echo '{\"data\": \"text\", \"init\": \"model\", \"steps\": 1}' >tune.json; "
           "echo '{\"data\": \"text\", \"init\": \"model\", \"preset\": \"tiny\"}' >both.json",
           "");
    expect(0, "caravan train --config new.json --init model " SMALL "--out w1 2>&1",
           "--init overrides \"preset\" in new.json\n");
    expect(0, "caravan inspect -m w1", "dim 128");
    expect(0, "! grep -q '\"preset\"' w1/checkpoints/step-*/manifest.json", "");
    expect(0, "caravan train --config tune.json -p stories260k " SMALL "--out w2 2>&1",
           "--preset overrides \"init\" in tune.json\n");
    expect(0, "caravan inspect -m w2", "dim 64");
    expect(0,
           "CARAVAN_PRESET=stories260k caravan train --data text --init model --steps 1 " SMALL
           "--out w3 2>&1",
           "finished after step 1 of 1");
    expect(2, "caravan train --data text --init model -p tiny --out w4 2>&1",
           "give only one of --preset or --init");
    expect(1, "caravan train --config both.json --out w4 2>&1", "give either --preset NAME");
    expect(0, "caravan train --config both.json --init model --steps 1 " SMALL "--out w4 2>&1",
           "--init overrides \"preset\" in both.json");
}

static void a_run_finds_its_data_from_elsewhere(void **state)
{
    expect(0,
           "cp text story && caravan train --data story -p stories260k --steps 1 " SMALL
           "--out run 2>&1",
           "finished");
    expect(0, "mkdir -p far && cd far && caravan train --resume ../run --steps 2 2>&1",
           "finished after step 2 of 2");
    /* The whole folder moves; then only the data. */
    expect(0,
           "mkdir new && mv run story new/ && cd new && caravan train --resume run --steps 3 2>&1",
           "finished after step 3 of 3");
    expect(0, "mv new/story far/tale", "");
    expect(1, "caravan train --resume new/run --steps 4 2>&1",
           "/new/story', training data of 'new/run/");
    expect(1, "caravan train --resume new/run --steps 4 2>&1",
           "no longer exists; give its new path with --data");
    expect(0, "caravan train --resume new/run --steps 4 --data far/tale 2>&1",
           "finished after step 4 of 4");
    expect(1, "caravan train --resume new/run --steps 5 --data text --data text 2>&1",
           "the data differ from");
}

static void adapters_find_their_model(void **state)
{
    expect(0,
           "cp -r model base && mkdir -p there && cd there && caravan train --data ../text --init "
           "../base --lora r=2 --steps 1 " SMALL "--out ../lora 2>&1",
           "finished");
    expect(0, "caravan train --resume lora --steps 2 2>&1", "finished after step 2 of 2");
    expect(0, "caravan train --resume lora --steps 3 --init base 2>&1", "finished after step 3 of");
    expect(1, "caravan train --resume lora --steps 4 --init model 2>&1", "--init cannot change");
    expect(0, "mv base moved", "");
    expect(1, "caravan train --resume lora --steps 4 2>&1",
           "no longer exists; give its new path with --init");
    expect(0, "caravan train --resume lora --steps 4 --init moved 2>&1", "finished after step 4");
}

/* A receipt is that of the whole run, however often it was interrupted; it is trained again from anywhere, and what was changed
 * is found where it is. */
static void a_run_is_trained_again_by_its_receipt(void **state)
{
    expect(0,
           "caravan train --data text -p stories260k --steps 4 --stop-after 2 " SMALL
           "--out r1 --receipt r.json 2>&1",
           "stopped after step 2 of 4");
    expect(1, "cat r.json 2>&1", "No such file");
    expect(0, "caravan train --resume r1 --receipt r.json 2>&1", "finished after step 4 of 4");
    expect(1, "caravan verify r.json 2>&1",
           "r.json:1: it is a receipt of training; give --out DIR, a new folder to train in");
    expect(0, "mkdir -p away && cd away && caravan verify ../r.json -o r2 2>&1",
           "receipt 1: same, 4 steps and the weights at the end\n");
    expect(0, "caravan verify r.json -o r3 --data r1/../text --json",
           "{\"same\": true, \"steps\": 4}");
    expect(1, "caravan verify r.json -o r1 2>&1", "'r1' is there already; give a new folder");
    expect(0, "cp text longer && echo more >>longer", "");
    expect(1, "caravan verify r.json -o r4 --data longer 2>&1", "the receipt is of other data");
    expect(1, "caravan verify r.json -o r5 --data text --data text 2>&1",
           "the run was trained on 1 files; give --data for each");
    expect(0, "sed -E 's/(\"grad_norm\":\\[[^,]*,[^,]*),[^,]*/\\1,0.5/' r.json >changed.json", "");
    expect(1, "caravan verify changed.json -o r6 2>&1",
           "receipt 1: step 3 of 4 differs: the loss was ");
    expect(0, "sed -E 's/(\"weights\":)\"../\\1\"zz/' r.json >changed.json", "");
    expect(1, "caravan verify changed.json -o r7 2>&1", "receipt 1: the weights at the end differ");
    expect(0, "sed -E 's/\"loss\":[^]]*/\"loss\":[/' r.json >changed.json", "");
    expect(1, "caravan verify changed.json -o r8 2>&1", "not a receipt of version 1");
    /* A receipt may come from anybody: it does not load libraries, nor say where caches are written. */
    expect(0,
           "sed -E 's/\"steps\":4,/\"steps\":4,\"cache\":\"theirs\",/; "
           "s/(\"loss\":[^]]*)/\\1,1.5/' r.json >changed.json",
           "");
    expect(1, "caravan verify changed.json -o r12 2>&1", "the receipt has 5 steps, its options 4");
    expect(1, "test -e theirs", "");
    expect(0,
           "sed -E 's/\"steps\":4,/\"steps\":4,\"device\":\"pjrt:.\\/evil.so\",/' r.json "
           ">changed.json",
           "");
    expect(1, "caravan verify changed.json -o r13 2>&1", "a receipt does not name plugins");
    /* Adapters know their model, and what was trained on two devices is trained on two. */
    expect(0,
           "caravan train --data text --init model --lora r=2 --steps 2 --mesh data=2 " SMALL
           "--out r9 --receipt l.json 2>&1",
           "finished");
    expect(0, "caravan verify l.json -o r10 --model model 2>&1", "same, 2 steps");
    expect(1, "caravan verify l.json -o r11 --model r1 2>&1",
           "the receipt is of another model than 'r1'");
}

/* What is given for a model, a tokenizer, data or a run, and is something else, is told as what it is. */
static void wrong_inputs_are_told_what_they_are(void **state)
{
    static const char *const cases[][2] = {
        {"--init text", "'text' is not a model"},
        {"--init empty", "'empty' is not a model"},
        {"--init model/model.safetensors", "is one file of a model; give the folder"},
        {"--init bare", "the model 'bare' has no tokenizer; give one with --tokenizer"},
        {"--init bare --tokenizer large.json",
         "the tokenizer 'large.json' has 600 pieces and the model 'bare' a vocabulary of 512"},
        {"--data - -p tiny", "standard input cannot be training data"},
        {"--data pipe -p tiny", "'pipe' is not a regular file"},
        {"--data /dev/stdin -p tiny", "is not a regular file"},
        {"-p tiny --seq 64 --batch 16777216", "are too many for a step; give a smaller --batch"},
        {"--resume empty", "is not a run of caravan train: it has no folder checkpoints"},
        {"--resume text", "is not a run of caravan train: it is a file"},
        {"--resume begun/checkpoints", "is the checkpoints folder of a run; give the run folder"},
    };
    expect(0,
           "mkdir -p empty; mkfifo pipe; for i in $(seq 3000); do echo $((i * i * 7919)) word $i; "
           "done "
           ">much; caravan tokenize --train-bpe much --vocab 600 --out large.json 2>&1",
           "600 tokens");
    expect(0, "caravan train --data text -p stories260k --steps 1 " SMALL "--out begun 2>&1",
           "fin");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[256];
        bool begins = strncmp(cases[i][0], "--resume", 8) != 0;
        snprintf(line, sizeof line, "caravan train %s %s %s </dev/null 2>&1",
                 begins && strncmp(cases[i][0], "--data", 6) != 0 ? "--data text" : "", cases[i][0],
                 begins ? "--out none" : "");
        expect(1, line, cases[i][1]);
    }
    expect(0, "test ! -e none", "");
    /* Fewer pieces than the vocabulary: perhaps padding, perhaps a mistake. */
    expect(
        0,
        "caravan tokenize --train-bpe much --vocab 300 --out small.json && "
        "caravan train --data text --init model --tokenizer small.json --steps 1 " SMALL
        "--out w5 2>&1",
        "warning: the tokenizer 'small.json' has 300 pieces and the model 'model' a vocabulary of "
        "512");
}

static void adapters_are_shown_with_their_model(void **state)
{
    expect(0,
           "caravan train --data text --init model --lora r=2 --steps 1 " SMALL "--out shown 2>&1",
           "finished");
    expect(0, "caravan inspect -m shown", "shown: adapters for the Hugging Face folder /");
    expect(0, "caravan inspect -m shown --json", "\"adapters_of\": \"/");
    expect(0, "caravan plan -m shown", "a decode step");
    expect(1, "caravan generate -m shown -p x --context 999999 2>&1", "so give at most that");
}

/* Options as transformers and torchtune call them are the same options, on the command line and in files, and are not
 * shown. */
static void usual_names_are_understood(void **state)
{
    expect(0,
           "caravan train --data text -p stories260k --seq 16 --batch 3 --steps 2 --lr 1e-3 "
           "--warmup 1 "
           "--weight-decay 0 -t 1 --out named1 2>&1",
           "finished");
    expect(0,
           "caravan train --dataset text -p stories260k --max-seq-length 16 --batch-size 3 "
           "--max-steps 2 --learning-rate 1e-3 --warmup-steps=1 --weight-decay 0 -t 1 --output-dir "
           "named2 2>&1",
           "finished");
    expect(0,
           "echo '{\"dataset\": \"text\", \"preset\": \"stories260k\", \"max_seq_length\": 16, "
           "\"batch_size\": 3, \"num_steps\": 2, \"learning_rate\": 1e-3, \"warmup_steps\": "
           "1, \"weight_decay\": 0, \"threads\": 1, \"output_dir\": \"named3\"}' >names.json && "
           "caravan train --config names.json 2>&1",
           "finished");
    expect(0, "for i in 2 3; do cmp named1/model.safetensors named$i/model.safetensors; done", "");
    expect(0,
           "caravan train --help | grep -c -e learning-rate -e batch-size -e accumulation || true",
           "0");
    expect(0, "caravan _completion bash | grep -c -e learning-rate -e accumulation || true", "0");
    expect(1,
           "echo '{\"lr\": 1, \"learning_rate\": 1}' >twice.json; caravan train --config "
           "twice.json 2>&1",
           "\"learning_rate\" is an alias of \"lr\", which is also given");
    /* Batches as they count them: of what is computed at once. */
    expect(0,
           "caravan train --data text -p stories260k --seq 16 --per-device-train-batch-size 2 "
           "--gradient-accumulation-steps 3 --steps 1 -t 1 --out named4 2>&1 && grep batch "
           "named4/checkpoints/step-*/manifest.json | tr -d '\n'",
           "    \"batch\": 6,    \"micro-batch\": 2,");
    expect(1, "caravan train --data text -p tiny --gradient-accumulation-steps 3 --out none 2>&1",
           "--gradient-accumulation-steps needs the global batch size");
    expect(2,
           "caravan train --data text -p tiny --per-device-train-batch-size 3 --mesh data=2 --out "
           "none 2>&1",
           "--per-device-train-batch-size and --mesh exclude each other");
}

static void epochs_count_the_data(void **state)
{
    /* 22 sequences of 16 tokens. */
    expect(0,
           "caravan train --data text -p stories260k --seq 16 --batch 3 --epochs 1.5 -t 1 --out "
           "seen --stop-after 4 2>&1",
           "steps: 11, which see the data 1.5 times\n");
    expect(0, "caravan train --resume seen 2>&1", "finished after step 11 of 11");
    expect(0, "caravan train --resume seen --epochs 2 2>&1", "finished after step 15 of 15");
    expect(1, "caravan train --resume seen --epochs 1 2>&1",
           "has done 15 steps; --epochs are of the whole run");
    expect(0, "caravan train --resume seen --steps 16 2>&1", "finished after step 16 of 16");
    expect(0, "caravan train --resume seen 2>&1", "finished after step 16 of 16");
    expect(2, "caravan train --data text -p tiny --steps 3 --epochs 2 --out none 2>&1",
           "give only one of --steps or --epochs");
    expect(1,
           "echo '{\"steps\": 3, \"epochs\": 2}' >many.json; caravan train --config many.json 2>&1",
           "many.json: give either \"steps\" or \"epochs\"");
    expect(0,
           "echo '{\"steps\": 3, \"data\": \"text\", \"preset\": \"stories260k\"}' >steps.json; "
           "caravan train --config steps.json --epochs 0.1 " SMALL "--out tenth 2>&1",
           "--epochs overrides \"steps\" in steps.json\n");
    expect(1,
           "caravan train --data text -p stories260k --epochs 1 --warmup 100 " SMALL
           "--out none 2>&1",
           "warm");
}

static int prepare(void **state)
{
    if (make_models(state))
        return -1;
    int status;
    StrBuf output =
        shell("for i in $(seq 40); do echo the fox ran over hill $i; done >text", &status);
    strbuf_free(&output);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_typed_wins_over_the_file),
        cmocka_unit_test(usual_names_are_understood),
        cmocka_unit_test(epochs_count_the_data),
        cmocka_unit_test(a_run_finds_its_data_from_elsewhere),
        cmocka_unit_test(adapters_find_their_model),
        cmocka_unit_test(a_run_is_trained_again_by_its_receipt),
        cmocka_unit_test(wrong_inputs_are_told_what_they_are),
        cmocka_unit_test(adapters_are_shown_with_their_model),
    };
    return cmocka_run_group_tests(tests, prepare, remove_scratch);
}
