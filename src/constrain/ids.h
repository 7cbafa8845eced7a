/* Sets of ids, as sorted lists: the alternatives of terms and formulas, the frames of states. */
#ifndef CVN_CONSTRAIN_IDS_H
#define CVN_CONSTRAIN_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sorts, and drops what is there twice; returns how many are left. */
size_t ids_sort(uint32_t *list, size_t n);

bool ids_have(const uint32_t *list, size_t n, uint32_t id);

#endif
