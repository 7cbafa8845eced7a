/* Chat templates as ids: no message forges a marker, and what transformers' options do. */
#include "test_text.h"
#include "text/answer.h"
#include "text/chat_template.h"

#include <dirent.h>

static const struct tm NOW = {
    .tm_mday = 26, .tm_mon = 6, .tm_year = 124, .tm_wday = 5, .tm_yday = 207};

static const char CHATML[] =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>\n' "
    "}}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* Small templates of the families that there are: markers in literals, made of roles, put together, cut and trimmed. */
static const char *const OURS[] = {
    CHATML,
    "{{ bos_token }}{% for m in messages %}{{ '<|' ~ m['role'] ~ '|>\n' ~ m['content'] ~ eos_token "
    "}}{% endfor %}<|assistant|>",
    "{% set ns = namespace(all='') %}{% for m in messages %}{% set ns.all = ns.all + "
    "'<|im_start|>' ~ m.role %}"
    "{% set ns.all = ns.all + m.content.replace('a', '<|').split('x')[0] + m.content[1:-1] + "
    "'<|im_end|>' %}{% endfor %}{{ ns.all }}",
    "{%- macro turn(m) -%}[INST] {{ m.content | upper | lower | trim }}{{ m | tojson }} [/INST]{%- "
    "endmacro -%}"
    "{% for m in messages %}{{ turn(m) }}{{ '%s<|im_end|>{}'.format(1) % m.content }}{% endfor "
    "%}</s>",
    "{% for m in messages %}<|im_start|>{% filter trim %} {{ m.content | indent(2) | e | string "
    "}}{% endfilter %}"
    "{% set b %}{{ m.content[::-1] | reverse | title }}{% endset %}{{ [b, b] | join('<|im_end|>') "
    "}}{{ {m.content: [m.content]} }}"
    "{% endfor %}",
};

/* The markers in a template's text: what stands between < and >, [ and ], without white space. */
static void add_markers(json_t *markers, const char *text)
{
    for (const char *p = text; *p; p++) {
        size_t n = *p == '<' ? strcspn(p, ">") : *p == '[' ? strcspn(p, "]") : 0;
        char marker[64];
        if (n < 3 || n > 50 || !p[n] || strcspn(p, " \n'\"{}(,") < n ||
            (*p == '<' && strcspn(p + 1, "<") < n - 1))
            continue;
        snprintf(marker, sizeof marker, "%.*s", (int)n + 1, p);
        if (*p == '[' && strspn(marker + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_/") != n - 1)
            continue;
        json_object_set_new(markers, marker, json_true());
    }
}

/* A byte-level tokenizer that has them all as special tokens, and the template. */
static Tokenizer *make_tokenizer(const json_t *markers, const char *template)
{
    json_error_t error;
    json_t *json = json_load_file(CVN_TEST_DATA "/text/byte_level.json", 0, &error), *ignored;
    assert_non_null(json);
    char folder[] = "/tmp/caravan-template-XXXXXX", path[200], command[200];
    json_t *added = json_object_get(json, "added_tokens");
    json_int_t id = 0;
    const char *marker;
    for (size_t i = 0; i < json_array_size(added); i++)
        id = json_integer_value(json_object_get(json_array_get(added, i), "id"));
    json_int_t vocab =
        (json_int_t)json_object_size(json_object_get(json_object_get(json, "model"), "vocab"));
    id = id < vocab ? vocab : id + 1;
    json_object_foreach((json_t *)markers, marker, ignored)
    {
        bool known = false;
        for (size_t i = 0; i < json_array_size(added); i++)
            known |= strcmp(json_string_value(json_object_get(json_array_get(added, i), "content")),
                            marker) == 0;
        if (!known)
            json_array_append_new(added, json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id++,
                                                   "content", marker, "special", 1, "normalized", 0,
                                                   "lstrip", 0, "rstrip", 0, "single_word", 0));
    }
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(json_dump_file(json, path, 0), 0);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    json_t *config = json_pack("{s:s,s:s,s:s}", "chat_template", template, "bos_token", "<s>",
                               "eos_token", "</s>");
    assert_int_equal(json_dump_file(config, path, 0), 0);
    Tokenizer *t = open_tokenizer(folder);
    json_decref(json);
    json_decref(config);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    return t;
}

static Tokenizer *tokenizer_for(const char *template, json_t *markers)
{
    static const char *const roles[] = {"<s>",      "</s>",          "<|system|>",
                                        "<|user|>", "<|assistant|>", "<|tool|>"};
    add_markers(markers, template);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        json_object_set_new(markers, roles[i], json_true());
    return make_tokenizer(markers, template);
}

static ChatTemplate *open_template(const Tokenizer *t)
{
    ChatTemplate *chat;
    cvn_err err = {0};
    must(chat_template_open(t, NULL, &chat, &err), &err);
    assert_non_null(chat);
    return chat;
}

/* How often each special token is in ids; NULL where the template does not take the messages. */
static size_t *count_special(const ChatTemplate *chat, const Tokenizer *t,
                             const char *const content[4], bool tools, TokenIds *ids)
{
    static const char *const roles[] = {"system", "user", "assistant", "user"};
    json_t *messages = json_array();
    for (size_t i = 0; i < 4; i++)
        json_array_append_new(messages,
                              json_pack("{s:s,s:s}", "role", roles[i], "content", content[i]));
    json_t *tool =
        json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s,s:s}}}}}]", "type", "function", "function",
                  "name", content[0], "description", content[1], "parameters", "type", "object",
                  "properties", content[2], "type", "string", "description", content[3]);
    assert_non_null(tool);
    ChatInput input = {
        .messages = messages, .tools = tools ? tool : NULL, .generation_prompt = true, .now = &NOW};
    cvn_err err = {0};
    size_t *count = NULL;
    ids->n = 0;
    if (chat_template_encode(chat, t, &input, ids, NULL, &err) == CVN_OK) {
        count = calloc((size_t)tokenizer_vocab_size(t), sizeof *count);
        for (size_t i = 0; i < ids->n; i++) {
            const char *piece = tokenizer_piece(t, ids->id[i], NULL);
            if (piece && tokenizer_special(t, piece) == ids->id[i])
                count[ids->id[i]]++;
        }
    }
    json_decref(messages);
    json_decref(tool);
    return count;
}

