/* What tests of constraints share: constraints of schemas, what becomes of texts under them, and masks held to single tokens. */
#ifndef CONSTRAIN_SUPPORT_H
#define CONSTRAIN_SUPPORT_H

#include "caravan/constrain.h"
#include "unit.h"

#include <stdbool.h>
#include <string.h>

static inline cvn_constraint *schema(const char *text, const cvn_constrain_options *options)
{
    cvn_constraint *constraint;
    cvn_err err = {0};
    must(cvn_constraint_schema(text, strlen(text), options, &constraint, &err), &err);
    return constraint;
}

/* 'y': accepted to its end; 'p': a prefix of something that is; 'n': neither. */
static inline char verdict(cvn_constraint *constraint, const char *text)
{
    cvn_constrained *state;
    cvn_err err = {0};
    must(cvn_constrained_new(constraint, NULL, &state, &err), &err);
    int code = cvn_constrained_advance_bytes(state, text, strlen(text), &err);
    char answer = code ? 'n' : cvn_constrained_complete(state) ? 'y' : 'p';
    if (code && code != CVN_EINVAL)
        fail_msg("%s", err.message);
    cvn_constrained_free(state);
    return answer;
}

/* Frees the constraint, whose text is `of`. */
static inline void check_verdict(const char *of, cvn_constraint *constraint, const char *text,
                                 char want)
{
    char got = verdict(constraint, text);
    if (got != want)
        fail_msg("%s: %s is '%c', not '%c'", of, text, got, want);
    cvn_constraint_free(constraint);
}

enum { PIECES = 320 }; /* at most, in a vocabulary */

/* A vocabulary in which every byte is a token, and some texts are. */
typedef struct Pieces {
    const char *text[PIECES]; /* [n] */
    size_t length[PIECES];    /* [n] bytes */
    size_t n;
    cvn_vocabulary *vocabulary; /* owned */
} Pieces;

/* `end`: a token without text behind them ends a text. */
static inline void pieces_init(Pieces *p, const char *const *more, size_t n, bool end)
{
    static const char *const none = "";
    static char bytes[256];
    cvn_err err = {0};
    p->n = 256 + n + end;
    assert_true(p->n <= PIECES);
    for (size_t i = 0; i < p->n; i++) {
        bytes[i % 256] = (char)i;
        p->text[i] = i < 256 ? &bytes[i] : i < 256 + n ? more[i - 256] : none;
        p->length[i] = i < 256 ? 1 : strlen(p->text[i]);
    }
    const cvn_token last = (cvn_token)p->n - 1;
    must(cvn_vocabulary_new(p->text, p->length, (cvn_token)p->n, end ? &last : NULL, end,
                            &p->vocabulary, &err),
         &err);
}

/* Whether a token's bytes may come, which a mask must say, too. `of`, `at`: what and where, for the message. */
static inline bool piece_may(const cvn_constrained *text, const Pieces *p, size_t token,
                             const uint32_t *mask, const char *of, const char *at)
{
    cvn_constrained *next = cvn_constrained_clone(text);
    bool may =
        cvn_constrained_advance_bytes(next, p->text[token], p->length[token], NULL) == CVN_OK;
    cvn_constrained_free(next);
    if (may != (mask[token / 32] >> (token % 32) & 1))
        fail_msg("%s at %s, token '%s' (%zu): the mask says %d", of, at, p->text[token], token,
                 !may);
    return may;
}

/* Goes along a text byte by byte, as far as it is let in, and holds the masks on the way to what single tokens may. */
static inline void check_masks_along(cvn_constraint *constraint, const Pieces *p, const char *of,
                                     const char *along)
{
    cvn_constrained *text;
    cvn_err err = {0};
    must(cvn_constrained_new(constraint, p->vocabulary, &text, &err), &err);
    for (const char *at = along; *at; at++) {
        uint32_t mask[CVN_MASK_WORDS(PIECES)];
        must(cvn_constrained_mask(text, mask, &err), &err);
        for (size_t i = 0; i < p->n; i++)
            (void)piece_may(text, p, i, mask, of, at);
        if (cvn_constrained_advance(text, (unsigned char)*at, NULL))
            break;
    }
    cvn_constrained_free(text);
}

#endif
