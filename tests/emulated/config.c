/* The real instructions around tiles, as kernels have them: what processors without them must find (test_kernels_amx.c). */
#include "cpu/kernels/amx/tiles.h"

void real_tile_enter(void);
void real_tile_leave(void);

void real_tile_enter(void)
{
    tile_enter();
}

void real_tile_leave(void)
{
    tile_leave();
}
