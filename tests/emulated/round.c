/* Rounding to bf16 as kernels do it that need AVX-512 BF16. */
#define VEC_BF16
#include "cpu/kernels/tile.h"

void emulated_round(uint16_t *out, const float *in, int64_t n);

void emulated_round(uint16_t *out, const float *in, int64_t n)
{
    tile_to_bf16(out, in, n);
}
