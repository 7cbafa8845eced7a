#include "train/checkpoint/folder.h"

#include "base/heap.h"
#include "train/checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "step-"
#define DIGITS 8       /* at least; larger steps have more */
#define MOST_DIGITS 18 /* fit an int64_t */

FilePath checkpoint_folder(const char *run)
{
    return file_path(run, "checkpoints");
}

FilePath checkpoint_path(const char *folder, int64_t step, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, PREFIX "%0*" PRId64 "%s", DIGITS, step, suffix);
    return file_path(folder, name);
}

int64_t checkpoint_step_of(const char *name)
{
    if (strncmp(name, PREFIX, sizeof PREFIX - 1) != 0)
        return -1;
    const char *digits = name + sizeof PREFIX - 1;
    size_t n = strspn(digits, "0123456789");
    if (n < DIGITS || n > MOST_DIGITS || digits[n] != '\0' || (n > DIGITS && digits[0] == '0'))
        return -1;
    return strtoll(digits, NULL, 10);
}

static int compare_steps(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int checkpoint_steps(const char *folder, int64_t **steps, size_t *n, cvn_err *err)
{
    *steps = NULL;
    *n = 0;
    DIR *stream = opendir(folder);
    if (!stream && (errno == ENOENT || errno == ENOTDIR))
        return CVN_OK;
    if (!stream)
        return err_set(err, CVN_EIO, "cannot read the folder '%s': %s", folder, strerror(errno));
    int64_t *more = NULL;
    bool listed = true;
    for (struct dirent *entry; listed && (entry = readdir(stream));) {
        int64_t step = checkpoint_step_of(entry->d_name);
        listed = step < 0 || (more = heap_more(*steps, *n, sizeof *more));
        if (step < 0 || !listed)
            continue;
        *steps = more;
        more[(*n)++] = step;
    }
    closedir(stream);
    if (!listed) {
        free(*steps);
        *steps = NULL;
        *n = 0;
        return err_set(err, CVN_EMEM, "no memory to list '%s'", folder);
    }
    if (*n)
        qsort(*steps, *n, sizeof **steps, compare_steps);
    return CVN_OK;
}

/* Removes every *.partial in the folder. */
static int remove_partial(const char *folder, cvn_err *err)
{
    int code = CVN_OK;
    DIR *stream = opendir(folder);
    if (!stream)
        return err_set(err, CVN_EIO, "cannot read the folder '%s': %s", folder, strerror(errno));
    for (struct dirent *entry; code == CVN_OK && (entry = readdir(stream));) {
        size_t n = strlen(entry->d_name), suffix = sizeof CHECKPOINT_PARTIAL - 1;
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 || n < suffix ||
            strcmp(entry->d_name + n - suffix, CHECKPOINT_PARTIAL) != 0)
            continue;
        code = file_remove_folder(file_path(folder, entry->d_name).text, err);
    }
    closedir(stream);
    return code;
}

/* Renames step-N to step-NSUFFIX, which is removed first if it is there; with `remove`, removes it
 * after that: what bears the name step-N is whole at all times. */
static int move_away(const char *folder, int64_t step, const char *suffix, bool remove,
                     cvn_err *err)
{
    const FilePath from = checkpoint_path(folder, step, "");
    const FilePath to = checkpoint_path(folder, step, suffix);
    TRY(file_remove_folder(to.text, err));
    if (rename(from.text, to.text) != 0)
        return err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", from.text, to.text,
                       strerror(errno));
    return remove ? file_remove_folder(to.text, err) : CVN_OK;
}

int checkpoint_set_aside(const char *folder, int64_t step, cvn_err *err)
{
    SCOPED(scoped_free) int64_t *steps = NULL;
    size_t n;
    TRY(checkpoint_steps(folder, &steps, &n, err));
    for (size_t i = 0; i < n; i++)
        if (steps[i] > step)
            TRY(move_away(folder, steps[i], CHECKPOINT_ASIDE, false, err));
    return CVN_OK;
}

int checkpoint_prune(const char *folder, int64_t step, int keep_last, int64_t keep_every,
                     cvn_err *err)
{
    SCOPED(scoped_free) int64_t *steps = NULL;
    size_t n, newest = 0;
    TRY(checkpoint_steps(folder, &steps, &n, err));
    while (newest < n && steps[newest] <= step)
        newest++;
    size_t keep = keep_last > 0 ? (size_t)keep_last : newest;
    TRY(remove_partial(folder, err));
    for (size_t i = 0; i + keep < newest; i++)
        if (keep_every <= 0 || steps[i] % keep_every != 0)
            TRY(move_away(folder, steps[i], CHECKPOINT_PARTIAL, true, err));
    return CVN_OK;
}
