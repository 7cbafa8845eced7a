/* The demo's corpus: the same for a seed everywhere, whole sentences, many stories. */
#include "base/arena.h"
#include "base/map.h"
#include "shell.h"

#include <ctype.h>

#define STORIES "$(dirname " CVN_BINARY ")/stories " CVN_TEST_DATA "/../../examples/stories.grammar"
#define SEPARATOR "\n<|endoftext|>\n"

static StrBuf stories(const char *options)
{
    char line[512];
    int status;
    snprintf(line, sizeof line, STORIES " %s", options);
    StrBuf text = shell(line, &status);
    if (status)
        fail_msg("exit %d", status);
    return text;
}

static void a_seed_gives_the_same_stories_and_another_gives_others(void **state)
{
    StrBuf a = stories("--stories 50 --seed 4"), b = stories("--stories 50 --seed 4");
    StrBuf other = stories("--stories 50 --seed 5"), more = stories("--stories 60 --seed 4");
    assert_string_equal(a.text, b.text);
    assert_string_not_equal(a.text, other.text);
    assert_memory_equal(a.text, more.text, a.length);
    strbuf_free(&a);
    strbuf_free(&b);
    strbuf_free(&other);
    strbuf_free(&more);
}

/* A paragraph begins with a capital letter or a quote, ends with a mark, and its quotes close. */
static void check_paragraph(const char *text, size_t n)
{
    size_t quotes = 0;
    bool ok = n > 20 && (isupper((unsigned char)text[0]) || text[0] == '"') &&
              strchr(".!?\"", text[n - 1]);
    for (size_t i = 0; i < n; i++) {
        quotes += text[i] == '"';
        bool plain = isalpha((unsigned char)text[i]) || strchr(" ,.!?\"'-:", text[i]);
        bool spaced = i == 0 || text[i] != ' ' || text[i - 1] != ' ';
        bool sentence = i < 2 || text[i - 1] != ' ' || !strchr(".!?", text[i - 2]) ||
                        isupper((unsigned char)text[i]) || text[i] == '"';
        ok &= plain && spaced && sentence;
    }
    for (const char *at = text; (at = memmem(at, n - (size_t)(at - text), " a ", 3)); at++)
        ok &= strchr("aeiou", at[3]) == NULL;
    if (!ok || quotes % 2)
        fail_msg("%.*s", (int)n, text);
}

static void count_words(Map *words, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t length = 0;
        char word[64];
        while (i + length < n && length < sizeof word && isalpha((unsigned char)text[i + length])) {
            word[length] = (char)tolower((unsigned char)text[i + length]);
            length++;
        }
        if (length)
            map_put(words, word, length, NULL);
        i += length ? length : 1;
    }
}

static void stories_are_whole_sentences_and_nearly_all_distinct(void **state)
{
    cvn_err err = {0};
    Arena arena;
    Map seen, words;
    assert_int_equal(arena_init(&arena, &err), 0);
    map_init(&seen, &arena);
    map_init(&words, &arena);
    StrBuf text = stories("--stories 3000 --seed 2");
    size_t n = 0;
    for (char *at = text.text, *end; (end = strstr(at, SEPARATOR)); at = end + strlen(SEPARATOR)) {
        n++;
        map_put(&seen, at, (size_t)(end - at), NULL);
        count_words(&words, at, (size_t)(end - at));
        for (char *part = at, *stop; part < end; part = stop + 2) {
            stop = strstr(part, "\n\n");
            stop = stop && stop < end ? stop : end;
            check_paragraph(part, (size_t)(stop - part));
        }
    }
    assert_int_equal(n, 3000);
    assert_in_range(seen.n, 2950, 3000);
    assert_in_range(words.n, 600, 2000);
    strbuf_free(&text);
    arena_free(&arena);
}

static void a_broken_grammar_is_named(void **state)
{
    static const struct {
        const char *grammar, *piece;
    } cases[] = {
        {"text", "no rule has begun"},
        {"@story\\n<nobody>", "no name or rule"},
        {"@story\\n[one/two", "no ] closes"},
        {"@story\\n<story>", "circles"},
        {"@a x y\\none", "columns are missing"},
        {"@a\\nb\\n@story\\n<v=a><w=a!v>", "nothing is left"},
        {"@a\\nb\\n@a", "already a rule"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "printf '%s\\n' > g; $(dirname " CVN_BINARY ")/stories g --stories 1 2>&1",
                 cases[i].grammar);
        expect(1, line, cases[i].piece);
    }
    expect(2, STORIES " --stories x 2>&1", "Usage");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seed_gives_the_same_stories_and_another_gives_others),
        cmocka_unit_test(stories_are_whole_sentences_and_nearly_all_distinct),
        cmocka_unit_test(a_broken_grammar_is_named),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
