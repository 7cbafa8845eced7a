/*
 * What a plugin computes is what the CPU computes. CVN_PJRT_PLUGIN names a plugin of XLA's CPU devices; without it
 * there is nothing to test, and the tests are skipped.
 */
#include "caravan/run.h"
#include "learn.h"
#include "mesh_answers.h"
#include "model_make.h"
#include "shell.h"
#include "tiny_llama.h"

#include <stdlib.h>

static char device[1024], by_xla[1100]; /* the same, its meshes cut by XLA */

static int find_plugin(void **state)
{
    const char *path = getenv("CVN_PJRT_PLUGIN");
    setenv("XLA_FLAGS", "--xla_backend_optimization_level=0", 0); /* compiles in half the time */
    if (path && *path) {
        snprintf(device, sizeof device, "pjrt:%s", path);
        snprintf(by_xla, sizeof by_xla, "%s,partitioner=xla", device);
    } else
        print_message("skipped: CVN_PJRT_PLUGIN names no plugin\n");
    int failed = make_scratch(state);
    setenv("XDG_CACHE_HOME", scratch, 1); /* where compiled programs are kept */
    return failed;
}

static void compare_on(const char *on, const char *variant, const char *quantize, const char *mesh,
                       const char *layout, double most)
{
    Question q = {.variant = variant,
                  .quantize = quantize,
                  .rows = 2,
                  .n_tokens = 40,
                  .n_new = 12,
                  .first = 5,
                  .more = 13};
    Answers cpu;
    cvn_err err = {0};
    if (!*device)
        skip();
    if (answers_ask(&q, NULL, NULL, &cpu, &err))
        fail_msg("%s on the CPU: %s", variant, err.message);
    q.device = on;
    answers_check(&q, &cpu, mesh, layout, most);
}

static void compare(const char *variant, const char *quantize, const char *mesh, const char *layout,
                    double most)
{
    compare_on(device, variant, quantize, mesh, layout, most);
}

static void texts_and_scores_are_those_of_the_cpu(void **state)
{
    compare("gqa", NULL, "", "2d", 1e-5);
}

/* Attention over them is a loop. Of four rows one is nobody's; and prompts are longer than a chunk. */
static void long_caches_are_read_as_the_cpu_reads_them(void **state)
{
    static const char *const caches[] = {NULL, "int8"};
    static const char *const ways[][2] = {{"", "2d"}, {"data=2,model=2", "dp+tp"}};
    char path[600];
    (void)state;
    if (!*device)
        skip();
    snprintf(path, sizeof path, "%s/long", scratch);
    expect(0,
           "caravan init -p dim=32,layers=2,heads=4,kv_heads=2,ffn=64,vocab=97,context=8192 "
           "--dtype f32 -s 3 -o long",
           "");
    for (int i = 0; i < 2; i++) {
        Question q = {.variant = path,
                      .rows = 4,
                      .n_tokens = 40,
                      .n_new = 12,
                      .first = 5,
                      .more = 11,
                      .context = 4200,
                      .kv_cache = caches[i]};
        Answers cpu;
        cvn_err err = {0};
        if (answers_ask(&q, NULL, NULL, &cpu, &err))
            fail_msg("on the CPU: %s", err.message);
        q.device = device;
        for (int w = 0; w < 2; w++)
            answers_check(&q, &cpu, ways[w][0], ways[w][1], caches[i] ? 1e-3 : 1e-5);
    }
}

