/* A server with several models and adapters: a request gets the one that it names, alone or beside others; and the command
   that starts it. */
#include "shell.h"

#ifdef CVN_HAVE_MICROHTTPD

#include "adapter_make.h"
#include "io/model.h"
#include "serve/engine.h"
#include "server_run.h"

enum { MODELS = 2, ADAPTERS = 2, PLACES = 8 };

/* "tiny" with the adapters "law" and "code"; "second". */
static cvn_model *models[MODELS];
static cvn_engine *engines[MODELS];
static Server *server;
static pthread_t thread;
static int port;

static void *run(void *context)
{
    cvn_err err = {0};
    (void)context;
    return server_run(server, engines, &err) ? engines : NULL;
}

static int begin(void **state)
{
    static const char *const names[ADAPTERS] = {"law", "code"};
    static ServerModel is[MODELS] = {{.name = "tiny", .adapter = names, .n_adapters = ADAPTERS},
                                     {.name = "second"}};
    static const char *folder[ADAPTERS];
    cvn_err err = {0};
    if (make_models(state))
        return -1;
    for (int i = 0; i < MODELS; i++) {
        is[i].path = in_scratch(i ? "other" : "model");
        must(cvn_model_open(is[i].path, NULL, &models[i], &err), &err);
        if (i == 0) /* merged with it, which makes it another */
            make_adapter(in_scratch("other"), models[0]->io.desc, "r=4,alpha=80", is[0].path, 9,
                         false);
        for (int k = 0; k < ADAPTERS && i == 0; k++) {
            folder[k] = in_scratch(names[k]);
            make_adapter(folder[k], models[i]->io.desc,
                         k ? "r=3,alpha=90,targets=q,v,o,up,down" : "r=8,alpha=160", NULL,
                         (uint64_t)k, false);
        }
        const cvn_engine_options options = {.slots = i ? 1 : 4,
                                            .context = 200,
                                            .threads = 1,
                                            .penalties = true,
                                            .reuse = true,
                                            .logits_processors = true,
                                            .scoring = true,
                                            .pooling = i ? "last" : "mean",
                                            .adapter = folder,
                                            .n_adapters = is[i].n_adapters,
                                            .n_buckets = 2,
                                            .bucket = {16, 64}};
        must(cvn_engine_new(models[i], &options, &engines[i], &err), &err);
    }
    ServerOptions options = usual_options();
    options.model = is;
    options.n_models = MODELS;
    must(server_new(&options, &server, &err), &err);
    port = server_port(server);
    expect_status(port, "/v1/completions", "{\"model\": \"tiny\", \"prompt\": \"x\"}", 503,
                  "loading");
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        Reply reply = http_ask(port, "GET", "/health", "", NULL);
        int status = reply.status;
        reply_free(&reply);
        if (status == 200)
            return 0;
        usleep(10000);
    }
    return -1;
}

static int finish(void **state)
{
    void *failed;
    server_drain(server);
    pthread_join(thread, &failed);
    server_free(server);
    for (int i = 0; i < MODELS; i++) {
        cvn_engine_free(engines[i], NULL);
        cvn_model_free(models[i]);
    }
    return failed ? -1 : remove_scratch(state);
}

/* What names which, and what the answer says that it comes from. */
static const struct {
    const char *asks, *from;
} places[PLACES] = {
    {"\"model\": \"tiny\"", "tiny"},
    {"\"model\": \"law\"", "law"},
    {"\"model\": \"tiny\", \"adapter\": \"law\"", "law"},
    {"\"model\": \"law\", \"adapter\": \"law\"", "law"},
    {"\"model\": \"code\"", "code"},
    {"\"model\": \"tiny\", \"adapter\": null", "tiny"},
    {"\"model\": \"second\"", "second"},
    {"\"model\": \"tiny\", \"adapter\": \"code\"", "code"},
};

#define PROMPT                                                                                     \
    "\"prompt\": \"All of them read these same words\", \"max_tokens\": 12, \"temperature\": 0"

