/*
 * JSON-Schema-Test-Suite, drafts 4, 6, 7, 2019-09 and 2020-12: what is not refused by name is decided right, always, and little is
 * refused. The suite is stored (tests/data/json-schema, MIT), groups that drafts share once; checkouts of it are walked too: the one
 * in ../shared and the one that JSON_SCHEMA_SUITE names. With JSON_SCHEMA_SUITE_REFUSED what is refused is listed.
 */
#include "base/file.h"
#include "caravan/constrain.h"
#include "constrain/json.h"
#include "unit.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSED_PERCENT = 5, DRAFTS = 5 };

static const struct {
    const char *name, *folder;
    int number;
    size_t tests; /* that there are, at least */
} drafts[DRAFTS] = {{"4", "draft4", 4, 900},
                    {"6", "draft6", 6, 1200},
                    {"7", "draft7", 7, 1700},
                    {"2019-09", "draft2019-09", 2019, 2100},
                    {"2020-12", "draft2020-12", 2020, 2100}};

typedef struct Score {
    size_t right, wrong, refused;
} Score;

static const JsonValue *member(const JsonValue *value, const char *name)
{
    return json_member(value, name, strlen(name));
}

static void refuse(Score *score, size_t n, const char *draft, const char *id, const char *why)
{
    score->refused += n;
    if (getenv("JSON_SCHEMA_SUITE_REFUSED"))
        print_message("refused %zu: draft %s, %s: %s\n", n, draft, id, why);
}

static bool accepts(cvn_constraint *constraint, const char *text, size_t n, cvn_err *err)
{
    cvn_constrained *state;
    must(cvn_constrained_new(constraint, NULL, &state, err), err);
    bool is =
        !cvn_constrained_advance_bytes(state, text, n, err) && cvn_constrained_complete(state);
    cvn_constrained_free(state);
    return is;
}

/* Decides the tests of one group, byte by byte; of raw groups the data is JSON, of stored ones text. */
static void score_group(const JsonValue *group, const char *id, int draft, bool asserts,
                        Score *score)
{
    const JsonValue *tests = member(group, "tests");
    cvn_constrain_options options = {.draft = drafts[draft].number, .annotate_format = !asserts};
    cvn_constraint *constraint;
    cvn_err err = {0};
    StrBuf schema = {0};
    json_write(member(group, "schema"), &schema);
    int code = cvn_constraint_schema(schema.text, schema.length, &options, &constraint, &err);
    strbuf_free(&schema);
    if (code) {
        assert_int_equal(err.code, CVN_EUNSUPPORTED);
        assert_true(err.message[0] == '#');
        refuse(score, tests->n, drafts[draft].name, id, err.message);
        return;
    }
    for (size_t i = 0; i < tests->n; i++) {
        const JsonValue *text = member(tests->item[i], "text");
        bool valid = member(tests->item[i], "valid")->kind == JSON_K_TRUE;
        StrBuf data = {0};
        if (text)
            strbuf_add(&data, text->text, text->length);
        else
            json_write(member(tests->item[i], "data"), &data);
        cvn_err why = {0};
        bool accepted = accepts(constraint, data.text, data.length, &why);
        if (why.code == CVN_EUNSUPPORTED) {
            refuse(score, 1, drafts[draft].name, id, why.message);
        } else if (accepted == valid) {
            score->right++;
        } else {
            score->wrong++;
            print_error("draft %s, %s: %s is %s\n", drafts[draft].name, id, data.text,
                        valid ? "valid" : "invalid");
        }
        strbuf_free(&data);
    }
    cvn_constraint_free(constraint);
}

static void judge(const char *which, const Score *score, int draft)
{
    size_t all = score->right + score->wrong + score->refused;
    print_message("draft %s%s: right %zu, refused %zu (%.1f%%), wrong %zu of %zu\n",
                  drafts[draft].name, which, score->right, score->refused,
                  100.0 * (double)score->refused / (double)(all + !all), score->wrong, all);
    assert_int_equal(score->wrong, 0);
    assert_true(all > drafts[draft].tests && score->refused * 100 <= all * REFUSED_PERCENT);
}

