/* caravan devices: what there is to run on. */
#include "base/bytes.h"
#include "base/capacity.h"
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "pjrt/plugin.h"
#include "run/backend.h"

#include <stdio.h>
#include <string.h>

enum { JSON };

static const Option *const options[] = {
    [JSON] = SHARED(JSON),
    NULL,
};

typedef struct Listing {
    const char *name;
    Arena arena;
    bool as_json; /* else it is printed for people */
    json_t *json; /* of this device; NULL: lines are printed */
    bool found;   /* its plugin; the line of it is printed */
} Listing;

static int list_cpu(Listing *l, cvn_err *err)
{
    const DeviceOptions none = {0};
    Devices *devices;
    DeviceInfo info;
    size_t memory = capacity_memory();
    TRY(backends[0]->open(&none, &devices, err));
    backends[0]->describe(devices, &info);
    if (l->as_json)
        l->json =
            json_merged(l->json, json_pack("{s:s,s:[{s:s,s:I}]}", "platform", "cpu", "devices",
                                           "kind", info.kind, "memory", (json_int_t)memory));
    else
        printf("%-6s %s, %s of memory free\n", l->name, info.kind, bytes_text((double)memory).text);
    backends[0]->close(devices);
    return CVN_OK;
}

static int list_devices(Listing *l, const Plugin *p, const ClientInfo *info, cvn_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < info->n; i++) {
        const char *kind;
        int64_t memory = plugin_device_memory(p, info->device[i]);
        if (plugin_device_kind(p, info->device[i], &l->arena, &kind, err)) {
            json_decref(list);
            return err->code;
        }
        list = json_append(list, json_pack("{s:s,s:o}", "kind", kind, "memory",
                                           memory < 0 ? json_null() : json_integer(memory)));
        if (!l->as_json)
            printf("       %zu: %s%s%s\n", i, kind, memory < 0 ? "" : ", ",
                   memory < 0 ? "" : bytes_text((double)memory).text);
    }
    if (l->as_json)
        l->json = json_with(l->json, "devices", list);
    else
        json_decref(list);
    return CVN_OK;
}

/* Up to where something is wrong: that a plugin is there is worth a line, too. */
static int list_plugin(Listing *l, cvn_err *err)
{
    Plugin plugin;
    PjrtClient *client;
    ClientInfo info;
    TRY(plugin_open(&plugin, l->name, &l->arena, err));
    const char *pjrt =
        arena_printf(&l->arena, "%d.%d", plugin.api->version.major, plugin.api->version.minor);
    if (l->as_json)
        l->json = json_merged(l->json, json_pack("{s:s,s:s}", "plugin", plugin.path, "pjrt", pjrt));
    else
        printf("%-6s %s, PJRT %s\n", l->name, plugin.path, pjrt);
    l->found = true;
    TRY(plugin_client(&plugin, NULL, 0, 1, &client, err));
    int code = plugin_client_info(&plugin, client, &l->arena, &info, err);
    if (code == CVN_OK && l->as_json)
        l->json = json_merged(
            l->json, json_pack("{s:s,s:s}", "platform", info.platform, "version", info.version));
    else if (code == CVN_OK)
        printf("       %s: %.*s\n", info.platform, (int)strcspn(info.version, "\n"), info.version);
    if (code == CVN_OK)
        code = list_devices(l, &plugin, &info, err);
    plugin_destroy(&plugin, PJRT_CLIENT_DESTROY, client);
    return code;
}

static int list_one(void *of, cvn_err *err)
{
    Listing *l = of;
    const Backend *backend;
    TRY(backend_find(l->name, &backend, err));
    return backend == backends[0] ? list_cpu(l, err) : list_plugin(l, err);
}

/* One that was asked for must be there. */
static int list(const char *name, bool asked, bool as_json, json_t **all, cvn_err *err)
{
    Listing l = {.name = name, .as_json = as_json};
    cvn_err why = {0};
    TRY(arena_init(&l.arena, err));
    l.json = as_json ? json_pack("{s:s}", "name", name) : NULL;
    int code = protect(list_one, &l, "listing devices", &why);
    if (code && as_json)
        l.json = json_with(l.json, "error", json_string(why.message));
    else if (code && !asked)
        printf("%-6s none: %s\n", l.found ? "" : name, why.message);
    if (as_json)
        *all = json_append(*all, l.json);
    arena_free(&l.arena);
    return code && asked ? err_set(err, code, "%s", why.message) : CVN_OK;
}

static int run(const Args *args, cvn_err *err)
{
    bool as_json = args->value[JSON].flag;
    json_t *all = as_json ? json_array() : NULL;
    int code = args->n_operands ? CVN_OK : list("cpu", false, as_json, &all, err);
    for (int i = 0; i < args->n_operands && code == CVN_OK; i++)
        code = list(args->operand[i], true, as_json, &all, err);
    for (size_t i = 0; !args->n_operands && plugin_kind(i) && code == CVN_OK; i++)
        code = list(plugin_kind(i), false, as_json, &all, err);
    if (as_json && code == CVN_OK)
        return print_json(all, err);
    json_decref(all);
    return code;
}

const Command command_devices = {
    "devices",
    .about = "list available devices",
    .usage = "[DEVICE…] [--json]",
    .examples = "devices\tCPU, TPUs and GPUs, and the search paths of plugins\n"
                "devices pjrt:/opt/plugin.so\tthe devices of a plugin\n",
    .notes =
        "TPUs and GPUs need a PJRT plugin, which the Python packages libtpu and jax-cuda13-pjrt "
        "contain. Plugins are searched in the site-packages of the active virtual or Conda "
        "environment, of ~/.local, /usr/local and /usr; libtpu also in TPU_LIBRARY_PATH.",
    .operands = "names of devices",
    .max_operands = CLI_MAX_OPERANDS,
    .options = options,
    .run = run,
};
