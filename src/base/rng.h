/*
 * Counter-based random numbers: a number is a function of (seed, name, position), not of what was
 * drawn before. Any slice of a tensor, drawn by any process in any order, therefore holds what the
 * whole tensor holds there.
 *
 * The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011), the same function as JAX's threefry2x32 primitive.
 *
 *   key of a tensor      threefry(key = (seed >> 32, seed), counter = (h >> 32, h)),
 *                        h = hash of its name
 *   bits of element i    word i % 2 of threefry(key of the tensor, counter = (b >> 32, b)),
 *                        b = i / 2
 *   uniform              bits / 2^8 (whole) / 2^24: 24-bit multiples in [0, 1)
 *   normal               sqrt(2) * erfinv(2u - 1), u = (bits / 2^8 (whole) + 1/2) / 2^24
 *
 * All arithmetic is ours (no libm), so the numbers are the same on every machine.
 */
#ifndef CVN_BASE_RNG_H
#define CVN_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct RngKey {
    uint32_t word[2];
} RngKey;

void rng_threefry2x32(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);

/* Seed number i that comes of a seed; number 0 is the seed itself. The others are below 2^53, so that whatever reads JSON
 * keeps them. */
uint64_t rng_seed(uint64_t seed, uint64_t i);

/* The key of a named stream (a tensor's name) under a seed. */
RngKey rng_key(uint64_t seed, const char *name);

/* Elements first .. first+n-1 of the key's stream. */
void rng_bits(RngKey key, uint64_t first, size_t n, uint32_t *out);
void rng_uniform(RngKey key, uint64_t first, size_t n, float *out); /* [0, 1) */
void rng_normal(RngKey key, uint64_t first, size_t n,
                float *out); /* mean 0, variance 1, |x| < 5.5 */

#endif
