/*
 * Which slot holds a sequence of tokens, or the longest beginning of it: a radix tree. A node stands for the tokens from its
 * parent's end to its own; slots lie at the nodes where their sequences end.
 *
 *     slot 0   S y s t e m Q 1             "System Q" --- "1"           slot 0
 *     slot 1   S y s t e m Q 2                        \-- "2"           slot 1
 *     slot 2   H i                         "Hi"                         slot 2
 *
 * Tokens are not copied: a node reads those of some slot below it, which stay as they are while the slot is in the tree. A slot
 * adds at most a leaf, a fork and the node of its salt and adapter, so that nodes are made once, and nothing here can fail. Slots are also
 * in an order, the one used last in front.
 */
#ifndef CVN_SERVE_RADIX_H
#define CVN_SERVE_RADIX_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct RadixNode {
    int parent, child, next; /* the first child, the next one of the parent; -1: none */
    int slot;                /* the first that ends here, or -1 */
    int any;                 /* some slot at or below it: whose tokens it reads */
    int slots, free;         /* at or below it */
    int64_t end;             /* tokens of a sequence that ends here */
    uint64_t salt;           /* of a child of the root, which has no tokens, … */
    int adapter;             /* … and this, too */
} RadixNode;

typedef struct RadixSlot {
    const int32_t *token; /* borrowed */
    int64_t n;
    int node;         /* where it ends, or -1 */
    int next;         /* the next one that ends there, or -1 */
    bool busy;        /* of two that hold as much the other is found */
    int newer, older; /* in the order of use, or -1 */
} RadixSlot;

typedef struct Radix {
    RadixNode *node; /* [3 * slots + 1] the first is the root */
    RadixSlot *slot; /* [slots] */
    int spare;       /* the first node that is in no use, linked by `next` */
    int slots, newest, oldest;
} Radix;

void radix_init(Radix *radix, int slots, Arena *arena);

/* From now on the slot holds these tokens, as the adapter makes of them; n = 0: none. */
void radix_set(Radix *radix, int slot, uint64_t salt, int adapter, const int32_t *token, int64_t n);
void radix_set_busy(Radix *radix, int slot, bool busy);

/* How many of the first n tokens some slot of that salt and adapter holds, and which one: one that is not busy, if there
   is. */
int64_t radix_find(const Radix *radix, uint64_t salt, int adapter, const int32_t *token, int64_t n,
                   int *slot);

/* The slot is the one used last. */
void radix_use(Radix *radix, int slot);
/* Of those that are not busy, the one used longest ago; -1: all are. */
int radix_oldest(const Radix *radix);

#endif
