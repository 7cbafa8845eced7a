/*
 * A model goes on from a text, by the public interface alone:
 *
 *     cc -o generate generate.c $(pkg-config --cflags --libs caravan)
 *     ./generate my-llama "Once upon a time" 100
 *
 * Always with the likeliest token; a request's `sampling` and options of the engine would make it vary.
 */
#include <caravan/caravan.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was generated so far; the engine calls for each token. */
typedef struct Answer {
    int32_t *ids; /* owned, room for max_tokens */
    int64_t n;
} Answer;

static bool on_token(void *context, int request, int32_t token)
{
    Answer *answer = context;
    (void)request; /* there is but one */
    answer->ids[answer->n++] = token;
    return true; /* go on */
}

static int generate(const cvn_model *model, cvn_engine *engine, const char *prompt,
                    int64_t max_tokens, cvn_err *err)
{
    cvn_request request = {.max_tokens = max_tokens};
    cvn_result result;
    Answer answer = {.ids = calloc((size_t)max_tokens, sizeof *answer.ids)};
    int32_t *ids = NULL;
    char *text = NULL;
    size_t length = 0;
    int code = answer.ids ? CVN_OK : CVN_EMEM;
    if (code == CVN_OK)
        code = cvn_model_encode(model, prompt, strlen(prompt), CVN_ENCODE_BOS, &ids,
                                &request.n_prompt, err);
    request.prompt = ids;
    if (code == CVN_OK)
        code = cvn_engine_generate(engine, &request, 1, on_token, &answer, NULL, &result, err);
    if (code == CVN_OK)
        code = cvn_model_decode(model, answer.ids, answer.n, &text, &length, err);
    if (code == CVN_OK)
        printf("%s%.*s\n", prompt, (int)length, text);
    free(text);
    free(ids);
    free(answer.ids);
    return code;
}

int main(int argc, char **argv)
{
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    cvn_err err = {0};
    int64_t max_tokens = argc > 3 ? strtol(argv[3], NULL, 10) : 64;
    if (argc < 3 || max_tokens < 1 || max_tokens > 1000000) {
        fprintf(stderr, "usage: %s MODEL TEXT [TOKENS]\n", argv[0]);
        return 2;
    }
    int code = cvn_model_open(argv[1], NULL, &model, &err);
    if (code == CVN_OK)
        code = cvn_engine_new(model, NULL, &engine, &err);
    if (code == CVN_OK)
        code = generate(model, engine, argv[2], max_tokens, &err);
    if (code)
        fprintf(stderr, "%s: %s\n", argv[0], err.code ? err.message : cvn_code_text(code));
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    return code ? 1 : 0;
}
