/*
 * A model card: README.md in a Hugging Face folder, of which the name and the licence are kept in other file formats.
 *
 *     ---
 *     license: apache-2.0        GGUF's general.license; also license_name and license_link
 *     ---
 *     # SmolLM2                  its general.name: the first heading
 */
#ifndef CVN_IO_CARD_H
#define CVN_IO_CARD_H

#include "base/arena.h"

enum { CARD_FIELDS = 4 };

/* The name and the fields of the licence, as keys of GGUF files call them. */
extern const char *const card_keys[CARD_FIELDS];

typedef struct Card {
    const char *value[CARD_FIELDS]; /* in the order of card_keys; NULL: the card does not say */
} Card;

/* Reads the card in a folder, if there is one; its texts live in the arena. */
void card_read(Card *card, const char *folder, Arena *arena);

/* Writes a card into a folder, if it says anything. */
int card_write(const Card *card, const char *folder, cvn_err *err);

#endif
