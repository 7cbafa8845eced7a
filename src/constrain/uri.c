#include "constrain/uri.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The parts of "scheme:" "//authority" "path" "?query" "#fragment", as lengths. */
typedef struct Parts {
    size_t scheme, authority, path, query, fragment;
} Parts;

static Parts split(const char *uri)
{
    Parts p = {0};
    size_t colon = strcspn(uri, ":/?#");
    if (colon && uri[colon] == ':')
        p.scheme = colon + 1;
    const char *at = uri + p.scheme;
    if (strncmp(at, "//", 2) == 0)
        p.authority = 2 + strcspn(at + 2, "/?#");
    at += p.authority;
    p.path = strcspn(at, "?#");
    at += p.path;
    p.query = strcspn(at, "#");
    p.fragment = strlen(at + p.query);
    return p;
}

/* Takes "." and ".." out of a path, in place. */
static void remove_dots(char *path)
{
    char *out = path, *begin = path;
    for (char *at = path; *at;) {
        size_t n = (*at == '/') + strcspn(at + (*at == '/'), "/");
        const char *segment = at + (*at == '/');
        size_t length = n - (*at == '/');
        bool dot = length == 1 && segment[0] == '.',
             dots = length == 2 && segment[0] == '.' && segment[1] == '.';
        if (dots)
            while (out > begin && *--out != '/')
                continue;
        if ((dot || dots) && !at[n] && at[0] == '/')
            *out++ = '/';
        if (!dot && !dots) {
            memmove(out, at, n);
            out += n;
        }
        at += n;
    }
    *out = 0;
}

char *uri_resolve(Arena *arena, const char *base, const char *reference)
{
    Parts b = split(base), r = split(reference);
    const char *base_path = base + b.scheme + b.authority,
               *path = reference + r.scheme + r.authority;
    if (r.scheme)
        return arena_string(arena, reference);
    if (r.authority)
        return arena_printf(arena, "%.*s%s", (int)b.scheme, base, reference);
    if (!r.path) {
        size_t keep = b.scheme + b.authority + b.path + (r.query ? 0 : b.query);
        return arena_printf(arena, "%.*s%s", (int)keep, base, reference);
    }
    size_t folder = 0;
    for (size_t i = 0; i < b.path && path[0] != '/'; i++)
        if (base_path[i] == '/')
            folder = i + 1;
    char *merged =
        arena_printf(arena, "%s%.*s%.*s", b.authority && !folder && path[0] != '/' ? "/" : "",
                     (int)folder, base_path, (int)r.path, path);
    remove_dots(merged);
    return arena_printf(arena, "%.*s%s%s", (int)(b.scheme + b.authority), base, merged,
                        path + r.path);
}

char *uri_cut_fragment(Arena *arena, char *uri)
{
    size_t n = strcspn(uri, "#");
    char *fragment = arena_string(arena, uri[n] ? uri + n + 1 : ""), *out = fragment;
    uri[n] = 0;
    for (const char *at = fragment; *at; at++) {
        char hex[3] = {0}, *end = hex;
        if (*at == '%' && at[1] && at[2])
            memcpy(hex, at + 1, 2);
        long byte = strtol(hex, &end, 16);
        if (hex[0] && end == hex + 2) {
            *out++ = (char)byte;
            at += 2;
        } else {
            *out++ = *at;
        }
    }
    *out = 0;
    return fragment;
}
