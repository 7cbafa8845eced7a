/* What runs an operation that no kernel takes: the interpreter's function. */
#ifndef CVN_CPU_FALLBACK_H
#define CVN_CPU_FALLBACK_H

#include "compile/kernel.h"

/* Thread 0 runs interp_op; the other threads do nothing. Results may not overlap operands.
   Operations between devices work only where a device is alone; a plan takes them from src/comm. */
void cpu_fallback(const KernelArgs *args);

#endif
