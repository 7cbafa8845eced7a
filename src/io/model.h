/*
 * A model on disk, whatever its form, opened as a config and a table "parameter -> tensor in a
 * file":
 *
 *   a folder with config.json and *.safetensors      Hugging Face
 *   a folder with params.json and consolidated.*.pth Meta
 *   a file *.gguf                                    GGUF
 *   a file *.bin                                     llama2.c
 *   a folder with adapter_config.json                PEFT: the model it names, and adapters (adapter.h)
 *
 * Opening maps the files and reads their headers, never the weights. The audit holds the files to
 * the table of parameters: every parameter is there, with its shape and a type that is understood,
 * and nothing else is, except what is known to carry no weights:
 *   - "*.rotary_emb.inv_freq" and Meta's "rope.freqs": frequencies that follow from the config;
 *   - an output head of the embedding's shape in a model whose config ties the two: the config
 * wins, as in transformers.
 */
#ifndef CVN_IO_MODEL_H
#define CVN_IO_MODEL_H

#include "base/file.h"
#include "io/gguf.h"
#include "io/tensor.h"
#include "model/params.h"

typedef enum IoKind { IO_KIND_HF, IO_KIND_META, IO_KIND_GGUF, IO_KIND_LLAMA2C } IoKind;

typedef struct IoModel {
    Arena arena;         /* owned: everything below but the mappings */
    const char *path;    /* as given; of adapters, that of their model */
    const char *adapter; /* the folder of adapters that are merged in, or NULL */
    IoKind kind;
    Model *desc;       /* what it is; the arena's */
    IoTensors tensors; /* all tensors of all files */
    FileMap *map;      /* [n_maps], owned mappings */
    size_t n_maps;
    Gguf *gguf; /* of a GGUF file: its key-value pairs (the tokenizer is in there); else NULL */
    ParamList params; /* of the config */
    bool quantizes;   /* the params are quantized and the files are not: see io_quantize */
    /* [params.n]: the tensor that holds each parameter; NULL before the audit. */
    const IoTensor **source;
} IoModel;

/* Opens and audits. Close it also after weights were loaded from it only when they are freed too. */
int io_open_model(IoModel *model, const char *path, cvn_err *err);

/* A model that is in no file: its elements are given by a call-back, which is called while the model is read. `name` is what
   messages call it. */
int io_filled_model(IoModel *model, const char *name, const Model *desc, IoFill *fill,
                    void *context, cvn_err *err);

/* The same as bits say. */
enum {
    IO_TEXT_ONLY =
        1, /* a model that sees or hears is not refused: its text model is opened (towers.h) */
    IO_SHOWN = 2, /* without the audit; of a folder of adapters the files of their model */
};
int io_open_as(IoModel *model, const char *path, unsigned how, cvn_err *err);

/* The files of a model, and no folder of adapters: config and tensors. */
int io_open_files(IoModel *model, const char *path, bool text_only, cvn_err *err);
int io_audit(IoModel *model, cvn_err *err);

/* Has the matrices of an audited model quantized when its weights are loaded: config, params and source
   become those of the quantized model. Refuses a model whose files are quantized. */
int io_quantize(IoModel *model, QuantScheme scheme, cvn_err *err);

/* The opposite, of a model whose files are quantized: config, params and source become those of its numbers times their scales.
   A head that was tied to the embedding is so again. */
void io_widen(IoModel *model);

/* The tensors of an audited model whose files are quantized, each matrix one with its scales; of another, those of its files. */
IoTensors io_joined(IoModel *model);

/* Has the matrices that are stored in blocks of GGUF types, or in what such blocks hold as well (packed.h), stay so: config, params and source become those of a model in
   blocks. What is cut into parts, or has adapters, is widened as before. */
void io_keep_blocks(IoModel *model);

void io_close_model(IoModel *model);

/* The row of a parameter that is in the files of a model where `row` is with rotary pairs side by side (interleaved, as Meta and
   GGUF have them) or half a head apart (as Hugging Face has them):

       row of Hugging Face     0  1  2  3     (head dimension 4, half 2)
       row of Meta             0  2  1  3 */
int64_t io_row(const IoModel *model, const Param *param, int64_t row, bool interleaved);

/* "Hugging Face folder", ... */
const char *io_kind_name(IoKind kind);

#endif
