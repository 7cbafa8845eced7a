#include "base/bytes.h"

#include <stdio.h>

ByteText bytes_text(double bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = -1;
    ByteText out;
    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    if (unit < 0)
        snprintf(out.text, sizeof out.text, "%.0f bytes", bytes);
    else
        snprintf(out.text, sizeof out.text, "%.*f %s",
                 bytes < 10    ? 2
                 : bytes < 100 ? 1
                               : 0,
                 bytes, units[unit]);
    return out;
}
