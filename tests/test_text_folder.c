/* What the files beside a tokenizer say of it. */
#include "test_text.h"

/* A new folder with tests/data/text/FILE in it as NAME; to be freed. */
static char *make_folder(const char *file, const char *name)
{
    char pattern[] = "/tmp/caravan-text-XXXXXX", command[1200];
    assert_non_null(mkdtemp(pattern));
    snprintf(command, sizeof command, "cp %s/text/%s %s/%s", CVN_TEST_DATA, file, pattern, name);
    assert_int_equal(system(command), 0);
    return strdup(pattern);
}

static void remove_folder(char *folder)
{
    char command[1200];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    free(folder);
}

static void write_file(const char *folder, const char *name, const char *text, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
}

static void the_chat_template_is_the_folders(void **state)
{
    static const struct {
        const char *config, *jinja, *template, *processor;
    } cases[] = {
        {NULL, NULL, NULL, NULL},
        {"{}", NULL, NULL, NULL},
        {"{\"chat_template\": null}", NULL, NULL, NULL},
        {"{\"chat_template\": \"{{ a }}\"}", NULL, "{{ a }}", NULL},
        {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}, "
         "{\"name\": \"default\", \"template\": \"d\"}]}",
         NULL, "d", NULL},
        {"{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"t\"}]}", NULL, NULL, NULL},
        {"{\"chat_template\": \"{{ a }}\"}", "{{ b }}\n", "{{ b }}\n", NULL},
        {NULL, "{{ b }}", "{{ b }}", NULL},
        {NULL, NULL, "p", "{\"chat_template\": \"p\"}"},
        {"{\"chat_template\": \"a\"}", NULL, "a", "{\"chat_template\": \"p\"}"},
        {"{}", "b", "b", "{\"chat_template\": \"p\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = make_folder("rank.model", "tokenizer.model");
        if (cases[i].config)
            write_file(folder, "tokenizer_config.json", cases[i].config, strlen(cases[i].config));
        if (cases[i].jinja)
            write_file(folder, "chat_template.jinja", cases[i].jinja, strlen(cases[i].jinja));
        if (cases[i].processor)
            write_file(folder, "chat_template.json", cases[i].processor,
                       strlen(cases[i].processor));
        Tokenizer *t = open_tokenizer(folder);
        const char *template = tokenizer_chat_template(t);
        assert_int_equal(tokenizer_tool_template(t) != NULL,
                         cases[i].config && strstr(cases[i].config, "tool_use"));
        if (cases[i].template)
            assert_string_equal(template, cases[i].template);
        else
            assert_null(template);
        tokenizer_free(t);
        remove_folder(folder);
    }
}

static void a_template_that_is_no_text_is_refused(void **state)
{
    static char large[(1 << 20) + 1];
    memset(large, 'a', sizeof large);
    for (int i = 0; i < 2; i++) {
        cvn_err err = {0};
        Tokenizer *t;
        char *folder = make_folder("rank.model", "tokenizer.model");
        write_file(folder, "chat_template.jinja", i ? large : "a\0b", i ? sizeof large : 3);
        assert_int_equal(tokenizer_open(folder, &t, &err), CVN_EFORMAT);
        assert_non_null(strstr(err.message, "chat_template.jinja"));
        remove_folder(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_chat_template_is_the_folders),
        cmocka_unit_test(a_template_that_is_no_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