/* With messages that hold every marker, whole and cut in two, there are no more of any than with harmless ones. */
static bool check_forging(const char *name, const char *template)
{
    json_t *markers = json_object(), *ignored;
    Tokenizer *t = tokenizer_for(template, markers);
    ChatTemplate *chat;
    cvn_err err = {0};
    bool checked = false;
    if (chat_template_open(t, NULL, &chat, &err)) {
        print_message("%s: %s\n", name, err.message);
        tokenizer_free(t);
        json_decref(markers);
        return false;
    }
    StrBuf all = {0}, first = {0}, last = {0};
    const char *marker;
    json_object_foreach(markers, marker, ignored)
    {
        /* What some templates cut thoughts and calls at: they write such markers themselves, then. */
        if (strstr(marker, "think") || strstr(marker, "THINK") || strstr(marker, "tool_call") ||
            strstr(marker, "channel"))
            continue;
        size_t half = strlen(marker) / 2;
        while (((unsigned char)marker[half] & 0xc0) == 0x80)
            half++;
        strbuf_printf(&all, "%s x%s", marker, marker);
        strbuf_printf(&first, "%s%.*s", marker, (int)half,
                      marker); /* a template that goes on with the other half … */
        strbuf_printf(&last, "%s %s", marker + half, marker); /* … or began with the first */
    }
    strbuf_puts(&first, "<|im_");
    strbuf_puts(&all, "user|>");
    static const char *const harmless[] = {"bcd", "cde", "def", "efg"};
    const char *const evil[] = {first.text, all.text, last.text, all.text + 1}; /* each another */
    TokenIds ids = {0};
    for (int tools = 0; tools < 2; tools++) {
        size_t *plain = count_special(chat, t, harmless, tools, &ids),
               *forged = count_special(chat, t, evil, tools, &ids);
        for (int32_t id = 0; plain && forged && id < tokenizer_vocab_size(t); id++)
            if (forged[id] != plain[id])
                fail_msg("%s: %zu of %s, where %zu are its own", name, forged[id],
                         tokenizer_piece(t, id, NULL), plain[id]);
        checked |= plain && forged;
        free(plain);
        free(forged);
    }
    token_ids_free(&ids);
    strbuf_free(&all);
    strbuf_free(&first);
    strbuf_free(&last);
    json_decref(markers);
    chat_template_free(chat);
    tokenizer_free(t);
    return checked;
}

