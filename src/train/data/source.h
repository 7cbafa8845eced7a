/*
 * The files that training data comes from, and the pieces they are tokenised in. A unit is a record of JSON (record.h), or a document of a text file; a text of more than SOURCE_PIECE bytes is cut into several, at
 * ends of lines, so that memory stays bounded whatever the file. (At such a cut alone the ids may differ
 * from those of the text as one.)
 *
 * Documents of text lose the line ends in front and behind; empty ones are passed over, and so is a
 * byte-order mark.
 */
#ifndef CVN_TRAIN_DATA_SOURCE_H
#define CVN_TRAIN_DATA_SOURCE_H

#include "base/file.h"

enum { SOURCE_PIECE = 4 << 20, SOURCE_BATCH_FILES = 1024 };

#define SOURCE_SEPARATOR "<|endoftext|>"

typedef enum SourceKind {
    SOURCE_TEXT,
    SOURCE_JSONL,   /* a record in each line */
    SOURCE_RECORDS, /* records wherever lines end, in a list or not */
    SOURCE_TOKENS
} SourceKind;

typedef struct SourceFile {
    char *path; /* owned */
    SourceKind kind;
    int64_t size;     /* bytes, when it was listed */
    int64_t modified; /* nanoseconds since 1970, when it was listed */
} SourceFile;

typedef struct SourceList {
    SourceFile *file; /* [n], owned */
    size_t n;
} SourceList;

/* A path as it was named, without the weight that may stand behind it: of "a.jsonl=0.7", where there is no such file, 0.7
 * goes to *weight, else 0. */
FilePath source_path(const char *named, double *weight);

/* Lists files and what is in folders, without hidden files, in the order given and in folders by name. An
 * empty file is an error when it was named, and passed over in a folder. */
int source_list(SourceList *list, const char *const *paths, size_t n, cvn_err *err);
void source_list_free(SourceList *list);

/* CVN_EIO when the file is not as it was when it was listed. */
int source_unchanged(const SourceFile *file, cvn_err *err);

typedef struct SourceUnit {
    const char *text; /* [n] bytes, good until the next source_batch */
    size_t n;
    const SourceFile *file; /* borrowed */
    int64_t line;           /* of records: from 1 */
    int64_t offset;         /* of text in the file, bytes */
    bool begins, ends;      /* a document */
} SourceUnit;

/* Goes through the text and JSONL files of a list. Starts as {list, separator}. */
typedef struct SourceReader {
    const SourceList *list;          /* borrowed */
    const char *separator;           /* borrowed: between the documents of a text, not empty */
    size_t next_file;                /* the first that was not opened yet */
    FileMap map[SOURCE_BATCH_FILES]; /* owned: the files that units of this batch lie in */
    size_t n_maps;
    const SourceFile *file; /* that is being read, the last of map; NULL: none */
    size_t at, end;         /* in it: the next byte; end of the present document */
    bool inside;            /* a document, or the list of records, has begun and not ended */
    int64_t line;           /* lines seen */
    int64_t done;           /* bytes of the files before */
} SourceReader;

/* The next units, at most `most`, and about `bytes` of text; *n is 0 at the end. */
int source_batch(SourceReader *reader, SourceUnit *unit, size_t most, size_t bytes, size_t *n,
                 cvn_err *err);

/* How many bytes have been read so far. */
int64_t source_position(const SourceReader *reader);

void source_reader_free(SourceReader *reader);

#endif
