/* Data as text, JSONL or conversations: the first byte says how the rest is read. Either an error with a
 * sentence comes of it, or ids of the vocabulary with as many marks. */
#include "text/tokenizer.h"
#include "train/data/encode.h"
#include "train/data/record.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* All bytes, one merge, and the marks of Llama 3's chat format. */
static const char TOKENIZER[] =
    "{\"added_tokens\":["
    "{\"id\":9,\"content\":\"<|begin_of_text|>\",\"special\":true},"
    "{\"id\":10,\"content\":\"<|end_of_text|>\",\"special\":true},"
    "{\"id\":11,\"content\":\"<|start_header_id|>\",\"special\":true},"
    "{\"id\":12,\"content\":\"<|end_header_id|>\",\"special\":true},"
    "{\"id\":13,\"content\":\"<|eot_id|>\",\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":true,\"vocab\":"
    "{\"?\":0,\"a\":1,\"b\":2,\"ab\":3,\" \":4,\"u\":5,\"s\":6,\"e\":7,\"r\":8},"
    "\"merges\":[\"a b\"]}}";

static void check(const DataEncoder *encoder, const SourceUnit *unit, EncodedUnit *out)
{
    cvn_err err = {0};
    int code = data_encode(encoder, unit, out, &err);
    if ((code != 0) != (err.message[0] != '\0'))
        abort();
    if (code)
        return;
    if (out->learn.length && out->learn.length != out->ids.n)
        abort();
    for (size_t i = 0; i < out->end.n; i++)
        if (out->end.id[i] <= (i ? out->end.id[i - 1] : 0) || out->end.id[i] > (int32_t)out->ids.n)
            abort();
    for (size_t i = 0; i < out->ids.n; i++)
        if (out->ids.id[i] < 0 || out->ids.id[i] >= 14)
            abort();
}

enum { TEMPLATES = 3 };

static const ChatWriter *writer_of(const Tokenizer *tokenizer, int i)
{
    static const char *const names[TEMPLATES] = {"llama3", "llama3-meta", "llama3.1"};
    static ChatWriter writer[TEMPLATES];
    ChatTemplate *chat;
    if (writer[i].template)
        return &writer[i];
    if (chat_template_open(tokenizer, names[i], &chat, NULL))
        abort();
    chat_writer_init(&writer[i], chat, tokenizer);
    return &writer[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Tokenizer *tokenizer;
    static char name[] = "input";
    cvn_err err = {0};
    if (!tokenizer && tokenizer_read(TOKENIZER, sizeof TOKENIZER - 1, &tokenizer, &err))
        abort();
    if (size == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t n = size - 1;
    SourceFile file = {.path = name, .kind = data[0] % 2 ? SOURCE_JSONL : SOURCE_TEXT};
    DataEncoder encoder = {.tokenizer = tokenizer,
                           .chat = writer_of(tokenizer, data[0] / 2 % TEMPLATES),
                           .pairs = data[0] / 2 / TEMPLATES % 2 && file.kind == SOURCE_JSONL};
    EncodedUnit out = {0};
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t length =
            newline && file.kind == SOURCE_JSONL ? (size_t)(newline - text) - at : n - at;
        SourceUnit unit = {text + at, length, &file, 1, (int64_t)at, true, true};
        check(&encoder, &unit, &out);
        if (record_extent(text + at, length) > length)
            abort();
        at += length + 1;
    }
    encoded_unit_free(&out);
    return 0;
}
