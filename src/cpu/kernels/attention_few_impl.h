/*
 * The part of attention_impl.h for a few positions: decoding. Keys and values are read once, where they lie; what counts is
 * that all threads read at once, however rows, heads and lengths are spread (Dao et al. 2023, "Flash-Decoding").
 *
 * Blocks of KEYS of all heads and rows are numbered one after the other, and each thread takes an equal share of the numbers:
 *
 *     head 0, row 0        head 0, row 1   head 1, row 0        head 1, row 1        3 and 2 blocks
 *     0     1     2        3     4         5     6     7        8     9
 *     thread 0 ………………… 2 | thread 1 ……………………… 5 | thread 2 …………………………………………………
 *
 * A query whose blocks are all one thread's is folded on the way. One whose blocks lie with several (head 1, row 0) has
 * them written to scratch, and the thread that has its first folds them when all are there, in the same order.
 *
 * A head is numbered through all rows because cache_update shares heads out likewise: of whichever rows, filled one by one
 * or together, a thread reads the heads that it wrote, but for a head that lies with several. On a machine with several
 * memories these are near it.
 */

/* Scratch of one thread. */
typedef struct Few {
    float *q;     /* [group, head_dim]; where pairs are multiplied: bf16 */
    float *score; /* [group, KEYS] */
    float *all;   /* Sums of the blocks that were folded */
    float *part;  /* the same of one block */
    float *line;  /* [head_dim] */
#if defined(VEC_BF16)
    Whole whole_q,
        weight; /* of keys and values of 8 bits: q, [group] rows, and weights, of KEYS each */
#endif
} Few;

static size_t few_of(const AttentionOperands *a, char *base, Few *f)
{
    const int64_t size = sizeof(float);
    size_t used = 0;
    f->q = scratch_take(base, &used, a->group * a->head_dim * size);
    f->score = scratch_take(base, &used, a->group * KEYS * size);
    f->all = scratch_take(base, &used, sums_floats(a, a->group) * size);
    f->part = scratch_take(base, &used, sums_floats(a, a->group) * size);
    f->line = scratch_take(base, &used, a->head_dim * size);
#if defined(VEC_BF16)
    f->whole_q = whole_of(base, &used, a->group, num_round_up(a->head_dim, UNIT));
    f->weight = whole_of(base, &used, a->group, KEYS);
#endif
    return used;
}

/* Bytes of the blocks of one query that lies with several threads. */
static size_t split_bytes(const AttentionOperands *a)
{
    int64_t blocks = num_pieces(a->context, KEYS);
    return (size_t)num_round_up(blocks * sums_floats(a, a->group) * (int64_t)sizeof(float), 64);
}

/* Scores of keys [at, at + keys), counted in all the cache, with all heads that share them. */
static void scores(const AttentionOperands *a, const Few *f, int64_t at, int64_t keys)
{
    int64_t d = a->head_dim, first = at * d;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        const int8_t *k = a->k, *v = a->v;
        Bytes bytes = {.row = k + first, .next = v + first, .keys = keys, .d = d};
        score_bytes(&bytes, &f->whole_q, a->group, a->k_scale + at, f->score);
        return;
    }
#endif
    if (a->kv_dtype == CVN_BF16)
        score_group(CVN_BF16, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    else if (a->kv_dtype == CVN_I8)
        score_group(CVN_I8, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    else
        score_group(CVN_F32, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    /* By what q is not multiplied by where it stays bf16. KEYS are whole vectors. */
    for (int64_t r = 0; r < a->group && few_pairs(a->kv_dtype); r++)
        for (int64_t j = r * KEYS; j < r * KEYS + keys; j += VN)
            vf_store(f->score + j, vf_load(f->score + j) * vf_splat(a->scale));
}

/* Scores of row r become weights, those of the first `skip` keys 0. */
static void weigh_few(const AttentionOperands *a, const Few *f, int64_t r, int64_t at, int64_t keys,
                      int64_t skip, const Sums *part)
{
    float *score = f->score + r * KEYS;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        weigh_whole(a, &f->weight, r, 0, score, skip, keys, a->v_scale + at, &part->peak[r],
                    &part->sum[r]);
        return;
    }
#endif
    (void)skip;
    weigh(a, score, at, keys, &part->peak[r], &part->sum[r]);
}

/* Adds to o the values of these keys, times their weights, which scores have become; `next` is the first key that will be read then. */
static void values(const AttentionOperands *a, const Few *f, int64_t at, int64_t next, int64_t keys,
                   float *o)
{
    int64_t d = a->head_dim, first = at * d;
    size_t size = cvn_dtype_bytes(a->kv_dtype, 1);
    const char *k =
        (const char *)a->k + (size_t)(next * d) * size; /* of the element `first` of values */
    const void *ahead = (const void *)((uintptr_t)k - (uintptr_t)first * size);
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        const int8_t *v = a->v;
        Bytes bytes = {.row = v + first, .next = k, .keys = keys, .d = d};
        add_bytes(&bytes, &f->weight, a->group, o);
        return;
    }
#endif
    if (a->kv_dtype == CVN_BF16)
        value_group(CVN_BF16, f->score, a->v, ahead, first, keys, d, a->group, o);
    else if (a->kv_dtype == CVN_I8)
        value_group(CVN_I8, f->score, a->v, ahead, first, keys, d, a->group, o);
    else
        value_group(CVN_F32, f->score, a->v, ahead, first, keys, d, a->group, o);
}

