/* Regular expressions from arbitrary bytes, and texts under them. */
#include "fuzz_constraint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_constraint(cvn_constraint_regex, data, size);
}