static void meshes_give_what_one_device_gives(void **state)
{
    static const char *const ways[][2] = {
        {"model=4", "tp"}, {"data=2,model=2", "2d"}, {"data=4", "fsdp"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        compare("gqa", NULL, ways[i][0], ways[i][1], 1e-5);
}

/* XLA's partitioner takes even shards only, so the vocabulary is even; and rows of caches are not split. */
static void what_xla_cuts_gives_the_same(void **state)
{
    char even[600];
    cvn_err err = {0};
    const Question rows = {.variant = even, .rows = 2, .device = by_xla};
    Answers a;
    if (!*device)
        skip();
    snprintf(even, sizeof even, "%s/even", scratch);
    expect(
        0,
        "caravan init -p dim=32,layers=2,heads=4,kv_heads=4,ffn=64,vocab=260,context=128 --dtype "
        "f32 -s 3 -o even",
        "");
    compare_on(by_xla, even, NULL, "model=4", "tp", 1e-5);
    assert_int_equal(answers_ask(&rows, "data=2,model=2", "2d", &a, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "use a mesh without that axis, or partitioner=own"));
}

static void quantized_weights_are_those_of_the_cpu(void **state)
{
    compare("gqa", "int8", "", "2d", 1e-3);
    compare("gqa", "int4:32", "", "2d", 1e-3);
}

/* They go to the device as they are in the file, and are taken apart there. */
static void blocks_of_files_are_those_of_the_cpu(void **state)
{
    static const char *const kinds[][2] = {{"q8_0", ".gguf"}, {"q4_0", ".gguf"}, {"fp8", ""}};
    char path[600];
    (void)state;
    if (!*device)
        skip();
    expect(0,
           "caravan init -p dim=256,layers=2,heads=4,kv_heads=2,ffn=256,vocab=97,context=128 "
           "--dtype f32 -s 3 -o floats",
           "");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *kind = kinds[i][0], *suffix = kinds[i][1];
        snprintf(path, sizeof path, "caravan convert floats %s%s --type %s", kind, suffix, kind);
        expect(0, path, "");
        snprintf(path, sizeof path, "%s/%s%s", scratch, kind, suffix);
        compare(path, NULL, "", "2d", 1e-3);
        compare(path, NULL, "model=2", "tp", 1e-3);
    }
}

enum { STEPS = 50 };

/* On meshes blocks are computed again, so that modules have their fences. */
static void train(const char *on, const char *mesh, const char *layout, int64_t vocab, int steps,
                  double *loss, double *norm)
{
    cvn_err err = {0};
    Trainer t;
    Model *config = tiny_llama_config(&tiny_llamas[TINY_GQA]);
    TrainerOptions o = learn_options(OPTIMIZER_ADAMW, CVN_F32, 4, 4, 8);
    config = model_with(config, "'vocab_size': %d", (int)vocab);
    o.device = on;
    o.mesh = mesh;
    o.layout = layout;
    o.remat = mesh ? REMAT_BLOCK : REMAT_NONE;
    must(trainer_open(&t, config, &o, &err), &err);
    must(trainer_random(&t, 7, &err), &err);
    learn(&t, steps, fill_chains, loss, norm);
    trainer_close(&t);
}

static void training_is_that_of_the_cpu(void **state)
{
    static const struct {
        const char *on, *mesh, *layout;
        int64_t vocab; /* where XLA divides, evenly */
        int steps;
    } runs[] = {{device, NULL, NULL, 97, STEPS},    {device, "data=2,model=2", "2d", 97, 5},
                {device, "data=4", "fsdp", 97, 5},  {by_xla, "data=2,model=2", "2d", 100, 5},
                {by_xla, "data=4", "fsdp", 100, 5}, {by_xla, "model=2", "tp", 100, 5}};
    double loss[2][STEPS], norm[2][STEPS];
    if (!*device)
        skip();
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        train(NULL, NULL, NULL, runs[r].vocab, runs[r].steps, loss[0], norm[0]);
        train(runs[r].on, runs[r].mesh, runs[r].layout, runs[r].vocab, runs[r].steps, loss[1],
              norm[1]);
        for (int i = 0; i < runs[r].steps; i++)
            if (!(fabs(loss[0][i] - loss[1][i]) <= 1e-3) ||
                !(fabs(norm[0][i] - norm[1][i]) <= 1e-2 * norm[0][i]))
                fail_msg("%s on %s: step %d has the loss %.6f, on the CPU %.6f", runs[r].on,
                         runs[r].mesh ? runs[r].mesh : "one device", i + 1, loss[1][i], loss[0][i]);
    }
}

/* Begun on the CPU, gone on with on the plugin, on a mesh of it, ended on the CPU: as if on the CPU all the time. */
static void a_run_goes_on_on_other_devices(void **state)
{
    char command[2400];
    if (!*device)
        skip();
    expect(0, "yes 'a little cat sat on a mat' | head -n 200 > data.txt", "");
    expect(0,
           "caravan train --data data.txt --preset tiny --dtype f32 --batch 4 --seq 16 --steps 9 "
           "--out whole 2>&1",
           "");
    expect(0,
           "caravan train --data data.txt --preset tiny --dtype f32 --batch 4 --seq 16 --steps 9 "
           "--stop-after 3 --out parts 2>&1",
           "");
    snprintf(command, sizeof command,
             "caravan train --resume parts --stop-after 2 --device %s 2>&1", device);
    expect(0, command, "stopped after step 5 of 9");
    snprintf(
        command, sizeof command,
        "caravan train --resume parts --stop-after 2 --mesh data=2 --layout fsdp --device %s 2>&1",
        device);
    expect(0, command, "stopped after step 7 of 9");
    expect(0, "caravan train --resume parts --device cpu --mesh '' 2>&1",
           "finished after step 9 of 9");
    expect(0,
           "for run in whole parts; do sed 's/.*\"loss\":\\([0-9.]*\\).*/\\1/' $run/metrics.jsonl "
           ">$run.txt; done; "
           "paste whole.txt parts.txt | awk '{ d = $1 - $2; bad += d * d > 1e-6 } END { print NR, "
           "bad }'",
           "9 0");
}