/* One position of the heads that share a KV head. */
typedef struct Query {
    int64_t b, s, h;    /* row, position, KV head */
    int64_t run;        /* positions of its run; 0: there is none yet */
    int64_t begin, end; /* of the keys that it sees */
    int64_t first,
        blocks; /* the number of the first block of KEYS, and how many: at least one, which may have no keys */
} Query;

/* The next query of a KV head, of runs of at most FEW positions, the first behind a Query of zeros; false: there is none. */
static bool next_query(const AttentionOperands *a, int64_t h, Query *q)
{
    int64_t b = q->b, s = q->s + 1, run = q->run;
    if (!run || s >= run) {
        b += run ? (a->seq == 1 ? run : 1) : 0;
        for (; b < a->batch && (run = attention_run(a, b)) > FEW; b += run)
            ;
        s = 0;
    }
    if (b >= a->batch)
        return false;
    *q = (Query){.b = b,
                 .s = s,
                 .h = h,
                 .run = run,
                 .begin = attention_first_key(a, b, s),
                 .end = keys_seen(a, b, s)};
    q->first = q->begin / KEYS;
    q->blocks = q->end > q->begin ? num_pieces(q->end, KEYS) - q->first : 1;
    return true;
}

static void read_query(const AttentionOperands *a, const Few *f, const Query *q)
{
    int64_t d = a->head_dim, at = query_at(a, q->b, q->s, q->h * a->group);
    if (few_pairs(a->kv_dtype)) {
        memcpy(f->q, (const uint16_t *)a->q + at, (size_t)(a->group * d) * sizeof(uint16_t));
        return;
    }
    for (int64_t r = 0; r < a->group; r++) {
        const float *x = tile_read(a->q_dtype, a->q, at + r * d, d, f->q + r * d);
        for (int64_t i = 0; i < d; i++)
            f->q[r * d + i] = x[i] * a->scale;
#if defined(VEC_BF16)
        if (few_whole(a->kv_dtype))
            whole_query(&f->whole_q, r, f->q + r * d, d);
#endif
    }
}

/* Makes `part` what block c of a query gives. */
static void attend_block(const AttentionOperands *a, const Few *f, const Query *q, int64_t c,
                         const Sums *part)
{
    int64_t from = num_max((q->first + c) * KEYS, q->begin);
    int64_t keys = num_min((q->first + c + 1) * KEYS, q->end) - from;
    /* Keys that meet whole numbers begin with a vector of the block, some of which may not be seen. */
    int64_t skip = few_whole(a->kv_dtype) ? from % KEYS % VN : 0;
    memset(part->o, 0, (size_t)(a->group * a->head_dim) * sizeof *part->o);
    for (int64_t r = 0; r < a->group && keys <= 0; r++) {
        part->peak[r] = -INFINITY;
        part->sum[r] = 0;
    }
    if (keys <= 0)
        return;
    keys += skip;
    int64_t at = attention_key(a, q->b, q->h, from - skip), next = (q->first + c + 1) * KEYS;
    next = next < q->end ? attention_key(a, q->b, q->h, next) : at;
    scores(a, f, at, keys);
    for (int64_t r = 0; r < a->group; r++)
        weigh_few(a, f, r, at, keys, skip, part);
    values(a, f, at, next, keys, part->o);
}

