/* What a line that begins with a slash does. */
#include "base/file.h"
#include "base/suggest.h"
#include "cli/chat.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct ChatCommand {
    const char *name, *value; /* value: what follows the name, or NULL */
    const char *help;         /* NULL: another name of the one above; these come last */
    void (*run)(Chat *chat, const char *value);
} ChatCommand;

static void run_help(Chat *chat, const char *value);

static void run_system(Chat *chat, const char *value)
{
    cvn_err err = {0};
    if (dialog_set_system(&chat->dialog, value, &err))
        chat_refuse(chat, "%s", err.message);
    else
        puts(*value ? "The system message is set." : "There is no system message now.");
}

static void run_reset(Chat *chat, const char *value)
{
    (void)value;
    dialog_reset(&chat->dialog);
    cvn_session_reset(chat->session);
    puts("A new conversation.");
}

static void run_drop(Chat *chat, const char *value)
{
    (void)value;
    if (dialog_drop_oldest(&chat->dialog))
        puts("The oldest turn is forgotten.");
    else
        chat_refuse(chat, "there is no turn to drop");
}

/* What the cache holds is kept beside the text, where it can be. */
static FilePath cache_path(const char *path)
{
    FilePath cache;
    snprintf(cache.text, sizeof cache.text, "%s.cache", path);
    return cache;
}

static void run_save(Chat *chat, const char *value)
{
    cvn_err err = {0};
    const FilePath cache = cache_path(value);
    int64_t cached = cvn_session_get_stats(chat->session).cached;
    if (!*value) {
        chat_refuse(chat, "/save needs the name of a file");
        return;
    }
    if (ranks_first() && dialog_save(&chat->dialog, value, &err)) {
        chat_refuse(chat, "%s", err.message);
        return;
    }
    printf("%s: %zu message%s\n", value, chat->dialog.n, chat->dialog.n == 1 ? "" : "s");
    int code = cached ? cvn_session_save(chat->session, cache.text, &err) : CVN_OK;
    if (cached && !code)
        printf("%s: what is computed of them, %" PRId64 " tokens\n", cache.text, cached);
    else if (code && code != CVN_EUNSUPPORTED)
        chat_refuse(chat, "%s", err.message);
}

void chat_load_cache(Chat *chat, const char *path)
{
    cvn_err err = {0};
    const FilePath cache = cache_path(path);
    if (!file_exists(cache.text))
        return;
    if (cvn_session_load(chat->session, cache.text, &err) && ranks_speaks())
        fprintf(stderr, "caravan: %s; the conversation is computed again\n", err.message);
}

static void run_load(Chat *chat, const char *value)
{
    cvn_err err = {0};
    if (!*value)
        chat_refuse(chat, "/load needs the name of a file");
    else if (dialog_load(&chat->dialog, value, &err))
        chat_refuse(chat, "%s", err.message);
    else {
        printf("%s: %zu message%s\n", value, chat->dialog.n, chat->dialog.n == 1 ? "" : "s");
        chat_load_cache(chat, value);
    }
}

static void run_stats(Chat *chat, const char *value)
{
    (void)value;
    cvn_session_stats s = cvn_session_get_stats(chat->session);
    cvn_session_result was = chat->was;
    printf("context    %" PRId64 " of %" PRId64 " tokens\n", s.cached, s.context);
    printf("last turn  %" PRId64 " tokens reused, %" PRId64 " computed in %.2f s (%.1f tokens/s), "
           "%" PRId64 " generated in %.2f s (%.1f tokens/s)\n",
           was.reused, was.computed, was.prefill_seconds,
           per_second(was.computed, was.prefill_seconds), was.n_tokens, was.decode_seconds,
           per_second(was.n_tokens - 1, was.decode_seconds));
    printf("all        %" PRId64 " turn%s: %" PRId64 " tokens reused, %" PRId64
           " computed, %" PRId64 " generated\n",
           s.turns, s.turns == 1 ? "" : "s", s.reused, s.computed, s.generated);
}

static void run_exit(Chat *chat, const char *value)
{
    (void)value;
    chat->leaves = true;
}

static const ChatCommand table[] = {
    {"system", "TEXT", "set the system message; without TEXT take it away", run_system},
    {"reset", NULL, "begin a new conversation", run_reset},
    {"drop", NULL, "forget the oldest turn, to make room", run_drop},
    {"save", "FILE", "write the conversation as JSON, and FILE.cache", run_save},
    {"load", "FILE", "go on with a conversation that was saved", run_load},
    {"stats", NULL, "show what is cached and how fast it goes", run_stats},
    {"help", NULL, "show this", run_help},
    {"exit", NULL, "leave, as /quit and /bye do", run_exit},
    {"quit", NULL, NULL, run_exit},
    {"bye", NULL, NULL, run_exit},
};
enum { COMMANDS = sizeof table / sizeof *table };

static void run_help(Chat *chat, const char *value)
{
    (void)chat;
    (void)value;
    for (int i = 0; i < COMMANDS && table[i].help; i++) {
        char spelling[32];
        snprintf(spelling, sizeof spelling, "/%s %s", table[i].name,
                 table[i].value ? table[i].value : "");
        printf("%-14s %s\n", spelling, table[i].help);
    }
    puts("Ctrl-C         stop an answer, or clear what is typed\n"
         "Ctrl-D         leave\n"
         "Alt-Enter, \\   go on in a new line; \"\"\" before and after for several");
}

static const char *name_at(const void *context, size_t i)
{
    (void)context;
    return i < COMMANDS ? table[i].name : NULL;
}

static size_t word_length(const char *text)
{
    size_t n = 0;
    while (isalpha((unsigned char)text[1 + n]))
        n++;
    return n;
}

bool chat_is_command(const char *text)
{
    if (text[0] != '/')
        return false;
    size_t n = word_length(text);
    char end = text[1 + n];
    return n > 0 && (end == '\0' || end == ' ');
}

void chat_command(Chat *chat, const char *text)
{
    char word[32];
    size_t n = word_length(text);
    snprintf(word, sizeof word, "%.*s", (int)(n < 31 ? n : 31), text + 1);
    const char *value = text + 1 + n;
    value += strspn(value, " ");
    for (int i = 0; i < COMMANDS; i++) {
        if (strcmp(word, table[i].name) != 0)
            continue;
        if (!table[i].value && *value)
            chat_refuse(chat, "/%s takes nothing after it", word);
        else
            table[i].run(chat, value);
        return;
    }
    const char *near = suggest(word, name_at, NULL);
    if (near)
        chat_refuse(chat, "there is no /%s; did you mean /%s?", word, near);
    else
        chat_refuse(chat, "there is no /%s; /help lists what there is", word);
}
