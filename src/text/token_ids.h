/* Text as numbers: what encoding makes and decoding takes. */
#ifndef CVN_TEXT_TOKEN_IDS_H
#define CVN_TEXT_TOKEN_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growing list of ids; starts as {0}. When memory runs out `failed` is set and additions are
 * ignored, as in StrBuf. */
typedef struct TokenIds {
    int32_t *id;     /* [n], owned, heap */
    size_t n;        /* ids used */
    size_t capacity; /* ids allocated */
    bool failed;     /* memory ran out; what was added last is missing */
} TokenIds;

void token_ids_free(TokenIds *ids);
void token_ids_add(TokenIds *ids, int32_t id);

#endif
