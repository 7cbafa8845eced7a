/*
 * Numbers into blocks (graph/blocks.h): for each group that shares a scale, of some scales the one with the least squared
 * error, for each of which the best factor follows from the codes, sum x q / sum q q. Scales are rounded first, and codes
 * chosen for them as they are stored.
 */
#ifndef CVN_IO_ENCODE_H
#define CVN_IO_ENCODE_H

#include "graph/blocks.h"

/* Whether there is an encoder: of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4 and F8_E4M3. */
bool block_encodes(BlockKind kind);

/* Rounds n elements, whole blocks of them. importance [n]: what the square of an element's error counts; NULL: all alike. */
void block_encode(BlockKind kind, const float *in, const float *importance, int64_t n,
                  uint8_t *out);

#endif
