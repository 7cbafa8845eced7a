/*
 * The modules of an exported folder: what runs its model, in StableHLO, for whoever has a compiler of that and nothing of
 * Caravan. Weights are those of the folder, under Hugging Face's names; what each module takes and gives is in a file:
 *
 *     signature.json     {"format": "caravan-stablehlo", "version": 1, "batch": 1, "context": 512, "modules": {"decode":
 *                         {"file": "decode.mlir",
 *                          "inputs": [{"name": "layers.0.q", "role": "weight", "dtype": "bfloat16", "shape": [8, 64, 512],
 *                                      "tensor": "model.layers.0.self_attn.q_proj.weight"}, …],
 *                          "outputs": [{"role": "next", "dtype": "int32", "shape": [1]}, {"into": 17, …}, …]}, …}}
 *     decode.mlir        a token of each row; it advances `tokens` and `start`
 *     prefill_128.mlir   a section of each row's prompt, `length` tokens of which are real
 *     score_512.mlir     the same, for log-probabilities
 *     train.mlir         a step of training: AdamW, with its state
 *
 * Inputs of a weight are its tensor, reshaped; "rounded" ones the same in another type; all others begin as 0. What comes
 * "into" an input takes its place in the next call.
 */
#ifndef CVN_CLI_EXPORT_MODULES_H
#define CVN_CLI_EXPORT_MODULES_H

#include "graph/graph.h"

typedef struct ModulesAsk {
    cvn_dtype compute; /* of what enters products, and of caches */
    int64_t batch, context;
    bool score;        /* also modules that score, of each length */
    int64_t train_seq; /* tokens of a row in a step of training; 0: no such module */
} ModulesAsk;

/* Writes them into a folder that holds a model; the signature last. */
int export_modules(const char *folder, const ModulesAsk *ask, cvn_err *err);

#endif
