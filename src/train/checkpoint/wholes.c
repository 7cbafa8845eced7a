/* Reading: the tensors of a checkpoint, found among the slices of its files. */
#include "io/safetensors.h"
#include "train/checkpoint/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_wholes_init(CheckpointWholes *wholes, const char *folder, const Manifest *manifest,
                           Arena *arena, cvn_err *err)
{
    *wholes = (CheckpointWholes){0};
    map_init(&wholes->by_name, arena);
    wholes->whole = arena_array(arena, manifest->n_tensors, sizeof *wholes->whole);
    for (; wholes->n < (int)manifest->n_tensors; wholes->n++) {
        const ManifestTensor *tensor = &manifest->tensor[wholes->n];
        bool added;
        wholes->whole[wholes->n] = (CheckpointWhole){tensor->name, tensor->type, NULL};
        *map_put(&wholes->by_name, tensor->name, strlen(tensor->name), &added) =
            (uint64_t)wholes->n;
        if (!added)
            return err_set(err, CVN_EFORMAT, "'%s/" MANIFEST_NAME "' names '%s' twice", folder,
                           tensor->name);
    }
    return CVN_OK;
}

const CheckpointWhole *checkpoint_wholes_find(const CheckpointWholes *wholes, const char *name)
{
    const uint64_t *at = map_get(&wholes->by_name, name, strlen(name));
    return at ? &wholes->whole[*at] : NULL;
}

static bool parse_number(const char **text, int64_t *value)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    *value = strtoll(*text, &end, 10);
    *text = end;
    return true;
}

/* "0+16 8+8" within a type; see box_text in shards.c. */
static bool parse_box(const char *text, const cvn_type *type, Box *box)
{
    *box = (Box){.rank = type->rank};
    if (type->rank == 0)
        return strcmp(text, "all") == 0;
    for (int d = 0; d < type->rank; d++) {
        int64_t *first = &box->first[d], *count = &box->count[d];
        if (d > 0 && *text++ != ' ')
            return false;
        if (!parse_number(&text, first) || *text++ != '+' || !parse_number(&text, count))
            return false;
        if (*first > type->dim[d] || *count > type->dim[d] - *first)
            return false;
    }
    return *text == '\0';
}

/* A file without metadata of a tensor has the whole of it, in whatever shape other programs have it. */
static int add_slice(CheckpointWholes *wholes, const char *path, const IoTensor *slice,
                     const Map *metadata, Arena *arena, cvn_err *err)
{
    CheckpointWhole *whole =
        (CheckpointWhole *)(uintptr_t)checkpoint_wholes_find(wholes, slice->name);
    const uint64_t *text = map_get(metadata, slice->name, strlen(slice->name));
    CheckpointShard shard = {.data = slice->data};
    bool good = whole && slice->coding == IO_PLAIN && slice->dtype == whole->type.dtype;
    if (good && !text)
        shard.box = box_whole(&whole->type);
    else
        good = good && parse_box((const char *)(uintptr_t)*text, &whole->type, &shard.box) &&
               slice->rank == whole->type.rank;
    for (int d = 0; good && text && d < slice->rank; d++)
        good = slice->dims[d] == shard.box.count[d];
    if (!good || slice->n != box_elements(&shard.box))
        return err_set(err, CVN_EFORMAT,
                       "'%s': tensor '%s' is not a slice of a tensor in the manifest", path,
                       slice->name);
    shard.next = whole->shard;
    whole->shard = arena_copy(arena, &shard, sizeof shard);
    return CVN_OK;
}

int checkpoint_wholes_add(CheckpointWholes *wholes, const char *path, const uint8_t *data,
                          size_t size, Arena *arena, cvn_err *err)
{
    IoTensors slices;
    Map metadata;
    io_tensors_init(&slices, arena);
    map_init(&metadata, arena);
    TRY(st_read(&slices, path, data, size, &metadata, err));
    for (size_t i = 0; i < slices.n; i++)
        TRY(add_slice(wholes, path, &slices.tensor[i], &metadata, arena, err));
    return CVN_OK;
}

int checkpoint_wholes_check(const CheckpointWholes *wholes, const char *folder, cvn_err *err)
{
    for (int i = 0; i < wholes->n; i++) {
        const CheckpointWhole *whole = &wholes->whole[i];
        Box common;
        int64_t n = 0;
        bool twice = false;
        for (const CheckpointShard *a = whole->shard; a; a = a->next) {
            n += box_elements(&a->box);
            for (const CheckpointShard *b = a->next; b && !twice; b = b->next)
                twice = box_intersect(&a->box, &b->box, &common);
        }
        if (twice || n != cvn_type_elements(&whole->type))
            return err_set(err, CVN_EFORMAT,
                           "'%s': the slices of '%s' do not make it up: %" PRId64 " of %" PRId64
                           " elements%s",
                           folder, whole->name, n, cvn_type_elements(&whole->type),
                           twice ? ", some of them twice" : "");
    }
    return CVN_OK;
}

void checkpoint_whole_copy(const CheckpointWhole *whole, const BoxArray *to, void *target)
{
    for (const CheckpointShard *shard = whole->shard; shard; shard = shard->next) {
        BoxArray from = box_packed(&shard->box);
        box_copy(&from, shard->data, to, target, whole->type.dtype);
    }
}

/* The elements lie in rows, along the last dimension: each is looked for in every shard. */
void checkpoint_whole_range(const CheckpointWhole *whole, int64_t first, int64_t n, void *target)
{
    const cvn_type *type = &whole->type;
    const CheckpointShard *shard = whole->shard;
    int last = type->rank - 1;
    int64_t length = type->rank ? type->dim[last] : 1;
    size_t size = cvn_dtype_bytes(type->dtype, 1);
    if (shard && box_elements(&shard->box) == cvn_type_elements(type)) {
        memcpy(target, shard->data + (size_t)first * size, (size_t)n * size);
        return;
    }
    while (n > 0) {
        int64_t row = first / length, column = first % length;
        int64_t here = length - column < n ? length - column : n;
        Box box = {.rank = type->rank};
        for (int d = last - 1; d >= 0; d--) {
            box.first[d] = row % type->dim[d];
            box.count[d] = 1;
            row /= type->dim[d];
        }
        if (type->rank) {
            box.first[last] = column;
            box.count[last] = here;
        }
        BoxArray to = box_packed(&box);
        checkpoint_whole_copy(whole, &to, target);
        target = (char *)target + (size_t)here * size;
        first += here;
        n -= here;
    }
}
