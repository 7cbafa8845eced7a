/* Conversations as ids and as files; texts that end a generation. */
#include "base/file.h"
#include "serve/dialog.h"
#include "serve/stops.h"
#include "unit.h"

#include <unistd.h>

static Tokenizer *tokenizer;
static ChatTemplate *chat;
static char path[64] = "/tmp/caravan-dialog-XXXXXX";

static void add(Dialog *d, DialogRole role, const char *text)
{
    assert_int_equal(dialog_add(d, role, text, strlen(text), NULL), CVN_OK);
}

static TokenIds prompt_of(const Dialog *d)
{
    TokenIds ids = {0};
    cvn_err err = {0};
    must(dialog_prompt(d, &ids, &err), &err);
    return ids;
}

/* Each prompt begins with the one before, so that a cache has it. */
static void the_next_prompt_begins_with_prompt_and_answer(void **state)
{
    Dialog d;
    dialog_init(&d, chat, tokenizer);
    assert_int_equal(dialog_set_system(&d, "Be brief.", NULL), CVN_OK);
    TokenIds last = {0};
    for (int turn = 0; turn < 3; turn++) {
        add(&d, DIALOG_USER, "what is this");
        TokenIds next = prompt_of(&d);
        assert_true(next.n > last.n);
        if (last.n)
            assert_memory_equal(next.id, last.id, last.n * sizeof *last.id);
        add(&d, DIALOG_ASSISTANT, turn == 1 ? "" : "a story of the sea");
        token_ids_free(&last);
        last = next;
    }
    token_ids_free(&last);
    dialog_free(&d);
}

static void turns_are_dropped_whole_and_the_system_message_stays(void **state)
{
    Dialog d;
    dialog_init(&d, chat, tokenizer);
    assert_false(dialog_drop_oldest(&d));
    add(&d, DIALOG_USER, "1");
    add(&d, DIALOG_ASSISTANT, "one");
    add(&d, DIALOG_USER, "2");
    add(&d, DIALOG_ASSISTANT, "two");
    assert_int_equal(dialog_set_system(&d, "count", NULL), CVN_OK);
    assert_int_equal(d.n, 5);
    assert_int_equal(dialog_set_system(&d, "count well", NULL), CVN_OK);
    assert_int_equal(d.n, 5);
    assert_true(dialog_drop_oldest(&d));
    assert_int_equal(d.n, 3);
    assert_string_equal(d.message[0].text.text, "count well");
    assert_string_equal(d.message[1].text.text, "2");
    assert_true(dialog_drop_oldest(&d));
    assert_false(dialog_drop_oldest(&d));
    assert_int_equal(d.n, 1);
    add(&d, DIALOG_USER, "3");
    dialog_reset(&d);
    assert_int_equal(d.n, 1);
    assert_int_equal(dialog_set_system(&d, "", NULL), CVN_OK);
    assert_int_equal(d.n, 0);
    dialog_free(&d);
}

static void a_saved_conversation_comes_back(void **state)
{
    Dialog d, e;
    dialog_init(&d, chat, tokenizer);
    dialog_init(&e, chat, tokenizer);
    assert_int_equal(dialog_set_system(&d, "Be \"brief\".\n", NULL), CVN_OK);
    add(&d, DIALOG_USER, "h\xc3\xa9llo");
    add(&d, DIALOG_ASSISTANT, "broken \xff end");
    strbuf_puts(&d.message[2].thought, "hm");
    assert_int_equal(dialog_save(&d, path, NULL), CVN_OK);
    add(&e, DIALOG_USER, "what was before is replaced");
    assert_int_equal(dialog_load(&e, path, NULL), CVN_OK);
    assert_int_equal(e.n, 3);
    assert_string_equal(e.message[0].text.text, "Be \"brief\".\n");
    assert_string_equal(e.message[1].text.text, "h\xc3\xa9llo");
    assert_string_equal(e.message[2].text.text, "broken \xef\xbf\xbd end");
    assert_string_equal(e.message[2].thought.text, "hm");
    dialog_free(&d);
    dialog_free(&e);
}

