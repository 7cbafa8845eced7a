/* What the patterns of tokenizers ask of a code point: letter (\p{L}), number (\p{N}), white space
 * (\s). */
#ifndef CVN_TEXT_UNICODE_H
#define CVN_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum UnicodeClass {
    UNICODE_OTHER,
    UNICODE_LETTER,
    UNICODE_NUMBER,
    UNICODE_SPACE,
} UnicodeClass;

/* The class of a code point as the reference tokenizers see it (Unicode 16). */
UnicodeClass unicode_class(uint32_t point);

/* The i-th range of code points of one class, in their order; false past the last. None is of UNICODE_OTHER. */
bool unicode_range(size_t i, uint32_t *first, uint32_t *last, UnicodeClass *class);

#endif
