/*
 * Portable numerics: what is drawn, with its logits, and what training makes of weights have the same bits on every set of
 * instructions that the machine has, and on any number of threads. A process runs one set, as CARAVAN_CPU says before its first look:
 * each runs in a child, which answers with a digest for each case. (`tools/arm.sh` compares the digests of this program, which
 * PORTABLE_PRINT=1 prints, with those of an emulated Arm processor.)
 */
#include "answer.h"
#include "base/num.h"
#include "cpu/registry.h"
#include "learn.h"
#include "llama_fixture.h"
#include "part.h"

#include <sys/wait.h>
#include <unistd.h>

enum { DRAWN = 50, STEPS = 3, CASES_MOST = 256 };

#define MIXED CVN_TEST_DATA "/gguf/mixed.gguf"
#define FLOATS8 CVN_TEST_DATA "/fp8/block"

typedef struct Digests {
    uint64_t of[CASES_MOST];
    int n;
} Digests;

/* Of the texts of a case. */
typedef struct Heard {
    int64_t vocab;
    uint64_t hash[3]; /* of tokens and of the logits that they were drawn from */
} Heard;

static void hear(void *context, int id, const float *logits, int32_t token)
{
    Heard *h = context;
    h->hash[id] = (h->hash[id] * 31 + (uint64_t)token) * 31 + logits_digest(logits, h->vocab);
}

typedef struct Case {
    const char *model, *quantize, *activations, *kv;
    cvn_dtype dtype;
} Case;

/* A greedy text and two that are drawn, beside each other, after prompts of one token and of many. */
static void add_texts(Digests *d, const Case *c, int threads)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_engine *e = NULL;
    int32_t prompt[40];
    cvn_result result[3];
    char path[512];
    snprintf(path, sizeof path, c->model[0] == '/' ? "%s" : CVN_TEST_DATA "/llama/%s", c->model);
    const cvn_model_options open = {
        .dtype = c->dtype, .quantize = c->quantize, .no_tokenizer = true};
    must(cvn_model_open(path, &open, &model, &err), &err);
    Heard heard = {.vocab = cvn_model_vocab(model)};
    const int64_t context = cvn_model_context(model), n_prompt = context > 64 ? 40 : 9;
    for (int i = 0; i < 40; i++)
        prompt[i] = (int32_t)((i * i * 7 + i * 3 + 1) % heard.vocab);
    const cvn_engine_options options = {.slots = 3,
                                        .threads = threads,
                                        .kv_cache = c->kv,
                                        .activations = c->activations,
                                        .numerics = "portable",
                                        .logits_processors = true,
                                        .penalties = true};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    cvn_request request[3];
    for (int i = 0; i < 3; i++)
        request[i] = (cvn_request){.prompt = prompt,
                                   .n_prompt = i == 1 ? 1 : n_prompt,
                                   .max_tokens = num_min(DRAWN, context - n_prompt),
                                   .ignore_eos = true,
                                   .on_logits = hear,
                                   .sampling = {.temperature = i ? 0.9f : 0,
                                                .top_k = i == 2 ? 20 : 0,
                                                .top_p = i == 2 ? 0.9f : 1,
                                                .min_p = i == 2 ? 0.01f : 0,
                                                .repeat_penalty = i == 2 ? 1.1f : 1,
                                                .seed = 7}};
    must(cvn_engine_generate(e, request, 3, NULL, &heard, NULL, result, &err), &err);
    assert_true(d->n < CASES_MOST && heard.hash[0] && heard.hash[1] && heard.hash[2]);
    d->of[d->n++] = hash_bytes(heard.hash, sizeof heard.hash);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* What some steps make of losses, norms and weights. */
