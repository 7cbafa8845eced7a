/*
 * What communication came to, in one process and in several (test_plan_matches.c has it against plans): what
 * is told of it in JSON, metrics and reports; and the trace, whose slices must lie as Perfetto can show them.
 */
#include "comm/account.h"
#include "cpu/trace.h"
#include "mesh_support.h"
#include "ranks.h"
#include "shell.h"

#include <jansson.h>

/* ---- tables ---- */

static void tables_are_added_and_taken_away_by_kind_and_axes(void **state)
{
    CommTable a = {.n = 2}, b = {.n = 2}, sum = {0};
    a.row[0] = (CommRow){OP_ALL_REDUCE, "data", 4, 100, 2, 1};
    a.row[1] = (CommRow){OP_ALL_REDUCE, "model", 2, 50, 1, 1};
    b.row[0] = (CommRow){OP_ALL_GATHER, "data", 1, 10, 0.5, 0.25};
    b.row[1] = (CommRow){OP_ALL_REDUCE, "data", 2, 50, 1, 0.5};
    comm_table_add(&sum, &a);
    comm_table_add(&sum, &b);
    assert_int_equal(sum.n, 3);
    assert_int_equal(sum.row[0].count, 6);
    assert_true(sum.row[0].bytes == 150 && sum.row[0].seconds == 3 && sum.row[0].exposed == 1.5);
    CommRow all = comm_table_sum(&sum);
    assert_true(all.count == 9 && all.bytes == 210 && all.seconds == 4.5 && all.exposed == 2.75);
    comm_table_since(&sum, &b);
    assert_int_equal(sum.n, 2); /* the gather is gone */
    assert_string_equal(sum.row[1].axes, "model");
    comm_table_divide(&sum, 2);
    assert_true(sum.row[0].count == 2 && sum.row[0].bytes == 50 && sum.row[1].exposed == 0.5);
}

static void kinds_that_do_not_fit_are_counted_in_the_last_row(void **state)
{
    CommTable all = {0};
    for (int i = 0; i < COMM_ROWS + 5; i++) {
        CommTable one = {.n = 1};
        one.row[0] = (CommRow){.kind = OP_ALL_GATHER, .count = 1, .bytes = 8};
        snprintf(one.row[0].axes, sizeof one.row[0].axes, "axis%d", i);
        comm_table_add(&all, &one);
    }
    assert_int_equal(all.n, COMM_ROWS);
    assert_int_equal(all.row[COMM_ROWS - 1].count, 6);
    assert_true(comm_table_sum(&all).bytes == 8 * (COMM_ROWS + 5));
}

typedef struct Watched {
    int n;
    double bytes;
    bool ordered; /* start, arrival and end follow each other */
} Watched;

static void count_event(void *context, const CommEvent *event)
{
    Watched *w = context;
    w->n++;
    w->bytes += event->bytes;
    w->ordered = w->ordered && event->begun <= event->arrived && event->begun <= event->asked &&
                 event->asked <= event->ended && event->arrived <= event->ended &&
                 event->exposed <= event->ended - event->begun;
}

