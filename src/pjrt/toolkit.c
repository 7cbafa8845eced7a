#include "pjrt/toolkit.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

const char *const toolkit_system[] = {"/usr/local/cuda", "/opt/cuda", NULL};

typedef struct Search {
    Arena *arena;
    const char *found;  /* or NULL */
    const char *places; /* "a, b": where it is not */
} Search;

static void look(Search *s, const char *folder)
{
    if (s->found || !*folder)
        return;
    if (file_exists(arena_printf(s->arena, "%s/nvvm/libdevice/libdevice.10.bc", folder)))
        s->found = folder;
    else
        s->places = arena_printf(s->arena, "%s%s%s", s->places, *s->places ? ", " : "", folder);
}

/* What XLA_FLAGS says: "… --xla_gpu_cuda_data_dir=DIR …"; "" where it says nothing. */
static const char *told(Arena *arena)
{
    static const char flag[] = "--xla_gpu_cuda_data_dir=";
    const char *flags = getenv("XLA_FLAGS"), *at = flags ? strstr(flags, flag) : NULL;
    if (!at)
        return "";
    at += sizeof flag - 1;
    return arena_stringn(arena, at, strcspn(at, " "));
}

int toolkit_find(const char *plugin, const char *const *system, Arena *arena, const char **out,
                 cvn_err *err)
{
    static const char *const beside[] = {"cuda", "../nvidia/cu13", "../../nvidia/cu13"};
    Search s = {.arena = arena, .places = ""};
    const char *slash = strrchr(plugin, '/');
    const char *folder = slash ? arena_stringn(arena, plugin, (size_t)(slash - plugin)) : ".";
    look(&s, told(arena));
    for (; *system; system++)
        look(&s, *system);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        look(&s, arena_printf(arena, "%s/%s", folder, beside[i]));
    *out = s.found;
    return s.found ? CVN_OK
                   : err_set(err, CVN_EIO,
                             "compiling for GPUs requires ptxas and libdevice of the CUDA toolkit, "
                             "which was not found in %s; install it, or set "
                             "XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR",
                             s.places);
}
