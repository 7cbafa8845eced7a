/* A model of random weights that is written, opened, audited and loaded in every type; and every way in which a folder can
 * fail the audit. */
#include "base/float16.h"
#include "caravan/engine.h"
#include "io/convert.h"
#include "io/gguf_blocks.h"
#include "io/safetensors.h"
#include "io/save.h"
#include "io_support.h"
#include "model/presets.h"
#include "model_make.h"
#include "whole_weights.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* A small config of odd sizes: 3 KV heads, head dimension 20, 259 tokens. */
static Model *odd_config(bool tied, bool biases)
{
    Model *c = model_make(
        "'hidden_size': 44, 'num_hidden_layers': 2, 'num_attention_heads': 6, "
        "'num_key_value_heads': 3, 'head_dim': 20, 'intermediate_size': 70, 'vocab_size': 259, "
        "'tie_word_embeddings': %s, 'attention_bias': %s, 'mlp_bias': %s",
        tied ? "true" : "false", biases ? "true" : "false", biases ? "true" : "false");
    return c;
}

static int clean(void **state)
{
    remove_folder(scratch);
    return file_make_folder(scratch, NULL);
}

static int save_seeded(const char *folder, const Model *config, uint64_t seed,
                       const SaveOptions *options, cvn_err *err)
{
    return save_folder(folder, config, options, init_fill, &seed, err);
}

static void make_model(const char *folder, const Model *config, const SaveOptions *options)
{
    cvn_err err = {0};
    must(save_seeded(folder, config, 42, options, &err), &err);
}

static void open_good(IoModel *model, const char *folder)
{
    cvn_err err = {0};
    must(io_open_model(model, folder, &err), &err);
}

/* The model in `folder` must hold what the initialisers give, rounded to the file's type, whatever
 * type it is loaded in. */
static void assert_holds_init(const char *folder, cvn_dtype saved)
{
    static const cvn_dtype types[] = {CVN_F32, CVN_BF16, CVN_F16};
    IoModel model;
    uint64_t seed = 42;
    open_good(&model, folder);
    assert_int_equal(model_dtype(model.desc), saved);
    for (size_t t = 0; t < 3; t++) {
        WholeWeights weights;
        whole_load(&weights, &model, types[t]);
        assert_int_equal(weights.n_nonfinite, 0);
        for (int i = 0; i < weights.n; i++) {
            const Param *p = &model.params.param[i];
            float *values = malloc((size_t)p->n * 4);
            uint8_t *file = malloc((size_t)p->n * 4), *want = malloc((size_t)p->n * 4);
            init_fill(&seed, p, 0, p->n, values);
            io_encode(saved, values, p->n, file);
            IoTensor in_file = {.data = file, .n = p->n, .dtype = saved};
            io_decode(&in_file, 0, p->n, values);
            io_encode(types[t], values, p->n, want);
            assert_int_equal(weights.bytes[i], cvn_dtype_bytes(types[t], p->n));
            assert_memory_equal(weights.data[i], want, weights.bytes[i]);
            free(values);
            free(file);
            free(want);
        }
        whole_free(&weights);
    }
    io_close_model(&model);
}

static void every_variant_and_type_loads_what_init_wrote(void **state)
{
    static const cvn_dtype types[] = {CVN_F32, CVN_BF16, CVN_F16};
    for (int variant = 0; variant < 4; variant++) {
        for (size_t t = 0; t < 3; t++) {
            char name[32];
            Model *config = odd_config(variant & 1, variant & 2);
            snprintf(name, sizeof name, "m%d%zu", variant, t);
            make_model(in_scratch(name), config, &(SaveOptions){.dtype = types[t]});
            assert_int_equal(count_entries(in_scratch(name)), 3);
            assert_holds_init(in_scratch(name), types[t]);
        }
    }
}

static void a_sharded_folder_holds_the_same(void **state)
{
    Model *config = odd_config(false, true);
    make_model(in_scratch("s"), config, &(SaveOptions){.dtype = CVN_F32, .shard_bytes = 60000});
    assert_int_equal(count_entries(in_scratch("s")), 3 + 6);
    assert_holds_init(in_scratch("s"), CVN_F32);
    IoModel model;
    open_good(&model, in_scratch("s"));
    assert_int_equal(model.n_maps, 6);
    io_close_model(&model);
}

