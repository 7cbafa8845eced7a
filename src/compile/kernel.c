/* The one thing that a kernel calls back for. */
#include "compile/kernel.h"

#include "base/threads.h"

void kernel_sync(const KernelArgs *args)
{
    barrier_wait(args->barrier);
}
