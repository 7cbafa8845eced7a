/* Jinja against jinja2 with the settings of transformers, and what templates may not do. */
#include "test_text.h"
#include "text/jinja/jinja.h"

static const struct tm NOW = {.tm_sec = 56,
                              .tm_min = 34,
                              .tm_hour = 12,
                              .tm_mday = 26,
                              .tm_mon = 6,
                              .tm_year = 124,
                              .tm_wday = 5,
                              .tm_yday = 207};

static int render(const char *template, size_t n, const json_t *data, const json_t *own,
                  JinjaText *out, cvn_err *err)
{
    JinjaTemplate *jinja;
    const JinjaInput input = {.data = data, .own = own, .now = &NOW, .max_memory = 16 << 20};
    int rc = jinja_read(template, n, &jinja, err);
    if (rc)
        return rc;
    rc = jinja_render(jinja, &input, out, err);
    jinja_free(jinja);
    return rc;
}

typedef struct Tally {
    size_t errors; /* cases where jinja2 had an error */
    size_t wrong;
} Tally;

static void check_case(const json_t *line, void *arg)
{
    Tally *tally = arg;
    const json_t *template = json_object_get(line, "template"),
                 *text = json_object_get(line, "text");
    const char *says = json_string_value(json_object_get(line, "says"));
    JinjaText out = {0};
    cvn_err err = {0};
    int rc = render(json_string_value(template), json_string_length(template),
                    json_object_get(line, "data"), json_object_get(line, "own"), &out, &err);
    bool right = json_is_null(text)
                     ? rc && err.message[0] && (!says || strncmp(err.message, says, 300) == 0)
                     : !rc && out.text.length == json_string_length(text) &&
                           out.text.length == out.mark.length &&
                           memcmp(out.text.length ? out.text.text : "", json_string_value(text),
                                  out.text.length) == 0;
    if (!right && tally->wrong++ < 40) {
        print_message("%s: %s\n", json_string_value(json_object_get(line, "name")),
                      rc ? err.message : "");
        size_t same = 0;
        const char *expected = json_is_null(text) ? "(an error)" : json_string_value(text);
        const char *got = out.text.length ? out.text.text : "";
        while (expected[same] && expected[same] == got[same])
            same++;
        print_message("  behind %zu bytes got: %.90s\n  expected: %.90s\n", same, got + same,
                      expected + same);
        if (says)
            print_message("  says: %s\n", says);
    }
    tally->errors += json_is_null(text);
    jinja_text_free(&out);
}

static void templates_render_as_jinja2_renders_them(void **state)
{
    Tally tally = {0};
    assert_true(each_line(CVN_TEST_DATA "/text/jinja.jsonl", check_case, &tally) > 80);
    assert_int_equal(tally.wrong, 0);
}

/* Those of published models, with many conversations: tests/oracles/text_jinja.py writes the file. */
static void published_templates_render_as_jinja2_renders_them(void **state)
{
    const char *path = getenv("CARAVAN_JINJA_CASES");
    Tally tally = {0};
    if (!path) {
        print_message("skipped: CARAVAN_JINJA_CASES names no file\n");
        skip();
    }
    size_t n = each_line(path, check_case, &tally);
    print_message("%zu cases, %zu of them errors in jinja2, %zu differ\n", n, tally.errors,
                  tally.wrong);
    assert_int_equal(tally.wrong, 0);
}

