/*
 * PJRT's C API (https://openxla.org/xla/pjrt), as far as it is used here: how a program in StableHLO gets onto a TPU, a GPU
 * or whatever else somebody wrote a plugin for. A plugin is a shared object with one function, GetPjrtApi, that gives a table:
 *
 *     bytes  0  size of the table         8  extensions, a list
 *           16  size of the version      24  extensions of it     32  major version (0)      36  minor version
 *           40  functions, 8 bytes each, in an order that only ever grows at its end
 *
 * Every function takes one struct, whose first two fields are its own size and extensions; what it gives back it writes
 * there. All but the first two return an error, or NULL. Sizes are those up to the last field, without padding behind it: a
 * plugin that is older or newer by a field tells by the size what there is.
 */
#ifndef CVN_PJRT_API_H
#define CVN_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The oldest minor version whose functions and fields are all there; and what the whole was tried with. */
enum { PJRT_OLDEST = 72 };
#define PJRT_TRIED "0.81 to 0.117"

/* Places in the table. */
typedef enum PjrtFunction {
    PJRT_ERROR_DESTROY = 0,
    PJRT_ERROR_MESSAGE = 1,
    PJRT_ERROR_CODE = 2,
    PJRT_PLUGIN_INITIALIZE = 3,
    PJRT_EVENT_DESTROY = 5,
    PJRT_EVENT_AWAIT = 8,
    PJRT_CLIENT_CREATE = 10,
    PJRT_CLIENT_DESTROY = 11,
    PJRT_CLIENT_PLATFORM_NAME = 12,
    PJRT_CLIENT_PLATFORM_VERSION = 14,
    PJRT_CLIENT_ADDRESSABLE_DEVICES = 16,
    PJRT_CLIENT_COMPILE = 20,
    PJRT_CLIENT_BUFFER_FROM_HOST = 22,
    PJRT_DESCRIPTION_ID = 23,
    PJRT_DESCRIPTION_KIND = 26,
    PJRT_DEVICE_DESCRIPTION = 29,
    PJRT_DEVICE_MEMORY_STATS = 34,
    PJRT_EXECUTABLE_DESTROY = 40,
    PJRT_EXECUTABLE_OPTIMIZED_PROGRAM = 48,
    PJRT_EXECUTABLE_SERIALIZE = 49,
    PJRT_LOADED_DESTROY = 50,
    PJRT_LOADED_EXECUTABLE = 51,
    PJRT_LOADED_EXECUTE = 55,
    PJRT_DESERIALIZE_AND_LOAD = 56,
    PJRT_BUFFER_DESTROY = 58,
    PJRT_BUFFER_TO_HOST = 70,
    PJRT_TOPOLOGY_CREATE = 82,
    PJRT_TOPOLOGY_DESTROY = 83,
    PJRT_TOPOLOGY_DEVICES = 86,
    PJRT_COMPILE = 89,
    PJRT_EXECUTABLE_MEMORY_STATS = 96,
    PJRT_FUNCTIONS = 97, /* at least as many there must be */
} PjrtFunction;

/* What plugins hand out. */
typedef struct PjrtError PjrtError;
typedef struct PjrtClient PjrtClient;
typedef struct PjrtDevice PjrtDevice;
typedef struct PjrtDescription PjrtDescription;
typedef struct PjrtBuffer PjrtBuffer;
typedef struct PjrtEvent PjrtEvent;
typedef struct PjrtLoaded PjrtLoaded;         /* an executable on devices */
typedef struct PjrtExecutable PjrtExecutable; /* one that may be for devices elsewhere */
typedef struct PjrtTopology PjrtTopology;

typedef PjrtError *PjrtCall(void *args);

typedef struct PjrtApi {
    size_t size;
    void *extension;
    struct {
        size_t size;
        void *extension;
        int major, minor;
    } version;
    PjrtCall *call[PJRT_FUNCTIONS];
} PjrtApi;

/* Text of a given length, not ended by a NUL. */
typedef struct PjrtText {
    const char *text;
    size_t n;
} PjrtText;

typedef enum PjrtErrorCode {
    PJRT_CANCELLED = 1,
    PJRT_INVALID_ARGUMENT = 3,
    PJRT_DEADLINE_EXCEEDED = 4,
    PJRT_NOT_FOUND = 5,
    PJRT_RESOURCE_EXHAUSTED = 8,
    PJRT_UNIMPLEMENTED = 12,
    PJRT_UNAVAILABLE = 14,
} PjrtErrorCode;

/* Types of elements, of those that there are. */
typedef enum PjrtType {
    PJRT_BOOL = 1,
    PJRT_I8 = 2,
    PJRT_I32 = 4,
    PJRT_U32 = 8,
    PJRT_F16 = 10,
    PJRT_F32 = 11,
    PJRT_F64 = 12,
    PJRT_BF16 = 13,
    PJRT_I4 = 21,
} PjrtType;

