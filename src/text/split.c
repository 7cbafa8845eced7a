#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split.h"

#include "base/strbuf.h"
#include "text/byte_level.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
const char SPLIT_LLAMA3[] = LLAMA3("\\p{N}{1,3}"), SPLIT_QWEN2[] = LLAMA3("\\p{N}");

const char SPLIT_GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define END "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
const char SPLIT_O200K[] =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" END "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER
    "*" END "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct Split {
    SplitBehavior behavior;
    size_t digits;    /* by hand: as many digits are a word at most; else 0 */
    pcre2_code *code; /* owned, or NULL */
    bool spelled;     /* what is split is the text in the byte-level alphabet */
    char *text;       /* [n_text] owned, or NULL: matches are this text */
    size_t n_text;
};

struct SplitWork {
    pcre2_match_data *match;      /* where the last match lies */
    pcre2_match_context *context; /* limits and the JIT's stack */
    pcre2_jit_stack *stack;       /* or NULL: the machine's */
    size_t run_begin, run_end;    /* the stretch of valid UTF-8 in which the last word lay */
    StrBuf spelled;               /* owned: the text in the byte-level alphabet */
    size_t at;                    /* where the last word ends in that */
};

enum { PCRE2_SCRIPTS = PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40 };
enum { JIT_STACK_START = 1 << 15, JIT_STACK_MAX = 1 << 23, MATCH_STEPS = 10000000 };

/* ---- Llama 3's pattern and Qwen's by hand ---- */

/* The class of each ASCII character as a digit, in rows of 16. */
static const char ASCII_CLASS[] = "0000000003333300" /* tab to carriage return */
                                  "0000000000000000"
                                  "3000000000000000" /* space */
                                  "2222222222000000"
                                  "0111111111111111"
                                  "1111111111100000"
                                  "0111111111111111"
                                  "1111111111100000";

/* The class of the character at text[i], i < n, and its length. A byte that is not UTF-8 is a
 * character of its own: neither letter, number nor space. */
static inline UnicodeClass class_at(const char *text, size_t n, size_t i, size_t *length)
{
    unsigned char c = (unsigned char)text[i];
    *length = 1;
    if (c < 128)
        return (UnicodeClass)(ASCII_CLASS[c] - '0');
    int valid = utf8_length(text + i, n - i);
    if (!valid)
        return UNICODE_OTHER;
    *length = (size_t)valid;
    return unicode_class(utf8_point(text + i, valid));
}

/* Skips at most `most` characters of a class. */
static size_t skip_class(const char *text, size_t n, size_t i, UnicodeClass class, size_t most)
{
    size_t length;
    for (; most > 0 && i < n && class_at(text, n, i, &length) == class; most--)
        i += length;
    return i;
}

static size_t skip_newlines(const char *text, size_t n, size_t i)
{
    while (i < n && (text[i] == '\n' || text[i] == '\r'))
        i++;
    return i;
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d) behind an apostrophe at text[i - 1]: the end, or 0. Case folding
 * makes U+017F, the long s, an s. */
static size_t contraction(const char *text, size_t n, size_t i)
{
    static const char pairs[][3] = {"re", "ve", "ll"};
    if (i == n)
        return 0;
    char first = (char)(text[i] | 0x20);
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return i + 1;
    if (n - i < 2)
        return 0;
    if (memcmp(text + i, "\xc5\xbf", 2) == 0)
        return i + 2;
    char second = (char)(text[i + 1] | 0x20);
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++)
        if (first == pairs[k][0] && second == pairs[k][1])
            return i + 2;
    return 0;
}

/*
 * White space that begins at text[i]: \s*[\r\n]+|\s+(?!\S)|\s+. All of it up to and with its last
 * line end; where there is none, all but the last space, which goes with the word that follows.
 */
static size_t white_space(const char *text, size_t n, size_t i)
{
    size_t end = i, last = i, after_newline = 0, length;
    while (end < n && class_at(text, n, end, &length) == UNICODE_SPACE) {
        last = end;
        end += length;
        if (text[last] == '\n' || text[last] == '\r')
            after_newline = end;
    }
    if (after_newline)
        return after_newline;
    return end == n || last == i ? end : last;
}

/* The word at text[i]. The alternatives of the pattern are tried in their order; the choice among
 * them is settled by the classes of two characters. */
