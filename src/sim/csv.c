#include "sim/csv.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Reader {
    const char *file, *at, *end;
    int64_t line;
    Arena *arena;
} Reader;

/* One field, and whether its line goes on. */
static int next_field(Reader *r, const char **field, bool *more, cvn_err *err)
{
    bool quoted = r->at < r->end && *r->at == '"';
    const char *from = r->at + quoted, *to = from;
    size_t doubled = 0;
    int64_t begun = r->line;
    if (!quoted) {
        while (to < r->end && *to != ',' && *to != '\n')
            to++;
        r->at = to;
        to -= to > from && to[-1] == '\r' && (r->at == r->end || *r->at == '\n');
    } else {
        for (; to < r->end && !(*to == '"' && (to + 1 == r->end || to[1] != '"')); to++) {
            r->line += *to == '\n';
            if (*to == '"') {
                doubled++;
                to++;
            }
        }
        if (to == r->end)
            return err_set(err, CVN_EFORMAT, "%s, line %lld: unterminated quoted field", r->file,
                           (long long)begun);
        r->at = to + 1;
        r->at += r->at < r->end && *r->at == '\r';
        if (r->at < r->end && *r->at != ',' && *r->at != '\n')
            return err_set(
                err, CVN_EFORMAT,
                "%s, line %lld: expected a comma or the end of the line after a quoted field",
                r->file, (long long)r->line);
    }
    char *text = arena_alloc(r->arena, (size_t)(to - from) - doubled + 1);
    size_t n = 0;
    for (const char *p = from; p < to; p++) {
        text[n++] = *p;
        p += quoted && *p == '"';
    }
    text[n] = '\0';
    *field = text;
    *more = r->at < r->end && *r->at == ',';
    r->line += r->at < r->end && *r->at == '\n';
    r->at += r->at < r->end;
    return CVN_OK;
}

typedef struct Parse {
    Csv *csv;
    Reader reader;
} Parse;

static int parse(void *of, cvn_err *err)
{
    Parse *all = of;
    Csv *csv = all->csv;
    Reader r = all->reader;
    const char *file = r.file;
    const char *name[CSV_MAX_COLUMNS];
    bool more = true;
    while (more) {
        if (csv->columns == CSV_MAX_COLUMNS)
            return err_set(err, CVN_EFORMAT, "%s has more than %d columns", file, CSV_MAX_COLUMNS);
        if (next_field(&r, &name[csv->columns++], &more, err))
            return err->code;
    }
    size_t columns = (size_t)csv->columns, lines = 1;
    for (const char *p = r.at; p < r.end; p++)
        lines += *p == '\n';
    if (lines > CSV_MAX_ROWS)
        return err_set(err, CVN_EFORMAT, "%s has more than %d lines", file, CSV_MAX_ROWS);
    csv->name = arena_array(r.arena, columns, sizeof *csv->name);
    memcpy(csv->name, name, columns * sizeof *name);
    csv->field = arena_array(r.arena, lines * columns, sizeof *csv->field);
    while (r.at < r.end) {
        const char **row = csv->field + (size_t)csv->rows * columns, *field;
        int64_t line = r.line;
        for (size_t i = 0; i < columns; i++)
            row[i] = "";
        size_t i = 0;
        for (more = true; more; i++) {
            if (next_field(&r, &field, &more, err))
                return err->code;
            if (i >= columns)
                return err_set(err, CVN_EFORMAT, "%s, line %lld: more fields than the header", file,
                               (long long)line);
            row[i] = field;
        }
        csv->rows += i > 1 || row[0][0]; /* an empty line is none */
    }
    return CVN_OK;
}

int csv_parse(Csv *csv, const char *file, const char *text, size_t n, Arena *arena, cvn_err *err)
{
    Parse all = {csv, {.file = file, .at = text, .end = text + n, .line = 1, .arena = arena}};
    *csv = (Csv){0};
    if (n && memchr(text, '\0', n))
        return err_set(err, CVN_EFORMAT, "%s is not text: it contains a NUL byte", file);
    return protect(parse, &all, "reading a table", err);
}

int csv_read(Csv *csv, const char *path, Arena *arena, cvn_err *err)
{
    FileMap map;
    if (file_map(&map, path, err))
        return err->code;
    int code =
        map.size > CSV_MAX_BYTES
            ? err_set(err, CVN_EFORMAT, "%s is too large for a table", path)
            : csv_parse(csv, path, map.size ? (const char *)map.data : "", map.size, arena, err);
    file_unmap(&map);
    return code;
}

static int column_of(const Csv *csv, const char *name)
{
    for (int i = 0; i < csv->columns; i++)
        if (strcmp(csv->name[i], name) == 0)
            return i;
    return -1;
}

bool csv_has(const Csv *csv, const char *column)
{
    return column_of(csv, column) >= 0;
}

const char *csv_at(const Csv *csv, int64_t row, const char *column)
{
    int i = column_of(csv, column);
    return i < 0 ? "" : csv->field[row * csv->columns + i];
}

double csv_number(const Csv *csv, int64_t row, const char *column, double none)
{
    const char *text = csv_at(csv, row, column);
    char *end;
    double x = strtod(text, &end);
    return !*text ? none : *end ? NAN : x;
}
