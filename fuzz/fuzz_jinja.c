/*
 * Jinja from arbitrary bytes: a template, a NUL byte, and JSON for its variables (where that is none, some of ours).
 * What must hold: what is read renders or says in one sentence why not, within its bounds; text and marks have the same
 * length, and the text is UTF-8.
 */
#include "text/jinja/jinja.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char USUAL[] = "{\"messages\": [{\"role\": \"user\", \"content\": \" a b \"}, "
                            "{\"role\": \"assistant\", \"content\": null, "
                            "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": "
                            "{\"x\": [1, 2.5, true, \"\\u00e9\"]}}}]}], "
                            "\"tools\": [{\"a\": {}}], \"n\": 3, \"add_generation_prompt\": true}";

static void check(int code, const cvn_err *err, const JinjaText *out)
{
    if ((code == CVN_OK) != (err->code == CVN_OK) ||
        (code && (!err->message[0] || strchr(err->message, '\n'))))
        abort();
    if (out->text.length != out->mark.length || (code && out->text.length))
        abort();
    if (out->text.length && !utf8_valid(out->text.text, out->text.length))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm now = {.tm_year = 124, .tm_mday = 26};
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    size_t n = end ? (size_t)(end - text) : size;
    JinjaTemplate *jinja;
    JinjaText out = {0};
    cvn_err err = {0};
    int code = jinja_read(text, n, &jinja, &err);
    check(code, &err, &out);
    if (code)
        return 0;
    json_t *json = end ? json_loadb(end + 1, size - n - 1, JSON_ALLOW_NUL, NULL) : NULL;
    if (!json_is_object(json)) {
        json_decref(json);
        json = json_loads(USUAL, 0, NULL);
    }
    json_t *own = json_pack("{s:s}", "bos_token", "<s>");
    const JinjaInput input = {
        .data = json, .own = own, .now = &now, .max_steps = 200000, .max_memory = 32 << 20};
    code = jinja_render(jinja, &input, &out, &err);
    check(code, &err, &out);
    json_decref(json);
    json_decref(own);
    jinja_text_free(&out);
    jinja_free(jinja);
    return 0;
}
