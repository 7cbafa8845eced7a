/*
 * A PJRT plugin that computes nothing: results are 0. It counts what it handed out and was not given back, and fails when it
 * is told to: the n-th call of a function from now on returns an error. Whoever tests loads it by dlopen, too, and finds
 *
 *     void fake_fail(int function, int n);       0: never again; another call begins to count anew
 *     int fake_failed(void);                     whether it did
 *     int fake_calls(int function);              calls of a function since this was asked last
 *     int fake_live(void);                       objects that are out
 *     int64_t fake_moved(void);                  numbers that went to and from devices since this was asked last,
 *                                                and results of runs that were not to take an argument's place
 *     void fake_table(int major, int minor, size_t bytes);     what the next GetPjrtApi says of itself
 *
 * It has a profiler, whose recordings all are the same; FAKE_PROFILER=create, start, stop or collect in the environment makes
 * that fail.
 */
#include "pjrt/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 4, ALL = 118 };

typedef struct Object {
    int64_t n;      /* of an executable: its outputs; of a topology: its devices */
    int64_t placed; /* outputs that take an argument's place */
} Object;

static struct {
    size_t size;
    void *extension;
    struct {
        size_t size;
        void *extension;
        int major, minor;
    } version;
    PjrtCall *call[ALL];
} table;

static int live, fail_function = -1, fail_n, failed, calls[ALL];
static int64_t moved;
static char devices[DEVICES];
static int64_t node; /* which of several processes this is */
static PjrtDevice *device_list[DEVICES];

void fake_fail(int function, int n);
int fake_failed(void);
int fake_live(void);
int fake_calls(int function);
int64_t fake_moved(void);
void fake_table(int major, int minor, size_t bytes);
const void *GetPjrtApi(void);

void fake_fail(int function, int n)
{
    fail_function = function;
    fail_n = n;
    failed = 0;
}

int fake_failed(void)
{
    return failed;
}

int fake_live(void)
{
    return live;
}

int fake_calls(int function)
{
    int n = calls[function];
    calls[function] = 0;
    return n;
}

int64_t fake_moved(void)
{
    int64_t n = moved;
    moved = 0;
    return n;
}

static void *new_object(int64_t n)
{
    Object *o = calloc(1, sizeof *o);
    if (!o)
        abort();
    o->n = n;
    live++;
    return o;
}

static PjrtError *destroy(void *of)
{
    PjrtObjectArgs *args = of;
    live--;
    free(args->object);
    return NULL;
}

static PjrtError *injected(int function)
{
    calls[function]++;
    if (function != fail_function || fail_n == 0 || --fail_n > 0)
        return NULL;
    failed = 1;
    return new_object(0);
}

static PjrtError *nothing(void *of)
{
    (void)of;
    return NULL;
}

static PjrtText text(const char *s)
{
    return (PjrtText){s, strlen(s)};
}

static PjrtError *message(void *of)
{
    ((PjrtMessageArgs *)of)->text = text("injected\nin two lines");
    return NULL;
}

static PjrtError *code(void *of)
{
    ((PjrtCodeArgs *)of)->code = PJRT_RESOURCE_EXHAUSTED;
    return injected(PJRT_ERROR_CODE);
}

static PjrtError *callback_error(int error, const char *says, size_t n)
{
    (void)error, (void)says, (void)n;
    return new_object(0);
}

/* Tells the others of itself, and hears of all of them. */
static PjrtError *meet(PjrtCreateArgs *args, int rank, int ranks)
{
    PjrtCallbackError make = callback_error;
    char key[20], value[20];
    snprintf(key, sizeof key, "fake/%d", rank);
    snprintf(value, sizeof value, "it is %d", rank);
    PjrtKeyPutArgs put =
        PJRT_NEW(PjrtKeyPutArgs, context, .key = key, .n_key = strlen(key), .value = value,
                 .n_value = strlen(value), .error = &make, .context = args->put_context);
    PjrtError *error = args->put(&put);
    for (int i = 0; i < ranks && !error; i++) {
        snprintf(key, sizeof key, "fake/%d", i);
        snprintf(value, sizeof value, "it is %d", i);
        PjrtKeyGetArgs get =
            PJRT_NEW(PjrtKeyGetArgs, free_value, .key = key, .n_key = strlen(key),
                     .milliseconds = 60000, .error = &make, .context = args->get_context);
        error = args->get(&get);
        if (!error && (get.n_value != strlen(value) || memcmp(get.value, value, get.n_value) != 0))
            error = new_object(0);
        if (!error)
            get.free_value(get.value);
    }
    PjrtKeyTryGetArgs none = PJRT_NEW(PjrtKeyTryGetArgs, free_value, .key = "fake", .n_key = 4,
                                      .error = &make, .context = args->try_get_context);
    PjrtError *absent = error ? NULL : args->try_get(&none);
    if (absent)
        destroy(&(PjrtObjectArgs){.object = absent});
    return error || absent ? error : new_object(0);
}

