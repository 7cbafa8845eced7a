/*
 * The engine on meshes of devices in this process: the same log-probabilities and the same texts as on one device,
 * for every layout. Models are the tiny ones of tests/data/llama.
 */
#include "io/save.h"
#include "mesh_answers.h"
#include "model/layouts.h"
#include "model/presets.h"
#include "model_make.h"
#include "scratch.h"
#include "serve/load.h"
#include "shell.h"

/* The answers of one device are asked for once for each model and kept. */
static const Answers *alone(const Question *q)
{
    static struct {
        char variant[64], quantize[16];
        Answers answers;
    } known[16];
    static int n;
    const char *quantize = q->quantize ? q->quantize : "";
    cvn_err err = {0};
    for (int i = 0; i < n; i++)
        if (strcmp(known[i].variant, q->variant) == 0 && strcmp(known[i].quantize, quantize) == 0)
            return &known[i].answers;
    assert_true(n < 16);
    snprintf(known[n].variant, sizeof known[n].variant, "%s", q->variant);
    snprintf(known[n].quantize, sizeof known[n].quantize, "%s", quantize);
    if (answers_ask(q, NULL, NULL, &known[n].answers, &err))
        fail_msg("%s on one device: %s", q->variant, err.message);
    return &known[n++].answers;
}

static Question question(const char *variant, const char *quantize)
{
    return (Question){variant,     quantize,   .rows = 2, .n_tokens = 40,
                      .n_new = 12, .first = 5, .more = 13};
}

static void compare(const char *variant, const char *quantize, const char *mesh, const char *layout)
{
    /* Products with quantized weights take activations as 16 bits, in spans of 512 that share a scale: what is summed
       in parts has other spans. */
    bool quantized = quantize || strstr(variant, "/int");
    Question q = question(variant, quantize);
    answers_check(&q, alone(&q), mesh, layout, quantized ? 1e-4 : 1e-5);
}

static void meshes_give_what_one_device_gives(void **state)
{
    (void)state;
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    static const char *const meshes[] = {"data=2,model=2", "model=2", "data=2",
                                         "data=3",         "model=3", "data=2,model=4",
                                         "data=3,model=2"};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            compare(m % 2 ? "mha" : "gqa", NULL, meshes[m], layouts[l]);
    compare("gqa", NULL, "data=1", "2d");
    compare("gqa", NULL, "model=4", "2d");
}

/* A shape whose matrices divide into panels and groups: a folder of floats, and two of them quantized. */
static int write_models(void **state)
{
    static const char *const schemes[] = {"int8", "int4:32"};
    char floats[64], line[80];
    cvn_err err = {0};
    SaveOptions options = {.dtype = CVN_F32, .threads = 1};
    if (make_scratch(state))
        return -1;
    snprintf(floats, sizeof floats, "%s/floats", scratch);
    int code = 0;
    if (save_folder(floats, model_preset("tiny"), &options, init_fill, &(uint64_t){7}, &err))
        return -1;
    for (int i = 0; i < 2 && !code; i++) {
        snprintf(line, sizeof line, "caravan convert floats %s --type %s", schemes[i], schemes[i]);
        StrBuf output = shell(line, &code);
        strbuf_free(&output);
    }
    return code;
}

static void quantized_models_give_the_same_in_parts(void **state)
{
    (void)state;
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    static const char *const meshes[] = {"data=2,model=2", "model=4", "model=3", "data=3,model=2"};
    static const struct {
        const char *folder, *quantize;
    } models[] = {{"floats", "int8"}, {"floats", "int4:32"}, {"int8", NULL}, {"int4:32", NULL}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            char path[64];
            snprintf(path, sizeof path, "%s/%s", scratch, models[(l + m) % 4].folder);
            compare(path, models[(l + m) % 4].quantize, meshes[m], layouts[l]);
        }
    char floats[64];
    snprintf(floats, sizeof floats, "%s/floats", scratch);
    compare(floats, NULL, "data=2,model=2", "2d");
    compare("gqa", NULL, "model=2", "tp");
    compare("gqa", "int8", "model=2", "tp"); /* heads of 20 do not make panels of 16 */
}

typedef struct Marks {
    const Model *config;
    const char *layout;
} Marks;

static int mark(void *context, cvn_graph *g, const Mesh *mesh, cvn_err *err)
{
    const Marks *m = context;
    return model_mark(g, m->config, mesh, m->layout, err);
}

