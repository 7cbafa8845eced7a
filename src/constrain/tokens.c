#include "constrain/tokens.h"

#include <stdlib.h>

int vocabulary_of(const Tokenizer *tokenizer, cvn_token n, const cvn_token *end, size_t n_end,
                  cvn_vocabulary **out, cvn_err *err)
{
    cvn_token known = tokenizer_vocab_size(tokenizer);
    StrBuf text = {0};
    size_t *length = calloc((size_t)n + 1, sizeof *length),
           *begin = calloc((size_t)n + 1, sizeof *begin);
    const char **piece = calloc((size_t)n + 1, sizeof *piece);
    int code =
        length && begin && piece ? CVN_OK : err_set(err, CVN_EMEM, "no memory for the vocabulary");
    for (int32_t i = 0; i < n && !code; i++) {
        begin[i] = text.length;
        if (i < known)
            code = tokenizer_decode(tokenizer, &i, 1, TOKENIZER_CONTINUE, &text, err);
        length[i] = text.length - begin[i];
    }
    if (!code && text.failed)
        code = err_set(err, CVN_EMEM, "no memory for the vocabulary");
    for (int32_t i = 0; i < n && !code; i++)
        piece[i] = (text.length ? text.text : "") + begin[i];
    if (!code)
        code = cvn_vocabulary_new(piece, length, n, end, n_end, out, err);
    strbuf_free(&text);
    free(length);
    free(begin);
    free(piece);
    return code;
}
