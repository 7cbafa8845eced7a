#include "io/meta.h"

#include "base/json_file.h"
#include "base/json_reader.h"
#include "io/torch_file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_SHARDS 64

/* Keys of params.json. Any other one with a value that is not null is refused. */
static const char *const known_keys[] = {"dim",
                                         "n_layers",
                                         "n_heads",
                                         "n_kv_heads",
                                         "vocab_size",
                                         "multiple_of",
                                         "norm_eps",
                                         "ffn_dim_multiplier",
                                         "rope_theta",
                                         "use_scaled_rope",
                                         "rope_scaling_factor",
                                         "max_seq_len",
                                         "max_batch_size",
                                         "model_parallel_size"};

static void check_keys(JsonReader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->json, key, value)
    {
        size_t i = 0, n = sizeof known_keys / sizeof *known_keys;
        while (i < n && strcmp(key, known_keys[i]) != 0)
            i++;
        if (i == n && !json_is_null(value) && r->code == CVN_OK)
            r->code = err_set(r->err, CVN_EUNSUPPORTED,
                              "'%s': unknown setting '%.80s', which may change the mathematics",
                              r->file, key);
    }
}

/* Meta's rule: two thirds of 4 dim, times the multiplier, rounded down each time, then up to a
 * multiple. */
static int64_t feed_forward_width(int64_t dim, double multiplier, int64_t multiple_of)
{
    int64_t width = 2 * (4 * dim) / 3;
    if (multiplier > 0)
        width = (int64_t)(multiplier * (double)width);
    return (width + multiple_of - 1) / multiple_of * multiple_of;
}

/* What the family fixes and params.json does not say. */
static json_t *with_family(json_t *config, int64_t vocab, double eps, bool scaled)
{
    bool llama3 = vocab == 128256;
    if (llama3) {
        config = json_with(config, "bos_token_id", json_integer(128000));
        config = json_with(config, "eos_token_id",
                           json_integers((const int64_t[]){128001, 128008, 128009}, 3));
    }
    return json_with(config, "max_position_embeddings",
                     json_integer(scaled       ? 131072
                                  : llama3     ? 8192
                                  : eps < 5e-6 ? 2048
                                               : 4096));
}

/* The same in the words of a config.json. */
static json_t *in_words(JsonReader *r, const IoTensors *tensors)
{
    const IoTensor *embed = io_tensors_find(tensors, "tok_embeddings.weight");
    int64_t dim = 4096, layers = 32, heads = 32, kv_heads, vocab = 32000, multiple_of = 256;
    int64_t context = 0;
    double multiplier = 0, eps = 1e-5, theta = 10000;
    bool scaled = json_is_true(json_object_get(r->json, "use_scaled_rope"));
    json_get_int(r, "dim", &dim);
    json_get_int(r, "n_layers", &layers);
    json_get_int(r, "n_heads", &heads);
    kv_heads = heads;
    json_get_int(r, "n_kv_heads", &kv_heads);
    json_get_int(r, "vocab_size", &vocab);
    json_get_int(r, "multiple_of", &multiple_of);
    json_get_int(r, "max_seq_len", &context);
    json_get_real(r, "ffn_dim_multiplier", &multiplier);
    json_get_real(r, "norm_eps", &eps);
    json_get_real(r, "rope_theta", &theta);
    double factor = dim < 4096 ? 32 : 8;
    json_get_real(r, "rope_scaling_factor", &factor);
    check_keys(r);
    if (r->code != CVN_OK)
        return NULL;
    if (dim < 1 || dim > 1 << 20 || heads < 1 || dim % heads != 0 || multiple_of < 1 ||
        multiple_of > 1 << 20 || !(multiplier >= 0 && multiplier <= 100)) {
        r->code = err_set(r->err, CVN_EFORMAT,
                          "'%s': dim %" PRId64 ", n_heads %" PRId64 ", multiple_of %" PRId64
                          " or ffn_dim_multiplier %g is out of range",
                          r->file, dim, heads, multiple_of, multiplier);
        return NULL;
    }
    if (vocab == -1 && embed && embed->rank == 2)
        vocab = embed->dims[0];
    json_t *config =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:b, s:s}", "model_type", "llama",
                  "hidden_size", (json_int_t)dim, "num_hidden_layers", (json_int_t)layers,
                  "num_attention_heads", (json_int_t)heads, "num_key_value_heads",
                  (json_int_t)kv_heads, "vocab_size", (json_int_t)vocab, "intermediate_size",
                  (json_int_t)feed_forward_width(dim, multiplier, multiple_of), "rms_norm_eps", eps,
                  "rope_theta", theta, "tie_word_embeddings",
                  !io_tensors_find(tensors, "output.weight"), "torch_dtype",
                  embed && embed->dtype == CVN_BF16  ? "bfloat16"
                  : embed && embed->dtype == CVN_F16 ? "float16"
                                                     : "float32");
    if (scaled)
        config = json_with(config, "rope_scaling",
                           json_pack("{s:s, s:f, s:i, s:i, s:i}", "rope_type", "llama3", "factor",
                                     factor, "low_freq_factor", 1, "high_freq_factor", 4,
                                     "original_max_position_embeddings", 8192));
    config = with_family(config, vocab, eps, scaled);
    if (json_get(r, "max_seq_len"))
        config = json_with(config, "max_position_embeddings", json_integer(context));
    if (!config)
        r->code = err_set(r->err, CVN_EMEM, "no memory to read '%s'", r->file);
    return config;
}

