/* Training data: the cache of tokens is the text's, whoever makes it, and however a disk, a signal or a damaged file is in the way. */
#include "data_support.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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
        cmocka_unit_test(a_cache_is_made_once_and_again_when_anything_changes),
        cmocka_unit_test(a_damaged_cache_is_made_again),
        cmocka_unit_test(a_full_disk_is_one_sentence_and_leaves_nothing),
        cmocka_unit_test(tokenising_can_be_stopped),
        cmocka_unit_test(makers_at_the_same_time_all_succeed),
        cmocka_unit_test(ids_do_not_depend_on_threads_or_pieces),
        cmocka_unit_test(headers_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