static PjrtError *client_create(void *of)
{
    PjrtCreateArgs *args = of;
    int64_t ranks = 1, fail = -1;
    for (size_t i = 0; i < args->n_options; i++) {
        const PjrtNamed *o = &args->option[i];
        const struct {
            const char *name;
            int64_t *to;
        } known[] = {{"node_id", &node}, {"num_nodes", &ranks}, {"fail_node", &fail}};
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (strlen(known[k].name) == o->name.n &&
                memcmp(known[k].name, o->name.text, o->name.n) == 0)
                *known[k].to = o->integer;
    }
    PjrtError *error = args->put ? meet(args, (int)node, (int)ranks) : NULL;
    if (!error && fail == node)
        error = new_object(0);
    if (!error)
        args->client = new_object(0);
    return error;
}

static PjrtError *client_name(void *of)
{
    ((PjrtClientTextArgs *)of)->text = text("fake");
    return NULL;
}

static PjrtError *client_devices(void *of)
{
    PjrtDevicesArgs *args = of;
    args->device = device_list;
    args->n = DEVICES;
    return NULL;
}

static PjrtError *describe(void *of)
{
    PjrtDescribeArgs *args = of;
    args->description = (PjrtDescription *)args->device;
    return NULL;
}

static PjrtError *description_id(void *of)
{
    PjrtDescriptionIdArgs *args = of;
    args->id = (int)((char *)args->description - devices + node * DEVICES);
    return NULL;
}

static PjrtError *description_kind(void *of)
{
    ((PjrtDescriptionTextArgs *)of)->text = text("abacus");
    return NULL;
}

/* Results of the module's function: "… -> (tensor<2xf32>, tensor<i32>) {"; and those that go into an argument:
   "%c: tensor<2xf32> {tf.aliasing_output = 1 : i32}" */
static int64_t count_outputs(const PjrtProgram *program, int64_t *placed)
{
    static const char into[] = "tf.aliasing_output";
    char *all = malloc(program->n_code + 1);
    int64_t n = 0;
    memcpy(all, program->code, program->n_code);
    all[program->n_code] = 0;
    const char *at = strstr(all, ") -> ("), *end = strstr(at ? at : all, ") {\n");
    for (; at && at < end; at++)
        n += strncmp(at, "tensor<", 7) == 0;
    for (at = strstr(all, into); at; at = strstr(at + 1, into))
        ++*placed;
    free(all);
    return n;
}

static PjrtError *client_compile(void *of)
{
    PjrtClientCompileArgs *args = of;
    int64_t placed = 0;
    Object *loaded = new_object(count_outputs(args->program, &placed));
    loaded->placed = placed;
    args->loaded = (PjrtLoaded *)(void *)loaded;
    return NULL;
}

static PjrtError *loaded_executable(void *of)
{
    PjrtLoadedExecutableArgs *args = of;
    args->executable = new_object(((const Object *)(const void *)args->loaded)->n);
    return NULL;
}

static PjrtError *from_host(void *of)
{
    PjrtFromHostArgs *args = of;
    int64_t n = 1;
    for (size_t d = 0; d < args->rank; d++)
        n *= args->dim[d];
    moved += n;
    args->buffer = new_object(0);
    args->done = new_object(0);
    return NULL;
}

static PjrtError *to_host(void *of)
{
    PjrtToHostArgs *args = of;
    memset(args->target, 0, args->bytes);
    moved += (int64_t)args->bytes / 4;
    args->event = new_object(0);
    return NULL;
}

