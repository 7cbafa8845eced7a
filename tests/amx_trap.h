/*
 * AMX on machines that have none: a processor stops at each tile instruction that it does not know, and what it would
 * have done is done then (SIGILL). So the very machine code that compilers make of the kernels is run and tested: which
 * registers and addresses it takes, what it reads and writes in which order, and how tiles are configured on each thread.
 *
 *     TILELOADD tmm4, [rax + rbx]   ->  SIGILL  ->  16 rows of 64 bytes from rax, rbx apart, into this thread's tmm4
 *
 * An instruction takes about a microsecond so. What an AMX would refuse (a tile that is not configured, shapes that do
 * not match), and what is not known here, ends the program with a sentence that names the instruction and its bytes.
 *
 * Where there is an AMX that this process may use, nothing of this is done, and the same tests run on it.
 *
 * A program becomes one for a machine with AMX by linking amx_trap_cpu.c, by which the linker replaces what says which
 * features there are (cmake/Trapped.cmake, NAME_trapped). Then level amx is there, is the best, and everything is
 * dispatched as it would be.
 * With AMX_TRAP_REPORT in the environment such a program says at its end how many products of tiles there were.
 */
#ifndef CVN_TESTS_AMX_TRAP_H
#define CVN_TESTS_AMX_TRAP_H

#include <stdbool.h>

/* From now on tile instructions work on all threads of this process, and in what it forks; asking again does no harm.
   False where the processor has no AVX-512, which products are made with here. */
bool amx_trap_begin(void);

/* What has been carried out here since the beginning; zeros on a processor that does it itself. */
typedef struct AmxTrapCounts {
    long configured; /* LDTILECFG */
    long products;   /* TDPBF16PS, TDPBSSD */
    long held;       /* threads whose tiles are configured at present */
} AmxTrapCounts;

AmxTrapCounts amx_trap_counts(void);

#endif
