/*
 * Rows: where they begin, in which order they come, and what is in them. Only the begin of a row is kept.
 * What follows in it is found again by walking on through the documents of its split, by the same rules in
 * data_cut and in data_fill.
 */
#include "base/heap.h"
#include "train/data/data_impl.h"

#include <inttypes.h>

/* Documents that must fall to the validation split for it to be drawn by documents; with fewer, the last
 * rows are held back. */
enum { LEAST_DRAWN = 8 };

/* ---- documents in order ---- */

typedef struct Cursor {
    const DataFile *file;
    int64_t d;          /* document, within the file */
    int64_t begin, end; /* its tokens, through all files */
} Cursor;

static void look(Cursor *c)
{
    const TokenFile *t = &c->file->tokens;
    c->begin = c->file->first_token + token_file_document(t, c->d);
    c->end = c->file->first_token +
             (c->d + 1 < t->n_documents ? token_file_document(t, c->d + 1) : t->n_tokens);
}

static bool in_split(const TrainData *data, DataSplit split, const Cursor *c)
{
    uint32_t bits;
    if (data->held_back == 0)
        return true;
    int64_t document = c->file->first_document + c->d;
    rng_bits(data->split, (uint64_t)(data->pairs ? document / 2 : document), 1, &bits);
    return (bits < data->held_back) == (split == DATA_VALIDATION);
}

/* The next document of the split; false behind the last. A cursor at document -1 of the first file is in
 * front of all. */
static bool advance(const TrainData *data, DataSplit split, Cursor *c)
{
    do {
        if (++c->d == c->file->tokens.n_documents) {
            if (++c->file == data->file + data->n_files)
                return false;
            c->d = 0;
        }
    } while (!in_split(data, split, c));
    look(c);
    return true;
}

/* The document that token p lies in. */
static Cursor find(const TrainData *data, int64_t p)
{
    size_t low = 0, high = data->n_files;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(data->file[middle].first_token <= p ? &low : &high) = middle;
    }
    Cursor c = {.file = &data->file[low]};
    int64_t first = 0, last = c.file->tokens.n_documents;
    while (last - first > 1) {
        int64_t middle = (first + last) / 2;
        bool left = token_file_document(&c.file->tokens, middle) <= p - c.file->first_token;
        *(left ? &first : &last) = middle;
    }
    c.d = first;
    look(&c);
    return c;
}

/* ---- cutting ---- */

