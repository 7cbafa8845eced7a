/*
 * What a session's cache holds, as a safetensors file:
 *
 *     "__metadata__"  "cache_of"  16 hexadecimal digits: of the model, and of how it is computed
 *                     "crc32c"    8: of the bytes of all tensors, as they follow each other
 *                     "adapter"   decimal: number of the engine's adapter; 0 where it has none, too
 *     "tokens"        I32 [n]
 *     "cache.N.k" …   [kv_heads, n, width], of every layer N, and what else the graph has of its cache
 *
 * A file is taken when it is of the same model: the shape, the rotary frequencies in this context, types and rounding, and of each
 * tensor, and each tensor of an adapter, its name, size, and 16 pieces of its bytes. Weights are far more than the cache,
 * and those of another training differ everywhere. The checksum is against damage; a file that somebody has made to deceive can make an answer be nonsense, and nothing
 * else: sizes are checked, ids are of the vocabulary.
 */
#include "base/crc32c.h"
#include "base/protect.h"
#include "io/safetensors.h"
#include "serve/pages.h"
#include "serve/prefix.h"
#include "serve/session.h"
#include "serve/windows.h"
#include "shard/box.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- of whom it is ---- */

static void add_tensors(StrBuf *all, const IoTensors *tensors)
{
    enum { PIECES = 16, PIECE = 64 };
    for (size_t i = 0; i < tensors->n; i++) {
        const IoTensor *t = &tensors->tensor[i];
        strbuf_printf(all, "%s %s %zu;", t->name, t->type, t->bytes);
        for (size_t k = 0; t->data && k < PIECES; k++) {
            size_t at = k * (t->bytes / PIECES), rest = t->bytes - at;
            strbuf_add(all, (const char *)t->data + at, rest < PIECE ? rest : PIECE);
        }
        for (int k = 0; k < t->n_parts; k++)
            strbuf_add(all, (const char *)t->part[k].data,
                       t->part[k].bytes < PIECE ? t->part[k].bytes : PIECE);
    }
}

static int digest(const cvn_engine *e, char text[17], cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf all = {0};
    model_add_identity(e->model->io.desc, e->options.context, &all);
    strbuf_printf(&all, "%d %d %d ", (int)e->model->dtype, e->steps.int8_inputs,
                  (int)engine_kv_dtype(e));
    add_tensors(&all, &e->model->io.tensors);
    for (int i = 0; i < e->adapters.n; i++) {
        const IoAdapter *a = &e->adapters.adapter[i];
        strbuf_printf(&all, "%d %" PRId64 " %a;", i, a->options.rank, a->options.alpha);
        add_tensors(&all, &a->tensors);
    }
    bool failed = all.failed;
    if (!failed)
        snprintf(text, 17, "%016" PRIx64, hash_bytes(all.text, all.length));
    return failed ? err_set(err, CVN_EMEM, "no memory for the digest of a model") : CVN_OK;
}

/* One process has it all, no other text has pages, and they lie as they are counted. */
static int check_engine(const cvn_engine *e, cvn_err *err)
{
    bool plain = e->options.slots == 1 && cluster_size(e->options.cluster) == 1;
    for (int i = 0; i < e->n_caches && plain; i++)
        plain = runtime_buffer(&e->rt, ROLE_CACHE, i)->layout == LAYOUT_PLAIN;
    if (plain)
        return CVN_OK;
    return err_set(err, CVN_EUNSUPPORTED,
                   "the cache of several slots or processes cannot be saved");
}

/* Tensors of a cache; of a file there are as many of each layer. */
static int tensors_of(const cvn_engine *e)
{
    return e->n_caches / e->steps.caches.n;
}

static int file_tensors(const cvn_engine *e)
{
    return (int)model_layers(e->model->io.desc) * tensors_of(e);
}

