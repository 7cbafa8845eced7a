/* `caravan chat` as scripts and people meet it, with a small model of random weights. */
#include "serve/dialog.h"
#include "shell.h"
#include "text/answer.h"

static void a_line_is_a_turn(void **state)
{
    int status;
    StrBuf one = shell("echo 'what is this' | caravan chat -m model -n 12 --ignore-eos", &status);
    assert_int_equal(status, 0);
    assert_true(one.length > 3);
    assert_int_equal(one.text[one.length - 1], '\n');
    /* The same seed says the same; a second turn goes on from the first. */
    StrBuf two = shell("printf 'what is this\\nand then\\n' | "
                       "caravan chat -m model -n 12 --ignore-eos",
                       &status);
    assert_int_equal(status, 0);
    assert_true(two.length > one.length);
    assert_memory_equal(two.text, one.text, one.length);
    strbuf_free(&one);
    strbuf_free(&two);
}

static void only_new_tokens_are_computed(void **state)
{
    /* Turn 2 computes the last token of answer 1, the end of it, and itself, where the answer's text has the ids that were
       drawn: of letters it has. */
    expect(1,
           "printf 'what is this\\n/stats\\nand then\\n/stats\\n' | "
           "caravan chat -m model -n 12 --regex '[a-z ]*' --chat-template llama3-meta",
           "last turn  0 tokens reused, 30 computed");
    expect(1,
           "printf 'what is this\\nand then\\n/stats\\n' | "
           "caravan chat -m model -n 12 --regex '[a-z ]*' --chat-template llama3-meta",
           "last turn  41 tokens reused,");
}

/* A folder's own template is used, and of what it renders only what is new is computed. */
static void the_models_template_writes_the_conversation(void **state)
{
    static const char make[] =
        "rm -rf tmpl && cp -r model tmpl && printf '%s' \"{%- for m in messages -%}"
        "<|start_header_id|>{{ m.role }}<|end_header_id|>\n{{ m.content.split('</think>')[-1] | "
        "trim }}<|eot_id|>"
        "{%- endfor -%}{%- if add_generation_prompt "
        "-%}<|start_header_id|>assistant<|end_header_id|>\n{%- endif -%}\" "
        "> tmpl/chat_template.jinja; ";
    char line[2048];
    snprintf(line, sizeof line,
             "%s caravan inspect -m tmpl; printf 'what is this\\n/stats\\nand then\\n/save "
             "t.json\\n/stats\\n' | "
             "caravan chat -m tmpl -n 12 --ignore-eos; cat t.json",
             make);
    int status;
    StrBuf text = shell(line, &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(text.text, "chat        template of the model"));
    assert_non_null(strstr(text.text, "\"format\": \"of the model\""));
    /* The second turn begins as the first did: all of that prompt was there. */
    long first = -1, reused = -1, computed = -1;
    char *stats = strstr(text.text, "last turn");
    assert_non_null(stats);
    sscanf(stats, "last turn 0 tokens reused, %ld computed", &first);
    stats = strstr(stats + 1, "last turn");
    assert_non_null(stats);
    sscanf(stats, "last turn %ld tokens reused, %ld computed", &reused, &computed);
    assert_true(first > 8 && reused >= first && computed > 0);
    strbuf_free(&text);
    /* A template that is not understood is named, and a format built in can be used instead. */
    expect(
        1,
        "printf '{{ a | nosuch }}' > tmpl/chat_template.jinja; echo a | caravan chat -m tmpl 2>&1",
        "line 1 of the chat template: unknown filter 'nosuch'");
    expect(0, "echo a | caravan chat -m tmpl --chat-template llama3-meta -n 4 2>&1", "");
    /* What it says of a conversation is said, and the turn taken back. */
    expect(1,
           "printf '{{ raise_exception(\"no turns today\") }}' > tmpl/chat_template.jinja; "
           "echo a | caravan chat -m tmpl 2>&1",
           "no turns today");
}

