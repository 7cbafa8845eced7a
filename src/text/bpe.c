#include "text/bpe.h"

#include "text/utf8.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BPE_DEAD = -2 };

/* U+2581, which stands for a space in SentencePiece vocabularies. */
static const char BLANK[3] = {'\xe2', '\x96', '\x81'};

/* ---- tables ---- */

static uint32_t hash_text(const char *text, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u, word;
    for (; n > 8; text += 8, n -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    word = 0;
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, text, 4);
        memcpy(&high, text + n - 4, 4);
        word = (uint64_t)high << 32 | low;
    } else if (n > 0) {
        word = (uint64_t)(unsigned char)text[0] | (uint64_t)(unsigned char)text[n / 2] << 8 |
               (uint64_t)(unsigned char)text[n - 1] << 16;
    }
    h = (h ^ word) * 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

static BpeKey *find_key(const Bpe *bpe, const char *text, size_t n, uint32_t hash)
{
    size_t mask = bpe->keys.capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        BpeKey *key = &bpe->keys.key[i];
        if (key->symbol < 0)
            return key;
        const BpePiece *piece = &bpe->piece[key->symbol];
        if (key->hash == hash && (size_t)piece->length == n && memcmp(piece->text, text, n) == 0)
            return key;
    }
}

int32_t bpe_find(const Bpe *bpe, const char *text, size_t n)
{
    return find_key(bpe, text, n, hash_text(text, n))->symbol;
}

static void make_keys(Bpe *bpe, size_t capacity)
{
    const BpeKey *old = bpe->keys.key;
    size_t n_old = bpe->keys.capacity;
    bpe->keys.key = arena_array(bpe->arena, capacity, sizeof *bpe->keys.key);
    bpe->keys.capacity = capacity;
    memset(bpe->keys.key, 0xff, capacity * sizeof *bpe->keys.key);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].symbol < 0)
            continue;
        const BpePiece *piece = &bpe->piece[old[i].symbol];
        *find_key(bpe, piece->text, (size_t)piece->length, old[i].hash) = old[i];
    }
}

bool bpe_index(Bpe *bpe, int32_t symbol)
{
    if (bpe->keys.n * 2 >= bpe->keys.capacity)
        make_keys(bpe, bpe->keys.capacity * 2);
    const BpePiece *piece = &bpe->piece[symbol];
    uint32_t hash = hash_text(piece->text, (size_t)piece->length);
    BpeKey *key = find_key(bpe, piece->text, (size_t)piece->length, hash);
    if (key->symbol >= 0)
        return false;
    *key = (BpeKey){hash, symbol};
    bpe->keys.n++;
    return true;
}

