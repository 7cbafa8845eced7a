/*
 * Documents that share a row do not see each other: the loss and the gradient of packed rows are those of every
 * document, or piece of one, in a row of its own from position 0. In f32, for each way of packing, by the graph that
 * training runs.
 */
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "model_make.h"
#include "tiny_llama.h"
#include "train/data/cache.h"
#include "train/data/data.h"
#include "train/step.h"
#include "unit.h"

#include <math.h>
#include <stddef.h>
#include <unistd.h>

enum { SEQ = 16, MOST_PIECES = 64, VOCAB = 37 };

/* Tokens, targets and starts of rows of SEQ. */
typedef struct Rows {
    int n;
    int32_t tokens[MOST_PIECES][SEQ], targets[MOST_PIECES][SEQ], starts[MOST_PIECES][SEQ];
} Rows;

/* Documents of such lengths that rows hold one to four of them, whole and cut. */
static void packed_rows(DataPacking packing, Rows *rows)
{
    static const int length[] = {5, 8, 3, 16, 9, 2, 4, 21, 6, 7, 11, 4};
    enum { DOCUMENTS = sizeof length / sizeof *length };
    char path[] = "/tmp/caravan-documents-XXXXXX";
    cvn_err err = {0};
    TokenWriter writer;
    uint64_t random = 7;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    must(token_writer_open(&writer, path, VOCAB, 0, &err), &err);
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[32];
        for (int t = 0; t < length[d]; t++)
            ids[t] = (int32_t)(splitmix(&random) % VOCAB);
        must(token_writer_add(&writer, ids, (size_t)length[d], NULL, true, &err), &err);
    }
    must(token_writer_commit(&writer, &err), &err);
    token_writer_free(&writer);
    TrainData *data;
    const char *paths[] = {path};
    DataOptions options = {
        .paths = paths, .n_paths = 1, .vocab = VOCAB, .seq = SEQ, .packing = packing};
    must(data_open(&data, &options, &err), &err);
    rows->n = (int)data_sequences(data, DATA_TRAIN);
    assert_in_range(rows->n, 4, MOST_PIECES);
    must(data_fill(data, DATA_TRAIN, 0, rows->n, rows->tokens[0], rows->targets[0], rows->starts[0],
                   &err),
         &err);
    data_free(data);
    unlink(path);
}

/* Every piece of those rows at the begin of a row; what follows it there is not learned. */
static int rows_apart(const Rows *packed, Rows *apart)
{
    int most = 0;
    memset(apart, 0, sizeof *apart);
    for (int r = 0; r < packed->n; r++) {
        int pieces = 0;
        for (int s = 0, begin = 0; s < SEQ; s++) {
            if (s == 0 || packed->starts[r][s] != packed->starts[r][s - 1]) {
                assert_true(packed->starts[r][s] == s && apart->n < MOST_PIECES);
                memset(apart->targets[apart->n], -1, sizeof apart->targets[0]);
                begin = s;
                apart->n++;
                pieces++;
            }
            apart->tokens[apart->n - 1][s - begin] = packed->tokens[r][s];
            apart->targets[apart->n - 1][s - begin] = packed->targets[r][s];
        }
        most = pieces > most ? pieces : most;
    }
    return most;
}

/* Gradients and totals of rows, added up row by row: the memory of the graph's parameters. */
typedef struct Sums {
    Plan *plan;
    void **at; /* [plan->n_parameters] */
} Sums;

