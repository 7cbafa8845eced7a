/* How much memory there is to be had. */
#include "train/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

size_t trainer_memory_available(void)
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