/* The buffer that has tensor i of a file, and what a file calls it. */
static Buffer *buffer_of(const cvn_engine *e, int i, char name[64])
{
    const int n = tensors_of(e), cache = e->steps.caches.layer[i / n].cache;
    Buffer *b = runtime_buffer(&e->rt, ROLE_CACHE, cache * n + i % n);
    snprintf(name, 64, "cache.%d%s", i / n, strrchr(b->name, '.'));
    return b;
}

/* ---- writing ---- */

/* A text's n positions of a layer, [heads, n, width], beside its page i in a cache [pages, heads, positions, width]. */
static BoxArray beside_page(const cvn_engine *e, const cvn_type *t, int layer, int text, int64_t n,
                            int64_t i)
{
    const Pages *p = e->pages;
    const int32_t *page = p->table[e->steps.caches.layer[layer].table].page;
    const Box box = {.rank = 4,
                     .first = {page[text * p->each + i], 0, -i * p->size},
                     .count = {1, t->dim[1], n, t->dim[3]}};
    return box_packed(&box);
}

/* Those of the text in host memory, gathered from the shards. */
static int gather(const cvn_engine *e, const Buffer *b, int layer, int text, int64_t n, void *out,
                  cvn_err *err)
{
    const Runtime *rt = &e->rt;
    for (int d = 0; d < rt->info.n_local; d++) {
        const BoxArray shard = buffer_shard(rt, b, d);
        size_t bytes = cvn_type_bytes(&b->local);
        void *at = buffer_address(rt, b, d);
        SCOPED(scoped_free) void *fetched = at ? NULL : malloc(bytes);
        if (!at && !(at = fetched))
            return err_set(err, CVN_EMEM, "no memory for %zu bytes of a cache", bytes);
        if (fetched)
            TRY(rt->backend->download(rt->devices, b->memory[d], 0, bytes, fetched, err));
        for (int64_t i = 0; i < e->pages->held[text]; i++) {
            const BoxArray to = beside_page(e, &b->type, layer, text, n, i);
            if (to.box.first[0] >= 0)
                box_copy(&shard, at, &to, out, b->type.dtype);
        }
    }
    return CVN_OK;
}

typedef struct Saving {
    const cvn_engine *e;
    int text; /* of the session, … */
    Text is;  /* … and its tokens */
    StWriter writer;
    void *part;     /* owned: of one cache */
    size_t largest; /* bytes of it */
    uint32_t crc;
} Saving;

static size_t part_bytes(const Saving *w, const Buffer *b)
{
    return cvn_dtype_bytes(b->type.dtype, b->type.dim[1] * w->is.n * b->type.dim[3]);
}

/* All bytes in their order, into the checksum, or, the second time, into the file. */
static int go_through(Saving *w, bool write, cvn_err *err)
{
    const cvn_engine *e = w->e;
    size_t bytes = (size_t)w->is.n * sizeof *w->is.token;
    w->crc = write ? w->crc : crc32c(0, w->is.token, bytes);
    if (write)
        TRY(st_writer_data(&w->writer, 0, w->is.token, bytes, err));
    for (int i = 0; i < file_tensors(e); i++) {
        char name[64];
        const Buffer *b = buffer_of(e, i, name);
        bytes = part_bytes(w, b);
        memset(w->part, 0, bytes); /* what lies behind windows */
        TRY(gather(e, b, i / tensors_of(e), w->text, w->is.n, w->part, err));
        w->crc = write ? w->crc : crc32c(w->crc, w->part, bytes);
        if (write)
            TRY(st_writer_data(&w->writer, (size_t)i + 1, w->part, bytes, err));
    }
    return CVN_OK;
}