static PjrtError *execute(void *of)
{
    PjrtExecuteArgs *args = of;
    const Object *loaded = (const Object *)(void *)args->loaded;
    for (size_t d = 0; d < args->n_devices; d++) {
        for (int64_t i = 0; i < loaded->n; i++)
            args->output[d][i] = new_object(0);
        args->event[d] = new_object(0);
        moved += loaded->n - loaded->placed;
    }
    return NULL;
}

static PjrtError *topology_create(void *of)
{
    PjrtTopologyArgs *args = of;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)args->name.n, args->name.text);
    args->topology = new_object(strtol(name + strcspn(name, "0123456789"), NULL, 10));
    return NULL;
}

static PjrtError *topology_devices(void *of)
{
    PjrtTopologyDevicesArgs *args = of;
    args->n = (size_t)((const Object *)(const void *)args->topology)->n;
    return NULL;
}

static PjrtError *compile(void *of)
{
    ((PjrtCompileArgs *)of)->executable = new_object(0);
    return NULL;
}

static PjrtError *memory_stats(void *of)
{
    PjrtCompiledMemoryArgs *args = of;
    args->arguments = 1000;
    args->outputs = args->aliased = 100;
    args->temporaries = 10;
    return NULL;
}

static PjrtError *optimized(void *of)
{
    /* One computation of two instructions. */
    static const char program[] = "\x0a\x39\x1a\x37"
                                  "\x12\x12\x12\x10"
                                  "all-reduce-start"
                                  "\x12\x21\xda\x02\x1e"
                                  "{\"estimated_cycles\":\"1234567\"}";
    PjrtOptimizedArgs *args = of;
    if (args->program->code)
        memcpy(args->program->code, program, args->program->n_code);
    else
        args->program->n_code = sizeof program - 1;
    return NULL;
}

static void release(void *owner)
{
    live--;
    free(owner);
}

static PjrtError *serialize(void *of)
{
    PjrtSerializeArgs *args = of;
    static char program[40];
    snprintf(program, sizeof program, "a program with %lld outputs",
             (long long)((const Object *)(const void *)args->executable)->n);
    args->bytes = text(program);
    args->owner = new_object(0);
    args->release = release;
    return NULL;
}

static PjrtError *deserialize(void *of)
{
    PjrtDeserializeArgs *args = of;
    char program[40];
    long long n;
    snprintf(program, sizeof program, "%.*s", (int)args->n, (const char *)args->bytes);
    if (sscanf(program, "a program with %lld outputs", &n) != 1)
        return new_object(0);
    args->loaded = new_object(n);
    return NULL;
}

/* X(function, what it does) */
#define FUNCTIONS(X)                                                                               \
    X(PJRT_PLUGIN_INITIALIZE, nothing)                                                             \
    X(PJRT_EVENT_AWAIT, nothing)                                                                   \
    X(PJRT_CLIENT_CREATE, client_create)                                                           \
    X(PJRT_CLIENT_PLATFORM_NAME, client_name)                                                      \
    X(PJRT_CLIENT_PLATFORM_VERSION, client_name)                                                   \
    X(PJRT_CLIENT_ADDRESSABLE_DEVICES, client_devices)                                             \
    X(PJRT_CLIENT_COMPILE, client_compile)                                                         \
    X(PJRT_CLIENT_BUFFER_FROM_HOST, from_host)                                                     \
    X(PJRT_DESCRIPTION_ID, description_id)                                                         \
    X(PJRT_DESCRIPTION_KIND, description_kind)                                                     \
    X(PJRT_DEVICE_DESCRIPTION, describe)                                                           \
    X(PJRT_DEVICE_MEMORY_STATS, nothing)                                                           \
    X(PJRT_EXECUTABLE_OPTIMIZED_PROGRAM, optimized)                                                \
    X(PJRT_EXECUTABLE_SERIALIZE, serialize)                                                        \
    X(PJRT_DESERIALIZE_AND_LOAD, deserialize)                                                      \
    X(PJRT_LOADED_EXECUTABLE, loaded_executable)                                                   \
    X(PJRT_LOADED_EXECUTE, execute)                                                                \
    X(PJRT_BUFFER_TO_HOST, to_host)                                                                \
    X(PJRT_TOPOLOGY_CREATE, topology_create)                                                       \
    X(PJRT_TOPOLOGY_DEVICES, topology_devices)                                                     \
    X(PJRT_COMPILE, compile)                                                                       \
    X(PJRT_EXECUTABLE_MEMORY_STATS, memory_stats)                                                  \
    X(PJRT_EVENT_DESTROY, destroy)                                                                 \
    X(PJRT_CLIENT_DESTROY, destroy)                                                                \
    X(PJRT_EXECUTABLE_DESTROY, destroy)                                                            \
    X(PJRT_LOADED_DESTROY, destroy)                                                                \
    X(PJRT_BUFFER_DESTROY, destroy)                                                                \
    X(PJRT_TOPOLOGY_DESTROY, destroy)

