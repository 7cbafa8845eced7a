/* caravan chat: a conversation with a model, on a terminal or line by line from a pipe. */
#include "cli/chat.h"

#include "base/file.h"
#include "cli/chat_input.h"
#include "cli/common.h"
#include "cli/terminal.h"
#include "serve/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MODEL,
    PROMPT,
    FILE_,
    SYSTEM,
    LOAD,
    CHAT_TEMPLATE,
    THINKING,
    MAX_TOKENS,
    CONTEXT,
    HISTORY,
    RECEIPT,
    NO_SHIFT
};

enum { THINKING_SHOW, THINKING_HIDE };

static const Option *const options[] = {
    [MODEL] = SHARED(MODEL),
    OPTION(PROMPT, "prompt", .letter = 'p', .kind = ARG_TEXT, .refuses = "history", .value = "TEXT",
           .help = "answer TEXT and exit"),
    OPTION(FILE_, "file", .letter = 'f', .kind = ARG_INPUT, .refuses = "history", .value = "FILE",
           .help = "append FILE to --prompt, - for standard input"),
    OPTION(SYSTEM, "system", .kind = ARG_TEXT, .value = "TEXT", .help = "system prompt"),
    OPTION(LOAD, "load", .kind = ARG_INPUT, .value = "FILE",
           .help = "resume a conversation written by /save"),
    [CHAT_TEMPLATE] = SHARED(CHAT_TEMPLATE),
    OPTION(THINKING, "thinking", .kind = ARG_CHOICE, .value = "WHAT",
           .choices = CHOICES("show", "hide"), .fallback = "show",
           .help = "thinking text of reasoning models"),
    OPTION(MAX_TOKENS, "max-tokens", .letter = 'n', .kind = ARG_INT, .high = 1 << 30, .value = "N",
           .fallback = "0", .help = "maximum tokens of an answer, 0: the context's rest"),
    OPTION(CONTEXT, "context", .letter = 'c', .kind = ARG_INT, .high = 1 << 30, .value = "N",
           .fallback = "0", .help = "context length, 0: the model's"),
    OPTION(HISTORY, "history", .kind = ARG_OUTPUT, .value = "FILE",
           .help = "input history, default ~/.caravan_history"),
    OPTION(RECEIPT, "receipt", .kind = ARG_OUTPUT, .refuses = "mesh adapter", .value = "FILE",
           .help = "write a receipt of each answer"),
    OPTION(NO_SHIFT, "no-shift", .kind = ARG_FLAG,
           .help = "refuse turns beyond the context, do not drop old ones"),
    SAMPLING_OPTIONS,
    SHARED(SPECULATE),
    SHARED(DRAFT),
    SHARED(JSON_SCHEMA),
    SHARED(REGEX),
    SHARED(GRAMMAR),
    RUN_MODEL_OPTIONS,
    SHARED(ADAPTER),
    NULL,
};

static int open_chat(Chat *chat, const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    RunOptions run = run_model_options(args);
    run.needs_tokenizer = true;
    run.engine.slots = 1;
    run.engine.logits_processors |= v[RECEIPT].given;
    run.engine.context = v[CONTEXT].integer;
    if (!chat->once) /* what /set may ask for */
        run.engine.sampling = run.engine.penalties = true;
    TRY(run_model_open(&chat->run, &run, err));
    const Tokenizer *tokenizer = chat->run.model->tokenizer;
    TRY(chat_template_open(tokenizer, v[CHAT_TEMPLATE].text, &chat->template, err));
    dialog_init(&chat->dialog, chat->template, tokenizer);
    answer_kind_learn(&chat->kind, chat->template, tokenizer);
    /* What templates are told the time is, all through the conversation: one that changed would change its beginning. */
    int64_t seconds = time(NULL);
    TRY(ranks_share(&seconds, NULL, err));
    const time_t clock = (time_t)seconds;
    if (!localtime_r(&clock, &chat->dialog.now))
        return err_set(err, CVN_EIO, "cannot read the system clock");
    if ((v[LOAD].given && dialog_load(&chat->dialog, v[LOAD].text, err)) ||
        (v[SYSTEM].given && dialog_set_system(&chat->dialog, v[SYSTEM].text, err)) ||
        run_model_start(&chat->run, &run, 0, cvn_model_context(chat->run.model), err))
        return err->code;
    TRY(cvn_session_new(chat->run.engine, &chat->session, err));
    if (v[LOAD].given)
        chat_load_cache(chat, v[LOAD].text);
    return CVN_OK;
}

static int talk(Chat *chat, ChatInput *input, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf typed = {0};
    while (!chat->leaves) {
        int64_t what = CHAT_TEXT; /* rank 0 reads, and all get it */
        if (ranks_first())
            what = chat_input_read(input, &typed);
        else
            strbuf_clear(&typed);
        TRY(ranks_share(&what, &typed, err));
        if (what == CHAT_INTERRUPTED && chat->terminal) {
            putchar('\n');
            continue;
        }
        if (what == CHAT_INTERRUPTED)
            return err_set(err, CVN_EINTERRUPTED, "interrupted");
        if (what == CHAT_NO_MEMORY)
            return err_set(err, CVN_EMEM, "no memory for the input");
        if (what != CHAT_TEXT)
            break;
        if (chat_is_command(typed.text)) {
            chat_command(chat, typed.text);
            if (chat->answers)
                TRY(chat_answer(chat, err));
            chat->answers = false;
        } else if (typed.text[strspn(typed.text, " \t\n")]) {
            TRY(dialog_add(&chat->dialog, DIALOG_USER, typed.text, typed.length, err));
            chat->again = 0;
            TRY(chat_answer(chat, err));
        }
    }
    if (chat->terminal)
        putchar('\n');
    return CVN_OK;
}

