/* The parameter table: complete, named and shaped as the checkpoints are, sums as published. */
#include "io_support.h"
#include "model/params.h"
#include "model/presets.h"
#include "model_make.h"

#include <math.h>

/* Published parameter counts: model cards and the counts transformers reports for these shapes. */
static const struct {
    const char *preset;
    int64_t params;
} published[] = {
    {"stories260k", 260032},
    {"stories15m", 15191712},
    {"llama-7b", INT64_C(6738415616)},
    {"llama-13b", INT64_C(13015864320)},
    {"llama-33b", INT64_C(32528943616)},
    {"llama-65b", INT64_C(65285660672)},
    {"llama2-70b", INT64_C(68976648192)},
    {"llama3.1-8b", INT64_C(8030261248)},
    {"llama3.1-70b", INT64_C(70553706496)},
    {"llama3.1-405b", INT64_C(405853388800)},
    {"llama3.2-1b", INT64_C(1235814400)},
    {"llama3.2-3b", INT64_C(3212749824)},
};

static void sums_are_the_published_ones(void **state)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        Model *c = model_preset(published[i].preset);
        assert_int_equal(model_size(c).params, published[i].params);
        assert_int_equal(model_bytes(c, CVN_BF16), 2 * published[i].params);
    }
    Model *c = model_preset("llama-175b");
    assert_true(fabs((double)model_bytes(c, CVN_BF16) / 351e9 - 1) < 0.01);
    /* 7B at context 2048, batch 1, bf16: one GiB of cache. */
    c = model_preset("llama-7b");
    assert_int_equal(kv_cache_bytes(c, 1, 2048, CVN_BF16), 1 << 30);
    assert_int_equal(kv_cache_bytes(c, INT64_MAX, 2048, CVN_BF16), -1);
    assert_int_equal(kv_cache_bytes(c, -1, 2048, CVN_BF16), -1);
}

/* The list of a config is consistent in itself and with the sums, for every presence of biases. */
static void lists_are_complete_for_every_variant(void **state)
{
    for (int variant = 0; variant < 8; variant++) {
        Model *c = model_preset("tiny");
        c = model_with(c, "'tie_word_embeddings': %s, 'attention_bias': %s, 'mlp_bias': %s",
                       (variant & 1) ? "true" : "false", (variant & 2) ? "true" : "false",
                       (variant & 4) ? "true" : "false");
        Arena arena;
        ParamList list;
        Map names;
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        params_list(&list, c, &arena);
        map_init(&names, &arena);
        int per_layer = 9 + (variant & 2 ? 4 : 0) + (variant & 4 ? 3 : 0);
        assert_int_equal(list.layer[1] - list.layer[0], per_layer);
        assert_int_equal(list.n, 5 * per_layer + (variant & 1 ? 2 : 3));
        const ModelShape s = model_shape(c);
        const int64_t sizes[AXIS_COUNT] = {
            [AXIS_VOCAB] = s.vocab,       [AXIS_EMBED] = s.width,       [AXIS_HEADS] = s.heads,
            [AXIS_KV_HEADS] = s.kv_heads, [AXIS_HEAD_DIM] = s.head_dim, [AXIS_FFN] = s.ffn};
        int64_t total = 0;
        for (int i = 0; i < list.n; i++) {
            const Param *p = &list.param[i];
            assert_ptr_equal(params_find(&list, p->kind, p->layer), p);
            int64_t n = 1, file_n = 1;
            for (int d = 0; d < p->rank; d++) {
                n *= p->dims[d];
                assert_int_equal(p->dims[d], sizes[p->axis[d]]);
            }
            for (int d = 0; d < p->file_rank; d++)
                file_n *= p->file_dims[d];
            assert_int_equal(n, p->n);
            assert_int_equal(file_n, p->n);
            assert_true(p->init != INIT_NORMAL || p->std > 0);
            total += n;
            for (int naming = 0; naming < NAMING_COUNT; naming++) {
                bool added;
                char name[128];
                int length = snprintf(name, sizeof name, "%d %s", naming, p->file_name[naming]);
                map_put(&names, name, (size_t)length, &added);
                assert_true(added);
            }
        }
        assert_int_equal(total, model_size(c).params);
        assert_int_equal(params_find(&list, PARAM_LM_HEAD, 0) == NULL, (variant & 1) != 0);
        assert_int_equal(params_find(&list, PARAM_Q_BIAS, 1) == NULL, !(variant & 2));
        arena_free(&arena);
    }
}

static void shapes_keep_axes_apart_and_files_flatten_them(void **state)
{
    Model *c = model_preset("llama3.1-8b");
    c = model_with(c, "'attention_bias': true");
    Arena arena;
    ParamList list;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    params_list(&list, c, &arena);
    const Param *k = params_find(&list, PARAM_K, 31);
    assert_string_equal(k->name, "layers.31.k");
    assert_string_equal(k->file_name[NAMING_HF], "model.layers.31.self_attn.k_proj.weight");
    assert_string_equal(k->file_name[NAMING_META], "layers.31.attention.wk.weight");
    assert_string_equal(k->file_name[NAMING_GGUF], "blk.31.attn_k.weight");
    assert_int_equal(k->rank, 3);
    assert_memory_equal(k->dims, ((int64_t[]){8, 128, 4096}), 24);
    assert_int_equal(k->file_rank, 2);
    assert_memory_equal(k->file_dims, ((int64_t[]){1024, 4096}), 16);
    const Param *o = params_find(&list, PARAM_O, 0);
    assert_memory_equal(o->dims, ((int64_t[]){4096, 32, 128}), 24);
    assert_memory_equal(o->file_dims, ((int64_t[]){4096, 4096}), 16);
    assert_true(fabs(o->std - 0.02 / 8) < 1e-12);
    const Param *bias = params_find(&list, PARAM_V_BIAS, 3);
    assert_int_equal(bias->file_rank, 1);
    assert_int_equal(bias->file_dims[0], 1024);
    assert_int_equal(bias->init, INIT_ZEROS);
    assert_int_equal(params_find(&list, PARAM_FINAL_NORM, 0)->init, INIT_ONES);
    assert_int_equal(params_find(&list, PARAM_FINAL_NORM, 0)->layer, -1);
    arena_free(&arena);
}

static void kinds_and_axes_have_names(void **state)
{
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
        assert_true(param_kind_name((ParamKind)kind) && *param_kind_name((ParamKind)kind));
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        assert_true(model_axis_name((ModelAxis)axis) && *model_axis_name((ModelAxis)axis));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_published_ones),
        cmocka_unit_test(lists_are_complete_for_every_variant),
        cmocka_unit_test(shapes_keep_axes_apart_and_files_flatten_them),
        cmocka_unit_test(kinds_and_axes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
