#include "io/card.h"

#include "base/file.h"
#include "base/strbuf.h"

#include <string.h>

#define CARD_FILE "README.md"

const char *const card_keys[CARD_FIELDS] = {"general.name", "general.license",
                                            "general.license.name", "general.license.link"};
/* What stands in the YAML lines in front of a card before each field; the name is not a field there. */
static const char *const fields[CARD_FIELDS] = {NULL,
                                                "license: ", "license_name: ", "license_link: "};

/* A line without blanks around it and quotes; NULL: nothing is left, or what is no text. */
static const char *text_of(const char *at, size_t n, Arena *arena)
{
    while (n && (*at == ' ' || *at == '\t'))
        at++, n--;
    while (n && strchr(" \t\r", at[n - 1]))
        n--;
    if (n >= 2 && (*at == '"' || *at == '\'') && at[n - 1] == *at)
        at++, n -= 2;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)at[i] < ' ')
            return NULL;
    return n ? arena_stringn(arena, at, n) : NULL;
}

void card_read(Card *card, const char *folder, Arena *arena)
{
    FileMap map;
    *card = (Card){0};
    if (file_map(&map, file_path(folder, CARD_FILE).text, NULL))
        return;
    const char *text = (const char *)map.data, *end = text + map.size;
    bool front = false, first = true;
    while (text < end && !card->value[0]) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t n = (size_t)((stop ? stop : end) - text);
        const bool bar = n >= 3 && memcmp(text, "---", 3) == 0 && (n == 3 || text[3] == '\r');
        if (bar && (first || front))
            front = !front;
        else if (!front && n > 2 && memcmp(text, "# ", 2) == 0)
            card->value[0] = text_of(text + 2, n - 2, arena);
        for (int i = 1; front && i < CARD_FIELDS; i++) {
            const size_t key = strlen(fields[i]);
            if (n > key && memcmp(text, fields[i], key) == 0)
                card->value[i] = text_of(text + key, n - key, arena);
        }
        first = false;
        text += n + 1;
    }
    file_unmap(&map);
}

int card_write(const Card *card, const char *folder, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    bool front = false;
    for (int i = 1; i < CARD_FIELDS; i++) {
        if (!card->value[i] || strpbrk(card->value[i], "\r\n"))
            continue;
        strbuf_printf(&text, "%s%s%s\n", front ? "" : "---\n", fields[i], card->value[i]);
        front = true;
    }
    if (!front && !card->value[0])
        return CVN_OK;
    strbuf_printf(&text, "%s# %s\n", front ? "---\n" : "", card->value[0] ? card->value[0] : "");
    if (text.failed)
        return err_set(err, CVN_EMEM, "no memory for " CARD_FILE);
    return file_write(file_path(folder, CARD_FILE).text, text.text, text.length, err);
}
