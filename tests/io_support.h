/* What the tests of src/io share: a scratch folder, whole files in exact-size heap blocks (so that
 * the address sanitizer sees a read past the end), small safetensors files made by hand. */
#ifndef CVN_TESTS_IO_SUPPORT_H
#define CVN_TESTS_IO_SUPPORT_H

#include "base/file.h"
#include "base/map.h"
#include "io/tensor.h"
#include "scratch.h"
#include "unit.h"

#include <dirent.h>
#include <jansson.h>
#include <unistd.h>

/* Removes a folder of plain files and folders of plain files. */
static inline int remove_folder(const char *path)
{
    DIR *stream = opendir(path);
    if (!stream)
        return -1;
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        FilePath child = file_path(path, entry->d_name);
        if (unlink(child.text) != 0)
            remove_folder(child.text);
    }
    closedir(stream);
    return rmdir(path);
}

/* How many entries a folder has, not counting "." and "..". */
static inline int count_entries(const char *path)
{
    DIR *stream = opendir(path);
    if (!stream)
        return -1;
    int n = -2;
    while (readdir(stream))
        n++;
    closedir(stream);
    return n;
}

typedef struct Bytes {
    uint8_t *data; /* owned, heap, exactly n bytes */
    size_t n;
} Bytes;

static inline Bytes bytes_copy(const void *data, size_t n)
{
    Bytes bytes = {malloc(n ? n : 1), n};
    assert_non_null(bytes.data);
    if (n == 0) { /* no byte may be read */
        free(bytes.data);
        bytes.data = NULL;
    } else {
        memcpy(bytes.data, data, n);
    }
    return bytes;
}

/* A whole file, or {NULL, 0} when it is not there. */
static inline Bytes bytes_of_file(const char *path)
{
    FileMap map;
    if (file_map(&map, path, NULL) != CVN_OK)
        return (Bytes){0};
    Bytes bytes = bytes_copy(map.data, map.size);
    file_unmap(&map);
    return bytes;
}

/* Header size, header, then n data bytes 0, 1, 2, … */
static inline Bytes safetensors_of(const char *header, size_t n)
{
    uint64_t length = strlen(header);
    Bytes bytes = {malloc(8 + length + n), 8 + length + n};
    assert_non_null(bytes.data);
    memcpy(bytes.data, &length, 8);
    memcpy(bytes.data + 8, header, length);
    for (size_t i = 0; i < n; i++)
        bytes.data[8 + length + i] = (uint8_t)i;
    return bytes;
}

/* Reads every byte of every tensor, so that the address sanitizer sees what is not there. */
static inline void touch_tensors(const IoTensors *list)
{
    volatile uint8_t sink = 0;
    for (size_t i = 0; i < list->n; i++)
        for (size_t b = 0; b < list->tensor[i].bytes; b++)
            sink = (uint8_t)(sink ^ list->tensor[i].data[b]);
}

/* Skips the running test, saying why, unless the shared test data is there. */
static inline void need_shared_data(void)
{
    if (!file_is_folder(CVN_SHARED_DATA)) {
        print_message("skipped: no shared test data at %s\n", CVN_SHARED_DATA);
        skip();
    }
}

/* Every sample NAME.ENDING of a folder of the shared data, as expected.json beside them says: "accept", "reject", or
   "either", where it is enough that the reader ends. */
static inline void judge_samples(const char *folder, const char *ending,
                                 int (*code_of)(const uint8_t *data, size_t n))
{
    char path[512];
    snprintf(path, sizeof path, "%s/formats/%s/expected.json", CVN_SHARED_DATA, folder);
    json_t *expected = json_load_file(path, 0, NULL), *row;
    assert_non_null(expected);
    const char *name;
    json_object_foreach(expected, name, row)
    {
        snprintf(path, sizeof path, "%s/formats/%s/%s.%s", CVN_SHARED_DATA, folder, name, ending);
        if (!file_exists(path))
            fail_msg("%s is missing", path);
        Bytes bytes = bytes_of_file(path);
        const char *want = json_string_value(json_object_get(row, "expect"));
        int code = code_of(bytes.data, bytes.n);
        if (strcmp(want, "either") != 0 && (code == CVN_OK) != (strcmp(want, "accept") == 0))
            fail_msg("%s: wanted %s, got %s", name, want, cvn_code_text(code));
        free(bytes.data);
    }
    assert_true(json_object_size(expected) > 0);
    json_decref(expected);
}

#endif
