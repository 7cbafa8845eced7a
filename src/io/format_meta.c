/*
 * Meta's folders: params.json, and shards that torch.save would write, zip archives of stored entries:
 *
 *   consolidated.00/data.pkl    a pickle (pickle.h): {"layers.0.attention.wq.weight": a tensor in storage "3", …}
 *   consolidated.00/data/3      the elements of storage 3
 *   consolidated.00/version, byteorder
 *
 * Each shard has rows of wq, wk, wv, w1, w3, output and the embedding, columns of wo and w2, and all of the norms. Where there
 * are more shards than KV heads, neighbours have the same head in wk and wv, so that every shard can attend by itself: of 4 KV
 * heads in 8 shards, shards 0 and 1 have head 0, shards 2 and 3 head 1. Meta's own resharding does so, too (llama-models,
 * checkpoint.py); n_kv_heads stays 4, and the mathematics are the same.
 */
#include "io/formats.h"

#include "base/crc32.h"
#include "base/json_file.h"

#include <inttypes.h>
#include <string.h>

/* An entry whose bytes are there. */
typedef struct Entry {
    size_t directory; /* where in the directory its checksum stands */
    size_t piece;     /* a weight's piece of the file; or 0, and the checksum is known */
} Entry;

/* An archive while it is put together. */
typedef struct Archive {
    Out *out;
    const char *name;  /* of its folder */
    StrBuf *directory; /* at the end, collected as entries come */
    Entry *entry;      /* [n], arena */
    uint64_t n;
} Archive;

enum { LOCAL = 30, ALIGN = 64, MOST_IN_32 = 0x7fffffff };

static void put16(StrBuf *out, unsigned v)
{
    uint16_t two = (uint16_t)v;
    strbuf_add(out, &two, sizeof two);
}

static void put32(StrBuf *out, uint64_t v)
{
    uint32_t four = (uint32_t)v;
    strbuf_add(out, &four, sizeof four);
}

static void put64(StrBuf *out, uint64_t v)
{
    strbuf_add(out, &v, sizeof v);
}

static OutFile *file_of(const Archive *a)
{
    return &a->out->file[a->out->n_files - 1];
}

/* What stands before the bytes of an entry. Checksum and sizes come behind them, as in torch's files. */
static void put_local(Archive *a, const char *name, size_t length)
{
    uint64_t end = file_of(a)->bytes + LOCAL + length + 4;
    unsigned padding = (unsigned)((ALIGN - end % ALIGN) % ALIGN);
    StrBuf local = {0};
    strbuf_add(&local, "PK\3\4", 4);
    put16(&local, 20);
    put16(&local, 8); /* they follow */
    for (int i = 0; i < 9; i++)
        put16(&local, 0); /* stored; no time; no checksum and sizes */
    put16(&local, (unsigned)length);
    put16(&local, 4 + padding);
    strbuf_add(&local, name, length);
    put16(&local, 0x4246); /* an extra field that fills up a cache line, as torch writes it */
    put16(&local, padding);
    for (unsigned i = 0; i < padding; i++)
        strbuf_putc(&local, 'Z');
    out_text(a->out, &local);
}

/* Begins an entry; its line in the directory. */
static void begin_entry(Archive *a, const char *path, uint64_t bytes)
{
    const char *name = arena_printf(a->out->arena, "%s/%s", a->name, path);
    size_t length = strlen(name);
    uint64_t at = file_of(a)->bytes;
    bool far = at > MOST_IN_32;
    StrBuf *d = a->directory;
    put_local(a, name, length);
    a->entry = arena_more(a->out->arena, a->entry, (size_t)a->n, sizeof *a->entry);
    strbuf_add(d, "PK\1\2", 4);
    put16(d, 45);
    put16(d, 45);
    put16(d, 8);
    put16(d, 0);
    put32(d, 0);
    a->entry[a->n] = (Entry){.directory = d->length};
    put32(d, 0);
    put32(d, bytes);
    put32(d, bytes);
    put16(d, (unsigned)length);
    put16(d, far ? 12 : 0);
    for (int i = 0; i < 5; i++)
        put16(d, 0); /* no comment, first disk, no attributes */
    put32(d, far ? UINT32_MAX : at);
    strbuf_add(d, name, length);
    if (far) {
        put16(d, 1); /* zip64: the offset */
        put16(d, 8);
        put64(d, at);
    }
}

