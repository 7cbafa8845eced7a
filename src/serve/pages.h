/*
 * The pages of the caches: who holds which. A page has the keys and values of so many positions in a row, in the layers of a table
 * (model/caches.h).
 *
 *     table 0    slot 0      4  7  2          300 tokens in pages of 128
 *                slot 1      4  7  9  5       a text that begins as the one of slot 0: what is full is shared, and never written
 *                kept text   1                what ended, for prompts that begin alike (serve/prefix.h)
 *     table 1    slot 0      -  -  6          layers with a window: what lies behind it was given back (serve/windows.h)
 *     free       0 3 8                        of the tables' pool
 *
 * A page is taken when a run is about to fill its first position, and is free when nobody holds it. Where none is free, kept texts give
 * theirs up, and then a request that runs (serve/scheduler.h). A request begins when there are pages for what it reads, and for what those
 * that run are about to. Where the mesh splits slots into shards, pages are split alike.
 *
 * Devices for which pages are no way to read a cache have one to a slot (steps_room).
 */
#ifndef CVN_SERVE_PAGES_H
#define CVN_SERVE_PAGES_H

#include "serve/engine.h"

typedef struct PagePool {
    int64_t n;        /* of a shard */
    int32_t *holders; /* [shards * n] texts that hold a page */
    int32_t *next;    /* [shards * n] in the list of those that are free, or -1 */
    int32_t *free;    /* [shards] the first of them, or -1 */
    int *mark;        /* [shards * n] of whoever counts, … */
    int64_t counted;  /* … and what they come to */
} PagePool;

typedef struct PageTable {
    PagePool *pool;
    int32_t *page; /* [texts, each]; -1: none, or none any more */
} PageTable;

typedef struct Pages {
    int64_t size; /* positions */
    int64_t each; /* of a text in a table, at most */
    int texts;    /* slots, and behind them those that are kept */
    int pools, tables;
    PagePool *pool;   /* [pools] */
    PageTable *table; /* [tables] */
    int64_t *held;    /* [texts] the first so many of a table's row */
    int *shard;       /* [texts] */
    int marks;
} Pages;

/* A slot's pages for positions [0, n); false where there are not as many, and it holds those that there were. */
bool pages_hold(cvn_engine *e, int slot, int64_t n);

/* A text goes on from position n, or, where that is in a page that others hold, from the begin of that page, which is returned; what is
   behind is no longer held. */
int64_t pages_cut(cvn_engine *e, int text, int64_t n);

/* A text holds its page i of a table no longer, and those behind it still. */
void pages_leave(cvn_engine *e, int text, int table, int64_t i);

/* Whether a text holds its page i of all tables, and nobody else does. */
bool pages_own(const cvn_engine *e, int text, int64_t i);

/* Whether a request may begin in a slot that holds the first `shared` pages of a text. */
bool pages_suffice(cvn_engine *e, int slot, int text, int64_t shared, const Job *job);

/* The share of all pages that texts of running requests hold, from 0 to 1: what others hold they give up when it is needed. */
double pages_used(cvn_engine *e);

/* A slot, which holds none, holds the first n pages of a text, too. */
void pages_share(cvn_engine *e, int text, int slot, int64_t n);

/* Two texts of a shard change places. */
void pages_exchange(cvn_engine *e, int a, int b);

#endif
