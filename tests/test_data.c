/* Training data: from files to rows. */
#include "train/data/data.h"

#include "base/file.h"
#include "scratch.h"
#include "train/data/data_impl.h"
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static Tokenizer *tokenizer;

static int set_up(void **state)
{
    cvn_err err = {0};
    return !make_scratch(state) &&
                   !tokenizer_open(CVN_TEST_DATA "/chat/tokenizer.json", &tokenizer, &err)
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    tokenizer_free(tokenizer);
    return remove_scratch(state);
}

/* Writes a file in the test's folder; the path lives until the next call but three. */
static const char *put(const char *name, const void *bytes, size_t n)
{
    static char path[4][128];
    static int next;
    char *at = path[next++ % 4];
    cvn_err err = {0};
    snprintf(at, sizeof path[0], "%s/%s", scratch, name);
    must(file_write(at, bytes, n, &err), &err);
    return at;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static DataOptions options_for(const char *const *path, int64_t seq)
{
    static char cache[80];
    snprintf(cache, sizeof cache, "%s/cache/deep", scratch);
    return (DataOptions){.paths = path,
                         .n_paths = 1,
                         .tokenizer = tokenizer,
                         .vocab = 32000,
                         .seq = seq,
                         .seed = 7,
                         .cache = cache,
                         .threads = 2};
}

static TrainData *open_data(const DataOptions *options)
{
    cvn_err err = {0};
    TrainData *data;
    must(data_open(&data, options, &err), &err);
    return data;
}

/* Opening fails with that code, and the message has these pieces. */
static void refuse(const DataOptions *options, int code, const char *piece, const char *other)
{
    cvn_err err = {0};
    TrainData *data;
    int got = data_open(&data, options, &err);
    if (got != code || !strstr(err.message, piece) || !strstr(err.message, other))
        fail_msg("code %d: %s", got, err.message);
    assert_null(data);
}

static ChatTemplate *open_chat(const char *name)
{
    cvn_err err = {0};
    ChatTemplate *chat;
    must(chat_template_open(tokenizer, name, &chat, &err), &err);
    return chat;
}

/* A shard of documents of these lengths; token t of document d is 100 d + t. */
static const char *put_documents(const char *name, const int *length, int n)
{
    cvn_err err = {0};
    TokenWriter writer;
    static char path[2][128];
    static int next;
    char *at = path[next++ % 2];
    snprintf(at, sizeof path[0], "%s/%s", scratch, name);
    assert_int_equal(token_writer_open(&writer, at, 32000, 0, &err), 0);
    for (int d = 0; d < n; d++) {
        int32_t ids[100];
        for (int t = 0; t < length[d]; t++)
            ids[t] = 100 * d + t;
        assert_int_equal(token_writer_add(&writer, ids, (size_t)length[d], NULL, true, &err), 0);
    }
    assert_int_equal(token_writer_commit(&writer, &err), 0);
    token_writer_free(&writer);
    return at;
}

/* ---- rows ---- */

enum { PAD = -7, NONE = -1 };

/* The rows of an epoch in the order of the data: row k is the one whose first token is k-th smallest. */
static void expect_rows(DataPacking packing, const int32_t *tokens, int64_t n)
{
    static const int length[] = {8, 3, 6};
    const char *path = put_documents("rows.bin", length, 3);
    DataOptions options = options_for(&path, 6);
    options.packing = packing;
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    assert_int_equal(data_sequences(data, DATA_TRAIN), n);
    int32_t *got = calloc((size_t)n * 18, sizeof *got), *targets = got + n * 6,
            *starts = targets + n * 6;
    assert_int_equal(data_fill(data, DATA_TRAIN, 0, n, got, targets, starts, &err), 0);
    for (int64_t r = 0; r < n; r++) {
        int64_t row = -1;
        for (int64_t k = 0; k < n; k++)
            if (got[k * 6] == tokens[r * 6])
                row = k;
        assert_in_range(row, 0, n - 1);
        for (int64_t s = 0; s < 6; s++) {
            int32_t id = got[row * 6 + s], expected = tokens[r * 6 + s];
            int32_t target = targets[row * 6 + s], start = starts[row * 6 + s];
            assert_int_equal(id, expected == PAD ? tokenizer_eos(tokenizer) : expected);
            bool last = expected == PAD || id % 100 + 1 == length[id / 100];
            assert_int_equal(target, last ? NONE : id + 1);
            bool first = s == 0 || expected == PAD || id % 100 == 0;
            if (first && expected != PAD)
                assert_int_equal(start, s);
            else
                assert_true(start <= s && (expected == PAD) == (tokens[r * 6 + start] == PAD));
            if (!first)
                assert_int_equal(start, starts[row * 6 + s - 1]);
        }
    }
    free(got);
    data_free(data);
}

static void rows_are_cut_as_the_header_draws_them(void **state)
{
    const int32_t stream[] = {0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 200};
    const int32_t whole[] = {0,   1,   2,   3,   4,   5,   6,   7,   100,
                             101, 102, PAD, 200, 201, 202, 203, 204, 205};
    const int32_t one[] = {0,   1,   2,   3,   4,   5,   6,   7,   PAD, PAD, PAD, PAD,
                           100, 101, 102, PAD, PAD, PAD, 200, 201, 202, 203, 204, 205};
    expect_rows(DATA_PACK_STREAM, stream, 2);
    expect_rows(DATA_PACK_WHOLE, whole, 3);
    expect_rows(DATA_PACK_ONE, one, 4);
}

static void every_epoch_has_every_row_once_in_another_order(void **state)
{
    int length[60];
    for (int d = 0; d < 60; d++)
        length[d] = 10;
    const char *path = put_documents("epochs.bin", length, 60);
    DataOptions options = options_for(&path, 5);
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int64_t n = data_sequences(data, DATA_TRAIN);
    assert_int_equal(n, 120);
    int32_t tokens[5], targets[5], first[2][120];
    int moved = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        bool seen[6000] = {0};
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(
                data_fill(data, DATA_TRAIN, epoch * n + i, 1, tokens, targets, NULL, &err), 0);
            assert_false(seen[tokens[0]]);
            seen[tokens[0]] = true;
            first[epoch][i] = tokens[0];
        }
    }
    for (int i = 0; i < 120; i++)
        moved += first[0][i] != first[1][i];
    assert_true(moved > 100);
    data_free(data);
}

