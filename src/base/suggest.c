#include "base/suggest.h"

#include "base/err.h"

#include <dirent.h>
#include <stdint.h>
#include <string.h>

enum { WORD_MAX = 63 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Distance of two words; words longer than 63 bytes are SIZE_MAX apart. */
static size_t distance_of(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > WORD_MAX || m > WORD_MAX)
        return SIZE_MAX;
    size_t rows[3][WORD_MAX + 1]; /* of the table: two before, one before, this one */
    size_t *older = rows[0], *old = rows[1], *now = rows[2];
    for (size_t j = 0; j <= m; j++)
        old[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t cost = a[i - 1] != b[j - 1];
            now[j] = least(least(old[j], now[j - 1]) + 1, old[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], older[j - 2] + 1);
        }
        size_t *spare = older;
        older = old;
        old = now;
        now = spare;
    }
    return old[m];
}

/* How far from a word of n letters its meaning may lie: a third of them. */
static size_t tolerance(size_t n)
{
    return (n + 2) / 3;
}

const char *suggest(const char *word, SuggestAt at, const void *list)
{
    size_t n = strlen(word), best = SIZE_MAX;
    const char *found = NULL, *candidate;
    for (size_t i = 0; (candidate = at(list, i)); i++) {
        size_t distance = distance_of(word, candidate);
        if (n >= 2 && strncmp(word, candidate, n) == 0)
            distance = least(distance, 1);
        if (distance < best) {
            best = distance;
            found = candidate;
        }
    }
    return best <= tolerance(n) ? found : NULL;
}

bool suggest_path(const char *path, StrBuf *out)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t head = n;
    while (head > 0 && path[head - 1] != '/')
        head--;
    SCOPED(strbuf_free) StrBuf folder = {0}, name = {0}, best = {0};
    strbuf_add(&folder, head ? path : ".", head ? head : 1);
    strbuf_add(&name, path + head, n - head);
    DIR *dir = folder.failed || name.failed ? NULL : opendir(folder.text);
    size_t distance = tolerance(name.length);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        size_t d = entry->d_name[0] == '.' ? SIZE_MAX : distance_of(name.text, entry->d_name);
        if (d == 0) /* it is there: a link that leads nowhere */
            continue;
        if (d <= distance && (d < distance || !best.length)) {
            distance = d;
            strbuf_clear(&best);
            strbuf_puts(&best, entry->d_name);
        }
    }
    if (dir)
        closedir(dir);
    bool found = best.length && !best.failed;
    if (found) {
        strbuf_add(out, path, head);
        strbuf_puts(out, best.text);
    }
    return found;
}
