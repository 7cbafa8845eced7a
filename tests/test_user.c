/* What people do with the program from day to day, where it once gave them silent nonsense, lost their work or misled
 * them. */
#include "shell.h"

/* Two models with tokenizers of different kinds, one after the other in one folder. */
static void a_folder_that_is_written_anew_holds_nothing_of_the_old_model(void **state)
{
    (void)state;
    expect(0,
           "cp -r model other && rm other/tokenizer.json && printf abc >other/tokenizer.model && "
           "printf hello >model/chat_template.jinja && cp -r model mixed && printf mine "
           ">mixed/README.md && touch mixed/adapter_config.json && "
           "caravan quantize other mixed --to int8 --force && ls mixed | tr '\\n' ' '",
           "README.md config.json generation_config.json model.safetensors tokenizer.model ");
    expect(0, "caravan quantize model mixed --to int8 --force && ls mixed | tr '\\n' ' '",
           "README.md chat_template.jinja config.json generation_config.json model.safetensors "
           "tokenizer.json ");
}

#define STOP                                                                                       \
    "yes 'the fox ran over a hill and saw two birds' | head -c 60000 >text; rm -rf run log; "      \
    "(exec " CVN_BINARY                                                                            \
    " train --data text --preset tiny --tokenizer model --seq 256 --batch 8 -t 1 "                 \
    "--steps 1000 --out run >log 2>&1) & pid=$!; "                                                 \
    "for i in $(seq 6000); do grep -qs 'step 1/' log && break; sleep 0.01; done; "

/* The second Ctrl-C of who has not seen the first one's answer yet, or a terminal that is closed, costs nothing. */
static void a_run_that_is_stopped_is_saved_and_says_so_at_once(void **state)
{
    (void)state;
    expect(130,
           STOP "kill -INT $pid; sleep 0.05; kill -INT $pid; wait $pid; code=$?; cat log; "
                "ls run/checkpoints; exit $code",
           "step-0000");
    expect(0, "head -n 50 log", "\nstopping after this step; Ctrl-C again stops now\n");
    expect(130, STOP "kill -HUP $pid; wait $pid; code=$?; cat log; exit $code",
           "resume with: caravan train --resume run");
    expect(0, "caravan train --resume run --stop-after 1 2>&1", "stopped after step");
    expect(0,
           "echo '{\"save-minutes\": 1e-6}' >config && caravan train --resume run --config config "
           "--save-every 0 --stop-after 3 --keep-last 0 2>&1 && ls run/checkpoints | grep -c step-",
           "\n5\n");
}

static void data_are_mixed_and_looked_at(void **state)
{
    (void)state;
    expect(
        0,
        "yes 'the fox ran over a hill' | head -c 9000 >a; yes 'two birds sang' | head -c 9000 >b; "
        "mkdir elsewhere; caravan train --data a=0.75 --data b=0.25 --validation b --preset "
        "stories260k --tokenizer model --seq 32 --batch 2 -t 1 --steps 2 --evaluate-every 1 "
        "--stop-after 1 --out mixed-run 2>&1",
        "  validation ");
    expect(0, "cd elsewhere && caravan train --resume ../mixed-run 2>&1", "finished after step 2");
    expect(1, "caravan train --data a=0.75 --data b --preset tiny --tokenizer model --out no 2>&1",
           "either all or none of the data must have a weight");
}

/* A disk of its own, where the system allows one: the last checkpoint waits until there is room. */
static void a_disk_that_is_full_at_the_end_does_not_lose_the_run(void **state)
{
    (void)state;
    if (system("unshare -rm sh -c 'mount -t tmpfs none /mnt' 2>/dev/null") != 0)
        skip();
    const char *const begin =
        "yes 'the fox ran over a hill' | head -c 9000 >a; unshare -rm sh -c 'mount -t tmpfs -o "
        "size=8M none /mnt; head -c $0 /dev/zero >/mnt/ballast; " CVN_BINARY
        " train --data a --preset stories260k --tokenizer model --seq 32 --batch 2 -t 1 --steps 2 "
        "--save-every 1 --out /mnt/run >log 2>&1 & ";
    StrBuf line = {0};
    strbuf_printf(&line, "%swait $!; echo code $?' 6M; cat log", begin);
    expect(0, line.text,
           "not started: there is no disk space for a checkpoint: '/mnt/run/checkpoints' needs 2");
    /* Room for one checkpoint and no second one beside it, until somebody makes some. */
    strbuf_clear(&line);
    strbuf_printf(&line,
                  "%sfor i in $(seq 600); do grep -q \"warning: step 2 has no disk space: \" log "
                  "&& break; sleep "
                  "0.1; done; rm /mnt/ballast; wait $!; echo code $?; ls /mnt/run/checkpoints' 3M",
                  begin);
    expect(0, line.text, "code 0\nlock\nstep-00000001\nstep-00000002\n");
    expect(0, "cat log", "caravan: warning: step 2 has no disk space: ");
    strbuf_free(&line);
}