/* Sums over pairs of 4 devices, three of them in a row, and one over all, run twice. */
static void every_collective_is_counted_named_and_told(void **state)
{
    static const int64_t pairs[] = {0, 1, 2, 3}, all[] = {0, 1, 2, 3};
    static float data[1000];
    cvn_err err = {0};
    Comm *comm = comm_new(4, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    assert_non_null(group);
    cvn_graph *g = cvn_graph_new("sums", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 1000));
    for (int i = 0; i < 3; i++)
        x = cvn_all_reduce(g, x, CVN_SUM, 2, 2, pairs);
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 1, 4, all));
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    Plan *plan = NULL;
    assert_int_equal(compile_graph(g, &options, &plan, &err), CVN_OK);
    const Ints groups = {4, (int64_t *)(uintptr_t)pairs};
    assert_int_equal(comm_name_axes(comm, &groups, 2, "model", &err), CVN_OK);
    assert_int_equal(comm_name_axes(comm, &groups, 2, "again", &err), CVN_OK);
    assert_int_equal(comm_name_axes(comm, &groups, 4, "data*model", &err), CVN_OK);
    Watched seen = {.ordered = true};
    CommWatch watch = {count_event, &seen};
    void *parameters[4] = {data, data, data, data};
    for (int i = 0; i < 2; i++)
        assert_int_equal(group_run(group, plan, parameters, NULL, &err), CVN_OK);
    CommTable table;
    comm_table(comm, &table);
    assert_int_equal(table.n, 2);
    assert_string_equal(table.row[0].axes, "model");
    assert_int_equal(table.row[0].count, 6);
    assert_true(table.row[0].bytes == 6 * 4000.0); /* 2 S (n - 1) / n */
    assert_string_equal(table.row[1].axes, "data*model");
    assert_int_equal(table.row[1].count, 2);
    assert_true(table.row[1].bytes == 2 * 6000.0);
    for (int i = 0; i < 2; i++)
        assert_true(table.row[i].exposed > 0 && table.row[i].seconds >= table.row[i].exposed);
    /* The executor asks for what a device's profile wants; without one nobody is told. */
    comm_watch(comm, 2, &watch);
    assert_int_equal(group_run(group, plan, parameters, NULL, &err), CVN_OK);
    assert_int_equal(seen.n, 0);
    Trace *trace = trace_begin(group->device, 4, 0, &err);
    assert_non_null(trace);
    assert_int_equal(group_run(group, plan, parameters, NULL, &err), CVN_OK);
    size_t n;
    const CommEvent *event = profile_collectives(group->device[2]->profile, &n);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++)
        count_event(&seen, &event[i]);
    assert_true(seen.ordered);
    assert_true(seen.bytes == 3 * 4000.0 + 6000);
    trace_free(trace);
    plan_free(plan);
    cvn_graph_free(g);
    group_free(group);
    comm_free(comm);
}

/* ---- what is told ---- */

static json_t *json_of(const char *line)
{
    int status;
    json_error_t error;
    StrBuf text = shell(line, &status);
    json_t *json = json_loads(text.text, 0, &error);
    if (status || !json)
        fail_msg("%s\nexit %d: %s", line, status, text.text);
    strbuf_free(&text);
    return json;
}

static void check_keys(const json_t *list)
{
    size_t i;
    json_t *row;
    assert_true(json_array_size(list) > 0);
    json_array_foreach(list, i, row)
    {
        assert_true(json_is_string(json_object_get(row, "collective")));
        assert_true(json_is_string(json_object_get(row, "axis")));
        assert_true(json_integer_value(json_object_get(row, "count")) > 0);
        double seconds = json_number_value(json_object_get(row, "seconds"));
        double exposed = json_number_value(json_object_get(row, "exposed_seconds"));
        assert_true(json_number_value(json_object_get(row, "bytes")) > 0);
        assert_true(exposed > 0 && seconds >= exposed);
    }
}

#define TRAIN_BENCH                                                                                \
    "bench --train --preset stories260k --batch 4 --seq 16 --repeats 2 --threads 1 --dtype f32 "   \
    "--mesh data=2,model=2 --json"

/* Counts and bytes of a list, as text. */
static void describe(const json_t *list, StrBuf *out)
{
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) strbuf_printf(
        out, "%s %s %lld %.0f\n", json_string_value(json_object_get(row, "collective")),
        json_string_value(json_object_get(row, "axis")),
        (long long)json_integer_value(json_object_get(row, "count")),
        json_number_value(json_object_get(row, "bytes")));
}

/* Tokens per second of all devices are those of one, as often as there are devices. */
static void check_speeds(const json_t *figures, int devices)
{
    double all = json_number_value(json_object_get(figures, "tokens_per_second"));
    double one = json_number_value(json_object_get(figures, "tokens_per_second_per_device"));
    assert_true(one > 0 && fabs(all / one - devices) < 1e-6);
}

