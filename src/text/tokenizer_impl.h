/*
 * The inside of a Tokenizer, shared by the readers (sentencepiece.c, tiktoken.c, tekken.c, huggingface.c, gguf_tokenizer.c)
 * and by encoding and decoding. Encoding is a pipeline; a reader fills in the stages its file asks
 * for:
 *
 *     text
 *      | raw tokens cut out           `added`, those not normalized     "<|eot_id|>" -> id
 *      | normalize                    `normalize`                       "a b" -> "▁a▁b"
 *      | normalized tokens cut out    `added`, those normalized; user-defined pieces
 *      | prepare                      `prepare`                         what a pre-tokenizer rewrites
 *      | split into words             `split`                           "I'm 5" -> "I", "'m", " ", "5"
 *      | byte-pair encoding           `bpe`
 *     ids
 */
#ifndef CVN_TEXT_TOKENIZER_IMPL_H
#define CVN_TEXT_TOKENIZER_IMPL_H

#include "base/map.h"
#include "text/bpe.h"
#include "text/split.h"
#include "text/tokenizer.h"
#include "text/unicode_form.h"

/* Ids and lengths above these are taken for a malformed file. The largest vocabularies have 2^18
 * ids; the longest piece of Llama 3 is 128 spaces. */
enum { TOKENIZER_MAX_IDS = 1 << 22, TOKENIZER_MAX_PIECE = 1024 };

/* How text is rewritten, one step after the other. */
typedef enum RewriteKind {
    REWRITE_PREPEND,       /* `to` in front, unless the text is empty */
    REWRITE_REPLACE,       /* every `from` by `to` */
    REWRITE_PREFIX,        /* `to` in front, unless it is there already */
    REWRITE_PREFIX_FIRST,  /* the same, but only where the whole text begins */
    REWRITE_SENTENCEPIECE, /* all that a SentencePiece NormalizerSpec says: `spm` */
    REWRITE_FORM,          /* a normalization form of Unicode: `form` */
} RewriteKind;

typedef struct SpmNormalizer {
    bool add_dummy_prefix;         /* a space in front (behind, with space_as_suffix) */
    bool remove_extra_whitespaces; /* none at the ends, at most one in a row */
    bool escape_whitespaces;       /* spaces become U+2581 */
    bool space_as_suffix;          /* pieces end with their space */
} SpmNormalizer;

typedef struct Rewrite {
    RewriteKind kind;
    const char *from, *to;         /* arena; NULL where the kind does not use it */
    size_t from_length, to_length; /* bytes */
    SpmNormalizer spm;
    UnicodeForm form;
} Rewrite;

enum { REWRITE_MAX = 8, REWRITE_MAX_GROWTH = 64, LEAD_MAX = 3 };

typedef struct RewriteList {
    Rewrite step[REWRITE_MAX];
    int n;
    size_t growth; /* bytes that its replacements make of one, at most; 0 without steps */
} RewriteList;

/* When a token is looked for in text. */
typedef enum AddedKind {
    ADDED_SPECIAL, /* when asked for: TOKENIZER_SPECIAL */
    ADDED_TEXT,    /* unless asked not to: TOKENIZER_PLAIN */
    ADDED_PIECE,   /* always: a user-defined piece of SentencePiece */
} AddedKind;

/* A token that is found in text before any merging. */
typedef struct Added {
    const char *text; /* [length] arena; what to look for */
    size_t length;    /* bytes, 1 to TOKENIZER_MAX_PIECE */
    int32_t id;
    uint32_t others; /* in a set: where items of another first byte or length begin */
    AddedKind kind;
    bool strip_left;  /* takes white space on its left along */
    bool strip_right; /* takes white space on its right along */
    bool single_word; /* found only where no character of a word touches it */
} Added;

/* Tokens to look for, leftmost first and the longest of those that begin at the same place. */
typedef struct AddedSet {
    Added *item; /* [n] sorted by first byte, then by length, longest first, then by text; arena */
    size_t n;    /* items */
    AddedKind largest; /* of the kinds of the items */
    /* Items that start with byte b: item[begin[b]] .. item[begin[b + 1] - 1]. */
    uint32_t begin[257];
} AddedSet;

