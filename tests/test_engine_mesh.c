/*
 * The engine on meshes of devices in this process: the same log-probabilities and the same texts as on one device,
 * for every layout. Models are the tiny ones of tests/data/llama.
 */
#include "io/save.h"
#include "model/presets.h"
#include "serve/engine.h"
#include "serve/synthetic.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 40, N_NEW = 12, N_TEXTS = 3 };

/* variant: of tests/data/llama, or the path of a folder. */
static cvn_model *open_tiny(const char *variant, const char *quantize, bool sharded)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {
        .dtype = CVN_F32, .no_tokenizer = true, .no_weights = sharded, .quantize = quantize};
    if (variant[0] == '/')
        snprintf(path, sizeof path, "%s", variant);
    else
        snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    if (cvn_model_open(path, &options, &model, &err))
        fail_msg("%s", err.message);
    return model;
}

/* What an engine computes: log-probabilities of a text, and texts that several prompts go on with. */
typedef struct Answers {
    float logprob[N_TOKENS];
    int32_t argmax[N_TOKENS];
    int32_t text[N_TEXTS][N_NEW];
    int n[N_TEXTS];
} Answers;

static bool collect(void *context, int request, int32_t token)
{
    Answers *a = context;
    a->text[request][a->n[request]++] = token;
    return true;
}

static int ask(const char *variant, const char *quantize, const char *mesh, const char *layout,
               Answers *a, cvn_err *err)
{
    /* "packed": the weights are opened with the model, and lie in panels as on one device */
    bool packed = quantize && strcmp(quantize, "packed") == 0;
    cvn_model *model = open_tiny(variant, packed ? NULL : quantize, mesh && !packed);
    cvn_engine *engine = NULL;
    cvn_engine_options options = {.rows = 2,
                                  .threads = 1,
                                  .scoring = true,
                                  .context = 64,
                                  .eos_interval = 2,
                                  .n_buckets = 1,
                                  .bucket = {16},
                                  .mesh = mesh,
                                  .layout = layout};
    int64_t vocab = cvn_model_vocab(model);
    int32_t token[N_TOKENS];
    cvn_request request[N_TEXTS] = {0};
    cvn_result result[N_TEXTS];
    for (int i = 0; i < N_TOKENS; i++)
        token[i] = (int32_t)((i * 37 + 11) % vocab);
    for (int i = 0; i < N_TEXTS; i++)
        request[i] = (cvn_request){.prompt = token + i,
                                   .n_prompt = 5 + 13 * i,
                                   .max_tokens = N_NEW,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
    *a = (Answers){0};
    int rc = cvn_engine_new(model, &options, &engine, err);
    if (!rc)
        rc = cvn_engine_score(engine, token, N_TOKENS, a->logprob, a->argmax, err);
    if (!rc)
        rc = cvn_engine_generate(engine, request, N_TEXTS, collect, a, NULL, result, err);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    return rc;
}

static void compare(const char *variant, const char *quantize, const char *mesh, const char *layout)
{
    Answers whole, parts;
    cvn_err err = {0};
    /* Products with quantized weights take activations as 16 bits, in spans of 512 that share a scale: what is summed
       in parts has other spans. */
    bool quantized = quantize || strstr(variant, "/int");
    double most = quantized ? 1e-4 : 1e-5;
    if (ask(variant, quantize, NULL, NULL, &whole, &err) ||
        ask(variant, quantize, mesh, layout, &parts, &err))
        fail_msg("%s on %s by %s: %s", variant, mesh, layout, err.message);
    for (int i = 1; i < N_TOKENS; i++) {
        double a = (double)whole.logprob[i], b = (double)parts.logprob[i];
        if (!(fabs(a - b) <= most * (1 + fabs(a))))
            fail_msg("%s on %s by %s: token %d scores %.7f, not %.7f", variant, mesh, layout, i, b,
                     a);
    }
    for (int t = 0; t < N_TEXTS; t++)
        if (parts.n[t] != N_NEW || memcmp(whole.text[t], parts.text[t], sizeof whole.text[t]) != 0)
            fail_msg("%s on %s by %s: text %d differs", variant, mesh, layout, t);
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

static char scratch[] = "/tmp/caravan-mesh-XXXXXX";

/* A shape whose matrices divide into panels and groups: a folder of floats, and two of them quantized. */
static int write_models(void **state)
{
    static const char *const schemes[] = {"int8", "int4:32"};
    char floats[64], quantized[64];
    cvn_err err = {0};
    LlamaConfig config;
    SaveOptions options = {.dtype = CVN_F32, .threads = 1};
    IoModel model;
    (void)state;
    if (!mkdtemp(scratch))
        return -1;
    snprintf(floats, sizeof floats, "%s/floats", scratch);
    int code = preset_config("tiny", &config, &err);
    if (code || save_folder(floats, &config, &options, init_fill, &(uint64_t){7}, &err) ||
        io_open_model(&model, floats, &err))
        return -1;
    for (int i = 0; i < 2 && !code; i++) {
        QuantScheme scheme;
        snprintf(quantized, sizeof quantized, "%s/%s", scratch, schemes[i]);
        code = quant_parse(schemes[i], &scheme, &err);
        if (!code)
            code = save_model_quantized(quantized, &model, scheme, &options, &err);
    }
    io_close_model(&model);
    return code;
}

static int remove_models(void **state)
{
    char line[64];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", scratch);
    return system(line);
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
    compare(floats, "packed", "data=2,model=2", "2d");
    compare("gqa", "packed", "model=2", "tp");
    compare("gqa", "int8", "model=2", "tp"); /* heads of 20 do not make panels of 16 */
}

/* Device d's part of a model, as a process of its own would read it. */
static void read_part(const cvn_model *model, const char *mesh, const char *layout, int d,
                      double *read, double *held)
{
    EngineMesh m;
    cvn_err err = {0};
    PartitionReport report;
    LlamaStep step = {
        .batch = 4, .seq = 1, .context = 16, .compute = CVN_F32, .output = LLAMA_SAMPLE};
    cvn_graph *g = llama_step(&model->io.config, &step, &err), *local;
    if (!g || engine_mesh_init(&m, model, mesh, layout, NULL, 1, 4, 16, CVN_F32, &err))
        fail_msg("%s", err.message);
    m.devices.first = d;
    m.devices.n_local = 1;
    if (engine_mesh_partition(&m, g, &local, &report, &err))
        fail_msg("%s", err.message);
    *read = m.read_bytes;
    *held = (double)engine_mesh_weight_bytes(&m);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    engine_mesh_free(&m);
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
        cvn_model *model = open_tiny(path, NULL, true);
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

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    Answers a;
    cvn_err err = {0};
    assert_int_equal(ask("gqa", NULL, "data=x", "2d", &a, &err), CVN_EINVAL);
    err = (cvn_err){0};
    assert_int_equal(ask("gqa", NULL, "data=2", "3d", &a, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "is no layout"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_give_what_one_device_gives),
        cmocka_unit_test(quantized_models_give_the_same_in_parts),
        cmocka_unit_test(a_process_reads_and_holds_its_own_part),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, write_models, remove_models);
}
