#include "train/data/source.h"

#include "base/heap.h"
#include "io/tensor.h"
#include "train/data/cache.h"
#include "train/data/record.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_DEPTH = 32 };

/* ---- which files ---- */

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

static size_t skip_mark(const char *text, size_t n)
{
    return n >= 3 && memcmp(text, BYTE_ORDER_MARK, 3) == 0 ? 3 : 0;
}

static size_t skip_blank(const char *text, size_t n, size_t at)
{
    while (at < n && memchr(" \t\r\n", text[at], 4))
        at++;
    return at;
}

/* Whether a text begins as JSON does, and no text in words: `{"`, `[{"`, `[[{"`, with white space between. */
static bool looks_like_json(const char *text, size_t n, size_t at)
{
    for (int depth = 0; depth < 2 && at < n && text[at] == '['; depth++)
        at = skip_blank(text, n, at + 1);
    if (at >= n || text[at] != '{')
        return false;
    at = skip_blank(text, n, at + 1);
    return at < n && text[at] == '"';
}

/* Whether these n bytes are JSON; of a shape that is known. */
static bool is_json(const char *text, size_t n, bool *known)
{
    json_auto_t *value = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    *known = record_is(value);
    return value;
}

/*
 * A file that begins as JSON is records, one per line where its first line is one, else one after the other, in a list or
 * not. Where it was named, records of a shape that nobody knows are for who reads them to refuse; in a folder, which may
 * be of source code, they are text.
 */
static SourceKind kind_of(const char *path, const FileMap *map, bool named)
{
    const char *text = (const char *)map->data;
    size_t n = map->size;
    if (token_file_is(text, n))
        return SOURCE_TOKENS;
    if (io_ends_with(path, ".jsonl") || io_ends_with(path, ".ndjson"))
        return SOURCE_JSONL;
    size_t begin = skip_blank(text, n, skip_mark(text, n));
    bool known;
    if (!looks_like_json(text, n, begin))
        return SOURCE_TEXT;
    const char *newline = memchr(text + begin, '\n', n - begin);
    size_t line = newline ? (size_t)(newline - text) - begin : n - begin;
    if (is_json(text + begin, line, &known) && (text[begin] == '{' || (known && newline)))
        return known || named ? SOURCE_JSONL : SOURCE_TEXT;
    size_t first = text[begin] == '[' ? skip_blank(text, n, begin + 1) : begin;
    if (!is_json(text + first, record_extent(text + first, n - first), &known) || !known)
        return named ? SOURCE_RECORDS : SOURCE_TEXT;
    return SOURCE_RECORDS;
}

