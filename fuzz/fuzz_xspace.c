/* A plugin's recording (pjrt/xspace.h) from arbitrary bytes: whatever it is, what is printed are whole events. */
#include "pjrt/xspace.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Arena arena;
    cvn_err err = {0};
    TraceOut out = {.origin = 1000, .real = 1700000000000000000};
    if (arena_init(&arena, &err))
        abort();
    XSpace space = xspace_open(data, size, &arena, 2000, 1);
    size_t length;
    do {
        length = out.text.length;
        xspace_print(&space, &out);
    } while (out.text.length > length && out.text.length < TRACE_ENOUGH);
    if (out.text.length &&
        (memcmp(out.text.text, ",\n{", 3) != 0 || out.text.text[out.text.length - 1] != '}'))
        abort();
    strbuf_free(&out.text);
    arena_free(&arena);
    return 0;
}
