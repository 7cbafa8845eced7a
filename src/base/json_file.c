#include "base/json_file.h"

#include "base/file.h"
#include "base/strbuf.h"

#include <stdlib.h>

void json_release(void *value)
{
    json_decref((json_t *)value);
}

static json_t *whole(json_t *all, int failed)
{
    if (!failed)
        return all;
    json_decref(all);
    return NULL;
}

json_t *json_with(json_t *object, const char *key, json_t *value)
{
    return whole(object, json_object_set_new(object, key, value));
}

json_t *json_merged(json_t *object, json_t *more)
{
    return whole(object, json_object_update_new(object, more));
}

json_t *json_append(json_t *list, json_t *value)
{
    return whole(list, json_array_append_new(list, value));
}

json_t *json_object_parse(const char *file, const void *text, size_t n, cvn_err *err)
{
    json_error_t where;
    json_t *root = json_loadb(n ? text : "", n, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        err_set(err, CVN_EFORMAT, "'%s' is not valid JSON: %s (line %d, column %d)", file,
                where.text, where.line, where.column);
        return NULL;
    }
    if (!json_is_object(root)) {
        err_set(err, CVN_EFORMAT, "'%s' is not a JSON object", file);
        json_decref(root);
        return NULL;
    }
    return root;
}

json_t *json_object_read(const char *path, cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    if (file_map(&map, path, err) != CVN_OK)
        return NULL;
    if (map.size <= JSON_FILE_MAX)
        return json_object_parse(path, map.data, map.size, err);
    err_set(err, CVN_EFORMAT, "'%s' has %zu bytes; the limit for JSON files is %zu", path, map.size,
            JSON_FILE_MAX);
    return NULL;
}

int json_file_write(const char *path, const json_t *value, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    SCOPED(scoped_free) char *json = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    strbuf_puts(&text, json ? json : "");
    strbuf_putc(&text, '\n');
    return json && !text.failed
               ? file_write(path, text.text, text.length, err)
               : err_set(err, CVN_EMEM, "no memory for the JSON text of '%s'", path);
}

const char *json_arena_text(const json_t *value, size_t flags, Arena *arena)
{
    char *text = value ? json_dumps(value, flags) : NULL;
    CLEANUP(free, text);
    return text ? arena_string(arena, text) : NULL;
}

json_t *json_integers(const int64_t *number, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        list = json_append(list, json_integer(number[i]));
    return list;
}