static BpePair *find_slot(const Bpe *bpe, uint64_t pair)
{
    size_t mask = bpe->pairs.capacity - 1;
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    for (size_t i = (h ^ h >> 32) & mask;; i = (i + 1) & mask)
        if (bpe->pairs.pair[i].pair == pair || bpe->pairs.pair[i].pair == UINT64_MAX)
            return &bpe->pairs.pair[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const BpePair *bpe_find_pair(const Bpe *bpe, int32_t left, int32_t right)
{
    const BpePair *slot = find_slot(bpe, pair_of(left, right));
    return slot->pair == UINT64_MAX ? NULL : slot;
}

static void make_pairs(Bpe *bpe, size_t capacity)
{
    const BpePair *old = bpe->pairs.pair;
    size_t n_old = bpe->pairs.capacity;
    bpe->pairs.pair = arena_array(bpe->arena, capacity, sizeof *bpe->pairs.pair);
    bpe->pairs.capacity = capacity;
    memset(bpe->pairs.pair, 0xff, capacity * sizeof *bpe->pairs.pair);
    for (size_t i = 0; i < n_old; i++)
        if (old[i].pair != UINT64_MAX)
            *find_slot(bpe, old[i].pair) = old[i];
}

void bpe_add_pair(Bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t merged)
{
    if (bpe->pairs.n * 2 >= bpe->pairs.capacity)
        make_pairs(bpe, bpe->pairs.capacity * 2);
    uint64_t pair = pair_of(left, right);
    BpePair *slot = find_slot(bpe, pair);
    bpe->pairs.n += slot->pair == UINT64_MAX;
    *slot = (BpePair){pair, rank, merged};
    /* A merge of fallback bytes joins characters that no piece's text shows side by side. */
    if (!bpe->byte_symbols &&
        (bpe->piece[left].kind == PIECE_BYTE || bpe->piece[right].kind == PIECE_BYTE))
        memset(bpe->joins, 1, sizeof bpe->joins);
}

void bpe_add_splits(Bpe *bpe, int32_t id, uint32_t rank)
{
    const char *text = bpe->piece[id].text;
    size_t n = (size_t)bpe->piece[id].length;
    for (size_t cut = 1; cut < n; cut++) {
        if (!bpe->byte_symbols && ((unsigned char)text[cut] & 0xc0) == 0x80)
            continue;
        int32_t left = bpe_find(bpe, text, cut);
        int32_t right = left < 0 ? -1 : bpe_find(bpe, text + cut, n - cut);
        if (right >= 0)
            bpe_add_pair(bpe, left, right, rank, id);
    }
}

void bpe_init(Bpe *bpe, Arena *arena, int32_t n_ids, size_t n_pieces)
{
    *bpe = (Bpe){.arena = arena, .n_ids = n_ids, .n_symbols = n_ids, .unknown = -1};
    bpe->symbol_capacity = n_ids + 1;
    bpe->piece = arena_array(arena, (size_t)bpe->symbol_capacity, sizeof *bpe->piece);
    memset(bpe->byte_id, 0xff, sizeof bpe->byte_id);
    size_t capacity = 64;
    while (capacity < n_pieces * 2)
        capacity *= 2;
    make_keys(bpe, capacity);
    make_pairs(bpe, capacity);
}

void bpe_set_piece(Bpe *bpe, int32_t id, PieceKind kind, const char *text, size_t n)
{
    const char *copy = arena_stringn(bpe->arena, text, n);
    bpe->piece[id] = (BpePiece){.text = copy,
                                .out = copy,
                                .length = (int32_t)n,
                                .out_length = (int32_t)n,
                                .kind = (uint8_t)kind};
}

void bpe_set_out(Bpe *bpe, int32_t id, const char *text, size_t n, bool blanks)
{
    char *out = arena_alloc(bpe->arena, n);
    int32_t n_out = 0;
    for (size_t i = 0; i < n;) {
        bool blank = blanks && n - i >= 3 && memcmp(text + i, BLANK, 3) == 0;
        out[n_out++] = blank ? ' ' : text[i];
        i += blank ? 3 : 1;
    }
    bpe->piece[id].out = out;
    bpe->piece[id].out_length = n_out;
}

void bpe_set_byte(Bpe *bpe, int32_t id, unsigned char byte)
{
    BpePiece *piece = &bpe->piece[id];
    piece->kind = PIECE_BYTE;
    piece->out = arena_copy(bpe->arena, &byte, 1);
    piece->out_length = 1;
}

int piece_byte(const char *text, size_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)((high - digits) * 16 + (low - digits)) : -1;
}

int32_t bpe_character(Bpe *bpe, const char *text, size_t n)
{
    int32_t symbol = bpe_find(bpe, text, n);
    if (symbol >= 0)
        return symbol;
    if (bpe->n_symbols == bpe->symbol_capacity) {
        int32_t capacity = bpe->symbol_capacity * 2;
        BpePiece *piece = arena_array(bpe->arena, (size_t)capacity, sizeof *piece);
        memcpy(piece, bpe->piece, (size_t)bpe->n_symbols * sizeof *piece);
        bpe->piece = piece;
        bpe->symbol_capacity = capacity;
    }
    symbol = bpe->n_symbols++;
    bpe_set_piece(bpe, symbol, PIECE_NORMAL, text, n);
    bpe_index(bpe, symbol);
    return symbol;
}

/* ---- merging ---- */

void bpe_work_free(BpeWork *work)
{
    free(work->symbol);
    free(work->next);
    free(work->prev);
    free(work->heap);
    *work = (BpeWork){0};
}

static bool grow(void **array, size_t n, size_t size)
{
    void *p = realloc(*array, n * size);
    if (p)
        *array = p;
    return p != NULL;
}

/* Room for n symbols. */
static int reserve(BpeWork *work, size_t n, cvn_err *err)
{
    if (n > INT32_MAX)
        return err_set(err, CVN_EINVAL,
                       "a word of %zu bytes exceeds the maximum of %d; split the text", n,
                       INT32_MAX);
    if (n <= work->capacity)
        return CVN_OK;
    size_t capacity = work->capacity < 64 ? 64 : work->capacity;
    while (capacity < n)
        capacity += capacity / 2;
    work->capacity = 0;
    if (!grow((void **)&work->symbol, capacity, sizeof *work->symbol) ||
        !grow((void **)&work->next, capacity, sizeof *work->next) ||
        !grow((void **)&work->prev, capacity, sizeof *work->prev))
        return err_set(err, CVN_EMEM, "no memory to encode %zu bytes of text", n);
    work->capacity = capacity;
    return CVN_OK;
}

/*
 * The heap of candidates. A candidate is rank << 32 | place of the pair's left symbol, so that numbers
 * compare as candidates must. Four children to a node: they share a cache line, and the heap of a long
 * text is half as deep.
 */
static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t moved = heap[i];
    for (;;) {
        size_t first = 4 * i + 1, least = first;
        if (first >= n)
            break;
        for (size_t child = first + 1; child < n && child < first + 4; child++)
            least = heap[child] < heap[least] ? child : least;
        if (heap[least] >= moved)
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = moved;
}

static void sift_up(uint64_t *heap, size_t i)
{
    uint64_t moved = heap[i];
    while (i > 0 && heap[(i - 1) / 4] > moved) {
        heap[i] = heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    heap[i] = moved;
}

/* Puts the pair that begins at `place` at the end of the heap's array, if it merges. */
static int append_candidate(const Bpe *bpe, BpeWork *work, int32_t place, cvn_err *err)
{
    int32_t right = work->next[place];
    const BpePair *pair = bpe_find_pair(bpe, work->symbol[place], work->symbol[right]);
    if (!pair)
        return CVN_OK;
    if (work->n_heap == work->heap_capacity) {
        size_t capacity = work->heap_capacity ? work->heap_capacity * 2 : 64;
        if (!grow((void **)&work->heap, capacity, sizeof *work->heap))
            return err_set(err, CVN_EMEM, "no memory for %zu candidate merges", capacity);
        work->heap_capacity = capacity;
    }
    work->heap[work->n_heap++] = (uint64_t)pair->rank << 32 | (uint32_t)place;
    return CVN_OK;
}

static int push_candidate(const Bpe *bpe, BpeWork *work, int32_t place, cvn_err *err)
{
    size_t n = work->n_heap;
    int rc = append_candidate(bpe, work, place, err);
    if (work->n_heap > n)
        sift_up(work->heap, n);
    return rc;
}

/* Merges n symbols at places 0 to n-1 of `work` until no pair is left to merge. */
static int merge(const Bpe *bpe, BpeWork *work, int32_t n, cvn_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        work->prev[i] = i - 1;
        work->next[i] = i + 1 < n ? i + 1 : -1;
    }
    int rc = CVN_OK;
    work->n_heap = 0;
    for (int32_t i = 0; !rc && i + 1 < n; i++)
        rc = append_candidate(bpe, work, i, err);
    for (size_t i = (work->n_heap + 2) / 4; i-- > 0;)
        sift_down(work->heap, work->n_heap, i);
    while (!rc && work->n_heap > 0) {
        uint64_t best = work->heap[0];
        work->heap[0] = work->heap[--work->n_heap];
        if (work->n_heap > 1)
            sift_down(work->heap, work->n_heap, 0);
        int32_t left = (int32_t)(best & UINT32_MAX), right = work->next[left];
        if (work->symbol[left] == BPE_DEAD || right < 0)
            continue;
        const BpePair *pair = bpe_find_pair(bpe, work->symbol[left], work->symbol[right]);
        if (!pair || pair->rank != best >> 32)
            continue; /* one of the two has grown since; the pair they make now has its own entry */
        work->symbol[left] = pair->merged;
        work->symbol[right] = BPE_DEAD;
        int32_t after = work->next[left] = work->next[right], before = work->prev[left];
        if (after >= 0) {
            work->prev[after] = left;
            rc = push_candidate(bpe, work, left, err);
        }
        if (!rc && before >= 0)
            rc = push_candidate(bpe, work, before, err);
    }
    return rc;
}

/* ---- text to symbols, symbols to ids ---- */

static int no_symbol(unsigned char byte, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT,
                   "the tokenizer has no token for byte 0x%02X and no unknown token; use the "
                   "tokenizer that belongs to the model",
                   byte);
}