static void a_batch_holds_what_its_rows_hold_one_by_one(void **state)
{
    int length[40];
    for (int d = 0; d < 40; d++)
        length[d] = 3 + d * 7 % 50;
    const char *path = put_documents("batch.bin", length, 40);
    DataOptions options = options_for(&path, 16);
    cvn_err err = {0};
    for (int packing = DATA_PACK_STREAM; packing <= DATA_PACK_ONE; packing++) {
        options.packing = (DataPacking)packing;
        TrainData *data = open_data(&options), *again = open_data(&options);
        int32_t all[3][50 * 16], row[3][16];
        assert_int_equal(data_report(data)->key, data_report(again)->key);
        assert_int_equal(data_fill(data, DATA_TRAIN, 30, 50, all[0], all[1], all[2], &err), 0);
        for (int64_t i = 0; i < 50; i++) {
            assert_int_equal(data_fill(again, DATA_TRAIN, 30 + i, 1, row[0], row[1], row[2], &err),
                             0);
            for (int k = 0; k < 3; k++)
                assert_memory_equal(row[k], all[k] + i * 16, sizeof row[k]);
        }
        data_free(data);
        data_free(again);
    }
}

static void permutations_are_permutations_for_all_sizes(void **state)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097};
    RngKey key = rng_key(3, "test");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        bool seen[5000] = {0};
        for (int64_t i = 0; i < sizes[k]; i++) {
            int64_t place = data_permute(key, 5, i, sizes[k]);
            assert_in_range(place, 0, sizes[k] - 1);
            assert_false(seen[place]);
            seen[place] = true;
        }
    }
    int64_t large = data_permute(key, 0, 12345, (int64_t)1 << 61);
    assert_true(large >= 0 && large < (int64_t)1 << 61);
}

static void an_order_is_no_other_seeds_or_epochs(void **state)
{
    RngKey a = rng_key(1, "order"), b = rng_key(2, "order");
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_seed += data_permute(a, 0, i, 1000) == data_permute(b, 0, i, 1000);
        same_epoch += data_permute(a, 0, i, 1000) == data_permute(a, 1, i, 1000);
        fixed += data_permute(a, 0, i, 1000) == i;
    }
    assert_true(same_seed < 10 && same_epoch < 10 && fixed < 10);
}

