/*
 * A little run to save and restore: a state of a few tensors and an update that is deterministic and
 * mixes every bit, so that a state one step off, or restored in part, never looks right by accident.
 */
#ifndef CVN_TESTS_TRAIN_SUPPORT_H
#define CVN_TESTS_TRAIN_SUPPORT_H

#include "io_support.h"
#include "shard/box.h"
#include "train/checkpoint/checkpoint.h"

enum { TOY_TENSORS = 5 };

typedef struct Toy {
    CheckpointTensor tensor[TOY_TENSORS];
    CheckpointState state;
} Toy;

static const char toy_config[] = "{\"preset\": \"toy\", \"lr\": 1e-05, \"steps\": 40}";

/* `scale` multiplies the size of the large tensors. */
static inline Toy *toy_new(int64_t scale)
{
    static const char *const name[TOY_TENSORS] = {
        "model.embed_tokens.weight", "model.norm.weight", "optimizer.m.model.embed_tokens.weight",
        "optimizer.v.model.norm.weight", "optimizer.count"};
    Toy *toy = calloc(1, sizeof *toy);
    assert_non_null(toy);
    const cvn_type type[TOY_TENSORS] = {CVN_TYPE(CVN_F32, 16 * scale, 4, 8), CVN_TYPE(CVN_F32, 32),
                                        CVN_TYPE(CVN_F32, 16 * scale, 4, 8), CVN_TYPE(CVN_BF16, 32),
                                        cvn_scalar(CVN_I32)};
    for (int i = 0; i < TOY_TENSORS; i++) {
        toy->tensor[i] = (CheckpointTensor){name[i], type[i], calloc(1, cvn_type_bytes(&type[i]))};
        assert_non_null(toy->tensor[i].data);
    }
    toy->state = (CheckpointState){
        .tensor = toy->tensor, .n = TOY_TENSORS, .seed = UINT64_MAX - 6, .config = toy_config};
    return toy;
}

static inline void toy_free(Toy *toy)
{
    for (int i = 0; i < TOY_TENSORS; i++)
        free(toy->tensor[i].data);
    free(toy);
}

/* One step: every byte depends on itself, its left neighbour, the step and the data position. */
static inline void toy_step(Toy *toy)
{
    toy->state.step++;
    toy->state.tokens += 128;
    toy->state.position += 4;
    for (int i = 0; i < TOY_TENSORS; i++) {
        uint8_t *byte = toy->tensor[i].data;
        size_t n = cvn_type_bytes(&toy->tensor[i].type);
        uint8_t left = byte[n - 1];
        for (size_t b = 0; b < n; b++)
            left = byte[b] = (uint8_t)(byte[b] * 5 + left + (int)b + i + toy->state.position);
    }
}

static inline bool toy_equal(const Toy *a, const Toy *b)
{
    bool equal = a->state.step == b->state.step && a->state.tokens == b->state.tokens &&
                 a->state.position == b->state.position && a->state.seed == b->state.seed;
    for (int i = 0; i < TOY_TENSORS; i++)
        equal &=
            memcmp(a->tensor[i].data, b->tensor[i].data, cvn_type_bytes(&a->tensor[i].type)) == 0;
    return equal;
}

/* What the trainer does with buffers, with the toy's own memory. */
static inline int toy_restore(const Checkpoint *checkpoint, CheckpointState *state, cvn_err *err)
{
    int code = checkpoint_restore_counters(checkpoint, state, err);
    for (int i = 0; i < state->n && code == CVN_OK; i++) {
        const Box box = box_whole(&state->tensor[i].type);
        const BoxArray to = box_packed(&box);
        checkpoint_restore_box(checkpoint, &state->tensor[i], &to, state->tensor[i].data);
    }
    return code;
}

/* A run that was never interrupted, after `step` steps. */
static inline Toy *toy_at(int64_t scale, int64_t step)
{
    Toy *toy = toy_new(scale);
    while (toy->state.step < step)
        toy_step(toy);
    return toy;
}

#endif
