/*
 * Layers with a window (model_window) look back so far and no further: as a text grows, the pages behind it of their tables
 * (model/caches.h) go back to the pool, and others take them. A text goes on from where it ends, and from where its prompt ends: an answer is asked for again, or, where
 * what was decoded is not shared (prefix.h), read again. So two pieces are kept of a slot, W positions and a little more before either:
 *
 *     position   0 ……………… read - W ………… read ……………………… filled - W ………… filled
 *                  given back      kept        given back            kept
 *
 * Anybody who would take a text back, or go on from a beginning that it shares, asks windows_back first; where what that needs is
 * gone, the text is read again from its first token.
 */
#ifndef CVN_SERVE_WINDOWS_H
#define CVN_SERVE_WINDOWS_H

#include "serve/engine.h"

typedef struct SlotWindow {
    int64_t prompt;       /* tokens of the request's prompt; 0: nobody goes on from there */
    int64_t read, filled; /* of the prompt, and of all, that were ever in the cache */
    int64_t least;        /* the text has gone on from here: further back is not known */
    bool gone;            /* something was */
} SlotWindow;

/* A text goes on in a slot that holds the first `keep` tokens of its prompt, of so many. */
void windows_begin(cvn_engine *e, int slot, int64_t prompt, int64_t keep);

/* The slot has n positions filled now; 0: it is empty. */
void windows_fill(cvn_engine *e, int slot, int64_t n);

/* n, where the slot's text can go on from its first n positions; else 0. */
int64_t windows_back(const cvn_engine *e, int slot, int64_t n);

/* Pages for a text of n positions, whose slot holds none, but those behind windows: there are as many of those that one text holds. */
void windows_take(cvn_engine *e, int text, int64_t n);

/* Two texts change places. */
void windows_exchange(cvn_engine *e, int a, int b);

#endif
