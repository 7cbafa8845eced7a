#include "pjrt/executables.h"

#include "base/crc32c.h"
#include "base/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BEGIN = 32 }; /* bytes before the key */
static const char magic[8] = {'C', 'V', 'N', 'P', 'R', 'O', 'G', '1'};

const char *executables_folder(Arena *arena)
{
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (caches && *caches)
        return arena_printf(arena, "%s/caravan", caches);
    return home && *home ? arena_printf(arena, "%s/.cache/caravan", home) : NULL;
}

static FilePath path_of(const char *folder, const void *key, size_t n_key)
{
    char name[40];
    snprintf(name, sizeof name, "%016" PRIx64 ".program", hash_bytes(key, n_key));
    return file_path(folder, name);
}

static uint64_t number_at(const uint8_t *data, size_t at)
{
    uint64_t n;
    memcpy(&n, data + at, sizeof n);
    return n;
}

const uint8_t *executables_find(const char *folder, const void *key, size_t n_key, FileMap *map,
                                size_t *n)
{
    *map = (FileMap){0};
    if (file_map(map, path_of(folder, key, n_key).text, NULL))
        return NULL;
    const uint8_t *data = map->data;
    size_t rest = map->size > BEGIN ? map->size - BEGIN : 0;
    if (rest > n_key && memcmp(data, magic, sizeof magic) == 0 && number_at(data, 8) == n_key &&
        number_at(data, 16) == rest - n_key &&
        number_at(data, 24) == crc32c(0, data + BEGIN, rest) &&
        memcmp(data + BEGIN, key, n_key) == 0) {
        *n = rest - n_key;
        return data + BEGIN + n_key;
    }
    file_unmap(map);
    *map = (FileMap){0};
    return NULL;
}

/* Makes the folder, and those above it that are missing. */
static void make_folders(const char *folder)
{
    FilePath path = file_path(folder, "");
    for (char *slash = strchr(path.text + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path.text, 0700);
        *slash = '/';
    }
}

void executables_keep(const char *folder, const void *key, size_t n_key, const void *program,
                      size_t n)
{
    uint8_t begin[BEGIN] = {0};
    const uint64_t sizes[] = {n_key, n, crc32c(crc32c(0, key, n_key), program, n)};
    FileWriter writer;
    memcpy(begin, magic, sizeof magic);
    memcpy(begin + sizeof magic, sizes, sizeof sizes);
    make_folders(folder);
    if (file_writer_open(&writer, path_of(folder, key, n_key).text, NULL) == CVN_OK &&
        file_writer_write(&writer, begin, sizeof begin, NULL) == CVN_OK &&
        file_writer_write(&writer, key, n_key, NULL) == CVN_OK &&
        file_writer_write(&writer, program, n, NULL) == CVN_OK)
        file_writer_commit(&writer, NULL);
    file_writer_free(&writer);
}
