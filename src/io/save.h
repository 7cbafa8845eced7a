/*
 * Writing a model as a Hugging Face folder in one go, the weights as format_hf lays them out (formats.h).
 *
 * A new folder is filled beside ("OUT.tmp-PID") and renamed, so OUT is absent or complete. With
 * `force` on a folder that is not empty, that is filled in it, and files are replaced one by one, each whole, the config
 * last; what else the old model consisted of, its tokenizer too, is removed. Files of nobody's model stay.
 */
#ifndef CVN_IO_SAVE_H
#define CVN_IO_SAVE_H

#include "io/model.h"

/* What the tokenizer of a folder may consist of, ended by NULL: first those that are one, in the order in which they
 * are looked for, then what describes it. */
extern const char *const tokenizer_files[];
enum { TOKENIZER_KINDS = 3, TOKENIZER_FILES = 8 };

typedef struct SaveOptions {
    cvn_dtype dtype;       /* f32, bf16 or f16: of the file; also written into the config */
    uint64_t shard_bytes;  /* most bytes of weights in a file (one tensor may exceed it); 0: 5e9 */
    bool force;            /* write into a folder that is not empty */
    const char *tokenizer; /* file to copy into the folder under its own name, or NULL */
    const char *tokenizer_folder; /* all tokenizer files of this folder are copied, or NULL */
    int threads;                  /* that fill and encode; 0: as many as the machine has */
    /* Nonzero ends the save with CVN_EINTERRUPTED, and nothing is left; or NULL. */
    const volatile int *interrupt;
} SaveOptions;

/* An opened and audited model of any form. */
int save_model(const char *folder, const IoModel *model, const SaveOptions *options, cvn_err *err);

/* The same of a model that is in no file (io_filled_model). */
int save_folder(const char *folder, const Model *desc, const SaveOptions *options, IoFill *fill,
                void *context, cvn_err *err);

/* Copies what there is of a folder's tokenizer_files into another. */
int save_copy_tokenizer(const char *from, const char *folder, cvn_err *err);

/* Moves the files of a folder into another, what makes a model of them last, and removes what else there is of a model, or of
   adapters, there; then the folder they came from, which is beside or in the other. */
int save_move_into(const char *from, const char *folder, Arena *arena, cvn_err *err);

/* Removes the files of a model, or of adapters, from a folder, but those of these n names. */
void save_remove_others(const char *folder, const char *const *written, size_t n);

/* A fill of random weights: every parameter drawn by its initialiser (Param.init) from the stream (seed,
 * Hugging Face name), so that any slice could be drawn alone. `seed` points to a uint64_t. */
IoFill init_fill;

#endif
