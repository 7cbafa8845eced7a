/*
 * An arena: memory with one lifetime. A graph and everything that
 * passes make of it, a parsed header, a tokenizer's tables live in
 * one arena and die with it; nothing in an arena is freed alone.
 *
 * The arena reserves a stretch of address space when it is made, touches it page by page, and reserves more, each time
 * as much as it has, when that is full:
 *
 *     used, the rest lost <- used, the rest lost <- used | left
 *     16 MiB                 16 MiB                 32 MiB
 *
 * So whoever has no address space (ulimit -v) is nearly always told so when the arena is made. arena_alloc never returns
 * NULL: where even that fails later, the nearest protected call ends with an error (base/protect.h). Who reads untrusted
 * input must bound it (by the size of the file, say) before it allocates from it.
 */
#ifndef CVN_BASE_ARENA_H
#define CVN_BASE_ARENA_H

#include "base/protect.h"

#include <stddef.h>

struct ArenaChunk;

/* Invariant: [next, next + left) is the end of chunk; all are 0 before init. */
typedef struct Arena {
    struct ArenaChunk *chunk; /* what is handed out from, which knows those before it; owned */
    char *next;               /* its first byte that is free, aligned to 16 */
    size_t left;              /* bytes that are free there */
    char *touched;            /* up to where the system was asked for pages, of this chunk */
    size_t used;              /* bytes handed out, of all chunks */
    size_t reserved;          /* bytes of address space, of all chunks */
    Cleanup cleanup;          /* of an arena that one function owns; or {0} */
} Arena;

/* Reserves address space for most arenas whole. */
int arena_init(Arena *arena, cvn_err *err);
/* The same for an arena of one function, which frees it before it returns: freed, too, where a protected call gives up. */
int arena_begin(Arena *arena, cvn_err *err);
void arena_free(Arena *arena);
/* An arena that was begun has an owner from now on, who frees it in any case. */
void arena_keep(Arena *arena);

/* Zeroed memory, aligned to 16 bytes. */
void *arena_alloc(Arena *arena, size_t size) __attribute__((returns_nonnull, malloc));

/* The same, or NULL. */
void *arena_try(Arena *arena, size_t size) __attribute__((malloc));

/* Zeroed array; n * size is checked for overflow. */
void *arena_array(Arena *arena, size_t n, size_t size) __attribute__((returns_nonnull, malloc));

/* A list that grows: the array of n elements, with room for one more. It moves when it is full (at n = 16, 32, 64, …),
   and what it leaves behind stays in the arena.

       list = arena_more(arena, list, n, sizeof *list);      NULL and 0 at first
       list[n++] = x; */
void *arena_more(Arena *arena, void *array, size_t n, size_t size) __attribute__((returns_nonnull));

/* Copies into the arena: n bytes; a string; the first n bytes of a string, with a NUL added. */
void *arena_copy(Arena *arena, const void *from, size_t n) __attribute__((returns_nonnull));
char *arena_string(Arena *arena, const char *text) __attribute__((returns_nonnull));
char *arena_stringn(Arena *arena, const char *text, size_t n) __attribute__((returns_nonnull));
char *arena_printf(Arena *arena, const char *format, ...)
    __attribute__((returns_nonnull, format(printf, 2, 3)));

#endif