/* What a killed process left goes with the next one that writes there; what a living one fills, or is somebody's own, stays. */
static void what_was_left_half_written_is_taken_away(void **state)
{
    (void)state;
    expect(0,
           "mkdir left && cd left && mkdir out.tmp-1 out.tmp-77 out.tmp-x && touch "
           "out.tmp-1/config.json "
           "out.tmp-77/config.json && flock out.tmp-77 " CVN_BINARY
           " init -p tiny -o out && ls -A | tr '\\n' ' '",
           "out out.tmp-77 out.tmp-x ");
    expect(0,
           "cd left && touch out/model.safetensors.tmp-5-0 out/mine.tmp-5-x && " CVN_BINARY
           " init -p tiny -o out --tokenizer ../model/tokenizer.json --force && ls -A out | tr "
           "'\\n' ' '",
           "mine.tmp-5-x model.safetensors tokenizer.json ");
    /* a tokenizer is found again, whatever it was called */
    expect(
        0,
        "cp model/tokenizer.json words.json && caravan init -p tiny -o named --tokenizer "
        "words.json "
        "&& caravan quantize named named-8 --to int8 && caravan generate -m named-8 -p x -n 1 2>&1",
        "prompt: 2 tokens");
    expect(0,
           "cd left && touch ids.tmp-9-3 && yes 'the fox' | head -c 900 >text && " CVN_BINARY
           " tokenize --train-bpe text --vocab 265 --out ids && ls -A | grep ids",
           "ids\n");
    expect(1, "ls -A left | grep -F ids.tmp", "");
}

static void what_may_not_be_looked_at_is_said_to_be_that(void **state)
{
    (void)state;
    /* As somebody whom permissions concern. */
    const char *const other =
        getuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : "";
    if (getuid() == 0 &&
        system("setpriv --reuid=65534 --regid=65534 --clear-groups test -x " CVN_BINARY) != 0)
        skip();
    expect(0,
           "chmod 755 .; cp -r model closed; chmod 0 closed; cp -r model listed; chmod 444 listed",
           "");
    static const char *const folders[] = {"closed", "listed"};
    static const char *const commands[][2] = {
        {"inspect -m ", ""}, {"tokenize -m ", " --text x"}, {"export ", " new"}};
    for (int f = 0; f < 2; f++)
        for (int c = 0; c < 3; c++) {
            char line[256], piece[96];
            snprintf(line, sizeof line, "%s" CVN_BINARY " %s%s%s 2>&1", other, commands[c][0],
                     folders[f], commands[c][1]);
            snprintf(piece, sizeof piece, "cannot access the folder '%s': Permission denied",
                     folders[f]);
            expect(1, line, piece);
        }
    expect(0, "chmod 700 closed listed", "");
}

/* What is typed is carried out or refused, in pairs, too. */
static void no_option_is_without_effect(void **state)
{
    (void)state;
    expect(0, "caravan inspect -m model --tensors --json", "\"tensors\":");
    expect(2, "caravan inspect --preset tiny --tensors 2>&1",
           "--tensors and --preset exclude each other");
    expect(1,
           "caravan score -m model --text 'the sea' --summary --json | grep -e argmax -e logprobs",
           "");
    expect(0, "caravan score -m model --text 'the sea' --summary --json", "\"perplexity\"");
    expect(2, "caravan score -m model --text 'the sea' --show --json 2>&1", "--show and --json");
    expect(0, "caravan tokenize -m model --text 'the sea' --count --json", "{\"count\":");
    expect(2, "caravan tokenize --train-bpe model --count 2>&1", "--train-bpe and --count");
    expect(0,
           "echo '{\"messages\": [{\"role\": \"system\", \"content\": \"old\"}]}' >s.json; echo "
           "/save t.json | "
           "caravan chat -m model --load s.json --system new; cat t.json",
           "new");
}

