/* RUN/metrics.jsonl: every step once, through any number of deaths and returns. */
#include "train/report/metrics.h"

#include "io_support.h"

#include <fcntl.h>
#include <math.h>

static MetricsRow row_at(int64_t step)
{
    return (MetricsRow){.step = step,
                        .loss = (double)(10.0f / (float)(step + 2)),
                        .lr = 1e-4 * (double)step,
                        .grad_norm = 1.5,
                        .tokens_per_second = 1000,
                        .mfu = 0.25,
                        .seconds = 0.125,
                        .validation_loss = step % 4 == 0 ? 2.5 : (double)NAN};
}

static void add(const char *run, int64_t from, int64_t to)
{
    RunMetrics metrics;
    cvn_err err = {0};
    must(metrics_open(&metrics, run, from, &err), &err);
    for (int64_t step = from + 1; step <= to; step++) {
        MetricsRow row = row_at(step);
        assert_int_equal(metrics_add(&metrics, &row, &err), CVN_OK);
    }
    assert_int_equal(metrics.n, (size_t)to);
    assert_int_equal(step_lines_sync(&metrics.lines, &err), CVN_OK);
    metrics_close(&metrics);
}

static void a_line_says_what_was_measured(void **state)
{
    const char *run = in_scratch("line");
    RunMetrics metrics;
    assert_int_equal(metrics_open(&metrics, run, 0, NULL), CVN_OK);
    MetricsRow row = {.step = 7,
                      .loss = 5.3125,
                      .lr = 3e-4,
                      .grad_norm = (double)INFINITY,
                      .tokens_per_second = 9120.5,
                      .mfu = 0.41,
                      .seconds = 0.898,
                      .validation_loss = (double)NAN};
    assert_int_equal(metrics_add(&metrics, &row, NULL), CVN_OK);
    metrics_close(&metrics);
    Bytes bytes = bytes_of_file(in_scratch("line/metrics.jsonl"));
    const char *want = "{\"step\":7,\"loss\":5.3125,\"lr\":0.0003,\"grad_norm\":null,"
                       "\"tokens_per_second\":9120.5,\"mfu\":0.41,\"seconds\":0.898}\n";
    assert_int_equal(bytes.n, strlen(want));
    assert_memory_equal(bytes.data, want, bytes.n);
    free(bytes.data);
}

static void every_step_is_there_once_after_going_back(void **state)
{
    const char *run = in_scratch("back");
    add(in_scratch("straight"), 0, 40);
    add(run, 0, 17);
    add(run, 10, 33);
    add(run, 30, 31);
    add(run, 31, 40);
    Bytes a = bytes_of_file(in_scratch("straight/metrics.jsonl"));
    Bytes b = bytes_of_file(in_scratch("back/metrics.jsonl"));
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n);
    free(a.data);
    free(b.data);
    RunMetrics metrics;
    assert_int_equal(metrics_open(&metrics, run, 40, NULL), CVN_OK);
    assert_int_equal(metrics.n, 40);
    for (size_t i = 0; i < 40; i++) {
        MetricsRow want = row_at((int64_t)i + 1);
        assert_int_equal(metrics.row[i].step, want.step);
        assert_true((float)metrics.row[i].loss == (float)want.loss);
        assert_true(isnan(want.validation_loss) ? isnan(metrics.row[i].validation_loss)
                                                : metrics.row[i].validation_loss == 2.5);
    }
    metrics_close(&metrics);
}

/* Wherever a file is cut, what is left is whole lines, and going on makes it what it was. */
static void a_line_cut_short_goes(void **state)
{
    const char *run = in_scratch("cut");
    add(run, 0, 6);
    char path[256];
    snprintf(path, sizeof path, "%s", in_scratch("cut/metrics.jsonl"));
    Bytes whole = bytes_of_file(path);
    for (size_t n = 0; n <= whole.n; n++) {
        assert_int_equal(file_write(path, whole.data, n, NULL), CVN_OK);
        RunMetrics metrics;
        assert_int_equal(metrics_open(&metrics, run, 6, NULL), CVN_OK);
        int64_t last = (int64_t)metrics.n;
        assert_true(last == (n == whole.n ? 6 : last) && (n > 0 || last == 0));
        metrics_close(&metrics);
        add(run, last, 6);
        Bytes again = bytes_of_file(path);
        assert_int_equal(again.n, whole.n);
        assert_memory_equal(again.data, whole.data, whole.n);
        free(again.data);
    }
    free(whole.data);
}

static void what_cannot_be_written_is_said(void **state)
{
    cvn_err err = {0};
    RunMetrics metrics;
    assert_int_equal(file_write(in_scratch("file"), "x", 1, NULL), CVN_OK);
    assert_int_equal(metrics_open(&metrics, in_scratch("file"), 0, &err), CVN_EIO);
    assert_non_null(strstr(err.message, "cannot create the folder"));
    metrics_close(&metrics);
    err = (cvn_err){0};
    metrics = (RunMetrics){.lines.fd = open("/dev/full", O_WRONLY),
                           .lines.path = file_path("full", "metrics.jsonl")};
    assert_int_equal(metrics_add(&metrics, &(MetricsRow){.step = 1}, &err), CVN_EIO);
    assert_string_equal(err.message, "cannot write 'full/metrics.jsonl': No space left on device");
    metrics_close(&metrics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_says_what_was_measured),
        cmocka_unit_test(every_step_is_there_once_after_going_back),
        cmocka_unit_test(a_line_cut_short_goes),
        cmocka_unit_test(what_cannot_be_written_is_said),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
