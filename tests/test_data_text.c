/* Training data: files of text, of JSON lines and of conversations become documents, and what cannot is refused by its place. */
#include "data_support.h"

#include <sys/stat.h>

static ChatTemplate *open_chat(const char *name)
{
    cvn_err err = {0};
    ChatTemplate *chat;
    must(chat_template_open(tokenizer, name, &chat, &err), &err);
    return chat;
}

static void expect_text(const DataOptions *options, int64_t documents, const char *expected)
{
    TrainData *data = open_data(options);
    StrBuf text = text_of(data, TOKENIZER_SPECIAL);
    assert_string_equal(text.text, expected);
    assert_int_equal(data_report(data)->documents, documents);
    strbuf_free(&text);
    data_free(data);
}

#define BEGIN "<|begin_of_text|>"
#define END "<|end_of_text|>"

static void documents_of_text_end_at_separators_and_files(void **state)
{
    char path[160];
    snprintf(path, sizeof path, "%s/texts", scratch);
    assert_int_equal(mkdir(path, 0777), 0);
    put_text("texts/b.txt", "second file\n");
    put_text("texts/a.txt", "\xef\xbb\xbf"
                            "one\n<|endoftext|>\n\ntwo\nlines\r\n<|endoftext|>\n<|endoftext|>\n");
    put_text("texts/.hidden", "not this");
    put_text("texts/empty", "");
    const char *at = path;
    DataOptions options = options_for(&at, 4);
    expect_text(&options, 3, BEGIN "one" END BEGIN "two\nlines" END BEGIN "second file" END);
    options.separator = "\nlines";
    expect_text(&options, 3,
                BEGIN "one\n<|endoftext|>\n\ntwo" END BEGIN "<|endoftext|>\n<|endoftext|>" END BEGIN
                      "second file" END);
}

static void special_tokens_in_text_are_plain_text(void **state)
{
    const char *path = put_text("forged.txt", "say <|end_of_text|> now");
    DataOptions options = options_for(&path, 4);
    TrainData *data = open_data(&options);
    int ends = 0;
    for (int64_t i = 0; i < data_report(data)->tokens; i++)
        ends += token_file_id(&data->file[0].tokens, i) == tokenizer_eos(tokenizer);
    assert_int_equal(ends, 1);
    data_free(data);
}

static void lines_of_json_are_documents(void **state)
{
    const char *path = put_text("lines", "\n{\"text\": \"first \\u00e9\", \"id\": 1}\n\n \t\r\n"
                                         "{\"text\":\"second\\nline\"}");
    DataOptions options = options_for(&path, 4);
    expect_text(&options, 2, BEGIN "first \xc3\xa9" END BEGIN "second\nline" END);
}

/* The text that is to be learnt, piece by piece, with "|" behind each run. */
static StrBuf learnt(const TrainData *data)
{
    const TokenFile *file = &data->file[0].tokens;
    StrBuf text = {0};
    cvn_err err = {0};
    for (int64_t i = 0; i < file->n_tokens; i++) {
        int32_t id = token_file_id(file, i);
        if (!token_file_learns(file, i))
            continue;
        assert_int_equal(tokenizer_decode(tokenizer, &id, 1, TOKENIZER_SPECIAL, &text, &err), 0);
        if (i + 1 == file->n_tokens || !token_file_learns(file, i + 1))
            strbuf_putc(&text, '|');
    }
    return text;
}

static const char TALK[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind\"}, "
                           "{\"role\": \"user\", \"content\": \"Hello\"}, "
                           "{\"role\": \"assistant\", \"content\": \"Good day\"}, "
                           "{\"role\": \"user\", \"content\": \"Who?\"}, "
                           "{\"role\": \"assistant\", \"content\": \"A caravan\"}]}\n";

static void of_conversations_the_answers_are_learnt(void **state)
{
    static const char *const formats[] = {"llama3", "llama3-meta", "llama3.1"};
    const char *path = put_text("talk.jsonl", TALK);
    DataOptions options = options_for(&path, 256);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        ChatTemplate *chat = open_chat(formats[i]);
        options.chat = chat;
        TrainData *data = open_data(&options);
        StrBuf text = learnt(data);
        assert_string_equal(text.text, "Good day<|eot_id|>|A caravan<|eot_id|>|");
        strbuf_free(&text);

        int32_t tokens[256], targets[256];
        cvn_err err = {0};
        assert_int_equal(data_sequences(data, DATA_TRAIN), 1);
        assert_int_equal(data_fill(data, DATA_TRAIN, 0, 1, tokens, targets, NULL, &err), 0);
        int64_t n = data_report(data)->tokens, learns = 0;
        for (int64_t s = 0; s < 256; s++) {
            bool next = s + 1 < n && token_file_learns(&data->file[0].tokens, s + 1);
            assert_int_equal(targets[s], next ? tokens[s + 1] : -1);
            learns += next;
        }
        assert_true(learns > 4 && learns < n / 2);
        data_free(data);
        chat_template_free(chat);
    }
}

