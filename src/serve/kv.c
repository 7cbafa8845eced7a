#include "serve/kv.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t page_size(void)
{
    long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (size_t)size : 4096;
}

int kv_init(KvCache *kv, const LlamaConfig *config, int rows, int64_t positions, cvn_dtype dtype,
            cvn_err *err)
{
    *kv = (KvCache){.rows = rows, .kv_heads = config->n_kv_heads};
    kv->n_tensors = (int)(2 * config->n_layers);
    int64_t all = kv_cache_bytes(config, rows, positions, dtype);
    if (all < 0 || all > INT64_C(1) << 46)
        return err_set(err, CVN_EMEM,
                       "a KV cache of %d rows of %" PRId64
                       " positions does not fit in the address space; ask for fewer rows or a "
                       "shorter context",
                       rows, positions);
    kv->position_bytes = cvn_dtype_bytes(dtype, config->head_dim);
    kv->head_bytes = kv->position_bytes * (size_t)positions;
    kv->row_bytes = kv->head_bytes * (size_t)config->n_kv_heads;
    size_t page = page_size();
    kv->tensor_bytes = (kv->row_bytes * (size_t)rows + page - 1) / page * page;
    kv->bytes = kv->tensor_bytes * (size_t)kv->n_tensors;
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

void *kv_row(const KvCache *kv, int i, int row)
{
    return kv->base + (size_t)i * kv->tensor_bytes + (size_t)row * kv->row_bytes;
}

void kv_release(KvCache *kv, int row)
{
    uintptr_t page = page_size();
    for (int i = 0; i < kv->n_tensors; i++) {
        uintptr_t begin = (uintptr_t)kv_row(kv, i, row), end = begin + kv->row_bytes;
        uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
        if (first < last)
            madvise((void *)first, last - first, MADV_DONTNEED);
    }
}

void kv_copy_prefix(KvCache *kv, int from, int to, int64_t n)
{
    for (int i = 0; i < kv->n_tensors; i++)
        for (int64_t h = 0; h < kv->kv_heads; h++) {
            size_t head = (size_t)h * kv->head_bytes;
            memcpy((char *)kv_row(kv, i, to) + head, (char *)kv_row(kv, i, from) + head,
                   kv->position_bytes * (size_t)n);
        }
}
