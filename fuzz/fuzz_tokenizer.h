/* What the fuzz targets of the three tokenizer readers share. */
#ifndef FUZZ_TOKENIZER_H
#define FUZZ_TOKENIZER_H

#include "text/tokenizer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Encodes and decodes a little text, so that what a malformed file left in the tables is used. */
static inline void use_tokenizer(const Tokenizer *tokenizer)
{
    static const char text[] =
        "The 12 foxes'  \n\xe2\x96\x81 <s>\xff\xe4\xb8\x96</s><|eot_id|> aaaaaaaaaaaaaaaa";
    static const unsigned flags[] = {0, TOKENIZER_BOS | TOKENIZER_EOS | TOKENIZER_SPECIAL,
                                     TOKENIZER_PLAIN};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        cvn_err err = {0};
        TokenIds ids = {0};
        StrBuf out = {0};
        int rc = tokenizer_encode(tokenizer, text, sizeof text - 1, flags[i], &ids, &err);
        if ((rc == CVN_OK) != (err.code == CVN_OK))
            abort();
        /* An id that encoding gives must be one that decoding takes. */
        if (!rc &&
            tokenizer_decode(tokenizer, ids.id, ids.n, flags[i] & TOKENIZER_SPECIAL, &out, &err))
            abort();
        token_ids_free(&ids);
        strbuf_free(&out);
    }
    for (int32_t id = -1; id <= tokenizer_vocab_size(tokenizer) && id < 2000; id++)
        (void)tokenizer_piece(tokenizer, id, NULL);
}

/* A refusal is one sentence in err; an accepted file can be used. */
static inline int read_and_use(const uint8_t *data, size_t size)
{
    cvn_err err = {0};
    Tokenizer *tokenizer = NULL;
    int rc = tokenizer_read((const char *)data, size, &tokenizer, &err);
    if ((rc == CVN_OK) != (tokenizer != NULL) || (rc == CVN_OK) != (err.code == CVN_OK))
        abort();
    if (tokenizer)
        use_tokenizer(tokenizer);
    else if (!err.message[0] || strchr(err.message, '\n'))
        abort();
    tokenizer_free(tokenizer);
    return 0;
}

#endif
