/*
 * LoRA (Hu et al. 2021, arXiv:2106.09685): the model stays as it is, and beside each chosen weight W two
 * small matrices are trained,
 *
 *   x W^T + alpha / rank (x A^T) B^T        A [rank, in], B [out, rank]
 *
 * A begins uniform in ±1 / sqrt(in), B at zero, so that the first step begins from the model as it is.
 * Both are parameters like any other (lora_params), so optimizers and checkpoints need to know nothing.
 *
 *   --lora r=16                            alpha 32 (as of every rank), on q, k, v, o, gate, up, down
 *   --lora r=8,alpha=16,targets=q,v        only on q and v
 *   --lora r=8,dropout=0.05                part of what enters them is dropped in training (dropout.h)
 *
 * On the disk adapters have PEFT's form: adapter_model.safetensors with the names below, and
 * adapter_config.json, so that PeftModel.from_pretrained(model, FOLDER) takes the folder.
 *
 *   base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight   [rank, in]
 *   base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight   [out, rank]
 */
#ifndef CVN_MODEL_LORA_H
#define CVN_MODEL_LORA_H

#include "model/params.h"

#define LORA_CONFIG_NAME "adapter_config.json"

typedef struct LoraOptions {
    int64_t rank;     /* 0: no adapters */
    double alpha;     /* scale of the addition, times rank */
    double dropout;   /* of what enters adapters in training, 0 to below 1 */
    uint64_t targets; /* bit ParamKind: weights of that kind have adapters */
} LoraOptions;

/* Reads "r=16,alpha=32,targets=q,v". */
int lora_parse(LoraOptions *options, const char *text, cvn_err *err);

/* Refuses targets that no layer of the model has, as feed-forward parts that are experts; "all" are those that it has. */
int lora_check(const LoraOptions *options, const Model *model, cvn_err *err);

/* The adapters of a model: A and B of each adapted weight, in the order of the table. */
typedef struct LoraParams {
    ParamList list;    /* the adapters as parameters; file_name[NAMING_HF] is PEFT's; list.first and
                          list.layer mean nothing */
    const Param *base; /* borrowed: the model's parameters */
    int *a; /* one for each of base: index in list of A; B is the next; -1 where there is none */
} LoraParams;

/* `base` is the model's table; everything lives in the arena. */
void lora_params(LoraParams *lora, const ParamList *base, const LoraOptions *options, Arena *arena);

/* The values that training begins from: elements first … first + n - 1 of an adapter, drawn from (seed,
 * name). */
void lora_fill(const Param *adapter, uint64_t seed, int64_t first, int64_t n, float *out);

/* What an adapter adds to its weight, alpha / rank B A. */
typedef struct LoraProduct {
    const float *a; /* [rank, columns]; borrowed */
    const float *b; /* [rows, rank]; borrowed */
    int64_t rank, columns;
    double scale; /* alpha / rank */
} LoraProduct;

/* Adds it to elements first … first + n - 1 of the weight [rows, columns]. */
void lora_merge(const LoraProduct *product, int64_t first, int64_t n, float *weight);

/* FOLDER/adapter_config.json; `model`: what the adapters were trained on, a path or name, or NULL. */
int lora_config_write(const LoraOptions *options, const char *model, const char *folder,
                      cvn_err *err);

/* Reads it back; *model (NULL where it says nothing) lives in the arena. What changes the mathematics and is
 * not done here (rslora, dora, trained biases, …) is refused. */
int lora_config_read(LoraOptions *options, const char **model, const char *folder, Arena *arena,
                     cvn_err *err);

#endif
