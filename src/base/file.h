/*
 * Files: mapped to be read, written beside and renamed.
 *
 * A reader sees a whole file in memory, read-only and lazily paged; nothing is copied. (A file that
 * somebody truncates while it is mapped raises SIGBUS in the reader, as with every mapping: model
 * files are replaced by renaming, which is what the writer here does.)
 *
 * A writer fills "NAME.tmp-PID-N" in the same folder; commit flushes it to the disk and renames it
 * to NAME, so that NAME is at all times absent, the old file, or the new one, whole. It holds a lock
 * on what it fills: what bears such a name and is not locked was left by a process that was killed,
 * and the next writer of NAME takes it away.
 *
 * Every error names the path and what the system said.
 */
#ifndef CVN_BASE_FILE_H
#define CVN_BASE_FILE_H

#include "base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FileMap {
    const uint8_t *data; /* [size], page aligned; NULL when the file is empty */
    size_t size;         /* bytes */
} FileMap;

/* Only regular files are mapped, and no pointers of Git LFS to files that were not fetched. A FileMap of {0} may be freed. */
int file_map(FileMap *map, const char *path, cvn_err *err);
void file_unmap(FileMap *map);
void file_map_release(void *map); /* the same as a cleanup (base/protect.h) */

typedef struct FileWriter {
    int fd;            /* -1 when closed */
    char *path;        /* owned: the final name */
    char *temporary;   /* owned: the name while writing, beside the final one */
    uint8_t *buffer;   /* owned: [FILE_BUFFER], bytes not yet written */
    size_t used;       /* bytes in buffer */
    uint64_t position; /* bytes given so far */
    uint32_t crc;      /* CRC-32C of the bytes given so far */
} FileWriter;

int file_writer_open(FileWriter *writer, const char *path, cvn_err *err);
int file_writer_write(FileWriter *writer, const void *bytes, size_t n, cvn_err *err);

/* Overwrites n bytes at `offset` of what was given before: for a header that is known last. `crc`
 * stays that of the bytes as they were given. */
int file_writer_patch(FileWriter *writer, uint64_t offset, const void *bytes, size_t n,
                      cvn_err *err);

/* Flush, fsync, rename, fsync of the folder. After an error the old file is as it was. */
int file_writer_commit(FileWriter *writer, cvn_err *err);

/* Frees; a file that was not committed is removed. Safe after a failed open and on {.fd = -1}. */
void file_writer_free(FileWriter *writer);

/* Locks what was just made at a path and is open; nonzero when it was cleared away in between: make another. */
int file_lock_new(const char *path, int fd);

/* Takes away what processes that were killed left half written in a folder: files and folders NAME.tmp-PID and
   NAME.tmp-PID-N, of that name or, where it is NULL, of any. What a living process holds the lock of stays. */
void file_clear_left(const char *folder, const char *name);

/* Whether a file could be written to `path` now: one is begun there, and taken away. For what is written at the end of
   something long. */
int file_check_output(const char *path, cvn_err *err);

/* A whole small file in one call, by the same way. */
int file_write(const char *path, const void *bytes, size_t n, cvn_err *err);

/* A copy of a file, by the same way. */
int file_copy(const char *from, const char *to, cvn_err *err);

/* Writes to a file that is open under `path`, which is for messages. Returns how many bytes were accepted: fewer than n
   with an error. */
size_t file_put(int fd, const char *path, const void *bytes, size_t n, cvn_err *err);

/* Whether what is or is not at a path could be seen: a place that may not be looked into is an error. */
int file_check_seen(const char *path, cvn_err *err);

bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* True when path is a folder with something of that name in it. */
bool file_has(const char *path, const char *name);

/* Makes a folder; that it exists already is no error. */
int file_make_folder(const char *path, cvn_err *err);

/* Removes a folder of plain files; one that does not exist is removed already. */
int file_remove_folder(const char *path, cvn_err *err);

/* fsync of a folder, so that a rename or a removal in it is on the disk. */
int file_sync_folder(const char *path, cvn_err *err);

/* True when nothing is in the folder, or it is not there. */
bool file_folder_is_empty(const char *path);

/* A path by value, "FOLDER/NAME": nothing to check, nothing to free. What is longer than a path may be is kept too long,
   and the system refuses it.

       file_exists(file_path(folder, "config.json").text) */
typedef struct FilePath {
    char text[PATH_MAX + 1];
} FilePath;

FilePath file_path(const char *folder, const char *name);

#endif