typedef enum PjrtValueKind {
    PJRT_STRING,
    PJRT_INT,
    PJRT_INTS,
    PJRT_FLOAT,
    PJRT_FLAG,
} PjrtValueKind;

/* An option. */
typedef struct PjrtNamed {
    size_t size;
    void *extension;
    PjrtText name;
    PjrtValueKind kind;
    union {
        const char *string;
        int64_t integer;
        float real;
        bool flag;
    };
    size_t n; /* bytes of a string; else 1 */
} PjrtNamed;

/* The arguments of functions: PJRT_ARGS(Client) of a function that takes and gives nothing but a client. */
#define PJRT_ARGS(name, ...)                                                                       \
    typedef struct Pjrt##name##Args {                                                              \
        size_t size;                                                                               \
        void *extension;                                                                           \
        __VA_ARGS__                                                                                \
    } Pjrt##name##Args

PJRT_ARGS(Void, );
PJRT_ARGS(Object, void *object;); /* destroys it, awaits it */
PJRT_ARGS(Message, const PjrtError *error; PjrtText text;);
PJRT_ARGS(Code, const PjrtError *error; int code;);
/* Makes an error of the plugin's own of a code and a text. */
typedef PjrtError *(*PjrtCallbackError)(int code, const char *text, size_t n);
/* Of callbacks, through which processes find each other (keys.h). */
PJRT_ARGS(KeyGet, const char *key; size_t n_key; int milliseconds; PjrtCallbackError * error;
          void *context; char *value; size_t n_value; void (*free_value)(char *value););
PJRT_ARGS(KeyTryGet, const char *key; size_t n_key; PjrtCallbackError * error; void *context;
          char *value; size_t n_value; void (*free_value)(char *value););
PJRT_ARGS(KeyPut, const char *key; size_t n_key; const char *value; size_t n_value;
          PjrtCallbackError * error; void *context;);
/* NULL callbacks: there is one process. */
PJRT_ARGS(Create, const PjrtNamed *option; size_t n_options; PjrtError * (*get)(PjrtKeyGetArgs *);
          void *get_context; PjrtError * (*put)(PjrtKeyPutArgs *); void *put_context;
          PjrtClient * client; PjrtError * (*try_get)(PjrtKeyTryGetArgs *); void *try_get_context;);
PJRT_ARGS(ClientText, PjrtClient *client; PjrtText text;);
PJRT_ARGS(Devices, PjrtClient *client; PjrtDevice *const *device; size_t n;);
PJRT_ARGS(Describe, PjrtDevice *device; PjrtDescription * description;);
PJRT_ARGS(DescriptionId, PjrtDescription *description; int id;);
PJRT_ARGS(DescriptionText, PjrtDescription *description; PjrtText text;);

/* Each but the first with a flag that says whether it is known. */
typedef struct PjrtMaybe {
    int64_t value;
    bool known;
} PjrtMaybe;
PJRT_ARGS(MemoryStats, PjrtDevice *device; int64_t in_use;
          PjrtMaybe peak, allocations, largest, limit, reserved, peak_reserved, reservable,
          largest_free, pool, peak_pool;);

typedef struct PjrtProgram {
    size_t size;
    void *extension;
    char *code;
    size_t n_code; /* … of the optimized program: 0 and code NULL ask for it; then the length */
    PjrtText format;
} PjrtProgram;

PJRT_ARGS(ClientCompile, PjrtClient *client; const PjrtProgram *program; PjrtText options;
          PjrtLoaded * loaded;);
PJRT_ARGS(Compile, const PjrtTopology *topology; const PjrtProgram *program; PjrtText options;
          PjrtClient * client; PjrtExecutable * executable;);
PJRT_ARGS(LoadedExecutable, PjrtLoaded *loaded; PjrtExecutable * executable;);
/* The bytes are there until they are let go of. */
PJRT_ARGS(Serialize, const PjrtExecutable *executable; PjrtText bytes; void *owner;
          void (*release)(void *owner););
/* The options may be NULL: those that it was compiled with. */
PJRT_ARGS(Deserialize, PjrtClient *client; const void *bytes; size_t n; PjrtLoaded * loaded;
          const char *options; size_t n_options;);
PJRT_ARGS(Optimized, PjrtExecutable *executable; PjrtProgram * program;);
PJRT_ARGS(CompiledMemory, PjrtExecutable *executable;
          int64_t code, arguments, outputs, aliased, temporaries, host_code, host_arguments,
          host_outputs, host_aliased, host_temporaries, peak;);

