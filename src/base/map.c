#include "base/map.h"

#include <string.h>

uint64_t hash_bytes(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

/* Of keys, which are written nowhere: eight bytes at a time. */
static uint64_t hash_key(const void *key, size_t n)
{
    const unsigned char *p = key;
    uint64_t h = n, word;
    for (; n >= sizeof word; n -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, p, n);
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

void map_init(Map *map, Arena *arena)
{
    *map = (Map){.arena = arena};
}

/* The slot that holds the key, or the empty one where it belongs. Needs capacity > 0. */
static MapEntry *find(const Map *map, const void *key, size_t length, uint64_t hash)
{
    size_t mask = map->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        MapEntry *e = &map->slot[i];
        if (!e->key || (e->hash == hash && e->length == length && memcmp(e->key, key, length) == 0))
            return e;
    }
}

uint64_t *map_get(const Map *map, const void *key, size_t length)
{
    if (!map->capacity)
        return NULL;
    MapEntry *e = find(map, key, length, hash_key(key, length));
    return e->key ? &e->value : NULL;
}

static void grow(Map *map)
{
    Map bigger = {.arena = map->arena, .n = map->n};
    bigger.capacity = map->capacity ? map->capacity * 2 : 16;
    bigger.slot = arena_array(map->arena, bigger.capacity, sizeof *bigger.slot);
    for (size_t i = 0; i < map->capacity; i++) {
        const MapEntry *e = &map->slot[i];
        if (e->key)
            *find(&bigger, e->key, e->length, e->hash) = *e;
    }
    *map = bigger;
}

uint64_t *map_put(Map *map, const void *key, size_t length, bool *added)
{
    if (map->n * 3 >= map->capacity * 2)
        grow(map);
    uint64_t hash = hash_key(key, length);
    MapEntry *e = find(map, key, length, hash);
    if (added)
        *added = !e->key;
    if (!e->key) {
        *e = (MapEntry){arena_stringn(map->arena, key, length), length, hash, 0};
        map->n++;
    }
    return &e->value;
}
