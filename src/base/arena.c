#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static const size_t LARGEST = (size_t)64 << 30, SMALLEST = (size_t)64 << 20;

int arena_init(Arena *arena, cvn_err *err)
{
    for (size_t size = LARGEST; size >= SMALLEST; size /= 4) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            continue;
        *arena = (Arena){.base = p, .reserved = size};
        return CVN_OK;
    }
    *arena = (Arena){0};
    return err_set(err, CVN_EMEM, "cannot reserve %zu MiB of address space; raise 'ulimit -v'",
                   SMALLEST >> 20);
}

void arena_free(Arena *arena)
{
    if (arena->base) {
#ifdef HAVE_ASAN
        ASAN_UNPOISON_MEMORY_REGION(arena->base, arena->used);
#endif
        munmap(arena->base, arena->reserved);
    }
    *arena = (Arena){0};
}

void *arena_alloc(Arena *arena, size_t size)
{
    size_t rounded = (size + 15) & ~(size_t)15;
    if (rounded < size || rounded + REDZONE > arena->reserved - arena->used)
        abort();
    char *p = arena->base + arena->used;
    arena->used += rounded + REDZONE;
#ifdef HAVE_ASAN
    ASAN_POISON_MEMORY_REGION(p + size, rounded + REDZONE - size);
#endif
    return p;
}

void *arena_array(Arena *arena, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / size)
        abort();
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
