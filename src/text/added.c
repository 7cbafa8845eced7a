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
    int order = memcmp(x->text, y->text, x->length);
    return order ? order : x->id < y->id ? -1 : x->id > y->id;
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
    for (i = n; i-- > 0;) {
        bool same = i + 1 < n && item[i].text[0] == item[i + 1].text[0] &&
                    item[i].length == item[i + 1].length;
        item[i].others = same ? item[i + 1].others : (uint32_t)i + 1;
        set->largest = item[i].kind > set->largest ? item[i].kind : set->largest;
    }
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

/* Length by length, and in those of a length by halves: a file may hold a million tokens that begin alike. */
static const Added *longest_at(const AddedSet *set, const char *text, size_t n)
{
    unsigned char first = (unsigned char)text[0];
    for (uint32_t i = set->begin[first]; i < set->begin[first + 1]; i = set->item[i].others) {
        size_t length = set->item[i].length;
        uint32_t low = i, high = length <= n ? set->item[i].others : i;
        while (low < high) { /* the first that is not below the text */
            uint32_t middle = low + (high - low) / 2;
            if (memcmp(set->item[middle].text, text, length) < 0)
                low = middle + 1;
            else
                high = middle;
        }
        if (length <= n && low < set->item[i].others &&
            memcmp(set->item[low].text, text, length) == 0)
            return &set->item[low];
    }
    return NULL;
}

/* Whether a character of a word ends at `begin` or begins at `end`. */
static bool touches_word(const char *text, size_t begin, size_t end, size_t n)
{
    size_t from = begin;
    while (from > 0 && begin - from < 4 && utf8_length(text + from, begin - from) == 0)
        from--;
    int before = from < begin ? utf8_length(text + from, begin - from) : 0;
    int after = end < n ? utf8_length(text + end, n - end) : 0;
    return (before && from + (size_t)before == begin &&
            unicode_is_word(utf8_point(text + from, before))) ||
           (after && unicode_is_word(utf8_point(text + end, after)));
}

/* Bytes from `i` on that have no mark. */
static size_t unmarked(const char *mark, size_t i, size_t n, size_t *run_end)
{
    if (!mark)
        return n - i;
    if (*run_end <= i)
        for (*run_end = i; *run_end < n && !mark[*run_end];)
            ++*run_end;
    return *run_end - i;
}

bool added_set_find(const AddedSet *set, const char *text, const char *mark, size_t n, size_t from,
                    AddedKind least, const Added **found, size_t *begin, size_t *end)
{
    size_t run_end = 0;
    if (set->n == 0 || set->largest < least)
        return false;
    for (size_t i = from; i < n;) {
        size_t most = unmarked(mark, i, n, &run_end);
        const Added *item = most ? longest_at(set, text + i, most) : NULL;
        if (!item) {
            i++;
        } else if (item->kind < least ||
                   (item->single_word && touches_word(text, i, i + item->length, n))) {
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
