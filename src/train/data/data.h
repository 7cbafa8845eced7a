/*
 * Training data: text, conversations or token ids on disk become rows of `seq` tokens.
 *
 *     files -> documents -> tokens, once, in a cache file (cache.h) -> rows -> batches
 *
 * Access is stateless. Row i of a split, counted over all epochs, is a pure function of the data, the
 * options and i: epoch = i / data_sequences, and the order within an epoch is a permutation computed from
 * (seed, epoch), not stored. A run's position in its data is therefore one number, the rows used so far,
 * and any process may fill any rows in any order.
 *
 *     TrainData *data;
 *     DataOptions options = {.paths = &path, .n_paths = 1, .tokenizer = t, .seq = 256, .seed = 1};
 *     if (data_open(&data, &options, err) ||
 *         data_fill(data, DATA_TRAIN, step * batch, batch, tokens, targets, starts, err))
 *         ...
 *
 * What a file is, is told by how it begins, and a folder stands for the files below it, in the order of
 * their names:
 *
 *     "CVNTOKEN"       token ids (cache.h): a cache, or a shard somebody made
 *     JSON             records (record.h), in lines or a list; of conversations only what the assistant says
 *                      is to be learnt (conversation.h)
 *     anything else    UTF-8 text; documents end at <|endoftext|> and at the end of a file
 *
 * A document is: begin-of-text id, its ids, end-of-text id, where the tokenizer has these. How rows are cut
 * from documents A (8 tokens), B (3) and C (6), with seq = 6; "." is padding:
 *
 *     DATA_PACK_STREAM     AAAAAA  AABBBC  CCCCC     the last, partial one is dropped
 *     DATA_PACK_WHOLE      AAAAAA  AABBB.  CCCCCC    a document is only cut where it must be
 *     DATA_PACK_ONE        AAAAAA  AA....  BBB...  CCCCCC
 *
 * A record that is a pair of answers (record.h) is two documents and two rows, of which the first is the chosen one; what
 * is longer than a row is cut off, and the order within an epoch is one of pairs.
 */
#ifndef CVN_TRAIN_DATA_DATA_H
#define CVN_TRAIN_DATA_DATA_H

#include "text/chat_template.h"
#include "text/tokenizer.h"

typedef enum DataSplit { DATA_TRAIN, DATA_VALIDATION, DATA_SPLITS } DataSplit;

typedef enum DataPacking {
    DATA_PACK_AUTO, /* whole where some tokens are not to be learnt (conversations), else stream */
    DATA_PACK_STREAM, /* documents behind one another, cut every seq tokens */
    DATA_PACK_WHOLE,  /* a document that does not fit into the rest of a row begins the next row */
    DATA_PACK_ONE,    /* every document begins a row */
    DATA_PACK_COUNT
} DataPacking;

extern const char *const data_packing_names[DATA_PACK_COUNT]; /* "auto", … */

typedef struct DataOptions {
    const char *const *paths; /* [n_paths] files and folders; PATH=0.7: a mixture by weights */
    size_t n_paths;
    bool pairs;                 /* records are pairs of answers: see below */
    const char *held;           /* what validates, in place of a part of the data; NULL: none */
    const Tokenizer *tokenizer; /* borrowed until data_open returns; NULL: all paths hold ids */
    const ChatTemplate *chat;   /* how messages are written; NULL: messages are an error … */
    const char *no_chat;        /* … and why, behind "there are messages here, and " */
    int32_t vocab;              /* of the model: ids must be below; 0: the tokenizer's vocabulary */
    int64_t seq;                /* tokens of a row, >= 1 */
    uint64_t seed;              /* of the order */
    double validation;          /* part of the data held back, 0 <= validation <= 0.5 */
    DataPacking packing;        /* AUTO unless said */
    const char *separator;      /* between documents of a text file; NULL: "<|endoftext|>" */
    const char *cache; /* folder for the cache, made when absent; NULL: $XDG_CACHE_HOME/caravan,
                              else ~/.cache/caravan */
    int threads;       /* that make the cache; 0: all there are */
    /* Told now and then how many bytes of the sources are tokenised; false stops with CVN_EINTERRUPTED.
     * May be NULL. */
    bool (*progress)(void *context, int64_t done, int64_t total);
    void *context; /* of progress */
} DataOptions;

/* Does not change after it was opened: threads may share it. */
typedef struct TrainData TrainData;

/*
 * Opens data, tokenising it first where no cache of it is there. CVN_EIO, CVN_EFORMAT: a file that cannot
 * be read, or holds what it must not; the file and the line or byte are named. CVN_EINVAL: less data than
 * one row, and what to do.
 */
int data_open(TrainData **out, const DataOptions *options, cvn_err *err);
void data_free(TrainData *data);

/* Rows of one epoch: at least 1 of the training split; of validation 0 where none was asked for. */
int64_t data_sequences(const TrainData *data, DataSplit split);

/* Which row of the split row i is, counted within one epoch. */
int64_t data_row(const TrainData *data, DataSplit split, int64_t i);

/* Whether some of it is not to be learnt: conversations, or completions of prompts. */
bool data_is_partial(const TrainData *data);

/* What it is, and what was done to open it. */
typedef struct DataReport {
    int64_t tokens, documents; /* of both splits together */
    int64_t cut_off;           /* documents of pairs that are longer than a row */
    /* A number that two openings share exactly when data_fill gives both the same: to be kept with a checkpoint, so that
       going on with other data is noticed. */
    uint64_t key;
    bool made;         /* tokenised now; false: the cache was there */
    int64_t bytes;     /* of the sources; 0 when not made */
    double seconds;    /* that making took */
    const char *cache; /* path of the cache, or of the only shard; owned by the TrainData */
} DataReport;
const DataReport *data_report(const TrainData *data);

/*
 * Rows first … first + n - 1 of a split (first >= 0, counted on over epochs; the validation split has the
 * same order in all of them).
 *
 *     tokens  i32 [n, seq]  ids; padding is the end-of-text id, or 0
 *     targets i32 [n, seq]  the id that follows, or -1 where nothing is to be learnt: at the last token of
 *                           a document, in padding, and in front of what the assistant does not say
 *     starts  i32 [n, seq]  where in its row the document of this token begins: token s may attend to
 *                           starts[s] … s, and s - starts[s] is its position. Padding counts as a
 *                           document of its own. May be NULL.
 *
 * The target of a row's last token is known too (it is the next row's first), so that no token is lost to
 * the cutting. CVN_EFORMAT when the cache was damaged after it was opened.
 */
int data_fill(const TrainData *data, DataSplit split, int64_t first, int64_t n, int32_t *tokens,
              int32_t *targets, int32_t *starts, cvn_err *err);

/* Trains a tokenizer on text and writes it to `out`: tokenizer.json; or a folder, where tokenizer_config.json comes with
 * it. Of the options paths, separator and progress count, and vocab: ids wanted, special tokens included; *reached (may be
 * NULL) are fewer where the text is too small. Errors as those of data_open. */
int data_train_tokenizer(const DataOptions *options, const char *out, int32_t *reached,
                         cvn_err *err);

#endif
