#include "serve/stops.h"

#include <string.h>

void stops_init(Stops *stops, const char *const *text, size_t n)
{
    *stops = (Stops){.text = text, .n = n};
}

void stops_free(Stops *stops)
{
    strbuf_free(&stops->held);
}

/* The longest stop text that text[0 … n) ends with, or NULL. */
static const char *ends_with_stop(const Stops *stops, const char *text, size_t n)
{
    const char *met = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < stops->n; i++) {
        size_t length = strlen(stops->text[i]);
        if (length <= n && length > longest &&
            memcmp(text + n - length, stops->text[i], length) == 0) {
            longest = length;
            met = stops->text[i];
        }
    }
    return met;
}

/* Length of the longest end of text[0 … n) with which a stop text begins. */
static size_t begins_stop(const Stops *stops, const char *text, size_t n)
{
    size_t longest = 0;
    for (size_t i = 0; i < stops->n; i++) {
        size_t most = strlen(stops->text[i]) - 1;
        for (size_t k = most < n ? most : n; k > longest; k--)
            if (memcmp(text + n - k, stops->text[i], k) == 0)
                longest = k;
    }
    return longest;
}

bool stops_push(Stops *stops, const char *text, size_t n, StrBuf *out)
{
    if (stops->stopped)
        return false;
    StrBuf *held = &stops->held;
    for (size_t i = 0; i < n; i++) {
        strbuf_putc(held, text[i]);
        const char *stop = held->failed ? NULL : ends_with_stop(stops, held->text, held->length);
        if (stop) {
            strbuf_add(out, held->text, held->length - strlen(stop));
            strbuf_clear(held);
            stops->stopped = true;
            stops->met = stop;
            return false;
        }
    }
    out->failed |= held->failed;
    if (!held->length)
        return true;
    size_t keep = begins_stop(stops, held->text, held->length), sure = held->length - keep;
    strbuf_add(out, held->text, sure);
    memmove(held->text, held->text + sure, keep + 1);
    held->length = keep;
    return true;
}

void stops_flush(Stops *stops, StrBuf *out)
{
    strbuf_add(out, stops->held.length ? stops->held.text : "", stops->held.length);
    strbuf_clear(&stops->held);
}