int meta_model(Model **model, const char *file, const json_t *params, const IoTensors *tensors,
               Arena *arena, cvn_err *err)
{
    JsonReader r = {file, params, err, CVN_OK};
    json_t *config = in_words(&r, tensors);
    CLEANUP(json_release, config);
    TRY(r.code);
    TRY(model_parse(model, file, config, NULL, arena, err));
    model_set_interleaved(*model, true);
    return CVN_OK;
}

/* Along which dimension a tensor is split over shards; -1 when each shard has all of it. `params`
 * tells for the embedding: the dimension whose shards add up to dim is the split one. */
static int split_dim(const IoTensor *shard, int64_t n_shards, int64_t dim)
{
    static const char *const columns[] = {"attention.wo.weight", "feed_forward.w2.weight"};
    if (shard->rank != 2)
        return -1;
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (io_ends_with(shard->name, columns[i]))
            return 1;
    if (strcmp(shard->name, "tok_embeddings.weight") == 0)
        return dim % n_shards == 0 && shard->dims[1] == dim / n_shards ? 1 : 0;
    return 0;
}

/* What params.json says of the shapes of tensors. */
typedef struct MetaShape {
    int64_t dim;     /* of the residual stream */
    int64_t kv_rows; /* of wk and wv: KV heads times the size of a head */
} MetaShape;

static MetaShape shape_of(const json_t *params)
{
    int64_t dim = json_integer_value(json_object_get(params, "dim"));
    int64_t heads = json_integer_value(json_object_get(params, "n_heads"));
    const json_t *given = json_object_get(params, "n_kv_heads");
    int64_t kv_heads = json_is_integer(given) ? json_integer_value(given) : heads;
    bool sane = heads > 0 && dim > 0 && kv_heads > 0 && kv_heads <= heads;
    return (MetaShape){.dim = dim, .kv_rows = sane ? dim / heads * kv_heads : 0};
}

/* How many neighbouring shards have the same rows of a tensor: more than 1 of keys and values in more shards than KV heads. */
static size_t copies_of(const IoTensor *shard, size_t n_shards, MetaShape shape)
{
    bool kv = io_ends_with(shard->name, "attention.wk.weight") ||
              io_ends_with(shard->name, "attention.wv.weight");
    if (!kv || shard->rank != 2 || shape.kv_rows < 1 || shard->dims[0] < 1 ||
        shape.kv_rows % shard->dims[0] != 0)
        return 1;
    size_t different = (size_t)(shape.kv_rows / shard->dims[0]);
    return different < n_shards && n_shards % different == 0 ? n_shards / different : 1;
}

