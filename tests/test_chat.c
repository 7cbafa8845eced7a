/* `caravan chat` as scripts and people meet it, with a small model of random weights. */
#include "shell.h"

static void a_line_is_a_turn(void **state)
{
    (void)state;
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
    (void)state;
    /* Turn 2 computes the last token of answer 1, the end of it, and itself. */
    expect(0,
           "printf 'what is this\\n/stats\\nand then\\n/stats\\n' | "
           "caravan chat -m model -n 12 --ignore-eos --format llama3-meta",
           "last turn  0 tokens reused, 30 computed");
    expect(0,
           "printf 'what is this\\nand then\\n/stats\\n' | "
           "caravan chat -m model -n 12 --ignore-eos --format llama3-meta",
           "last turn  41 tokens reused,");
}

static void turns_of_several_lines(void **state)
{
    (void)state;
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
    (void)state;
    expect(1,
           "printf 'one\\ntwo\\n/stats\\n' | caravan chat -m model --ignore-eos -c 64 -n 100 2>&1",
           "the context of 64 tokens is full, so the answer ends here: /drop forgets the oldest "
           "turn, /reset all of them, or start with --context up to 512");
    expect(1,
           "printf 'one\\ntwo\\n/stats\\n' | caravan chat -m model --ignore-eos -c 64 -n 100 2>&1",
           "tokens and the context only 64: /drop");
    /* Dropping helps. */
    expect(1,
           "printf 'one\\n/drop\\ntwo\\n/stats\\n' | "
           "caravan chat -m model --ignore-eos -c 64 -n 100 2>&1",
           "all        2 turns");
}

static void conversations_are_saved_and_loaded(void **state)
{
    (void)state;
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
    expect(1, "printf '/load nothing.json\\n' | caravan chat -m model 2>&1", "nothing.json");
    expect(1, "printf '/save /nowhere/x.json\\n' | caravan chat -m model 2>&1", "/nowhere/x.json");
}

static void commands_are_found_or_suggested(void **state)
{
    (void)state;
    expect(0, "echo /help | caravan chat -m model", "/load FILE");
    expect(1, "echo /sats | caravan chat -m model 2>&1", "did you mean /stats?");
    expect(1, "echo /quit now | caravan chat -m model 2>&1", "/help lists what there is");
    expect(1, "echo /reset now | caravan chat -m model 2>&1", "/reset takes nothing after it");
    expect(0, "echo /usr/bin is a folder | caravan chat -m model -n 3", "\n");
    expect(0, "printf '' | caravan chat -m model && echo left", "left");
}

static void mistakes_end_in_a_sentence(void **state)
{
    (void)state;
    expect(2, "caravan chat 2>&1", "--model DIR is missing");
    expect(2, "caravan chat -m model --format lama3 2>&1", "did you mean llama3");
    expect(1,
           "caravan chat -m model --format llama2 </dev/null 2>&1; echo a | caravan chat -m model "
           "--format r1 2>&1",
           "which the chat format needs");
    expect(1, "caravan chat -m bare 2>&1", "neither tokenizer.json nor tokenizer.model");
    expect(1, "caravan chat -m model -c 1000 2>&1", "the model has 512");
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
    (void)state;
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

int main(void)
{
    setenv("CARAVAN_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_turn),
        cmocka_unit_test(only_new_tokens_are_computed),
        cmocka_unit_test(turns_of_several_lines),
        cmocka_unit_test(a_full_context_says_what_can_be_done),
        cmocka_unit_test(conversations_are_saved_and_loaded),
        cmocka_unit_test(commands_are_found_or_suggested),
        cmocka_unit_test(mistakes_end_in_a_sentence),
        cmocka_unit_test(a_person_at_a_terminal),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
