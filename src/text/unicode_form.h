/*
 * Unicode's normalization forms (UAX #15), by which tokenizers make different spellings of a text one: NFC writes e and U+0301 as
 * U+00E9. The work is done by utf8proc; what is not UTF-8 stays as it is.
 */
#ifndef CVN_TEXT_UNICODE_FORM_H
#define CVN_TEXT_UNICODE_FORM_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum UnicodeForm {
    FORM_NFC,
    FORM_NFD,
    FORM_NFKC,
    FORM_NFKD,
    FORM_LOWER, /* no form of UAX #15: each character in lower case, by its full mapping */
} UnicodeForm;

/* The form that a tokenizer.json names, "NFC" to "NFKD" and "Lowercase"; false for any other name. */
bool unicode_form_named(const char *name, UnicodeForm *form);

/* As many times as long a text may become. */
int unicode_form_growth(UnicodeForm form);

/* Appends n bytes of text in a form; out->failed where there is no memory. */
void unicode_form(UnicodeForm form, const char *text, size_t n, StrBuf *out);

/* Whether a character is one of words, as \w of Unicode's regular expressions (UTS #18). */
bool unicode_is_word(uint32_t point);

#endif
