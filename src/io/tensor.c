#include "io/tensor.h"

#include <stdio.h>
#include <string.h>

void io_tensors_init(IoTensors *list, Arena *arena)
{
    *list = (IoTensors){.arena = arena};
    map_init(&list->by_name, arena);
}

int io_tensors_add(IoTensors *list, const IoTensor *tensor, cvn_err *err)
{
    bool added;
    uint64_t *index = map_put(&list->by_name, tensor->name, strlen(tensor->name), &added);
    if (!added)
        return err_set(err, CVN_EFORMAT, "'%s' and '%s' both contain the tensor '%s'",
                       list->tensor[*index].file, tensor->file, tensor->name);
    list->tensor = arena_more(list->arena, list->tensor, list->n, sizeof *list->tensor);
    *index = list->n;
    list->tensor[list->n] = *tensor;
    list->tensor[list->n].name = arena_string(list->arena, tensor->name);
    list->n++;
    return CVN_OK;
}

bool io_name_is_clean(const char *name)
{
    size_t n = 0;
    while ((unsigned char)name[n] >= ' ' && name[n] != 0x7f && n <= 256)
        n++;
    return n > 0 && n <= 256 && name[n] == '\0';
}

bool io_ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

const IoTensor *io_tensors_find(const IoTensors *list, const char *name)
{
    const uint64_t *index = map_get(&list->by_name, name, strlen(name));
    return index ? &list->tensor[*index] : NULL;
}

bool io_shape_size(const int64_t *dims, int rank, int bits, int64_t *n, size_t *bytes)
{
    /* A zero anywhere must not hide an overflow elsewhere, so zeros are counted as ones until the
     * end. */
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0)
            return false;
        empty |= dims[i] == 0;
        if (__builtin_mul_overflow(product, dims[i] ? dims[i] : 1, &product))
            return false;
    }
    *n = empty ? 0 : product;
    int64_t all_bits;
    if (__builtin_mul_overflow(*n, (int64_t)bits, &all_bits) || all_bits % 8 != 0)
        return false;
    *bytes = (size_t)all_bits / 8;
    return true;
}

const char *io_shape_text(const int64_t *dims, int rank, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i <= rank && used < size; i++) {
        int n = i < rank ? snprintf(text + used, size - used, "%s%lld", i ? ", " : "[",
                                    (long long)dims[i])
                         : snprintf(text + used, size - used, "%s]", rank ? "" : "[");
        used += n > 0 ? (size_t)n : 0;
    }
    return text;
}