static char *ask(int place, bool streamed)
{
    Question q = {"/v1/completions", NULL, "choices.0.text", "choices.0.text"};
    StrBuf body = {0};
    strbuf_printf(&body, "%s, " PROMPT, places[place].asks);
    q.body = body.text;
    char *text = answer(port, &q, streamed);
    strbuf_free(&body);
    return text;
}

static void a_request_gets_what_it_names(void **state)
{
    char *text[PLACES];
    (void)state;
    for (int i = 0; i < PLACES; i++) {
        StrBuf body = {0};
        strbuf_printf(&body, "{%s, " PROMPT "}", places[i].asks);
        Reply r = post(port, "/v1/completions", body.text);
        char *from = string_at(&r, "model");
        text[i] = string_at(&r, "choices.0.text");
        assert_string_equal(from, places[i].from);
        for (int k = 0; k < i; k++)
            if ((strcmp(text[i], text[k]) == 0) != (strcmp(places[i].from, places[k].from) == 0))
                fail_msg("%s: \"%s\", %s: \"%s\"", places[i].asks, text[i], places[k].asks,
                         text[k]);
        free(from);
        reply_free(&r);
        strbuf_free(&body);
    }
    for (int i = 0; i < PLACES; i++)
        free(text[i]);
}

typedef struct Client {
    pthread_t thread;
    uint64_t random;
    char *const *alone; /* [PLACES] */
    int wrong;
} Client;

static void *ask_some(void *context)
{
    Client *c = context;
    for (int i = 0; i < 16; i++) {
        uint64_t random = splitmix(&c->random);
        char *text = ask((int)(random % PLACES), random / PLACES % 2);
        c->wrong += strcmp(text, c->alone[random % PLACES]) != 0;
        free(text);
    }
    return NULL;
}