/* Ends an entry whose bytes are the piece that was added last. */
static void end_entry(Archive *a, uint32_t crc, bool weight)
{
    OutFile *f = file_of(a);
    size_t piece = f->n - 1;
    uint32_t bytes = (uint32_t)f->piece[piece].n;
    uint32_t end[4] = {0x08074b50, crc, bytes, bytes};
    uint8_t *at = out_bytes(a->out, end, sizeof end);
    if (weight)
        file_of(a)->piece[piece].crc[0] = at + 4;
    else if (!a->directory->failed)
        memcpy(a->directory->text + a->entry[a->n].directory, &crc, sizeof crc);
    a->entry[a->n++].piece = weight ? piece : 0;
}

static void add_text(Archive *a, const Crc32 *crc, const char *path, const void *bytes, size_t n)
{
    begin_entry(a, path, n);
    out_bytes(a->out, bytes, n);
    end_entry(a, crc32(crc, 0, bytes, n), false);
}

static void end_archive(Archive *a)
{
    uint64_t at = file_of(a)->bytes, size = a->directory->length;
    bool far = at > MOST_IN_32 || a->n >= UINT16_MAX;
    StrBuf end = {0};
    uint8_t *directory = out_bytes(a->out, a->directory->text, a->directory->length);
    for (uint64_t i = 0; i < a->n; i++)
        if (a->entry[i].piece)
            file_of(a)->piece[a->entry[i].piece].crc[1] = directory + a->entry[i].directory;
    if (far) {
        strbuf_add(&end, "PK\6\6", 4);
        put64(&end, 44);
        put16(&end, 45);
        put16(&end, 45);
        put64(&end, 0); /* disks */
        put64(&end, a->n);
        put64(&end, a->n);
        put64(&end, size);
        put64(&end, at);
        strbuf_add(&end, "PK\6\7", 4);
        put32(&end, 0);
        put64(&end, at + size);
        put32(&end, 1);
    }
    strbuf_add(&end, "PK\5\6", 4);
    put32(&end, 0);
    put16(&end, far ? UINT16_MAX : (unsigned)a->n);
    put16(&end, far ? UINT16_MAX : (unsigned)a->n);
    put32(&end, size);
    put32(&end, far ? UINT32_MAX : at);
    put16(&end, 0);
    out_text(a->out, &end);
}

/* ---- the pickle ---- */

static void put_string(StrBuf *out, const char *text)
{
    strbuf_putc(out, 'X');
    put32(out, strlen(text));
    strbuf_puts(out, text);
}

static void put_int(StrBuf *out, int64_t v)
{
    bool large = v > INT32_MAX;
    strbuf_putc(out, large ? '\x8a' : 'J');
    if (large)
        strbuf_putc(out, 8);
    strbuf_add(out, &v, large ? 8 : 4);
}

static void put_tuple(StrBuf *out, const int64_t *number, int n)
{
    strbuf_putc(out, '(');
    for (int i = 0; i < n; i++)
        put_int(out, number[i]);
    strbuf_putc(out, 't');
}

static const char *storage_of(cvn_dtype dtype)
{
    return dtype == CVN_BF16  ? "BFloat16Storage"
           : dtype == CVN_F16 ? "HalfStorage"
                              : "FloatStorage";
}

