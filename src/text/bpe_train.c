#include "text/bpe_train.h"

#include "base/map.h"
#include "text/bpe_train_impl.h"
#include "text/split.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct Word {
    int32_t *symbol; /* [n], arena */
    int32_t n;
    int64_t count; /* times it occurs in the text */
} Word;

/* Two symbols that are neighbours somewhere. */
typedef struct Pair {
    uint64_t key;   /* left << 32 | right */
    int64_t count;  /* times it occurs in the text; overlapping ones ("aaa") count each */
    uint32_t *word; /* [n] words that have it, or had it; owned */
    uint32_t n, capacity;
    uint32_t stamp; /* the last round that touched it as a pair of its new symbol */
    bool merged;    /* is in the list of merges */
} Pair;

typedef struct Candidate {
    int64_t count;
    uint64_t key;
    uint32_t pair; /* index */
} Candidate;

/* The words of the text, each once. */
typedef struct Corpus {
    Map counts; /* word -> count */
    Word *word; /* [n] arena */
    size_t n;
} Corpus;

typedef struct SymbolTable {
    Map ids;             /* text -> symbol */
    TrainSymbol *symbol; /* [n] arena, room for the vocabulary */
    int32_t n;
} SymbolTable;

/* Pairs by their symbols: open addressing. */
typedef struct PairTable {
    Pair *pair; /* [n] owned */
    size_t n, capacity;
    uint32_t *slot; /* [n_slots] 1 + index of a pair, or 0; owned */
    size_t n_slots; /* a power of two */
} PairTable;

/* The pairs that may be merged next, the best on top. Counts may be out of date, too high. */
typedef struct CandidateHeap {
    Candidate *at; /* [n] owned */
    size_t n, capacity;
} CandidateHeap;

/* Pairs of the present merge's new symbol. */
typedef struct TouchedPairs {
    uint32_t *pair; /* [n] owned */
    size_t n, capacity;
} TouchedPairs;

typedef struct MergeList {
    TrainMerge *merge; /* [n] owned */
    size_t n, capacity;
    uint32_t round; /* merges made, the repeated ones too */
} MergeList;

struct BpeTrainer {
    Arena arena;  /* owned: words, texts of symbols */
    Split *split; /* owned */
    Corpus corpus;
    SymbolTable symbols;
    PairTable pairs;
    CandidateHeap heap;
    TouchedPairs touched;
    MergeList merges;
    bool failed; /* memory ran out */
};

/* Room for one more element of an owned array; false, and `failed` set, when memory ran out. */
static bool grow(BpeTrainer *t, void **array, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return true;
    size_t bigger = *capacity ? 2 * *capacity : 1024;
    void *grown = t->failed ? NULL : realloc(*array, bigger * size);
    if (!grown) {
        t->failed = true;
        return false;
    }
    *array = grown;
    *capacity = bigger;
    return true;
}

#define TRAINING "training a tokenizer"

/* ---- words ---- */

BpeTrainer *bpe_trainer_new(cvn_err *err)
{
    BpeTrainer *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(err, CVN_EMEM, "no memory to train a tokenizer");
        return NULL;
    }
    if (arena_init(&t->arena, err) ||
        split_pattern_new(SPLIT_LLAMA3, strlen(SPLIT_LLAMA3), SPLIT_ISOLATED, &t->split, err)) {
        bpe_trainer_free(t);
        return NULL;
    }
    map_init(&t->corpus.counts, &t->arena);
    map_init(&t->symbols.ids, &t->arena);
    return t;
}

void bpe_trainer_free(BpeTrainer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->pairs.n; i++)
        free(t->pairs.pair[i].word);
    free(t->pairs.pair);
    free(t->pairs.slot);
    free(t->heap.at);
    free(t->touched.pair);
    free(t->merges.merge);
    split_free(t->split);
    arena_free(&t->arena);
    free(t);
}