static void what_is_not_known_is_refused_by_name(void **state)
{
    static const struct {
        const char *template, *says;
        int code;
    } cases[] = {
        {"a\n{{ n | nosuch }}", "line 2 of the chat template: unknown filter 'nosuch'",
         CVN_EUNSUPPORTED},
        {"{{ n is nosuch }}", "unknown test 'nosuch'", CVN_EUNSUPPORTED},
        {"{{ n.nosuch() }}", "unknown method 'nosuch'", CVN_EUNSUPPORTED},
        {"{% include 'x' %}", "unknown tag 'include'", CVN_EUNSUPPORTED},
        {"{% extends 'x' %}", "unknown tag 'extends'", CVN_EUNSUPPORTED},
        {"{% import 'x' as y %}", "unknown tag 'import'", CVN_EUNSUPPORTED},
        {"{% for a in b recursive %}{% endfor %}", "'recursive' loops are not supported",
         CVN_EUNSUPPORTED},
        {"{% if n == 7 %}{{ n | nosuch }}{% endif %}", "unknown filter 'nosuch'", CVN_EINVAL},
        {"{{ cycler(1) }}", "'cycler' is undefined and cannot be called", CVN_EINVAL},
        {"{% if n %}", "the block of line 1 has no 'endif'", CVN_EFORMAT},
        {"{% endif %}", "unknown tag 'endif'", CVN_EFORMAT},
        {"{% break %}", "break and continue are only allowed in a loop", CVN_EFORMAT},
        {"{{ (n }}", "line 1", CVN_EFORMAT},
        {"{{ 'a }}", "a string is not closed", CVN_EFORMAT},
        {"{# a", "a comment is not closed", CVN_EFORMAT},
        {"{% raw %} a", "a raw block is not closed", CVN_EFORMAT},
        {"{{ }}", "an expression is expected", CVN_EFORMAT},
        {"{{ $ }}", "unexpected character", CVN_EFORMAT},
        {"\xff", "not UTF-8", CVN_EFORMAT},
        {"{{ '\\ud800' }}", "an escape in a string does not encode a character", CVN_EFORMAT},
        {"{% set ns._x = 1 %}", "only attributes of a namespace", CVN_EINVAL},
        {"{% set ns = namespace() %}{% set ns._x = 1 %}", "begin with _", CVN_EINVAL},
    };
    json_t *data = json_pack("{s:i}", "n", 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JinjaText out = {0};
        cvn_err err = {0};
        int rc = render(cases[i].template, strlen(cases[i].template), data, NULL, &out, &err);
        if (rc != cases[i].code || !strstr(err.message, cases[i].says))
            fail_msg("%s: %d, %s", cases[i].template, rc, err.message);
        assert_int_equal(out.text.length, 0);
        jinja_text_free(&out);
    }
    json_decref(data);
}

static void no_template_takes_without_end(void **state)
{
    static const struct {
        const char *template, *says;
    } cases[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         "16 MiB"},
        {"{% set l = range(100000) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
         "too many steps"},
        {"{% for a in range(10 ** 9) %}{% endfor %}", "more than 100000 numbers"},
        {"{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
         "endfor %}",
         "16 MiB"},
        {"{{ 'abcdefgh' * 10 ** 12 }}", "MiB"},
        {"{{ [1] * 10 ** 12 }}", "MiB"},
        {"{{ ('a' * 1000000).replace('a', 'b' * 1000000) | length }}", "MiB"},
        {"{{ 'a' | indent(10 ** 15, true) }}", "MiB"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply"},
        {"{% set ns = namespace(l=[]) %}{% for i in range(3000) %}{% set ns.l = [ns.l] %}{% endfor "
         "%}{{ ns.l }}",
         "nested too deeply"},
        {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "cannot be written"},
        {"{% set s = 'a' * 1000000 %}{% for a in range(100000) %}{% if 'b' in s %}{% endif %}{% "
         "endfor %}",
         "too many steps"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JinjaText out = {0};
        cvn_err err = {0};
        int rc = render(cases[i].template, strlen(cases[i].template), NULL, NULL, &out, &err);
        if (rc != CVN_EINVAL || !strstr(err.message, cases[i].says))
            fail_msg("%s: %d, %s", cases[i].template, rc, err.message);
        jinja_text_free(&out);
    }
    /* What nests in the source itself. */
    static const char *const deep[] = {"(",    "[",  "-",     "not ",         "{% if 1 %}",
                                       "a(",   "a[", "1 if ", "{% set x = (", "{{ 1 +",
                                       "{'a':"};
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
        StrBuf text = {0};
        JinjaText out = {0};
        cvn_err err = {0};
        strbuf_puts(&text, deep[i][0] == '{' && deep[i][1] == '%' ? "" : "{{ ");
        for (int k = 0; k < 100000; k++)
            strbuf_puts(&text, deep[i]);
        assert_int_not_equal(render(text.text, text.length, NULL, NULL, &out, &err), CVN_OK);
        strbuf_free(&text);
        jinja_text_free(&out);
    }
    StrBuf chain = {0};
    JinjaText out = {0};
    strbuf_puts(&chain, "{{ 1");
    for (int k = 0; k < 100000; k++)
        strbuf_puts(&chain, "+1");
    strbuf_puts(&chain, " }}");
    cvn_err err = {0};
    assert_int_equal(render(chain.text, chain.length, NULL, NULL, &out, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "nested too deeply"));
    strbuf_free(&chain);
    jinja_text_free(&out);
}