/* _rebuild_tensor_v2(storage, 0, dims, strides, False, OrderedDict()) */
static void put_tensor(StrBuf *out, const char *name, int storage, cvn_dtype dtype, int rank,
                       const int64_t *dims)
{
    char key[16];
    const int64_t strides[2] = {rank == 2 ? dims[1] : 1, 1};
    snprintf(key, sizeof key, "%d", storage);
    put_string(out, name);
    strbuf_puts(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(out, "storage");
    strbuf_printf(out, "ctorch\n%s\n", storage_of(dtype));
    put_string(out, key);
    put_string(out, "cpu");
    put_int(out, rank == 2 ? dims[0] * dims[1] : dims[0]);
    strbuf_puts(out, "tQ");
    put_int(out, 0);
    put_tuple(out, dims, rank);
    put_tuple(out, strides, rank);
    strbuf_puts(out, "\x89"
                     "ccollections\nOrderedDict\n)RtR");
}

/* ---- a shard ---- */

/* The dimension along which a parameter is split, or -1. */
static int split_of(const Param *p, int shards)
{
    if (p->file_rank < 2)
        return -1;
    if (p->kind == PARAM_O || p->kind == PARAM_DOWN)
        return 1;
    return p->kind == PARAM_EMBED && p->file_dims[0] % shards != 0 ? 1 : 0;
}

/* How many shards have the same piece of a parameter. */
static int copies_of(const Param *p, const Model *m, int shards)
{
    const int64_t kv_heads = model_shape(m).kv_heads;
    bool repeated = (p->kind == PARAM_K || p->kind == PARAM_V) && shards > kv_heads;
    return repeated ? (int)(shards / kv_heads) : 1;
}

static int write_shard(Out *out, const FormatOptions *o, int shard, const Crc32 *crc,
                       StrBuf *pickle, StrBuf *directory, cvn_err *err)
{
    const ParamList *params = &out->model->params;
    Archive a = {.out = out,
                 .name = arena_printf(out->arena, "consolidated.%02d", shard),
                 .directory = directory};
    strbuf_add(pickle, "\x80\x02}(", 4);
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        int64_t dims[2] = {p->file_dims[0], p->file_rank == 2 ? p->file_dims[1] : 1};
        int along = split_of(p, o->shards);
        if (along >= 0)
            dims[along] /= o->shards / copies_of(p, out->model->desc, o->shards);
        put_tensor(pickle, p->file_name[NAMING_META], i, o->type->dtype, p->file_rank, dims);
    }
    strbuf_puts(pickle, "u.");
    if (pickle->failed)
        return err_set(err, CVN_EMEM, "no memory for a pickle");
    out_file(out, arena_printf(out->arena, "%s.pth", a.name));
    add_text(&a, crc, "data.pkl", pickle->text, pickle->length);
    add_text(&a, crc, "byteorder", "little", 6);
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        int copies = copies_of(p, out->model->desc, o->shards);
        int along = split_of(p, o->shards), shards = along < 0 ? 1 : o->shards / copies;
        uint64_t bytes = out_type_bytes((OutType){.dtype = o->type->dtype}, p->n / shards);
        if (bytes > MOST_IN_32)
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s' is too large for one shard; give more --shards", p->name);
        begin_entry(&a, arena_printf(out->arena, "data/%d", i), bytes);
        out_param(out, p, (OutType){.dtype = o->type->dtype}, along, shard / copies, shards);
        end_entry(&a, 0, true);
    }
    add_text(&a, crc, "version", "3\n", 2);
    if (directory->failed)
        return err_set(err, CVN_EMEM, "no memory for the directory of an archive");
    end_archive(&a);
    return CVN_OK;
}

/* Llama 3's scaling, as Meta's code has it. */
static bool is_llama3(const json_t *scaling)
{
    const json_t *type = json_object_get(scaling, "rope_type");
    return type && strcmp(json_string_value(type), "llama3") == 0 &&
           json_number_value(json_object_get(scaling, "low_freq_factor")) == 1 &&
           json_number_value(json_object_get(scaling, "high_freq_factor")) == 4 &&
           json_number_value(json_object_get(scaling, "original_max_position_embeddings")) == 8192;
}

