/*
 * What GGUF files say of a model: the pairs of such a file, which src/io reads and writes as bytes, as settings (family.h).
 */
#ifndef CVN_MODEL_GGUF_H
#define CVN_MODEL_GGUF_H

#include "model/model.h"

/* Whether such files have norms as what is multiplied by, one more than the parameter (Param.above_one). */
bool model_gguf_above_one(const Model *model);

/* A file, by functions that look into it. */
typedef struct GgufSource {
    const char *file; /* for messages */
    const void *of;
    /* These leave *out alone and return false where there is no such key, or its value is of another type. */
    bool (*integer)(const void *of, const char *key, int64_t *out);
    bool (*real)(const void *of, const char *key, double *out);
    const char *(*text)(const void *of, const char *key); /* or NULL */
    bool (*has)(const void *of, const char *key);
    bool (*has_tensor)(const void *of, const char *name);
    int64_t vocab;   /* rows of the embedding, or pieces of the tokenizer; 0: neither is known */
    cvn_dtype dtype; /* of the weights */
    /* At most n whole numbers of a list, true as 1; *length is how many it has. */
    bool (*list)(const void *of, const char *key, int64_t n, int64_t *out, int64_t *length);
    /* The n elements of a small tensor, the file's; NULL: there is none. */
    const float *(*numbers)(const void *of, const char *name, int64_t *n);
} GgufSource;

/* Whether files of an architecture are read, and whether a key of them is known ("llama.block_count"). */
bool model_knows_gguf(const char *architecture);
bool model_knows_gguf_key(const char *architecture, const char *key, size_t n);

/* Rotary pairs lie as the architecture has them; the head is tied, and biases are present, as the tensors say; divisors must be
   those of a known llama3 scaling. It has no special tokens yet, and model_check is still to come. */
int model_of_gguf(Model **model, const GgufSource *source, Arena *arena, cvn_err *err);

/* Whether such files have the rows of q and k in the order of rotary pairs that lie side by side. */
bool model_gguf_interleaves(const Model *model);

/* Puts the architecture's keys, one after the other. */
typedef struct GgufSink {
    void *of;
    void (*integer)(void *of, const char *key, int64_t value);
    void (*real)(void *of, const char *key, double value);
    void (*text)(void *of, const char *key, const char *value);
    void (*boolean)(void *of, const char *key, bool value);
    void (*switches)(void *of, const char *key, const int64_t *value /* [n], 0 or 1 */, int64_t n);
    void (*integers)(void *of, const char *key, const int64_t *value /* [n] */, int64_t n);
} GgufSink;

/* NULL where no GGUF file holds such a model. */
const char *model_gguf_architecture(const Model *model);

/* `path` is for messages. */
int model_to_gguf(const Model *model, const char *path, const GgufSink *sink, cvn_err *err);

#endif
