#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifdef HAVE_ASAN
#include <sanitizer/asan_interface.h>
enum { REDZONE = 16 }; /* poisoned bytes between allocations, so that overruns are seen */
#else
enum { REDZONE = 0 };
#endif

/* What stands at the start of a chunk. */
struct ArenaChunk {
    struct ArenaChunk *before; /* the chunk that was full, or NULL */
    size_t size;               /* bytes of address space, with this */
};

/* A first chunk that holds most arenas whole, so that what has too little address space is mostly told so by arena_init. */
static const size_t FIRST_CHUNK = (size_t)16 << 20;
enum { HEADER = (sizeof(struct ArenaChunk) + 15) & ~15 };

/*
 * The system gives memory page by page, as each is touched first, and such a fault costs more than the page. So pages are asked for in
 * runs: 64 KiB at the start, then as many as were used so far, up to 4 MiB. What is larger may never be touched whole, and is left to
 * the system, as is all on a system that knows no such request.
 */
static void touch_more(Arena *arena, size_t size)
{
    enum { LEAST = 64 << 10, MOST = 4 << 20 };
    size_t run = arena->used < LEAST ? LEAST : arena->used > MOST ? MOST : arena->used;
    size_t ahead = (size_t)(arena->next - arena->touched); /* handed out and not asked for */
    run = ((run > ahead ? run : ahead) + LEAST - 1) / LEAST * LEAST;
    char *end = arena->next + arena->left, *from = arena->touched;
    run = run < (size_t)(end - from) ? run : (size_t)(end - from);
    arena->touched = from + run;
#ifdef MADV_POPULATE_WRITE
    if (size <= MOST)
        madvise(from, run, MADV_POPULATE_WRITE);
#endif
}

static bool grow(Arena *arena, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return false;
    struct ArenaChunk *chunk = map;
    *chunk = (struct ArenaChunk){.before = arena->chunk, .size = size};
    arena->chunk = chunk;
    arena->next = (char *)map + HEADER;
    arena->left = size - HEADER;
    arena->touched = map;
    arena->reserved += size;
    return true;
}

int arena_init(Arena *arena, cvn_err *err)
{
    *arena = (Arena){0};
    if (grow(arena, FIRST_CHUNK))
        return CVN_OK;
    return err_set(err, CVN_EMEM, "cannot reserve %zu MiB of address space; raise 'ulimit -v'",
                   FIRST_CHUNK >> 20);
}

static void free_local(void *arena)
{
    arena_free(arena);
}

int arena_begin(Arena *arena, cvn_err *err)
{
    TRY(arena_init(arena, err));
    cleanup_push(&arena->cleanup, free_local, arena);
    return CVN_OK;
}

void arena_keep(Arena *arena)
{
    cleanup_cancel(&arena->cleanup);
    arena->cleanup = (Cleanup){0};
}

void arena_free(Arena *arena)
{
    arena_keep(arena);
    for (struct ArenaChunk *chunk = arena->chunk, *before; chunk; chunk = before) {
        before = chunk->before;
#ifdef HAVE_ASAN
        /* Of the last chunk what was handed out: saying so of all of it takes 2 MiB of the sanitizer's own memory. */
        size_t used = chunk == arena->chunk ? (size_t)(arena->next - (char *)chunk) : chunk->size;
        ASAN_UNPOISON_MEMORY_REGION(chunk, used);
#endif
        munmap(chunk, chunk->size);
    }
    *arena = (Arena){0};
}

/* A chunk with room for size bytes, as large as all before it together; where limits
   do not allow that, as large as must be. What was left of the last is lost. */
static bool make_room(Arena *arena, size_t size)
{
    static const size_t PAGE = (size_t)64 << 10;
    if (size > SIZE_MAX / 4)
        return false;
    size_t least = (size + HEADER + PAGE - 1) & ~(PAGE - 1);
    size_t wanted = least > arena->reserved ? least : arena->reserved;
    return grow(arena, wanted) || grow(arena, least);
}

void *arena_try(Arena *arena, size_t size)
{
    size_t rounded = ((size + 15) & ~(size_t)15) + REDZONE;
    if (rounded < size || (rounded > arena->left && !make_room(arena, rounded)))
        return NULL;
    char *p = arena->next;
    arena->next += rounded;
    arena->left -= rounded;
    arena->used += rounded;
    if (arena->next > arena->touched)
        touch_more(arena, rounded);
#ifdef HAVE_ASAN
    ASAN_POISON_MEMORY_REGION(p + size, rounded - size);
#endif
    return p;
}

void *arena_alloc(Arena *arena, size_t size)
{
    void *p = arena_try(arena, size);
    if (!p)
        protect_abandon(size);
    return p;
}

void *arena_array(Arena *arena, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size)
        protect_abandon(SIZE_MAX);
    return arena_alloc(arena, n * size);
}

void *arena_more(Arena *arena, void *array, size_t n, size_t size)
{
    enum { FIRST = 16 };
    bool full = n == 0 || (n >= FIRST && (n & (n - 1)) == 0);
    if (!full)
        return array;
    void *more = arena_array(arena, n ? 2 * n : FIRST, size);
    if (n)
        memcpy(more, array, n * size);
    return more;
}

void *arena_copy(Arena *arena, const void *from, size_t n)
{
    void *p = arena_alloc(arena, n);
    if (n)
        memcpy(p, from, n);
    return p;
}

char *arena_stringn(Arena *arena, const char *text, size_t n)
{
    char *p = arena_alloc(arena, n + 1);
    if (n)
        memcpy(p, text, n);
    return p;
}

char *arena_string(Arena *arena, const char *text)
{
    return arena_stringn(arena, text, strlen(text));
}

char *arena_printf(Arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *p = arena_alloc(arena, (n < 0 ? 0 : (size_t)n) + 1);
    if (n > 0)
        vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    return p;
}
