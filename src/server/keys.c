#include "server/keys.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

void keys_free(Keys *k)
{
    free(k->text);
    free(k->key);
    *k = (Keys){0};
}

static int add_key(Keys *k, const char *path, char *line, size_t n, cvn_err *err)
{
    while (n && strchr(" \t\r", line[n - 1]))
        n--;
    if (n == 0 || line[0] == '#')
        return CVN_OK;
    if (n > KEY_MAX_BYTES || k->n == KEYS_MAX)
        return err_set(err, CVN_EFORMAT,
                       "%s: at most %d bytes per key and %d keys per file are supported", path,
                       KEY_MAX_BYTES, KEYS_MAX);
    line[n] = '\0';
    if (strlen(line) != n)
        return err_set(err, CVN_EFORMAT, "%s: a key contains a NUL byte", path);
    k->key[k->n++] = line;
    return CVN_OK;
}

int keys_read(Keys *k, const char *path, cvn_err *err)
{
    FileMap map;
    *k = (Keys){0};
    if (file_map(&map, path, err))
        return err->code;
    size_t n = map.size;
    k->text = malloc(n + 1);
    k->key = calloc(KEYS_MAX, sizeof *k->key);
    int code = k->text && k->key ? CVN_OK : err_set(err, CVN_EMEM, "no memory for keys");
    if (code == CVN_OK && n)
        memcpy(k->text, map.data, n);
    file_unmap(&map);
    for (size_t at = 0; at < n && code == CVN_OK;) {
        char *end = memchr(k->text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - k->text) - at : n - at;
        code = add_key(k, path, k->text + at, length, err);
        at += length + 1;
    }
    if (code == CVN_OK && k->n == 0)
        code = err_set(err, CVN_EFORMAT, "%s has no keys; write one per line", path);
    if (code)
        keys_free(k);
    return code;
}

int keys_find(const Keys *k, const char *given, size_t n)
{
    char padded[KEY_MAX_BYTES + 1] = {0};
    int found = -1;
    if (n > KEY_MAX_BYTES)
        return -1;
    memcpy(padded, given, n);
    for (size_t i = 0; i < k->n; i++) {
        const char *key = k->key[i];
        size_t length = strlen(key);
        unsigned char differs = length != n;
        for (size_t j = 0; j < length; j++)
            differs |= (unsigned char)(key[j] ^ padded[j]);
        /* without a branch on what was found */
        int same = 1 & ((differs - 1) >> 8);
        found = same * (int)i + (1 - same) * found;
    }
    return found;
}