static Sums sums_of(const Model *config, RematPolicy remat, Rows *rows)
{
    cvn_err err = {0};
    TrainStepOptions options = {.batch = 1,
                                .seq = SEQ,
                                .compute = CVN_F32,
                                .remat = remat,
                                .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, 1)};
    cvn_graph *g = train_graph(TRAIN_GRADIENT, config, &options, &err);
    assert_non_null(g);
    Device *device = device_new(2, NULL, &err);
    CompileOptions compile = {.backend = device->backend, .n_threads = device_threads(device)};
    Sums s;
    must(compile_graph(g, &compile, &s.plan, &err), &err);
    s.at = tiny_llama_inputs(g, config);
    must(device_reserve(device, s.plan->arena_bytes, &err), &err);
    int n = s.plan->n_parameters, tokens = -1;
    for (int i = 0; i < n; i++) {
        const char *name = s.plan->parameter[i].name;
        if (strcmp(name, "tokens") == 0)
            tokens = i;
        if (strncmp(name, "sum.", 4) == 0 || strcmp(name, "total") == 0)
            memset(s.at[i], 0, s.plan->parameter[i].bytes);
    }
    assert_true(tokens >= 0);
    void **out = calloc((size_t)s.plan->n_outputs, sizeof *out),
         **in = calloc((size_t)n, sizeof *in);
    memcpy(in, s.at, (size_t)n * sizeof *in);
    for (int r = 0; r < rows->n; r++) {
        in[tokens] = rows->tokens[r];
        in[tokens + 1] = rows->targets[r];
        in[tokens + 2] = rows->starts[r];
        must(executor_run(device, s.plan, in, out, &err), &err);
    }
    free(in);
    free(out);
    device_free(device);
    cvn_graph_free(g);
    return s;
}

static void sums_free(Sums *s)
{
    for (int i = 0; i < s->plan->n_parameters; i++)
        free(s->at[i]);
    free(s->at);
    plan_free(s->plan);
}

static void compare(const Sums *a, const Sums *b)
{
    for (int i = 0; i < a->plan->n_parameters; i++) {
        const char *name = a->plan->parameter[i].name;
        if (strncmp(name, "sum.", 4) != 0 && strcmp(name, "total") != 0)
            continue;
        const float *x = a->at[i], *y = b->at[i];
        float most = 0;
        for (size_t e = 0; e < a->plan->parameter[i].bytes / sizeof *x; e++)
            most = fmaxf(most, fabsf(y[e]));
        assert_true(most > 0);
        for (size_t e = 0; e < a->plan->parameter[i].bytes / sizeof *x; e++)
            if (!(fabsf(x[e] - y[e]) <= 2e-5f * most))
                fail_msg("%s[%zu]: %.9g packed, %.9g apart", name, e, (double)x[e], (double)y[e]);
    }
}

static void check_packing(DataPacking packing, int documents, RematPolicy remat)
{
    static Rows packed, apart;
    for (int i = 0; i < TINY_LLAMAS; i++) {
        Model *config = tiny_llama_config(&tiny_llamas[i]);
        config = model_with(config, "'vocab_size': %d", (int)VOCAB);
        packed_rows(packing, &packed);
        assert_int_equal(rows_apart(&packed, &apart), documents);
        Sums a = sums_of(config, remat, &packed), b = sums_of(config, remat, &apart);
        compare(&a, &b);
        sums_free(&a);
        sums_free(&b);
    }
}

static void rows_of_a_stream_are_their_documents(void **state)
{
    check_packing(DATA_PACK_STREAM, 4, REMAT_NONE);
}

static void rows_of_whole_documents_are_their_documents(void **state)
{
    check_packing(DATA_PACK_WHOLE, 4, REMAT_NONE);
}

static void rows_of_one_document_are_it(void **state)
{
    check_packing(DATA_PACK_ONE, 2, REMAT_NONE); /* padding is the second */
}

static void recomputing_does_not_change_that(void **state)
{
    check_packing(DATA_PACK_STREAM, 4, REMAT_BLOCK);
    check_packing(DATA_PACK_STREAM, 4, REMAT_SELECTIVE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_stream_are_their_documents),
        cmocka_unit_test(rows_of_whole_documents_are_their_documents),
        cmocka_unit_test(rows_of_one_document_are_it),
        cmocka_unit_test(recomputing_does_not_change_that),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
