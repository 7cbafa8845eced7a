#include "base/capacity.h"

#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* The number behind `key` at the start of a line; SIZE_MAX where there is none, or "max". */
static size_t number_in(const char *path, const char *key)
{
    char line[256];
    size_t found = SIZE_MAX, n = strlen(key);
    FILE *f = fopen(path, "re");
    if (!f)
        return SIZE_MAX;
    while (found == SIZE_MAX && fgets(line, sizeof line, f)) {
        char *end;
        if (strncmp(line, key, n) != 0)
            continue;
        errno = 0;
        unsigned long long value = strtoull(line + n, &end, 10);
        if (end != line + n && !errno)
            found = value;
    }
    fclose(f);
    return found;
}

size_t capacity_memory(void)
{
    size_t kib = number_in("/proc/meminfo", "MemAvailable:");
    size_t available = kib > SIZE_MAX / 1024 ? SIZE_MAX : kib * 1024;
    size_t most = number_in("/sys/fs/cgroup/memory.max", "");
    size_t used = number_in("/sys/fs/cgroup/memory.stat", "anon ");
    if (most != SIZE_MAX && used != SIZE_MAX) {
        size_t left = most > used ? most - used : 0;
        available = left < available ? left : available;
    }
    return available;
}

int capacity_check_memory(uint64_t bytes, const char *what, cvn_err *err)
{
    size_t memory = capacity_memory(), kib = number_in("/proc/meminfo", "SwapFree:");
    uint64_t swap = kib > SIZE_MAX / 1024 ? 0 : (uint64_t)kib * 1024;
    if (memory == SIZE_MAX || bytes <= swap || bytes - swap <= memory)
        return CVN_OK;
    return err_set(err, CVN_EMEM,
                   "%s need %s, but only %s are free; free memory, quantize them, or shard them "
                   "over machines with --mesh",
                   what, bytes_text((double)bytes).text,
                   bytes_text((double)memory + (double)swap).text);
}

int capacity_check_disk(const char *path, uint64_t bytes, cvn_err *err)
{
    struct statvfs disk;
    size_t n = strlen(path); /* up to the folder that it stands in, or will stand in */
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    SCOPED(scoped_free) char *folder = n ? strndup(path, n) : strdup(".");
    if (!folder || statvfs(folder, &disk) != 0 || disk.f_blocks == 0)
        return CVN_OK;
    double left = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)bytes <= left)
        return CVN_OK;
    return err_set(
        err, CVN_EIO,
        "'%s' needs %s, but its disk has only %s free; free space or choose another folder", path,
        bytes_text((double)bytes).text, bytes_text(left).text);
}
