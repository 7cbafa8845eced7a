/* Files of token ids: whatever is accepted can be read to its end. The input is put behind a right magic. */
#include "train/data/cache.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    TokenFile file;
    uint8_t *copy = malloc(size + 8);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    cvn_err err = {0};
    if (token_file_parse(&file, "input", copy, size, &err) == 0) {
        int64_t sum = 0;
        for (int64_t i = 0; i < file.n_tokens; i++)
            sum += token_file_id(&file, i) + token_file_learns(&file, i);
        for (int64_t i = 0; i < file.n_documents; i++) {
            int64_t first = token_file_document(&file, i);
            if (first < 0 || first >= file.n_tokens)
                abort();
        }
        if (sum < 0)
            abort();
    } else if (!err.message[0]) {
        abort();
    }
    free(copy);
    return 0;
}
