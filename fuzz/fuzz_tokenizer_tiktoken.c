/* The reader of tiktoken rank files on arbitrary bytes; what it accepts is used. */
#include "fuzz_tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return read_and_use(data, size);
}