/* What destroys has done so when it fails; the others have done nothing. */
#define CALL(function, does)                                                                       \
    static PjrtError *call_##function(void *of)                                                    \
    {                                                                                              \
        PjrtError *error = injected(function), *own = NULL;                                        \
        if (!error || (does) == destroy)                                                           \
            own = (does)(of);                                                                      \
        return error ? error : own;                                                                \
    }
FUNCTIONS(CALL)
#undef CALL

/* ---- the profiler ---- */

/* One event, "fusion.3" of 0.8 us, 3.5 us after the beginning, with its bytes. */
static const char xspace[] = "\x0a\x4f"
                             "\x12\x0e/device:FAKE:0"
                             "\x1a\x1c\x12\x03ops\x18\xe8\x07"
                             "\x22\x12\x08\x07\x10\xa0\xcb\x98\x01\x18\x80\xea\x30"
                             "\x22\x05\x08\x01\x20\x80\x20"
                             "\x22\x10\x08\x07\x12\x0c\x08\x07\x12\x08"
                             "fusion.3"
                             "\x2a\x0d\x08\x01\x12\x09\x08\x01\x12\x05"
                             "bytes";

static void *profiler_fails(const char *function)
{
    const char *wish = getenv("FAKE_PROFILER");
    return wish && strcmp(wish, function) == 0 ? new_object(0) : NULL;
}

static void profiler_destroy_error(PjrtProfilerErrorArgs *args)
{
    live--;
    free(args->error);
}

static void profiler_message(PjrtProfilerMessageArgs *args)
{
    args->text = text("injected");
}

static void *profiler_create(PjrtProfilerCreateArgs *args)
{
    void *error = profiler_fails("create");
    args->session = error ? NULL : new_object(0);
    return error;
}

static void *profiler_destroy(PjrtProfilerArgs *args)
{
    live--;
    free(args->session);
    return NULL;
}

static void *profiler_start(PjrtProfilerArgs *args)
{
    (void)args;
    return profiler_fails("start");
}

static void *profiler_stop(PjrtProfilerArgs *args)
{
    (void)args;
    return profiler_fails("stop");
}

static void *profiler_collect(PjrtProfilerCollectArgs *args)
{
    args->n = sizeof xspace - 1;
    if (args->buffer)
        memcpy(args->buffer, xspace, args->n);
    return profiler_fails("collect");
}

static const PjrtProfiler profiler = {
    .size = sizeof profiler,
    .destroy_error = profiler_destroy_error,
    .message = profiler_message,
    .create = profiler_create,
    .destroy = profiler_destroy,
    .start = profiler_start,
    .stop = profiler_stop,
    .collect = profiler_collect,
};
static const PjrtProfilerExtension profiling = {
    .base = {.size = sizeof profiling, .type = PJRT_EXTENSION_PROFILER}, .table = &profiler};
static const PjrtExtension other = {.size = sizeof other, .type = 9, .next = &profiling.base};

void fake_table(int major, int minor, size_t bytes)
{
    table.size = bytes;
    table.version.major = major;
    table.version.minor = minor;
}

const void *GetPjrtApi(void)
{
    for (int i = 0; i < DEVICES; i++)
        device_list[i] = (PjrtDevice *)(void *)&devices[i];
    table.extension = (void *)&other;
    if (!table.size)
        fake_table(0, PJRT_OLDEST, sizeof table);
    table.call[PJRT_ERROR_DESTROY] = destroy;
    table.call[PJRT_ERROR_MESSAGE] = message;
    table.call[PJRT_ERROR_CODE] = code;
#define PLACE(function, does) table.call[function] = call_##function;
    FUNCTIONS(PLACE)
#undef PLACE
    return &table;
}