/* What of the model, here in the words of a config.json, Meta's code cannot say; NULL: nothing. */
static const char *unsayable(const Model *m, const json_t *config)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    const ModelShape c = model_shape(m);
    return !model_has_names(m, NAMING_META) ? "settings that Llama does not have"
           : json_is_true(json_object_get(config, "attention_bias")) ||
                   json_is_true(json_object_get(config, "mlp_bias"))
               ? "biases"
           : c.head_dim * c.heads != c.width               ? "heads of another width"
           : !json_is_null(scaling) && !is_llama3(scaling) ? "such scaled rotary frequencies"
                                                           : NULL;
}

static const char *params_json(const Model *m, const json_t *config, Arena *arena)
{
    const ModelShape c = model_shape(m);
    const json_t *scaling = json_object_get(config, "rope_scaling");
    /* Two thirds of 4 dim times the multiplier, rounded down: a half more than wanted is on the safe side. */
    int64_t base = 2 * (4 * c.width) / 3;
    json_auto_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I}", "dim", (json_int_t)c.width,
                  "n_layers", (json_int_t)c.layers, "n_heads", (json_int_t)c.heads, "n_kv_heads",
                  (json_int_t)c.kv_heads, "vocab_size", (json_int_t)c.vocab, "multiple_of",
                  (json_int_t)1, "ffn_dim_multiplier", ((double)c.ffn + 0.5) / (double)base,
                  "norm_eps", json_number_value(json_object_get(config, "rms_norm_eps")),
                  "rope_theta", json_number_value(json_object_get(config, "rope_theta")),
                  "max_seq_len", (json_int_t)c.context);
    if (!json_is_null(scaling)) {
        json = json_with(json, "use_scaled_rope", json_true());
        json = json_with(json, "rope_scaling_factor",
                         json_real(json_number_value(json_object_get(scaling, "factor"))));
    }
    const char *text = json_arena_text(json, JSON_INDENT(2) | JSON_REAL_PRECISION(15), arena);
    return text;
}

static int check(const Out *out, const FormatOptions *o, const json_t *config, cvn_err *err)
{
    const ModelShape c = model_shape(out->model->desc);
    const char *refused = unsayable(out->model->desc, config);
    if (refused)
        return err_set(err, CVN_EUNSUPPORTED, "Meta's params.json cannot express that '%s' has %s",
                       out->model->path, refused);
    if (o->type->block || o->type->quant.kind)
        return err_set(err, CVN_EINVAL, "Meta folders do not support %s; use f32, f16 or bf16",
                       o->type->name);
    if ((c.kv_heads % o->shards && o->shards % c.kv_heads) || c.heads % o->shards ||
        c.ffn % o->shards || (c.vocab % o->shards && (c.width % o->shards || !c.tied)))
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " heads, %" PRId64 " KV heads, a feed-forward width of %" PRId64
                       " and %" PRId64 " tokens cannot be divided into %d shards",
                       c.heads, c.kv_heads, c.ffn, c.vocab, o->shards);
    return CVN_OK;
}

int format_meta(Out *out, const FormatOptions *o, cvn_err *err)
{
    Crc32 crc;
    json_t *config = model_json(out->model->desc, err);
    if (!config)
        return CVN_EUNSUPPORTED;
    CLEANUP(json_release, config);
    TRY(check(out, o, config, err));
    crc32_init(&crc);
    out->interleaved = true;
    for (int shard = 0; shard < o->shards; shard++) {
        StrBuf pickle = {0}, directory = {0};
        Cleanup cleanup[2];
        cleanup_push(&cleanup[0], strbuf_release, &pickle);
        cleanup_push(&cleanup[1], strbuf_release, &directory);
        int code = write_shard(out, o, shard, &crc, &pickle, &directory, err);
        cleanup_run(&cleanup[1]);
        cleanup_run(&cleanup[0]);
        TRY(code);
    }
    const char *text = params_json(out->model->desc, config, out->arena);
    if (!text)
        return err_set(err, CVN_EMEM, "no memory for params.json");
    out_file(out, "params.json");
    out_bytes(out, text, strlen(text));
    return CVN_OK;
}
