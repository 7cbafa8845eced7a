/*
 * Byte-pair encoding, the part all Llama tokenizers share. Text is first a row of symbols
 * (characters, or bytes); then, again and again, the adjacent pair with the lowest rank is replaced
 * by its merged symbol, the leftmost first among equals:
 *
 *     symbols          h e l l o        ranks: ll 0, he 1, llo 2, hello 3
 *     ll  (0)          h e ll o
 *     he  (1)          he ll o
 *     llo (2)          he llo
 *     hello (3)        hello
 *
 * The kinds of tokenizer differ only in where ranks come from; a reader turns them into one table
 * from a pair of ids to (rank, merged id). A linked list of symbols and a heap of candidate pairs
 * make it O(n log n), also for ten million times the same letter.
 *
 * Two short cuts, neither of which changes a result:
 *   whole   text that is itself a piece, of which it was checked when the file was read (by merging
 * it) that it encodes to itself; joins   where two adjacent ASCII characters occur side by side in
 * no piece, no merge can cross, so the text may be cut there and each part handled alone, in cache.
 */
#ifndef CVN_TEXT_BPE_H
#define CVN_TEXT_BPE_H

#include "base/arena.h"
#include "base/err.h"
#include "text/token_ids.h"

typedef enum PieceKind {
    PIECE_NONE,    /* a gap in the numbering: no text has this id */
    PIECE_NORMAL,  /* made of text by merging */
    PIECE_BYTE,    /* one byte that no character piece could express */
    PIECE_UNKNOWN, /* text the vocabulary cannot express */
    PIECE_USER,    /* added: found in the text before merging, and stands for itself */
    PIECE_SPECIAL, /* control: never made of text unless asked for */
} PieceKind;

typedef struct BpePiece {
    const char *text; /* [length] as in the vocabulary, arena */
    const char *out;  /* [out_length] what decoding writes, arena */
    int32_t length;
    int32_t out_length;
    uint8_t kind; /* PieceKind */
    bool whole;   /* encodes to itself: looking it up replaces merging */
} BpePiece;

typedef struct BpeKey {
    uint32_t hash;
    int32_t symbol; /* -1: empty slot */
} BpeKey;

typedef struct BpePair {
    uint64_t pair; /* left symbol << 32 | right symbol; UINT64_MAX: empty slot */
    uint32_t rank; /* lower merges first */
    int32_t merged;
} BpePair;

/* Both tables are addressed openly; their capacities are powers of two. */
typedef struct BpeKeys {
    BpeKey *key; /* [capacity] text of a piece -> symbol */
    size_t n, capacity;
} BpeKeys;

typedef struct BpePairs {
    BpePair *pair; /* [capacity] */
    size_t n, capacity;
} BpePairs;

/*
 * Symbols 0 to n_ids-1 are ids. Symbols from n_ids on are characters that occur inside pieces
 * without being pieces: they take part in merging, and what is left of them is written as unknown
 * or as bytes.
 */
typedef struct Bpe {
    Arena *arena;      /* borrowed: the tokenizer's */
    BpePiece *piece;   /* [symbol_capacity], arena */
    int32_t n_ids;     /* size of the vocabulary */
    int32_t n_symbols; /* n_ids and the characters that are no piece */
    int32_t symbol_capacity;
    BpeKeys keys;
    BpePairs pairs;
    int32_t longest;      /* bytes of the longest piece that is whole */
    int32_t byte_id[256]; /* id that stands for a byte, or -1 */
    int32_t unknown;      /* id for what cannot be expressed, or -1 */
    bool byte_symbols;    /* the first symbols are bytes (else UTF-8 characters) */
    bool fuse_unknown;    /* a run of unknowns is one id */
    bool joins[128][128]; /* two ASCII characters are neighbours in some piece */
} Bpe;

/* One encoder's memory, reused from piece to piece. Starts as {0}. */
typedef struct BpeWork {
    int32_t *symbol; /* [capacity] symbol at a place, or BPE_DEAD once merged into the left one */
    int32_t *next;   /* [capacity] place to the right, or -1 */
    int32_t *prev;   /* [capacity] place to the left, or -1 */
    uint64_t *heap;  /* [heap_capacity] candidates: rank << 32 | place of the left symbol */
    size_t capacity, n_heap, heap_capacity;
} BpeWork;

void bpe_work_free(BpeWork *work);

/* `n_pieces`: about how many of the ids have a piece; the tables begin with room for that many. */
void bpe_init(Bpe *bpe, Arena *arena, int32_t n_ids, size_t n_pieces);

/* Describes an id; the text is copied. It is not yet found in text: see bpe_index. */
void bpe_set_piece(Bpe *bpe, int32_t id, PieceKind kind, const char *text, size_t n);

/* What decoding writes for an id, when it is not the piece's text: another text, with spaces for U+2581
 * when `blanks`; one byte, which also makes it a byte piece. */
void bpe_set_out(Bpe *bpe, int32_t id, const char *text, size_t n, bool blanks);
void bpe_set_byte(Bpe *bpe, int32_t id, unsigned char byte);

/* The byte that "<0x0A>" names, or -1. */
int piece_byte(const char *text, size_t n);

/* Makes the id the one for its text; false when the text already has an id. */
bool bpe_index(Bpe *bpe, int32_t id);

/* The symbol with that text, or -1. */
int32_t bpe_find(const Bpe *bpe, const char *text, size_t n);

/* As bpe_find for one character; makes a symbol when there is none. */
int32_t bpe_character(Bpe *bpe, const char *text, size_t n);

/* left, right -> merged; replaces what was said of the pair before. */
void bpe_add_pair(Bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t merged);

/* The pair's entry, or NULL when the two do not merge. */
const BpePair *bpe_find_pair(const Bpe *bpe, int32_t left, int32_t right);

/* All ways to make a piece of two symbols, with the same rank. */
void bpe_add_splits(Bpe *bpe, int32_t id, uint32_t rank);

/* To be called once after the tables are filled: `always_whole` takes every piece for its own
 * encoding (tiktoken; ignore_merges), else it is checked piece by piece. */
int bpe_finish(Bpe *bpe, bool always_whole, cvn_err *err);

/* Appends the ids of n bytes. Text is cut where no merge can cross (bpe_encode_joined) or is taken
 * to be one unit (bpe_encode). `start` is where in out the present text began, for fusing unknowns. */
int bpe_encode(const Bpe *bpe, BpeWork *work, const char *text, size_t n, size_t start,
               TokenIds *out, cvn_err *err);
int bpe_encode_joined(const Bpe *bpe, BpeWork *work, const char *text, size_t n, size_t start,
                      TokenIds *out, cvn_err *err);

#endif