static void add_training(Digests *d, const char *variant, cvn_dtype compute,
                         OptimizerKind optimizer, int threads)
{
    cvn_err err = {0};
    IoModel model;
    Trainer t;
    char path[512];
    double seen[2][STEPS];
    snprintf(path, sizeof path, CVN_TEST_DATA "/llama/%s", variant);
    TrainerOptions options = learn_options(optimizer, compute, 4, 2, 40);
    options.exact = options.portable = true;
    options.threads = threads;
    must(io_open_model(&model, path, &err), &err);
    must(trainer_open(&t, model.desc, &options, &err), &err);
    must(trainer_from_model(&t, &model, &err), &err);
    io_close_model(&model);
    learn(&t, STEPS, fill_chains, seen[0], seen[1]);
    uint64_t all = hash_bytes(seen, sizeof seen);
    const Buffer *b;
    for (int i = 0; (b = runtime_buffer(&t.stage->rt, ROLE_TRAINED, i)); i++)
        all = all * 31 + hash_bytes(buffer_address(&t.stage->rt, b, 0),
                                    cvn_dtype_bytes(b->local.dtype, cvn_type_elements(&b->local)));
    d->of[d->n++] = all;
    trainer_close(&t);
}

/* Every form of weights, training, and, where they are asked for, all families. */
static void add_all(Digests *d, bool families, int threads)
{
    static const Case cases[] = {
        {.model = "gqa", .dtype = CVN_F32},
        {.model = "gqa", .dtype = CVN_BF16},
        {.model = "gqa", .dtype = CVN_F32, .kv = "int8"},
        {.model = "gqa", .dtype = CVN_BF16, .kv = "int8"},
        {.model = "gqa", .dtype = CVN_F32, .quantize = "int8"},
        {.model = "gqa", .dtype = CVN_BF16, .quantize = "int8", .activations = "int8"},
        {.model = MIXED, .dtype = CVN_F32, .quantize = "none"},
        {.model = MIXED, .dtype = CVN_F32},
        {.model = MIXED, .dtype = CVN_BF16},
        {.model = MIXED, .dtype = CVN_BF16, .activations = "int8", .kv = "int8"},
        {.model = MIXED, .dtype = CVN_F32, .quantize = "int4"},
        {.model = FLOATS8, .dtype = CVN_F32},
        {.model = FLOATS8, .dtype = CVN_BF16},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        add_texts(d, &cases[i], threads);
    add_training(d, "gqa", CVN_F32, OPTIMIZER_ADAMW, threads);
    add_training(d, "gqa", CVN_BF16, OPTIMIZER_ADAMW, threads);
    add_training(d, "qwen3_moe", CVN_BF16, OPTIMIZER_ADAMW, threads);
    for (int i = 0; families && i < LLAMA_VARIANTS; i++)
        if (in_part((size_t)i, 1))
            add_texts(d, &(Case){.model = llama_variants[i], .dtype = i % 2 ? CVN_BF16 : CVN_F32},
                      threads);
}

/* In a child: on a set of instructions, which the machine has. False: it has not. Families go through what sets of other vectors
   compile anew; the others add products of integers. */
static bool digests_on(CpuIsa isa, Digests *out)
{
    const char *set = cpu_isa_name(isa);
    const bool families = isa == CPU_ISA_PORTABLE || isa == CPU_ISA_AVX2 || isa == CPU_ISA_AVX512;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("CARAVAN_CPU", set, 1);
        *out = (Digests){0};
        if (strcmp(cpu_kernels()->name, set) == 0)
            add_all(out, families, 1 + isa % 2);
        _exit(write(ends[1], out, sizeof *out) != sizeof *out);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(ends[0], (char *)out + n, sizeof *out - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    assert_true(waitpid(child, &status, 0) == child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(n, sizeof *out);
    return out->n > 0;
}

static void every_set_of_instructions_gives_the_same_bits(void **state)
{
    Digests first = {0};
    const char *name = NULL;
    int faults = 0, sets = 0;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        Digests own;
        if (!digests_on((CpuIsa)isa, &own))
            continue;
        if (sets++ == 0) {
            first = own;
            name = cpu_isa_name((CpuIsa)isa);
        }
        assert_true(own.n <= first.n);
        for (int i = 0; i < own.n; i++)
            if (own.of[i] != first.of[i]) {
                print_message("case %d differs between %s and %s\n", i, name,
                              cpu_isa_name((CpuIsa)isa));
                faults++;
            }
    }
    for (int i = 0; getenv("PORTABLE_PRINT") && i < first.n; i++)
        printf("%016llx\n", (unsigned long long)first.of[i]);
    assert_true(sets > 0);
    assert_int_equal(faults, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_of_instructions_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