/* Conversations as other programs write them, in files of which no name says what they are. */
static void conversations_of_every_shape_are_learnt(void **state)
{
    ChatTemplate *chat = open_chat("llama3.1");
    static const struct {
        const char *text, *learnt;
    } cases[] = {
#define ASK "{\"role\": \"user\", \"content\": \"Hello\"}, "
#define SAY(text) "{\"role\": \"assistant\", \"content\": " text "}"
        {" [\n{\"messages\": [" ASK SAY("\"Hi\"") "]},\n{\"messages\": [" ASK SAY(
             "\"Ho\"") "]}\n]\n",
         "Hi<|eot_id|>|Ho<|eot_id|>|"},
        {"{\n  \"messages\": [\n" ASK SAY("\"Hi\"") "]\n}\n{\n\"messages\": [" ASK SAY(
             "\"Ho\"") "]}",
         "Hi<|eot_id|>|Ho<|eot_id|>|"},
        {"[" ASK SAY("\"Hi\"") "]\n[" ASK SAY("\"Ho\"") "]\n", "Hi<|eot_id|>|Ho<|eot_id|>|"},
        {"[[" ASK SAY("\"Hi ]}\\\" \"") "], [" ASK SAY("\"Ho\"") "]]",
         "Hi ]}\"<|eot_id|>|Ho<|eot_id|>|"},
        {"{\"messages\": [" ASK SAY(
             "[{\"type\": \"text\", \"text\": \"Hi\"}, {\"text\": \" there\"}]") "]}",
         "Hi there<|eot_id|>|"},
        {"{\"messages\": [" ASK
         "{\"role\": \"assistant\", \"content\": \"no\", \"weight\": 0}, " ASK
         "{\"role\": \"assistant\", \"content\": \"yes\", \"weight\": 1}]}",
         "yes<|eot_id|>|"},
        {"{\"messages\": [" ASK
         "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": "
         "\"1\", \"type\": \"function\", \"function\": {\"name\": \"look\", \"arguments\": "
         "\"{\\\"at\\\": 1}\"}}]}]}",
         "{\"name\": \"look\", \"parameters\": {\"at\": 1}}<|eot_id|>|"},
        {"{\"conversations\": [{\"from\": \"system\", \"value\": \"Be kind\"}, {\"from\": "
         "\"human\", "
         "\"value\": \"Hello\"}, {\"from\": \"gpt\", \"value\": \"Hi\"}]}",
         "Hi<|eot_id|>|"},
        {"[{\"instruction\": \"Add\", \"input\": \"1 and 2\", \"output\": \"3\"}]", "3<|eot_id|>|"},
        {"{\"prompt\": \"Once upon\", \"completion\": \" a time\"}", " a time<|end_of_text|>|"},
        {"{\"prompt\": [" ASK SAY("\"Hi\"") "], \"completion\": [" SAY("\"Ho\"") "]}",
         "Ho<|eot_id|>|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[32];
        snprintf(name, sizeof name, "shape%zu", i);
        const char *path = put_text(name, cases[i].text);
        DataOptions options = options_for(&path, 128);
        options.chat = chat;
        TrainData *data = open_data(&options);
        StrBuf text = learnt(data);
        assert_string_equal(text.text, cases[i].learnt);
        strbuf_free(&text);
        data_free(data);
    }
    chat_template_free(chat);
    static const char *const unknown[][2] = {
        {"[{\"question\": \"x\"}, {\"question\": \"y\"}]", "odd:1: "},
        {"{\"question\": \"x\"}\n", "odd:1: "},
        {"{\n\"messages\": 1\n}", "odd:1: "},
        {"[{\"text\": \"x\"},\n{\"question\": \"y\"}]", "odd:2: this is neither a text nor"},
        {"[{\"text\": \"x\"},\n{\"text\": \"y\"}", "odd:2: not a JSON object"},
        {"[{\"text\": \"x\"}]]", "odd:1: not a JSON object"},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const char *path = put_text("odd", unknown[i][0]);
        DataOptions options = options_for(&path, 4);
        refuse(&options, CVN_EFORMAT, unknown[i][1], unknown[i][1]);
    }
    const char *path = put_text("words", "[Verse 1] {oh} {\"no\"");
    DataOptions options = options_for(&path, 4);
    expect_text(&options, 1, BEGIN "[Verse 1] {oh} {\"no\"" END);
}

static void broken_lines_are_named(void **state)
{
    ChatTemplate *chat = open_chat("llama3");
    static const struct {
        const char *line, *piece;
    } cases[] = {
        {"{\"text\": \"open", "not a JSON object"},
        {"[1, 2]", "neither"},
        {"{\"text\": 5}", "neither"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
        {"{\"text\": \"\xff\"}", "byte 0xff"},
        {"{\"messages\": []}", "\"messages\" is empty"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"I begin\"}]}", "no answer"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "message 0: it must have"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
         "message 0: content part 0 has type \"image_url\""},
        {"{\"conversations\": [{\"from\": \"narrator\", \"value\": \"x\"}]}", "from \"narrator\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"weight\": 0.5}]}",
         "neither 0 nor 1"},
        {"{\"prompt\": 1, \"completion\": \"x\"}", "two strings or two lists"},
        {"{\"role\": \"user\", \"content\": \"x\"}", "a single message"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", "
         "\"content\": null, \"tool_calls\": [1, 2]}]}",
         "message 1: a \"tool_calls\" entry has no"},
        {"{\"messages\": [{\"role\": \"judge\", \"content\": \"x\"}, {\"role\": \"assistant\", "
         "\"content\": \"y\"}]}",
         "judge"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [\"f\"]}",
         "\"tools\" must be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        int n = 0;
        for (int line = 0; line < 2; line++)
            n += snprintf(text + n, sizeof text - (size_t)n, "{\"text\": \"fine\"}\n");
        snprintf(text + n, sizeof text - (size_t)n, "%s\n{\"text\": \"fine\"}\n{\n", cases[i].line);
        const char *path = put_text("broken.jsonl", text);
        DataOptions options = options_for(&path, 4);
        options.chat = chat;
        bool judge = strstr(cases[i].line, "judge");
        refuse(&options, judge ? CVN_EINVAL : CVN_EFORMAT, "broken.jsonl:3: ", cases[i].piece);
    }
    chat_template_free(chat);
    const char *path = put_text("talk.jsonl", TALK);
    DataOptions options = options_for(&path, 4);
    refuse(&options, CVN_EINVAL, "talk.jsonl:1: ", "no chat template");
    options.no_chat = "nobody knows how";
    refuse(&options, CVN_EINVAL, "talk.jsonl:1: ", "messages here, and nobody knows how");
}

static void bad_files_are_refused_with_what_to_do(void **state)
{
    const char *path = put_text("nothing.txt", "");
    DataOptions options = options_for(&path, 4);
    refuse(&options, CVN_EFORMAT, "nothing.txt", "is empty");
    path = put_text("blank.txt", "\n\n<|endoftext|>\n");
    refuse(&options, CVN_EFORMAT, "blank.txt", "no text");
    path = put_text("short.txt", "Just one line.\n");
    options.seq = 256;
    refuse(&options, CVN_EINVAL, "less than one sequence of 256", "at most ");
    path = put("latin.txt", "caf\xe9 au lait", 12);
    refuse(&options, CVN_EFORMAT, "latin.txt' is not UTF-8: byte 3 is 0xe9", "iconv");
    path = "/nowhere/at/all.txt";
    refuse(&options, CVN_EIO, "/nowhere/at/all.txt", "");
    path = put_text("texts.txt", "some text");
    options.tokenizer = NULL;
    refuse(&options, CVN_EINVAL, "texts.txt", "no tokenizer");
    options = options_for(&path, 0);
    refuse(&options, CVN_EINVAL, "sequence length is 0", "");
    options = options_for(&path, 4);
    options.validation = 0.9;
    refuse(&options, CVN_EINVAL, "0.9", "0 to 0.5");
    options = options_for(&path, 4);
    options.separator = "";
    refuse(&options, CVN_EINVAL, "separator", "");
    options = options_for(&path, 4);
    options.n_paths = 0;
    refuse(&options, CVN_EINVAL, "no training data", "");
    static const int length[] = {50};
    path = put_documents("wide.bin", length, 1);
    options = options_for(&path, 4);
    options.vocab = 512;
    refuse(&options, CVN_EINVAL, "wide.bin", "vocabulary");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_of_text_end_at_separators_and_files),
        cmocka_unit_test(special_tokens_in_text_are_plain_text),
        cmocka_unit_test(lines_of_json_are_documents),
        cmocka_unit_test(of_conversations_the_answers_are_learnt),
        cmocka_unit_test(conversations_of_every_shape_are_learnt),
        cmocka_unit_test(broken_lines_are_named),
        cmocka_unit_test(bad_files_are_refused_with_what_to_do),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
