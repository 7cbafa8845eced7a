#include "io/zip.h"

#include "io/tensor.h"

#include <string.h>

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    DIRECTORY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535
};

/* The archive being read. */
typedef struct ZipFile {
    const char *file;
    const uint8_t *data;
    uint64_t size;
    cvn_err *err;
} ZipFile;

static uint64_t load(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    memcpy(&v, p, (size_t)bytes);
    return v;
}

/* Whether n bytes at offset are in the file and begin with the four bytes of a signature. */
static bool is_record(const ZipFile *s, uint64_t offset, uint64_t n, const char *signature)
{
    return offset <= s->size && n <= s->size - offset &&
           memcmp(s->data + offset, signature, 4) == 0;
}

static int bad(const ZipFile *s, const char *what)
{
    return err_set(s->err, CVN_EFORMAT, "'%s': %s; the zip archive is damaged or cut short",
                   s->file, what);
}

/* Finds where the directory is and how many entries it has. */
static int find_directory(const ZipFile *s, uint64_t *offset, uint64_t *n)
{
    if (s->size < END_BYTES)
        return bad(s, "the end record is missing");
    uint64_t at = s->size - END_BYTES;
    uint64_t lowest = at > MAX_COMMENT ? at - MAX_COMMENT : 0;
    while (at > lowest && !is_record(s, at, END_BYTES, "PK\5\6"))
        at--;
    if (!is_record(s, at, END_BYTES, "PK\5\6"))
        return bad(s, "the end record is missing");
    *n = load(s->data + at + 10, 2);
    *offset = load(s->data + at + 16, 4);
    if (at < LOCATOR_BYTES || !is_record(s, at - LOCATOR_BYTES, LOCATOR_BYTES, "PK\6\7"))
        return CVN_OK;
    uint64_t end64 = load(s->data + at - LOCATOR_BYTES + 8, 8);
    if (!is_record(s, end64, END64_BYTES, "PK\6\6"))
        return bad(s, "the zip64 end record is missing");
    *n = load(s->data + end64 + 32, 8);
    *offset = load(s->data + end64 + 48, 8);
    return CVN_OK;
}

/* Replaces the fields that are 0xffffffff by those of the zip64 extra field, which come in this
 * order. */
static int widen(const ZipFile *s, const uint8_t *extra, size_t n, uint64_t *field[3])
{
    while (n >= 4) {
        size_t id = load(extra, 2), bytes = load(extra + 2, 2);
        if (bytes > n - 4)
            return bad(s, "an extra field is too long");
        for (size_t i = 0, at = 0; id == 1 && i < 3; i++) {
            if (*field[i] != 0xffffffffu)
                continue;
            if (bytes - at < 8)
                return bad(s, "a zip64 field is too short");
            *field[i] = load(extra + 4 + at, 8);
            at += 8;
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    return CVN_OK;
}

/* Reads the directory entry at *at and moves past it. */
static int read_entry(const ZipFile *s, uint64_t *at, Arena *arena, ZipEntry *entry)
{
    if (!is_record(s, *at, DIRECTORY_BYTES, "PK\1\2"))
        return bad(s, "a directory entry is missing");
    const uint8_t *p = s->data + *at;
    size_t name = load(p + 28, 2), extra = load(p + 30, 2), comment = load(p + 32, 2);
    if (name + extra + comment > s->size - *at - DIRECTORY_BYTES)
        return bad(s, "a directory entry runs past the end");
    uint64_t stored = load(p + 20, 4), size = load(p + 24, 4), local = load(p + 42, 4);
    TRY(widen(s, p + DIRECTORY_BYTES + name, extra, (uint64_t *[]){&size, &stored, &local}));
    entry->name = arena_stringn(arena, (const char *)p + DIRECTORY_BYTES, name);
    if (strlen(entry->name) != name || !io_name_is_clean(entry->name))
        return bad(s, "an entry's name has control characters");
    if (load(p + 10, 2) != 0 || (load(p + 8, 2) & 1) || stored != size)
        return err_set(s->err, CVN_EUNSUPPORTED, "'%s': entry '%s' is compressed or encrypted",
                       s->file, entry->name);
    if (!is_record(s, local, LOCAL_BYTES, "PK\3\4"))
        return bad(s, "the header of an entry is missing");
    uint64_t skip = LOCAL_BYTES + load(s->data + local + 26, 2) + load(s->data + local + 28, 2);
    if (skip > s->size - local || size > s->size - local - skip)
        return bad(s, "the data of an entry runs past the end");
    entry->data = s->data + local + skip;
    entry->size = (size_t)size;
    *at += DIRECTORY_BYTES + name + extra + comment;
    return CVN_OK;
}

int zip_read(Zip *zip, const char *file, const uint8_t *data, size_t size, Arena *arena,
             cvn_err *err)
{
    ZipFile s = {file, data, size, err};
    uint64_t at = 0, n = 0;
    *zip = (Zip){0};
    map_init(&zip->by_name, arena);
    if (size < 4 || memcmp(data, "PK\3\4", 4) != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s' is not a zip archive, as torch.save writes since version 1.6", file);
    int code = find_directory(&s, &at, &n);
    if (code != CVN_OK)
        return code;
    if (n > size / DIRECTORY_BYTES)
        return bad(&s, "it has too many entries");
    zip->entry = arena_array(arena, (size_t)n + 1, sizeof *zip->entry);
    for (; zip->n < n; zip->n++) {
        bool added;
        ZipEntry *entry = &zip->entry[zip->n];
        if ((code = read_entry(&s, &at, arena, entry)) != CVN_OK)
            return code;
        *map_put(&zip->by_name, entry->name, strlen(entry->name), &added) = zip->n;
        if (!added)
            return err_set(err, CVN_EFORMAT, "'%s': two entries are named '%s'", file, entry->name);
    }
    return CVN_OK;
}

const ZipEntry *zip_find(const Zip *zip, const char *name)
{
    const uint64_t *index = map_get(&zip->by_name, name, strlen(name));
    return index ? &zip->entry[*index] : NULL;
}