static void bench_tells_it_in_json(void **state)
{
    json_t *train = json_of("caravan " TRAIN_BENCH);
    check_keys(json_object_get(train, "communication"));
    check_speeds(json_object_get(train, "train"), 4);
    assert_int_equal(json_integer_value(json_object_get(train, "devices")), 4);
    const json_t *memory = json_object_get(train, "device_memory");
    assert_true(json_number_value(json_object_get(memory, "optimizer")) > 0);
    json_decref(train);
    json_t *one = json_of("caravan bench --train --preset stories260k --batch 4 --seq 16 "
                          "--repeats 1 --threads 1 --json");
    assert_null(json_object_get(one, "communication"));
    check_speeds(json_object_get(one, "train"), 1);
    json_decref(one);
    json_t *run = json_of("caravan bench --preset stories260k --prefill 16 --decode 4 --repeats 1 "
                          "--threads 1 --mesh model=2 --layout tp --json");
    const json_t *list = json_object_get(run, "communication");
    check_keys(list);
    check_speeds(json_object_get(run, "prefill"), 2);
    check_speeds(json_object_get(run, "decode"), 2);
    size_t i, parts[2] = {0};
    json_t *row;
    json_array_foreach(list, i, row)
        parts[strcmp(json_string_value(json_object_get(row, "part")), "decode") == 0]++;
    assert_true(parts[0] > 0 && parts[1] > 0);
    json_decref(run);
}

/* The engine of this has room for 7 + 4 + 1 tokens. */
static void bench_tells_the_memory_that_was_planned(void **state)
{
    static const char *const kept[] = {"weights", "kv_cache"};
    json_t *bench = json_of("caravan bench --preset stories260k --prefill 0 --decode 4 --context 7 "
                            "--batch 4 --threads 1 --mesh data=2,model=2 --json");
    json_t *plan = json_of("caravan plan --preset stories260k --batch 4 --context 12 "
                           "--mesh data=2,model=2 --device cpu --json");
    const json_t *got = json_object_get(bench, "device_memory");
    const json_t *want = json_object_get(plan, "device_memory");
    for (int i = 0; i < 2; i++) {
        double bytes = json_number_value(json_object_get(want, kept[i]));
        assert_true(bytes > 0 && json_number_value(json_object_get(got, kept[i])) == bytes);
    }
    /* It has programs for prompts, too. */
    assert_true(json_number_value(json_object_get(got, "temporaries")) >=
                json_number_value(json_object_get(want, "temporaries")));
    double sum = 0;
    static const char *const parts[] = {"weights", "kv_cache", "inputs", "temporaries"};
    for (int i = 0; i < 4; i++)
        sum += json_number_value(json_object_get(got, parts[i]));
    assert_true(json_number_value(json_object_get(got, "total")) == sum);
    json_decref(bench);
    json_decref(plan);
}

static void processes_count_what_threads_count(void **state)
{
    need_mpirun();
    char line[512];
    snprintf(line, sizeof line, RANKS TRAIN_BENCH " --profile ranks.json", 2);
    json_t *one = json_of("caravan " TRAIN_BENCH), *two = json_of(line);
    StrBuf a = {0}, b = {0};
    describe(json_object_get(one, "communication"), &a);
    describe(json_object_get(two, "communication"), &b);
    check_keys(json_object_get(two, "communication"));
    assert_string_equal(a.text, b.text);
    strbuf_free(&a);
    strbuf_free(&b);
    json_decref(one);
    json_decref(two);
}

static void training_tells_it_where_there_are_several_devices(void **state)
{
#define OPTIONS                                                                                    \
    "caravan train --data story.txt --preset stories260k --seq 16 --batch 4 --steps 3 --threads "  \
    "1 --dtype f32 "
    expect(0,
           "for i in $(seq 200); do echo The fox saw a red door. My aunt lost two apples.; done "
           "> story.txt; " OPTIONS
           "--out mesh --mesh data=2 --layout fsdp --profile train.json 2>&1",
           "comm");
    expect(0,
           "grep -c '\"comm_seconds\":.*\"comm_exposed_seconds\":.*\"comm_bytes\":' "
           "mesh/metrics.jsonl",
           "3");
    expect(0, "grep -c 'Communication of a step' mesh/report.html", "1");
    expect(0, "caravan train --resume mesh --stop-after 1 2>&1", "finished");
    expect(0, OPTIONS "--out one 2>&1", "finished");
    expect(1, "grep comm one/metrics.jsonl one/report.html | grep -v 'figcaption'", "");
#undef OPTIONS
}

/* ---- traces ---- */

typedef struct Slice {
    int64_t pid, tid;
    double begin, end; /* microseconds */
} Slice;