static int add_row(DataRows *rows, int64_t begin, cvn_err *err)
{
    int64_t *more = heap_more(rows->begin, (size_t)rows->n, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for %" PRId64 " rows", rows->n + 1);
    rows->begin = more;
    rows->begin[rows->n++] = begin;
    return CVN_OK;
}

/* Whether a document of n tokens may follow when `used` tokens of a row are taken. */
static bool follows(const TrainData *data, int64_t used, int64_t n)
{
    if (data->packing == DATA_PACK_WHOLE)
        return n <= data->seq - used;
    return data->packing == DATA_PACK_STREAM;
}

static int cut_split(TrainData *data, DataSplit split, cvn_err *err)
{
    DataRows *rows = &data->rows[split];
    bool stream = data->packing == DATA_PACK_STREAM;
    Cursor c = {.file = data->file, .d = -1};
    int64_t used = 0, begin = 0;
    while (advance(data, split, &c)) {
        if (used > 0 && !follows(data, used, c.end - c.begin)) {
            TRY(add_row(rows, begin, err));
            used = 0;
        }
        if (data->pairs) {
            data->report.cut_off += c.end - c.begin > data->seq;
            TRY(add_row(rows, c.begin, err));
            continue;
        }
        for (int64_t p = c.begin; p < c.end;) {
            /* The last token of a document that was cut has been a target: alone it teaches nothing. */
            if (used == 0 && !stream && p > c.begin && p + 1 == c.end)
                break;
            begin = used ? begin : p;
            int64_t take = c.end - p < data->seq - used ? c.end - p : data->seq - used;
            p += take;
            used += take;
            if (used == data->seq) {
                TRY(add_row(rows, begin, err));
                used = 0;
            }
        }
    }
    return used > 0 && !stream ? add_row(rows, begin, err) : CVN_OK;
}

/* Moves the last rows of the training split to the validation split. */
static int hold_back_rows(TrainData *data, double part, cvn_err *err)
{
    DataRows *train = &data->rows[DATA_TRAIN];
    int64_t n = (int64_t)((double)train->n * part + 0.5);
    n = n > 0 ? n : 1;
    n += data->pairs && n % 2;
    if (n >= train->n)
        return CVN_OK;
    for (int64_t i = train->n - n; i < train->n; i++)
        TRY(add_row(&data->rows[DATA_VALIDATION], train->begin[i], err));
    train->n -= n;
    return CVN_OK;
}

int data_cut(TrainData *data, const DataOptions *options, cvn_err *err)
{
    double part = options->validation;
    data->split = rng_key(0, "documents that validate");
    data->order = rng_key(options->seed, "order of rows");
    if ((double)data->report.documents * part >= LEAST_DRAWN)
        data->held_back = (uint32_t)(part * 4294967296.0);
    TRY(cut_split(data, DATA_TRAIN, err));
    if (part > 0)
        TRY(data->held_back ? cut_split(data, DATA_VALIDATION, err)
                            : hold_back_rows(data, part, err));
    if (data->rows[DATA_TRAIN].n == 0)
        return err_set(err, CVN_EINVAL,
                       "the data has %" PRId64
                       " tokens, which is less than one sequence of %" PRId64
                       "; give more data or --seq of at most %" PRId64,
                       data->report.tokens, data->seq, data->report.tokens);
    if (part > 0 && data->rows[DATA_VALIDATION].n == 0)
        return err_set(err, CVN_EINVAL,
                       "%g of the data's %" PRId64
                       " tokens for validation are less than one sequence of %" PRId64
                       "; give more data, a shorter sequence or no validation",
                       part, data->report.tokens, data->seq);
    return CVN_OK;
}

/* ---- order ---- */

/*
 * A Feistel network on numbers of 2 * bits bits, with Threefry for its round function, is a permutation of
 * them whatever that function is (Luby and Rackoff 1988). Those that fall outside of 0 … n - 1 are put
 * through it again until they fall inside, which permutes 0 … n - 1 (Black and Rogaway 2002: cycle walking).
 * The network covers less than 4 n numbers, so this ends after 4 rounds of it in the mean.
 */
int64_t data_permute(RngKey key, uint64_t epoch, int64_t i, int64_t n)
{
    enum { ROUNDS = 8 };
    uint32_t counter[2] = {(uint32_t)(epoch >> 32), (uint32_t)epoch}, of_epoch[2];
    rng_threefry2x32(key.word, counter, of_epoch);
    int bits = 0;
    while (bits < 31 && (uint64_t)1 << 2 * bits < (uint64_t)n)
        bits++;
    uint64_t mask = ((uint64_t)1 << bits) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> bits, right = x & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t place[2] = {round, (uint32_t)right}, random[2];
            rng_threefry2x32(of_epoch, place, random);
            uint64_t mixed = left ^ (random[0] & mask);
            left = right;
            right = mixed;
        }
        x = left << bits | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

static int64_t row_at(const DataPlace *at)
{
    int64_t n = at->data->rows[at->split].n, place = at->i % n;
    uint64_t epoch = (uint64_t)(at->i / n);
    if (at->in_order)
        return place;
    if (at->data->pairs) /* they stay together */
        return 2 * data_permute(at->data->order, epoch, place / 2, n / 2) + place % 2;
    return data_permute(at->data->order, epoch, place, n);
}

int64_t data_row(const TrainData *data, DataSplit split, int64_t i)
{
    const DataPlace at = data_place(data, split, i);
    return row_at(&at);
}

/* ---- filling ---- */

typedef struct Row {
    int32_t *tokens, *targets, *starts; /* [seq]; starts may be NULL */
    int64_t used;                       /* tokens filled */
} Row;

/* Fills a row with tokens p … p + n - 1 of one document. */
static int fill_piece(const TrainData *data, const Cursor *c, int64_t p, int64_t n, Row *row,
                      cvn_err *err)
{
    const TokenFile *file = &c->file->tokens;
    int64_t from = p - c->file->first_token, end = c->end - c->file->first_token;
    for (int64_t i = 0; i < n; i++) {
        int64_t s = row->used + i, next = from + i + 1;
        int32_t id = token_file_id(file, from + i);
        bool learns = next < end && token_file_learns(file, next);
        row->tokens[s] = id;
        row->targets[s] = learns ? token_file_id(file, next) : -1;
        if (row->starts)
            row->starts[s] = (int32_t)row->used;
        if (id < 0 || id >= data->vocab || row->targets[s] < -1 || row->targets[s] >= data->vocab)
            return err_set(err, CVN_EFORMAT,
                           "'%s' holds an id at token %" PRId64 " that is not below %" PRId32
                           ": it was damaged after it was opened",
                           c->file->path, from + i, data->vocab);
    }
    row->used += n;
    return CVN_OK;
}

static int fill_row(const TrainData *data, DataSplit split, int64_t begin, Row *row, cvn_err *err)
{
    Cursor c = find(data, begin);
    int64_t p = begin;
    do {
        int64_t room = data->seq - row->used, n = c.end - p < room ? c.end - p : room;
        TRY(fill_piece(data, &c, p, n, row, err));
        if (row->used == data->seq || !advance(data, split, &c))
            break;
        p = c.begin;
    } while (follows(data, row->used, c.end - c.begin));
    for (int64_t s = row->used; s < data->seq; s++) {
        row->tokens[s] = data->pad;
        row->targets[s] = -1;
        if (row->starts)
            row->starts[s] = (int32_t)row->used;
    }
    return CVN_OK;
}

int data_fill(const TrainData *data, DataSplit split, int64_t first, int64_t n, int32_t *tokens,
              int32_t *targets, int32_t *starts, cvn_err *err)
{
    const DataRows *rows = &data->rows[split];
    if (first < 0 || n < 0 || first > INT64_MAX - n)
        return err_set(err, CVN_EINVAL, "there are no rows %" PRId64 " to %" PRId64, first,
                       first + (n - 1));
    if (rows->n == 0 && n > 0)
        return err_set(err, CVN_EINVAL, "there are no validation data");
    for (int64_t i = 0; i < n; i++) {
        const DataPlace at = data_place(data, split, first + i);
        Row row = {tokens + i * data->seq, targets + i * data->seq,
                   starts ? starts + i * data->seq : NULL, 0};
        TRY(fill_row(at.data, at.split, at.data->rows[at.split].begin[row_at(&at)], &row, err));
    }
    return CVN_OK;
}
