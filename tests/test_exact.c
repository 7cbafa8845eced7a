/*
 * Exact numerics: the forward pass of training gives each token the log-probability that scoring gives it (and so drawing it, which
 * test_cut.c holds to scoring), bit for bit, for all families of the fixtures, in f32 and bf16. (Dynamic rotary scaling goes by the
 * length of the text in training, and by the engine's context in serving: those two are different models.)
 */
#include "base/num.h"
#include "caravan/engine.h"
#include "caravan/run.h"
#include "llama_fixture.h"
#include "model/forward.h"
#include "unit.h"

enum { TOKENS = 64 };

/* -loss of each token but the first, as a batch of the text twice gives it. */
static void train_forward(const LlamaFixture *f, cvn_dtype dtype, const int32_t *text, int64_t n,
                          float *logprob)
{
    cvn_err err = {0};
    enum { BATCH = 2 };
    cvn_graph *g = cvn_graph_new("exact", &err);
    void *inputs[512];
    cvn_value *weight[510];
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    float loss_of[BATCH * TOKENS];
    assert_non_null(g);
    assert_true(f->params.n < 510);
    for (int i = 0; i < f->params.n; i++) {
        const Param *p = &f->params.param[i];
        weight[i] = cvn_parameter(g, p->name, cvn_type_make(dtype, p->rank, p->dims));
        inputs[i] = f->weight[i];
    }
    const cvn_type grid = CVN_TYPE(CVN_I32, BATCH, n);
    const ModelBatch batch = {.tokens = cvn_parameter(g, "tokens", grid),
                              .targets = cvn_parameter(g, "targets", grid),
                              .exact = true};
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < n; i++) {
            tokens[b * n + i] = text[i];
            targets[b * n + i] = i + 1 < n ? text[i + 1] : -1;
        }
    inputs[f->params.n] = tokens;
    inputs[f->params.n + 1] = targets;
    ModelLoss loss;
    must(model_loss(g, f->model, dtype, weight, &batch, &loss, &err), &err);
    cvn_output(g, loss.entropy);
    cvn_mesh *mesh = cvn_mesh_new("", &(cvn_mesh_options){.threads = 1, .backend = "cpu"}, &err);
    cvn_program *program = cvn_compile(mesh, g, &err);
    if (!program)
        fail_msg("%s", err.message);
    must(cvn_run(program, inputs, (void *[]){loss_of}, &err), &err);
    for (int64_t i = 0; i < n - 1; i++) {
        logprob[i + 1] = -loss_of[i];
        assert_memory_equal(&loss_of[i], &loss_of[n + i], sizeof(float));
    }
    cvn_program_free(program);
    cvn_mesh_free(mesh);
    cvn_graph_free(g);
}

static void score(const char *variant, cvn_dtype dtype, const int32_t *text, int64_t n,
                  float *logprob)
{
    cvn_err err = {0};
    char folder[512];
    cvn_model *model = NULL;
    cvn_engine *e = NULL;
    int32_t argmax[TOKENS];
    snprintf(folder, sizeof folder, "%s/llama/%s", CVN_TEST_DATA, variant);
    const cvn_model_options open = {.dtype = dtype, .no_tokenizer = true};
    must(cvn_model_open(folder, &open, &model, &err), &err);
    const cvn_engine_options options = {
        .slots = 1, .threads = 1, .context = n, .scoring = true, .no_generation = true};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    must(cvn_engine_score(e, text, n, logprob, argmax, &err), &err);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* Dynamic rope scaling goes by the length of a text; weights in blocks are multiplied as they lie where texts are served, and widened
   where they are trained. */
static bool is_exact(const char *variant)
{
    return strcmp(variant, "dynamic_rope") != 0 && strcmp(variant, "gpt_oss_moe_mxfp4") != 0;
}

static void training_gives_tokens_the_log_probabilities_of_decoding(void **state)
{
    int faults = 0;
    for (int i = 0; i < LLAMA_VARIANTS; i++)
        for (int k = 0; k < 2 && is_exact(llama_variants[i]); k++) {
            cvn_dtype dtype = k ? CVN_BF16 : CVN_F32;
            float trained[TOKENS], scored[TOKENS];
            int32_t text[TOKENS];
            LlamaFixture f;
            fixture_open(&f, llama_variants[i], dtype);
            int64_t n = num_min(TOKENS, model_context(f.model));
            for (int64_t j = 0; j < n; j++)
                text[j] = (int32_t)((j * j * 7 + j * 3) % 251 % model_vocab(f.model));
            train_forward(&f, dtype, text, n, trained);
            score(llama_variants[i], dtype, text, n, scored);
            int64_t differ = 0, first = 0;
            for (int64_t j = n - 1; j > 0; j--)
                if (memcmp(&trained[j], &scored[j], sizeof(float)) != 0) {
                    differ++;
                    first = j;
                }
            if (differ)
                print_message("%s, %s: %d of %d differ; token %d: trained %.9g, scored %.9g\n",
                              llama_variants[i], cvn_dtype_name(dtype), (int)differ, (int)n - 1,
                              (int)first, (double)trained[first], (double)scored[first]);
            faults += differ > 0;
            fixture_close(&f);
        }
    assert_int_equal(faults, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_gives_tokens_the_log_probabilities_of_decoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