/* Thoughts leave the conversation with the next turn, as the template wants: what follows them is computed anew. */
static void thoughts_that_a_template_drops_are_no_longer_in_the_cache(void **state)
{
    Tokenizer *t;
    ChatTemplate *chat;
    Dialog d;
    int status;
    StrBuf out =
        shell("rm -rf thinks && cp -r model thinks && printf '%s' \"{%- for m in messages -%}"
              "<|start_header_id|>{{ m.role }}<|end_header_id|>{% if m.reasoning_content and "
              "loop.last %}<think>{{ m.reasoning_content }}"
              "</think>{% endif %}{{ m.content }}<|eot_id|>{%- endfor "
              "-%}<|start_header_id|>assistant<|end_header_id|><think>\n\" "
              "> thinks/chat_template.jinja; pwd",
              &status);
    assert_int_equal(status, 0);
    char folder[600];
    snprintf(folder, sizeof folder, "%.*s/thinks", (int)strcspn(out.text, "\n"), out.text);
    assert_int_equal(tokenizer_open(folder, &t, NULL), CVN_OK);
    assert_int_equal(chat_template_open(t, NULL, &chat, NULL), CVN_OK);
    dialog_init(&d, chat, t);
    assert_int_equal(dialog_add(&d, DIALOG_USER, "a story", 7, NULL), CVN_OK);
    TokenIds first = {0}, second = {0};
    assert_int_equal(dialog_prompt(&d, &first, NULL), CVN_OK);
    AnswerKind kind;
    Answer answer;
    answer_kind_learn(&kind, chat, t);
    answer_init(&answer, &kind, false, t, &first);
    assert_int_equal(answer.part, ANSWER_THOUGHT);
    answer_free(&answer);
    answer_kind_free(&kind);
    assert_int_equal(dialog_add(&d, DIALOG_ASSISTANT, "the end", 7, NULL), CVN_OK);
    strbuf_puts(&d.message[1].thought, "hm, hm");
    assert_int_equal(dialog_add(&d, DIALOG_USER, "more", 4, NULL), CVN_OK);
    assert_int_equal(dialog_prompt(&d, &second, NULL), CVN_OK);
    StrBuf text = {0};
    assert_int_equal(tokenizer_decode(t, second.id, second.n, TOKENIZER_SPECIAL, &text, NULL),
                     CVN_OK);
    assert_non_null(strstr(text.text, "<|end_header_id|>the end<|eot_id|>"));
    assert_null(strstr(text.text, "hm, hm"));
    size_t same = 0;
    while (same < first.n && first.id[same] == second.id[same])
        same++;
    assert_true(same > 4 && same < first.n); /* up to the thought, which is gone */
    strbuf_free(&text);
    strbuf_free(&out);
    token_ids_free(&first);
    token_ids_free(&second);
    dialog_free(&d);
    chat_template_free(chat);
    tokenizer_free(t);
}

static void turns_of_several_lines(void **state)
{
    int status;
    StrBuf a =
        shell("printf 'one\\\\\\ntwo\\n' | caravan chat -m model -n 8 --ignore-eos", &status);
    StrBuf b = shell("printf '\"\"\"one\\ntwo\"\"\"\\n' | caravan chat -m model -n 8 --ignore-eos",
                     &status);
    StrBuf c = shell("printf '\"\"\"\\none\\ntwo\\n\"\"\"\\n' | "
                     "caravan chat -m model -n 8 --ignore-eos",
                     &status);
    assert_string_equal(a.text, b.text);
    assert_string_equal(a.text, c.text);
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&c);
}

static void a_full_context_says_what_can_be_done(void **state)
{
    expect(1,
           "printf 'one\\ntwo\\n/stats\\n' | caravan chat -m model --ignore-eos -c 64 -n 100 "
           "--no-shift 2>&1",
           "the context of 64 tokens is full, so the answer ends here: /drop removes the oldest "
           "turn, /reset all of them, or start with --context up to 512");
    expect(1,
           "printf 'one\\ntwo\\n/stats\\n' | caravan chat -m model --ignore-eos -c 64 -n 100 "
           "--no-shift 2>&1",
           "tokens and the context only 64: /drop");
    /* Dropping helps. */
    expect(1,
           "printf 'one\\n/drop\\ntwo\\n/stats\\n' | "
           "caravan chat -m model --ignore-eos -c 64 -n 100 --no-shift 2>&1",
           "all        2 turns");
}