static int by_track(const void *left, const void *right)
{
    const Slice *a = left, *b = right;
    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    if (a->tid != b->tid)
        return a->tid < b->tid ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Slices of a track follow each other, every process and track has a name, and collectives say what they are. Returns
   how many there are, which must be as many as the steps that end them. */
static int check_trace(const char *name, int n_devices, const char *axes)
{
    char path[128];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    json_t *trace = json_load_file(path, 0, &error), *event;
    if (!trace)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    const json_t *events = json_object_get(trace, "traceEvents");
    Slice *slice = calloc(json_array_size(events), sizeof *slice);
    size_t i, n = 0;
    int collectives = 0, ends = 0, devices = 0;
    json_array_foreach(events, i, event)
    {
        const json_t *args = json_object_get(event, "args");
        const char *kind = json_string_value(json_object_get(event, "name"));
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) {
            devices += strcmp(kind, "process_name") == 0;
            continue;
        }
        slice[n].pid = json_integer_value(json_object_get(event, "pid"));
        slice[n].tid = json_integer_value(json_object_get(event, "tid"));
        slice[n].begin = json_number_value(json_object_get(event, "ts"));
        slice[n].end = slice[n].begin + json_number_value(json_object_get(event, "dur"));
        assert_true(slice[n].begin >= 0 && slice[n].end >= slice[n].begin);
        n++;
        const char *category = json_string_value(json_object_get(event, "cat"));
        if (strcmp(category, "communication") == 0) {
            collectives++;
            assert_non_null(strstr(axes, json_string_value(json_object_get(args, "axis"))));
            assert_true(json_number_value(json_object_get(args, "bytes")) > 0);
        } else if (strcmp(category, "exposed") == 0) {
            size_t length = strlen(kind);
            ends += length < 6 || strcmp(kind + length - 6, " start") != 0;
        }
    }
    qsort(slice, n, sizeof *slice, by_track);
    for (i = 1; i < n; i++)
        if (slice[i].pid == slice[i - 1].pid && slice[i].tid == slice[i - 1].tid &&
            slice[i].begin < slice[i - 1].end - 0.0021)
            fail_msg("%s: slices of track %d of device %d cross at %.3f", name, (int)slice[i].tid,
                     (int)slice[i].pid, slice[i].begin);
    assert_int_equal(slice[n - 1].pid - slice[0].pid + 1, n_devices);
    assert_int_equal(devices, n_devices);
    assert_int_equal(collectives, ends);
    free(slice);
    json_decref(trace);
    return collectives;
}

static void a_trace_has_every_collective_of_every_device(void **state)
{
    check_trace("train.json", 2, "data _");
    json_t *json = json_of("caravan " TRAIN_BENCH " --profile bench.json");
    const json_t *list = json_object_get(json, "communication");
    size_t i;
    json_t *row;
    int64_t count = 0;
    json_array_foreach(list, i, row) count += json_integer_value(json_object_get(row, "count"));
    /* 4 devices, two steps that are measured and one that is not */
    assert_int_equal(check_trace("bench.json", 4, "data model data*model _"), 4 * 3 * count);
    if (have_mpirun()) /* of the test above: both processes are in the file of the first */
        assert_int_equal(check_trace("ranks.json", 4, "data model data*model _"), 4 * 3 * count);
    json_decref(json);
}

static void generate_and_score_write_traces_on_a_mesh(void **state)
{
    expect(0,
           "caravan generate -m model -p 'Hi' -n 3 --threads 1 --mesh model=2 --layout tp "
           "--profile text.json 2>&1",
           "communication of this run");
    check_trace("text.json", 2, "model _");
    expect(0,
           "caravan score -m model --text 'Hi there' --summary --threads 1 --mesh model=2 "
           "--layout tp --profile score.json 2>&1",
           "all_reduce");
    check_trace("score.json", 2, "model _");
    expect(0, "caravan generate -m model -p 'Hi' -n 3 --threads 2 --profile one.json 2>&1",
           "generated");
    assert_int_equal(check_trace("one.json", 1, ""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_added_and_taken_away_by_kind_and_axes),
        cmocka_unit_test(kinds_that_do_not_fit_are_counted_in_the_last_row),
        cmocka_unit_test(every_collective_is_counted_named_and_told),
        cmocka_unit_test(bench_tells_it_in_json),
        cmocka_unit_test(bench_tells_the_memory_that_was_planned),
        cmocka_unit_test(processes_count_what_threads_count),
        cmocka_unit_test(training_tells_it_where_there_are_several_devices),
        cmocka_unit_test(a_trace_has_every_collective_of_every_device),
        cmocka_unit_test(generate_and_score_write_traces_on_a_mesh),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