static bool has_bytes(const Bpe *bpe, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bpe->byte_id[(unsigned char)text[i]] < 0)
            return false;
    return true;
}

/* Fills places 0 to *n_symbols - 1. */
static int first_symbols(const Bpe *bpe, BpeWork *work, const char *text, size_t n,
                         int32_t *n_symbols, cvn_err *err)
{
    int32_t count = 0;
    for (size_t i = 0; i < n;) {
        size_t length = bpe->byte_symbols ? 0 : (size_t)utf8_length(text + i, n - i);
        int32_t symbol = length ? bpe_find(bpe, text + i, length) : -1;
        if (symbol >= 0 && bpe->piece[symbol].kind == PIECE_SPECIAL)
            symbol = -1; /* plain text never becomes a special token */
        size_t end = i + (length ? length : 1);
        if (symbol >= 0) {
            work->symbol[count++] = symbol;
            i = end;
        } else if (has_bytes(bpe, text + i, end - i)) {
            for (; i < end; i++)
                work->symbol[count++] = bpe->byte_id[(unsigned char)text[i]];
        } else if (bpe->unknown >= 0) {
            work->symbol[count++] = bpe->unknown;
            i = end;
        } else if (bpe->byte_symbols) {
            i = end; /* left out, as the references do: some vocabularies lack control characters */
        } else {
            return no_symbol((unsigned char)text[i], err);
        }
    }
    *n_symbols = count;
    return CVN_OK;
}

