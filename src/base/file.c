#include "base/file.h"

#include "base/crc32c.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BUFFER ((size_t)1 << 18)

static void close_file(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

int file_map(FileMap *map, const char *path, cvn_err *err)
{
    /* What a clone of a repository has where large files were not fetched. */
    static const char lfs[] = "version https://git-lfs.github.com/spec/";
    struct stat info;
    *map = (FileMap){0};
    /* O_NONBLOCK: opening a FIFO must not hang; it has no effect on regular files. */
    SCOPED(close_file) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, CVN_EIO, "cannot open '%s': %s", path, strerror(errno));
    if (fstat(fd, &info) != 0)
        return err_set(err, CVN_EIO, "cannot stat '%s': %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return err_set(err, CVN_EIO, "'%s' is %s, not a regular file", path,
                       S_ISDIR(info.st_mode) ? "a folder" : "a special file");
    if (info.st_size == 0)
        return CVN_OK;
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return err_set(err, CVN_EIO, "cannot map '%s' (%lld bytes): %s", path,
                       (long long)info.st_size, strerror(errno));
    *map = (FileMap){data, (size_t)info.st_size};
    if (map->size <= sizeof lfs || map->size >= 1024 || memcmp(data, lfs, sizeof lfs - 1) != 0)
        return CVN_OK;
    file_unmap(map);
    return err_set(err, CVN_EFORMAT,
                   "'%s' is a Git LFS pointer, not the file itself; fetch the file, for instance "
                   "by git lfs pull",
                   path);
}

void file_map_release(void *map)
{
    file_unmap(map);
}

void file_unmap(FileMap *map)
{
    if (map->data)
        munmap((void *)(uintptr_t)map->data, map->size);
    *map = (FileMap){0};
}

#define DIGITS "0123456789"

/* Of NAME.tmp-PID or NAME.tmp-PID-N; of any name where it is NULL. */
static bool is_half_written(const char *entry, const char *name)
{
    const char *at = name ? entry + strlen(name) : strstr(entry, ".tmp-");
    if (!at || (name && strncmp(entry, name, strlen(name)) != 0) || strncmp(at, ".tmp-", 5) != 0)
        return false;
    at += 5;
    size_t pid = strspn(at, DIGITS), serial = at[pid] == '-' ? strspn(at + pid + 1, DIGITS) : 0;
    return pid > 0 && at[pid + (serial ? serial + 1 : 0)] == '\0';
}

void file_clear_left(const char *folder, const char *name)
{
    DIR *stream = opendir(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        if (!is_half_written(entry->d_name, name))
            continue;
        const FilePath path = file_path(folder, entry->d_name);
        SCOPED(close_file)
        int fd = open(path.text, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            if (file_is_folder(path.text))
                file_remove_folder(path.text, NULL);
            else
                unlink(path.text);
        }
    }
    if (stream)
        closedir(stream);
}

/* The folder that a path lies in, and its name there. */
static FilePath folder_of(const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    FilePath folder = file_path(slash ? path : ".", "");
    *name = slash ? slash + 1 : path;
    if (slash && (size_t)(slash - path) + 1 < sizeof folder.text)
        folder.text[slash - path + 1] = '\0';
    return folder;
}

int file_lock_new(const char *path, int fd)
{
    struct stat info;
    /* A system without locks: nothing is cleared there. */
    if (flock(fd, LOCK_EX) != 0)
        return 0;
    return fstat(fd, &info) != 0 || info.st_nlink == 0 || !file_exists(path);
}

/* Creates writer->temporary; again where a process that clears up took it for a dead one's before it was locked. */
static int open_temporary(FileWriter *writer, cvn_err *err)
{
    static atomic_uint serial;
    for (;;) {
        if (asprintf(&writer->temporary, "%s.tmp-%ld-%u", writer->path, (long)getpid(),
                     atomic_fetch_add(&serial, 1)) < 0) {
            writer->temporary = NULL;
            return err_set(err, CVN_EMEM, "no memory to write '%s'", writer->path);
        }
        writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (writer->fd >= 0 && file_lock_new(writer->temporary, writer->fd) == 0)
            return CVN_OK;
        int code = writer->fd < 0 ? err_set(err, CVN_EIO, "cannot create '%s': %s", writer->path,
                                            strerror(errno))
                                  : CVN_OK;
        if (writer->fd >= 0)
            close(writer->fd);
        writer->fd = -1;
        free(writer->temporary);
        writer->temporary = NULL;
        if (code)
            return code;
    }
}