static int64_t modified(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

static int add_file(SourceList *list, const char *path, bool named, cvn_err *err)
{
    FileMap map;
    struct stat info;
    if (stat(path, &info) != 0)
        return errno == ENOENT
                   ? err_set(err, CVN_EIO,
                             "'%s' does not exist; --data names files and folders of training data",
                             path)
                   : err_set(err, CVN_EIO, "cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(err, CVN_EIO,
                       "'%s' is not a regular file, and training data are read more than once; "
                       "write them to a file first",
                       path);
    TRY(file_map(&map, path, err));
    if (map.size == 0)
        return named ? err_set(err, CVN_EFORMAT, "'%s' is empty", path) : CVN_OK;
    SourceFile file = {.path = strdup(path),
                       .kind = kind_of(path, &map, named),
                       .size = info.st_size,
                       .modified = modified(&info)};
    file_unmap(&map);
    SourceFile *more = file.path ? heap_more(list->file, list->n, sizeof *more) : NULL;
    if (!more) {
        free(file.path);
        return err_set(err, CVN_EMEM, "no memory for a list of %zu files", list->n + 1);
    }
    list->file = more;
    list->file[list->n++] = file;
    return CVN_OK;
}

static int shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_path(SourceList *list, const char *path, int depth, cvn_err *err)
{
    struct dirent **entry = NULL;
    if (strcmp(path, "-") == 0)
        return err_set(err, CVN_EIO,
                       "standard input cannot be training data, which are read more than once; "
                       "write them to a file first");
    if (!file_is_folder(path))
        return add_file(list, path, depth == 0, err);
    if (depth > MAX_DEPTH)
        return err_set(err, CVN_EIO,
                       "'%s' is nested more than %d folders deep; is there a cyclic link?", path,
                       MAX_DEPTH);
    int n = scandir(path, &entry, shown, by_name), code = CVN_OK;
    if (n < 0)
        return err_set(err, CVN_EIO, "cannot list '%s': %s", path, strerror(errno));
    for (int i = 0; i < n; i++) {
        if (!code)
            code = add_path(list, file_path(path, entry[i]->d_name).text, depth + 1, err);
        free(entry[i]);
    }
    free(entry);
    return code;
}

FilePath source_path(const char *named, double *weight)
{
    FilePath path = file_path("", named);
    const char *equals = strrchr(named, '=');
    char *end;
    double value = equals && !file_exists(named) ? strtod(equals + 1, &end) : 0;
    if (value > 0 && value <= 1e9 && *end == '\0' && (size_t)(equals - named) < sizeof path.text)
        path.text[equals - named] = '\0';
    else
        value = 0;
    if (weight)
        *weight = value;
    return path;
}

int source_list(SourceList *list, const char *const *paths, size_t n, cvn_err *err)
{
    *list = (SourceList){0};
    int code = CVN_OK;
    for (size_t i = 0; i < n && !code; i++)
        code = add_path(list, source_path(paths[i], NULL).text, 0, err);
    if (!code && list->n == 0)
        code = n ? err_set(err, CVN_EFORMAT, "'%s' has no text files", paths[0])
                 : err_set(err, CVN_EINVAL, "no training data were given; name a file or a folder");
    if (code)
        source_list_free(list);
    return code;
}

void source_list_free(SourceList *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->file[i].path);
    free(list->file);
    *list = (SourceList){0};
}

int source_unchanged(const SourceFile *file, cvn_err *err)
{
    struct stat info;
    if (stat(file->path, &info) != 0)
        return err_set(err, CVN_EIO, "'%s' was removed while it was tokenized: %s", file->path,
                       strerror(errno));
    if (info.st_size != file->size || modified(&info) != file->modified)
        return err_set(err, CVN_EIO,
                       "'%s' was changed while it was tokenized; start again when it is complete",
                       file->path);
    return CVN_OK;
}

/* ---- units ---- */

static const char *bytes_of(const SourceReader *r)
{
    return (const char *)r->map[r->n_maps - 1].data;
}

static int open_next(SourceReader *r, cvn_err *err)
{
    const SourceFile *file = &r->list->file[r->next_file++];
    FileMap map;
    if (file->kind == SOURCE_TOKENS)
        return CVN_OK;
    TRY(file_map(&map, file->path, err));
    if ((int64_t)map.size != file->size) {
        file_unmap(&map);
        TRY(source_unchanged(file, err));
        return err_set(err, CVN_EIO, "'%s' was changed; start again", file->path);
    }
    r->map[r->n_maps++] = map;
    r->file = file;
    r->at = skip_mark((const char *)map.data, map.size);
    r->inside = false;
    r->line = 0;
    return CVN_OK;
}

static bool next_line(SourceReader *r, SourceUnit *unit)
{
    const char *text = bytes_of(r);
    size_t n = (size_t)r->file->size;
    while (r->at < n) {
        const char *newline = memchr(text + r->at, '\n', n - r->at);
        size_t begin = r->at, end = newline ? (size_t)(newline - text) : n;
        r->at = end + (newline != NULL);
        r->line++;
        while (begin < end && memchr(" \t\r", text[begin], 3))
            begin++;
        *unit =
            (SourceUnit){text + begin, end - begin, r->file, r->line, (int64_t)begin, true, true};
        if (begin < end)
            return true;
    }
    return false;
}

