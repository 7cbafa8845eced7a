/* Bodies of requests, in every dialect: the first byte says which, the rest is JSON. What is accepted lies in the ranges
 * that its fields have, and is what the engine is asked for. */
#include "server/fields.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const Fields *const all[] = {
        &fields_chat,       &fields_completions,    &fields_responses,
        &fields_messages,   &fields_count_tokens,   &fields_tokenize,
        &fields_detokenize, &fields_apply_template, &fields_embeddings};
    if (!size)
        return 0;
    const Fields *fields = all[data[0] % (sizeof all / sizeof *all)];
    for (int lenient = 0; lenient < 2; lenient++) {
        Ask ask;
        Refusal why = {0};
        ask_init(&ask);
        int status = ask_parse((const char *)data + 1, size - 1, &ask.body, &why);
        if (status == 0)
            status = fields_read(fields, &ask, lenient, &why);
        if ((status == 0) != (why.status == 0) || (status && !*why.err.message))
            abort();
        if (status == 0) {
            ask.input.prompt = calloc(1, sizeof *ask.input.prompt);
            if (ask.input.prompt) {
                cvn_request r = ask_request(&ask, 0, 1);
                if (ask.sampling.n < 1 || r.sampling.temperature < 0 || !(r.sampling.top_p > 0) ||
                    r.sampling.top_p > 1 || r.max_tokens < 0 || r.n_bias > ASK_MAX_BIAS)
                    abort();
            }
        }
        ask_free(&ask);
    }
    return 0;
}
