/*
 * A question to a model that talks, and its answer as a message, by the public interface alone:
 *
 *     cc -o chat chat.c $(pkg-config --cflags --libs caravan)
 *     ./chat my-llama '[{"role": "user", "content": "Why is the sky blue?"}]' 100
 *     ./chat my-llama '[{"role": "user", "content": "Is it warm in Rome?"}]' 100 '[{"type": "function", "function": …}]'
 */
#include <caravan/caravan.h>

#include <stdio.h>
#include <stdlib.h>

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

static int ask(cvn_engine *engine, const cvn_chat *chat, const cvn_chat_input *input,
               int64_t max_tokens, cvn_err *err)
{
    cvn_request request = {.max_tokens = max_tokens};
    cvn_result result;
    Answer answer = {.ids = calloc((size_t)max_tokens, sizeof *answer.ids)};
    int32_t *ids = NULL;
    char *message = NULL;
    int code = answer.ids ? cvn_chat_encode(chat, input, &ids, &request.n_prompt, err) : CVN_EMEM;
    request.prompt = ids;
    request.end = cvn_chat_ends(chat, &request.n_end);
    if (code == CVN_OK)
        code = cvn_engine_generate(engine, &request, 1, on_token, &answer, NULL, &result, err);
    if (code == CVN_OK)
        code =
            cvn_chat_read(chat, ids, request.n_prompt, NULL, answer.ids, answer.n, &message, err);
    if (code == CVN_OK)
        puts(message);
    free(message);
    free(ids);
    free(answer.ids);
    return code;
}

int main(int argc, char **argv)
{
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    cvn_chat *chat = NULL;
    cvn_err err = {0};
    int64_t max_tokens = argc > 3 ? strtol(argv[3], NULL, 10) : 64;
    if (argc < 3 || max_tokens < 1 || max_tokens > 1000000) {
        fprintf(stderr, "usage: chat MODEL MESSAGES [TOKENS [TOOLS]]\n");
        return 2;
    }
    const cvn_chat_input input = {.messages = argv[2], .tools = argc > 4 ? argv[4] : NULL};
    cvn_engine_options options = cvn_engine_defaults();
    int code = cvn_model_open(argv[1], NULL, &model, &err);
    if (code == CVN_OK)
        code = cvn_chat_new(model, NULL, &chat, &err);
    if (code == CVN_OK)
        code = cvn_engine_new(model, &options, &engine, &err);
    if (code == CVN_OK)
        code = ask(engine, chat, &input, max_tokens, &err);
    if (code != CVN_OK)
        fprintf(stderr, "%s\n", err.message[0] ? err.message : "no memory");
    if (engine)
        cvn_engine_free(engine, NULL);
    cvn_chat_free(chat);
    cvn_model_free(model);
    return code == CVN_OK ? 0 : 1;
}