static void validation_takes_its_part_and_shares_no_document(void **state)
{
    int length[200];
    for (int d = 0; d < 200; d++)
        length[d] = 20;
    const char *path = put_documents("split.bin", length, 200);
    DataOptions options = options_for(&path, 10);
    options.validation = 0.2;
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int64_t n[2] = {data_sequences(data, DATA_TRAIN), data_sequences(data, DATA_VALIDATION)};
    assert_int_equal(n[0] + n[1], 400);
    assert_in_range(n[1], 50, 110);
    int split_of[200] = {0};
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < n[split]; i++) {
            int32_t tokens[10], targets[10];
            assert_int_equal(data_fill(data, (DataSplit)split, i, 1, tokens, targets, NULL, &err),
                             0);
            for (int s = 0; s < 10; s++)
                split_of[tokens[s] / 100] |= 1 << split;
        }
    for (int d = 0; d < 200; d++)
        assert_true(split_of[d] == 1 || split_of[d] == 2);
    data_free(data);

    static const int one[] = {100};
    path = put_documents("one.bin", one, 1);
    data = open_data(&options);
    assert_int_equal(data_sequences(data, DATA_TRAIN), 8);
    assert_int_equal(data_sequences(data, DATA_VALIDATION), 2);
    data_free(data);
    options.seq = 100;
    refuse(&options, CVN_EINVAL, "validation", "no validation");
}

/* ---- text ---- */

