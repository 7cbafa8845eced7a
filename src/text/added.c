/*
 * Finding added tokens in text: at each place the longest that begins there, from left to right.
 * Tokens are sorted by first byte, so a place where no token can begin costs one look into a table.
 */
#include "text/tokenizer_impl.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    const Added *x = a, *y = b;
    int first_x = (unsigned char)x->text[0], first_y = (unsigned char)y->text[0];
    if (first_x != first_y)
        return first_x - first_y;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

void added_set_init(AddedSet *set, Added *item, size_t n)
{
    *set = (AddedSet){.item = item, .n = n};
    if (n)
        qsort(item, n, sizeof *item, by_text);
    size_t i = 0;
    for (unsigned byte = 0; byte < 256; byte++) {
        set->begin[byte] = (uint32_t)i;
        while (i < n && (unsigned char)item[i].text[0] == byte)
            i++;
    }
    set->begin[256] = (uint32_t)i;
    for (i = 0; i < n; i++)
        set->largest = item[i].kind > set->largest ? item[i].kind : set->largest;
}

static size_t spaces_before(const char *text, size_t end, size_t from)
{
    while (end > from) {
        size_t begin = end - 1;
        while (begin > from && end - begin < 4 && ((unsigned char)text[begin] & 0xc0) == 0x80)
            begin--;
        if ((size_t)utf8_length(text + begin, end - begin) != end - begin ||
            unicode_class(utf8_point(text + begin, (int)(end - begin))) != UNICODE_SPACE)
            break;
        end = begin;
    }
    return end;
}

static size_t spaces_after(const char *text, size_t begin, size_t n)
{
    while (begin < n) {
        int length = utf8_length(text + begin, n - begin);
        if (!length || unicode_class(utf8_point(text + begin, length)) != UNICODE_SPACE)
            break;
        begin += (size_t)length;
    }
    return begin;
}

static const Added *longest_at(const AddedSet *set, const char *text, size_t n)
{
    unsigned char first = (unsigned char)text[0];
    for (uint32_t i = set->begin[first]; i < set->begin[first + 1]; i++)
        if (set->item[i].length <= n && memcmp(text, set->item[i].text, set->item[i].length) == 0)
            return &set->item[i];
    return NULL;
}

bool added_set_find(const AddedSet *set, const char *text, size_t n, size_t from, AddedKind least,
                    const Added **found, size_t *begin, size_t *end)
{
    if (set->n == 0 || set->largest < least)
        return false;
    for (size_t i = from; i < n;) {
        const Added *item = longest_at(set, text + i, n - i);
        if (!item) {
            i++;
        } else if (item->kind < least) {
            i += item->length;
        } else {
            *found = item;
            *begin = item->strip_left ? spaces_before(text, i, from) : i;
            *end = i + item->length;
            if (item->strip_right)
                *end = spaces_after(text, *end, n);
            return true;
        }
    }
    return false;
}
