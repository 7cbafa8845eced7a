/* How tiles are configured: as LDTILECFG reads it, for kernels and for the measurement of their peak. */
#ifndef CVN_CPU_KERNELS_AMX_CONFIG_H
#define CVN_CPU_KERNELS_AMX_CONFIG_H

#include <stdint.h>

typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Palette 1, all eight tiles of 16 rows of 64 bytes. Constant memory, because gcc's _tile_loadconfig names but the first
   8 bytes as what it reads: stores to the others, into a variable, are dropped as unused. */
static const TileConfig tile_config __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};
_Static_assert(sizeof tile_config == 64, "what LDTILECFG reads");

#endif