/* The arguments of a protected call, which adds a text or makes the vocabulary. */
typedef struct Training {
    BpeTrainer *t;
    const char *text; /* [n] */
    size_t n;
    int32_t vocab, *reached;
    StrBuf *json;
} Training;

static int add(void *of, cvn_err *err)
{
    const Training *a = of;
    BpeTrainer *t = a->t;
    const char *text = a->text;
    size_t n = a->n;
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        int code = split_next(t->split, NULL, text, n, &begin, &end, err);
        if (code)
            return code;
        for (size_t at = begin; at < end; at += BPE_TRAIN_WORD) {
            size_t part = end - at < BPE_TRAIN_WORD ? end - at : BPE_TRAIN_WORD;
            ++*map_put(&t->corpus.counts, text + at, part, NULL);
        }
    }
    return CVN_OK;
}

int bpe_trainer_add(BpeTrainer *t, const char *text, size_t n, cvn_err *err)
{
    return protect(add, &(Training){.t = t, .text = text, .n = n}, TRAINING, err);
}

/* ---- pairs ---- */

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t slot_of(const BpeTrainer *t, uint64_t key)
{
    uint64_t h = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & (t->pairs.n_slots - 1);
    while (t->pairs.slot[i] && t->pairs.pair[t->pairs.slot[i] - 1].key != key)
        i = (i + 1) & (t->pairs.n_slots - 1);
    return i;
}

static void grow_slots(BpeTrainer *t)
{
    size_t n = t->pairs.n_slots ? 2 * t->pairs.n_slots : 1 << 14;
    uint32_t *slot = t->failed ? NULL : calloc(n, sizeof *slot);
    if (!slot) {
        t->failed = true;
        return;
    }
    free(t->pairs.slot);
    t->pairs.slot = slot;
    t->pairs.n_slots = n;
    for (size_t i = 0; i < t->pairs.n; i++)
        t->pairs.slot[slot_of(t, t->pairs.pair[i].key)] = (uint32_t)i + 1;
}

/* The pair of two symbols, made when there is none; NULL when memory ran out. */
static Pair *pair_of(BpeTrainer *t, int32_t left, int32_t right)
{
    if (t->pairs.n * 2 >= t->pairs.n_slots)
        grow_slots(t);
    if (t->failed)
        return NULL;
    uint64_t key = key_of(left, right);
    size_t i = slot_of(t, key);
    if (t->pairs.slot[i])
        return &t->pairs.pair[t->pairs.slot[i] - 1];
    if (t->pairs.n >= UINT32_MAX - 1 ||
        !grow(t, (void **)&t->pairs.pair, t->pairs.n, &t->pairs.capacity, sizeof *t->pairs.pair)) {
        t->failed = true;
        return NULL;
    }
    t->pairs.pair[t->pairs.n++] = (Pair){.key = key};
    t->pairs.slot[i] = (uint32_t)t->pairs.n;
    return &t->pairs.pair[t->pairs.n - 1];
}

static void note_word(BpeTrainer *t, Pair *pair, uint32_t word)
{
    if (pair->n && pair->word[pair->n - 1] == word)
        return;
    if (pair->n == pair->capacity) {
        uint32_t capacity = pair->capacity ? 2 * pair->capacity : 4;
        uint32_t *grown = realloc(pair->word, capacity * sizeof *grown);
        if (!grown) {
            t->failed = true;
            return;
        }
        pair->word = grown;
        pair->capacity = capacity;
    }
    pair->word[pair->n++] = word;
}

/* ---- candidates ---- */

