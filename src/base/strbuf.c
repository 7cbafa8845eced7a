#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void strbuf_free(StrBuf *buf)
{
    free(buf->text);
    *buf = (StrBuf){0};
}

void strbuf_release(void *buf)
{
    strbuf_free(buf);
}

void strbuf_clear(StrBuf *buf)
{
    buf->length = 0;
    if (buf->text)
        buf->text[0] = '\0';
}

/* Room for n more bytes and the NUL. */
static bool reserve(StrBuf *buf, size_t n)
{
    if (buf->failed)
        return false;
    if (n >= (size_t)1 << 48)
        return buf->failed = true, false;
    size_t need = buf->length + n + 1;
    if (need <= buf->capacity)
        return true;
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < need)
        capacity *= 2;
    char *text = realloc(buf->text, capacity);
    if (!text)
        return buf->failed = true, false;
    buf->text = text;
    buf->capacity = capacity;
    return true;
}

void strbuf_add(StrBuf *buf, const void *bytes, size_t n)
{
    if (!reserve(buf, n))
        return;
    if (n)
        memcpy(buf->text + buf->length, bytes, n);
    buf->length += n;
    buf->text[buf->length] = '\0';
}

void strbuf_puts(StrBuf *buf, const char *text)
{
    strbuf_add(buf, text, strlen(text));
}

void strbuf_putc(StrBuf *buf, char c)
{
    strbuf_add(buf, &c, 1);
}

void strbuf_printf(StrBuf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && reserve(buf, (size_t)n)) {
        vsnprintf(buf->text + buf->length, (size_t)n + 1, format, again);
        buf->length += (size_t)n;
    }
    va_end(again);
}

void strbuf_word(StrBuf *buf, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./,:=@%+-";
    size_t i = 0;
    while (word[i] && ((unsigned char)word[i] >= 0x80 || strchr(plain, word[i])))
        i++;
    if (i > 0 && !word[i]) {
        strbuf_puts(buf, word);
        return;
    }
    strbuf_putc(buf, '\'');
    for (const char *at = word; *at; at++) {
        if (*at == '\'')
            strbuf_puts(buf, "'\\'");
        strbuf_putc(buf, *at);
    }
    strbuf_putc(buf, '\'');
}

void strbuf_count(StrBuf *buf, int64_t count)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-')
            strbuf_putc(buf, ',');
        strbuf_putc(buf, digits[i]);
    }
}