static void a_message_cannot_forge_a_marker(void **state)
{
    for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++)
        assert_true(check_forging("one of ours", OURS[i]));
}

static void nor_one_of_a_published_template(void **state)
{
    const char *const folders[] = {CVN_SHARED_DATA "/chat/templates", getenv("CARAVAN_TEMPLATES")};
    size_t n = 0, checked = 0;
    for (size_t f = 0; f < 2; f++) {
        DIR *folder = folders[f] ? opendir(folders[f]) : NULL;
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            char path[1024];
            size_t length;
            if (!strstr(entry->d_name, ".jinja"))
                continue;
            snprintf(path, sizeof path, "%s/%s", folders[f], entry->d_name);
            char *whole = read_whole(path, &length), *text = strndup(whole, length);
            n++;
            checked += check_forging(entry->d_name, text);
            free(whole);
            free(text);
        }
        if (folder)
            closedir(folder);
    }
    if (n == 0) {
        print_message("skipped: no templates are there\n");
        skip();
    }
    print_message("%zu templates, %zu of which take these conversations\n", n, checked);
    assert_true(checked > 0);
}

static StrBuf encode(const char *template, const char *messages, ChatInput input, TokenIds *ids,
                     cvn_err *err)
{
    json_t *markers = json_object(), *list = json_loads(messages, 0, NULL);
    Tokenizer *t = tokenizer_for(template, markers);
    ChatTemplate *chat = open_template(t);
    StrBuf text = {0};
    assert_non_null(list);
    input.messages = list;
    input.now = &NOW;
    strbuf_puts(&text, "");
    int rc = chat_template_encode(chat, t, &input, ids, &text, err);
    assert_true((rc != CVN_OK) == (err->code != CVN_OK));
    if (rc)
        assert_int_equal(ids->n, 0);
    json_decref(list);
    json_decref(markers);
    chat_template_free(chat);
    tokenizer_free(t);
    return text;
}

static void expect_text(const char *template, const char *messages, ChatInput input,
                        const char *expected)
{
    TokenIds ids = {0};
    cvn_err err = {0};
    StrBuf text = encode(template, messages, input, &ids, &err);
    assert_string_equal(err.code ? err.message : text.text, expected);
    strbuf_free(&text);
    token_ids_free(&ids);
}

static void the_last_message_is_continued(void **state)
{
    const char *turns = "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                        "\"content\": \"b c \"}]";
    expect_text(CHATML, turns, (ChatInput){.continues = "content"},
                "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb c");
    expect_text("{% for m in messages %}{{ m.content }}|{% endfor %}", turns,
                (ChatInput){.continues = "content"}, "a|b c ");
    expect_text("{% for m in messages %}{{ m.content[0].text }}|{% endfor %}",
                "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"q\"}]}]",
                (ChatInput){.continues = "content"}, "q");
    expect_text("{% for m in messages %}{{ m.thinking }}|{{ m.content }}{% endfor %}",
                "[{\"role\": \"assistant\", \"content\": \"x\", \"reasoning\": \"hm\"}]",
                (ChatInput){.continues = "reasoning"}, "hm");
    expect_text("{{ messages[0].content }}", turns, (ChatInput){.continues = "content"},
                "the chat template changes the last message, so it cannot be continued");
    expect_text(CHATML, turns, (ChatInput){.continues = "thinking"},
                "the last message has no text in 'thinking' to continue");
    expect_text(
        CHATML, turns, (ChatInput){.continues = "content", .generation_prompt = true},
        "continuing the last message and starting a new one exclude each other; choose one");
}

