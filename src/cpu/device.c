/* Making devices, and the mapping that is their arena. */
#include "cpu/device.h"

#include "base/num.h"
#include "cpu/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

Device *device_new(int n_threads, const KernelSet *backend, cvn_err *err)
{
    Device *device = calloc(1, sizeof *device);
    if (!device) {
        err_set(err, CVN_EMEM, "no memory for a device");
        return NULL;
    }
    device->backend = backend ? backend : cpu_kernels();
    device->pool = pool_new(n_threads, err);
    if (!device->pool || device_reserve(device, 1, err)) {
        device_free(device);
        return NULL;
    }
    size_t tails = (size_t)device_threads(device) * sizeof *device->tail;
    device->tail = aligned_alloc(64, tails);
    if (!device->tail) {
        err_set(err, CVN_EMEM, "no memory for a device");
        device_free(device);
        return NULL;
    }
    memset(device->tail, 0, tails);
    return device;
}

void device_free(Device *device)
{
    if (!device)
        return;
    pool_free(device->pool);
    if (device->arena)
        munmap(device->arena, device->arena_bytes);
    free(device->tail);
    free(device->checked.pointer);
    free(device->checked.parameter);
    free(device);
}

int device_threads(const Device *device)
{
    return pool_threads(device->pool);
}

Pace *device_pace(Device *device, const Plan *plan)
{
    PlanPace *entry = &device->pace[((uintptr_t)plan >> 4) * 0x9e3779b1u % DEVICE_PACES];
    if (entry->plan != plan) {
        entry->plan = plan;
        pace_init(&entry->pace, device_threads(device));
    }
    return &entry->pace;
}

int device_reserve(Device *device, size_t bytes, cvn_err *err)
{
    if (device->arena && bytes <= device->arena_bytes)
        return CVN_OK;
    bytes = bytes ? bytes : 1;
    size_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : 4096;
    if (bytes > SIZE_MAX - page)
        return err_set(err, CVN_EMEM, "an arena of %zu bytes does not fit the address space",
                       bytes);
    size_t rounded = num_padded(bytes, page);
    if (device->arena) /* first, so that old and new never count together against a limit */
        munmap(device->arena, device->arena_bytes);
    device->arena = NULL;
    device->arena_bytes = 0;
    void *map = mmap(NULL, rounded, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(err, CVN_EMEM, "the system refused %.1f MiB for temporaries: %s",
                       (double)bytes / 0x1p20, strerror(errno));
    if (page == HUGE_PAGE)
        madvise(map, rounded, MADV_HUGEPAGE); /* advice: where it is not taken, nothing is lost */
    device->arena = map;
    device->arena_bytes = rounded;
    return CVN_OK;
}