static void the_same_seed_gives_the_same_bytes(void **state)
{
    Model *config = odd_config(false, false);
    SaveOptions options = {.dtype = CVN_BF16};
    make_model(in_scratch("a"), config, &options);
    make_model(in_scratch("b"), config, &options);
    assert_int_equal(save_seeded(in_scratch("c"), config, 43, &options, NULL), CVN_OK);
    Bytes a = bytes_of_file(in_scratch("a/model.safetensors"));
    Bytes b = bytes_of_file(in_scratch("b/model.safetensors"));
    Bytes c = bytes_of_file(in_scratch("c/model.safetensors"));
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.data, b.data, a.n);
    assert_memory_not_equal(a.data, c.data, a.n);
    free(a.data);
    free(b.data);
    free(c.data);
}

/* The tensors of a good folder, written again with one change. */
typedef struct Change {
    const char *drop;    /* leave this tensor out */
    const char *add;     /* add a tensor of this name … */
    int64_t add_dims[2]; /* … and shape, zero-filled */
    cvn_dtype add_dtype;
    const char *poison;  /* put NaN and infinity into this tensor */
    int shift;           /* bytes of an I8 tensor "shift" put first, to break alignment */
    bool misshape;       /* declare "model.norm.weight" as [2, n/2] */
    const char *message; /* of the audit, or NULL when it must pass */
} Change;

static void rewrite(const char *from, const char *to, const Change *change)
{
    IoModel model;
    StWriter w;
    open_good(&model, from);
    assert_int_equal(file_make_folder(to, NULL), CVN_OK);
    assert_int_equal(model_write(model.desc, to, NULL), CVN_OK);
    assert_int_equal(st_writer_open(&w, file_path(to, "model.safetensors").text, NULL), CVN_OK);
    for (int pass = 0; pass < 2; pass++) {
        size_t index = 0;
        if (pass == 1)
            assert_int_equal(st_writer_begin(&w, NULL), CVN_OK);
        if (change->shift && pass == 0) {
            assert_int_equal(st_writer_declare(&w, "x.rotary_emb.inv_freq", CVN_I8, 1,
                                               (int64_t[]){change->shift}, NULL),
                             CVN_OK);
        } else if (change->shift) {
            assert_int_equal(st_writer_data(&w, index++, "xxxxxxxx", (size_t)change->shift, NULL),
                             CVN_OK);
        }
        for (size_t i = 0; i < model.tensors.n; i++) {
            const IoTensor *t = &model.tensors.tensor[i];
            if (change->drop && strcmp(t->name, change->drop) == 0)
                continue;
            bool reshape = change->misshape && strcmp(t->name, "model.norm.weight") == 0;
            if (pass == 0) {
                int64_t halves[] = {2, t->n / 2};
                assert_int_equal(st_writer_declare(&w, t->name, t->dtype, reshape ? 2 : t->rank,
                                                   reshape ? halves : t->dims, NULL),
                                 CVN_OK);
                continue;
            }
            Bytes bytes = bytes_copy(t->data, t->bytes);
            if (change->poison && strcmp(t->name, change->poison) == 0) {
                float bad[] = {NAN, INFINITY, -INFINITY};
                memcpy(bytes.data, bad, sizeof bad);
            }
            assert_int_equal(st_writer_data(&w, index++, bytes.data, bytes.n, NULL), CVN_OK);
            free(bytes.data);
        }
        if (change->add && pass == 0) {
            assert_int_equal(
                st_writer_declare(&w, change->add, change->add_dtype, 2, change->add_dims, NULL),
                CVN_OK);
        } else if (change->add) {
            size_t n =
                cvn_dtype_bytes(change->add_dtype, change->add_dims[0] * change->add_dims[1]);
            uint8_t *zeros = calloc(1, n);
            assert_int_equal(st_writer_data(&w, index++, zeros, n, NULL), CVN_OK);
            free(zeros);
        }
    }
    assert_int_equal(st_writer_commit(&w, NULL), CVN_OK);
    st_writer_free(&w);
    io_close_model(&model);
}

