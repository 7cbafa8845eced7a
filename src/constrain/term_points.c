/* Characters by their code points, as terms of the bytes that spell them: U+0080 to U+07BF is [C2-DE][80-BF]. */
#include "constrain/term_impl.h"

#include "text/utf8.h"

/* A range of code points whose characters have equally many bytes, as bytes: [low, high] agree in their first bytes, or
   go from the first to the last of what continues. */
typedef struct ByteRanges {
    int n;
    unsigned char low[4], high[4];
} ByteRanges;

/* Cuts [low, high] so that each piece is a product of ranges of bytes; calls `each` until it returns true. */
static bool each_ranges(uint32_t low, uint32_t high, bool (*each)(void *, const ByteRanges *),
                        void *data)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, 0x10ffff};
    while (low <= high) {
        uint32_t last = high;
        for (size_t i = 0; i < 6; i++)
            if (low <= ends[i] && last > ends[i])
                last = ends[i];
        if (low >= 0xd800 && low <= 0xdfff) {
            low = last + 1;
            continue;
        }
        /* The parts below must be whole, or the parts above be equal. */
        for (int bits = 18; bits > 0; bits -= 6) {
            uint32_t mask = (1u << bits) - 1;
            if ((low & ~mask) == (last & ~mask))
                continue;
            if (low & mask)
                last = low | mask;
            else if ((last & mask) != mask)
                last = (last & ~mask) - 1;
        }
        ByteRanges ranges;
        ranges.n = utf8_put(low, ranges.low);
        utf8_put(last, ranges.high);
        if (each(data, &ranges))
            return true;
        if (last == 0x10ffff)
            return false;
        low = last + 1;
    }
    return false;
}

typedef struct Points {
    TermTable *t;
    Term *list;
    size_t n;
    Term term;
} Points;

static bool add_points(void *data, const ByteRanges *ranges)
{
    Points *p = data;
    Term term = TERM_EMPTY;
    for (int i = ranges->n; i-- > 0;)
        term = term_cat(p->t, term_range(p->t, ranges->low[i], ranges->high[i]), term);
    p->list = arena_more(p->t->arena, p->list, p->n, sizeof *p->list);
    p->list[p->n++] = term;
    return false;
}

Term term_points(TermTable *t, const uint32_t *range, size_t n_ranges)
{
    Points p = {.t = t};
    for (size_t i = 0; i < n_ranges; i++)
        each_ranges(range[2 * i], range[2 * i + 1], add_points, &p);
    return term_or(t, p.list, p.n);
}

Term term_any_character(TermTable *t)
{
    return term_points(t, (const uint32_t[]){0, 0x10ffff}, 1);
}

static bool alive_through(TermTable *t, Term a, const ByteRanges *ranges, int i)
{
    if (i == ranges->n)
        return term_is_live(t, a, 0);
    Term last = TERM_NONE;
    for (unsigned b = ranges->low[i]; b <= ranges->high[i]; b++) {
        Term next = term_derivative(t, a, (unsigned char)b);
        if (next != TERM_NONE && next != last && alive_through(t, next, ranges, i + 1))
            return true;
        last = next;
    }
    return false;
}

static bool is_alive_through(void *data, const ByteRanges *ranges)
{
    Points *p = data;
    return alive_through(p->t, p->term, ranges, 0);
}

bool term_is_live_between(TermTable *t, Term a, uint32_t low, uint32_t high)
{
    Points p = {.t = t, .term = a};
    return each_ranges(low, high, is_alive_through, &p);
}