/* Of many turns the oldest make room, the system message stays, and an answer that fills the context goes on. */
static void a_full_context_is_shifted(void **state)
{
    expect(0,
           "for i in 1 2 3 4 5 6 7 8; do echo number $i; done >many; echo /save kept.json >>many; "
           "caravan chat -m model --ignore-eos -c 96 -n 20 --system Brief <many 2>&1",
           "caravan: the context of 96 tokens is full: the oldest turns are dropped");
    expect(0, "caravan chat -m model --ignore-eos -c 96 -n 20 <many 2>&1 | grep -ac dropped",
           "1\n");
    expect(0, "cat kept.json", "\"content\": \"number 8\"");
    expect(1, "grep -e 'number 1' kept.json", "");
    expect(0,
           "caravan chat -m model --ignore-eos -c 96 -n 20 --system Brief <many 2>/dev/null >&2; "
           "cat kept.json",
           "Brief");
    /* Longer than what is left beside the first turn, shorter than what is left without it. */
    expect(0,
           "printf 'one\\n/save a.json\\ntwo\\n/stats\\n' | caravan chat -m model --ignore-eos -c "
           "120 -n 40 2>&1",
           "all        3 turns");
}

static void conversations_are_saved_and_loaded(void **state)
{
    expect(0,
           "printf '/system Be brief.\\none\\n/save talk.json\\n' | "
           "caravan chat -m model -n 8 >&2 2>/dev/null; cat talk.json",
           "\"content\": \"Be brief.\"");
    expect(0,
           "printf '/load talk.json\\ntwo\\n/save more.json\\n' | caravan chat -m model -n 8; "
           "grep -c role more.json",
           "\n5\n");
    expect(0,
           "printf '/save same.json\\n' | caravan chat -m model --load talk.json; "
           "cmp talk.json same.json && echo alike",
           "alike");
    /* What was computed of it need not be again; a cache that is damaged is said, and computed again. */
    static const char talk[] =
        "printf 'one\\n/save c.json\\n' | caravan chat -m model -n 8 >&2; %s"
        "printf 'two\\n/stats\\n' | caravan chat -m model --load c.json -n 8 2>&1";
    char line[600];
    int status;
    snprintf(line, sizeof line, talk, "");
    StrBuf kept = shell(line, &status);
    assert_non_null(strstr(kept.text, "last turn  "));
    assert_null(strstr(kept.text, "last turn  0 tokens reused"));
    assert_null(strstr(kept.text, "prefilled again"));
    strbuf_free(&kept);
    snprintf(line, sizeof line, talk, "echo x >> c.json.cache; ");
    expect(0, line, "last turn  0 tokens reused");
    expect(0, line, "; the conversation is prefilled again\n");
    expect(1, "printf '/load nothing.json\\n' | caravan chat -m model 2>&1", "nothing.json");
    expect(1, "printf '/save /nowhere/x.json\\n' | caravan chat -m model 2>&1", "/nowhere/x.json");
}

static void commands_are_found_or_suggested(void **state)
{
    expect(0, "echo /help | caravan chat -m model", "/load FILE");
    expect(1, "echo /sats | caravan chat -m model 2>&1", "did you mean /stats?");
    expect(1, "echo /quit now | caravan chat -m model 2>&1", "/quit takes no argument");
    expect(0,
           "printf '/exit\\n/stats\\n' | caravan chat -m model | grep -c context; printf "
           "'/bye\\n/nothing\\n' | caravan chat -m model",
           "0\n");
    expect(1, "echo /reset now | caravan chat -m model 2>&1", "/reset takes no argument");
    expect(0, "echo /usr/bin is a folder | caravan chat -m model -n 3", "\n");
    expect(0, "printf '' | caravan chat -m model && echo left", "left");
}