static void files_that_are_no_conversation_change_nothing(void **state)
{
    static const struct {
        const char *json, *says;
    } bad[] = {
        {"", "JSON"},
        {"[]", "object"},
        {"{}", "no list \"messages\""},
        {"{\"messages\":[{\"role\":\"user\"}]}", "message 0 is not"},
        {"{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "role \"king\""},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", "without an answer"},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\",\"thinking\":1}]}", "message 0"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
         "{\"role\":\"system\",\"content\":\"x\"}]}",
         "message 1 has role"},
    };
    Dialog d;
    dialog_init(&d, chat, tokenizer);
    add(&d, DIALOG_USER, "still here");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cvn_err err = {0};
        assert_int_equal(file_write(path, bad[i].json, strlen(bad[i].json), NULL), CVN_OK);
        assert_int_not_equal(dialog_load(&d, path, &err), CVN_OK);
        if (!strstr(err.message, bad[i].says) || !strstr(err.message, path))
            fail_msg("%s: %s", bad[i].json, err.message);
        assert_int_equal(d.n, 1);
        assert_string_equal(d.message[0].text.text, "still here");
    }
    cvn_err err = {0};
    assert_int_not_equal(dialog_load(&d, "/nowhere/at/all", &err), CVN_OK);
    dialog_free(&d);
}

/* Pushes text in pieces of n bytes and returns what comes out; the caller frees it. */
static StrBuf stream(const char *const *stop, size_t n_stops, const char *text, size_t n,
                     bool *stopped)
{
    Stops stops;
    StrBuf out = {0};
    size_t length = strlen(text);
    stops_init(&stops, stop, n_stops);
    strbuf_add(&out, "", 0);
    for (size_t i = 0; i < length; i += n)
        stops_push(&stops, text + i, length - i < n ? length - i : n, &out);
    *stopped = stops.stopped;
    stops_flush(&stops, &out);
    stops_free(&stops);
    return out;
}

static void stops_cut_alike_however_the_text_comes(void **state)
{
    static const char *const stop[] = {"\nUser", "END", "aab", "ENDING"};
    static const struct {
        const char *text, *out;
        bool stopped;
    } cases[] = {
        {"", "", false},
        {"plain", "plain", false},
        {"one\nUser: two", "one", true},
        {"one\nUs", "one\nUs", false},
        {"one\nUs\nUser", "one\nUs", true},
        {"aaab", "a", true},
        {"aaaaaab c", "aaaa", true},
        {"EEND", "E", true},
        {"ENENEN", "ENENEN", false},
        {"xENDING", "x", true},
        {"aa END", "aa ", true},
        {"END", "", true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t n = 1; n < 12; n++) {
            bool stopped;
            StrBuf out = stream(stop, 4, cases[c].text, n, &stopped);
            if (strcmp(out.text, cases[c].out) != 0 || stopped != cases[c].stopped)
                fail_msg("'%s' by %zu: '%s'", cases[c].text, n, out.text);
            strbuf_free(&out);
        }
}

static void only_what_may_begin_a_stop_is_held_back(void **state)
{
    static const char *const stop[] = {"###", "\nUser:"};
    Stops stops;
    StrBuf out = {0};
    stops_init(&stops, stop, 2);
    assert_true(stops_push(&stops, "a\n", 2, &out));
    assert_string_equal(out.text, "a");
    assert_true(stops_push(&stops, "Us", 2, &out));
    assert_string_equal(out.text, "a");
    assert_true(stops_push(&stops, "e ##", 4, &out));
    assert_string_equal(out.text, "a\nUse ");
    assert_true(stops_push(&stops, "\n", 1, &out));
    assert_string_equal(out.text, "a\nUse ##");
    assert_false(stops_push(&stops, "x###y", 5, &out));
    assert_string_equal(out.text, "a\nUse ##\nx");
    assert_false(stops_push(&stops, "more", 4, &out));
    assert_string_equal(out.text, "a\nUse ##\nx");
    stops_free(&stops);
    strbuf_free(&out);
}

int main(void)
{
    cvn_err err = {0};
    int fd = mkstemp(path);
    if (fd < 0 || tokenizer_open(CVN_TEST_DATA "/chat/tokenizer.json", &tokenizer, &err) ||
        chat_template_open(tokenizer, NULL, &chat, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_next_prompt_begins_with_prompt_and_answer),
        cmocka_unit_test(turns_are_dropped_whole_and_the_system_message_stays),
        cmocka_unit_test(a_saved_conversation_comes_back),
        cmocka_unit_test(files_that_are_no_conversation_change_nothing),
        cmocka_unit_test(stops_cut_alike_however_the_text_comes),
        cmocka_unit_test(only_what_may_begin_a_stop_is_held_back),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    chat_template_free(chat);
    tokenizer_free(tokenizer);
    remove(path);
    return failed;
}
