/* One answer: from the dialog to ids, from the session's tokens to text on the screen. */
#include "base/map.h"
#include "base/rng.h"
#include "cli/chat.h"
#include "cli/terminal.h"
#include "serve/engine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* An answer as it comes. */
typedef struct Reply {
    Chat *chat;
    cvn_request request;
    TokenIds ids; /* all but the end token */
    Decoder decoder;
    Answer answer;
    StrBuf piece;      /* text of one token */
    AnswerTexts texts; /* all of it */
    Receipt receipt;   /* of what is being drawn, where one is asked for */
    size_t thought_shown, text_shown;
    cvn_err err; /* of decoding or printing */
} Reply;

static void show_thought(Reply *a)
{
    const Chat *chat = a->chat;
    if (a->thought_shown == a->texts.thought.length)
        return;
    bool first = a->thought_shown == 0;
    const char *from = a->texts.thought.text + a->thought_shown;
    size_t n = a->texts.thought.length - a->thought_shown;
    a->thought_shown = a->texts.thought.length;
    if (!chat->shows_thoughts) {
        if (first && chat->terminal)
            printf("%s(thinking)%s", chat->colors ? "\033[2m" : "", chat->colors ? "\033[0m" : "");
        return;
    }
    if (first && !chat->colors)
        put_text(stdout, "<think>\n", 8, &a->err);
    fputs(chat->colors ? "\033[2m" : "", stdout);
    put_text(stdout, from, n, &a->err);
    fputs(chat->colors ? "\033[0m" : "", stdout);
}

/* What parts the thoughts from the answer. */
static void end_thought(const Reply *a)
{
    const Chat *chat = a->chat;
    if (a->thought_shown == 0)
        return;
    if (chat->shows_thoughts)
        fputs(chat->colors ? "\n\n" : "\n</think>\n\n", stdout);
    else if (chat->terminal)
        fputs("\r\033[K", stdout);
}

static void show(Reply *a)
{
    show_thought(a);
    if (a->text_shown == a->texts.said.length)
        return;
    if (a->text_shown == 0)
        end_thought(a);
    put_text(stdout, a->texts.said.text + a->text_shown, a->texts.said.length - a->text_shown,
             &a->err);
    a->text_shown = a->texts.said.length;
}

static void add_piece(Reply *a)
{
    answer_push(&a->answer, a->piece.text, a->piece.length, &a->texts);
    strbuf_clear(&a->piece);
    show(a);
}

static bool on_token(void *context, int request, int32_t token)
{
    (void)request;
    Reply *a = context;
    if (engine_ends(a->chat->run.engine, &a->request, token))
        return false;
    token_ids_add(&a->ids, token);
    answer_decode(&a->chat->kind, &a->decoder, token, &a->piece);
    add_piece(a);
    return a->err.code == CVN_OK;
}

static void finish_text(Reply *a)
{
    decoder_flush(&a->decoder, &a->piece);
    add_piece(a);
    answer_flush(&a->answer, &a->texts);
    show(a);
    if (a->text_shown == 0)
        end_thought(a);
    bool at_line_start =
        a->texts.said.length && a->texts.said.text[a->texts.said.length - 1] == '\n';
    put_text(stdout, "\n", at_line_start ? 0 : 1, &a->err);
}

void chat_say(const Chat *chat, const char *format, ...)
{
    va_list args;
    fputs(chat->colors ? "\033[2m" : "", stdout);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    puts(chat->colors ? "\033[0m" : "");
}

