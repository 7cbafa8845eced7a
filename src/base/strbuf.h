/*
 * A growing string. Invariant: text is NUL-terminated and never NULL once something was added;
 * length does not count the NUL. When memory runs out, `failed` is set, later additions are ignored
 * and the caller checks once, at the end.
 */
#ifndef CVN_BASE_STRBUF_H
#define CVN_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct StrBuf {
    char *text;      /* owned, heap */
    size_t length;   /* bytes used, without the NUL */
    size_t capacity; /* bytes allocated */
    bool failed;     /* memory ran out; what was added last is missing */
} StrBuf;

/* A StrBuf starts as {0}. */
void strbuf_free(StrBuf *buf);
void strbuf_release(void *buf); /* the same as a cleanup (base/protect.h) */
void strbuf_clear(StrBuf *buf); /* empty, capacity kept */
void strbuf_add(StrBuf *buf, const void *bytes, size_t n);
void strbuf_puts(StrBuf *buf, const char *text);
void strbuf_putc(StrBuf *buf, char c);
void strbuf_word(StrBuf *buf,
                 const char *word);            /* as a shell reads it as one: quoted where needed */
void strbuf_count(StrBuf *buf, int64_t count); /* its thousands apart: "8,030,261,248" */
void strbuf_printf(StrBuf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
