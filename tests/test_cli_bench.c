/* caravan bench: what it measures, and what it shows of that. */
#include "cli_run.h"

#include <math.h>

/* A row for each length, way and phase, and both ways in the picture. */
static void bench_sweeps_over_the_lengths_of_prompts(void **state)
{
    (void)state;
    char args[512];
    snprintf(
        args, sizeof args,
        "bench -p stories260k --prefill 0 --decode 2 --sweep --prompts 3,9,600 --repeats 1 -t 1 "
        "--csv --svg %s",
        in_scratch("sweep.svg"));
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    static const char *const rows[] = {
        ",sweep,buckets,prefill,1,0,3,",        ",sweep,buckets,decode,1,3,2,",
        ",sweep,buckets,prefill,1,0,9,",        ",sweep,buckets,decode,1,9,2,",
        ",sweep,token by token,prefill,1,0,3,", ",sweep,token by token,decode,1,9,2,"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(r.output.text, rows[i]))
            fail_msg("no '%s' in:\n%s", rows[i], r.output.text);
    assert_null(strstr(r.output.text, ",600,")); /* longer than the context */
    strbuf_free(&r.output);
    snprintf(args, sizeof args, "grep -c '<text.*token by token\\|<text.*buckets' %s",
             in_scratch("sweep.svg"));
    FILE *lines = popen(args, "r");
    int n = 0;
    assert_non_null(lines);
    assert_int_equal(fscanf(lines, "%d", &n), 1);
    pclose(lines);
    assert_int_equal(n, 4);
}

/* As with llama-bench, 0 leaves one of the two out. */
static void bench_measures_what_it_is_asked_for(void **state)
{
    Run r = run("", "bench --preset stories260k --prefill 0 --decode 2 --context 4 -t 1 --json");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.output.text, "\"decode\": {"));
    assert_null(strstr(r.output.text, "\"prefill\""));
    strbuf_free(&r.output);
    r = run("", "bench --preset stories260k --prefill 3 --decode 0 --repeats 1 -t 1");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.output.text, "  prefill 3 "));
    assert_null(strstr(r.output.text, "  decode"));
    strbuf_free(&r.output);
    /* A token waits for its step, however many rows have one; the throughput counts all of them. */
    r = run("", "bench --preset stories260k --prefill 0 --decode 4 --batch 3 -t 1");
    const char *row = strstr(r.output.text, "context 128");
    double step, rate, latency;
    assert_non_null(row);
    assert_int_equal(
        sscanf(row, "context 128 %lf ms %lf tokens/s %lf ms/token", &step, &rate, &latency), 3);
    assert_true(fabs(latency - step) < 0.01 && fabs(rate * latency / 3e3 - 1) < 0.1);
    strbuf_free(&r.output);
    expect(2, "", "bench --preset tiny --prefill 0 --decode 0 2>&1", "nothing to measure");
    expect(2, "", "bench --preset tiny --decode 0 --table 2>&1", "--decode is 0");
    expect(2, "", "bench --preset tiny --decode 0 --sweep 2>&1", "--sweep measures decoding");
    expect(2, "", "bench --preset tiny --svg x.svg 2>&1", "--svg has no effect without --sweep");
    expect(1, "", "bench --preset tiny --sweep --prompts 600 2>&1", "too short for the sweep's");
    expect(2, "", "bench --train --model /tmp 2>&1", "--train needs a --preset");
    expect(0, "",
           "bench --train --preset stories260k --seq 600 --batch 2 --repeats 1 --mesh data=2 -t 1",
           " tokens/s per device   MFU ");
    expect(0, "", "bench --preset stories260k --prefill 0 --decode 2 --batch 2 --mesh data=2 -t 1",
           " tokens/s per device ");
}

/* What takes long says on a terminal what it is at, and leaves nothing of it behind. */
static void bench_shows_its_steps_on_a_terminal(void **state)
{
    if (system("command -v script >/dev/null"))
        skip();
    Run r = {0};
    FILE *pipe = popen("script -qec '" CVN_BINARY
                       " bench --train -p tiny --seq 32 --repeats 1' /dev/null </dev/null",
                       "r");
    char line[4096];
    assert_non_null(pipe);
    while (fgets(line, sizeof line, pipe))
        strbuf_puts(&r.output, line);
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(r.output.text);
    const char *first = strstr(r.output.text, "step 1 of 2, at least ");
    const char *second = first ? strstr(first, "step 2 of 2, ") : NULL;
    const char *wiped = second ? strstr(second, "\r\033[Ktiny, products in") : NULL;
    if (!wiped)
        fail_msg("%s", r.output.text);
    strbuf_free(&r.output);
}

static void a_reader_of_profiles_ends_with_its_pipe(void **state)
{
    char args[512];
    if (system("command -v python3 >/dev/null"))
        skip();
    snprintf(args, sizeof args,
             "bench -p stories260k --prefill 8 --decode 2 --repeats 1 -t 1 --profile %s 2>&1",
             in_scratch("steps.json"));
    expect(0, "", args, "decode");
    snprintf(args, sizeof args,
             "_commands >/dev/null; (python3 " CVN_TEST_DATA "/../../bench/traffic.py %s | true) "
             "2>&1; echo then",
             in_scratch("steps.json"));
    Run r = run("", args);
    assert_string_equal(r.output.text, "then\n");
    strbuf_free(&r.output);
}

/* The proposal is that of the model, whichever engines are measured. */
static void bench_says_once_which_chunk_sizes_a_log_leads_to(void **state)
{
    char args[512];
    assert_int_equal(file_write(in_scratch("lengths"), "5\n100\n40\n", 9, NULL), 0);
    snprintf(args, sizeof args,
             "bench -p stories260k --traffic %s --prefill 8 --decode 2 --sweep --prompts 10,30 "
             "--repeats 1 -t 1 2>&1 | grep -c -e '--buckets'",
             in_scratch("lengths"));
    expect(0, "", args, "1\n");
}

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bench_sweeps_over_the_lengths_of_prompts),
        cmocka_unit_test(bench_measures_what_it_is_asked_for),
        cmocka_unit_test(bench_shows_its_steps_on_a_terminal),
        cmocka_unit_test(a_reader_of_profiles_ends_with_its_pipe),
        cmocka_unit_test(bench_says_once_which_chunk_sizes_a_log_leads_to),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
