/* What tests that start processes of MPI share: how they start them, and where they cannot. */
#ifndef CVN_TESTS_RANKS_H
#define CVN_TESTS_RANKS_H

#include "unit.h"

#include <stdbool.h>

#define MPIRUN "mpirun --allow-run-as-root --oversubscribe "
#define RANKS MPIRUN "-n %d " CVN_BINARY " "

/* Not in a build without MPI, nor in one with sanitizers: MPI has none, and leaks. */
static inline bool have_mpirun(void)
{
#ifdef CVN_HAVE_MPI
    return !SANITIZED && system("command -v mpirun >/dev/null 2>&1") == 0;
#else
    return false;
#endif
}

/* Skips the running test, saying why, where there is none. */
static inline void need_mpirun(void)
{
    if (!have_mpirun()) {
        print_message("skipped: there is no mpirun here, or this is a build without MPI or with "
                      "sanitizers\n");
        skip();
    }
}

#endif