int file_writer_open(FileWriter *writer, const char *path, cvn_err *err)
{
    *writer = (FileWriter){.fd = -1};
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return err_set(
            err, CVN_EIO,
            "'%s' is not a regular file, and writing would replace it; name another file", path);
    writer->path = strdup(path);
    writer->buffer = malloc(FILE_BUFFER);
    if (!writer->path || !writer->buffer)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", path);
    const char *name;
    const FilePath folder = folder_of(path, &name);
    file_clear_left(folder.text, name);
    return open_temporary(writer, err);
}

static int write_all(FileWriter *writer, const uint8_t *bytes, size_t n, cvn_err *err)
{
    while (n > 0) {
        ssize_t wrote = write(writer->fd, bytes, n < ((size_t)1 << 30) ? n : (size_t)1 << 30);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return err_set(err, CVN_EIO, "cannot write '%s' at byte %llu: %s", writer->path,
                           (unsigned long long)(writer->position - writer->used),
                           wrote < 0 ? strerror(errno) : "no bytes were written");
        bytes += wrote;
        n -= (size_t)wrote;
    }
    return CVN_OK;
}

static int flush_buffer(FileWriter *writer, cvn_err *err)
{
    int code = write_all(writer, writer->buffer, writer->used, err);
    writer->used = 0;
    return code;
}

int file_writer_write(FileWriter *writer, const void *bytes, size_t n, cvn_err *err)
{
    if (writer->fd < 0)
        return err_set(err, CVN_EIO, "'%s' is not open for writing",
                       writer->path ? writer->path : "(no file)");
    if (n > FILE_BUFFER - writer->used)
        TRY(flush_buffer(writer, err));
    if (n >= FILE_BUFFER) {
        TRY(write_all(writer, bytes, n, err));
    } else if (n > 0) {
        memcpy(writer->buffer + writer->used, bytes, n);
        writer->used += n;
    }
    writer->position += n;
    writer->crc = crc32c(writer->crc, bytes, n);
    return CVN_OK;
}

int file_writer_patch(FileWriter *writer, uint64_t offset, const void *bytes, size_t n,
                      cvn_err *err)
{
    assert(offset <= writer->position && n <= writer->position - offset);
    TRY(flush_buffer(writer, err));
    for (size_t done = 0; done < n;) {
        ssize_t wrote =
            pwrite(writer->fd, (const uint8_t *)bytes + done, n - done, (off_t)(offset + done));
        if (wrote > 0)
            done += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR)
            return err_set(err, CVN_EIO, "cannot write '%s' at byte %llu: %s", writer->path,
                           (unsigned long long)(offset + done),
                           wrote ? strerror(errno) : "no bytes were written");
    }
    return CVN_OK;
}

int file_writer_commit(FileWriter *writer, cvn_err *err)
{
    if (writer->fd < 0)
        return err_set(err, CVN_EIO, "'%s' is not open for writing",
                       writer->path ? writer->path : "(no file)");
    TRY(flush_buffer(writer, err));
    if (fsync(writer->fd) != 0)
        return err_set(err, CVN_EIO, "cannot flush '%s' to the disk: %s", writer->path,
                       strerror(errno));
    /* Locked up to here, or it could be taken for a dead process's. */
    if (rename(writer->temporary, writer->path) != 0)
        return err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", writer->temporary,
                       writer->path, strerror(errno));
    close(writer->fd);
    writer->fd = -1;
    free(writer->temporary);
    writer->temporary = NULL;
    /* What cannot be synced is renamed all the same. */
    const char *name;
    file_sync_folder(folder_of(writer->path, &name).text, NULL);
    return CVN_OK;
}

