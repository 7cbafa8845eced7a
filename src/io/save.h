/*
 * Writing a model as a Hugging Face folder: config.json, generation_config.json, and the weights as
 * model.safetensors or, above shard_bytes, as model-0000N-of-0000M.safetensors with an index.
 * Weights are asked for in pieces and never held whole.
 *
 * A new folder is filled beside ("OUT.tmp-PID") and renamed, so OUT is absent or complete. With
 * `force` on a folder that is not empty, its files are replaced one by one, each whole, the config
 * last; what else the old model consisted of, its tokenizer too, is removed. Files of nobody's model stay.
 */
#ifndef CVN_IO_SAVE_H
#define CVN_IO_SAVE_H

#include "io/model.h"

/* What the tokenizer of a folder may consist of, ended by NULL: first those that are one, in the order in which they
 * are looked for, then what describes it. */
extern const char *const tokenizer_files[];
enum { TOKENIZER_KINDS = 2, TOKENIZER_FILES = 6 };

/* Gives elements first .. first+n-1 of a parameter, row-major in its logical shape, as f32. Called from
 * several threads at once, for different ranges. */
typedef int (*SaveFill)(void *context, const Param *param, int64_t first, int64_t n, float *out,
                        cvn_err *err);

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

int save_folder(const char *folder, const Model *config, const SaveOptions *options, SaveFill fill,
                void *context, cvn_err *err);

/* Removes the files of a model, or of adapters, from a folder, but those of these n names. */
void save_remove_others(const char *folder, const char *const *written, size_t n);

/* An opened and audited model of any form, as a Hugging Face folder: interleaved rotary pairs are brought
 * into Hugging Face's order. */
int save_model(const char *folder, const IoModel *model, const SaveOptions *options, cvn_err *err);

/* The fill that save_model uses; context is the IoModel. The rows of q and k are in Hugging Face's order. */
int save_fill_model(void *model, const Param *param, int64_t first, int64_t n, float *out,
                    cvn_err *err);

/* A fill of random weights: every parameter drawn by its initialiser (Param.init) from the stream (seed,
 * Hugging Face name), so that any slice could be drawn alone. `seed` points to a uint64_t. */
int init_fill(void *seed, const Param *param, int64_t first, int64_t n, float *out, cvn_err *err);

#endif
