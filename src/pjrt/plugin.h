/*
 * A plugin: found, loaded, checked, and asked for its devices.
 *
 *     pjrt:/opt/plugin.so                   that file
 *     pjrt:/opt/plugin.so,memory=4,fast=1   … with options for its client
 *     tpu,executables=DIR                   … and our own: where compiled programs are kept; "none": nowhere
 *     tpu,partitioner=xla                   … and who divides a graph among devices: "own", or XLA
 *     tpu, cuda                             where JAX's wheels, and the vendors, put theirs
 *
 * A plugin stays loaded until the program ends: it has threads of its own.
 */
#ifndef CVN_PJRT_PLUGIN_H
#define CVN_PJRT_PLUGIN_H

#include "base/arena.h"
#include "pjrt/keys.h"

typedef struct Plugin {
    const char *path; /* where it was found; the arena's, as all of it */
    const PjrtApi *api;
    const PjrtNamed *option; /* [n_options] of its client */
    size_t n_options;
    const char *executables; /* folder of compiled programs; NULL: nothing is kept */
    bool partitions;         /* devices are partitions of graphs on whole shapes, which XLA cuts */
} Plugin;

/* Kinds of devices that have a place to look for their plugin: "tpu", "cuda"; NULL behind the last. */
const char *plugin_kind(size_t i);

/* Whether a device is one that a plugin has: by its name alone. */
bool plugin_names(const char *device);

/* Finds and loads it. */
int plugin_open(Plugin *p, const char *device, Arena *arena, cvn_err *err);

/* Calls a function of the table, and makes an error of the plugin's one sentence: "could not …: " and its words. */
int plugin_call(const Plugin *p, PjrtFunction f, void *args, cvn_err *err, const char *doing, ...)
    __attribute__((format(printf, 5, 6)));
/* Of what there may be no error: destroys an object; NULL is allowed. */
void plugin_destroy(const Plugin *p, PjrtFunction f, void *object);
/* Waits, and destroys the event, which may be NULL. */
int plugin_await(const Plugin *p, PjrtEvent *event, cvn_err *err, const char *doing);

/* keys: of the other processes; NULL: there are none. */
int plugin_client(const Plugin *p, Keys *keys, int rank, int n_ranks, PjrtClient **out,
                  cvn_err *err);

/* "cpu", "v5e"; its version; and the devices of this process. Text is the arena's. */
typedef struct ClientInfo {
    const char *platform, *version;
    PjrtDevice *const *device; /* [n] the client's */
    size_t n;
} ClientInfo;
int plugin_client_info(const Plugin *p, PjrtClient *client, Arena *arena, ClientInfo *out,
                       cvn_err *err);
int plugin_device_id(const Plugin *p, PjrtDevice *device, int64_t *out, cvn_err *err);
/* "TPU v5 lite" */
int plugin_device_kind(const Plugin *p, PjrtDevice *device, Arena *arena, const char **out,
                       cvn_err *err);
/* Bytes of its memory; -1: it does not say. */
int64_t plugin_device_memory(const Plugin *p, PjrtDevice *device);

#endif