/* One tensor made of the same-named tensors of all shards. */
static int merge_tensor(Folder *folder, const IoTensors *shards, size_t n_shards, size_t index,
                        MetaShape shape, cvn_err *err)
{
    Arena *arena = folder->tensors.arena;
    const IoTensor *first = &shards[0].tensor[index];
    IoTensor *piece = arena_array(arena, n_shards, sizeof *piece);
    size_t copies = copies_of(first, n_shards, shape);
    for (size_t i = 0; i < n_shards; i++) {
        const IoTensor *found = io_tensors_find(&shards[i], first->name);
        if (!found)
            return err_set(err, CVN_EFORMAT,
                           "'%s' holds tensor '%s', but consolidated.%02zu.pth does not",
                           first->file, first->name, i);
        if (found->rank != first->rank || found->dtype != first->dtype ||
            found->coding != first->coding ||
            memcmp(found->dims, first->dims, sizeof first->dims) != 0)
            return err_set(err, CVN_ESHAPE,
                           "tensor '%s' differs in shape or type between '%s' and '%s'",
                           first->name, first->file, found->file);
        piece[i / copies] = *found;
    }
    IoTensor merged = *first;
    int along = split_dim(first, (int64_t)n_shards, shape.dim);
    n_shards /= copies;
    if (along >= 0 && n_shards > 1) {
        merged.data = NULL;
        merged.part = piece;
        merged.n_parts = (int)n_shards;
        merged.split_dim = along;
        if (__builtin_mul_overflow(merged.dims[along], (int64_t)n_shards, &merged.dims[along]) ||
            __builtin_mul_overflow(merged.n, (int64_t)n_shards, &merged.n))
            return err_set(err, CVN_EFORMAT, "'%s': the shards of tensor '%s' are too large",
                           first->file, first->name);
        merged.bytes *= n_shards; /* the shards are in mapped files, so their sum fits */
    }
    return io_tensors_add(&folder->tensors, &merged, err);
}

/* Opens consolidated.00.pth, .01.pth, … until one is missing, each into its own list. */
static int open_shards(Folder *folder, const char *path, IoTensors *shards, Arena *arena,
                       cvn_err *err)
{
    folder->map = arena_array(arena, MAX_SHARDS, sizeof *folder->map);
    for (int i = 0; i < MAX_SHARDS; i++) {
        const char *name = arena_printf(arena, "%s/consolidated.%02d.pth", path, i);
        if (!file_exists(name) && i > 0)
            return CVN_OK;
        FileMap *map = &folder->map[folder->n_maps];
        int code = file_map(map, name, err);
        if (code != CVN_OK)
            return code;
        io_tensors_init(&shards[folder->n_maps++], arena);
        if ((code = torch_read(&shards[i], name, map->data, map->size, err)) != CVN_OK)
            return code;
    }
    return err_set(err, CVN_EUNSUPPORTED, "'%s' has more than %d shards", path, MAX_SHARDS - 1);
}

static int merge_shards(Folder *folder, const IoTensors *shards, MetaShape shape, cvn_err *err)
{
    for (size_t i = 1; i < folder->n_maps; i++)
        if (shards[i].n != shards[0].n)
            return err_set(
                err, CVN_EFORMAT,
                "consolidated.%02zu.pth has %zu tensors where consolidated.00.pth has %zu", i,
                shards[i].n, shards[0].n);
    io_tensors_init(&folder->tensors, shards[0].arena);
    for (size_t i = 0; i < shards[0].n; i++) {
        int code = merge_tensor(folder, shards, folder->n_maps, i, shape, err);
        if (code != CVN_OK)
            return code;
    }
    return CVN_OK;
}

int meta_open(Folder *folder, Model **model, const char *path, Arena *arena, cvn_err *err)
{
    IoTensors shards[MAX_SHARDS];
    Cleanup cleanup[2];
    const char *params_path = arena_printf(arena, "%s/params.json", path);
    *folder = (Folder){0};
    json_t *params = json_object_read(params_path, err);
    if (!params)
        return CVN_EFORMAT;
    cleanup_push(&cleanup[0], folder_release, folder);
    cleanup_push(&cleanup[1], json_release, params);
    int code = open_shards(folder, path, shards, arena, err);
    if (code == CVN_OK && folder->n_maps == 1)
        folder->tensors = shards[0];
    else if (code == CVN_OK)
        code = merge_shards(folder, shards, shape_of(params), err);
    if (code == CVN_OK)
        code = meta_model(model, params_path, params, &folder->tensors, arena, err);
    cleanup_run(&cleanup[1]);
    if (code != CVN_OK)
        cleanup_run(&cleanup[0]);
    else
        cleanup_cancel(&cleanup[0]);
    return code;
}
