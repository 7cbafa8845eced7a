/* The element types of GGUF files. */
#ifndef CVN_IO_GGUF_BLOCKS_H
#define CVN_IO_GGUF_BLOCKS_H

#include "io/tensor.h"

typedef struct GgufElement {
    const char *name;
    IoBlock block;   /* one element of a plain type is a block */
    IoCoding coding; /* IO_OPAQUE: only the size is known */
    cvn_dtype dtype; /* of IO_PLAIN; else f32 */
} GgufElement;

/* The type of elements that has a number in files; NULL where there is no such type, or none any more. */
const GgufElement *gguf_element(uint32_t number);

#endif
