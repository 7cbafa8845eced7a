/*
 * Memory that runs out, on purpose: linked before the program's own code by --wrap (cmake/Starved.cmake), this counts what
 * is asked of the heap, of mmap, of pthread_create, of streams and of arenas, jansson's part of it too, and refuses one.
 *
 *     CVN_FAIL_ALLOCATION=n       the n-th is refused, from 1 on
 *     CVN_FAIL_ALLOCATION=n+      that one and all after it
 *     CVN_LIST_ALLOCATIONS=FILE   at the end FILE has the n of each that was asked for in another way than all before it
 *                                 (the functions that were being called), one a line, and at last how many there were
 *
 * An arena's pieces are counted each, not its mappings: one that is refused has no room and can have no more. At the end
 * of the process what it has mapped must be unmapped; heap that is left is LeakSanitizer's to find.
 */
#include "base/arena.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <jansson.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_MAPPINGS = 4096, MOST_WAYS = 1 << 16, DEEPEST = 64, LEFT = 86 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that is static here */
static long counted;
static long refused; /* the one that is; 0: none */
static bool all_after;
static const char *list_path;
static struct {
    uint64_t stack; /* hash of the functions that were being called; 0: empty */
    long n;
} way[MOST_WAYS];
static struct {
    void *at; /* NULL: empty */
    size_t size;
} mapping[MOST_MAPPINGS];
static _Thread_local bool inside;     /* this file, or an arena that was counted, is at work */
static _Thread_local bool no_mapping; /* for an arena that is refused */

static void note_way(long n)
{
    void *frame[DEEPEST];
    uint64_t hash = 0xcbf29ce484222325;
    int depth = backtrace(frame, DEEPEST);
    for (int i = 0; i < depth; i++)
        hash = (hash ^ (uintptr_t)frame[i]) * 0x100000001b3;
    size_t at = hash >> 48;
    for (int i = 0; i < MOST_WAYS && way[at].stack && way[at].stack != hash; i++)
        at = (at + 1) % MOST_WAYS;
    if (!way[at].stack) {
        way[at].stack = hash;
        way[at].n = n;
    }
}

/* Whether this one is refused. */
static bool refuse(void)
{
    if (inside)
        return false;
    inside = true;
    pthread_mutex_lock(&lock);
    long n = ++counted;
    if (list_path)
        note_way(n);
    pthread_mutex_unlock(&lock);
    inside = false;
    bool is = refused && (all_after ? n >= refused : n == refused);
    if (is)
        errno = ENOMEM;
    return is;
}

#define WRAP(type, name, parameters, arguments, none)                                              \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return refuse() ? none : __real_##name arguments;                                          \
    }

WRAP(void *, malloc, (size_t n), (n), NULL)
WRAP(void *, calloc, (size_t n, size_t size), (n, size), NULL)
WRAP(void *, realloc, (void *p, size_t n), (p, n), NULL)
WRAP(void *, reallocarray, (void *p, size_t n, size_t size), (p, n, size), NULL)
WRAP(void *, aligned_alloc, (size_t align, size_t n), (align, n), NULL)
WRAP(char *, strdup, (const char *s), (s), NULL)
WRAP(char *, strndup, (const char *s, size_t n), (s, n), NULL)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *of),
     (thread, how, run, of), EAGAIN)

int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list args;
    *out = NULL;
    if (refuse())
        return -1;
    va_start(args, format);
    int n = vasprintf(out, format, args);
    va_end(args);
    return n;
}

/* ---- mappings ---- */

/* The first place of `from` becomes one of `to`. */
static void note_mapping(void *from, void *to, size_t size)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_MAPPINGS; i++)
        if (mapping[i].at == from) {
            mapping[i].at = to;
            mapping[i].size = size;
            break;
        }
    pthread_mutex_unlock(&lock);
}

