/*
 * Where the files of a run are when it goes on from another folder.
 *
 *     ~/tales$ caravan train --data story.txt --preset tiny --out run      the checkpoint: "story.txt", started in ~/tales
 *     /tmp$    caravan train --resume ~/tales/run                          ~/tales/story.txt
 *
 * A checkpoint keeps paths as they were typed, and the folder they start from, however often the run goes on. Where that
 * folder has it no longer, a path starts from the one that the run goes on in: so data that move with their folder are
 * found, too. A checkpoint of a version that did not keep the folder has only this second way. That they are the same data
 * is seen later, by their key.
 */
#include "train/run_impl.h"

#include "base/file.h"
#include "train/data/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_given(const bool *given, const char *name)
{
    return given && given[train_key_find(name) - train_keys];
}

/* Data may have a weight behind their path. */
static bool exists(const char *path)
{
    return file_exists(source_path(path, NULL).text);
}

/* Every path of the options but that of the run, used from the folder `here`. */
static void change_paths(Run *r, TrainConfig *c, const char *here,
                         const char *(*change)(Run *r, const char *here, const char *path))
{
    for (int64_t i = 0; i < c->n_data; i++)
        c->data[i] = change(r, here, c->data[i]);
    for (int i = 0; i < train_n_keys; i++) {
        const char **path = train_keys[i].path ? train_config_text(c, &train_keys[i]) : NULL;
        if (path)
            *path = change(r, here, *path);
    }
    if (c->layout && io_ends_with(c->layout, ".json")) /* rules */
        c->layout = change(r, here, c->layout);
}

/* An absolute path is as it is, and so is one that starts from the folder we are in. */
static const char *find_path(Run *r, const char *here, const char *path)
{
    if (!path || *path == '/' || !r->kept.started_in ||
        (here && strcmp(here, r->kept.started_in) == 0))
        return path;
    const char *there = arena_printf(&r->arena, "%s/%s", r->kept.started_in, path);
    r->kept.starts_there = r->kept.starts_there || exists(there);
    return exists(there) || !exists(path) ? there : path;
}

int run_find_paths(Run *r, const bool *given, cvn_err *err)
{
    TrainConfig *c = &r->config;
    char *here = getcwd(NULL, 0);
    CLEANUP(free, here);
    change_paths(r, c, here, find_path);
    for (int64_t i = 0; i < c->n_data && !is_given(given, "data"); i++)
        if (!exists(c->data[i]))
            return err_set(err, CVN_EIO, "'%s', training data of '%s', no longer exists; %s",
                           c->data[i], r->begin.from.folder,
                           c->n_data == 1 ? "give its new path with --data"
                                          : "give all files again with --data, in the same order");
    if ((c->lora || c->dpo) && c->init && !is_given(given, "init") && !file_exists(c->init))
        return err_set(
            err, CVN_EIO,
            "'%s', the base model of '%s', no longer exists; give its new path with --init",
            c->init, r->begin.from.folder);
    return CVN_OK;
}

bool run_same_path(const Run *r, const TrainConfig *now, const TrainKey *key)
{
    bool init = strcmp(key->name, "init") == 0, tokenizer = strcmp(key->name, "tokenizer") == 0;
    const char *a = init ? r->config.init : tokenizer ? r->config.tokenizer : NULL;
    const char *b = init ? now->init : tokenizer ? now->tokenizer : NULL;
    if (!a || !b)
        return false;
    if (init && (r->config.lora || r->config.dpo) && !file_exists(a))
        return true; /* the model that adapters belong to has moved */
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    bool same = real_a && real_b && strcmp(real_a, real_b) == 0;
    free(real_a);
    free(real_b);
    return same;
}

/* A path as it is kept: from r->kept.started_in where that leads to it. */
static const char *keep_path(Run *r, const char *here, const char *path)
{
    if (!path || !r->kept.started_in || !here || strcmp(here, r->kept.started_in) == 0)
        return path;
    const char *whole = *path == '/' ? path : arena_printf(&r->arena, "%s/%s", here, path);
    size_t n = strlen(r->kept.started_in);
    bool below = strncmp(whole, r->kept.started_in, n) == 0 && whole[n] == '/' && whole[n + 1];
    return below ? whole + n + 1 : whole;
}

int run_keep_paths(Run *r, TrainConfig *kept, cvn_err *err)
{
    char *own = run_is_first(r) ? getcwd(NULL, 0) : NULL;
    const char *here =
        own && strlen(own) < sizeof((FilePath){0}).text ? arena_string(&r->arena, own) : NULL;
    free(own);
    int code = run_share_path(r, &here, err);
    if (!r->kept.starts_there)
        r->kept.started_in = here;
    if (code == CVN_OK)
        code = run_share_path(r, &r->kept.started_in, err);
    *kept = r->config;
    change_paths(r, kept, here, keep_path);
    return code;
}