enum { PJRT_ONLY_DURING_CALL = 0, PJRT_UNTIL_TRANSFERRED = 1 }; /* what is not changed how long */
/* How a buffer lies, where it is told: its dimensions from the fastest to the slowest, no tiles. */
typedef struct PjrtLayout {
    size_t size;
    void *extension;
    size_t order_size;
    void *order_extension;
    const int64_t *order; /* [rank] */
    size_t rank;
    const int64_t *tile;
    const size_t *tile_rank;
    size_t n_tiles;
    int kind; /* 0: this one */
} PjrtLayout;

PJRT_ARGS(FromHost, PjrtClient *client; const void *data; int type; const int64_t *dim; size_t rank;
          const int64_t *stride; size_t n_strides; int semantics; PjrtDevice * device; void *memory;
          PjrtLayout * layout; PjrtEvent * done; PjrtBuffer * buffer;);
/* target NULL asks for the bytes. */
PJRT_ARGS(ToHost, PjrtBuffer *buffer; PjrtLayout * layout; void *target; size_t bytes;
          PjrtEvent * event;);

typedef struct PjrtExecuteOptions {
    size_t size;
    void *extension;
    void *send, *receive;
    size_t n_send, n_receive;
    int launch;
    const int64_t *kept; /* arguments that are not donated, whatever the module says */
    size_t n_kept;
    void *context;
    const char *location;
    size_t n_tasks;
    int *task;
    int64_t *incarnation;
} PjrtExecuteOptions;
/* Lists by device; of events each may be wanted, or the list is NULL. */
PJRT_ARGS(Execute, PjrtLoaded *loaded; PjrtExecuteOptions * options;
          PjrtBuffer *const *const *argument; size_t n_devices, n_arguments;
          PjrtBuffer * *const *output; PjrtEvent * *event; PjrtDevice * device;);

PJRT_ARGS(Topology, PjrtText name; const PjrtNamed *option; size_t n_options;
          PjrtTopology * topology;);
PJRT_ARGS(TopologyDevices, const PjrtTopology *topology; PjrtDescription *const *description;
          size_t n;);

/* A struct of arguments, or another one, with its size: up to and with its last field. */
#define PJRT_NEW(type, last, ...)                                                                  \
    {                                                                                              \
        .size = offsetof(type, last) + sizeof(((type *)0)->last), __VA_ARGS__                      \
    }

_Static_assert(offsetof(PjrtApi, call) == 40, "where the functions begin");
_Static_assert(sizeof(PjrtNamed) == 56, "an option as plugins read it");
_Static_assert(sizeof(PjrtMemoryStatsArgs) == 192, "limits as plugins write them");
_Static_assert(sizeof(PjrtExecuteArgs) == 80, "a run as plugins read it");
_Static_assert(sizeof(PjrtFromHostArgs) == 120, "an upload as plugins read it");
_Static_assert(sizeof(PjrtCompiledMemoryArgs) == 112, "sizes as plugins write them");

/* ---- the profiler extension ---- */

/* What every extension in the list begins with. */
typedef struct PjrtExtension {
    size_t size;
    int type; /* of the extension; of the profiler's: */
    const struct PjrtExtension *next;
} PjrtExtension;
enum { PJRT_EXTENSION_PROFILER = 1 };

/* Its functions return errors of their own, or NULL. A session is made, started, stopped, collected from and destroyed. */
typedef struct PjrtProfilerErrorArgs {
    size_t size;
    void *own;
    void *error;
} PjrtProfilerErrorArgs;
typedef struct PjrtProfilerMessageArgs {
    size_t size;
    void *own;
    const void *error;
    PjrtText text;
} PjrtProfilerMessageArgs;
typedef struct PjrtProfilerCreateArgs {
    size_t size;
    PjrtText options; /* a tensorflow.ProfileOptions */
    void *session;
} PjrtProfilerCreateArgs;
typedef struct PjrtProfilerArgs {
    size_t size;
    void *session;
} PjrtProfilerArgs;
/* buffer NULL asks how long an XSpace there is, or for where it lies; otherwise it is written there. */
typedef struct PjrtProfilerCollectArgs {
    size_t size;
    void *session;
    uint8_t *buffer;
    size_t n;
} PjrtProfilerCollectArgs;

typedef struct PjrtProfiler {
    size_t size;
    void *own;
    void (*destroy_error)(PjrtProfilerErrorArgs *);
    void (*message)(PjrtProfilerMessageArgs *);
    void *(*code)(void *);
    void *(*create)(PjrtProfilerCreateArgs *);
    void *(*destroy)(PjrtProfilerArgs *);
    void *(*start)(PjrtProfilerArgs *);
    void *(*stop)(PjrtProfilerArgs *);
    void *(*collect)(PjrtProfilerCollectArgs *);
} PjrtProfiler;

typedef struct PjrtProfilerExtension {
    PjrtExtension base;
    const PjrtProfiler *table; /* NULL: it only carries arguments */
} PjrtProfilerExtension;

#endif
