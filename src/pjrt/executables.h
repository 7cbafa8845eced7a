/*
 * Programs that a plugin compiled, kept on disk for the next time. A file has the name of its key's hash, and holds the
 * key itself, all that the plugin was given and what it is, so that no two programs are ever taken for each other:
 *
 *     0 "CVNPROG1"      8 bytes of the key      16 bytes of the program      24 CRC-32C of what follows      28 0
 *     32 key, program
 *
 * What is damaged, cut off or of others is as if it were not there, and what a plugin does not take is compiled anew. A
 * program is code: whoever writes into the folder could as well write into the plugin's, so it is made for its owner only.
 */
#ifndef CVN_PJRT_EXECUTABLES_H
#define CVN_PJRT_EXECUTABLES_H

#include "base/arena.h"
#include "base/file.h"

/* Where they are kept when nobody says: caravan in the user's folder of caches; NULL: there is none. */
const char *executables_folder(Arena *arena);

/* The program of a key, in a mapped file, which is to be unmapped; NULL: there is none. */
const uint8_t *executables_find(const char *folder, const void *key, size_t n_key, FileMap *map,
                                size_t *n);

/* Keeps one. That it could not be written is nobody's affair. */
void executables_keep(const char *folder, const void *key, size_t n_key, const void *program,
                      size_t n);

#endif