static void what_a_template_is_given(void **state)
{
    json_t *tools = json_loads("[{\"name\": \"f\"}]", 0, NULL),
           *extra = json_loads("{\"x\": 7, \"eos_token\": \"</s>\"}", 0, NULL);
    expect_text(
        "{{ tools is none }}{{ documents }}{{ x }}{{ bos_token }}{{ strftime_now('%d.%m.%Y') }}{{ "
        "messages[0] }}",
        "[{\"role\": \"user\", \"content\": \"a\", \"tool_calls\": null, \"reasoning\": \"r\"}]",
        (ChatInput){0},
        "TrueNone<s>26.07.2024{'thinking': 'r', 'role': 'user', 'content': 'a', 'reasoning': 'r', "
        "'reasoning_content': 'r'}");
    expect_text(
        "{{ tools[0].name }}{{ documents[0].name }}{{ x }}{{ add_generation_prompt }}",
        "[{\"role\": \"user\"}]",
        (ChatInput){
            .tools = tools, .documents = tools, .variables = extra, .generation_prompt = true},
        "ff7True");
    expect_text("{{ raise_exception('only ' ~ 'users') }}", "[{\"role\": \"user\"}]",
                (ChatInput){0}, "only users");
    expect_text("a", "[]", (ChatInput){0}, "the conversation has no message");
    expect_text("a", "[5]", (ChatInput){0}, "'messages' is not a list of objects");
    /* A variable of the caller's is no marker, not even where it takes a token's place. */
    TokenIds ids = {0};
    cvn_err err = {0};
    StrBuf text = encode("{{ eos_token }}", "[{\"role\": \"user\"}]",
                         (ChatInput){.variables = extra}, &ids, &err);
    assert_string_equal(text.text, "</s>");
    assert_true(ids.n > 1);
    strbuf_free(&text);
    token_ids_free(&ids);
    json_decref(tools);
    json_decref(extra);
}

static void markers_are_made_of_roles_but_not_of_contents(void **state)
{
    static const char template[] = "{% for m in messages %}{{ '<|' + m.role + '|>' }}{{ '<|' + "
                                   "m.content + '|>' }}{% endfor %}";
    json_t *markers = json_object();
    Tokenizer *t = tokenizer_for(template, markers);
    ChatTemplate *chat = open_template(t);
    static const struct {
        const char *role;
        size_t own;
    } cases[] = {{"user", 1}, {"assistant", 1}, {"im_end", 0}, {"user|><|user", 0}};
    int32_t user = tokenizer_special(t, "<|user|>"),
            assistant = tokenizer_special(t, "<|assistant|>");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *messages = json_pack("[{s:s,s:s}]", "role", cases[i].role, "content", "user");
        ChatInput input = {.messages = messages};
        TokenIds ids = {0};
        size_t n = 0;
        assert_int_equal(chat_template_encode(chat, t, &input, &ids, NULL, NULL), CVN_OK);
        for (size_t k = 0; k < ids.n; k++)
            n += ids.id[k] == user || ids.id[k] == assistant;
        assert_int_equal(n, cases[i].own);
        token_ids_free(&ids);
        json_decref(messages);
    }
    chat_template_free(chat);
    tokenizer_free(t);
    json_decref(markers);
}

static void the_end_of_a_turn_ends_an_answer(void **state)
{
    json_t *markers = json_object();
    Tokenizer *t = tokenizer_for(CHATML, markers);
    ChatTemplate *chat = open_template(t);
    int32_t stops[4];
    assert_int_equal(chat_template_stops(chat, t, stops), 2);
    assert_int_equal(stops[0], tokenizer_eos(t));
    assert_int_equal(stops[1], tokenizer_special(t, "<|im_end|>"));
    assert_null(answer_form_find(chat_template_source(chat)));
    chat_template_free(chat);
    tokenizer_free(t);
    json_decref(markers);
}