static void one_answer_is_that_of_the_first_turn(void **state)
{
    int status;
    StrBuf turn = shell("echo 'what is this' | caravan chat -m model -n 12 --ignore-eos", &status);
    StrBuf once =
        shell("caravan chat model -p 'what is this' -n 12 --ignore-eos < /dev/null", &status);
    assert_int_equal(status, 0);
    assert_string_equal(turn.text, once.text);
    strbuf_free(&once);
    once = shell("echo 'what is this' | caravan chat model -f - -n 12 --ignore-eos", &status);
    assert_string_equal(turn.text, once.text);
    strbuf_free(&once);
    strbuf_free(&turn);
    /* a text behind a question is one turn, whatever lines it has */
    turn =
        shell("printf '\"\"\"why\n\nfirst\nsecond\"\"\"\n' | caravan chat -m model -n 12", &status);
    once = shell("printf 'first\nsecond\n' | caravan chat model -p why -f - -n 12", &status);
    assert_string_equal(turn.text, once.text);
    strbuf_free(&once);
    strbuf_free(&turn);
    expect(1, "caravan chat model -f /dev/null 2>&1", "the prompt is empty");
    expect(1, "caravan chat model -p x -f nothing 2>&1", "there is no file or folder nothing");
    expect(2, "caravan chat model -p x --history h 2>&1", "exclude each other");
    expect(1, "caravan chat -c 20 model -p 'far more than will fit in twenty tokens' 2>&1",
           "the context only 20");
}

static void answers_are_given_anew_and_turns_taken_back(void **state)
{
    int status;
    StrBuf text = shell("printf 'what is this\n/regen\n/regen\n' | caravan chat -m model -n 12 "
                        "--ignore-eos --chat-template llama3",
                        &status);
    assert_int_equal(status, 0);
    StrBuf same = shell("printf 'what is this\n/regen\n/regen\n' | caravan chat -m model -n 12 "
                        "--ignore-eos --chat-template llama3",
                        &status);
    assert_string_equal(text.text, same.text);
    StrBuf first = shell(
        "printf 'what is this\n/save r.json\n/regen\n/save s.json\n' | caravan chat -m model "
        "-n 12 --ignore-eos --chat-template llama3 >/dev/null; grep -c user s.json; cmp -s r.json "
        "s.json || echo differ",
        &status);
    assert_string_equal(first.text, "1\ndiffer\n");
    strbuf_free(&first);
    strbuf_free(&same);
    strbuf_free(&text);
    /* A turn that was taken back has not been: the next answer is that of a conversation without it. */
    StrBuf with =
        shell("printf 'one\n/undo\ntwo\n' | caravan chat -m model -n 8 | tail -1", &status);
    StrBuf without = shell("echo two | caravan chat -m model -n 8 | tail -1", &status);
    assert_string_equal(with.text, without.text);
    strbuf_free(&with);
    strbuf_free(&without);
    expect(1, "echo /undo | caravan chat -m model 2>&1", "there is no turn to undo");
    expect(1, "echo /regen | caravan chat -m model 2>&1", "there is no answer to regenerate");
    expect(1, "printf 'a\n/regen\n' | caravan chat -m model -n 3 --temperature 0 2>&1",
           "temperature 0 would give the same answer");
}

static void settings_are_changed_in_a_conversation(void **state)
{
    expect(0, "echo /set | caravan chat -m model --top-k 7", "top-k          7\n");
    expect(0, "echo /set temperature 0.5 | caravan chat -m model", "temperature    0.5\n");
    expect(0, "echo /set top_k=3 | caravan chat -m model", "top-k          3\n");
    expect(1, "echo /set temperature much | caravan chat -m model 2>&1",
           "/set temperature is \"much\"; give a number from 0 to 100");
    expect(1, "echo /set temprature 1 | caravan chat -m model 2>&1", "did you mean temperature?");
    /* They count: it is the answer of the options of these names. */
    int status;
    StrBuf set = shell("printf '/set temperature 0\n/set max-tokens 9\nwell\n' | caravan chat -m "
                       "model --ignore-eos | tail -n +3",
                       &status);
    StrBuf option =
        shell("echo well | caravan chat -m model --ignore-eos -n 9 --temperature 0", &status);
    assert_string_equal(set.text, option.text);
    strbuf_free(&set);
    strbuf_free(&option);
}

