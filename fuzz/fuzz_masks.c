/* Masks against bytes: a schema from arbitrary bytes, before a zero byte, and which tokens are taken under it, behind. A token may come
 * exactly where its bytes may, one after the other, and as long as the text may end or anything may come. */
#include "caravan/constrain.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 12 };

static const char *const pieces[] = {
    "{",     "}",    "[",    "]",        "\"",   ":",   ",",    " ",     "\n",    "  \n",   "a",
    "b",     "x",    "0",    "1",        "12",   "-",   ".",    ".5",    "e",     "E+",     "\\",
    "\\u",   "00",   "d8",   "{\"",      "\"}",  "\":", "\": ", "\":\"", "\",\"", "[[",     "]]",
    "],[",   "},{",  "{}",   "[]",       "[1",   "1,",  "1]",   "0}",    "true",  "tr",     "false",
    "null",  "n",    "ab",   " a",       " \"",  " 1",  "\n\"", ", \"",  ",\n ",  "\"a\":", "\"\"",
    "\"b\"", "\xc3", "\xa9", "\xc3\xa9", "a\"]", "1 ",  "] ",   "\\\"",  "\\n",   "\\u0061"};
enum { TOKENS = sizeof pieces / sizeof *pieces };

/* 1: the token may come; 0: it may not; -1: that could not be found out. */
static int may_come(const cvn_constrained *text, size_t token)
{
    cvn_constrained *next = cvn_constrained_clone(text);
    int code = next
                   ? cvn_constrained_advance_bytes(next, pieces[token], strlen(pieces[token]), NULL)
                   : CVN_EMEM;
    cvn_constrained_free(next);
    return code == CVN_OK ? 1 : code == CVN_EINVAL ? 0 : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size, length[TOKENS];
    cvn_constrain_options options = {.draft = (const int[]){4, 6, 7, 2019, 2020}[size % 5],
                                     .compact = size & 2,
                                     .canonical = size & 4,
                                     .lazy = true};
    static cvn_vocabulary *words;
    cvn_constraint *constraint;
    cvn_constrained *text;
    uint32_t mask[CVN_MASK_WORDS(TOKENS)];
    for (size_t i = 0; i < TOKENS; i++)
        length[i] = strlen(pieces[i]);
    if (!words && cvn_vocabulary_new(pieces, length, TOKENS, NULL, 0, &words, NULL))
        return 0;
    if (n > 1024 || cvn_constraint_schema((const char *)data, n, &options, &constraint, NULL))
        return 0;
    if (cvn_constrained_new(constraint, words, &text, NULL))
        abort();
    for (int step = 0; step < STEPS && !cvn_constrained_mask(text, mask, NULL); step++) {
        size_t want = n + 1 + (size_t)step < size ? data[n + 1 + step] : (size_t)step,
               chosen = TOKENS;
        bool known = true;
        for (size_t i = 0; i < TOKENS && known; i++) {
            size_t token = (i + want) % TOKENS;
            int may = may_come(text, token);
            known = may >= 0;
            if (known && may != (int)(mask[token / 32] >> (token % 32) & 1))
                abort();
            chosen = may == 1 && chosen == TOKENS ? token : chosen;
        }
        if (!known || chosen == TOKENS)
            break;
        if (cvn_constrained_advance(text, (cvn_token)chosen, NULL))
            abort();
    }
    cvn_constrained_free(text);
    cvn_constraint_free(constraint);
    return 0;
}