static size_t next_by_hand(const char *text, size_t n, size_t i, size_t digits)
{
    size_t length, length2;
    UnicodeClass class = class_at(text, n, i, &length), class2 = UNICODE_SPACE;
    if (text[i] == '\'') {
        size_t end = contraction(text, n, i + 1);
        if (end)
            return end;
    }
    if (class == UNICODE_LETTER)
        return skip_class(text, n, i + length, UNICODE_LETTER, n);
    if (class == UNICODE_NUMBER)
        return skip_class(text, n, i + length, UNICODE_NUMBER, digits - 1);
    size_t after = i + length;
    if (after < n)
        class2 = class_at(text, n, after, &length2);
    if (class2 == UNICODE_LETTER && text[i] != '\r' && text[i] != '\n')
        return skip_class(text, n, after + length2, UNICODE_LETTER, n);
    if (class == UNICODE_OTHER || (text[i] == ' ' && class2 == UNICODE_OTHER))
        return skip_newlines(text, n, skip_class(text, n, after, UNICODE_OTHER, n));
    return white_space(text, n, i);
}

/* ---- any pattern, by PCRE2 ---- */

/* Finds the stretch of valid UTF-8 that begins at text[begin]; what is not UTF-8 is never shown to
 * the pattern. The stretch may be empty. */
static void find_run(SplitWork *work, const char *text, size_t n, size_t begin)
{
    size_t i = begin;
    while (i < n) {
        int length = utf8_length(text + i, n - i);
        if (!length)
            break;
        i += (size_t)length;
    }
    work->run_begin = begin;
    work->run_end = i;
}