void *__real_mmap(void *at, size_t size, int how, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int how, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t size, int how, int flags, int fd, off_t offset)
{
    if (no_mapping || refuse())
        return MAP_FAILED;
    void *map = __real_mmap(at, size, how, flags, fd, offset);
    if (map != MAP_FAILED)
        note_mapping(NULL, map, size);
    return map;
}

int __real_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size);
int __wrap_munmap(void *at, size_t size)
{
    note_mapping(at, NULL, 0);
    return __real_munmap(at, size);
}

/* ---- arenas ---- */

typedef struct Asking {
    Arena *arena;
    size_t left; /* what the arena had */
    bool before; /* `inside` */
    Cleanup cleanup;
} Asking;

static void stop_asking(void *of)
{
    no_mapping = false;
    inside = ((const Asking *)of)->before;
}

static void ask(Asking *a, Arena *arena)
{
    no_mapping = refuse();
    *a = (Asking){.arena = arena, .left = arena->left, .before = inside};
    inside = true;
    if (no_mapping)
        arena->left = 0;
    cleanup_push(&a->cleanup, stop_asking, a);
}

#define ARENA(type, name, parameters, arguments)                                                   \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        Asking a;                                                                                  \
        ask(&a, arena);                                                                            \
        type made = __real_##name arguments;                                                       \
        cleanup_run(&a.cleanup);                                                                   \
        return made;                                                                               \
    }

ARENA(void *, arena_try, (Arena * arena, size_t size), (arena, size))
ARENA(void *, arena_alloc, (Arena * arena, size_t size), (arena, size))
ARENA(void *, arena_array, (Arena * arena, size_t n, size_t size), (arena, n, size))
ARENA(void *, arena_copy, (Arena * arena, const void *p, size_t n), (arena, p, n))
ARENA(char *, arena_string, (Arena * arena, const char *text), (arena, text))
ARENA(char *, arena_stringn, (Arena * arena, const char *text, size_t n), (arena, text, n))

/* Only where it does ask for more. */
void *__wrap_arena_more(Arena *arena, void *array, size_t n, size_t size);
void *__wrap_arena_more(Arena *arena, void *array, size_t n, size_t size)
{
    enum { FIRST = 16 };
    if (n && (n < FIRST || (n & (n - 1))))
        return array;
    void *more = __wrap_arena_array(arena, n ? 2 * n : FIRST, size);
    return n ? memcpy(more, array, n * size) : more;
}

char *__wrap_arena_printf(Arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *__wrap_arena_printf(Arena *arena, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return __wrap_arena_string(arena, text);
}

/* ---- begin and end ---- */

static int smaller(const void *a, const void *b)
{
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static void write_list(void)
{
    static long n[MOST_WAYS];
    size_t ways = 0;
    for (int i = 0; i < MOST_WAYS; i++)
        if (way[i].stack)
            n[ways++] = way[i].n;
    qsort(n, ways, sizeof *n, smaller);
    FILE *file = fopen(list_path, "w");
    for (size_t i = 0; file && i < ways; i++)
        fprintf(file, "%ld\n", n[i]);
    if (file) {
        fprintf(file, "%ld\n", counted);
        fclose(file);
    }
}

static void end(void)
{
    bool left = false;
    inside = true;
    for (int i = 0; i < MOST_MAPPINGS; i++)
        if (mapping[i].at) {
            fprintf(stderr, "%zu bytes are mapped still\n", mapping[i].size);
            left = true;
        }
    if (list_path)
        write_list();
    if (left)
        _exit(LEFT);
    inside = false;
}

__attribute__((constructor)) static void begin(void)
{
    const char *n = getenv("CVN_FAIL_ALLOCATION");
    void *frame[1];
    inside = true;
    if (n) {
        refused = strtol(n, NULL, 10);
        all_after = strchr(n, '+') != NULL;
    }
    list_path = getenv("CVN_LIST_ALLOCATIONS");
    backtrace(frame, 1); /* its first call loads what it needs */
    json_set_alloc_funcs(__wrap_malloc, free);
    atexit(end);
    inside = false;
}