static void the_audit_accounts_for_every_tensor(void **state)
{
    static const Change changes[] = {
        {.message = NULL},
        {.drop = "model.layers.1.mlp.up_proj.weight",
         .message = "lacks 1 tensor that its config requires: 'model.layers.1.mlp.up_proj.weight'"},
        {.add = "model.layers.2.mlp.up_proj.weight",
         .add_dims = {70, 44},
         .message = "1 tensor that its config does not know: 'model.layers.2.mlp.up_proj.weight'"},
        {.add = "model.layers.0.self_attn.q_proj.bias",
         .add_dims = {1, 120},
         .message = "does not know"},
        {.add = "model.layers.0.self_attn.rotary_emb.inv_freq", .add_dims = {1, 10}},
        {.drop = "model.norm.weight",
         .add = "model.norm.weight",
         .add_dims = {44, 1},
         .message = "has shape [44, 1] but the config"},
        {.misshape = true, .message = "'model.norm.weight' has shape [2, 22]"},
        {.drop = "model.layers.0.mlp.up_proj.weight",
         .add = "model.layers.0.mlp.up_proj.weight",
         .add_dims = {70, 44},
         .add_dtype = CVN_I32,
         .message = "is of type I32, which cannot be used as a weight"},
        {.add = "lm_head.weight", .add_dims = {259, 44}}, /* tied: the config wins */
        {.add = "lm_head.weight",
         .add_dims = {259, 45},
         .message = "does not know: 'lm_head.weight'"},
    };
    Model *config = odd_config(true, false);
    make_model(in_scratch("good"), config, &(SaveOptions){.dtype = CVN_F32});
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        Change change = changes[i];
        change.add_dtype = change.add_dtype == CVN_F64 ? CVN_F32 : change.add_dtype;
        rewrite(in_scratch("good"), in_scratch("changed"), &change);
        IoModel model;
        cvn_err err = {0};
        int code = io_open_model(&model, in_scratch("changed"), &err);
        assert_int_equal(code, err.code);
        if (change.message ? code == CVN_OK || !strstr(err.message, change.message)
                           : code != CVN_OK)
            fail_msg("case %zu: wanted '%s', got '%s'", i, change.message, err.message);
        if (code == CVN_OK)
            io_close_model(&model);
    }
}

static void many_missing_tensors_are_counted_not_listed(void **state)
{
    Model *config = odd_config(true, false);
    make_model(in_scratch("m"), config, &(SaveOptions){.dtype = CVN_F32});
    config = model_with(config, "'num_hidden_layers': 40");
    assert_int_equal(model_write(config, in_scratch("m"), NULL), CVN_OK);
    IoModel model;
    cvn_err err = {0};
    assert_int_equal(io_open_model(&model, in_scratch("m"), &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "lacks 342 tensors"));
    assert_non_null(strstr(err.message, ", ..."));
}

static cvn_engine *open_engine(const char *folder, const cvn_model_options *options,
                               const char *mesh, cvn_model **model)
{
    cvn_err err = {0};
    cvn_engine *e;
    cvn_model_options no_text = *options;
    no_text.no_tokenizer = true;
    cvn_engine_options engine = {.slots = 1,
                                 .context = 64,
                                 .threads = 2,
                                 .scoring = true,
                                 .no_generation = true,
                                 .mesh = mesh,
                                 .layout = "tp"};
    must(cvn_model_open(folder, &no_text, model, &err), &err);
    must(cvn_engine_new(*model, &engine, &e, &err), &err);
    return e;
}

