/* The tree of what rows hold, against a list. */
#include "../tests/radix_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    radix_check(data, size < 4096 ? size : 4096);
    return 0;
}
