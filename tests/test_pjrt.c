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
    compare("biases", NULL, "", "2d", 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_scores_are_those_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, find_plugin, NULL);
}
