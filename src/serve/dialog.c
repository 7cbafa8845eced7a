#include "serve/dialog.h"

#include "base/heap.h"
#include "base/json_file.h"
#include "text/bytes_json.h"

#include <stdlib.h>
#include <string.h>

static const char *const ROLE[] = {"system", "user", "assistant"};
enum { ROLES = sizeof ROLE / sizeof *ROLE };

static json_t *bytes_of(const StrBuf *text)
{
    return bytes_json(text->length ? text->text : "", text->length);
}

void dialog_init(Dialog *dialog, const ChatTemplate *chat, const Tokenizer *tokenizer)
{
    *dialog = (Dialog){.template = chat, .tokenizer = tokenizer};
}

static void free_message(DialogMessage *message)
{
    strbuf_free(&message->text);
    strbuf_free(&message->thought);
}

void dialog_free(Dialog *dialog)
{
    while (dialog->n > 0)
        dialog_pop(dialog);
    free(dialog->message);
    dialog->message = NULL;
}

void dialog_pop(Dialog *dialog)
{
    free_message(&dialog->message[--dialog->n]);
}

int dialog_add(Dialog *dialog, DialogRole role, const char *text, size_t n, cvn_err *err)
{
    DialogMessage *more = heap_more(dialog->message, dialog->n, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for %zu messages", dialog->n + 1);
    dialog->message = more;
    DialogMessage message = {.role = role};
    strbuf_add(&message.text, text, n);
    if (message.text.failed) {
        free_message(&message);
        return err_set(err, CVN_EMEM, "no memory for a message of %zu bytes", n);
    }
    dialog->message[dialog->n++] = message;
    return CVN_OK;
}

/* Takes `count` messages out, from the one at `first` on. */
static void take_out(Dialog *dialog, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        free_message(&dialog->message[i]);
    memmove(dialog->message + first, dialog->message + first + count,
            (dialog->n - first - count) * sizeof *dialog->message);
    dialog->n -= count;
}

static size_t has_system(const Dialog *dialog)
{
    return dialog->n > 0 && dialog->message[0].role == DIALOG_SYSTEM;
}

int dialog_set_system(Dialog *dialog, const char *text, cvn_err *err)
{
    if (*text) {
        TRY(dialog_add(dialog, DIALOG_SYSTEM, text, strlen(text), err));
    }
    DialogMessage added = *text ? dialog->message[--dialog->n] : (DialogMessage){0};
    if (has_system(dialog))
        take_out(dialog, 0, 1);
    if (!*text)
        return CVN_OK;
    memmove(dialog->message + 1, dialog->message, dialog->n * sizeof *dialog->message);
    dialog->message[0] = added;
    dialog->n++;
    return CVN_OK;
}

void dialog_reset(Dialog *dialog)
{
    size_t keep = has_system(dialog);
    while (dialog->n > keep)
        dialog_pop(dialog);
}

size_t dialog_turns(const Dialog *dialog)
{
    size_t turns = 0;
    for (size_t i = 0; i < dialog->n; i++)
        turns += dialog->message[i].role == DIALOG_USER;
    return turns;
}

bool dialog_drop_oldest(Dialog *dialog)
{
    size_t first = has_system(dialog), end = first + 1;
    if (first >= dialog->n)
        return false;
    while (end < dialog->n && dialog->message[end].role != DIALOG_USER)
        end++;
    take_out(dialog, first, end - first);
    return true;
}

/* All messages, with thoughts beside answers under a name; NULL: no memory. */
static json_t *messages_json(const Dialog *dialog, const char *thought)
{
    json_t *list = json_array();
    for (size_t i = 0; i < dialog->n; i++) {
        const DialogMessage *message = &dialog->message[i];
        json_t *object = json_pack("{s:s,s:o}", "role", ROLE[message->role], "content",
                                   bytes_of(&message->text));
        if (message->thought.length)
            object = json_with(object, thought, bytes_of(&message->thought));
        list = json_append(list, object);
    }
    return list;
}

int dialog_prompt(const Dialog *dialog, TokenIds *ids, cvn_err *err)
{
    json_auto_t *list = messages_json(dialog, "reasoning_content");
    const ChatInput input = {.messages = list, .generation_prompt = true, .now = &dialog->now};
    return list ? chat_template_encode(dialog->template, dialog->tokenizer, &input, ids, NULL, err)
                : err_set(err, CVN_EMEM, "no memory for the conversation");
}

int dialog_save(const Dialog *dialog, const char *path, cvn_err *err)
{
    json_t *list = messages_json(dialog, "thinking");
    json_auto_t *json =
        json_pack("{s:s,s:o}", "format", chat_template_name(dialog->template), "messages", list);
    return json ? json_file_write(path, json, err)
                : err_set(err, CVN_EMEM, "%s: no memory for the conversation", path);
}

/* One message of a file, appended to *dialog. */
static int load_message(Dialog *dialog, const char *path, size_t i, const json_t *json,
                        cvn_err *err)
{
    const char *role = json_string_value(json_object_get(json, "role"));
    const json_t *content = json_object_get(json, "content");
    const json_t *thinking = json_object_get(json, "thinking");
    if (!role || !json_is_string(content) || (thinking && !json_is_string(thinking)))
        return err_set(err, CVN_EFORMAT,
                       "%s: message %zu is not {\"role\": \"…\", \"content\": \"…\"}", path, i);
    int r = 0;
    while (r < ROLES && strcmp(role, ROLE[r]) != 0)
        r++;
    if (r == ROLES || (r == DIALOG_SYSTEM && i > 0))
        return err_set(err, CVN_EFORMAT,
                       "%s: message %zu has role \"%.40s\"; expected user or assistant, or system "
                       "for the first",
                       path, i, role);
    int code = dialog_add(dialog, (DialogRole)r, json_string_value(content),
                          json_string_length(content), err);
    if (code == CVN_OK && thinking)
        strbuf_add(&dialog->message[dialog->n - 1].thought, json_string_value(thinking),
                   json_string_length(thinking));
    return code;
}

static int load_messages(Dialog *dialog, const char *path, const json_t *json, cvn_err *err)
{
    const json_t *list = json_object_get(json, "messages"), *item;
    if (!json_is_array(list))
        return err_set(err, CVN_EFORMAT, "%s: there is no list \"messages\"", path);
    size_t i;
    json_array_foreach(list, i, item)
    {
        TRY(load_message(dialog, path, i, item, err));
    }
    if (dialog->n > 0 && dialog->message[dialog->n - 1].role == DIALOG_USER)
        return err_set(err, CVN_EFORMAT, "%s ends with a user message without an answer; remove it",
                       path);
    /* Whether the format can express it shows when it is tried, with a turn behind it. */
    SCOPED(token_ids_free) TokenIds ids = {0};
    int code = dialog_add(dialog, DIALOG_USER, "?", 1, err);
    if (code == CVN_OK) {
        code = dialog_prompt(dialog, &ids, err);
        if (code)
            err_prefix(err, "%s", path);
        dialog_pop(dialog);
    }
    return code;
}

int dialog_load(Dialog *dialog, const char *path, cvn_err *err)
{
    json_auto_t *json = json_object_read(path, err);
    if (!json)
        return CVN_EFORMAT;
    Dialog loaded, was = *dialog;
    dialog_init(&loaded, dialog->template, dialog->tokenizer);
    loaded.now = dialog->now;
    int code = load_messages(&loaded, path, json, err);
    *dialog = code ? was : loaded;
    dialog_free(code ? &loaded : &was);
    return code;
}
