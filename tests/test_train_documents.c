/* Documents that share a row learn nothing of one another: packed, they give the losses and gradients that they give in
   rows of their own. */
#include "io/model.h"
#include "train/trainer.h"
#include "unit.h"

#include <math.h>

enum { SEQ = 40, DOCUMENTS = 3, STEPS = 4 };

/* Documents of these lengths fill a row together, and one row each of as many. */
static const int lengths[DOCUMENTS] = {17, 1, 22};

typedef struct Rows {
    int32_t tokens[DOCUMENTS * SEQ], targets[DOCUMENTS * SEQ], starts[DOCUMENTS * SEQ];
} Rows;

/* Document d of a step begins at element `at` of its row; what follows it in the row is padding so far. */
static void put_document(Rows *rows, int row, int at, int d, int step)
{
    for (int i = 0; i < lengths[d]; i++) {
        int e = row * SEQ + at + i;
        rows->tokens[e] = (d * 31 + i * 7 + step * 13) % 90;
        rows->targets[e] = i + 1 < lengths[d] ? (d * 31 + (i + 1) * 7 + step * 13) % 90 : -1;
        rows->starts[e] = at;
    }
    for (int e = row * SEQ + at + lengths[d]; e < (row + 1) * SEQ; e++) {
        rows->tokens[e] = 0;
        rows->targets[e] = -1;
        rows->starts[e] = at + lengths[d];
    }
}

static void open_trainer(Trainer *t, int64_t batch, RematPolicy remat)
{
    cvn_err err = {0};
    IoModel model;
    must(io_open_model(&model, CVN_TEST_DATA "/llama/gqa", &err), &err);
    TrainerOptions options = {.batch = batch,
                              .seq = SEQ,
                              .compute = CVN_F32,
                              .clip = 1,
                              .threads = 1,
                              .remat = remat,
                              .optimizer = optimizer_defaults(OPTIMIZER_ADAFACTOR, 1),
                              .schedule = {.kind = SCHEDULE_CONSTANT, .steps = STEPS},
                              .evaluates = true};
    must(trainer_open(t, model.desc, &options, &err), &err);
    must(trainer_from_model(t, &model, &err), &err);
    io_close_model(&model);
}

static void near(double a, double b, double relative)
{
    if (!(fabs(a - b) <= relative * fabs(b)))
        fail_msg("%.9g is not near %.9g", a, b);
}

static void losses_and_gradients_do_not_depend_on_packing(void **state)
{
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++) {
        cvn_err err = {0};
        Trainer packed, alone;
        open_trainer(&packed, 1, (RematPolicy)policy);
        open_trainer(&alone, DOCUMENTS, (RematPolicy)policy);
        for (int step = 0; step < STEPS; step++) {
            static Rows one, each;
            for (int d = 0, at = 0; d < DOCUMENTS; at += lengths[d++]) {
                put_document(&one, 0, at, d, step);
                put_document(&each, d, 0, d, step);
            }
            TrainBatch row = {.tokens = one.tokens, .targets = one.targets, .starts = one.starts};
            TrainBatch rows = {
                .tokens = each.tokens, .targets = each.targets, .starts = each.starts};
            TrainReport a, b;
            must(trainer_step(&packed, &row, &a, &err), &err);
            must(trainer_step(&alone, &rows, &b, &err), &err);
            assert_true(a.tokens == b.tokens);
            near(a.loss, b.loss, 2e-5);
            near(a.grad_norm, b.grad_norm, 2e-5);
        }
        trainer_close(&packed);
        trainer_close(&alone);
    }
}

/* What the test above would be blind to: with one document in the row the numbers are others. */
static void without_their_begins_documents_see_one_another(void **state)
{
    cvn_err err = {0};
    static Rows one;
    for (int d = 0, at = 0; d < DOCUMENTS; at += lengths[d++])
        put_document(&one, 0, at, d, 0);
    static int32_t zeros[SEQ];
    double sum[2] = {0}, count[2] = {0};
    Trainer t;
    open_trainer(&t, 1, REMAT_NONE);
    for (int i = 0; i < 2; i++) {
        TrainBatch row = {
            .tokens = one.tokens, .targets = one.targets, .starts = i ? zeros : one.starts};
        must(trainer_evaluate(&t, &row, &sum[i], &count[i], &err), &err);
    }
    assert_true(count[0] == count[1]);
    assert_true(fabs(sum[0] - sum[1]) > 1e-2);
    trainer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_do_not_depend_on_packing),
        cmocka_unit_test(without_their_begins_documents_see_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