/* Attention and its gradient: y, dq, dk, dv, one after another. */
static float *attend(const char *on, int64_t batch, int64_t seq, int64_t heads)
{
    enum { KV = 2, DIM = 8, INPUTS = 7, OUTPUTS = 4 };
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("attend", &err);
    const cvn_type rows = CVN_TYPE(CVN_F32, batch, seq, heads, DIM);
    const cvn_type keys = CVN_TYPE(CVN_F32, batch, KV, seq, DIM);
    const cvn_type types[INPUTS] = {rows,
                                    keys,
                                    keys,
                                    CVN_TYPE(CVN_I32, batch),
                                    CVN_TYPE(CVN_I32, batch),
                                    CVN_TYPE(CVN_I32, batch, seq),
                                    rows};
    cvn_value *in[INPUTS], *d[4];
    void *data[INPUTS], *out[OUTPUTS];
    for (int i = 0; i < INPUTS; i++) {
        int64_t n = cvn_type_elements(&types[i]);
        in[i] = cvn_parameter(
            g, (const char *[]){"q", "k", "v", "start", "length", "first", "dy"}[i], types[i]);
        data[i] = calloc((size_t)n, 4);
        for (int64_t k = 0; k < n; k++)
            if (types[i].dtype == CVN_F32)
                ((float *)data[i])[k] = (float)((k * 37 + i) % 101) / 101 - 0.5F;
            else if (i == 4) /* padding in the last row */
                ((int32_t *)data[i])[k] = (int32_t)(k == batch - 1 ? seq - 5 : seq);
            else if (i == 5) /* two documents a row */
                ((int32_t *)data[i])[k] = (int32_t)(k % seq > 100 ? 101 : 0);
    }
    const cvn_attention_spec spec = {.scale = 0.4, .first = in[5]};
    cvn_output(g, cvn_attention(g, in[0], in[1], in[2], in[3], in[4], &spec));
    cvn_attention_backward(g, in[0], in[1], in[2], in[3], in[4], in[6], &spec, d);
    for (int i = 0; i < 3; i++)
        cvn_output(g, d[i]);
    size_t n[OUTPUTS] = {0}, all = 0;
    for (int i = 0; i < OUTPUTS; i++)
        all += n[i] = (size_t)cvn_type_elements(i == 0 || i == 1 ? &rows : &keys);
    float *result = calloc(all, sizeof *result);
    all = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = result + all;
        all += n[i];
    }
    cvn_mesh *mesh = cvn_mesh_new("", &(cvn_mesh_options){.backend = on}, &err);
    cvn_program *program = cvn_compile(mesh, g, &err);
    must(program ? cvn_run(program, data, out, &err) : err.code, &err);
    cvn_program_free(program);
    cvn_mesh_free(mesh);
    cvn_graph_free(g);
    for (int i = 0; i < INPUTS; i++)
        free(data[i]);
    return result;
}

/* Scores of so many rows, and of so many queries, that they are made block by block. */
static void attention_in_a_loop_is_that_of_the_cpu(void **state)
{
    static const int64_t shapes[][3] = {{4, 512, 8}, {1, 1024, 8}};
    if (!*device)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t *s = shapes[i];
        float *cpu = attend("cpu", s[0], s[1], s[2]), *here = attend(device, s[0], s[1], s[2]);
        int64_t n = s[0] * s[1] * (2 * s[2] + 4) * 8;
        for (int64_t k = 0; k < n; k++)
            if (!(fabsf(cpu[k] - here[k]) <= 2e-5F))
                fail_msg("shape %zu, element %lld: %g, on the CPU %g", i, (long long)k, here[k],
                         cpu[k]);
        free(cpu);
        free(here);
    }
}

static void what_cannot_be_opened_is_said(void **state)
{
    static const struct {
        const char *device, *says;
    } wrong[] = {
        {"gpu", "unknown device 'gpu'; give cpu, tpu, cuda"},
        {"pjrt:", "has no path"},
        {"pjrt:/nowhere.so", "cannot load the plugin"},
        {"pjrt:libm.so.6", "is not a PJRT plugin: it has no GetPjrtApi"},
        {"pjrt:libm.so.6,fast", "'fast' is not a device option"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const Question q = {.variant = "gqa", .rows = 1, .device = wrong[i].device};
        Answers a;
        cvn_err err = {0};
        assert_int_not_equal(answers_ask(&q, NULL, NULL, &a, &err), 0);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("%s: %s", wrong[i].device, err.message);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_scores_are_those_of_the_cpu),
        cmocka_unit_test(long_caches_are_read_as_the_cpu_reads_them),
        cmocka_unit_test(meshes_give_what_one_device_gives),
        cmocka_unit_test(what_xla_cuts_gives_the_same),
        cmocka_unit_test(quantized_weights_are_those_of_the_cpu),
        cmocka_unit_test(blocks_of_files_are_those_of_the_cpu),
        cmocka_unit_test(training_is_that_of_the_cpu),
        cmocka_unit_test(a_run_goes_on_on_other_devices),
        cmocka_unit_test(attention_in_a_loop_is_that_of_the_cpu),
        cmocka_unit_test(what_cannot_be_opened_is_said),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, find_plugin, remove_scratch);
}