/* A shape of one's own, typed, as JSON, or as a config without weights. */
static void a_shape_needs_no_preset_and_no_weights(void **state)
{
    (void)state;
#define SHAPE "dim=64,layers=2,heads=4,kv_heads=2,ffn=96,vocab=300,context=64"
    expect(0, "caravan init -p " SHAPE " -o own && caravan inspect -m own --json", "\"ffn\": 96");
    expect(0,
           "echo '{\"dim\": 64, \"layers\": 2, \"heads\": 4}' >own.json; caravan inspect -p "
           "own.json --json",
           "\"ffn\": 192");
    expect(0,
           "mkdir bare-config && cp own/config.json bare-config && caravan inspect -m bare-config",
           "no weights");
    expect(0, "caravan plan -m " CVN_TEST_DATA "/gguf/mixed.gguf",
           "of these looked up in the file         12.0 KiB");
    expect(0, "caravan plan -m bare-config --mesh model=2 | head -1", "bare-config, a decode step");
    expect(0, "caravan bench -m bare-config --prefill 8 --decode 2 -t 1 --context 8 2>&1",
           "decode");
    expect(0, "caravan bench -p " SHAPE " --train --seq 16 -t 1 2>&1", "tokens/s");
    expect(0,
           "yes 'the fox' | head -c 3000 >t; caravan train --data t -p " SHAPE
           " --seq 16 --batch 2 --steps 1 --tokenizer model -o owned 2>&1 && caravan train "
           "--resume owned --steps 2 2>&1",
           "finished after step 2");
    expect(1, "caravan inspect -p dim=64,layers=2 2>&1", "requires dim, layers and heads");
    expect(1, "caravan inspect -p dim=64,width=2 2>&1", "unknown \"width\" in a shape");
    expect(1, "caravan inspect -p dim=64,layers=x 2>&1", "\"layers=x\" is not KEY=NUMBER");
    /* A dimension of heads that would be rounded, wherever a shape is named. */
    static const char *const uneven[] = {
        "inspect -p dim=97,heads=4,layers=1", "plan -p dim=97,heads=4,layers=1",
        "init -p dim=97,heads=4,layers=1 -o uneven", "bench -p uneven.json --decode 1",
        "train --data t -p dim=97,heads=4,layers=1 --out uneven"};
    expect(0, "echo '{\"dim\": 97, \"heads\": 4, \"layers\": 1}' >uneven.json", "");
    for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
        char line[128];
        snprintf(line, sizeof line, "caravan %s 2>&1", uneven[i]);
        expect(1, line, "dim 97 cannot be divided among 4 heads; give a dim that is a multiple");
    }
    expect(0, "caravan inspect -p dim=97,heads=4,layers=1,head_dim=24", "4 heads of 24");
    expect(2, "caravan inspect -p tinny 2>&1", "did you mean tiny?");
}

static void a_model_is_called_by_its_name(void **state)
{
    (void)state;
    expect(0,
           "mkdir -p srv/org hub/models--meta--x/snapshots/abc hub/models--meta--x/refs && "
           "cp -r model srv/org/tiny && cp model/* hub/models--meta--x/snapshots/abc && "
           "printf abc >hub/models--meta--x/refs/main && mkdir -p hub/models--torn--y/snapshots && "
           "cd hub && CARAVAN_MODELS=$HOME/none:$HOME/srv HF_HUB_CACHE=$HOME/hub caravan models | "
           "sed \"s|  *$HOME| |\"",
           "org/tiny /srv/org/tiny\nmeta/x /hub/models--meta--x/snapshots/abc\n");
    expect(0,
           "export HF_HUB_CACHE=$HOME/hub CARAVAN_MODELS=srv; for m in model org/tiny meta/x; do "
           "caravan generate -m $m -p a -n 3 --temperature 0 2>/dev/null; done | uniq | wc -l; "
           "caravan quantize org/tiny named-int8 --to int8 && ls named-int8 | head -n 1",
           "1\n");
    expect(1, "caravan generate -m meta-llama/Llama-3.2-1B -p a 2>&1",
           "there is no local model meta-llama/Llama-3.2-1B; download it: caravan pull "
           "meta-llama/Llama-3.2-1B\n");
    expect(0, "mkdir empty && cd empty && caravan models 2>&1", "no models in $CARAVAN_MODELS");
}