/* Device d's part of a model, as a process of its own would read it. */
static void read_part(const cvn_model *model, const char *mesh, const char *layout, int d,
                      double *read, double *held)
{
    Runtime rt;
    Program program;
    LoadReport report;
    cvn_err err = {0};
    const Marks marks = {model->io.desc, layout};
    ModelStep step = {
        .batch = 4, .seq = 1, .context = 16, .compute = CVN_F32, .output = STEP_SAMPLE};
    const RuntimeOptions options = {.mesh = mesh, .devices.threads = 1};
    const ProgramOptions how = {
        .mark = mark, .context = (void *)(uintptr_t)&marks, .whole_inputs = true};
    cvn_graph *g = model_step(model->io.desc, &step, &err);
    if (!g || runtime_open(&rt, &options, &err))
        fail_msg("%s", err.message);
    rt.info.first = d;
    rt.info.n_local = 1;
    if (program_make(&program, &rt, g, &how, &err) || load_weights(&rt, model, NULL, &report, &err))
        fail_msg("%s", err.message);
    *read = report.read_bytes;
    *held = (double)runtime_role_bytes(&rt, ROLE_WEIGHT);
    program_free(&program);
    cvn_graph_free(g);
    runtime_close(&rt);
}

/* Norms are everyone's, and little; all else is read once by the processes together. */
static void a_process_reads_and_holds_its_own_part(void **state)
{
    (void)state;
    static const char *const layouts[] = {"tp", "fsdp", "2d", "fsdp+tp"};
    static const char *const folders[] = {"floats", "int8", "int4:32"};
    for (int f = 0; f < 3; f++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", scratch, folders[f]);
        cvn_model *model = answers_model(path, NULL);
        double size = 0, norms = 0;
        for (int i = 0; i < model->io.params.n; i++) {
            const Param *p = &model->io.params.param[i];
            size += (double)param_bytes(p, CVN_F32);
            norms += p->init == INIT_ONES || p->form == PARAM_SCALES
                         ? (double)param_bytes(p, CVN_F32)
                         : 0;
        }
        for (int l = 0; l < 4; l++) {
            const char *mesh = l == 0 ? "model=4" : l == 1 ? "data=4" : "data=2,model=2";
            double sum = 0;
            for (int d = 0; d < 4; d++) {
                double read, held;
                read_part(model, mesh, layouts[l], d, &read, &held);
                sum += read;
                double most = 1.01 * (size - norms) / 4 + norms + 4096;
                if (!(read <= most && held <= most))
                    fail_msg("%s by %s: device %d reads %.0f bytes and holds %.0f, of %.0f",
                             folders[f], layouts[l], d, read, held, size);
            }
            assert_true(sum >= size - norms);
        }
        cvn_model_free(model);
    }
}

/* A back end whose second device has no memory. */
static Backend full;

static int alloc_on_one(Devices *devices, int d, const MemoryOptions *options, Memory **out,
                        cvn_err *err)
{
    return d ? err_set(err, CVN_EMEM, "no memory")
             : backends[0]->alloc(devices, d, options, out, err);
}

static void a_buffer_has_memory_on_all_devices_or_none(void **state)
{
    (void)state;
    Runtime rt;
    Program program;
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("g", &err);
    cvn_value *w = graph_role(cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 4)), ROLE_ARRAY, 0);
    const RuntimeOptions options = {.mesh = "data=2", .devices.threads = 1};
    cvn_output(g, cvn_negate(g, w));
    if (runtime_open(&rt, &options, &err) ||
        program_make(&program, &rt, g, &(ProgramOptions){0}, &err))
        fail_msg("%s", err.message);
    full = *backends[0];
    full.alloc = alloc_on_one;
    Buffer *b = runtime_buffer(&rt, ROLE_ARRAY, 0);
    rt.backend = &full;
    assert_int_equal(buffer_clear(&rt, b, &err), CVN_EMEM);
    assert_null(b->memory);
    rt.backend = backends[0];
    assert_int_equal(buffer_clear(&rt, b, &err), CVN_OK);
    program_free(&program);
    cvn_graph_free(g);
    runtime_close(&rt);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    Answers a;
    cvn_err err = {0};
    Question q = question("gqa", NULL);
    assert_int_equal(answers_ask(&q, "data=x", "2d", &a, &err), CVN_EINVAL);
    err = (cvn_err){0};
    assert_int_equal(answers_ask(&q, "data=2", "3d", &a, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "is not a layout"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_give_what_one_device_gives),
        cmocka_unit_test(quantized_models_give_the_same_in_parts),
        cmocka_unit_test(a_process_reads_and_holds_its_own_part),
        cmocka_unit_test(a_buffer_has_memory_on_all_devices_or_none),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, write_models, remove_scratch);
}