void file_writer_free(FileWriter *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary)
        unlink(writer->temporary);
    free(writer->temporary);
    free(writer->path);
    free(writer->buffer);
    *writer = (FileWriter){.fd = -1};
}

int file_check_output(const char *path, cvn_err *err)
{
    SCOPED(file_writer_free) FileWriter writer = {.fd = -1};
    TRY(file_writer_open(&writer, path, err));
    TRY(file_writer_write(&writer, "\n", 1, err));
    return flush_buffer(&writer, err);
}

size_t file_put(int fd, const char *path, const void *bytes, size_t n, cvn_err *err)
{
    size_t done = 0;
    while (done < n) {
        ssize_t wrote = write(fd, (const uint8_t *)bytes + done, n - done);
        if (wrote > 0) {
            done += (size_t)wrote;
        } else if (wrote == 0 || errno != EINTR) {
            err_set(err, CVN_EIO, "cannot write '%s': %s", path,
                    wrote ? strerror(errno) : "no bytes were written");
            break;
        }
    }
    return done;
}

int file_write(const char *path, const void *bytes, size_t n, cvn_err *err)
{
    SCOPED(file_writer_free) FileWriter writer = {.fd = -1};
    TRY(file_writer_open(&writer, path, err));
    TRY(file_writer_write(&writer, bytes, n, err));
    return file_writer_commit(&writer, err);
}

int file_copy(const char *from, const char *to, cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    TRY(file_map(&map, from, err));
    return file_write(to, map.data, map.size, err);
}

int file_check_seen(const char *path, cvn_err *err)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? CVN_OK
                   : err_set(err, CVN_EIO, "cannot stat '%s': %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode) && access(path, R_OK | X_OK) != 0)
        return err_set(err, CVN_EIO, "cannot access the folder '%s': %s", path, strerror(errno));
    return CVN_OK;
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

int file_make_folder(const char *path, cvn_err *err)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && file_is_folder(path)))
        return CVN_OK;
    return err_set(err, CVN_EIO, "cannot create the folder '%s': %s", path, strerror(errno));
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

int file_remove_folder(const char *path, cvn_err *err)
{
    DIR *stream = opendir(path);
    if (!stream && errno == ENOENT)
        return CVN_OK;
    if (!stream)
        return err_set(err, CVN_EIO, "cannot open the folder '%s': %s", path, strerror(errno));
    int code = CVN_OK;
    for (struct dirent *entry; code == CVN_OK && (entry = readdir(stream));)
        if (!is_dot(entry->d_name) && unlinkat(dirfd(stream), entry->d_name, 0) != 0 &&
            errno != ENOENT)
            code = err_set(err, CVN_EIO, "cannot remove '%s/%s': %s", path, entry->d_name,
                           strerror(errno));
    closedir(stream);
    if (code == CVN_OK && rmdir(path) != 0 && errno != ENOENT)
        code = err_set(err, CVN_EIO, "cannot remove the folder '%s': %s", path, strerror(errno));
    return code;
}

int file_sync_folder(const char *path, cvn_err *err)
{
    SCOPED(close_file) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_set(err, CVN_EIO, "cannot open the folder '%s': %s", path, strerror(errno));
    /* EINVAL: a file system that cannot sync folders. */
    if (fsync(fd) == 0 || errno == EINVAL)
        return CVN_OK;
    return err_set(err, CVN_EIO, "cannot flush the folder '%s' to the disk: %s", path,
                   strerror(errno));
}

bool file_folder_is_empty(const char *path)
{
    DIR *stream = opendir(path);
    bool empty = true;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        empty = empty && is_dot(entry->d_name);
    if (stream)
        closedir(stream);
    return empty;
}

FilePath file_path(const char *folder, const char *name)
{
    FilePath path;
    size_t n = strlen(folder);
    const char *separator = n == 0 || folder[n - 1] == '/' ? "" : "/";
    snprintf(path.text, sizeof path.text, "%s%s%s", folder, separator, name);
    return path;
}

bool file_has(const char *path, const char *name)
{
    return file_is_folder(path) && file_exists(file_path(path, name).text);
}
