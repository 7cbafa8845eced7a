/* The last resort of the executor: slow, but there for every operation. */
#include "cpu/fallback.h"

#include "graph/interp/interp.h"

void cpu_fallback(const KernelArgs *args)
{
    if (args->thread == 0)
        interp_op(args->op, args->in, args->out);
}
