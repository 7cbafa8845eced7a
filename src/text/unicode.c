#include "text/unicode.h"

#include <stddef.h>

static const struct {
    uint32_t first, last; /* code points, both inclusive */
    uint32_t class;       /* UnicodeClass */
} RANGE[] = {
#define L UNICODE_LETTER
#define N UNICODE_NUMBER
#define S UNICODE_SPACE
#include "text/unicode_table.inc"
#undef L
#undef N
#undef S
};

UnicodeClass unicode_class(uint32_t point)
{
    size_t low = 0, high = sizeof RANGE / sizeof *RANGE;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > RANGE[middle].last)
            low = middle + 1;
        else if (point < RANGE[middle].first)
            high = middle;
        else
            return (UnicodeClass)RANGE[middle].class;
    }
    return UNICODE_OTHER;
}

bool unicode_range(size_t i, uint32_t *first, uint32_t *last, UnicodeClass *class)
{
    if (i >= sizeof RANGE / sizeof *RANGE)
        return false;
    *first = RANGE[i].first;
    *last = RANGE[i].last;
    *class = (UnicodeClass)RANGE[i].class;
    return true;
}
