#include "text/unicode_form.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static const struct {
    const char *name;
    int options; /* of utf8proc */
    int growth;  /* UAX #15, Maximum Expansion */
} FORMS[] = {
    [FORM_NFC] = {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE, 3},
    [FORM_NFD] = {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, 4},
    [FORM_NFKC] = {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, 11},
    [FORM_NFKD] = {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, 11},
    [FORM_LOWER] = {"Lowercase", 0, 2},
};

bool unicode_form_named(const char *name, UnicodeForm *form)
{
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
        if (strcmp(FORMS[i].name, name) == 0) {
            *form = (UnicodeForm)i;
            return true;
        }
    return false;
}

int unicode_form_growth(UnicodeForm form)
{
    return FORMS[form].growth;
}

/* Characters that no form of UAX #15 without compatibility changes, and that compose with nothing in front of them: most text,
 * which is copied. */
static bool is_settled(UnicodeForm form, uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x400, 0x482},   {0x48a, 0x590},   {0x5d0, 0x5ea},   {0x620, 0x64a},     {0x2010, 0x2027},
        {0x3001, 0x3029}, {0x3041, 0x3096}, {0x30a0, 0x30ff}, {0x3400, 0x4dbf},   {0x4e00, 0x9fff},
        {0xac00, 0xd7a3}, {0xff01, 0xff60}, {0xfffd, 0xfffd}, {0x1f300, 0x1faff},
    };
    if (form != FORM_NFC || point < 0x300)
        return point < (form == FORM_NFC ? 0x300u : 0x80u);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && point >= ranges[i].first; i++)
        if (point <= ranges[i].last)
            return true;
    return false;
}

static void lower(const char *text, size_t n, StrBuf *out)
{
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        if (!length) {
            strbuf_putc(out, text[i++]);
            continue;
        }
        uint8_t bytes[4];
        uint32_t point = utf8_point(text + i, length);
        utf8proc_ssize_t made = utf8proc_encode_char(utf8proc_tolower((int32_t)point), bytes);
        if (point == 0x130) /* the only one whose lower case is two */
            strbuf_puts(out, "i\xcc\x87");
        else
            strbuf_add(out, (const char *)bytes, (size_t)made);
        i += (size_t)length;
    }
}

/* Bytes that are UTF-8, in a form. */
static void map(UnicodeForm form, const char *text, size_t n, StrBuf *out)
{
    uint8_t *made = NULL;
    utf8proc_ssize_t length = utf8proc_map((const uint8_t *)text, (utf8proc_ssize_t)n, &made,
                                           (utf8proc_option_t)FORMS[form].options);
    if (length >= 0)
        strbuf_add(out, (const char *)made, (size_t)length);
    else
        out->failed = true;
    free(made);
}

/* Copies what is settled. The rest goes through utf8proc from the character in front of it, which it may compose with, up to the
 * next that is settled. */
void unicode_form(UnicodeForm form, const char *text, size_t n, StrBuf *out)
{
    if (form == FORM_LOWER) {
        lower(text, n, out);
        return;
    }
    size_t done = 0, last = 0; /* text[last..i) is the character before i */
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        size_t end = i + (length ? (size_t)length : 1);
        if (!length || is_settled(form, utf8_point(text + i, length))) {
            last = length ? i : end;
            i = end;
            continue;
        }
        strbuf_add(out, text + done, last - done);
        while (end < n && (length = utf8_length(text + end, n - end)) &&
               !is_settled(form, utf8_point(text + end, length)))
            end += (size_t)length;
        map(form, text + last, end - last, out);
        done = last = i = end;
    }
    strbuf_add(out, text + done, n - done);
}

bool unicode_is_word(uint32_t point)
{
    utf8proc_category_t category = utf8proc_category((int32_t)point);
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) ||
           category == UTF8PROC_CATEGORY_PC || point == 0x200c || point == 0x200d;
}