static void the_suite_is_decided_right_or_refused(void **unused)
{
    FileMap file;
    cvn_err err = {0};
    Score score[DRAFTS] = {{0}};
    (void)unused;
    must(file_map(&file, CVN_TEST_DATA "/json-schema/suite.jsonl", &err), &err);
    const char *text = (const char *)file.data, *end = text + file.size;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        Arena arena;
        must(arena_init(&arena, &err), &err);
        const JsonValue *line = json_tree(&arena, at, (size_t)(newline - at), &err);
        must(err.code, &err);
        const JsonValue *of = member(line, "drafts");
        for (size_t i = 0; i < of->n; i++)
            for (int d = 0; d < DRAFTS; d++)
                if (json_is(of->item[i], drafts[d].name))
                    score_group(line, member(line, "id")->text, d,
                                json_is(member(line, "format"), "assert"), &score[d]);
        arena_free(&arena);
        at = newline + 1;
    }
    file_unmap(&file);
    for (int d = 0; d < DRAFTS; d++)
        judge("", &score[d], d);
}

static void score_file(const char *path, const char *name, int draft, Score *score)
{
    bool asserts =
        strncmp(name, "optional/format/", 16) == 0 || strcmp(name, "optional/content.json") == 0;
    FileMap file;
    Arena arena;
    cvn_err err = {0};
    must(file_map(&file, path, &err), &err);
    must(arena_init(&arena, &err), &err);
    const JsonValue *groups = json_tree(&arena, (const char *)file.data, file.size, &err);
    must(err.code, &err);
    for (size_t i = 0; i < groups->n; i++)
        score_group(groups->item[i], name, draft, asserts, score);
    arena_free(&arena);
    file_unmap(&file);
}

/* All files below a folder; `name` is its path in the suite, or "". */
static void score_folder(const char *path, const char *name, int draft, Score *score)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char below[1024], called[512];
        size_t n = strlen(entry->d_name);
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        snprintf(called, sizeof called, "%s%s%s", name, *name ? "/" : "", entry->d_name);
        if (n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0)
            score_file(below, called, draft, score);
        else if (entry->d_name[0] != '.')
            score_folder(below, called, draft, score);
    }
    closedir(folder);
}

static void checkouts_of_the_suite_are_decided_right_or_refused(void **unused)
{
    const char *const checkouts[] = {CVN_SHARED_DATA "/json-schema", getenv("JSON_SCHEMA_SUITE")};
    bool any = false;
    (void)unused;
    for (size_t i = 0; i < sizeof checkouts / sizeof *checkouts; i++)
        for (int d = 0; d < DRAFTS && checkouts[i]; d++) {
            char path[512];
            Score score = {0};
            snprintf(path, sizeof path, "%s/tests/%s", checkouts[i], drafts[d].folder);
            if (!file_is_folder(path))
                continue;
            score_folder(path, "", d, &score);
            judge(i ? " (JSON_SCHEMA_SUITE)" : " (../shared)", &score, d);
            any = true;
        }
    if (!any) {
        print_message("skipped: there is no checkout of the suite in ../shared\n");
        skip();
    }
}

/* Labels of names that another implementation has judged (tests/oracles/host_names.py), as they are and encoded. */
static void labels_of_host_names_are_those_of_idna(void **unused)
{
    static const char *const format[] = {"{\"format\":\"idn-hostname\"}",
                                         "{\"format\":\"hostname\"}"};
    FileMap file;
    Arena arena;
    cvn_err err = {0};
    cvn_constraint *constraint[2];
    (void)unused;
    must(file_map(&file, CVN_TEST_DATA "/json-schema/host_names.json", &err), &err);
    must(arena_init(&arena, &err), &err);
    const JsonValue *cases = json_tree(&arena, (const char *)file.data, file.size, &err);
    must(err.code, &err);
    for (int i = 0; i < 2; i++)
        must(cvn_constraint_schema(format[i], strlen(format[i]), NULL, &constraint[i], &err), &err);
    for (size_t i = 0; i < cases->n; i++)
        for (int encoded = 0; encoded < 2; encoded++) {
            const JsonValue *label = member(cases->item[i], encoded ? "ascii" : "label");
            bool valid = member(cases->item[i], "valid")->kind == JSON_K_TRUE;
            StrBuf text = {0};
            cvn_err why = {0};
            json_write(label, &text);
            if (accepts(constraint[encoded], text.text, text.length, &why) != valid)
                fail_msg("%s is %s (%s)", text.text, valid ? "valid" : "invalid", why.message);
            strbuf_free(&text);
        }
    assert_true(cases->n >= 500);
    cvn_constraint_free(constraint[0]);
    cvn_constraint_free(constraint[1]);
    arena_free(&arena);
    file_unmap(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_suite_is_decided_right_or_refused),
        cmocka_unit_test(labels_of_host_names_are_those_of_idna),
        cmocka_unit_test(checkouts_of_the_suite_are_decided_right_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