static void nan_weights_are_warned_of_and_counted_once(void **state)
{
    Model *config = odd_config(true, false);
    make_model(in_scratch("good"), config, &(SaveOptions){.dtype = CVN_F32});
    rewrite(in_scratch("good"), in_scratch("bad"),
            &(Change){.poison = "model.layers.1.self_attn.k_proj.weight"});
    static const cvn_model_options options[] = {
        {.dtype = CVN_F32}, {.dtype = CVN_BF16}, {.dtype = CVN_F32, .quantize = "int8"}};
    static const char *const meshes[] = {NULL, "data=2", "data=2,model=2"};
    for (int i = 0; i < 9; i++) {
        cvn_model *model;
        cvn_engine *e = open_engine(in_scratch("bad"), &options[i / 3], meshes[i % 3], &model);
        const char *warnings = cvn_engine_warnings(e);
        assert_non_null(strstr(warnings, ": 3 of 2640 elements of "
                                         "'model.layers.1.self_attn.k_proj.weight' are NaN"));
        assert_ptr_equal(strchr(warnings, '\n') + 1, strchr(warnings, '\0')); /* and no other */
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
}

static void unaligned_tensors_are_the_same_model(void **state)
{
    enum { N = 40 };
    Model *config = odd_config(false, false);
    make_model(in_scratch("good"), config, &(SaveOptions){.dtype = CVN_F32});
    rewrite(in_scratch("good"), in_scratch("odd"), &(Change){.shift = 3});
    const char *const names[] = {"good", "odd"};
    float logprob[2][N];
    int32_t token[N], argmax[2][N];
    for (int i = 0; i < N; i++)
        token[i] = i * 37 % 259;
    for (int i = 0; i < 2; i++) {
        cvn_model *model;
        cvn_engine *e =
            open_engine(in_scratch(names[i]), &(cvn_model_options){.dtype = CVN_F32}, NULL, &model);
        assert_int_equal(cvn_engine_score(e, token, N, logprob[i], argmax[i], NULL), CVN_OK);
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
    assert_memory_equal(logprob[0], logprob[1], sizeof logprob[0]);
    assert_memory_equal(argmax[0], argmax[1], sizeof argmax[0]);
}

static void a_folder_that_is_not_empty_is_kept_unless_forced(void **state)
{
    Model *config = odd_config(false, false);
    SaveOptions options = {.dtype = CVN_F32, .shard_bytes = 60000};
    cvn_err err = {0};
    assert_int_equal(file_make_folder(in_scratch("out"), NULL), CVN_OK);
    make_model(in_scratch("out/"), config, &options); /* empty, and a slash at the end */
    assert_int_equal(file_write(in_scratch("out/mine.txt"), "x", 1, NULL), CVN_OK);
    assert_int_equal(save_seeded(in_scratch("out"), config, 1, &options, &err), CVN_EIO);
    assert_non_null(strstr(err.message, "is not empty"));
    options = (SaveOptions){.dtype = CVN_BF16, .force = true};
    make_model(in_scratch("out"), config, &options);
    assert_holds_init(in_scratch("out"), CVN_BF16);
    assert_int_equal(count_entries(in_scratch("out")), 4); /* no shard or index of the old model */
    options.shard_bytes = 60000;
    make_model(in_scratch("out"), config, &options);
    assert_holds_init(in_scratch("out"), CVN_BF16);
    assert_true(file_exists(in_scratch("out/mine.txt")));
    assert_false(file_exists(in_scratch("out/model.safetensors")));
    assert_int_equal(save_seeded(in_scratch("out/mine.txt"), config, 1, &options, NULL), CVN_EIO);
    assert_int_equal(save_seeded(in_scratch("no/such/out"), config, 1, &options, NULL), CVN_EIO);
}

static void the_tokenizer_comes_along(void **state)
{
    Model *config = odd_config(false, false);
    assert_int_equal(file_write(in_scratch("tokenizer.model"), "abc", 3, NULL), CVN_OK);
    make_model(in_scratch("m"), config,
               &(SaveOptions){.dtype = CVN_F32, .tokenizer = in_scratch("tokenizer.model")});
    Bytes bytes = bytes_of_file(in_scratch("m/tokenizer.model"));
    assert_int_equal(bytes.n, 3);
    free(bytes.data);
    assert_int_equal(save_seeded(in_scratch("n"), config, 1,
                                 &(SaveOptions){.dtype = CVN_F32, .tokenizer = "/no/such"}, NULL),
                     CVN_EIO);
    assert_int_equal(count_entries(scratch), 2);
}

static void a_full_disk_leaves_no_folder(void **state)
{
    const Model *config = model_preset("stories260k");
    cvn_err err = {0};
    struct rlimit old, tiny;
    getrlimit(RLIMIT_FSIZE, &old);
    tiny = old;
    tiny.rlim_cur = 500000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &tiny);
    int code = save_seeded(in_scratch("m"), config, 1, &(SaveOptions){.dtype = CVN_F32}, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(code, CVN_EIO);
    assert_non_null(strstr(err.message, "model.safetensors"));
    assert_int_equal(count_entries(scratch), 0);
}

static void what_is_no_model_is_said_so(void **state)
{
    IoModel model;
    cvn_err err = {0};
    assert_int_equal(io_open_model(&model, "/no/such/model", &err), CVN_EIO);
    assert_string_equal(err.message, "'/no/such/model' does not exist");
    err = (cvn_err){0};
    assert_true(io_open_model(&model, scratch, &err) < 0);
    assert_non_null(strstr(err.message, "is not a model"));
}

static void shared_checkpoints_open(void **state)
{
    need_shared_data();
    IoModel model;
    WholeWeights weights;
    open_good(&model, CVN_SHARED_DATA "/checkpoints/stories260K-hf");
    io_close_model(&model);
    open_good(&model, CVN_SHARED_DATA "/checkpoints/paged-infer-tiny");
    assert_int_equal(model.params.n, 2 * 9 + 3);
    whole_load(&weights, &model, CVN_F32);
    const float *embed = weights.data[0];
    assert_true(embed[0] == bf16_to_f32(*(const uint16_t *)(const void *)model.source[0]->data));
    whole_free(&weights);
    io_close_model(&model);
}

/* Q8_0 and a tensor in parts, decoded at every range of a small tensor. */
static void ranges_of_coded_and_split_tensors_decode(void **state)
{
    uint8_t blocks[3 * 34];
    for (size_t i = 0; i < sizeof blocks; i++)
        blocks[i] = (uint8_t)(i * 37);
    for (int b = 0; b < 3; b++) {
        uint16_t scale = f16_from_f32(0.25f * (float)(b + 1));
        memcpy(blocks + 34 * b, &scale, 2);
    }
    IoTensor q8 = {.data = blocks,
                   .n = 96,
                   .coding = IO_BLOCKS,
                   .dtype = CVN_F32,
                   .block = &gguf_element(8)->block};
    float out[96];
    for (int first = 0; first < 96; first++) {
        int n = (96 - first) / 2;
        io_decode(&q8, first, n, out);
        for (int i = 0; i < n; i++) {
            int at = first + i;
            assert_true(out[i] == 0.25f * (float)(at / 32 + 1) *
                                      (float)(int8_t)blocks[at / 32 * 34 + 2 + at % 32]);
        }
    }
    float whole[4][6], halves[2][12];
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 6; c++) {
            whole[r][c] = (float)(10 * r + c);
            halves[c / 3][r * 3 + c % 3] = whole[r][c];
        }
    IoTensor columns[2], rows[2];
    for (int i = 0; i < 2; i++) {
        columns[i] = (IoTensor){.data = (const uint8_t *)halves[i],
                                .n = 12,
                                .rank = 2,
                                .dims = {4, 3},
                                .dtype = CVN_F32};
        rows[i] = (IoTensor){.data = (const uint8_t *)whole[2 * i],
                             .n = 12,
                             .rank = 2,
                             .dims = {2, 6},
                             .dtype = CVN_F32};
    }
    for (int dim = 0; dim < 2; dim++) {
        IoTensor merged = {.n = 24,
                           .rank = 2,
                           .dims = {4, 6},
                           .dtype = CVN_F32,
                           .split_dim = dim,
                           .n_parts = 2,
                           .part = dim ? columns : rows};
        for (int first = 0; first < 24; first++)
            for (int n = 0; n <= 24 - first; n++) {
                io_decode(&merged, first, n, out);
                assert_memory_equal(out, &whole[0][0] + first, (size_t)n * 4);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_variant_and_type_loads_what_init_wrote, clean),
        cmocka_unit_test_setup(a_sharded_folder_holds_the_same, clean),
        cmocka_unit_test_setup(the_same_seed_gives_the_same_bytes, clean),
        cmocka_unit_test_setup(the_audit_accounts_for_every_tensor, clean),
        cmocka_unit_test_setup(many_missing_tensors_are_counted_not_listed, clean),
        cmocka_unit_test_setup(nan_weights_are_warned_of_and_counted_once, clean),
        cmocka_unit_test_setup(unaligned_tensors_are_the_same_model, clean),
        cmocka_unit_test_setup(a_folder_that_is_not_empty_is_kept_unless_forced, clean),
        cmocka_unit_test_setup(the_tokenizer_comes_along, clean),
        cmocka_unit_test_setup(a_full_disk_leaves_no_folder, clean),
        cmocka_unit_test_setup(what_is_no_model_is_said_so, clean),
        cmocka_unit_test(shared_checkpoints_open),
        cmocka_unit_test(ranges_of_coded_and_split_tensors_decode),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