static void mistakes_end_in_a_sentence(void **state)
{
    expect(2, "caravan chat 2>&1", "--model DIR is missing");
    expect(1, "mkdir typed; caravan chat -m model --history typed </dev/null 2>&1", "typed");
    expect(1, "caravan chat -m model --chat-template lama3 2>&1",
           "'lama3' is neither a file nor a built-in chat template");
    expect(1,
           "caravan chat -m model --chat-template llama2 </dev/null 2>&1; echo a | caravan chat -m "
           "model "
           "--chat-template r1 2>&1",
           "use the template and the tokenizer of the same model");
    expect(1, "caravan chat -m bare 2>&1", "no tokenizer.json, tekken.json or tokenizer.model");
    expect(1, "caravan chat -m model -c 1000 2>&1", "the model has only 512");
    /* The signal is sent once the program catches it; before that, a shell's background process ignores it. */
    expect(0,
           "mkfifo wire; sleep 120 >wire & writer=$!; " CVN_BINARY " chat -m model <wire & pid=$!; "
           "for i in $(seq 6000); do grep -q 'SigCgt:.*[2367abef]$' /proc/$pid/status && break; "
           "sleep 0.01; done; "
           "kill -INT $pid; wait $pid; echo code $?; kill $writer",
           "code 130");
}

static void a_person_at_a_terminal(void **state)
{
    int status;
    StrBuf output = shell(
        "sh " CVN_TEST_DATA "/../chat_terminal.sh " CVN_BINARY " $HOME/long $HOME 2>&1", &status);
    if (status == 77) {
        print_message("skipped: %s", output.text);
        strbuf_free(&output);
        skip();
    }
    if (status)
        fail_msg("%s", output.text);
    strbuf_free(&output);
}

/* A receipt for each answer, of which the second goes on from the first; with another token one is no longer what the model said. */
static void receipts_of_answers_are_verified(void **state)
{
    expect(0,
           "printf 'what is this\\nand then\\n' | caravan chat -m model -n 12 --ignore-eos "
           "--receipt said.json >/dev/null && caravan verify said.json -m model",
           "receipt 1: same, 12 tokens\nreceipt 2: same, 12 tokens\n");
    expect(1,
           "sed '2s/\"tokens\":.[0-9]*/\"tokens\":[7/' said.json >other.json; "
           "caravan verify other.json -m model 2>&1",
           "receipt 1: same, 12 tokens\nreceipt 2: token 0 of 12 differs: was 7 with ln p ");
}

int main(void)
{
    setenv("CARAVAN_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_turn),
        cmocka_unit_test(only_new_tokens_are_computed),
        cmocka_unit_test(the_models_template_writes_the_conversation),
        cmocka_unit_test(thoughts_that_a_template_drops_are_no_longer_in_the_cache),
        cmocka_unit_test(turns_of_several_lines),
        cmocka_unit_test(a_full_context_says_what_can_be_done),
        cmocka_unit_test(a_full_context_is_shifted),
        cmocka_unit_test(conversations_are_saved_and_loaded),
        cmocka_unit_test(commands_are_found_or_suggested),
        cmocka_unit_test(one_answer_is_that_of_the_first_turn),
        cmocka_unit_test(answers_are_given_anew_and_turns_taken_back),
        cmocka_unit_test(settings_are_changed_in_a_conversation),
        cmocka_unit_test(receipts_of_answers_are_verified),
        cmocka_unit_test(mistakes_end_in_a_sentence),
        cmocka_unit_test(a_person_at_a_terminal),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
