/*
 * Training of every family against transformers and torch: curves of 20 steps that tests/oracles/families_curves.py stored, on
 * one device and on four, whose layout is another one for each variant; those with experts have these on four devices, too.
 */
#include "learn.h"
#include "llama_fixture.h"
#include "unit.h"

#include <jansson.h>
#include <math.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TAKEN = 6 };
#else
enum { TAKEN = 1 };
#endif

enum { STEPS = 20, ROWS = 4, SEQ = 24, LAYOUTS = 7 };
static const double TOLERANCE = 1e-3; /* of a loss */

static const struct {
    const char *name, *mesh;
} layouts[LAYOUTS] = {{"dp", "data=4"},           {"tp", "model=4"},
                      {"tp-scatter", "model=4"},  {"fsdp", "data=4"},
                      {"2d", "data=2,model=2"},   {"fsdp+tp", "data=2,model=2"},
                      {"dp+tp", "data=2,model=2"}};

static void check_curve(const char *variant, const json_t *expected, const RouterOptions *routers,
                        int64_t micro_batch, const char *mesh, const char *layout)
{
    Trainer t;
    IoModel io;
    cvn_err err = {0};
    char path[512];
    double loss[STEPS], norm[STEPS];
    TrainerOptions o = learn_options(OPTIMIZER_ADAMW, CVN_F32, ROWS, micro_batch, SEQ);
    o.evaluates = false;
    o.optimizer.lr = 1e-3;
    o.optimizer.eps = 1e-4;
    o.optimizer.weight_decay = 0;
    o.routers = routers ? *routers : (RouterOptions){0};
    o.mesh = mesh;
    o.layout = layout;
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    if (io_open_model(&io, path, &err) || trainer_open(&t, io.desc, &o, &err) ||
        trainer_from_model(&t, &io, &err))
        fail_msg("%s: %s", variant, err.message);
    learn(&t, STEPS, fill_chains, loss, norm);
    for (size_t i = 0; i < STEPS; i++) {
        double torch = json_number_value(json_array_get(expected, i));
        if (!(fabs(loss[i] - torch) <= TOLERANCE))
            fail_msg("%s on %s: step %zu has loss %.7f, in torch %.7f", variant,
                     mesh ? mesh : "one device", i + 1, loss[i], torch);
    }
    trainer_close(&t);
    io_close_model(&io);
}

static void curves_of_every_family_are_those_of_torch(void **state)
{
    json_auto_t *curves = json_load_file(CVN_TEST_DATA "/train/families.json", 0, NULL);
    size_t checked = 0;
    assert_non_null(curves);
    for (int v = 0; v < LLAMA_VARIANTS; v++) {
        const json_t *expected = json_object_get(curves, llama_variants[v]);
        if (!expected || v % TAKEN)
            continue;
        checked++;
        check_curve(llama_variants[v], expected, NULL, ROWS, NULL, NULL);
        check_curve(llama_variants[v], expected, NULL, ROWS, layouts[v % LAYOUTS].mesh,
                    layouts[v % LAYOUTS].name);
        if (llama_has_experts(llama_variants[v]))
            check_curve(llama_variants[v], expected, NULL, ROWS, "expert=4", "ep");
    }
    assert_true(checked > 0 && (TAKEN > 1 || checked == json_object_size(curves)));
}

/* What training asks of routers (tests/oracles/routers_curves.py). */
static void curves_with_terms_of_routers_are_those_of_torch(void **state)
{
    static const struct {
        const char *name;
        RouterOptions is;
    } terms[] = {{"batch", {.balance = 1}},
                 {"sequence", {.balance = 0.5, .by_sequence = true}},
                 {"z", {.z = 0.1}},
                 {"bias", {.bias = 0.05}}};
    json_auto_t *variants = json_load_file(CVN_TEST_DATA "/train/routers.json", 0, NULL);
    json_t *curves;
    const char *variant;
    int checked = 0;
    json_object_foreach(variants, variant, curves)
    {
        for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
            const json_t *expected = json_object_get(curves, terms[i].name);
            if (!expected || checked++ % TAKEN)
                continue;
            check_curve(variant, expected, &terms[i].is, ROWS, NULL, NULL);
            check_curve(variant, expected, &terms[i].is, ROWS, "data=4", "fsdp");
            check_curve(variant, expected, &terms[i].is, ROWS, "expert=4", "ep");
            if (terms[i].is.balance <= 0 || terms[i].is.by_sequence) /* of means over rows alike */
                check_curve(variant, expected, &terms[i].is, ROWS / 2, NULL, NULL);
        }
    }
    assert_int_equal(checked, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves_of_every_family_are_those_of_torch),
        cmocka_unit_test(curves_with_terms_of_routers_are_those_of_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
