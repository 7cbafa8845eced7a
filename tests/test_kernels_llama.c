/* The composites that Llama is made of, rows, reductions: every dtype and instruction set, at odd sizes. */
#include "attention_check.h"
#include "compile/lower.h"

static void rms_norm_of_all_dtypes(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 31, 64, 127, 513, 1031};
    for (int x = 0; x < 3; x++)
        for (int w = 0; w < 3; w++)
            for (int y = 0; y < 3; y++)
                for (int s = 0; s < 8; s++) {
                    Check c = check_begin();
                    cvn_value *a = check_parameter(&c, CVN_TYPE(check_floats[x], 2, 3, sizes[s]));
                    cvn_value *b = check_parameter(&c, CVN_TYPE(check_floats[w], sizes[s]));
                    check_inputs(&c, cvn_rms_norm(c.g, a, b, 1e-5, check_floats[y]));
                    c.relative = check_ulp(check_floats[y]);
                    check_kernels(&c, 1);
                    check_end(&c);
                }
}

static void rope_of_both_kinds(void **state)
{
    static const int64_t head_dims[] = {2, 6, 20, 64, 128, 1100};
    static const int farthest[] = {5000, 131072, 1 << 23}; /* positions */
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 6; s++)
            for (int interleaved = 0; interleaved < 2; interleaved++) {
                Check c = check_begin();
                int64_t n = head_dims[s];
                cvn_value *x = check_parameter(&c, CVN_TYPE(check_floats[d], 2, 3, 3, n));
                cvn_value *position = check_parameter(&c, CVN_TYPE(CVN_I32, 2, 3));
                cvn_value *freq = check_parameter(&c, CVN_TYPE(CVN_F32, n / 2));
                check_inputs(&c, cvn_rope(c.g, x, position, freq, interleaved != 0));
                check_fill(&position->type, c.in[1].data, 0, farthest[(d + s + interleaved) % 3]);
                check_fill(&freq->type, c.in[2].data, 0, 1);
                c.relative = check_ulp(check_floats[d]);
                c.absolute = 5e-7;
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void check_extra(cvn_dtype q, cvn_dtype kv, const int64_t dim[6], const int32_t *starts,
                        const int32_t *lengths, FirstKeys how, const Extra *extra)
{
    Check c = check_attention_begin(q, kv, dim, starts, lengths, how, extra);
    c.relative = check_ulp(q);
    c.absolute = q == CVN_F32 ? 2e-6 : 1e-5;
    if (kv == CVN_I8) /* weights are fixed-point numbers of 16 bits there */
        c.absolute = 5e-5;
    if (dim[1] > 4 && q == CVN_BF16 &&
        kv != CVN_F32) /* weights are rounded to bf16 where products take pairs */
        c.absolute = 1e-2;
    check_kernels(&c, 1);
    check_end(&c);
}

static void check_attention(cvn_dtype q, cvn_dtype kv, const int64_t dim[6], const int32_t *starts,
                            const int32_t *lengths, FirstKeys how)
{
    check_extra(q, kv, dim, starts, lengths, how, NULL);
}

static void attention_of_one_position(void **state)
{
    static const int64_t dims[][6] = {
        {1, 1, 1, 1, 1, 1},    {2, 1, 1, 3, 17, 20},  {2, 1, 2, 3, 300, 33}, {2, 1, 4, 2, 140, 64},
        {2, 1, 7, 1, 31, 127}, {2, 3, 3, 2, 260, 16}, {2, 1, 2, 1, 1100, 8}, {1, 1, 1, 1, 2048, 5},
        {2, 2, 3, 2, 769, 12}, /* chunks of several threads */
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
        for (int t = 0; t < 6; t++)
            check_attention(t % 2 ? CVN_F32 : CVN_BF16,
                            (const cvn_dtype[]){CVN_F32, CVN_BF16, CVN_I8}[t / 2], dims[i],
                            (int32_t[]){last, last / 2}, (int32_t[]){3, 1}, FIRST_NONE);
    }
}

static void attention_of_many_positions(void **state)
{
    static const int64_t dims[][6] = {
        {1, 5, 1, 1, 5, 1},     {2, 17, 1, 3, 33, 20},  {2, 31, 2, 2, 150, 33},
        {2, 40, 4, 1, 300, 64}, {2, 6, 150, 1, 20, 16}, {2, 133, 1, 1, 140, 48},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
        for (int t = 0; t < 6; t++)
            check_attention(t % 2 ? CVN_F32 : CVN_BF16,
                            (const cvn_dtype[]){CVN_F32, CVN_BF16, CVN_I8}[t / 2], dims[i],
                            (int32_t[]){last, last / 2}, (int32_t[]){(int32_t)dims[i][1], 3},
                            FIRST_NONE);
    }
}

/* Tiles and chunks of keys that lie before what is seen, and such that it begins in. */
static void attention_of_queries_with_a_first_key(void **state)
{
    static const int64_t dims[][6] = {
        {2, 1, 2, 3, 300, 33},  {2, 3, 3, 2, 800, 16},   {2, 17, 1, 3, 33, 20},
        {2, 31, 2, 2, 450, 33}, {1, 300, 1, 1, 300, 64}, {2, 133, 3, 1, 140, 48},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int how = FIRST_NONE + 1; how < FIRST_COUNT; how++)
            for (int t = 0; t < 2; t++) {
                int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
                check_attention(t ? CVN_BF16 : CVN_F32, t ? CVN_BF16 : CVN_F32, dims[i],
                                (int32_t[]){last, last / 2}, (int32_t[]){(int32_t)dims[i][1], 13},
                                (FirstKeys)how);
            }
}

/* Windows and chunks shorter than a block of keys, longer, and longer than the context; caps; sinks: of decoding, of sections of
   a prompt behind a filled cache, and of rows of different lengths. */
static void attention_with_windows_caps_and_sinks(void **state)
{
    static const int64_t dims[][6] = {
        {2, 1, 2, 3, 300, 33},  {2, 3, 3, 2, 801, 16},   {2, 1, 4, 2, 1400, 64},
        {2, 31, 2, 2, 451, 33}, {1, 300, 1, 1, 300, 64}, {2, 133, 3, 1, 640, 48},
    };
    static const Extra extras[] = {
        {.window = 1},
        {.window = 60, .sinks = true},
        {.window = 5000, .cap = 1.5},
        {.window = 300},
        {.chunk = 64, .sinks = true},
        {.chunk = 200, .cap = 0.7},
        {.chunk = 90, .window = 70, .cap = 2, .sinks = true},
        {.sinks = true},
    };
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (size_t e = 0; e < sizeof extras / sizeof *extras; e++)
            for (int t = 0; t < 4; t++) {
                static const cvn_dtype types[4][2] = {{CVN_F32, CVN_F32},
                                                      {CVN_BF16, CVN_BF16},
                                                      {CVN_BF16, CVN_I8},
                                                      {CVN_F32, CVN_I8}};
                if (SANITIZED && (i + e) % 4 != (size_t)t)
                    continue;
                int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
                FirstKeys how = (i + e) % 3 ? FIRST_NONE : FIRST_DOCUMENTS;
                check_extra(types[t][0], types[t][1], dims[i], (int32_t[]){last, last / 2},
                            (int32_t[]){(int32_t)dims[i][1], 13}, how, &extras[e]);
            }
}

static void attention_of_padding_only(void **state)
{
    check_attention(CVN_F32, CVN_F32, (int64_t[]){2, 9, 2, 1, 20, 8}, (int32_t[]){0, 4},
                    (int32_t[]){0, 0}, FIRST_NONE);
    check_attention(CVN_F32, CVN_F32, (int64_t[]){2, 1, 2, 1, 20, 8}, (int32_t[]){0, 4},
                    (int32_t[]){0, 0}, FIRST_NONE);
    check_attention(CVN_F32, CVN_F32, (int64_t[]){0, 1, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE);
}

/* Rows of different lengths together, and each for itself: bits of the same result. */
static void check_rows_alone(int64_t seq, cvn_dtype kv, int64_t window)
{
    enum { ROWS = 4, HEADS = 4, KV_HEADS = 2, CONTEXT = 1100, HEAD_DIM = 20 };
    static const int32_t starts[ROWS] = {1000, 3, 300, 700};
    Check c[2]; /* of all rows; of one */
    for (int i = 0; i < 2; i++) {
        int64_t b = i == 0 ? ROWS : 1;
        c[i] = check_begin();
        cvn_type cache = CVN_TYPE(kv, b, KV_HEADS, CONTEXT, HEAD_DIM);
        cvn_type scales = CVN_TYPE(CVN_BF16, b, KV_HEADS, CONTEXT, 1);
        cvn_value *q = check_parameter(&c[i], CVN_TYPE(CVN_BF16, b, seq, HEADS, HEAD_DIM));
        cvn_value *k = check_parameter(&c[i], cache), *v = check_parameter(&c[i], cache);
        cvn_value *start = check_parameter(&c[i], CVN_TYPE(CVN_I32, b));
        cvn_value *length = check_parameter(&c[i], CVN_TYPE(CVN_I32, b));
        cvn_attention_spec spec = {.scale = 0.3, .window = window};
        if (kv == CVN_I8) {
            spec.k_scale = check_parameter(&c[i], scales);
            spec.v_scale = check_parameter(&c[i], scales);
        }
        check_inputs(&c[i], cvn_attention(c[i].g, q, k, v, start, length, &spec));
        for (int t = 1; t < 3 && kv == CVN_I8; t++)
            check_fill(&cache, c[i].in[t].data, -127, 128);
        for (int32_t r = 0; r < (int32_t)b; r++) {
            ((int32_t *)c[i].in[3].data)[r] = starts[r];
            ((int32_t *)c[i].in[4].data)[r] = (int32_t)seq;
        }
    }
    const Kernel *kernel = kernel_find(cpu_kernels(), c[0].op);
    size_t bytes = cvn_type_bytes(&c[1].op->result[0]->type);
    char *together = malloc(bytes * ROWS), *alone = malloc(bytes);
    const void *in[7];
    for (int i = 0; i < c[0].op->n_operands; i++)
        in[i] = c[0].in[i].data;
    check_run(&c[0], kernel, check_pool(3), in, (void *[]){together});
    for (size_t r = 0; r < ROWS; r++) {
        for (int i = 0; i < c[0].op->n_operands; i++)
            in[i] = (char *)c[0].in[i].data + c[1].in[i].bytes * r;
        check_run(&c[1], kernel, check_pool(1 + (int)r % 3), in, (void *[]){alone});
        assert_memory_equal(together + bytes * r, alone, bytes);
    }
    free(together);
    free(alone);
    check_end(&c[0]);
    check_end(&c[1]);
}

static void attention_of_a_row_does_not_depend_on_the_other_rows(void **state)
{
    for (int d = 0; d < 4; d++) {
        const cvn_dtype kv = d % 2 ? CVN_I8 : CVN_BF16;
        const int64_t window = d < 2 ? 0 : 400;
        check_rows_alone(1, kv, window);
        check_rows_alone(3, kv, window);
        check_rows_alone(40, kv, window);
    }
}

static void cache_updates_in_and_out_of_the_context(void **state)
{
    static const cvn_dtype all[] = {CVN_F32, CVN_BF16, CVN_I8};
    static const int32_t starts[][2] = {{0, 5}, {-3, 14}, {15, -20}};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++)
            for (int64_t seq = 1; seq < 10; seq += 4) {
                Check c = check_begin();
                cvn_value *cache = check_parameter(&c, CVN_TYPE(all[d], 2, 3, 16, 5));
                cvn_value *update = check_parameter(&c, CVN_TYPE(all[d], 2, seq, 3, 5));
                cvn_value *start = check_parameter(&c, CVN_TYPE(CVN_I32, 2));
                check_inputs(&c, cvn_cache_update(c.g, cache, update, start, NULL, NULL));
                memcpy(c.in[2].data, starts[s], sizeof starts[s]);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

/* Rows of slots and their pages, of which some have none, and some are not there. */
static void cache_updates_of_slots(void **state)
{
    static const int32_t starts[] = {0, 5, -1, 3}, slots[] = {4, 0, 2, 6};
    static const int32_t pages[6][3] = {{8, 1, -1}, {2, 3, 4},  {9, 0, 2},
                                        {5, 5, 5},  {6, 7, 10}, {4, 4, 4}};
    for (int64_t seq = 1; seq < 10; seq += 4) {
        Check c = check_begin();
        cvn_value *cache = check_parameter(&c, CVN_TYPE(CVN_BF16, 10, 3, 5, 5));
        cvn_value *update = check_parameter(&c, CVN_TYPE(CVN_BF16, 4, seq, 3, 5));
        cvn_value *start = check_parameter(&c, CVN_TYPE(CVN_I32, 4));
        cvn_value *slot = check_parameter(&c, CVN_TYPE(CVN_I32, 4));
        cvn_value *table = check_parameter(&c, CVN_TYPE(CVN_I32, 6, 3));
        check_inputs(&c, cvn_cache_update(c.g, cache, update, start, slot, table));
        memcpy(c.in[2].data, starts, sizeof starts);
        memcpy(c.in[3].data, slots, sizeof slots);
        memcpy(c.in[4].data, pages, sizeof pages);
        check_kernels(&c, 1);
        check_end(&c);
    }
}

/* Rows of one position, of which some go on in one slot, as a prompt does in a list of tokens; and rows that nobody has. */
enum { LISTED = 48 };

static void make_list(int32_t *start, int32_t *slot, int32_t *length)
{
    static const struct {
        int32_t slot, start, n;
    } run[] = {{3, 411, 1}, {6, 180, 20}, {5, 17, 1}, {5, 19, 2},
               {0, 0, 9},   {-1, 0, 3},   {6, 200, 8}};
    int at = 0;
    for (size_t r = 0; r < sizeof run / sizeof *run; r++)
        for (int32_t i = 0; i < run[r].n; i++, at++) {
            start[at] = run[r].start + i;
            slot[at] = run[r].slot;
            length[at] = run[r].slot >= 0;
        }
    for (; at < LISTED; at++) {
        start[at] = length[at] = 0;
        slot[at] = 2;
    }
}

/* Pages of slots in no order, of which some have one in common. */
static void make_table(int32_t *table, int64_t slots, int64_t n)
{
    for (int64_t i = 0; i < slots * n; i++)
        table[i] = (int32_t)(i * 5 % (slots * n));
    table[3 * n] = table[6 * n];
}

/* Attention of rows to the keys of their slots, in one page or several: of one position, a few, and many; and of a list of tokens. */
static void attention_of_slots(void **state)
{
    static const int32_t starts[] = {200, 0, 3, -1, 390}, slots[] = {6, 0, 6, 1, 7};
    static const int64_t seqs[] = {1, 3, 20, 0};
    for (int t = 0; t < 24; t++) {
        const bool list = seqs[t % 4] == 0;
        const int64_t page = t < 12 ? 420 : 64, n = t < 12 ? 1 : 7;
        const int64_t rows = list ? LISTED : 5, seq = list ? 1 : seqs[t % 4];
        const cvn_dtype kv = t % 12 < 4 ? CVN_F32 : t % 12 < 8 ? CVN_BF16 : CVN_I8;
        Check c = check_begin();
        const cvn_type keys = CVN_TYPE(kv, 7 * n, 2, page, 16),
                       scales = CVN_TYPE(CVN_BF16, 7 * n, 2, page, 1);
        const cvn_dtype dtype = kv == CVN_F32 ? CVN_F32 : CVN_BF16;
        cvn_value *q = check_parameter(&c, CVN_TYPE(dtype, rows, seq, 6, 16));
        cvn_value *k = check_parameter(&c, keys), *v = check_parameter(&c, keys);
        cvn_value *start = check_parameter(&c, CVN_TYPE(CVN_I32, rows));
        cvn_value *length = check_parameter(&c, CVN_TYPE(CVN_I32, rows));
        cvn_attention_spec spec = {.scale = 0.25, .window = t % 2 ? 100 : 0};
        if (kv == CVN_I8) {
            spec.k_scale = check_parameter(&c, scales);
            spec.v_scale = check_parameter(&c, scales);
        }
        spec.slot = check_parameter(&c, CVN_TYPE(CVN_I32, rows));
        spec.table = check_parameter(&c, CVN_TYPE(CVN_I32, 7, n));
        check_inputs(&c, cvn_attention(c.g, q, k, v, start, length, &spec));
        for (int i = 0; i < c.op->n_operands; i++)
            if (c.op->operand[i]->type.dtype != CVN_I32)
                check_fill(&c.op->operand[i]->type, c.in[i].data,
                           c.op->operand[i]->type.dtype == CVN_I8 ? -127
                           : i > 4                                ? 0
                                                                  : -2,
                           c.op->operand[i]->type.dtype == CVN_I8 ? 128
                           : i > 4                                ? 2.0 / 127
                                                                  : 2);
        int32_t *of_slot = c.in[c.op->n_operands - 2].data, *of_length = c.in[4].data;
        make_table(c.in[c.op->n_operands - 1].data, 7, n);
        if (list)
            make_list(c.in[3].data, of_slot, of_length);
        else
            memcpy(c.in[3].data, starts, sizeof starts);
        for (int i = 0; i < rows && !list; i++)
            of_length[i] = i == 3 ? 0 : (int32_t)seq;
        if (!list)
            memcpy(of_slot, slots, sizeof slots);
        c.relative = check_ulp(kv == CVN_F32 ? CVN_F32 : CVN_BF16);
        c.absolute = kv == CVN_F32 ? 2e-6 : 1e-2;
        check_kernels(&c, 1);
        check_end(&c);
    }
}

/* Kernels round as the interpreter does, to the bit; also rows of zeros, of the least numbers, and with inf or NaN. */
static void rows_in_8_bits(void **state)
{
    static const int64_t sizes[] = {1, 3, 16, 17, 31, 64, 127, 513, 1031};
    static const double ends[] = {0, 0x1p-140, 0x1p-120, 1e-3, 3, 60000, INFINITY, NAN};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 9; s++)
            for (int e = 0; e < 8; e++) {
                Check c = check_begin();
                cvn_value *out[2],
                    *x = check_parameter(&c, CVN_TYPE(check_floats[d], 2, 3, sizes[s]));
                cvn_quantize_rows(c.g, x, out);
                check_inputs(&c, out[0]);
                double end = isfinite(ends[e]) ? ends[e] : 1;
                check_fill(&x->type, c.in[0].data, -end, end);
                if (!isfinite(ends[e]))
                    for (int64_t i = sizes[s] - 1; i < 6 * sizes[s]; i += 2 * sizes[s])
                        element_set(check_floats[d], c.in[0].data, i, i % 3 ? -ends[e] : ends[e]);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void cross_entropy_of_rows(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 259, 1031};
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 5; s++)
            for (int special = 0; special < 2; special++) {
                Check c = check_begin();
                cvn_value *logits = check_parameter(&c, CVN_TYPE(check_floats[d], 2, 5, sizes[s]));
                cvn_value *target = check_parameter(&c, CVN_TYPE(CVN_I32, 2, 5));
                cvn_value *out[2];
                cvn_softmax_cross_entropy(c.g, logits, target, out);
                check_inputs(&c, out[0]);
                check_fill(&logits->type, c.in[0].data, -20, 20);
                check_fill(&target->type, c.in[1].data, -2, (double)sizes[s] + 2);
                if (special)
                    for (int64_t i = 0; i < cvn_type_elements(&logits->type); i += 3)
                        element_set(check_floats[d], c.in[0].data, i, i % 2 ? -INFINITY : 60000);
                c.relative = 1e-6;
                c.absolute = 1e-5;
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void argmax_finds_the_first(void **state)
{
    for (int d = 0; d < 3; d++)
        for (int axis = 0; axis < 3; axis++)
            for (int kind = 0; kind < 3; kind++) {
                Check c = check_begin();
                cvn_value *x = check_parameter(&c, CVN_TYPE(check_floats[d], 3, 1031, 2));
                if (axis == 2)
                    x = check_parameter(&c, CVN_TYPE(check_floats[d], 2, 3, 1033));
                check_inputs(&c, cvn_argmax(c.g, x, axis));
                if (kind == 1) /* many equal ones */
                    check_fill(&x->type, c.in[0].data, 0, 0);
                if (kind == 2)
                    for (int64_t i = 0; i < cvn_type_elements(&x->type); i++)
                        element_set(check_floats[d], c.in[0].data, i, i % 5 ? -INFINITY : NAN);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

static void reductions_over_any_neighbours(void **state)
{
    static const struct {
        int n, dims[3];
    } rows[] = {{1, {0}}, {1, {1}}, {1, {2}}, {2, {0, 1}}, {2, {1, 2}}, {3, {0, 1, 2}}, {0, {0}}};
    static const int64_t shapes[][3] = {
        {3, 7, 17}, {2, 1031, 3}, {1, 5, 1}, {4, 0, 3}, {2, 3, 700}};
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < 4; kind++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                for (int s = 0; s < 5; s++) {
                    Check c = check_begin();
                    cvn_value *x = check_parameter(
                        &c, CVN_TYPE(check_floats[d], shapes[s][0], shapes[s][1], shapes[s][2]));
                    check_inputs(
                        &c, cvn_reduce_dims(c.g, (cvn_reduce)kind, x, rows[r].n, rows[r].dims));
                    if (kind == CVN_PRODUCT)
                        check_fill(&x->type, c.in[0].data, 0.9, 1.1);
                    c.relative = check_ulp(check_floats[d]) + 1e-5;
                    c.absolute = kind == CVN_SUM ? 3e-5 : 1e-30;
                    check_kernels(&c, 1);
                    check_end(&c);
                }
}

static void reductions_of_integers_and_bools(void **state)
{
    static const cvn_dtype all[] = {CVN_I32, CVN_U32, CVN_BOOL};
    static const int dims[] = {1};
    for (int d = 0; d < 3; d++)
        for (int kind = 0; kind < REDUCE_COUNT; kind++) {
            bool logical = kind == CVN_ALL || kind == CVN_ANY;
            if (logical != (all[d] == CVN_BOOL))
                continue;
            for (int64_t n = 0; n < 6; n += 5) {
                Check c = check_begin();
                cvn_value *x = check_parameter(&c, CVN_TYPE(all[d], 3, n, 17));
                check_inputs(&c, cvn_reduce_dims(c.g, (cvn_reduce)kind, x, 1, dims));
                check_fill(&x->type, c.in[0].data, -5, 3e9);
                check_kernels(&c, 1);
                check_end(&c);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rms_norm_of_all_dtypes),
        cmocka_unit_test(rope_of_both_kinds),
        cmocka_unit_test(attention_of_one_position),
        cmocka_unit_test(attention_of_many_positions),
        cmocka_unit_test(attention_of_queries_with_a_first_key),
        cmocka_unit_test(attention_with_windows_caps_and_sinks),
        cmocka_unit_test(attention_of_padding_only),
        cmocka_unit_test(attention_of_a_row_does_not_depend_on_the_other_rows),
        cmocka_unit_test(cache_updates_in_and_out_of_the_context),
        cmocka_unit_test(cache_updates_of_slots),
        cmocka_unit_test(attention_of_slots),
        cmocka_unit_test(rows_in_8_bits),
        cmocka_unit_test(cross_entropy_of_rows),
        cmocka_unit_test(argmax_finds_the_first),
        cmocka_unit_test(reductions_over_any_neighbours),
        cmocka_unit_test(reductions_of_integers_and_bools),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