static bool better(const Candidate *a, const Candidate *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static void push(BpeTrainer *t, uint32_t pair)
{
    Candidate c = {t->pairs.pair[pair].count, t->pairs.pair[pair].key, pair};
    if (c.count <= 0 ||
        !grow(t, (void **)&t->heap.at, t->heap.n, &t->heap.capacity, sizeof *t->heap.at))
        return;
    size_t i = t->heap.n++;
    for (; i > 0 && better(&c, &t->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap.at[i] = t->heap.at[(i - 1) / 2];
    t->heap.at[i] = c;
}

static Candidate pop(BpeTrainer *t)
{
    Candidate top = t->heap.at[0], last = t->heap.at[--t->heap.n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->heap.n; i = child) {
        if (child + 1 < t->heap.n && better(&t->heap.at[child + 1], &t->heap.at[child]))
            child++;
        if (!better(&t->heap.at[child], &last))
            break;
        t->heap.at[i] = t->heap.at[child];
    }
    t->heap.at[i] = last;
    return top;
}

/* The pair that occurs most often, or NULL when none occurs twice. */
static Pair *best_pair(BpeTrainer *t)
{
    while (t->heap.n) {
        Candidate top = pop(t);
        Pair *pair = &t->pairs.pair[top.pair];
        if (pair->count != top.count)
            push(t, top.pair);
        else
            return top.count >= 2 ? pair : NULL;
    }
    return NULL;
}

/* ---- merging ---- */

static void start_words(BpeTrainer *t)
{
    int32_t order[256];
    for (int i = 0; i < 256; i++)
        order[bpe_train_byte(i)] = i;
    t->corpus.word = arena_array(&t->arena, t->corpus.counts.n, sizeof *t->corpus.word);
    for (size_t s = 0; s < t->corpus.counts.capacity; s++) {
        const MapEntry *e = &t->corpus.counts.slot[s];
        if (!e->key)
            continue;
        Word *word = &t->corpus.word[t->corpus.n++];
        *word = (Word){.symbol = arena_array(&t->arena, e->length, sizeof *word->symbol),
                       .n = (int32_t)e->length,
                       .count = (int64_t)e->value};
        for (size_t i = 0; i < e->length; i++)
            word->symbol[i] = order[(unsigned char)e->key[i]];
    }
    for (size_t w = 0; w < t->corpus.n; w++)
        for (int32_t i = 0; i + 1 < t->corpus.word[w].n; i++) {
            Pair *pair = pair_of(t, t->corpus.word[w].symbol[i], t->corpus.word[w].symbol[i + 1]);
            if (!pair)
                return;
            pair->count += t->corpus.word[w].count;
            note_word(t, pair, (uint32_t)w);
        }
    for (size_t i = 0; i < t->pairs.n; i++)
        push(t, (uint32_t)i);
}

/* Adds the word's pairs to the counts, `sign` times; those with `symbol`, the new one, note the word. */
static void count_pairs(BpeTrainer *t, uint32_t w, int sign, int32_t symbol)
{
    const Word *word = &t->corpus.word[w];
    for (int32_t i = 0; i + 1 < word->n; i++) {
        int32_t left = word->symbol[i], right = word->symbol[i + 1];
        Pair *pair = pair_of(t, left, right);
        if (!pair)
            return;
        pair->count += sign * word->count;
        if (sign < 0 || (left != symbol && right != symbol))
            continue;
        note_word(t, pair, w);
        if (pair->stamp == t->merges.round || !grow(t, (void **)&t->touched.pair, t->touched.n,
                                                    &t->touched.capacity, sizeof *t->touched.pair))
            continue;
        pair->stamp = t->merges.round;
        t->touched.pair[t->touched.n++] = (uint32_t)(pair - t->pairs.pair);
    }
}

/* Replaces left, right by `symbol` in a word, from its begin on. */
static void merge_word(BpeTrainer *t, uint32_t w, int32_t left, int32_t right, int32_t symbol)
{
    Word *word = &t->corpus.word[w];
    int32_t first = 0;
    while (first + 1 < word->n && (word->symbol[first] != left || word->symbol[first + 1] != right))
        first++;
    if (first + 1 >= word->n)
        return;
    count_pairs(t, w, -1, symbol);
    int32_t n = first;
    for (int32_t i = first; i < word->n; n++) {
        bool match = i + 1 < word->n && word->symbol[i] == left && word->symbol[i + 1] == right;
        word->symbol[n] = match ? symbol : word->symbol[i];
        i += match ? 2 : 1;
    }
    word->n = n;
    count_pairs(t, w, 1, symbol);
}

/* The symbol with the text of two. */
static int32_t join(BpeTrainer *t, int32_t left, int32_t right)
{
    const TrainSymbol *a = &t->symbols.symbol[left], *b = &t->symbols.symbol[right];
    TrainSymbol *c = &t->symbols.symbol[t->symbols.n];
    int32_t length = a->length + b->length;
    char *text = arena_alloc(&t->arena, (size_t)length);
    memcpy(text, a->text, (size_t)a->length);
    memcpy(text + a->length, b->text, (size_t)b->length);
    bool is_new;
    uint64_t *symbol = map_put(&t->symbols.ids, text, (size_t)length, &is_new);
    if (is_new) {
        *c = (TrainSymbol){text, length};
        *symbol = (uint64_t)t->symbols.n++;
    }
    return (int32_t)*symbol;
}

static void merge_pair(BpeTrainer *t, Pair *pair)
{
    int32_t left = (int32_t)(pair->key >> 32), right = (int32_t)(uint32_t)pair->key;
    int32_t symbol = join(t, left, right);
    uint32_t *word = pair->word, n = pair->n;
    if (!pair->merged && grow(t, (void **)&t->merges.merge, t->merges.n, &t->merges.capacity,
                              sizeof *t->merges.merge))
        t->merges.merge[t->merges.n++] = (TrainMerge){left, right};
    /* The pair may move in memory, and come up again later, with other words. */
    pair->merged = true;
    pair->word = NULL;
    pair->n = pair->capacity = 0;
    t->touched.n = 0;
    t->merges.round++;
    for (uint32_t i = 0; i < n && !t->failed; i++)
        merge_word(t, word[i], left, right, symbol);
    free(word);
    for (size_t i = 0; i < t->touched.n; i++)
        push(t, t->touched.pair[i]);
}

static int run(void *of, cvn_err *err)
{
    const Training *r = of;
    BpeTrainer *t = r->t;
    int32_t vocab = r->vocab;
    if (vocab < BPE_TRAIN_LEAST || vocab > 1 << 22)
        return err_set(err, CVN_EINVAL,
                       "a vocabulary of %" PRId32 " is not possible; give %d (bytes and special "
                       "tokens) to %d",
                       vocab, BPE_TRAIN_LEAST, 1 << 22);
    if (t->corpus.counts.n == 0)
        return err_set(err, CVN_EFORMAT,
                       "the data have no text to train a tokenizer on; give text or JSONL, "
                       "or a tokenizer");
    if (t->corpus.counts.n > UINT32_MAX)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the text has more than 2^32 different words; give less of it");
    t->symbols.symbol = arena_array(&t->arena, (size_t)vocab, sizeof *t->symbols.symbol);
    for (int i = 0; i < 256; i++) {
        char byte = (char)bpe_train_byte(i);
        t->symbols.symbol[i] = (TrainSymbol){arena_copy(&t->arena, &byte, 1), 1};
        *map_put(&t->symbols.ids, &byte, 1, NULL) = (uint64_t)i;
    }
    t->symbols.n = 256;
    start_words(t);
    for (Pair *pair;
         t->symbols.n < vocab - BPE_TRAIN_SPECIAL && !t->failed && (pair = best_pair(t));)
        merge_pair(t, pair);
    if (!t->failed)
        bpe_train_json(t->symbols.symbol, t->symbols.n, t->merges.merge, t->merges.n, r->json);
    *r->reached = t->symbols.n + BPE_TRAIN_SPECIAL;
    return t->failed || r->json->failed ? err_set(err, CVN_EMEM, "no memory to train a tokenizer")
                                        : CVN_OK;
}

int bpe_trainer_run(BpeTrainer *t, int32_t vocab, StrBuf *json, int32_t *reached, cvn_err *err)
{
    Training r = {.t = t, .vocab = vocab, .json = json, .reached = reached};
    return protect(run, &r, TRAINING, err);
}