static void what_is_said_is_well_said(void **state)
{
    (void)state;
    expect(2, "caravan plan -p tiny --mesh data=0 2>&1", "--mesh");
    expect(2, "caravan generate -m model -p x --mesh nonsense 2>&1", "--mesh");
    expect(0,
           "echo '{\"messages\": [{\"role\": \"system\", \"content\": \"x\"}]}' >s1.json; echo "
           "/load s1.json | caravan chat -m model",
           "s1.json: 1 message\n");
    expect(1, "mkdir -p early/checkpoints/step-00000005.partial; caravan train --resume early 2>&1",
           "has no complete checkpoint: the run ended before its first; start it again");
    expect(1, "mkdir typeless; echo '{}' >typeless/config.json; caravan inspect -m typeless 2>&1",
           "has no model_type");
    expect(1, CVN_BINARY " _man | grep '^[^.].*[.]B'", "");
}

/* Rows of int8 and of bf16 can be told apart, and training has rows, too. */
static void rows_for_tables_say_what_they_are_of(void **state)
{
    (void)state;
    expect(0,
           "caravan bench -p stories260k --prefill 8 --decode 4 --context 8 -t 1 -q int8 "
           "--kv-cache int8 --csv",
           "\n\"stories260k\",bf16,\"int8\",int8,bf16,");
    expect(0,
           "caravan bench -p stories260k --train --seq 16 -t 1 --csv | tail -n 1 | tr ',' '\\n' | "
           "wc -l",
           "16\n");
    expect(0, "caravan bench -p stories260k --train --seq 16 -t 1 --csv",
           "model,dtype,kernels,mesh,");
    expect(2, "caravan bench -p stories260k --train --csv --json 2>&1", "give one of them");
    /* Read from a cache: no share of what memory gives. */
    expect(0,
           "caravan bench -p stories260k --prefill 0 --decode 8 --context 8 -t 1 | grep -vE "
           "'bandwidth [1-9][0-9][0-9][.]' | grep decode",
           "bandwidth ");
}

/* A model made and taught to talk here has what others need to talk with it. */
static void what_learned_to_talk_says_how(void **state)
{
    (void)state;
    expect(0,
           "for i in $(seq 40); do echo '{\"messages\": [{\"role\": \"user\", \"content\": "
           "\"Hello\"}, {\"role\": "
           "\"assistant\", \"content\": \"Good day\"}]}'; done >talk.jsonl; caravan train --data "
           "talk.jsonl "
           "--preset tiny --seq 32 --batch 2 --steps 2 -t 1 --out talks 2>&1 && caravan export "
           "talks exported",
           "exported: ");
    expect(0, "cat exported/tokenizer_config.json", "{{ bos_token }}");
    /* What ends a turn ends a text. */
    expect(0,
           "caravan tokenize -m exported --special --no-bos --text '<|end_of_text|><|eot_id|>' "
           "--json >ids; "
           "grep -o '[0-9]*' ids | while read id; do tr -d ' \\n' <exported/generation_config.json "
           "| grep -c "
           "\"eos_token_id[^]]*[[,]$id[],]\"; done",
           "1\n1\n");
    expect(0, "echo Hello | caravan chat -m exported -n 4 2>&1", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_that_is_written_anew_holds_nothing_of_the_old_model),
        cmocka_unit_test(data_are_mixed_and_looked_at),
        cmocka_unit_test(a_disk_that_is_full_at_the_end_does_not_lose_the_run),
        cmocka_unit_test(what_was_left_half_written_is_taken_away),
        cmocka_unit_test(what_may_not_be_looked_at_is_said_to_be_that),
        cmocka_unit_test(no_option_is_without_effect),
        cmocka_unit_test(a_shape_needs_no_preset_and_no_weights),
        cmocka_unit_test(a_model_is_called_by_its_name),
        cmocka_unit_test(what_is_said_is_well_said),
        cmocka_unit_test(rows_for_tables_say_what_they_are_of),
        cmocka_unit_test(what_learned_to_talk_says_how),
        cmocka_unit_test(a_run_that_is_stopped_is_saved_and_says_so_at_once),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
