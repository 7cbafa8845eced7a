#include "train/checkpoint/manifest.h"

#include "base/crc32c.h"
#include "base/file.h"
#include "base/json_file.h"
#include "base/strbuf.h"
#include "io/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "caravan checkpoint"
#define TEXT_FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(15))
#define HEX_SIZE 9
#define TAIL_BEGIN ",\n  \"checksum\": \""
#define TAIL_END "\"\n}\n"
#define TAIL_SIZE (sizeof TAIL_BEGIN - 1 + HEX_SIZE - 1 + sizeof TAIL_END - 1)
#define MANIFEST_MAX_FILES 100000

static bool from_hex(const char *text, uint32_t *crc)
{
    if (!text || strlen(text) != HEX_SIZE - 1 || strspn(text, "0123456789abcdef") != HEX_SIZE - 1)
        return false;
    *crc = (uint32_t)strtoul(text, NULL, 16);
    return true;
}

int manifest_write(const Manifest *manifest, const char *folder, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf out = {0};
    json_auto_t *config = NULL;
    if (manifest->config && !(config = json_object_parse("config of the run", manifest->config,
                                                         strlen(manifest->config), err)))
        return CVN_EFORMAT;
    json_t *files = json_array();
    for (size_t i = 0; i < manifest->n; i++) {
        char hex[HEX_SIZE];
        const ManifestFile *file = &manifest->file[i];
        snprintf(hex, sizeof hex, "%08" PRIx32, file->crc32c);
        files = json_append(files, json_pack("{s:s, s:I, s:s}", "name", file->name, "bytes",
                                             (json_int_t)file->bytes, "crc32c", hex));
    }
    json_t *tensors = json_array();
    for (size_t i = 0; i < manifest->n_tensors; i++) {
        const ManifestTensor *tensor = &manifest->tensor[i];
        json_t *shape = json_integers(tensor->type.dim, tensor->type.rank);
        tensors =
            json_append(tensors, json_pack("{s:s, s:s, s:o}", "name", tensor->name, "dtype",
                                           cvn_dtype_name(tensor->type.dtype), "shape", shape));
    }
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, manifest->seed);
    json_auto_t *root =
        json_pack("{s:s, s:i, s:I, s:I, s:I, s:s, s:O*, s:o, s:o}", "format", FORMAT, "version",
                  MANIFEST_VERSION, "step", (json_int_t)manifest->step, "tokens",
                  (json_int_t)manifest->tokens, "position", (json_int_t)manifest->position, "seed",
                  seed, "config", config, "tensors", tensors, "files", files);
    SCOPED(scoped_free) char *text = root ? json_dumps(root, TEXT_FLAGS) : NULL;
    if (text) {                      /* without its last line */
        size_t n = strlen(text) - 2; /* without "\n}" */
        strbuf_add(&out, text, n);
        strbuf_printf(&out, TAIL_BEGIN "%08" PRIx32 TAIL_END, crc32c(0, text, n));
    }
    return text && !out.failed
               ? file_write(file_path(folder, MANIFEST_NAME).text, out.text, out.length, err)
               : err_set(err, CVN_EMEM, "no memory to write '%s/" MANIFEST_NAME "'", folder);
}

/* Whether the last line is there and holds the checksum of what precedes it. */
static bool is_whole(const char *text, size_t n)
{
    char hex[HEX_SIZE] = "";
    uint32_t crc;
    if (n < TAIL_SIZE)
        return false;
    const char *tail = text + n - TAIL_SIZE;
    memcpy(hex, tail + sizeof TAIL_BEGIN - 1, HEX_SIZE - 1);
    return memcmp(tail, TAIL_BEGIN, sizeof TAIL_BEGIN - 1) == 0 &&
           memcmp(text + n - (sizeof TAIL_END - 1), TAIL_END, sizeof TAIL_END - 1) == 0 &&
           from_hex(hex, &crc) && crc == crc32c(0, text, n - TAIL_SIZE);
}

static bool count_of(const json_t *root, const char *key, int64_t *count)
{
    const json_t *value = json_object_get(root, key);
    *count = json_integer_value(value);
    return json_is_integer(value) && *count >= 0;
}

