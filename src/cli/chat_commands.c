/* What a line that begins with a slash does. */
#include "base/file.h"
#include "base/suggest.h"
#include "cli/chat.h"
#include "cli/terminal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
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
        chat_say(chat, *value ? "System prompt set." : "System prompt removed.");
}

static void run_reset(Chat *chat, const char *value)
{
    (void)value;
    dialog_reset(&chat->dialog);
    cvn_session_reset(chat->session);
    chat_say(chat, "A new conversation.");
}

static void run_drop(Chat *chat, const char *value)
{
    (void)value;
    if (dialog_drop_oldest(&chat->dialog))
        chat_say(chat, "Oldest turn removed.");
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
        chat_refuse(chat, "/save needs a file name");
        return;
    }
    if (ranks_first() && dialog_save(&chat->dialog, value, &err)) {
        chat_refuse(chat, "%s", err.message);
        return;
    }
    chat_say(chat, "%s: %zu message%s", value, chat->dialog.n, chat->dialog.n == 1 ? "" : "s");
    int code = cached ? cvn_session_save(chat->session, cache.text, &err) : CVN_OK;
    if (cached && !code)
        chat_say(chat, "%s: what is computed of them, %" PRId64 " tokens", cache.text, cached);
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
        fprintf(stderr, "caravan: %s; the conversation is prefilled again\n", err.message);
}

static void run_load(Chat *chat, const char *value)
{
    cvn_err err = {0};
    if (!*value)
        chat_refuse(chat, "/load needs a file name");
    else if (dialog_load(&chat->dialog, value, &err))
        chat_refuse(chat, "%s", err.message);
    else {
        chat_say(chat, "%s: %zu message%s", value, chat->dialog.n, chat->dialog.n == 1 ? "" : "s");
        chat_load_cache(chat, value);
    }
}

static void run_stats(Chat *chat, const char *value)
{
    (void)value;
    cvn_session_stats s = cvn_session_get_stats(chat->session);
    cvn_session_result was = chat->was;
    chat_say(chat, "context    %" PRId64 " of %" PRId64 " tokens", s.cached, s.context);
    chat_say(chat,
             "last turn  %" PRId64 " tokens reused, %" PRId64
             " computed in %.2f s (%.1f tokens/s), "
             "%" PRId64 " generated in %.2f s (%.1f tokens/s)",
             was.reused, was.computed, was.prefill_seconds,
             per_second(was.computed, was.prefill_seconds), was.n_tokens, was.decode_seconds,
             per_second(was.n_tokens - 1, was.decode_seconds));
    chat_say(chat,
             "all        %" PRId64 " turn%s: %" PRId64 " tokens reused, %" PRId64
             " computed, %" PRId64 " generated",
             s.turns, s.turns == 1 ? "" : "s", s.reused, s.computed, s.generated);
}

/* The last message is the model's. */
static bool is_answered(const Chat *chat)
{
    const Dialog *d = &chat->dialog;
    return d->n > 0 && d->message[d->n - 1].role == DIALOG_ASSISTANT;
}

static void run_regen(Chat *chat, const char *value)
{
    (void)value;
    if (!is_answered(chat)) {
        chat_refuse(chat, "there is no answer to regenerate");
    } else if (!(chat->request.sampling.temperature > 0)) {
        chat_refuse(chat, "temperature 0 would give the same answer; /set temperature 0.8 first");
    } else {
        dialog_pop(&chat->dialog);
        chat->again++;
        chat->answers = true;
    }
}

static void run_undo(Chat *chat, const char *value)
{
    (void)value;
    Dialog *d = &chat->dialog;
    if (dialog_turns(d) == 0) {
        chat_refuse(chat, "there is no turn to undo");
        return;
    }
    for (bool asked = false; !asked;) {
        asked = d->message[d->n - 1].role == DIALOG_USER;
        dialog_pop(d);
    }
    chat->again = 0;
    chat_say(chat, "Last turn removed.");
}

/* ---- settings ---- */

/* What /set changes, by the names of options. */
typedef struct ChatSetting {
    const char *name;
    enum { SET_REAL, SET_INT, SET_LONG } type; /* float, int32_t, int64_t */
    size_t at;                                 /* in cvn_request */
} ChatSetting;

