/*
 * Labels of internationalized host names (IDNA2008): what may stand in them (RFC 5892), in which direction they are written
 * (RFC 5893), and how they are written in ASCII (Punycode, RFC 3492).
 *
 *     bücher = xn--bcher-kva        U-label and A-label
 *
 * Which texts are A-labels depends on what they decode to, and how long a U-label may be on what it is encoded as. So these are languages
 * that are told by functions (term.h), and LDH labels, without anything of this kind, are expressions as others.
 */
#ifndef CVN_CONSTRAIN_IDNA_H
#define CVN_CONSTRAIN_IDNA_H

#include "constrain/term.h"

/* Where one label of a name has letters that are written from right to left, all of them keep the rule for both directions. */
typedef enum IdnaDirection { IDNA_LEFT_TO_RIGHT, IDNA_BOTH } IdnaDirection;

extern const Language idna_a_label[2], idna_u_label[2]; /* by direction */

#endif