static bool seed_of(const json_t *root, uint64_t *seed)
{
    const char *text = json_string_value(json_object_get(root, "seed"));
    char *end;
    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static int parse_files(Manifest *manifest, const char *path, const json_t *files, Arena *arena,
                       cvn_err *err)
{
    size_t n = json_array_size(files);
    if (!json_is_array(files) || n > MANIFEST_MAX_FILES)
        return err_set(err, CVN_EFORMAT, "'%s' has no list of \"files\"", path);
    manifest->file = arena_array(arena, n, sizeof *manifest->file);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(files, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        int64_t bytes;
        uint32_t crc;
        if (!name || !io_name_is_clean(name) || name[0] == '.' || strchr(name, '/') ||
            !count_of(entry, "bytes", &bytes) ||
            !from_hex(json_string_value(json_object_get(entry, "crc32c")), &crc))
            return err_set(err, CVN_EFORMAT,
                           "'%s': entry %zu of \"files\" is not {name, bytes, crc32c} of a file in "
                           "that folder",
                           path, i);
        manifest->file[i] = (ManifestFile){arena_string(arena, name), (uint64_t)bytes, crc};
    }
    manifest->n = n;
    return CVN_OK;
}

static int parse_tensor(ManifestTensor *tensor, const char *path, const json_t *entry, Arena *arena,
                        cvn_err *err)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    cvn_type *type = &tensor->type;
    size_t rank = json_array_size(shape), bytes;
    int64_t n;
    bool good = name && io_name_is_clean(name) && dtype && json_is_array(shape) &&
                rank <= CVN_MAX_RANK && cvn_dtype_parse(dtype, &type->dtype);
    type->rank = good ? (int)rank : 0;
    for (size_t d = 0; good && d < rank; d++) {
        type->dim[d] = json_integer_value(json_array_get(shape, d));
        good = json_is_integer(json_array_get(shape, d)) && type->dim[d] >= 0;
    }
    good = good && st_dtype_name(type->dtype) &&
           io_shape_size(type->dim, (int)rank, cvn_dtype_bits(type->dtype), &n, &bytes);
    if (!good)
        return err_set(err, CVN_EFORMAT,
                       "'%s': an entry of \"tensors\" is not {name, dtype, shape}", path);
    tensor->name = arena_string(arena, name);
    return CVN_OK;
}

int manifest_parse_tensors(Manifest *manifest, const char *path, const json_t *root, Arena *arena,
                           cvn_err *err)
{
    const json_t *tensors = json_object_get(root, "tensors");
    size_t n = json_array_size(tensors);
    if (!json_is_array(tensors))
        return err_set(err, CVN_EFORMAT, "'%s' has no list of \"tensors\"", path);
    manifest->tensor = arena_array(arena, n, sizeof *manifest->tensor);
    for (size_t i = 0; i < n; i++)
        TRY(parse_tensor(&manifest->tensor[i], path, json_array_get(tensors, i), arena, err));
    manifest->n_tensors = n;
    return CVN_OK;
}

int manifest_parse(Manifest *manifest, const char *path, const void *text, size_t n, Arena *arena,
                   cvn_err *err)
{
    *manifest = (Manifest){0};
    if (!is_whole(text, n))
        return err_set(err, CVN_EFORMAT,
                       "'%s' is damaged: the checksum of its text is missing at its end", path);
    json_t *root = json_object_parse(path, text, n, err);
    if (!root)
        return CVN_EFORMAT;
    CLEANUP(json_release, root);
    const char *format = json_string_value(json_object_get(root, "format"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    const json_t *config = json_object_get(root, "config");
    if (!format || strcmp(format, FORMAT) != 0)
        return err_set(err, CVN_EFORMAT, "'%s' is not a checkpoint manifest", path);
    if (version != MANIFEST_VERSION)
        return err_set(err, CVN_EFORMAT,
                       "'%s' has version %" JSON_INTEGER_FORMAT
                       " and this program reads version %d; export the model with the program that "
                       "wrote it, and start a new run with --init",
                       path, version, MANIFEST_VERSION);
    if (!count_of(root, "step", &manifest->step) || !count_of(root, "tokens", &manifest->tokens) ||
        !count_of(root, "position", &manifest->position) || !seed_of(root, &manifest->seed))
        return err_set(err, CVN_EFORMAT,
                       "'%s': step, tokens, position and seed must be whole numbers from 0", path);
    if (config && !json_is_object(config))
        return err_set(err, CVN_EFORMAT, "'%s': \"config\" is not an object", path);
    manifest->config = json_arena_text(config, TEXT_FLAGS, arena);
    if (config && !manifest->config)
        return err_set(err, CVN_EMEM, "no memory for the config in '%s'", path);
    TRY(manifest_parse_tensors(manifest, path, root, arena, err));
    return parse_files(manifest, path, json_object_get(root, "files"), arena, err);
}

int manifest_read(Manifest *manifest, const char *folder, Arena *arena, cvn_err *err)
{
    FileMap map;
    const char *path = arena_printf(arena, "%s/" MANIFEST_NAME, folder);
    TRY(file_map(&map, path, err));
    CLEANUP(file_map_release, &map);
    if (map.size > JSON_FILE_MAX)
        return err_set(err, CVN_EFORMAT, "'%s' has %zu bytes; a manifest has at most %zu", path,
                       map.size, JSON_FILE_MAX);
    return manifest_parse(manifest, path, map.data, map.size, arena, err);
}