static void emit_unknown(const Bpe *bpe, size_t start, TokenIds *out)
{
    if (!bpe->fuse_unknown || out->n <= start || out->id[out->n - 1] != bpe->unknown)
        token_ids_add(out, bpe->unknown);
}

/* Writes a symbol that is a character without an id. */
static int emit_character(const Bpe *bpe, int32_t symbol, size_t start, TokenIds *out, cvn_err *err)
{
    const BpePiece *piece = &bpe->piece[symbol];
    if (!has_bytes(bpe, piece->text, (size_t)piece->length)) {
        if (bpe->unknown < 0)
            return no_symbol((unsigned char)piece->text[0], err);
        emit_unknown(bpe, start, out);
        return CVN_OK;
    }
    for (int32_t i = 0; i < piece->length; i++)
        token_ids_add(out, bpe->byte_id[(unsigned char)piece->text[i]]);
    return CVN_OK;
}

int bpe_encode(const Bpe *bpe, BpeWork *work, const char *text, size_t n, size_t start,
               TokenIds *out, cvn_err *err)
{
    if (n == 0)
        return CVN_OK;
    if (n <= (size_t)bpe->longest) {
        int32_t id = bpe_find(bpe, text, n);
        if (id >= 0 && bpe->piece[id].whole) {
            token_ids_add(out, id);
            return CVN_OK;
        }
    }
    int32_t n_symbols = 0;
    int rc = reserve(work, n, err);
    if (!rc)
        rc = first_symbols(bpe, work, text, n, &n_symbols, err);
    if (!rc)
        rc = merge(bpe, work, n_symbols, err);
    for (int32_t i = n_symbols ? 0 : -1; !rc && i >= 0; i = work->next[i]) {
        if (work->symbol[i] >= bpe->n_ids)
            rc = emit_character(bpe, work->symbol[i], start, out, err);
        else if (work->symbol[i] == bpe->unknown)
            emit_unknown(bpe, start, out);
        else
            token_ids_add(out, work->symbol[i]);
    }
    return rc;
}