static void company_changes_no_answer(void **state)
{
    enum { CLIENTS = 5 };
    Client client[CLIENTS];
    char *alone[PLACES];
    (void)state;
    for (int i = 0; i < PLACES; i++)
        alone[i] = ask(i, false);
    for (int i = 0; i < CLIENTS; i++) {
        client[i] = (Client){.random = (uint64_t)i, .alone = alone};
        assert_int_equal(pthread_create(&client[i].thread, NULL, ask_some, &client[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        pthread_join(client[i].thread, NULL);
        assert_int_equal(client[i].wrong, 0);
    }
    for (int i = 0; i < PLACES; i++)
        free(alone[i]);
}

/* What an engine gives of the text, of which the server's should be no bit apart. */
static void expect_embedding(int of, int adapter, const char *text, const float *got, size_t width)
{
    cvn_err err = {0};
    cvn_engine *e;
    int32_t *ids;
    int64_t n;
    float *want = calloc(width, sizeof *want);
    cvn_engine_options options = engines[of]->options;
    options.slots = 1;
    options.reuse = false;
    must(cvn_engine_new(models[of], &options, &e, &err), &err);
    must(cvn_model_encode(models[of], text, strlen(text), CVN_ENCODE_BOS, &ids, &n, &err), &err);
    must(cvn_engine_embed(e, adapter, ids, n, want, &err), &err);
    for (size_t i = 0; i < width; i++)
        if (want[i] != got[i])
            fail_msg("\"%s\": number %zu is %g, not %g", text, i, (double)got[i], (double)want[i]);
    cvn_engine_free(e, NULL);
    free(want);
    free(ids);
}

static json_t *embeddings(const char *body)
{
    Reply r = post(port, "/v1/embeddings", body);
    if (r.status != 200)
        fail_msg("%s: %d, %s", body, r.status, r.body.text);
    json_t *json = json_of(&r);
    reply_free(&r);
    return json;
}

/* Number `index` of an answer. */
static const json_t *embedding_at(const json_t *json, size_t index)
{
    const json_t *row = json_array_get(json_object_get(json, "data"), index);
    assert_int_equal(json_integer_value(json_object_get(row, "index")), index);
    return json_object_get(row, "embedding");
}

static void embeddings_are_those_of_the_engine(void **state)
{
    static const char *const texts[] = {"A text",
                                        "Another one",
                                        "c",
                                        "The fourth of them",
                                        "and five",
                                        "A text of more tokens than others",
                                        "one more of about that length",
                                        "and a last one as long"};
    enum { TEXTS = sizeof texts / sizeof *texts };
    enum { WIDTH = 1024 };
    float got[WIDTH];
    (void)state;
    static const struct {
        const char *name;
        int of, adapter;
    } who[] = {{"tiny", 0, -1}, {"law", 0, 0}, {"second", 1, -1}, {"code", 0, 1}};
    for (size_t w = 0; w < sizeof who / sizeof *who; w++) {
        StrBuf input = {0};
        strbuf_printf(&input, "{\"model\": \"%s\", \"input\": [", who[w].name);
        for (size_t i = 0; i < TEXTS; i++)
            strbuf_printf(&input, "%s\"%s\"", i ? ", " : "", texts[i]);
        strbuf_puts(&input, "]}");
        json_t *json = embeddings(input.text);
        strbuf_free(&input);
        assert_string_equal(json_string_value(json_object_get(json, "model")), who[w].name);
        for (size_t i = 0; i < TEXTS; i++) {
            const json_t *e = embedding_at(json, i);
            size_t width = json_array_size(e);
            assert_int_equal(width, cvn_model_width(models[who[w].of]));
            for (size_t k = 0; k < width; k++)
                got[k] = (float)json_real_value(json_array_get(e, k));
            expect_embedding(who[w].of, who[w].adapter, texts[i], got, width);
        }
        assert_true(json_integer_value(json_at(json, "usage.prompt_tokens")) > 4);
        json_decref(json);
    }
    /* one text as such, as ids, and in base64: the same */
    json_t *one = embeddings("{\"model\": \"tiny\", \"input\": \"ab\"}");
    Reply r = post(port, "/tokenize", "{\"model\": \"tiny\", \"prompt\": \"ab\"}");
    json_t *ids = json_of(&r);
    char *list = json_dumps(json_object_get(ids, "tokens"), 0);
    StrBuf body = {0};
    strbuf_printf(&body, "{\"model\": \"tiny\", \"input\": %s, \"encoding_format\": \"float\"}",
                  list);
    json_t *same = embeddings(body.text);
    assert_true(json_equal(json_object_get(one, "data"), json_object_get(same, "data")));
    json_t *packed =
        embeddings("{\"model\": \"tiny\", \"input\": \"ab\", \"encoding_format\": \"base64\"}");
    const char *text = json_string_value(embedding_at(packed, 0));
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t width = json_array_size(embedding_at(one, 0)), bytes = 0;
    assert_int_equal(strlen(text), (width * sizeof *got + 2) / 3 * 4);
    for (size_t i = 0; text[i] && text[i] != '='; i++) {
        static unsigned bits;
        bits = bits << 6 | (unsigned)(strchr(digits, text[i]) - digits);
        if (i % 4)
            ((unsigned char *)got)[bytes++] = (unsigned char)(bits >> (6 - i % 4 * 2));
    }
    assert_int_equal(bytes, width * sizeof *got);
    for (size_t k = 0; k < width; k++)
        assert_true(got[k] == (float)json_real_value(json_array_get(embedding_at(one, 0), k)));
    json_decref(one);
    json_decref(same);
    json_decref(packed);
    json_decref(ids);
    free(list);
    strbuf_free(&body);
    reply_free(&r);
}

/* More texts than there is room to wait for, beside one that is generated. */
static void many_embeddings_stop_nobody(void **state)
{
    (void)state;
    StrBuf body = {0};
    strbuf_puts(&body, "{\"model\": \"second\", \"input\": [\"a\"");
    for (int i = 0; i < 299; i++)
        strbuf_puts(&body, ", \"a\"");
    strbuf_puts(&body, "]}");
    int fd = http_connect(port);
    http_send(fd, "POST", "/v1/embeddings", "", body.text);
    char *beside = ask(6, false);
    Reply r = http_receive(fd);
    json_t *json = json_of(&r);
    assert_int_equal(json_array_size(json_object_get(json, "data")), 300);
    for (size_t i = 1; i < 300; i++)
        assert_true(json_equal(embedding_at(json, 0), embedding_at(json, i)));
    json_decref(json);
    reply_free(&r);
    strbuf_free(&body);
    free(beside);
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *piece;
    } cases[] = {
        {"/v1/completions", "{\"prompt\": \"x\"}", 400, "available are tiny, law, code, second"},
        {"/v1/completions", "{\"model\": \"third\", \"prompt\": \"x\"}", 404,
         "tiny, law, code, second are available"},
        {"/v1/completions", "{\"model\": \"tiny\", \"adapter\": \"x\", \"prompt\": \"x\"}", 404,
         "law, code"},
        {"/v1/completions", "{\"model\": \"second\", \"adapter\": \"law\", \"prompt\": \"x\"}", 404,
         "adapter law does not exist"},
        {"/v1/completions", "{\"model\": \"law\", \"adapter\": \"code\", \"prompt\": \"x\"}", 400,
         "contradict each other"},
        {"/v1/embeddings", "{\"model\": \"tiny\"}", 400, "input is missing"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": []}", 400, "0 prompts"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": {\"a\": 1}}", 400, "token ids"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": [1, -1]}", 400, "token id"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": \"x\", \"dimensions\": 7}", 400,
         "dimensions is 7"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": \"x\", \"encoding_format\": \"x\"}",
         400, "base64"},
        {"/v1/embeddings", "{\"model\": \"tiny\", \"input\": \"x\", \"stream\": true}", 400,
         "it is a field of chat.completions, not of embeddings"},
        {"/v1/chat/completions", "{\"model\": 3, \"messages\": []}", 400, "model"},
        {"/v1/messages",
         "{\"model\": \"x\", \"max_tokens\": 3, \"messages\": [{\"role\": \"user\", \"content\": "
         "\"x\"}]}",
         404, "model x does not exist"},
        {"/v1/responses", "{\"model\": \"x\", \"input\": \"x\"}", 404, "model x does not exist"},
        {"/detokenize", "{\"tokens\": [5]}", 400, "the model is missing"},
        {"/tokenize", "{\"model\": \"law\", \"prompt\": \"x\"}", 200, "\"max_model_len\":200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_status(port, cases[i].path, cases[i].body, cases[i].status, cases[i].piece);
}

static void all_are_listed_and_counted(void **state)
{
    static const char *const names[] = {"tiny", "law", "code", "second"};
    (void)state;
    Reply r = http_ask(port, "GET", "/v1/models", "", NULL);
    json_t *list = json_of(&r);
    for (size_t i = 0; i < 4; i++) {
        const json_t *m = json_array_get(json_object_get(list, "data"), i);
        assert_string_equal(json_string_value(json_object_get(m, "id")), names[i]);
        assert_int_equal(json_object_get(m, "parent") != NULL, i == 1 || i == 2);
    }
    json_decref(list);
    reply_free(&r);
    r = http_ask(port, "GET", "/metrics", "", NULL);
    static const char *const lines[] = {
        "\nvllm:generation_tokens_total{model_name=\"tiny\"} ",
        "\nvllm:generation_tokens_total{model_name=\"second\"} ",
        "\nvllm:request_success_total{model_name=\"second\",finished_reason=\"length\"} ",
        "\nvllm:time_to_first_token_seconds_count{model_name=\"second\"} ",
        "\nvllm:lora_requests_info{model_name=\"tiny\",max_lora=\"2\",running_lora_adapters=\"",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(r.body.text, lines[i]))
            fail_msg("no%s in %s", lines[i], r.body.text);
    assert_null(strstr(strstr(r.body.text, "# TYPE vllm:generation_tokens_total") + 1,
                       "# TYPE vllm:generation_tokens_total"));
    reply_free(&r);
}

/* A prompt that one adapter has read is new to another. */
static void caches_are_kept_apart(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        bool again;
    } turns[] = {{"tiny", false}, {"tiny", true}, {"law", false}, {"code", false}, {"law", true}};
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        StrBuf body = {0};
        strbuf_printf(&body,
                      "{\"model\": \"%s\", \"max_tokens\": 2, \"prompt\": \"Nobody else has said "
                      "these words before\"}",
                      turns[i].model);
        Reply r = post(port, "/v1/completions", body.text);
        json_t *json = json_of(&r);
        json_int_t cached =
            json_integer_value(json_at(json, "usage.prompt_tokens_details.cached_tokens"));
        if ((cached > 1) != turns[i].again) /* the begin of text is everybody's */
            fail_msg("turn %zu: %lld tokens were cached", i, (long long)cached);
        json_decref(json);
        reply_free(&r);
        strbuf_free(&body);
    }
}

static void the_command_takes_them_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *options, *words;
    } refused[] = {
        {"-m model -m long --name x", "--model NAME=DIR"},
        {"-m a=model -m a=long", "two have the name a"},
        {"-m a=model --adapter law", "no name"},
        {"-m a=model --adapter a=law", "two have the name a"},
        {"-m a=model -m b=long --adapter x=law", "MODEL/NAME=DIR"},
        {"-m a=nothing", "no file or folder nothing"},
        {"-m a=model --adapter x=long", "is not a folder of adapters"},
        {"-m a=model --adapter x=nothing", "nothing"},
        {"-m a=model --context 1000000", "the context is 1000000"},
        {"-m a=model --activations int8", "int8"},
        {"-m a=model --api-key-file nothing", "nothing"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char line[160];
        int status;
        snprintf(line, sizeof line, "caravan serve --port 0 %s 2>&1", refused[i].options);
        StrBuf output = shell(line, &status);
        if (status == 0 || !strstr(output.text, refused[i].words) ||
            strstr(output.text, "listening"))
            fail_msg("%s: %d, %s", line, status, output.text);
        strbuf_free(&output);
    }
    expect(0,
           "rm -f out err; " CVN_BINARY " serve -m a=model -m b=long --adapter a/law=law "
           "--adapter a/code=code --slots 2 --context 64 --port 0 > out 2> err & pid=$!; "
           "for i in $(seq 900); do grep -q 'b is ready' err && break; sleep 0.05; done; "
           "url=$(sed -n 's/^listening at //p' out); "
           "for i in $(seq 600); do curl -s $url/health | grep -q '\"ok\"' && break; sleep 0.05; "
           "done; curl -s $url/v1/models | grep -o '\"id\":\"[a-z]*\"' | tr '\\n' ' '; "
           "curl -s $url/v1/completions -d '{\"model\": \"law\", \"prompt\": \"x\"}' | "
           "grep -o '\"model\":\"law\"'; kill -TERM $pid; wait $pid; echo ended $?",
           "\"id\":\"a\" \"id\":\"law\" \"id\":\"code\" \"id\":\"b\" \"model\":\"law\"\nended 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_gets_what_it_names),
        cmocka_unit_test(company_changes_no_answer),
        cmocka_unit_test(embeddings_are_those_of_the_engine),
        cmocka_unit_test(many_embeddings_stop_nobody),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(caches_are_kept_apart),
        cmocka_unit_test(all_are_listed_and_counted),
        cmocka_unit_test(the_command_takes_them_by_name),
    };
    return cmocka_run_group_tests(tests, begin, finish);
}

#else

int main(void)
{
    return 0;
}

#endif
