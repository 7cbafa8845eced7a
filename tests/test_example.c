/* The examples of the public interface, held to the program, and to themselves on other meshes. */
#include "shell.h"

#include <math.h>

static void the_example_says_what_the_program_says(void **state)
{
    int status;
    StrBuf example = shell("$(dirname " CVN_BINARY ")/example_generate model 'the sea' 9", &status);
    assert_int_equal(status, 0);
    StrBuf program =
        shell("caravan generate -m model -p 'the sea' -n 9 --temperature 0 2>/dev/null", &status);
    assert_int_equal(status, 0);
    StrBuf expected = {0};
    strbuf_printf(&expected, "the sea%s", program.text);
    assert_string_equal(example.text, expected.text);
    assert_true(program.length >= 9);
    strbuf_free(&expected);
    strbuf_free(&example);
    strbuf_free(&program);
}

static void the_example_says_what_is_wrong(void **state)
{
    const char *example = "$(dirname " CVN_BINARY ")/example_generate";
    char line[1024];
    snprintf(line, sizeof line, "%s none 'the sea' 2>&1", example);
    expect(1, line, "none");
    snprintf(line, sizeof line, "%s bare 'the sea' 2>&1", example);
    expect(1, line, "tokenizer");
    snprintf(line, sizeof line, "%s model 2>&1", example);
    expect(2, line, "usage:");
}

/* The losses that examples/mlp.c prints on a mesh, of its first line the number of devices. */
static int losses(const char *mesh, double *loss, int most, int devices)
{
    char line[256], first[64];
    int status, n = 0;
    snprintf(line, sizeof line, "$(dirname " CVN_BINARY ")/example_mlp '%s'", mesh);
    snprintf(first, sizeof first, "%d devices\n", devices);
    StrBuf text = shell(line, &status);
    assert_int_equal(status, 0);
    assert_int_equal(strncmp(text.text, first, strlen(first)), 0);
    for (const char *at = text.text; n < most && (at = strstr(at, "loss ")); n++)
        loss[n] = strtod(at += 5, NULL);
    strbuf_free(&text);
    return n;
}

static void a_network_learns_the_same_on_any_mesh(void **state)
{
    static const struct {
        const char *mesh;
        int devices;
    } meshes[] = {{"data=2,model=2", 4}, {"data=3,model=1", 3}};
    double one[16], many[16];
    int n = losses("", one, 16, 1);
    assert_int_equal(n, 11);
    for (int i = 1; i < n; i++)
        assert_true(one[i] < one[i - 1]);
    assert_true(one[n - 1] < one[0] / 10);
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        assert_int_equal(losses(meshes[k].mesh, many, 16, meshes[k].devices), n);
        for (int i = 0; i < n; i++)
            if (fabs(many[i] - one[i]) > 1e-5 * fabs(one[i]))
                fail_msg("%s: loss %d is %g, on one device %g", meshes[k].mesh, i, many[i], one[i]);
    }
    expect(1, "$(dirname " CVN_BINARY ")/example_mlp data=2 2>&1", "model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_says_what_the_program_says),
        cmocka_unit_test(the_example_says_what_is_wrong),
        cmocka_unit_test(a_network_learns_the_same_on_any_mesh),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