/* The row of `joins` for the character at text, which U+2581 shares with the space; 128 for
 * characters that may join anything. */
static unsigned joins_row(const char *text, size_t n, size_t *length)
{
    unsigned char c = (unsigned char)text[0];
    *length = 1;
    if (c < 128)
        return c;
    if (n < 3 || memcmp(text, BLANK, 3) != 0)
        return 128;
    *length = 3;
    return ' ';
}

int bpe_encode_joined(const Bpe *bpe, BpeWork *work, const char *text, size_t n, size_t start,
                      TokenIds *out, cvn_err *err)
{
    size_t begin = 0, i = 0, length;
    unsigned left = 128;
    for (; i < n; i += length) {
        unsigned right = joins_row(text + i, n - i, &length);
        if (i > begin && left < 128 && right < 128 && !bpe->joins[left][right]) {
            int rc = bpe_encode(bpe, work, text + begin, i - begin, start, out, err);
            if (rc)
                return rc;
            begin = i;
        }
        left = right;
    }
    return n > begin ? bpe_encode(bpe, work, text + begin, n - begin, start, out, err) : CVN_OK;
}

static void mark_joins(Bpe *bpe, const BpePiece *piece)
{
    unsigned left = 128;
    size_t n = (size_t)piece->length, length;
    for (size_t i = 0; i < n; i += length) {
        unsigned right = joins_row(piece->text + i, n - i, &length);
        if (left < 128 && right < 128)
            bpe->joins[left][right] = true;
        left = right;
    }
}

int bpe_finish(Bpe *bpe, bool always_whole, cvn_err *err)
{
    BpeWork work = {0};
    SCOPED(token_ids_free) TokenIds ids = {0};
    cvn_err ignored = {0};
    int rc = CVN_OK;
    for (int32_t id = 0; id < bpe->n_ids; id++) {
        BpePiece *piece = &bpe->piece[id];
        if (piece->kind == PIECE_NORMAL || piece->kind == PIECE_USER) /* merges make both */
            mark_joins(bpe, piece);
        if (piece->kind != PIECE_NORMAL && piece->kind != PIECE_BYTE)
            continue;
        if (bpe_find(bpe, piece->text, (size_t)piece->length) != id)
            continue;
        piece->whole = always_whole;
        if (!always_whole) {
            ids.n = 0;
            int failed =
                bpe_encode(bpe, &work, piece->text, (size_t)piece->length, 0, &ids, &ignored);
            piece->whole = !failed && ids.n == 1 && ids.id[0] == id;
            ignored = (cvn_err){0};
        }
        if (piece->whole && piece->length > bpe->longest)
            bpe->longest = piece->length;
    }
    if (ids.failed)
        rc = err_set(err, CVN_EMEM, "no memory to check the pieces of the tokenizer");
    bpe_work_free(&work);
    return rc;
}
