#include "pjrt/plugin.h"

#include "base/file.h"
#include "base/strbuf.h"
#include "pjrt/executables.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where plugins are ---- */

typedef struct Kind {
    const char *name, *wheel;
    const char *variable;  /* of the environment, that names the file; or NULL */
    const char *module[3]; /* in the packages of a Python, newest first */
    const char *vendor;    /* elsewhere, or NULL */
} Kind;

static const Kind kinds[] = {
    {"tpu", "libtpu", "TPU_LIBRARY_PATH", {"libtpu/libtpu.so"}, "/lib/libtpu.so"},
    {"cuda",
     "jax-cuda13-pjrt",
     NULL,
     {"jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"},
     NULL},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Folders of packages, below one that the environment names. */
static const struct {
    const char *variable, *folder;
} packages[] = {
    {"VIRTUAL_ENV", "/lib/python3*/site-packages"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages"},
    {"HOME", "/.local/lib/python3*/site-packages"},
    {NULL, "/usr/local/lib/python3*/dist-packages"},
    {NULL, "/usr/local/lib/python3*/site-packages"},
    {NULL, "/usr/lib/python3/dist-packages"},
};

const char *plugin_kind(size_t i)
{
    return i < KINDS ? kinds[i].name : NULL;
}

/* The length of a device's name, up to its options. */
static size_t name_length(const char *device)
{
    return strcspn(device, strncmp(device, "pjrt:", 5) == 0 ? ":" : ",");
}

static const Kind *kind_of(const char *device)
{
    size_t n = name_length(device);
    for (size_t i = 0; i < KINDS; i++)
        if (strlen(kinds[i].name) == n && strncmp(device, kinds[i].name, n) == 0)
            return &kinds[i];
    return NULL;
}

bool plugin_names(const char *device)
{
    return strncmp(device, "pjrt:", 5) == 0 || kind_of(device);
}

static const char *find_in_packages(const char *module, Arena *arena)
{
    const char *found = NULL;
    for (size_t i = 0; module && !found && i < sizeof packages / sizeof *packages; i++) {
        const char *root = packages[i].variable ? getenv(packages[i].variable) : "";
        char pattern[4096];
        glob_t list;
        if (!root || (packages[i].variable && !*root) ||
            snprintf(pattern, sizeof pattern, "%s%s/%s", root, packages[i].folder, module) >=
                (int)sizeof pattern ||
            glob(pattern, 0, NULL, &list))
            continue;
        found = arena_string(arena, list.gl_pathv[list.gl_pathc - 1]); /* the newest Python's */
        globfree(&list);
    }
    return found;
}

static const char *find_kind(const Kind *kind, Arena *arena)
{
    const char *told = kind->variable ? getenv(kind->variable) : NULL;
    if (told && *told)
        return told;
    for (int i = 0; i < 3; i++) {
        const char *found = find_in_packages(kind->module[i], arena);
        if (found)
            return found;
    }
    return kind->vendor && file_exists(kind->vendor) ? kind->vendor : NULL;
}

/* ---- options of a client ---- */

/* An option's value is a number if all of it is one, a flag if it is true or false, and a text otherwise. */
static PjrtNamed read_option(const char *name, char *value)
{
    PjrtNamed o = PJRT_NEW(PjrtNamed, n, .name = {name, strlen(name)}, .n = 1);
    char *end;
    errno = 0;
    o.integer = strtoll(value, &end, 10);
    if (*value && !*end && errno == 0) {
        o.kind = PJRT_INT;
    } else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        o.kind = PJRT_FLAG;
        o.flag = *value == 't';
    } else {
        o.kind = PJRT_STRING;
        o.string = value;
        o.n = strlen(value);
    }
    return o;
}

/* Takes an option that is for Caravan and not for the client; false: it is the client's. */
static bool take_own(Plugin *p, const char *name, const char *value)
{
    bool executables = strcmp(name, "executables") == 0, xla = strcmp(value, "xla") == 0;
    if (executables)
        p->executables = strcmp(value, "none") == 0 ? NULL : value;
    else if (strcmp(name, "partitioner") != 0 || (!xla && strcmp(value, "own") != 0))
        return false;
    else
        p->partitions = xla;
    return true;
}

static int read_options(Plugin *p, char *text, Arena *arena, cvn_err *err)
{
    PjrtNamed *list = NULL;
    while (text && *text) {
        char *comma = strchr(text, ','), *equals;
        if (comma)
            *comma = 0;
        equals = strchr(text, '=');
        if (!equals || equals == text)
            return err_set(
                err, CVN_EINVAL,
                "'%s' is not a device option; write name=value after the path, separated by commas",
                text);
        *equals = 0;
        if (!take_own(p, text, equals + 1)) {
            list = arena_more(arena, list, p->n_options, sizeof *list);
            list[p->n_options++] = read_option(text, equals + 1);
        }
        text = comma ? comma + 1 : NULL;
    }
    p->option = list;
    return CVN_OK;
}

/* ---- loading ---- */

static int check_table(const Plugin *p, cvn_err *err)
{
    const PjrtApi *api = p->api;
    if (!api || api->size < offsetof(PjrtApi, call) || api->version.major != 0)
        return err_set(err, CVN_EFORMAT, "'%s' has a PJRT API version other than 0", p->path);
    if (api->version.minor < PJRT_OLDEST || api->size < sizeof *api)
        return err_set(
            err, CVN_EUNSUPPORTED,
            "'%s' has PJRT API version 0.%d; use a plugin with 0.%d or later (" PJRT_TRIED
            " were tried)",
            p->path, api->version.minor, PJRT_OLDEST);
    return CVN_OK;
}

static int load(Plugin *p, cvn_err *err)
{
    PjrtVoidArgs none = {.size = sizeof none};
    const PjrtApi *(*get)(void);
    /* TPUs: on a machine that is not Google's, libtpu would wait for the metadata server for minutes. */
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
    void *object = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return err_set(err, CVN_EIO, "cannot load the plugin: %s", dlerror());
    void *symbol = dlsym(object, "GetPjrtApi");
    if (!symbol)
        return err_set(err, CVN_EFORMAT, "'%s' is not a PJRT plugin: it has no GetPjrtApi",
                       p->path);
    memcpy(&get, &symbol, sizeof get);
    p->api = get();
    TRY(check_table(p, err));
    return plugin_call(p, PJRT_PLUGIN_INITIALIZE, &none, err, "initialize");
}

int plugin_open(Plugin *p, const char *device, Arena *arena, cvn_err *err)
{
    const Kind *kind = kind_of(device);
    char *text = arena_string(arena, device + name_length(device) + (kind ? 0 : 1));
    size_t at = strcspn(text, ",");
    char *options = text[at] ? text + at + 1 : NULL;
    text[at] = 0;
    *p = (Plugin){.path = kind ? find_kind(kind, arena) : text};
    if (kind && !p->path)
        return err_set(err, CVN_EIO,
                       "no plugin for '%s' was found; install the Python package %s, or give its "
                       "file as pjrt:PATH",
                       kind->name, kind->wheel);
    if (!*p->path)
        return err_set(err, CVN_EINVAL, "device 'pjrt:' has no path; write pjrt:PATH");
    p->executables = executables_folder(arena);
    TRY(read_options(p, options, arena, err));
    return load(p, err);
}

/* ---- calls ---- */

static int code_of(int code)
{
    switch (code) {
    case PJRT_CANCELLED:
        return CVN_EINTERRUPTED;
    case PJRT_INVALID_ARGUMENT:
        return CVN_EINVAL;
    case PJRT_RESOURCE_EXHAUSTED:
        return CVN_EMEM;
    case PJRT_UNIMPLEMENTED:
        return CVN_EUNSUPPORTED;
    default:
        return CVN_EIO;
    }
}

int plugin_call(const Plugin *p, PjrtFunction f, void *args, cvn_err *err, const char *doing, ...)
{
    PjrtError *error = p->api->call[f](args);
    if (!error)
        return CVN_OK;
    char what[256];
    va_list list;
    va_start(list, doing);
    vsnprintf(what, sizeof what, doing, list);
    va_end(list);
    PjrtMessageArgs message = PJRT_NEW(PjrtMessageArgs, text, .error = error);
    PjrtCodeArgs code = PJRT_NEW(PjrtCodeArgs, code, .error = error);
    p->api->call[PJRT_ERROR_MESSAGE](&message);
    plugin_destroy(p, PJRT_ERROR_DESTROY, p->api->call[PJRT_ERROR_CODE](&code));
    int result = err_set(err, code_of(code.code), "the plugin '%s' could not %s: %.*s", p->path,
                         what, message.text.text ? (int)message.text.n : 0,
                         message.text.text ? message.text.text : "");
    plugin_destroy(p, PJRT_ERROR_DESTROY, error);
    return result;
}

void plugin_destroy(const Plugin *p, PjrtFunction f, void *object)
{
    PjrtObjectArgs args = PJRT_NEW(PjrtObjectArgs, object, .object = object);
    if (!object)
        return;
    PjrtError *error = p->api->call[f](&args);
    if (f != PJRT_ERROR_DESTROY)
        plugin_destroy(p, PJRT_ERROR_DESTROY, error);
}

int plugin_await(const Plugin *p, PjrtEvent *event, cvn_err *err, const char *doing)
{
    PjrtObjectArgs args = PJRT_NEW(PjrtObjectArgs, object, .object = event);
    if (!event)
        return CVN_OK;
    int code = plugin_call(p, PJRT_EVENT_AWAIT, &args, err, "%s", doing);
    plugin_destroy(p, PJRT_EVENT_DESTROY, event);
    return code;
}

/* ---- clients and devices ---- */

int plugin_client(const Plugin *p, Keys *keys, int rank, int n_ranks, PjrtClient **out,
                  cvn_err *err)
{
    PjrtCreateArgs args =
        PJRT_NEW(PjrtCreateArgs, try_get_context, .option = p->option, .n_options = p->n_options);
    PjrtNamed *all = NULL;
    *out = NULL;
    if (keys) {
        /* libtpu finds the other processes from the environment; other plugins are told of them. */
        const PjrtNamed more[] = {PJRT_NEW(PjrtNamed, n, .name = {"node_id", 7}, .kind = PJRT_INT,
                                           .integer = rank, .n = 1),
                                  PJRT_NEW(PjrtNamed, n, .name = {"num_nodes", 9}, .kind = PJRT_INT,
                                           .integer = n_ranks, .n = 1)};
        bool told = !strstr(p->path, "libtpu");
        all = calloc(p->n_options + 2, sizeof *all);
        if (!all)
            return err_set(err, CVN_EMEM, "no memory for the options of '%s'", p->path);
        memcpy(all, more, sizeof more);
        if (p->n_options)
            memcpy(all + 2, p->option, p->n_options * sizeof *all);
        args.option = told ? all : all + 2;
        args.n_options += told ? 2 : 0;
        args.get = keys_get;
        args.try_get = keys_try_get;
        args.put = keys_put;
        args.get_context = args.try_get_context = args.put_context = keys;
    }
    int code = plugin_call(p, PJRT_CLIENT_CREATE, &args, err, "open its devices");
    free(all);
    *out = code ? NULL : args.client;
    return code;
}

static int client_text(const Plugin *p, PjrtClient *client, PjrtFunction f, Arena *arena,
                       const char **out, cvn_err *err)
{
    PjrtClientTextArgs args = PJRT_NEW(PjrtClientTextArgs, text, .client = client);
    TRY(plugin_call(p, f, &args, err, "name its platform"));
    *out = arena_stringn(arena, args.text.text, args.text.n);
    return CVN_OK;
}

int plugin_client_info(const Plugin *p, PjrtClient *client, Arena *arena, ClientInfo *out,
                       cvn_err *err)
{
    PjrtDevicesArgs devices = PJRT_NEW(PjrtDevicesArgs, n, .client = client);
    *out = (ClientInfo){0};
    TRY(client_text(p, client, PJRT_CLIENT_PLATFORM_NAME, arena, &out->platform, err));
    TRY(client_text(p, client, PJRT_CLIENT_PLATFORM_VERSION, arena, &out->version, err));
    TRY(plugin_call(p, PJRT_CLIENT_ADDRESSABLE_DEVICES, &devices, err, "list its devices"));
    out->device = devices.device;
    out->n = devices.n;
    return CVN_OK;
}

static int description_of(const Plugin *p, PjrtDevice *device, PjrtDescription **out, cvn_err *err)
{
    PjrtDescribeArgs args = PJRT_NEW(PjrtDescribeArgs, description, .device = device);
    TRY(plugin_call(p, PJRT_DEVICE_DESCRIPTION, &args, err, "describe a device"));
    *out = args.description;
    return CVN_OK;
}

int plugin_device_id(const Plugin *p, PjrtDevice *device, int64_t *out, cvn_err *err)
{
    PjrtDescriptionIdArgs id = PJRT_NEW(PjrtDescriptionIdArgs, id, .id = 0);
    TRY(description_of(p, device, &id.description, err));
    TRY(plugin_call(p, PJRT_DESCRIPTION_ID, &id, err, "describe a device"));
    *out = id.id;
    return CVN_OK;
}

int plugin_device_kind(const Plugin *p, PjrtDevice *device, Arena *arena, const char **out,
                       cvn_err *err)
{
    PjrtDescriptionTextArgs kind = PJRT_NEW(PjrtDescriptionTextArgs, text, .text.n = 0);
    TRY(description_of(p, device, &kind.description, err));
    TRY(plugin_call(p, PJRT_DESCRIPTION_KIND, &kind, err, "describe a device"));
    *out = arena_stringn(arena, kind.text.text, kind.text.n);
    return CVN_OK;
}

int64_t plugin_device_memory(const Plugin *p, PjrtDevice *device)
{
    PjrtMemoryStatsArgs args = PJRT_NEW(PjrtMemoryStatsArgs, peak_pool, .device = device);
    bool said = plugin_call(p, PJRT_DEVICE_MEMORY_STATS, &args, NULL, "report its memory") == 0;
    return said && args.limit.known ? args.limit.value : -1;
}