/* All ids of the data in order, as text. */
static StrBuf text_of(const TrainData *data, unsigned flags)
{
    StrBuf text = {0};
    cvn_err err = {0};
    for (size_t f = 0; f < data->n_files; f++)
        for (int64_t i = 0; i < data->file[f].tokens.n_tokens; i++) {
            int32_t id = token_file_id(&data->file[f].tokens, i);
            assert_int_equal(tokenizer_decode(tokenizer, &id, 1, flags, &text, &err), 0);
        }
    return text;
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

/* ---- JSONL and conversations ---- */

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

/* Rows of a mixture are those of its parts, each in its own order, as often as the weights say. */
static void a_mixture_has_its_parts_by_weight(void **state)
{
    const int length[] = {100, 100};
    char a[160], b[160], c[160];
    const char *alone = put_documents("mix_a", length, 1);
    snprintf(a, sizeof a, "%s=7", alone);
    snprintf(b, sizeof b, "%s=3", put_documents("mix_b", length, 2));
    snprintf(c, sizeof c, "%s", put_documents("mix_c", length, 1));
    const char *paths[] = {a, b};
    DataOptions options = {
        .paths = paths, .n_paths = 2, .seq = 10, .vocab = 32000, .seed = 5, .held = c};
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int of_a = 0;
    assert_int_equal(data_sequences(data, DATA_TRAIN), 30);
    assert_int_equal(data_sequences(data, DATA_VALIDATION), 10);
    bool seen[10] = {0};
    for (int i = 0; i < 1000; i++) {
        int32_t tokens[10], targets[10];
        assert_int_equal(data_fill(data, DATA_TRAIN, i, 1, tokens, targets, NULL, &err), 0);
        DataPlace at = data_place(data, DATA_TRAIN, i);
        of_a += at.data == data->part[0];
        seen[tokens[0] / 10 % 10] |= at.data == data->part[0] && at.i < 10;
    }
    assert_int_equal(of_a, 700);
    for (int i = 0; i < 10; i++) /* an epoch of it has every row */
        assert_true(seen[i]);
    for (int i = 0; i < 3; i++) {
        int32_t tokens[10], targets[10];
        assert_int_equal(data_fill(data, DATA_VALIDATION, i, 1, tokens, targets, NULL, &err), 0);
        assert_int_equal(tokens[0], 10 * i); /* in the order of the file */
    }
    data_free(data);
    paths[1] = alone;
    refuse(&options, CVN_EINVAL, "either all or none of the data must have a weight", "");
    snprintf(b, sizeof b, "%s=0.001", alone);
    paths[1] = b;
    refuse(&options, CVN_EINVAL, "less than a thousandth", "");
}

/* ---- what cannot be data ---- */

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

/* ---- the cache ---- */

static void a_cache_is_made_once_and_again_when_anything_changes(void **state)
{
    const char *path = put_text("cached.txt", "one two three four five six");
    DataOptions options = options_for(&path, 4);
    TrainData *data = open_data(&options);
    assert_true(data_report(data)->made);
    uint64_t key = data_report(data)->key;
    data_free(data);
    data = open_data(&options);
    assert_false(data_report(data)->made);
    assert_int_equal(data_report(data)->key, key);
    data_free(data);
    options.seed++;
    data = open_data(&options);
    assert_false(data_report(data)->made);
    assert_int_not_equal(data_report(data)->key, key);
    data_free(data);
    options.separator = " three ";
    data = open_data(&options);
    assert_true(data_report(data)->made);
    data_free(data);
    put_text("cached.txt", "one two three four five sex");
    options.separator = NULL;
    data = open_data(&options);
    assert_true(data_report(data)->made);
    data_free(data);
}

static void a_damaged_cache_is_made_again(void **state)
{
    const char *path = put_text("damage.txt", "The camels carry water, dates and letters.");
    DataOptions options = options_for(&path, 4);
    TrainData *data = open_data(&options);
    StrBuf right = text_of(data, TOKENIZER_SPECIAL);
    char cache[256];
    snprintf(cache, sizeof cache, "%s", data_report(data)->cache);
    data_free(data);
    struct stat info;
    assert_int_equal(stat(cache, &info), 0);
    for (off_t at = -9; at < info.st_size; at++) {
        cvn_err err = {0};
        int fd = open(cache, O_RDWR);
        unsigned char byte = 0;
        if (at < 0) {
            assert_int_equal(ftruncate(fd, at == -9 ? 0 : info.st_size + at), 0);
        } else {
            assert_int_equal(pread(fd, &byte, 1, at), 1);
            byte ^= 1;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        close(fd);
        TokenFile file;
        assert_int_not_equal(token_file_open(&file, cache, &err), 0);
        data = open_data(&options);
        if (!data_report(data)->made)
            fail_msg("byte %d", (int)at);
        StrBuf text = text_of(data, TOKENIZER_SPECIAL);
        assert_string_equal(text.text, right.text);
        strbuf_free(&text);
        data_free(data);
    }
    strbuf_free(&right);
}

/* Bytes of files in the cache scratch, and how many there are. */
static int count_cache(void)
{
    char line[160];
    snprintf(line, sizeof line, "ls '%s/cache/deep' | wc -l", scratch);
    FILE *pipe = popen(line, "r");
    int n = -1;
    assert_int_equal(fscanf(pipe, "%d", &n), 1);
    pclose(pipe);
    return n;
}

static void a_full_disk_is_one_sentence_and_leaves_nothing(void **state)
{
    size_t n = 600000;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 7 ? (char)('a' + i * i % 26) : ' ';
    const char *path = put("large.txt", text, n);
    DataOptions options = options_for(&path, 4);
    int before = count_cache();
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 300000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    refuse(&options, CVN_EIO, "cannot write '", ".tokens'");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(count_cache(), before);
    data_free(open_data(&options));
    assert_int_equal(count_cache(), before + 1);
    free(text);
}

static bool stop_at_once(void *context, int64_t done, int64_t total)
{
    assert_true(done <= total);
    ++*(int *)context;
    return false;
}

static void tokenising_can_be_stopped(void **state)
{
    const char *path = put_text("stopped.txt", "some text");
    DataOptions options = options_for(&path, 2);
    int calls = 0, before = count_cache();
    options.progress = stop_at_once;
    options.context = &calls;
    refuse(&options, CVN_EINTERRUPTED, "interrupted", "");
    assert_int_equal(calls, 1);
    assert_int_equal(count_cache(), before);
}

static void makers_at_the_same_time_all_succeed(void **state)
{
    char text[20000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = i % 6 ? (char)('a' + i * 7 % 26) : ' ';
    const char *path = put("raced.txt", text, sizeof text);
    DataOptions options = options_for(&path, 16);
    int before = count_cache(), failed = 0;
    for (int i = 0; i < 6; i++)
        if (fork() == 0) {
            TrainData *data;
            int code = data_open(&data, &options, NULL);
            _exit(code || data_sequences(data, DATA_TRAIN) < 100);
        }
    for (int i = 0; i < 6; i++) {
        int status;
        wait(&status);
        failed += status != 0;
    }
    assert_int_equal(failed, 0);
    assert_int_equal(count_cache(), before + 1);
}

static void ids_do_not_depend_on_threads_or_pieces(void **state)
{
    /* More than two pieces, and documents in between. */
    size_t n = 0, capacity = (size_t)SOURCE_PIECE * 2 + 500000;
    char *text = malloc(capacity + 100);
    for (size_t i = 0; n < capacity; i++)
        n += (size_t)snprintf(text + n, 90, "%zu lines, each with its own number.%s\n", i,
                              i == 900 ? "\n<|endoftext|>" : "");
    const char *path = put("pieces.txt", text, n);
    DataOptions options = options_for(&path, 64);
    uint64_t key[2];
    char cache[2][80];
    for (int i = 0; i < 2; i++) {
        options.threads = 1 + 2 * i;
        snprintf(cache[i], sizeof cache[i], "%s/by%d", scratch, i);
        options.cache = cache[i];
        TrainData *data = open_data(&options);
        assert_true(data_report(data)->made);
        assert_int_equal(data_report(data)->documents, 2);
        key[i] = data_report(data)->key;
        StrBuf whole = text_of(data, 0);
        const char *second = strstr(text, "<|endoftext|>");
        size_t first = (size_t)(second - text) - 1;
        assert_memory_equal(whole.text, text, first);
        assert_int_equal(whole.length, n - strlen("\n<|endoftext|>\n") - 1);
        strbuf_free(&whole);
        data_free(data);
    }
    assert_int_equal(key[0], key[1]);
    free(text);
}

static void shards_and_text_are_read_together(void **state)
{
    static const int length[] = {10, 10};
    const char *path[] = {put_documents("shard.bin", length, 2), put_text("beside.txt", "hello")};
    DataOptions options = options_for(path, 5);
    options.n_paths = 2;
    TrainData *data = open_data(&options);
    assert_int_equal(data_report(data)->documents, 3);
    assert_int_equal(data->n_files, 2);
    cvn_err err = {0};
    bool found[2] = {false};
    for (int64_t i = 0; i < data_sequences(data, DATA_TRAIN); i++) {
        int32_t tokens[5], targets[5];
        assert_int_equal(data_fill(data, DATA_TRAIN, i, 1, tokens, targets, NULL, &err), 0);
        for (int s = 0; s < 5; s++) {
            found[0] |= tokens[s] == tokenizer_bos(tokenizer);
            found[1] |= tokens[s] == 9 && targets[s] == -1;
        }
    }
    assert_true(found[0] && found[1]);
    data_free(data);
}

static void headers_that_lie_are_refused(void **state)
{
    static const int length[] = {10, 10};
    FileMap map;
    cvn_err err = {0};
    assert_int_equal(file_map(&map, put_documents("lies.bin", length, 2), &err), 0);
    static const struct {
        size_t at;
        uint64_t value;
        size_t width;
    } lies[] = {
        {0, 'X', 1},          {8, 2, 4},
        {12, 3, 4},           {12, 4, 4},
        {16, 0, 8},           {16, 1u << 20, 8},
        {16, 5, 8},           {24, 0, 8},
        {24, 21, 8},          {24, UINT64_MAX, 8},
        {24, 1ull << 63, 8},  {32, 3, 8},
        {32, 21, 8},          {32, UINT64_MAX / 8 + 3, 8},
        {40, 1, 4},           {40, 4, 4},
        {56, 1, 4},           {64 + 40, 1, 8},
        {64 + 40 + 8, 20, 8}, {64 + 40 + 8, 0, 8},
    };
    _Alignas(8) uint8_t copy[256];
    assert_true(map.size <= sizeof copy);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++)
        for (int sum = 0; sum < 2; sum++) {
            TokenFile file;
            memcpy(copy, map.data, map.size);
            /* Without the sum, so that it is the lie that is found. */
            if (!sum)
                memset(copy + 40, 0, 8);
            memset(copy + 60, 0, sum ? 0 : 4);
            if (i == 0 && !sum)
                assert_int_equal(token_file_parse(&file, "lies", copy, map.size, &err), 0);
            memcpy(copy + lies[i].at, &lies[i].value, lies[i].width);
            if (token_file_parse(&file, "lies", copy, map.size, NULL) == 0)
                fail_msg("lie %zu was believed", i);
        }
    file_unmap(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_as_the_header_draws_them),
        cmocka_unit_test(every_epoch_has_every_row_once_in_another_order),
        cmocka_unit_test(a_batch_holds_what_its_rows_hold_one_by_one),
        cmocka_unit_test(permutations_are_permutations_for_all_sizes),
        cmocka_unit_test(an_order_is_no_other_seeds_or_epochs),
        cmocka_unit_test(validation_takes_its_part_and_shares_no_document),
        cmocka_unit_test(documents_of_text_end_at_separators_and_files),
        cmocka_unit_test(special_tokens_in_text_are_plain_text),
        cmocka_unit_test(lines_of_json_are_documents),
        cmocka_unit_test(of_conversations_the_answers_are_learnt),
        cmocka_unit_test(conversations_of_every_shape_are_learnt),
        cmocka_unit_test(a_mixture_has_its_parts_by_weight),
        cmocka_unit_test(broken_lines_are_named),
        cmocka_unit_test(bad_files_are_refused_with_what_to_do),
        cmocka_unit_test(a_cache_is_made_once_and_again_when_anything_changes),
        cmocka_unit_test(a_damaged_cache_is_made_again),
        cmocka_unit_test(a_full_disk_is_one_sentence_and_leaves_nothing),
        cmocka_unit_test(tokenising_can_be_stopped),
        cmocka_unit_test(makers_at_the_same_time_all_succeed),
        cmocka_unit_test(ids_do_not_depend_on_threads_or_pieces),
        cmocka_unit_test(shards_and_text_are_read_together),
        cmocka_unit_test(headers_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
