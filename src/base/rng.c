#include "base/rng.h"

#include "base/map.h"

#include <string.h>

void rng_threefry2x32(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2])
{
    static const uint8_t rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bdau};
    uint32_t x0 = counter[0] + schedule[0];
    uint32_t x1 = counter[1] + schedule[1];
    for (uint32_t group = 1; group <= 5; group++) {
        const uint8_t *by = rotation[(group - 1) & 1u];
        for (int round = 0; round < 4; round++) {
            x0 += x1;
            x1 = (x1 << by[round] | x1 >> (32u - by[round])) ^ x0;
        }
        x0 += schedule[group % 3];
        x1 += schedule[(group + 1) % 3] + group;
    }
    out[0] = x0;
    out[1] = x1;
}

uint64_t rng_seed(uint64_t seed, uint64_t i)
{
    uint64_t x = seed + i * UINT64_C(0x9e3779b97f4a7c15);
    if (i == 0)
        return seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return (x ^ x >> 31) >> 11;
}

RngKey rng_key(uint64_t seed, const char *name)
{
    uint64_t hash = hash_bytes(name, strlen(name));
    const uint32_t seed_words[2] = {(uint32_t)(seed >> 32), (uint32_t)seed};
    const uint32_t hash_words[2] = {(uint32_t)(hash >> 32), (uint32_t)hash};
    RngKey key;
    rng_threefry2x32(seed_words, hash_words, key.word);
    return key;
}

static inline void block(RngKey key, uint64_t index, uint32_t out[2])
{
    const uint32_t counter[2] = {(uint32_t)(index >> 32), (uint32_t)index};
    rng_threefry2x32(key.word, counter, out);
}

void rng_bits(RngKey key, uint64_t first, size_t n, uint32_t *out)
{
    uint32_t words[2];
    size_t i = 0;
    if (n > 0 && first % 2 == 1) {
        block(key, first / 2, words);
        out[i++] = words[1];
    }
    for (; i + 2 <= n; i += 2)
        block(key, (first + i) / 2, out + i);
    if (i < n) {
        block(key, (first + i) / 2, words);
        out[i] = words[0];
    }
}

/* Natural logarithm of a positive normal number, to about 1e-10: x = 2^e * m, m in [sqrt(1/2),
 * sqrt(2)), ln m = 2 artanh((m-1)/(m+1)) by its odd series. */
static double log_positive(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t shifted = bits - UINT64_C(0x3fe6a09e667f3bcd); /* sqrt(1/2) */
    int64_t exponent = (int64_t)shifted >> 52;
    bits -= (uint64_t)exponent << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double t = (m - 1) / (m + 1);
    double t2 = t * t;
    double series = 1.0 / 11 + t2 * (1.0 / 13);
    series = 1.0 / 9 + t2 * series;
    series = 1.0 / 7 + t2 * series;
    series = 1.0 / 5 + t2 * series;
    series = 1.0 / 3 + t2 * series;
    series = 1.0 + t2 * series;
    return 2 * t * series + (double)exponent * 0.69314718055994530942;
}

/* Inverse error function on (-1, 1) to f32 precision: the two polynomials of M. Giles,
 * "Approximating the erfinv function", GPU Computing Gems Jade Edition, 2011; XLA uses the same
 * ones. */
static double erfinv(double x)
{
    static const double central[9] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                      -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                      -0.00417768164,  0.246640727,    1.50140941};
    static const double tail[9] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                   -0.00367342844,  0.00573950773,  -0.0076224613,
                                   0.00943887047,   1.00167406,     2.83297682};
    double w = -log_positive((1 - x) * (1 + x));
    const double *coefficient = w < 5 ? central : tail;
    double t = w < 5 ? w - 2.5 : __builtin_sqrt(w) - 3;
    double p = coefficient[0];
    for (int i = 1; i < 9; i++)
        p = coefficient[i] + p * t;
    return p * x;
}

void rng_uniform(RngKey key, uint64_t first, size_t n, float *out)
{
    uint32_t bits[256];
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < 256 ? n - done : 256;
        rng_bits(key, first + done, piece, bits);
        for (size_t i = 0; i < piece; i++)
            out[done + i] = (float)(bits[i] >> 8) * 0x1p-24f;
        done += piece;
    }
}

void rng_normal(RngKey key, uint64_t first, size_t n, float *out)
{
    uint32_t bits[256];
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < 256 ? n - done : 256;
        rng_bits(key, first + done, piece, bits);
        for (size_t i = 0; i < piece; i++) {
            double x = ((double)(bits[i] >> 8) + 0.5) * 0x1p-23 - 1;
            out[done + i] = (float)(1.41421356237309504880 * erfinv(x));
        }
        done += piece;
    }
}
