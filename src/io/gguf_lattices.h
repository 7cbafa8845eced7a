/*
 * Blocks of 256 elements whose codes are points of a lattice: GGUF's IQ1, IQ2 and IQ3, 1.6 to 3.4 bits for an element. They
 * are only widened, for no product reads them.
 */
#ifndef CVN_IO_GGUF_LATTICES_H
#define CVN_IO_GGUF_LATTICES_H

#include <stdint.h>

/* The 256 elements of a block of each type, as ggml computes them. */
void lattice_iq1_s(const uint8_t *block, float *out);
void lattice_iq1_m(const uint8_t *block, float *out);
void lattice_iq2_xxs(const uint8_t *block, float *out);
void lattice_iq2_xs(const uint8_t *block, float *out);
void lattice_iq2_s(const uint8_t *block, float *out);
void lattice_iq3_xxs(const uint8_t *block, float *out);
void lattice_iq3_s(const uint8_t *block, float *out);

#endif