void chat_refuse(Chat *chat, const char *format, ...)
{
    chat->refused++;
    va_list args;
    fputs("caravan: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

static void say_full(Chat *chat, int64_t needed)
{
    int64_t context = cvn_session_get_stats(chat->session).context;
    int64_t most = cvn_model_context(chat->run.model);
    char longer[96] = "";
    if (context < most)
        snprintf(longer, sizeof longer, ", or start with --context up to %" PRId64, most);
    if (needed)
        chat_refuse(
            chat,
            "the conversation has %" PRId64 " tokens and the context only %" PRId64
            ": /drop removes its oldest turn, /reset all of it%s; then send the message again",
            needed, context, longer);
    else
        chat_refuse(chat,
                    "the context of %" PRId64 " tokens is full, so the answer ends here: /drop "
                    "removes the oldest turn, /reset all of them%s",
                    context, longer);
}

/*
 * The conversation as ids, with what has been answered so far behind it. Where that leaves too little room for an answer,
 * the oldest turns go until a quarter of the context is free: the system message and its cache stay, the rest is computed
 * again. The last turn never goes.
 */
static int fit_prompt(Chat *chat, const TokenIds *answered, TokenIds *prompt, cvn_err *err)
{
    Dialog *dialog = &chat->dialog;
    int64_t context = cvn_session_get_stats(chat->session).context;
    int64_t most = chat->request.max_tokens, room = 0, dropped = 0;
    for (;;) {
        prompt->n = 0;
        TRY(dialog_prompt(dialog, prompt, err));
        for (size_t i = 0; i < answered->n; i++)
            token_ids_add(prompt, answered->id[i]);
        if (prompt->failed)
            return err_set(err, CVN_EMEM, "no memory for the conversation");
        if (!chat->shifts || (int64_t)prompt->n + room < context || dialog_turns(dialog) < 2)
            break;
        room = most > 0 && most < context / 4 ? most : context / 4;
        dialog_drop_oldest(dialog);
        dropped++;
    }
    if (dropped && !chat->shifted)
        fprintf(stderr,
                "caravan: the context of %" PRId64
                " tokens is full: the oldest turns are dropped from now on (--no-shift)\n",
                context);
    chat->shifted = chat->shifted || dropped;
    return CVN_OK;
}

static void on_logits(void *context, int id, const float *logits, int32_t token)
{
    Reply *a = context;
    (void)id;
    receipt_add(&a->receipt, logits, cvn_model_vocab(a->chat->run.model), token);
}

/* Of what was just drawn, behind those of the answers before: whoever leaves a conversation has them. */
static int write_receipt(Reply *a, cvn_err *err)
{
    Chat *chat = a->chat;
    StrBuf *lines = &chat->receipt_lines;
    if (!chat->receipt_model)
        TRY(receipt_model(chat->run.engine, &chat->receipt_model, err));
    TRY(receipt_line(&a->receipt, chat->receipt_model, &a->request, lines, err));
    receipt_free(&a->receipt);
    return file_write(chat->receipts, lines->text, lines->length, err);
}

/* An answer that fills the context goes on behind a shorter conversation; one under a constraint, which would begin anew,
 * ends. */
static int go_on(Reply *a, TokenIds *prompt, cvn_err *err)
{
    Chat *chat = a->chat;
    cvn_request *request = &a->request;
    int code;
    for (;;) {
        request->prompt = prompt->id;
        request->n_prompt = (int64_t)prompt->n;
        size_t before = a->ids.n;
        code = cvn_session_generate(chat->session, request, on_token, a, chat->interrupt,
                                    &chat->was, err);
        if (chat->receipts && a->receipt.n)
            TRY(write_receipt(a, err));
        if (code || !chat->shifts || request->constraint ||
            chat->was.finish != CVN_FINISH_CONTEXT || dialog_turns(&chat->dialog) < 2)
            return code;
        request->max_tokens -= (int64_t)(a->ids.n - before);
        TRY(fit_prompt(chat, &a->ids, prompt, err));
        if ((int64_t)prompt->n >= cvn_session_get_stats(chat->session).context)
            return CVN_OK;
    }
}

static int generate(Reply *a, TokenIds *prompt, cvn_err *err)
{
    Chat *chat = a->chat;
    Dialog *dialog = &chat->dialog;
    cvn_request *request = &a->request;
    if (request->max_tokens == 0)
        request->max_tokens = INT64_MAX;
    cvn_err local = {0};
    int code = go_on(a, prompt, &local);
    bool stopped = code == CVN_EINTERRUPTED;
    if (code && !stopped)
        return err_set(err, code, "%s", local.message);
    if (chat->was.n_tokens == 0 && a->ids.n == 0) {
        dialog_pop(dialog);
        if (!stopped)
            say_full(chat, request->n_prompt);
    } else {
        finish_text(a);
        if (a->ids.failed || a->texts.said.failed || a->texts.thought.failed)
            return err_set(err, CVN_EMEM, "no memory for the answer");
        TRY(dialog_add(dialog, DIALOG_ASSISTANT, a->texts.said.length ? a->texts.said.text : "",
                       a->texts.said.length, err));
        DialogMessage *message = &dialog->message[dialog->n - 1];
        message->thought = a->texts.thought;
        a->texts.thought = (StrBuf){0};
        if (chat->was.finish == CVN_FINISH_CONTEXT)
            say_full(chat, 0);
        if (request->constraint && chat->was.finish != CVN_FINISH_EOS)
            chat_refuse(chat, "the answer was cut off");
    }
    if (a->err.code)
        return err_set(err, a->err.code, "%s", a->err.message);
    if (stopped && !chat->terminal)
        return err_set(err, CVN_EINTERRUPTED, "interrupted");
    if (stopped)
        *chat->interrupt = 0;
    return CVN_OK;
}

int chat_answer(Chat *chat, cvn_err *err)
{
    Dialog *dialog = &chat->dialog;
    Reply a = {.chat = chat, .request = chat->request};
    a.request.on_logits = chat->receipts ? on_logits : NULL;
    a.request.sampling.seed = rng_seed(a.request.sampling.seed, (uint64_t)chat->again);
    SCOPED(token_ids_free) TokenIds prompt = {0};
    cvn_err refused = {0};
    int code = fit_prompt(chat, &a.ids, &prompt, &refused);
    uint64_t hash = hash_bytes(prompt.id, prompt.n * sizeof *prompt.id) + (uint64_t)refused.code;
    TRY(cluster_agree(chat->run.cluster, "the conversation", hash, err));
    if (code) {
        dialog_pop(dialog);
        chat_refuse(chat, "%s", refused.message);
    } else {
        a.request.end = chat->kind.stops;
        a.request.n_end = (int64_t)chat->kind.n_stops;
        /* under a constraint every blank counts, that in front as well */
        decoder_init(&a.decoder, dialog->tokenizer, a.request.constraint ? TOKENIZER_CONTINUE : 0);
        answer_init(&a.answer, &chat->kind, false, dialog->tokenizer, &prompt);
        code = generate(&a, &prompt, err);
    }
    token_ids_free(&a.ids);
    strbuf_free(&a.piece);
    receipt_free(&a.receipt);
    answer_free(&a.answer);
    answer_texts_free(&a.texts);
    return refused.code ? CVN_OK : code;
}