/* Which blocks a thread takes, and where it puts those of split queries. */
typedef struct KeySplit {
    int64_t blocks; /* of all queries */
    int64_t threads;
    int64_t thread;
    int64_t begin, end; /* this thread's */
    /* [threads] blocks of a split query each; its place is that of who has the first of them. */
    char *parts;
    Query mine; /* the split query whose first block is this thread's; 0 blocks: none */
} KeySplit;

static int64_t share_begin(const KeySplit *s, int64_t thread)
{
    return s->blocks * thread / s->threads;
}

static Sums part_of(const AttentionOperands *a, const KeySplit *s, int64_t owner, int64_t block)
{
    char *parts = s->parts + split_bytes(a) * (size_t)owner;
    return sums_at(a, a->group, (float *)(void *)parts + block * sums_floats(a, a->group));
}

static void begin_query(const AttentionOperands *a, const Query *q, const Sums *all)
{
    for (int64_t r = 0; r < a->group; r++)
        sums_begin(a, all, r, q->h * a->group + r);
}

static void fold_query(const AttentionOperands *a, const Sums *all, const Sums *part)
{
    for (int64_t r = 0; r < a->group; r++)
        fold(a, all, part, r);
}

static void write_query(const AttentionOperands *a, const Few *f, const Query *q, const Sums *all)
{
    int64_t at = query_at(a, q->b, q->s, q->h * a->group);
    for (int64_t r = 0; r < a->group; r++, at += a->head_dim)
        if (attention_real(a, q->b, q->s))
            write_row(a, all, r, at, f->line);
        else
            write_zero(a, at);
}

/* The thread's blocks of a query whose first is number `at`. */
static void attend_query(const AttentionOperands *a, const Few *f, KeySplit *share, const Query *q,
                         int64_t at)
{
    int64_t first = share->begin > at ? share->begin - at : 0;
    int64_t last = num_min(share->end - at, q->blocks);
    const Sums all = sums_at(a, a->group, f->all), part = sums_at(a, a->group, f->part);
    if (first >= last)
        return;
    read_query(a, f, q);
    if (first > 0 || last < q->blocks) {
        /* The thread whose share the first block is in: the largest with share_begin <= at. */
        int64_t owner = ((at + 1) * share->threads - 1) / share->blocks;
        for (int64_t c = first; c < last; c++) {
            const Sums its = part_of(a, share, owner, c);
            attend_block(a, f, q, c, &its);
        }
        if (first == 0)
            share->mine = *q;
        return;
    }
    begin_query(a, q, &all);
    for (int64_t c = 0; c < last; c++) {
        attend_block(a, f, q, c, &part);
        fold_query(a, &all, &part);
    }
    write_query(a, f, q, &all);
}

static size_t few_scratch(const AttentionOperands *a, int n_threads)
{
    Few f;
    size_t split = n_threads > 1 ? split_bytes(a) : 0;
    return (few_of(a, NULL, &f) + split) * (size_t)n_threads;
}

static void run_few(const AttentionOperands *a, const KernelArgs *args)
{
    char *scratch = args->scratch;
    Few f;
    size_t bytes = few_of(a, NULL, &f);
    few_of(a, scratch + bytes * (size_t)args->thread, &f);
    KeySplit share = {.threads = args->n_threads,
                      .thread = args->thread,
                      .parts = scratch + bytes * (size_t)args->n_threads};
    int64_t longest = 1;
    Query q = {0};
    while (next_query(a, 0, &q)) {
        longest = num_max(q.blocks, longest);
        share.blocks += a->kv_heads * q.blocks;
    }
    share.begin = share_begin(&share, share.thread);
    share.end = share_begin(&share, share.thread + 1);
    int64_t each = share.blocks / a->kv_heads; /* of a head: all see the same keys */
    for (int64_t h = each ? share.begin / each : 0; h * each < share.end; h++) {
        int64_t at = h * each;
        for (q = (Query){0}; next_query(a, h, &q); at += q.blocks)
            attend_query(a, &f, &share, &q, at);
    }
    if (longest == 1) /* nothing is split */
        return;
    kernel_sync(args);
    if (!share.mine.blocks)
        return;
    const Sums all = sums_at(a, a->group, f.all);
    begin_query(a, &share.mine, &all);
    for (int64_t c = 0; c < share.mine.blocks; c++) {
        const Sums part = part_of(a, &share, share.thread, c);
        fold_query(a, &all, &part);
    }
    write_query(a, &f, &share.mine, &all);
}
