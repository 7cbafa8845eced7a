/*
 * XLA as a second oracle: tests/oracles/sharded.py gave the marked graphs of tests/data/sharded to
 * XLA's own partitioner. Cut by ours they compute the same numbers, and send no more bytes.
 */
#include "base/file.h"
#include "base/json_file.h"
#include "random_graph.h"
#include "shard_run.h"
#include "unit.h"

#include <dirent.h>

/* The same function as `inputs` of sharded.py: element k of parameter p. */
static double input(uint64_t p, uint64_t k, cvn_dtype dtype)
{
    uint64_t z = (k + (p << 40)) * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    int r = (int)((z ^ (z >> 31)) >> 56);
    return dtype == CVN_F32 ? (r - 128) / 64.0 / 8 : (double)(k * 7 % 8);
}

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static void *from_hex(const char *text, const cvn_type *type)
{
    size_t n = cvn_type_bytes(type);
    unsigned char *data = calloc(n + 1, 1);
    assert_non_null(data);
    assert_int_equal(strlen(text), 2 * n);
    for (size_t i = 0; i < n; i++)
        data[i] = (unsigned char)(hex_digit(text[2 * i]) * 16 + hex_digit(text[2 * i + 1]));
    return data;
}

static cvn_graph *read_graph(const char *path)
{
    cvn_err err = {0};
    FileMap map;
    must(file_map(&map, path, &err), &err);
    cvn_graph *g = graph_parse((const char *)map.data, map.size, path, &err);
    file_unmap(&map);
    if (!g || graph_verify(g, &err))
        fail_msg("%s", err.message);
    return g;
}

static double bytes_of(const PartitionReport *report)
{
    double bytes = 0;
    for (int k = 0; k < OP_COUNT; k++)
        bytes += report->bytes[k];
    return bytes;
}

static void check_file(const char *name)
{
    char path[400], other[400];
    cvn_err err = {0};
    snprintf(path, sizeof path, "%s/sharded/%s.txt", CVN_TEST_DATA, name);
    snprintf(other, sizeof other, "%s/sharded/%s.json", CVN_TEST_DATA, name);
    json_t *stored = json_object_read(other, &err);
    cvn_graph *g = read_graph(path), *local;
    Mesh mesh;
    PartitionReport report;
    if (!stored ||
        mesh_parse(&mesh, json_string_value(json_object_get(stored, "mesh")), NULL, &err))
        fail_msg("%s", err.message);
    void **in = calloc((size_t)g->n_parameters, sizeof *in);
    void **out = calloc((size_t)g->n_outputs, sizeof *out);
    for (int p = 0; p < g->n_parameters; p++) {
        const cvn_type *type = &g->parameter[p]->type;
        in[p] = calloc(cvn_type_bytes(type) + 1, 1);
        for (int64_t k = 0; k < cvn_type_elements(type); k++)
            element_set(type->dtype, in[p], k, input((uint64_t)p, (uint64_t)k, type->dtype));
    }
    if (shard_make(g, &mesh, &local, &report, &err) ||
        shard_run(local, &mesh, &report, (const void *const *)in, out, &err))
        fail_msg("%s: %s", name, err.message);
    json_t *outputs = json_object_get(stored, "outputs");
    assert_int_equal(json_array_size(outputs), g->n_outputs);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_type *type = &g->output[i].value->type;
        const json_t *row = json_array_get(outputs, (size_t)i);
        void *want = from_hex(json_string_value(json_object_get(row, "data")), type);
        double difference = shard_difference(type, want, out[i]);
        if (difference > 1e-5)
            fail_msg("%s: output %d differs by %g", name, i, difference);
        free(want);
    }
    double ours = bytes_of(&report), xla = json_number_value(json_object_get(stored, "bytes"));
    print_message("%-16s %-16s sends %8.0f bytes in %2lld collectives, XLA %8.0f\n", name,
                  json_string_value(json_object_get(stored, "mesh")), ours,
                  (long long)report.n_collectives, xla);
    /* A collective is worth 4096 bytes to the partitioner (reshard.c): these graphs are so small
       that it gathers the embedding at once, where XLA sends tokens and rows about. */
    if (ours > xla + 2 * 4096)
        fail_msg("%s: %g bytes, XLA %g", name, ours, xla);
    random_free(in, g->n_parameters);
    random_free(out, g->n_outputs);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    json_decref(stored);
}

static void xla_computes_the_same_and_sends_no_less(void **state)
{
    int n = 0;
    DIR *folder = opendir(CVN_TEST_DATA "/sharded");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char name[200];
        char *dot = strstr(entry->d_name, ".txt");
        if (!dot)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        check_file(name);
        n++;
    }
    closedir(folder);
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xla_computes_the_same_and_sends_no_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