/* The ids are those of the text, where no message has markers: merges go across the borders of messages. */
static void ids_are_those_of_the_text(void **state)
{
    static const char turns[] = "[{\"role\": \"user\", \"content\": \"the story 1\"}, {\"role\": "
                                "\"assistant\", \"content\": \"and\"}]";
    json_t *markers = json_object(), *list = json_loads(turns, 0, NULL);
    Tokenizer *t = tokenizer_for(CHATML, markers);
    ChatTemplate *chat = open_template(t);
    for (int i = 0; i < 2; i++) {
        TokenIds ids = {0}, whole = {0};
        StrBuf text = {0};
        ChatInput input = {.messages = list, .generation_prompt = i};
        assert_int_equal(chat_template_encode(chat, t, &input, &ids, &text, NULL), CVN_OK);
        assert_int_equal(
            tokenizer_encode(t, text.text, text.length, TOKENIZER_SPECIAL, &whole, NULL), CVN_OK);
        assert_int_equal(ids.n, whole.n);
        assert_memory_equal(ids.id, whole.id, ids.n * sizeof *ids.id);
        token_ids_free(&ids);
        token_ids_free(&whole);
        strbuf_free(&text);
    }
    chat_template_free(chat);
    tokenizer_free(t);
    json_decref(markers);
    json_decref(list);
}

/* Short templates of the kinds that Qwen3 and gpt-oss have. */
static const char THINKS[] = "{% for m in messages %}<|im_start|>{{ m.role + '\n' }}{% if m.role "
                             "== 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
                             "{{ m.content }}{% for c in m.tool_calls %}{% if not loop.first %}{{ "
                             "'\n' }}{% endif %}<tool_call>\n{\"name\": \""
                             "{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | "
                             "tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char HARMONY[] =
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.tool_calls %}{% set c = "
    "m.tool_calls[0].function %}"
    "{{ ' to=functions.' ~ c.name ~ '<|channel|>commentary json<|message|>' ~ c.arguments | tojson "
    "}}<|call|>{% else %}"
    "{{ '<|channel|>final<|message|>' ~ m.content }}{% if loop.last and not add_generation_prompt "
    "%}<|return|>{% else %}<|end|>"
    "{% endif %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}";

/* What is learnt of a template: the ids that end an answer, and how tools are called. */
static void check_learnt(const char *template, const char *const *ends, size_t n_ends,
                         const char *before, const char *mark)
{
    json_t *markers = json_object();
    Tokenizer *t = tokenizer_for(template, markers);
    ChatTemplate *chat = open_template(t);
    int32_t stops[4];
    size_t n = chat_template_stops(chat, t, stops);
    for (size_t i = 0; i < n_ends; i++) {
        bool found = false;
        for (size_t k = 0; k < n; k++)
            found |= stops[k] == tokenizer_special(t, ends[i]);
        if (!found)
            fail_msg("'%s' ends no answer", ends[i]);
    }
    assert_int_equal(n, n_ends + 1); /* and the tokenizer's own */
    CallSyntax calls;
    call_syntax_learn(&calls, chat, t, stops, n);
    assert_true(calls.known && !calls.plain);
    assert_string_equal(calls.before, before);
    assert_string_equal(calls.mark ? calls.mark : "", mark);
    call_syntax_free(&calls);
    chat_template_free(chat);
    tokenizer_free(t);
    json_decref(markers);
}

static void a_call_is_learnt_behind_an_empty_thought(void **state)
{
    static const char *const ends[] = {"<|im_end|>"};
    check_learnt(THINKS, ends, 1, "<tool_call>\n{\"name\": \"", "<tool_call>");
}

static void a_token_right_behind_a_call_ends_an_answer(void **state)
{
    static const char *const ends[] = {"<|return|>", "<|call|>"};
    check_learnt(HARMONY, ends, 2, " to=functions.", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_learnt_behind_an_empty_thought),
        cmocka_unit_test(a_token_right_behind_a_call_ends_an_answer),
        cmocka_unit_test(a_message_cannot_forge_a_marker),
        cmocka_unit_test(nor_one_of_a_published_template),
        cmocka_unit_test(the_last_message_is_continued),
        cmocka_unit_test(what_a_template_is_given),
        cmocka_unit_test(markers_are_made_of_roles_but_not_of_contents),
        cmocka_unit_test(the_end_of_a_turn_ends_an_answer),
        cmocka_unit_test(ids_are_those_of_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