/* The next of records that follow one another, with commas and brackets around them. */
static bool next_record(SourceReader *r, SourceUnit *unit)
{
    const char *text = bytes_of(r);
    size_t n = (size_t)r->file->size, begin = r->at;
    while (begin < n &&
           (memchr(" \t\r\n,", text[begin], 5) || text[begin] == (r->inside ? ']' : '['))) {
        r->inside ^= text[begin] == '[' || text[begin] == ']';
        r->line += text[begin++] == '\n';
    }
    r->at = begin;
    if (begin == n && !r->inside)
        return false;
    r->at += record_extent(text + begin, n - begin);
    if (r->at == begin) {
        /* A bracket too many, or a list without its last: for the parser to name. */
        r->at = n;
        r->inside = false;
    }
    *unit =
        (SourceUnit){text + begin, r->at - begin, r->file, r->line + 1, (int64_t)begin, true, true};
    for (size_t i = begin; i < r->at; i++)
        r->line += text[i] == '\n';
    return true;
}

/* Where a piece that begins at `begin` and may not be the whole text up to `end` is cut: behind a line whose
 * successor begins with a character, so that no run of white space is torn; failing that, between two
 * characters. */
static size_t cut(const char *text, size_t begin, size_t end)
{
    if (end - begin <= SOURCE_PIECE)
        return end;
    size_t limit = end - begin > 4 * (size_t)SOURCE_PIECE ? begin + 4 * (size_t)SOURCE_PIECE : end;
    for (size_t i = begin + SOURCE_PIECE; i < limit; i++)
        if (text[i - 1] == '\n' && !memchr(" \t\r\n", text[i], 4))
            return i;
    while (limit < end && limit > begin + 1 && ((unsigned char)text[limit] & 0xc0) == 0x80)
        limit--;
    return limit;
}

static bool next_piece(SourceReader *r, SourceUnit *unit)
{
    const char *text = bytes_of(r);
    size_t n = (size_t)r->file->size, n_separator = strlen(r->separator);
    bool begins = !r->inside;
    while (!r->inside && r->at < n) {
        const char *found = memmem(text + r->at, n - r->at, r->separator, n_separator);
        size_t end = found ? (size_t)(found - text) : n;
        r->end = end;
        while (r->at < r->end && memchr("\r\n", text[r->at], 2))
            r->at++;
        while (r->end > r->at && memchr("\r\n", text[r->end - 1], 2))
            r->end--;
        r->inside = r->at < r->end;
        if (!r->inside)
            r->at = end + (found ? n_separator : 0);
    }
    if (!r->inside)
        return false;
    size_t stop = cut(text, r->at, r->end);
    *unit = (SourceUnit){text + r->at,   stop - r->at, r->file,       0,
                         (int64_t)r->at, begins,       stop == r->end};
    r->at = stop;
    r->inside = stop < r->end;
    return true;
}

int source_batch(SourceReader *r, SourceUnit *unit, size_t most, size_t bytes, size_t *n,
                 cvn_err *err)
{
    size_t keep = r->file ? 1 : 0, total = 0;
    for (size_t i = 0; i + keep < r->n_maps; i++)
        file_unmap(&r->map[i]);
    if (keep)
        r->map[0] = r->map[r->n_maps - 1];
    r->n_maps = keep;
    *n = 0;
    while (*n < most && total < bytes) {
        static bool (*const next[])(SourceReader *, SourceUnit *) = {
            [SOURCE_TEXT] = next_piece, [SOURCE_JSONL] = next_line, [SOURCE_RECORDS] = next_record};
        if (r->file && next[r->file->kind](r, &unit[*n])) {
            total += unit[(*n)++].n;
            continue;
        }
        if (r->file)
            r->done += r->file->size;
        r->file = NULL;
        if (r->next_file == r->list->n || r->n_maps == SOURCE_BATCH_FILES)
            break;
        TRY(open_next(r, err));
    }
    return CVN_OK;
}

int64_t source_position(const SourceReader *r)
{
    return r->done + (r->file ? (int64_t)r->at : 0);
}

void source_reader_free(SourceReader *r)
{
    for (size_t i = 0; i < r->n_maps; i++)
        file_unmap(&r->map[i]);
    *r = (SourceReader){0};
}
