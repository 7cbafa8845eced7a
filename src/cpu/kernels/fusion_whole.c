/* The hashes of the programs that are compiled whole. */
#include "cpu/kernels/fusion_whole.h"

WholeKind whole_find(const TileProgram *program)
{
    static const uint64_t hash[WHOLE_COUNT] = {
        [WHOLE_ADAMW] = 0xb688ef2cc81383f4,
        [WHOLE_ADAMW_ROUNDED] = 0x4b0655075a103751,
        [WHOLE_ADAMW_HALF] = 0x72dd0c753d7a472b,
    };
    int kind = 0;
    while (kind < WHOLE_COUNT && hash[kind] != program->hash)
        kind++;
    return (WholeKind)kind;
}