/* One turn, of what --prompt and --file say. */
static int answer_once(Chat *chat, const char *prompt, const char *path, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    SCOPED(scoped_free) char *file = NULL;
    size_t n = 0;
    int code = path && ranks_first() ? read_input(path, &file, &n, err) : CVN_OK;
    int64_t failed = code;
    while (n && (file[n - 1] == '\n' || file[n - 1] == '\r'))
        n--;
    strbuf_puts(&text, prompt ? prompt : "");
    strbuf_puts(&text, prompt && n ? "\n\n" : "");
    strbuf_add(&text, n ? file : "", n);
    TRY(ranks_share(&failed, &text, err)); /* rank 0 reads, and all get it */
    if (failed)
        return code ? code : err_set(err, (int)failed, "rank 0 could not read %s", path);
    chat->interrupt = run_interrupt_keep(chat->run.cluster != NULL);
    if (text.failed)
        return err_set(err, CVN_EMEM, "no memory for the input");
    if (!text.text[strspn(text.text, " \t\r\n")])
        return err_set(err, CVN_EINVAL, "the prompt is empty");
    TRY(dialog_add(&chat->dialog, DIALOG_USER, text.text, text.length, err));
    return chat_answer(chat, err);
}

static int converse(Chat *chat, const Value *history, cvn_err *err)
{
    const char *home = getenv("HOME"); /* without one what was typed is not kept */
    const FilePath usual = file_path(home ? home : "", ".caravan_history");
    const char *path = history->given ? history->text : home && *home ? usual.text : NULL;
    if (history->given) { /* or what is typed would be kept nowhere, and nobody would know */
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
            return err_set(err, CVN_EIO, "--history: cannot write '%s': %s", path, strerror(errno));
        close(fd);
    }
    chat->interrupt = run_interrupt_keep(chat->run.cluster != NULL);
    if (*chat->interrupt)
        return err_set(err, CVN_EINTERRUPTED, "interrupted");
    ChatInput *input = chat_input_new(ranks_first() ? path : NULL, chat->interrupt, chat_word);
    if (!input)
        return err_set(err, CVN_EMEM, "no memory for the input");
    chat->terminal = chat_input_is_terminal(input) && isatty(STDOUT_FILENO);
    if (chat->terminal)
        chat_say(chat,
                 "Chat template %s, %lld tokens of context.\n"
                 "/help lists commands, Ctrl-C stops an answer, Ctrl-D exits.",
                 chat_template_name(chat->template),
                 (long long)cvn_session_get_stats(chat->session).context);
    int64_t terminal = chat->terminal;
    int code = ranks_share(&terminal, NULL, err);
    chat->terminal = terminal;
    if (code == CVN_OK)
        code = talk(chat, input, err);
    chat_input_free(input);
    return code;
}

static int run(const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    Chat chat = {.once = v[PROMPT].given || v[FILE_].given,
                 .colors = terminal_colors(stdout),
                 .shifts = !v[NO_SHIFT].flag,
                 .receipts = v[RECEIPT].text,
                 .shows_thoughts = v[THINKING].integer == THINKING_SHOW,
                 .request = {.max_tokens = v[MAX_TOKENS].integer,
                             .ignore_eos = args_value(args, SHARED(IGNORE_EOS))->flag,
                             .sampling = run_model_sampling(args)}};
    bool failed = run_model_constraint(args, &chat.request.constraint, err) ||
                  open_chat(&chat, args, err) ||
                  (chat.once ? answer_once(&chat, v[PROMPT].text, v[FILE_].text, err)
                             : converse(&chat, &v[HISTORY], err));
    dialog_free(&chat.dialog);
    strbuf_free(&chat.receipt_lines);
    json_decref(chat.receipt_model);
    cvn_session_free(chat.session);
    chat_template_free(chat.template);
    answer_kind_free(&chat.kind);
    run_model_close(&chat.run, NULL);
    cvn_constraint_free(chat.request.constraint);
    return failed ? err->code : chat.refused && !chat.terminal ? EXIT_REFUSED : EXIT_OK;
}

const Command command_chat = {
    "chat",
    .about = "chat with a model in the terminal",
    .usage = "MODEL [options]",
    .examples = "chat -m my-llama\ta conversation; /help lists the commands\n"
                "chat -m my-llama --system 'Answer in one sentence.' --temperature 0\ta system "
                "prompt, greedy\n"
                "chat my-llama -p 'Why is the sky blue?'\tone answer\n"
                "chat my-llama -p 'What does this say?' -f - < notes.txt\tone answer about a file\n"
                "chat -m my-llama < questions.txt\ta turn per line\n"
                "chat -m my-llama --mesh model=2 --layout tp\ttensor parallelism on two devices\n",
    .notes =
        "A model without a chat template gets the built-in one that matches its special tokens. "
        "--chat-template takes a file, or a built-in name: llama2, llama3, llama3-meta, llama3.1, "
        "r1, r1-open, chatml. Thinking text is dimmed. The conversation stays in the KV cache, so "
        "a turn costs only its own tokens. The same seed gives the same conversation. Under "
        "mpirun, rank 0 has the terminal, and Ctrl-C ends the conversation.",
    .options = options,
    .run = run,
};
