/* The example of the public interface, held to the program. */
#include "shell.h"

static void the_example_says_what_the_program_says(void **state)
{
    (void)state;
    int status;
    StrBuf example = shell("$(dirname " CVN_BINARY ")/example_generate model 'the sea' 9", &status);
    assert_int_equal(status, 0);
    StrBuf program =
        shell("caravan generate -m model -p 'the sea' -n 9 --temperature 0 2>/dev/null", &status);
    assert_int_equal(status, 0);
    StrBuf expected = {0};
    strbuf_printf(&expected, "the sea%s\n", program.text);
    assert_string_equal(example.text, expected.text);
    assert_true(program.length >= 9);
    strbuf_free(&expected);
    strbuf_free(&example);
    strbuf_free(&program);
}

static void the_example_says_what_is_wrong(void **state)
{
    (void)state;
    const char *example = "$(dirname " CVN_BINARY ")/example_generate";
    char line[1024];
    snprintf(line, sizeof line, "%s none 'the sea' 2>&1", example);
    expect(1, line, "none");
    snprintf(line, sizeof line, "%s bare 'the sea' 2>&1", example);
    expect(1, line, "tokenizer");
    snprintf(line, sizeof line, "%s model 2>&1", example);
    expect(2, line, "usage:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_says_what_the_program_says),
        cmocka_unit_test(the_example_says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
