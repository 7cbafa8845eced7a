/* What says which texts may come, from arbitrary bytes, and texts under it: before a zero byte stands the one, behind it the text. A
 * prefix that may come can be completed: some byte may follow, or it may end. */
#ifndef CVN_FUZZ_CONSTRAINT_H
#define CVN_FUZZ_CONSTRAINT_H

#include "caravan/constrain.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int ReadConstraint(const char *text, size_t n, cvn_constraint **out, cvn_err *err);

static int fuzz_constraint(ReadConstraint *read, const uint8_t *data, size_t size)
{
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    cvn_constraint *constraint;
    cvn_constrained *text;
    cvn_err err = {0};
    if (n > 1024)
        return 0;
    if (read((const char *)data, n, &constraint, &err)) {
        if (err.code == CVN_OK || !err.message[0])
            abort();
        return 0;
    }
    if (cvn_constrained_new(constraint, NULL, &text, NULL))
        abort();
    for (size_t i = n + 1; i < size && i < n + 65; i++) {
        if (cvn_constrained_advance_bytes(text, (const char *)data + i, 1, NULL))
            break;
        bool may = cvn_constrained_complete(text);
        for (int b = 0; b < 256 && !may; b++) {
            char byte = (char)b;
            cvn_constrained *next = cvn_constrained_clone(text);
            int code = cvn_constrained_advance_bytes(next, &byte, 1, NULL);
            may = code == CVN_OK || code == CVN_EUNSUPPORTED;
            cvn_constrained_free(next);
        }
        if (!may)
            abort();
    }
    cvn_constrained_free(text);
    cvn_constraint_free(constraint);
    return 0;
}

#endif