typedef enum DecodeSpace {
    DECODE_KEEP_SPACE,  /* all text as it is */
    DECODE_STRIP_ONE,   /* the space that stands in front of everything is not written */
    DECODE_STRIP_FIRST, /* no space in front of the first piece is written */
    DECODE_STRIP_EACH,  /* the first space of each piece, until something was written */
} DecodeSpace;

/* How text is cut into words, and how these are merged. */
typedef struct TokenizerWords {
    Split *split[SPLIT_MAX]; /* [n_split] each cuts what the one before it left; owned */
    /* What they cut by; NULL behind the last, and where it is not a pattern; arena. */
    const char *pattern[SPLIT_MAX + 1];
    int n_split;
    bool whole;  /* a word that is a token stays one, whatever the merges */
    bool ranks;  /* merges are those of tiktoken.h */
    bool joined; /* no splits: text is cut where no merge can cross (bpe_encode_joined) */
} TokenizerWords;

/* Ids that frame texts; -1 where there is none. */
typedef struct TokenizerIds {
    int32_t bos, eos, pad;
    bool begins; /* a text begins with bos, if there is one */
    /* [n_lead] ids that stand in front of bos where a text begins with it: GLM's [gMASK]. */
    int32_t lead[LEAD_MAX];
    int n_lead;
} TokenizerIds;

/* The space in front of everything, when ids become text again. */
typedef struct TokenizerDecoding {
    DecodeSpace space;
    bool strip_bytes; /* it is dropped also when it is a byte piece */
} TokenizerDecoding;

/* Sources of chat templates; arena, or NULL. */
typedef struct TokenizerTemplates {
    const char *chat;
    const char *tools; /* for conversations with tools, where that is another one */
} TokenizerTemplates;

struct Tokenizer {
    Arena arena;         /* owns everything below */
    const char *kind;    /* static string */
    Bpe bpe;             /* the vocabulary */
    AddedSet raw;        /* tokens looked for in the text as given */
    AddedSet normalized; /* tokens looked for after rewriting */
    RewriteList normalize, prepare;
    TokenizerWords words;
    TokenizerIds ids;
    TokenizerDecoding decoding;
    uint64_t hash; /* of the file's bytes */
    TokenizerTemplates templates;
    Map special; /* text of special and added tokens -> id */
};

/* The readers. Each gets a zeroed Tokenizer with its arena and -1 for the ids, and the file's
 * bytes. */
int sentencepiece_read(Tokenizer *tokenizer, const char *bytes, size_t n, cvn_err *err);
int tiktoken_read(Tokenizer *tokenizer, const char *bytes, size_t n, cvn_err *err);

int huggingface_read(Tokenizer *tokenizer, const char *bytes, size_t n, cvn_err *err);

int tekken_read(Tokenizer *tokenizer, const char *bytes, size_t n, cvn_err *err);

/* Whether a JSON file is a tekken.json. */
bool tekken_is(const char *bytes, size_t n);

/* Whether the bytes begin as a rank file does. */
bool tiktoken_is(const char *bytes, size_t n);

/* The tokenizer of a GGUF file, and the tokenizer.model or tokenizer.json that says the same. CVN_EIO where it has none. */
int gguf_tokenizer_file(const char *bytes, size_t n, StrBuf *file, cvn_err *err);
bool gguf_tokenizer_is(const char *bytes, size_t n);
int gguf_tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err);

/* Sorts n tokens, of which `item` is an arena array, into a set. */
void added_set_init(AddedSet *set, Added *item, size_t n);

/* The first token in text[from..n) and where it begins and ends; false when there is none. Tokens of a
 * kind below `least` are passed over as text, and so are those that have a byte with a mark; mark: [n], or NULL. */
bool added_set_find(const AddedSet *set, const char *text, const char *mark, size_t n, size_t from,
                    AddedKind least, const Added **found, size_t *begin, size_t *end);

/* Runs the steps; *result and *n are the rewritten text, in one of the two buffers or `text`
 * itself. `first` says that the whole text begins here. */
void rewrite(const RewriteList *list, const char *text, size_t n, bool first, StrBuf buffers[2],
             const char **result, size_t *result_n);

#endif
