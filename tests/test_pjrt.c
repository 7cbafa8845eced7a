/*
 * What a plugin computes is what the CPU computes. CVN_PJRT_PLUGIN names a plugin of XLA's CPU devices; without it
 * there is nothing to test, and the tests are skipped.
 */
#include "mesh_answers.h"

#include <stdlib.h>

static char device[1024];

static int find_plugin(void **state)
{
    const char *path = getenv("CVN_PJRT_PLUGIN");
    (void)state;
    if (path && *path)
        snprintf(device, sizeof device, "pjrt:%s", path);
    else
        print_message("skipped: CVN_PJRT_PLUGIN names no plugin\n");
    return 0;
}

static void compare(const char *variant, const char *quantize, const char *mesh, const char *layout,
                    double most)
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
    q.device = device;
    answers_check(&q, &cpu, mesh, layout, most);
}

static void texts_and_scores_are_those_of_the_cpu(void **state)
{
    (void)state;
    compare("gqa", NULL, "", "2d", 1e-5);
}

static void meshes_give_what_one_device_gives(void **state)
{
    static const char *const ways[][2] = {
        {"model=2", "tp"}, {"model=4", "tp"}, {"data=2,model=2", "2d"}, {"data=4", "fsdp"}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        compare("gqa", NULL, ways[i][0], ways[i][1], 1e-5);
}

static void quantized_weights_are_those_of_the_cpu(void **state)
{
    (void)state;
    compare("gqa", "int8", "", "2d", 1e-3);
    compare("gqa", "int4:32", "", "2d", 1e-3);
}

static void what_cannot_be_opened_is_said(void **state)
{
    static const struct {
        const char *device, *says;
    } wrong[] = {
        {"gpu", "there are no devices of the kind 'gpu'; there are cpu, tpu, cuda"},
        {"pjrt:", "names no file"},
        {"pjrt:/nowhere.so", "could not be loaded"},
        {"pjrt:libm.so.6", "is no PJRT plugin: it has no GetPjrtApi"},
        {"pjrt:libm.so.6,fast", "'fast' is no option of a device"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const Question q = {.variant = "gqa", .rows = 1, .device = wrong[i].device};
        Answers a;
        cvn_err err = {0};
        assert_int_not_equal(answers_ask(&q, NULL, NULL, &a, &err), 0);
        if (!strstr(err.message, wrong[i].says))
            fail_msg("%s: %s", wrong[i].device, err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_scores_are_those_of_the_cpu),
        cmocka_unit_test(meshes_give_what_one_device_gives),
        cmocka_unit_test(quantized_weights_are_those_of_the_cpu),
        cmocka_unit_test(what_cannot_be_opened_is_said),
    };
    return cmocka_run_group_tests(tests, find_plugin, NULL);
}
