/*
 * When mpirun or srun has started this program several times: the ranks find each other, run the same command on
 * one mesh, and end together. Rank 0 speaks; what the others print goes nowhere.
 */
#ifndef CVN_CLI_RANKS_H
#define CVN_CLI_RANKS_H

#include "base/strbuf.h"
#include "comm/cluster.h"

/* At the start of the program: the command line, which must be the same on all ranks. */
void ranks_command(int argc, char **argv);

/* Joins the other ranks; *out is NULL when this process is alone. Once. */
int ranks_join(Cluster **out, cvn_err *err);

/* Whether this rank is the one that reads and prints. */
bool ranks_first(void);

/* The same before they are joined, as the launcher says it: rank 0, or no rank at all. */
bool ranks_speaks(void);

/* All ranks call it: what rank 0 has in *number and *text (which may be NULL) is everyone's. Nothing when this process
   is alone. */
int ranks_share(int64_t *number, StrBuf *text, cvn_err *err);

/* The command failed with this error: what the other ranks are told. False when the user has been told of a failure
   already. */
bool ranks_failed(const cvn_err *err);

/* At the end of the program: waits for the others, or ends them when status is not 0 and they do not end together with
   it. Returns status. */
int ranks_leave(int status, bool together);

#endif
