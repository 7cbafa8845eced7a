/*
 * The adapters that slots choose from (options.adapter), which lie beside each other as if they were one of all their ranks:
 *
 *     three of 4, 4 and 2 ranks        A [10, in], B [out, 10]
 *     a slot that has the second        select  0 0 0 0  2 2 2 2  0 0        alpha / rank = 2
 *     one that has none                select  0 0 0 0  0 0 0 0  0 0
 *
 * Every slot is multiplied with all of A, and what is of other adapters counts 0: slots of one batch may have different ones,
 * and each has the bits that it has alone. Runs in which no slot has one leave all of it out, with the same bits.
 */
#ifndef CVN_SERVE_ADAPTERS_H
#define CVN_SERVE_ADAPTERS_H

#include "io/adapter.h"
#include "run/runtime.h"
#include "serve/model.h"

enum { ADAPTERS_MOST = 1024 };

typedef struct Adapters {
    const cvn_model *model; /* borrowed */
    int n;
    IoAdapter *adapter; /* [n] owned */
    int64_t *first;     /* [n] the rank that each begins at */
    int64_t ranks;      /* of all */
    uint64_t targets;   /* what any of them adapts: bits of LoraOptions.targets */
    LoraParams params;  /* of all as one */
} Adapters;

/* Opens the folders. On an error, too, they are to be closed. */
int adapters_open(Adapters *adapters, const cvn_model *model, const char *const *folder, int n,
                  Arena *arena, cvn_err *err);
void adapters_close(Adapters *adapters);

/* Fills their weights on the devices. */
int adapters_load(const Adapters *adapters, Runtime *rt, cvn_err *err);

/* What each rank counts [ranks] in a slot that has one of them; -1: none. */
void adapters_select(const Adapters *adapters, int which, float *select);

#endif
