/* The one thing that a kernel calls back for. */
#include "compile/kernel.h"

#include "base/threads.h"

void kernel_sync(const KernelArgs *args)
{
    if (args->n_threads > 1)
        barrier_wait(args->barrier);
}