static int save(Saving *w, cvn_err *err)
{
    const cvn_engine *e = w->e;
    char model[17], number[16];
    TRY(digest(e, model, err));
    TRY(st_writer_declare(&w->writer, "tokens", CVN_I32, 1, &w->is.n, err));
    for (int i = 0; i < file_tensors(e); i++) {
        char name[64];
        const Buffer *b = buffer_of(e, i, name);
        const int64_t dims[] = {b->type.dim[1], w->is.n, b->type.dim[3]};
        size_t bytes = part_bytes(w, b);
        w->largest = bytes > w->largest ? bytes : w->largest;
        TRY(st_writer_declare(&w->writer, name, b->type.dtype, 3, dims, err));
    }
    w->part = malloc(w->largest);
    if (!w->part)
        return err_set(err, CVN_EMEM, "no memory for a part of a cache");
    TRY(go_through(w, false, err));
    TRY(st_writer_metadata(&w->writer, "cache_of", model, err));
    snprintf(number, sizeof number, "%08" PRIx32, w->crc);
    TRY(st_writer_metadata(&w->writer, "crc32c", number, err));
    snprintf(number, sizeof number, "%d", w->is.adapter);
    TRY(st_writer_metadata(&w->writer, "adapter", number, err));
    TRY(st_writer_begin(&w->writer, err));
    TRY(go_through(w, true, err));
    return st_writer_commit(&w->writer, err);
}

int cvn_session_save(const cvn_session *s, const char *path, cvn_err *err)
{
    Saving w = {.e = s->e, .text = prefix_own(s->e, s)};
    cvn_err local = {0};
    err = err ? err : &local;
    TRY(check_engine(s->e, err));
    if (w.text < 0)
        return err_set(err, CVN_EINVAL, "the session's cache is empty");
    w.is = s->e->prefix->kept[w.text - s->e->options.slots];
    int code = st_writer_open(&w.writer, path, err);
    if (code == CVN_OK)
        code = save(&w, err);
    st_writer_free(&w.writer);
    free(w.part);
    return code;
}

/* ---- reading ---- */

typedef struct Loading {
    cvn_session *s;
    const char *path;
    Arena arena;
    FileMap map;
    IoTensors tensors;
    Map metadata;
    const IoTensor *tokens;
    int adapter;
    int text;   /* that is filled, … */
    int buffer; /* … and in which of the caches' */
} Loading;

static const char *said(const Loading *r, const char *key)
{
    const uint64_t *value = map_get(&r->metadata, key, strlen(key));
    return value ? (const char *)(uintptr_t)*value : "";
}

/* Tensor i of the file; *name: what it is to be called. */
static const IoTensor *cache_tensor(const Loading *r, int i, char name[64])
{
    const Buffer *b = buffer_of(r->s->e, i, name);
    const IoTensor *t = io_tensors_find(&r->tensors, name);
    bool fits = t && t->coding == IO_PLAIN && t->dtype == b->type.dtype && t->rank == 3 &&
                t->dims[0] == b->type.dim[1] && t->dims[1] == r->tokens->n &&
                t->dims[2] == b->type.dim[3];
    return fits ? t : NULL;
}

/* That everything is there, and whole. */
static int check(Loading *r, cvn_err *err)
{
    const cvn_engine *e = r->s->e;
    char model[17], crc[16];
    TRY(digest(e, model, err));
    if (!*said(r, "cache_of"))
        return err_set(err, CVN_EFORMAT, "'%s' is not a saved KV cache", r->path);
    if (strcmp(said(r, "cache_of"), model) != 0)
        return err_set(err, CVN_EFORMAT,
                       "the KV cache in '%s' belongs to another model or other settings", r->path);
    r->adapter = (int)strtol(said(r, "adapter"), NULL, 10);
    snprintf(crc, sizeof crc, "%d", r->adapter);
    if (strcmp(crc, said(r, "adapter")) != 0 || r->adapter < -1 ||
        (r->adapter > 0 && r->adapter >= e->adapters.n))
        return err_set(err, CVN_EFORMAT, "'%s' belongs to an adapter that the engine does not have",
                       r->path);
    const IoTensor *tokens = r->tokens = io_tensors_find(&r->tensors, "tokens");
    if (!tokens || tokens->coding != IO_PLAIN || tokens->dtype != CVN_I32 || tokens->rank != 1 ||
        tokens->n < 1 || tokens->n > e->options.context)
        return err_set(err, CVN_EFORMAT,
                       "'%s' must have 1 to %" PRId64 " tokens, as many as fit in the context",
                       r->path, e->options.context);
    uint32_t sum = crc32c(0, tokens->data, tokens->bytes);
    for (int i = 0; i < file_tensors(e); i++) {
        char name[64];
        const IoTensor *t = cache_tensor(r, i, name);
        if (!t)
            return err_set(err, CVN_EFORMAT, "'%s' has no '%s' of its type and shape", r->path,
                           name);
        sum = crc32c(sum, t->data, t->bytes);
    }
    snprintf(crc, sizeof crc, "%08" PRIx32, sum);
    if (strcmp(crc, said(r, "crc32c")) != 0)
        return err_set(err, CVN_EFORMAT, "'%s' is damaged: its checksum is %s, not '%.8s'", r->path,
                       crc, said(r, "crc32c"));
    for (int64_t i = 0; i < tokens->n; i++) {
        int32_t id;
        memcpy(&id, tokens->data + (size_t)i * sizeof id, sizeof id);
        if (id < 0 || id >= model_vocab(e->model->io.desc))
            return err_set(err, CVN_EFORMAT, "'%s' has token %d, which is not in the vocabulary",
                           r->path, (int)id);
    }
    return CVN_OK;
}