/* The first match of the pattern in the stretch, at `begin` or behind it; *first = *last = the stretch's end where there is none. */
static int find_code(const Split *split, SplitWork *work, const char *text, size_t begin,
                     size_t *first, size_t *last, cvn_err *err)
{
    size_t run = work->run_end - work->run_begin;
    *first = *last = work->run_end;
    if (begin == work->run_end)
        return CVN_OK;
    pcre2_set_match_limit(work->context,
                          run > UINT32_MAX / 16 ? UINT32_MAX : MATCH_STEPS + 8 * (uint32_t)run);
    int rc =
        pcre2_match(split->code, (PCRE2_SPTR)text + work->run_begin, run, begin - work->run_begin,
                    PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, work->match, work->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return CVN_OK;
    if (rc < 0)
        return err_set(
            err, CVN_EFORMAT,
            "the split pattern of the tokenizer fails with PCRE2 error %d; simplify the pattern",
            rc);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(work->match);
    *first = place[0] + work->run_begin;
    *last = place[1] + work->run_begin;
    if (*first < begin || *last <= *first) /* \K, or a match behind its own start */
        return err_set(err, CVN_EUNSUPPORTED,
                       "the split pattern of the tokenizer matches backwards");
    return CVN_OK;
}

/* ---- words ---- */

/* The first match in text[begin..n), of a stretch that ends at n. */
static int find_match(const Split *split, SplitWork *work, const char *text, size_t n, size_t begin,
                      size_t *first, size_t *last, cvn_err *err)
{
    if (split->code)
        return find_code(split, work, text, begin, first, last, err);
    *first = *last = n;
    if (begin < n && split->digits) {
        *first = begin;
        *last = next_by_hand(text, n, begin, split->digits);
    } else if (begin < n) {
        const char *found = memmem(text + begin, n - begin, split->text, split->n_text);
        *first = found ? (size_t)(found - text) : n;
        *last = found ? *first + split->n_text : n;
    }
    return CVN_OK;
}

/* The word at *begin of a stretch that ends at n; an empty one where something is left out. */
static int next_word(const Split *split, SplitWork *work, const char *text, size_t n, size_t *begin,
                     size_t *end, cvn_err *err)
{
    size_t first, last, next;
    TRY(find_match(split, work, text, n, *begin, &first, &last, err));
    bool between = first > *begin; /* text that is no match comes first */
    *end = between ? first : last;
    switch (split->behavior) {
    case SPLIT_ISOLATED:
        break;
    case SPLIT_WITH_PREVIOUS:
        *end = last;
        break;
    case SPLIT_WITH_NEXT:
        return between ? CVN_OK : find_match(split, work, text, n, last, end, &next, err);
    case SPLIT_CONTIGUOUS:
        for (bool on = !between; on && *end < n;) {
            TRY(find_match(split, work, text, n, *end, &first, &last, err));
            on = first == *end;
            *end = on ? last : *end;
        }
        break;
    case SPLIT_REMOVED:
        *begin = between ? *begin : *end;
        break;
    case SPLIT_KEPT:
        *begin = first;
        *end = last;
        break;
    }
    return CVN_OK;
}

static int next_plain(const Split *split, SplitWork *work, const char *text, size_t n,
                      size_t *begin, size_t *end, cvn_err *err)
{
    size_t stretch = n;
    for (*end = *begin; *begin == *end && *begin < n;) {
        if (split->code) {
            if (*begin == 0 || *begin >= work->run_end)
                find_run(work, text, n, *begin);
            stretch = work->run_end;
        }
        if (stretch == *begin) {
            for (*end = *begin + 1; *end < n && !utf8_length(text + *end, n - *end);)
                ++*end;
        } else {
            TRY(next_word(split, work, text, stretch, begin, end, err));
        }
    }
    return CVN_OK;
}

/* Characters of text[0..n), each of which shows a byte. */
static size_t shown(const char *text, size_t n)
{
    size_t characters = 0;
    for (size_t i = 0; i < n; i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    return characters;
}

static int next_spelled(const Split *split, SplitWork *work, const char *text, size_t n,
                        size_t *begin, size_t *end, cvn_err *err)
{
    if (*begin == 0) {
        strbuf_clear(&work->spelled);
        byte_level_put(text, n, &work->spelled);
        if (work->spelled.failed)
            return err_set(err, CVN_EMEM, "no memory to split %zu bytes of text", n);
        work->at = 0;
    }
    const char *spelled = work->spelled.text;
    const size_t from = work->at;
    size_t first = from;
    TRY(next_plain(split, work, spelled, work->spelled.length, &first, &work->at, err));
    *begin += shown(spelled + from, first - from);
    *end = *begin + shown(spelled + first, work->at - first);
    return CVN_OK;
}

int split_next(const Split *split, SplitWork *work, const char *text, size_t n, size_t *begin,
               size_t *end, cvn_err *err)
{
    /* By hand each match is a word, and nothing lies between two. */
    if (split->digits && !split->spelled &&
        (split->behavior == SPLIT_ISOLATED || split->behavior == SPLIT_KEPT)) {
        *end = next_by_hand(text, n, *begin, split->digits);
        return CVN_OK;
    }
    return split->spelled ? next_spelled(split, work, text, n, begin, end, err)
                          : next_plain(split, work, text, n, begin, end, err);
}

/* ---- making and freeing ---- */

/* The white space of Unicode, inside of [...]. */
static const char SPACES[] = "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
                             "\\x{202f}\\x{205f}\\x{3000}";

/* Bytes at pattern[i] that are taken as they are: \Q...\E, [:name:], an escape, one character. */
static size_t literal(const char *pattern, size_t n, size_t i, bool in_class)
{
    const char *close = NULL;
    if (pattern[i] == '\\' && i + 1 < n && pattern[i + 1] == 'Q')
        close = "\\E";
    else if (in_class && pattern[i] == '[' && i + 1 < n && pattern[i + 1] == ':')
        close = ":]";
    else
        return pattern[i] == '\\' && i + 1 < n ? 2 : 1;
    const char *found = memmem(pattern + i, n - i, close, 2);
    return found ? (size_t)(found - (pattern + i)) + 2 : n - i;
}

/* Bytes of \p{Han} and the like at pattern[i], an escape; 0 where it is none of a script. */
static size_t script(const char *pattern, size_t n, size_t i)
{
    static const char *const names[] = {"Han",   "Hiragana", "Katakana", "Hangul", "Latin",
                                        "Greek", "Cyrillic", "Arabic",   "Hebrew", "Devanagari"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        size_t length = strlen(names[k]);
        if (n - i >= length + 4 && (pattern[i + 1] | 0x20) == 'p' && pattern[i + 2] == '{' &&
            memcmp(pattern + i + 3, names[k], length) == 0 && pattern[i + 3 + length] == '}')
            return length + 4;
    }
    return 0;
}

/* PCRE2's \s has one character more than Unicode's White_Space, and than the references': U+180E. So \s and
 * \S are written out. From 10.40 on its \p{Han} has characters besides that several scripts share; \p{sc:Han} has not. */
static void respell(const char *pattern, size_t n, StrBuf *out)
{
    bool in_class = false;
    for (size_t i = 0; i < n;) {
        bool escape = pattern[i] == '\\' && i + 1 < n;
        if (escape && pattern[i + 1] == 's') {
            strbuf_puts(out, in_class ? SPACES : "[^\\S\\x{180e}]");
            i += 2;
            continue;
        }
        if (escape && pattern[i + 1] == 'S') {
            strbuf_puts(out, in_class ? "\\S\\x{180e}" : "[\\S\\x{180e}]");
            i += 2;
            continue;
        }
        size_t length = escape && PCRE2_SCRIPTS ? script(pattern, n, i) : 0;
        if (length) {
            strbuf_add(out, pattern + i, 3);
            strbuf_puts(out, "sc:");
            strbuf_add(out, pattern + i + 3, length - 3);
            i += length;
            continue;
        }
        length = literal(pattern, n, i, in_class);
        if (!in_class && pattern[i] == '[') {
            in_class = true;
            length += i + length < n && pattern[i + length] == '^';
            length += i + length < n && pattern[i + length] == ']';
        } else if (pattern[i] == ']') {
            in_class = false;
        }
        strbuf_add(out, pattern + i, length);
        i += length;
    }
}

static int compile(Split *split, const char *pattern, size_t n, cvn_err *err)
{
    int code;
    PCRE2_SIZE place;
    char reason[128] = "";
    SCOPED(strbuf_free) StrBuf spelled = {0};
    respell(pattern, n, &spelled);
    if (spelled.failed)
        return err_set(err, CVN_EMEM, "no memory for a split pattern");
    if (spelled.length == 0)
        return err_set(err, CVN_EFORMAT, "the split pattern of the tokenizer is empty");
    split->code = pcre2_compile((PCRE2_SPTR)spelled.text, spelled.length,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_DUPNAMES,
                                &code, &place, NULL);
    if (!split->code) {
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        return err_set(err, CVN_EFORMAT,
                       "the split pattern of the tokenizer is malformed near byte %zu: %s",
                       (size_t)place, reason);
    }
    /* Without a JIT for this machine PCRE's interpreter does the same, slower. */
    (void)pcre2_jit_compile(split->code, PCRE2_JIT_COMPLETE);
    return CVN_OK;
}

int split_pattern_new(const char *pattern, size_t n, SplitBehavior behavior, Split **out,
                      cvn_err *err)
{
    static const struct {
        const char *pattern;
        size_t digits;
    } by_hand[] = {{SPLIT_LLAMA3, 3}, {SPLIT_QWEN2, 1}};
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_set(err, CVN_EMEM, "no memory for a split pattern");
    (*out)->behavior = behavior;
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++)
        if (n == strlen(by_hand[i].pattern) && memcmp(pattern, by_hand[i].pattern, n) == 0)
            (*out)->digits = by_hand[i].digits;
    int rc = (*out)->digits ? CVN_OK : compile(*out, pattern, n, err);
    if (rc) {
        split_free(*out);
        *out = NULL;
    }
    return rc;
}

int split_text_new(const char *text, size_t n, SplitBehavior behavior, Split **out, cvn_err *err)
{
    *out = calloc(1, sizeof **out);
    char *copy = *out && n ? malloc(n) : NULL;
    if (!copy) {
        free(*out);
        *out = NULL;
        return err_set(err, n ? CVN_EMEM : CVN_EINVAL, "cannot split by a text of %zu bytes", n);
    }
    memcpy(copy, text, n);
    **out = (Split){.behavior = behavior, .text = copy, .n_text = n};
    return CVN_OK;
}

void split_set_spelled(Split *split)
{
    split->spelled = true;
}

void split_free(Split *split)
{
    if (!split)
        return;
    pcre2_code_free(split->code);
    free(split->text);
    free(split);
}

int split_work_new(const Split *split, SplitWork **out, cvn_err *err)
{
    *out = NULL;
    if (!split->code && !split->spelled)
        return CVN_OK;
    SplitWork *work = calloc(1, sizeof *work);
    if (!work)
        goto no_memory;
    work->match = pcre2_match_data_create(1, NULL);
    work->context = pcre2_match_context_create(NULL);
    if (!work->match || !work->context)
        goto no_memory;
    work->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
    if (work->stack)
        pcre2_jit_stack_assign(work->context, NULL, work->stack);
    *out = work;
    return CVN_OK;
no_memory:
    split_work_free(work);
    return err_set(err, CVN_EMEM, "no memory to match the split pattern");
}

void split_work_free(SplitWork *work)
{
    if (!work)
        return;
    pcre2_jit_stack_free(work->stack);
    pcre2_match_context_free(work->context);
    pcre2_match_data_free(work->match);
    strbuf_free(&work->spelled);
    free(work);
}
