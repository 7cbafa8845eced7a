/* Schemas from arbitrary bytes, and texts under them: before a zero byte stands the schema, behind it the text. What is
 * accepted as a whole text is JSON; a byte that may come leaves the text where some byte may come, or where it may end. */
#include "caravan/constrain.h"
#include "constrain/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 64 }; /* bytes that are tried of a text */

static bool goes_on(const cvn_constrained *text)
{
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        cvn_constrained *next = cvn_constrained_clone(text);
        int code = cvn_constrained_advance_bytes(next, &byte, 1, NULL);
        cvn_constrained_free(next);
        if (code == CVN_OK || code == CVN_EUNSUPPORTED)
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size, used = 0;
    cvn_constrain_options options = {
        .draft = (const int[]){4, 6, 7, 2019, 2020}[size ? data[size - 1] % 5 : 0]};
    cvn_constraint *constraint;
    cvn_constrained *text;
    cvn_err err = {0};
    if (n > 4096)
        return 0;
    if (cvn_constraint_schema((const char *)data, n, &options, &constraint, &err)) {
        if (err.code == CVN_OK || !err.message[0])
            abort();
        return 0;
    }
    if (cvn_constrained_new(constraint, NULL, &text, NULL))
        abort();
    const char *rest = zero ? (const char *)zero + 1 : "[{\"a\":1.5}]";
    size_t n_rest = zero ? size - n - 1 : strlen(rest);
    for (; used < n_rest && used < STEPS; used++) {
        int code = cvn_constrained_advance_bytes(text, rest + used, 1, NULL);
        if (code)
            break;
        if (!cvn_constrained_complete(text) && !goes_on(text))
            abort();
    }
    Arena arena;
    if (used && cvn_constrained_complete(text) && !arena_init(&arena, NULL)) {
        if (!json_tree(&arena, rest, used, NULL))
            abort();
        arena_free(&arena);
    }
    cvn_constrained_free(text);
    cvn_constraint_free(constraint);
    return 0;
}