/* Each operation gives every byte the mark of the byte that it is of. Data is "Xy Z", own text has no such letters. */
static void marks_go_along_with_bytes(void **state)
{
    static const struct {
        const char *template, *text, *mark; /* mark: d where a byte is data's */
    } cases[] = {
        {"<{{ s }}>", "<Xy Z>", ".dddd."},
        {"{{ '<' + s + '>' }}{{ '<' ~ s ~ '>' }}", "<Xy Z><Xy Z>", ".dddd..dddd."},
        {"{{ s[1:3] }}{{ s[::-1] }}{{ s[0] }}{{ s | last }}", "y Z yXXZ", "dddddddd"},
        {"{{ (' ' + s + ' ') | trim }}{{ s.strip('X') }}", "Xy Zy Z", "ddddddd"},
        {"{{ s.split(' ') | join('|') }}", "Xy|Z", "dd.d"},
        {"{{ s | replace('y', '||') }}{{ '||' | replace('|', s) }}", "X|| ZXy ZXy Z",
         "d..dddddddddd"},
        {"{{ s | upper }}{{ s.lower() }}{{ s | title }}", "XY Zxy zXy Z", "dddddddddddd"},
        {"{{ s | tojson }}{{ ['<', s] | tojson }}", "\"Xy Z\"[\"<\", \"Xy Z\"]",
         "dddddd......dddddd."},
        {"{{ [s] }}{{ {s: 1} }}", "['Xy Z']{'Xy Z': 1}", ".dddddd..dddddd...."},
        {"{{ '{}|{}'.format(s, '<') }}{{ '%s|' % s }}", "Xy Z|<Xy Z|", "dddd..dddd."},
        {"{{ '<' | e }}{{ l | e }}{{ '|' + (l | safe) }}", "&lt;&lt;|<", "....dddd.d"},
        {"{% macro m(x) %}<{{ x }}{{ caller() }}{% endmacro %}{% call m(s) %}{{ s }}>{% endcall %}",
         "<Xy ZXy Z>", ".dddddddd."},
        {"{% set b %}<{{ s }}{% endset %}{{ b }}{% filter upper %}a{{ s }}{% endfilter %}",
         "<Xy ZAXY Z", ".dddd.dddd"},
        {"{% for c in s %}{{ c }}|{% endfor %}", "X|y| |Z|", "d.d.d.d."},
        {"{{ s | indent(1, true) }}{{ s * 2 }}{{ s | list | sort | join }}", " Xy ZXy ZXy Z XyZ",
         ".dddddddddddddddd"},
        {"{{ d.k }}{{ d.keys() | first }}{{ d | dictsort }}", "Xk[('k', 'X')]", "dd..ddd..ddd.."},
        {"{{ own }}{{ d.role }}{{ e.role }}", "<s>userXy Z", ".......dddd"},
        {"{{ s | default('<') }}{{ none_such | default(s) }}{{ s or '<' }}{{ s if s else '<' }}",
         "Xy ZXy ZXy ZXy Z", "dddddddddddddddd"},
        {"{{ s.partition(' ') | join('<') }}{{ s.removeprefix('X') }}{{ s | string | reverse }}",
         "Xy< <Zy ZZ yX", "dd.d.dddddddd"},
        {"{{ strftime_now(s) }}{{ strftime_now('%Y') }}", "Xy Z2024", "dddd...."},
        {"{{ dict(a=s).a }}{{ namespace(a=s).a }}{{ [s, '<'] | map('upper') | join }}",
         "Xy ZXy ZXY Z<", "dddddddddddd."},
    };
    json_t *data = json_loads(
        "{\"s\": \"Xy Z\", \"l\": \"<\", \"d\": {\"k\": \"X\"}, \"e\": {\"role\": \"Xy Z\"}}", 0,
        NULL);
    json_t *roles = json_loads("{\"d\": {\"k\": \"X\", \"role\": \"user\"}}", 0, NULL);
    json_t *own = json_pack("{s:s}", "own", "<s>");
    static const char *const words[] = {"system", "user", NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        JinjaTemplate *jinja;
        JinjaText out = {0};
        cvn_err err = {0};
        json_t *all = json_copy(data);
        if (strstr(cases[i].template, "role"))
            json_object_update(all, roles);
        const JinjaInput input = {
            .data = all, .own = own, .now = &NOW, .own_key = "role", .own_words = words};
        if (jinja_read(cases[i].template, strlen(cases[i].template), &jinja, &err) ||
            jinja_render(jinja, &input, &out, &err))
            fail_msg("%s: %s", cases[i].template, err.message);
        assert_string_equal(out.text.text, cases[i].text);
        for (size_t k = 0; k < out.mark.length; k++)
            out.mark.text[k] = out.mark.text[k] == JINJA_DATA ? 'd' : '.';
        assert_string_equal(out.mark.text, cases[i].mark);
        jinja_text_free(&out);
        jinja_free(jinja);
        json_decref(all);
    }
    json_decref(data);
    json_decref(roles);
    json_decref(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_render_as_jinja2_renders_them),
        cmocka_unit_test(what_is_not_known_is_refused_by_name),
        cmocka_unit_test(no_template_takes_without_end),
        cmocka_unit_test(marks_go_along_with_bytes),
        cmocka_unit_test(published_templates_render_as_jinja2_renders_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