/* What the file has of a box, and zeros. */
static int read_part(void *context, const Box *box, void *out, cvn_err *err)
{
    const Loading *r = context;
    const cvn_engine *e = r->s->e;
    const BoxArray to = box_packed(box);
    const cvn_dtype dtype = runtime_buffer(&e->rt, ROLE_CACHE, r->buffer)->type.dtype;
    memset(out, 0, cvn_dtype_bytes(dtype, box_elements(box)));
    for (int i = 0; i < file_tensors(e); i++) {
        char name[64];
        if (buffer_of(e, i, name)->index != r->buffer)
            continue;
        const IoTensor *t = cache_tensor(r, i, name);
        const cvn_type type = CVN_TYPE(dtype, 1, t->dims[0], t->dims[1], t->dims[2]);
        for (int64_t k = 0; k < e->pages->held[r->text]; k++) {
            const BoxArray from = beside_page(e, &type, i / tensors_of(e), r->text, t->dims[1], k);
            if (from.box.first[0] >= 0)
                box_copy(&from, t->data, &to, out, dtype);
        }
    }
    (void)err;
    return CVN_OK;
}

static int load(void *of, cvn_err *err)
{
    Loading *r = of;
    cvn_session *s = r->s;
    cvn_engine *e = s->e;
    io_tensors_init(&r->tensors, &r->arena);
    map_init(&r->metadata, &r->arena);
    TRY(file_map(&r->map, r->path, err));
    TRY(st_read(&r->tensors, r->path, r->map.data, r->map.size, &r->metadata, err));
    TRY(check(r, err));
    while (prefix_give_up(e, 0)) /* all pages are written */
        ;
    r->text = prefix_place(e);
    windows_take(e, r->text, r->tokens->n); /* what is behind windows is in no file */
    for (r->buffer = 0; r->buffer < e->n_caches; r->buffer++) {
        const Source source = {.read = read_part, .context = r};
        TRY(buffer_fill(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, r->buffer), &source, err));
    }
    const Text is = {.token = (const void *)r->tokens->data,
                     .n = r->tokens->n,
                     .owner = s,
                     .adapter = r->adapter};
    if (!prefix_put(e, r->text, is))
        return err_set(err, CVN_EMEM, "no memory for the tokens of a conversation");
    return CVN_OK;
}

int cvn_session_load(cvn_session *s, const char *path, cvn_err *err)
{
    cvn_err local = {0};
    err = err ? err : &local;
    Loading r = {.s = s, .path = path};
    TRY(check_engine(s->e, err));
    if (s->e->queue.running)
        return err_set(err, CVN_EINVAL, "the slot is busy; load when its request has finished");
    TRY(arena_init(&r.arena, err));
    int code = protect(load, &r, "reading the cache of a conversation", err);
    file_unmap(&r.map);
    arena_free(&r.arena);
    return code;
}
