/* The report: complete in itself, small whatever the run, and nothing in it is taken for HTML. */
#include "train/report/report.h"

#include "io_support.h"
#include "splitmix.h"
#include "train/report/chart.h"

#include <math.h>

static void ticks_are_round_few_and_cover_the_range(void **state)
{
    uint64_t random = 4;
    for (int trial = 0; trial < 20000; trial++) {
        double size = pow(10, (double)(splitmix(&random) % 40) - 20);
        double low = size * ((double)(splitmix(&random) % 2001) / 1000 - 1);
        double high = low + size * (double)(splitmix(&random) % 1000) / 999 *
                                pow(10, -(double)(splitmix(&random) % 14));
        double tick[CHART_TICKS];
        int wanted = 4 + (int)(splitmix(&random) % 4), n = chart_ticks(low, high, wanted, tick);
        double step = tick[1] - tick[0];
        if (n < 2 || n > CHART_TICKS || !(step > 0) || tick[0] > low + 1e-6 * step ||
            tick[n - 1] < high - 1e-6 * step)
            fail_msg("[%g, %g]: %d ticks from %g to %g", low, high, n, tick[0], tick[n - 1]);
        double mantissa = step / pow(10, floor(log10(step) + 1e-4));
        if (fabs(mantissa - 1) > 1e-3 && fabs(mantissa - 2) > 1e-3 && fabs(mantissa - 5) > 1e-3)
            fail_msg("[%g, %g]: ticks are %g apart", low, high, step);
    }
}

static void numbers_read_well(void **state)
{
    static const struct {
        double number;
        const char *text;
    } table[] = {{0, "0"},
                 {0.0003, "0.0003"},
                 {12.5, "12.5"},
                 {999.94, "999.9"},
                 {999.96, "1,000"},
                 {9120.4, "9,120"},
                 {1.25e6, "1.25M"},
                 {999999, "999,999"},
                 {2e12, "2T"},
                 {-9120.4, "-9,120"},
                 {3e9, "3G"},
                 {1e5, "100,000"},
                 {(double)NAN, "not finite"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        StrBuf out = {0};
        chart_number(&out, table[i].number);
        assert_string_equal(out.text, table[i].text);
        strbuf_free(&out);
    }
}

static void nothing_of_the_user_becomes_html(void **state)
{
    StrBuf out = {0};
    report_escape(&out, "<b>&\"'\x01\x1b[31m\xff\xc3\xa1\n");
    assert_string_equal(out.text,
                        "&lt;b&gt;&amp;&quot;&#39;\xef\xbf\xbd\xef\xbf\xbd[31m\xef\xbf\xbd"
                        "\xc3\xa1\n");
    strbuf_free(&out);
}

/* A run of n steps that looks like one. */
static void make_run(RunMetrics *metrics, const char *run, int64_t n)
{
    uint64_t random = 9;
    assert_int_equal(metrics_open(metrics, run, 0, NULL), CVN_OK);
    for (int64_t step = 1; step <= n; step++) {
        double noise = (double)(splitmix(&random) % 1000) / 1000 - 0.5;
        double at = (double)step / (double)n, warm = fmin(1, at / 0.05);
        MetricsRow row = {
            .step = step,
            .loss = 1.6 + 8.4 * exp(-9 * at) + 0.25 * noise,
            .lr = 3e-4 * warm * (0.1 + 0.45 * (1 + cos(3.14159 * at))),
            .grad_norm = 1 + 3 * exp(-12 * at) + 0.5 * noise + (step % 397 == 0 ? 20 : 0),
            .tokens_per_second = step % 100 == 0 ? 5200 : 9100 + 400 * noise,
            .mfu = 0.43 + 0.02 * noise,
            .seconds = 0.9,
            .validation_loss = step % (n / 8 + 1) == 0 ? 1.7 + 8.2 * exp(-9 * at) : (double)NAN};
        assert_int_equal(metrics_add(metrics, &row, NULL), CVN_OK);
    }
}

static Bytes page_of(const char *run, const RunMetrics *metrics, const Samples *samples)
{
    cvn_err err = {0};
    Report report = {
        .title = "stories15m on story.txt",
        .command = "caravan train --data story.txt --preset stories15m --out RUN",
        .machine = "16 cores <of> something\n64 GiB of memory",
        .config = "{\"preset\": \"stories15m\", \"data\": [\"story.txt\", \"<more>.jsonl\"], "
                  "\"lr\": 0.0003, \"steps\": 1000, \"batch\": 32, \"seq\": 256, \"resume\": null, "
                  "\"optimizer\": \"adamw\", \"schedule\": \"cosine\", \"warmup\": 100}",
        .metrics = metrics,
        .samples = samples,
        .steps = 2000,
        .tokens = 8192000};
    must(report_write(run, &report, &err), &err);
    char path[256];
    snprintf(path, sizeof path, "%s/" REPORT_NAME, run);
    Bytes page = bytes_of_file(path);
    page.data = realloc(page.data, page.n + 1);
    assert_non_null(page.data);
    page.data[page.n] = '\0';
    return page;
}

static void must_have(const Bytes *page, const char *piece, bool present)
{
    if ((strstr((const char *)page->data, piece) != NULL) != present)
        fail_msg("the page %s \"%s\"", present ? "lacks" : "has", piece);
}

static void the_page_is_complete_in_itself_and_small(void **state)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 50, 481, 20000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        RunMetrics metrics;
        char run[256];
        snprintf(run, sizeof run, "%s-%d", in_scratch("page"), (int)i);
        make_run(&metrics, run, lengths[i]);
        Samples samples;
        assert_int_equal(samples_open(&samples, run, 0, NULL), CVN_OK);
        samples_add(&samples, 500, "Once upon a time", ", <script>alert(1)</script> \xff", NULL);
        samples_add(&samples, 1000, "Once upon a time", " there was a fox.", NULL);
        Bytes page = page_of(run, &metrics, &samples);
        assert_true(page.n > 4000 && page.n < 300000);
        must_have(&page, "http", false);
        must_have(&page, "<script", false);
        must_have(&page, "nan", false);
        must_have(&page, "-inf", false);
        must_have(&page, "16 cores &lt;of&gt; something", true);
        must_have(&page, "<path class=line", lengths[i] > 0);
        must_have(&page, "nothing measured yet", lengths[i] == 0);
        must_have(&page, "there was a fox.", true);
        must_have(&page, "&lt;more&gt;.jsonl", true);
        free(page.data);
        metrics_close(&metrics);
        samples_close(&samples);
    }
}

