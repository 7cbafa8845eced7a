/* A plugin's optimized program (pjrt/optimized.h) from arbitrary bytes. */
#include "pjrt/optimized.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Compiled c = {0};
    optimized_read(data, size, &c);
    if (!(c.cycles >= 0))
        abort();
    for (size_t i = 0; i < sizeof c.collective / sizeof *c.collective; i++)
        if (c.collective[i].count < 0 || (uint64_t)c.collective[i].count > size)
            abort();
    return 0;
}