static const ChatSetting settings[] = {
    {"temperature", SET_REAL, offsetof(cvn_request, sampling.temperature)},
    {"top-k", SET_INT, offsetof(cvn_request, sampling.top_k)},
    {"top-p", SET_REAL, offsetof(cvn_request, sampling.top_p)},
    {"min-p", SET_REAL, offsetof(cvn_request, sampling.min_p)},
    {"repeat-penalty", SET_REAL, offsetof(cvn_request, sampling.repeat_penalty)},
    {"seed", SET_LONG, offsetof(cvn_request, sampling.seed)},
    {"max-tokens", SET_LONG, offsetof(cvn_request, max_tokens)},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static const char *setting_at(const void *list, size_t i)
{
    (void)list;
    return i < SETTINGS ? settings[i].name : NULL;
}

static void say_setting(const Chat *chat, const ChatSetting *s)
{
    const char *at = (const char *)&chat->request + s->at;
    if (s->type == SET_REAL)
        chat_say(chat, "%-14s %g", s->name, (double)*(const float *)at);
    else
        chat_say(chat, "%-14s %" PRId64, s->name,
                 s->type == SET_INT ? (int64_t) * (const int32_t *)at : *(const int64_t *)at);
}

static void run_set(Chat *chat, const char *value)
{
    char name[32], where[48];
    size_t n = strcspn(value, " ="), i = 0;
    const char *text = value + n + strspn(value + n, " =");
    snprintf(name, sizeof name, "%.*s", (int)n, value);
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    while (i < SETTINGS && strcmp(name, settings[i].name) != 0)
        i++;
    if (n == 0) {
        for (i = 0; i < SETTINGS; i++)
            say_setting(chat, &settings[i]);
        return;
    }
    if (i == SETTINGS) {
        const char *near = suggest(name, setting_at, NULL);
        chat_refuse(chat, "unknown setting %s; %s%s%s", name,
                    near ? "did you mean " : "/set alone lists the settings", near ? near : "",
                    near ? "?" : "");
        return;
    }
    if (*text) {
        Value typed;
        cvn_err err = {0};
        int of = option_find(&command_chat, name, strlen(name));
        snprintf(where, sizeof where, "/set %s", name);
        if (option_read(command_chat.options[of], where, text, &typed, &err)) {
            chat_refuse(chat, "%s", err.message);
            return;
        }
        char *at = (char *)&chat->request + settings[i].at;
        if (settings[i].type == SET_REAL)
            *(float *)at = (float)typed.real;
        else if (settings[i].type == SET_INT)
            *(int32_t *)at = (int32_t)typed.integer;
        else
            *(int64_t *)at = typed.integer;
    }
    say_setting(chat, &settings[i]);
}

static void run_exit(Chat *chat, const char *value)
{
    (void)value;
    chat->leaves = true;
}

static const ChatCommand table[] = {
    {"system", "TEXT", "set the system prompt; without TEXT remove it", run_system},
    {"regen", NULL, "regenerate the last answer with another seed", run_regen},
    {"undo", NULL, "undo the last turn", run_undo},
    {"set", "NAME VALUE", "set temperature, top-p and others; alone: show them", run_set},
    {"reset", NULL, "start a new conversation", run_reset},
    {"drop", NULL, "remove the oldest turn", run_drop},
    {"save", "FILE", "save the conversation as JSON, and FILE.cache", run_save},
    {"load", "FILE", "load a saved conversation", run_load},
    {"stats", NULL, "show cached tokens and speed", run_stats},
    {"help", NULL, "show this", run_help},
    {"exit", NULL, "exit, as /quit and /bye do", run_exit},
    {"quit", NULL, NULL, run_exit},
    {"bye", NULL, NULL, run_exit},
};
enum { COMMANDS = sizeof table / sizeof *table };

static void run_help(Chat *chat, const char *value)
{
    (void)value;
    for (int i = 0; i < COMMANDS && table[i].help; i++) {
        char spelling[32];
        snprintf(spelling, sizeof spelling, "/%s %s", table[i].name,
                 table[i].value ? table[i].value : "");
        chat_say(chat, "%-15s %s", spelling, table[i].help);
    }
    chat_say(chat, "Ctrl-C          stop an answer, or clear the input\n"
                   "Ctrl-D          exit\n"
                   "Tab             complete a command\n"
                   "Alt-Enter, \\    insert a line break; \"\"\" around several lines");
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
            chat_refuse(chat, "/%s takes no argument", word);
        else
            table[i].run(chat, value);
        return;
    }
    const char *near = suggest(word, name_at, NULL);
    if (near)
        chat_refuse(chat, "unknown command /%s; did you mean /%s?", word, near);
    else
        chat_refuse(chat, "unknown command /%s; /help lists the commands", word);
}

const char *chat_word(const char *typed, size_t i, size_t *n)
{
    static const char set[] = "/set ";
    SuggestAt at = typed[0] == '/' ? name_at : NULL;
    const char *word, *from = typed + 1;
    if (strncmp(typed, set, sizeof set - 1) == 0) {
        at = setting_at;
        from = typed + strspn(typed + sizeof set - 1, " ") + sizeof set - 1;
    }
    *n = strlen(from);
    for (size_t k = 0; at && (word = at(NULL, k)); k++)
        if (strncmp(word, from, *n) == 0 && i-- == 0)
            return word;
    return NULL;
}