static void what_is_not_finite_leaves_a_gap(void **state)
{
    RunMetrics metrics;
    assert_int_equal(metrics_open(&metrics, in_scratch("gap"), 0, NULL), CVN_OK);
    for (int64_t step = 1; step <= 100; step++) {
        double loss = step > 40 && step < 60 ? (double)NAN : 1e6 / (double)step;
        MetricsRow row = {.step = step,
                          .loss = loss,
                          .lr = (double)INFINITY,
                          .grad_norm = (double)NAN,
                          .mfu = (double)NAN,
                          .seconds = 1,
                          .validation_loss = (double)NAN};
        metrics_add(&metrics, &row, NULL);
    }
    Bytes page = page_of(in_scratch("gap"), &metrics, NULL);
    must_have(&page, "nan", false);
    must_have(&page, "inf", false);
    must_have(&page, "nothing measured yet", true);
    free(page.data);
    metrics_close(&metrics);
}

static void samples_are_cut_back_with_the_run(void **state)
{
    Samples samples;
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch("samples"));
    assert_int_equal(samples_open(&samples, run, 0, NULL), CVN_OK);
    for (int64_t step = 10; step <= 40; step += 10)
        for (int i = 0; i < 2; i++)
            assert_int_equal(samples_add(&samples, step, i ? "b" : "a", "text\n\"\\", NULL),
                             CVN_OK);
    samples_close(&samples);
    assert_int_equal(samples_open(&samples, run, 30, NULL), CVN_OK);
    assert_int_equal(samples.n, 6);
    assert_int_equal(samples.sample[5].step, 30);
    assert_string_equal(samples.sample[5].prompt, "b");
    assert_string_equal(samples.sample[5].text, "text\n\"\\");
    samples_close(&samples);
    assert_int_equal(samples_open(&samples, run, 100, NULL), CVN_OK);
    assert_int_equal(samples.n, 6);
    samples_close(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ticks_are_round_few_and_cover_the_range),
        cmocka_unit_test(numbers_read_well),
        cmocka_unit_test(nothing_of_the_user_becomes_html),
        cmocka_unit_test(the_page_is_complete_in_itself_and_small),
        cmocka_unit_test(what_is_not_finite_leaves_a_gap),
        cmocka_unit_test(samples_are_cut_back_with_the_run),
    };
    return cmocka_run_group_tests(tests, make_scratch,
                                  getenv("CARAVAN_KEEP") ? NULL : remove_scratch);
}
