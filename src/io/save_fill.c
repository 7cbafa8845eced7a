#include "io/save_fill.h"

#include "base/num.h"
#include "io/convert.h"

int save_fill_as(SaveFill fill, void *context, const Param *param, int64_t first, int64_t n,
                 cvn_dtype dtype, void *array, int64_t at, cvn_err *err)
{
    enum { PIECE = 4096 };
    float piece[PIECE];
    if (dtype == CVN_F32)
        return fill(context, param, first, n, (float *)array + at, err);
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t here = num_min(n - done, PIECE);
        int code = fill(context, param, first + done, here, piece, err);
        if (code)
            return code;
        io_encode(dtype, piece, here, (uint8_t *)array + cvn_dtype_bytes(dtype, at + done));
    }
    return CVN_OK;
}
