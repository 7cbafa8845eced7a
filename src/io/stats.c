#include "io/stats.h"

#include "base/num.h"
#include "io/convert.h"

#include <math.h>
#include <string.h>

int io_types(const IoTensors *list, IoTypeShare type[IO_MAX_TYPES])
{
    int n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const IoTensor *t = &list->tensor[i];
        int at = 0;
        while (at < n && strcmp(type[at].name, t->type) != 0)
            at++;
        if (at == IO_MAX_TYPES)
            continue;
        if (at == n)
            type[n++] = (IoTypeShare){.name = t->type};
        type[at].bytes += t->bytes;
    }
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && type[k].bytes > type[k - 1].bytes; k--) {
            IoTypeShare less = type[k - 1];
            type[k - 1] = type[k];
            type[k] = less;
        }
    return n;
}

void io_types_text(const IoTensors *list, StrBuf *out)
{
    IoTypeShare type[IO_MAX_TYPES];
    int n = io_types(list, type);
    for (int i = 0; i < n; i++)
        strbuf_printf(out, "%s%s", i ? ", " : "", type[i].name);
}

IoStats io_stats(const IoTensor *tensor)
{
    enum { PIECE = 4096 };
    float piece[PIECE];
    IoStats s = {.min = INFINITY, .max = -INFINITY};
    double sum = 0;
    int64_t finite = 0;
    for (int64_t first = 0; first < tensor->n; first += PIECE) {
        int64_t n = num_min(tensor->n - first, PIECE);
        io_decode(tensor, first, n, piece);
        for (int64_t i = 0; i < n; i++) {
            double x = (double)piece[i];
            if (!isfinite(x)) {
                *(isnan(x) ? &s.nan : &s.infinite) += 1;
                continue;
            }
            s.min = x < s.min ? x : s.min;
            s.max = x > s.max ? x : s.max;
            sum += x;
            finite++;
        }
    }
    if (!finite)
        return (IoStats){.nan = s.nan, .infinite = s.infinite};
    s.mean = sum / (double)finite;
    return s;
}
