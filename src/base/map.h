/*
 * A hash map from byte strings to 64-bit values (a number, or a pointer cast to one). Open
 * addressing with linear probing, at most 2/3 full. Keys and table live in the arena given at init,
 * so a map is never freed alone; growing it leaves the old table behind in the arena.
 */
#ifndef CVN_BASE_MAP_H
#define CVN_BASE_MAP_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct MapEntry {
    const char *key; /* bytes in the arena, or NULL where the slot is empty */
    size_t length;   /* bytes of key */
    uint64_t hash;
    uint64_t value;
} MapEntry;

typedef struct Map {
    Arena *arena;    /* borrowed */
    MapEntry *slot;  /* [capacity] */
    size_t n;        /* entries */
    size_t capacity; /* power of two, or 0 */
} Map;

void map_init(Map *map, Arena *arena);

/* The entry's value, or NULL when the key is absent. The pointer is good until the next map_put. */
uint64_t *map_get(const Map *map, const void *key, size_t length);

/* Inserts or finds; *added (may be NULL) says which. The key is copied when it is new. */
uint64_t *map_put(Map *map, const void *key, size_t length, bool *added);

/* FNV-1a with a finishing mix; also what the executable cache hashes text with. */
uint64_t hash_bytes(const void *bytes, size_t n);

#endif
