#include "io/model_names.h"

#include "io/tensor.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 4096, MOST_ROOTS = 64 };

typedef struct Listing {
    bool (*take)(void *context, const NamedModel *model);
    void *context;
    bool goes_on;
} Listing;

static FilePath joined(const char *folder, const char *name)
{
    FilePath path;
    int n = snprintf(path.text, sizeof path.text, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path.text)
        path.text[0] = '\0';
    return path;
}

static bool is_model(const char *path)
{
    if (!file_is_folder(path))
        return io_ends_with(path, ".gguf") && file_exists(path);
    return file_has(path, "config.json") || file_has(path, "params.json") ||
           file_has(path, "adapter_config.json");
}

static int is_shown(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The names in a folder, sorted; malloc'ed, and so is each. */
static int names_in(const char *folder, struct dirent ***entry)
{
    int n = scandir(folder, entry, is_shown, alphasort);
    return n < 0 ? 0 : n;
}

static void tell(Listing *l, const char *name, const char *path)
{
    if (l->goes_on)
        l->goes_on = l->take(l->context, &(NamedModel){name, path});
}

/* The models in a folder, under names that begin with `prefix`; of folders that are no models, those in them. */
static void list_folder(Listing *l, const char *folder, const char *prefix, int deeper)
{
    struct dirent **entry = NULL;
    int n = names_in(folder, &entry);
    for (int i = 0; i < n; i++) {
        const FilePath path = joined(folder, entry[i]->d_name);
        const FilePath name = *prefix ? joined(prefix, entry[i]->d_name) : path;
        const char *called = *prefix ? name.text : entry[i]->d_name;
        if (i < MOST_ENTRIES && l->goes_on && is_model(path.text))
            tell(l, called, path.text);
        else if (i < MOST_ENTRIES && l->goes_on && deeper > 0 && file_is_folder(path.text))
            list_folder(l, path.text, called, deeper - 1);
        free(entry[i]);
    }
    free(entry);
}

/* The revision that refs/main names, else the last one by name. */
static FilePath snapshot_of(const char *model)
{
    char revision[128] = "";
    const FilePath refs = joined(model, "refs/main"), all = joined(model, "snapshots");
    FILE *file = fopen(refs.text, "re");
    if (file && !fgets(revision, sizeof revision, file))
        revision[0] = '\0';
    if (file)
        fclose(file);
    revision[strcspn(revision, "\r\n")] = '\0';
    FilePath path = joined(all.text, revision);
    if (*revision && !strchr(revision, '/') && is_model(path.text))
        return path;
    struct dirent **entry = NULL;
    int n = names_in(all.text, &entry);
    path.text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const FilePath one = joined(all.text, entry[i]->d_name);
        if (is_model(one.text))
            path = one;
        free(entry[i]);
    }
    free(entry);
    return path;
}

static void list_cache(Listing *l, const char *hub)
{
    static const char mark[] = "models--";
    struct dirent **entry = NULL;
    int n = names_in(hub, &entry);
    for (int i = 0; i < n; i++) {
        char *name = entry[i]->d_name;
        if (i < MOST_ENTRIES && l->goes_on && strncmp(name, mark, sizeof mark - 1) == 0) {
            const FilePath model = joined(hub, name), path = snapshot_of(model.text);
            char *slash = strstr(name + sizeof mark - 1, "--");
            if (slash) {
                *slash = '/';
                memmove(slash + 1, slash + 2, strlen(slash + 2) + 1);
            }
            if (path.text[0])
                tell(l, name + sizeof mark - 1, path.text);
        }
        free(entry[i]);
    }
    free(entry);
}

static FilePath own_folder(void)
{
    const char *data = getenv("XDG_DATA_HOME"), *user = getenv("HOME");
    if (data && *data == '/')
        return joined(data, "caravan/models");
    return joined(user ? user : "", ".local/share/caravan/models");
}

FilePath model_names_home(void)
{
    FilePath first;
    const char *roots = getenv("CARAVAN_MODELS");
    size_t n = roots ? strcspn(roots, ":") : 0;
    if (n == 0 || n >= sizeof first.text)
        return own_folder();
    snprintf(first.text, sizeof first.text, "%.*s", (int)n, roots);
    return first;
}

void model_names_list(bool (*take)(void *context, const NamedModel *model), void *context)
{
    Listing l = {take, context, true};
    const char *roots = getenv("CARAVAN_MODELS");
    for (int i = 0; roots && *roots && i < MOST_ROOTS; i++) {
        FilePath root;
        size_t n = strcspn(roots, ":");
        snprintf(root.text, sizeof root.text, "%.*s", (int)n, roots);
        if (n > 0 && n < sizeof root.text)
            list_folder(&l, root.text, "", 2);
        roots += n + (roots[n] == ':');
    }
    list_folder(&l, own_folder().text, "", 2);
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    if (cache && *cache && strlen(cache) < sizeof((FilePath){0}).text)
        list_cache(&l, cache);
    else if (home && *home)
        list_cache(&l, joined(home, "hub").text);
    else
        list_cache(&l, joined(user ? user : "", ".cache/huggingface/hub").text);
    list_folder(&l, ".", "", 0);
}

typedef struct Wanted {
    const char *name;
    FilePath *path;
    bool found;
} Wanted;

static bool compare(void *context, const NamedModel *model)
{
    Wanted *w = context;
    w->found = strcmp(w->name, model->name) == 0;
    if (w->found)
        snprintf(w->path->text, sizeof w->path->text, "%s", model->path);
    return !w->found;
}

bool model_names_find(const char *name, FilePath *path)
{
    Wanted w = {name, path, false};
    model_names_list(compare, &w);
    return w.found;
}

bool model_names_of_hub(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t n = strspn(name, letters);
    return n > 0 && name[0] != '.' && name[n] == '/' && name[n + 1] && name[n + 1] != '.' &&
           name[n + 1 + strspn(name + n + 1, letters)] == '\0' && !io_ends_with(name, ".gguf") &&
           !io_ends_with(name, ".bin") && !io_ends_with(name, ".json");
}
