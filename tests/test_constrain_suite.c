/*
 * JSON-Schema-Test-Suite (tests/data/json-schema, MIT), drafts 2020-12 and 7: what is not refused by name is decided
 * right, always, and little is refused.
 */
#include "base/file.h"
#include "caravan/constrain.h"
#include "constrain/json.h"
#include "unit.h"

#include <string.h>

enum { REFUSED_PERCENT = 15 };

typedef struct Score {
    size_t right, wrong, refused;
} Score;

static const JsonValue *member(const JsonValue *value, const char *name)
{
    return json_member(value, name, strlen(name));
}

/* Decides the tests of one case byte by byte. */
static void score_case(const JsonValue *line, Score *score)
{
    const JsonValue *tests = member(line, "tests");
    cvn_constrain_options options = {.draft = json_is(member(line, "draft"), "7") ? 7 : 2020,
                                     .annotate_format =
                                         json_is(member(line, "format"), "annotate")};
    cvn_constraint *constraint;
    cvn_err err = {0};
    StrBuf schema = {0};
    json_write(member(line, "schema"), &schema);
    if (cvn_constraint_schema(schema.text, schema.length, &options, &constraint, &err)) {
        assert_int_equal(err.code, CVN_EUNSUPPORTED);
        assert_true(err.message[0] == '#');
        score->refused += tests->n;
        strbuf_free(&schema);
        return;
    }
    for (size_t i = 0; i < tests->n; i++) {
        const JsonValue *text = member(tests->item[i], "text");
        bool valid = member(tests->item[i], "valid")->kind == JSON_K_TRUE;
        cvn_constrained *state;
        must(cvn_constrained_new(constraint, NULL, &state, &err), &err);
        int code = cvn_constrained_advance_bytes(state, text->text, text->length, NULL);
        bool accepted = code == CVN_OK && cvn_constrained_complete(state);
        cvn_constrained_free(state);
        if (code == CVN_EUNSUPPORTED) {
            score->refused++;
        } else if (accepted == valid) {
            score->right++;
        } else {
            score->wrong++;
            print_error("%s: %s is %s\n", member(line, "id")->text, text->text,
                        valid ? "valid" : "invalid");
        }
    }
    cvn_constraint_free(constraint);
    strbuf_free(&schema);
}

static void the_suite_is_decided_right_or_refused(void **unused)
{
    FileMap file;
    cvn_err err = {0};
    Score score = {0};
    (void)unused;
    must(file_map(&file, CVN_TEST_DATA "/json-schema/suite.jsonl", &err), &err);
    const char *text = (const char *)file.data, *end = text + file.size;
    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        Arena arena;
        must(arena_init(&arena, &err), &err);
        const JsonValue *line = json_tree(&arena, at, (size_t)(newline - at), &err);
        must(err.code, &err);
        score_case(line, &score);
        arena_free(&arena);
        at = newline + 1;
    }
    file_unmap(&file);
    size_t all = score.right + score.wrong + score.refused;
    print_message("right %zu, refused %zu, wrong %zu of %zu\n", score.right, score.refused,
                  score.wrong, all);
    assert_int_equal(score.wrong, 0);
    assert_true(all > 3800 && score.refused * 100 < all * REFUSED_PERCENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_suite_is_decided_right_or_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
