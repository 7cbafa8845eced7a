#include "serve/kv.h"

#include "base/num.h"
#include "model/llama.h"

#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}

/* A tensor with this many bytes for each position of a head. */
static KvShape shape_of(const KvCache *kv, size_t position, int64_t positions)
{
    KvShape s = {.position = position};
    size_t page = page_size();
    s.head = s.position * (size_t)positions;
    s.row = s.head * (size_t)kv->kv_heads;
    s.tensor = num_padded(s.row * (size_t)kv->rows, page);
    return s;
}

int kv_init(KvCache *kv, const LlamaConfig *config, int rows, int64_t positions, cvn_dtype dtype,
            cvn_err *err)
{
    *kv = (KvCache){.rows = rows, .kv_heads = config->n_kv_heads};
    kv->layer_tensors = dtype == CVN_I8 ? LLAMA_CACHES_INT8 : LLAMA_CACHES;
    kv->n_tensors = (int)(kv->layer_tensors * config->n_layers);
    int64_t all = kv_cache_bytes(config, rows, positions, dtype);
    if (all < 0 || all > INT64_C(1) << 46)
        return err_set(err, CVN_EMEM,
                       "a KV cache of %d rows of %" PRId64
                       " positions does not fit in the address space; ask for fewer rows or a "
                       "shorter context",
                       rows, positions);
    kv->shape[0] = shape_of(kv, cvn_dtype_bytes(dtype, config->head_dim), positions);
    kv->shape[1] = shape_of(kv, cvn_dtype_bytes(CVN_BF16, 1), positions);
    for (int i = 0; i < kv->layer_tensors; i++)
        kv->layer_bytes += kv_shape(kv, i)->tensor;
    kv->bytes = kv->layer_bytes * (size_t)config->n_layers;
    void *base = mmap(NULL, kv->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return err_set(err, CVN_EMEM,
                       "cannot reserve %zu MiB of address space for the KV cache; ask for fewer "
                       "rows or a shorter context",
                       kv->bytes >> 20);
    kv->base = base;
    return CVN_OK;
}

void kv_free(KvCache *kv)
{
    if (kv->base)
        munmap(kv->base, kv->bytes);
    *kv = (KvCache){0};
}

const KvShape *kv_shape(const KvCache *kv, int i)
{
    return &kv->shape[i % kv->layer_tensors / 2];
}

void *kv_row(const KvCache *kv, int i, int row)
{
    char *at = kv->base + (size_t)(i / kv->layer_tensors) * kv->layer_bytes;
    for (int j = i / kv->layer_tensors * kv->layer_tensors; j < i; j++)
        at += kv_shape(kv, j)->tensor;
    return at + (size_t)row * kv_shape(kv, i)->row;
}

void kv_release(KvCache *kv, int row)
{
    uintptr_t page = page_size();
    for (int i = 0; i < kv->n_tensors; i++) {
        uintptr_t begin = (uintptr_t)kv_row(kv, i, row), end = begin + kv_shape(kv, i)->row;
        uintptr_t first = num_padded(begin, page), last = end / page * page;
        if (first < last)
            madvise((void *)first, last - first, MADV_DONTNEED);
    }
}
