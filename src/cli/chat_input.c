#include "cli/chat_input.h"

#include "base/err.h"
#include "cli/terminal.h"
#include "text/utf8.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef CVN_HAVE_EDIT
#include <histedit.h>
#include <wchar.h>
#endif

struct ChatInput {
    bool terminal;
    volatile int *interrupt; /* borrowed: set by Ctrl-C */
    char *line;              /* owned: getline's */
    size_t capacity;         /* of line */
    const char *prompt;      /* of the line being read */
    bool colors;             /* of the prompt */
    ChatWord word;           /* what Tab completes */
    int leaves;              /* the line is interrupted, and the cursor on its way to its end */
    char *history_path;      /* owned, or NULL */
#ifdef CVN_HAVE_EDIT
    EditLine *edit;    /* owned; NULL when the terminal cannot be edited on */
    HistoryW *history; /* owned */
#endif
};

static const char FIRST_PROMPT[] = "> ", NEXT_PROMPT[] = "| ";

#ifdef CVN_HAVE_EDIT

/* Set by the handler: the window has another size; the program goes on after it was stopped. */
static volatile sig_atomic_t resized, resumed;

static void on_change(int number)
{
    if (number == SIGCONT)
        resumed = 1;
    else
        resized = 1;
}

/* The terminal has moved what it showed, no program knows where to: a short line is drawn over itself, a long
 * one once more below. */
static void redraw(EditLine *edit)
{
    const LineInfoW *line = el_wline(edit);
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    size_t n = (size_t)(line->lastchar - line->buffer);
    bool is_short = n + sizeof FIRST_PROMPT < size.ws_col && !wmemchr(line->buffer, L'\n', n);
    fputs(is_short ? "\r\033[J" : "\n", stdout);
    fflush(stdout);
    el_resize(edit);
    el_set(edit, EL_REFRESH);
}

/* The next byte of standard input: 1, 0 at its end, -1 after Ctrl-C or an error. */
static int read_byte(ChatInput *input, EditLine *edit, unsigned char *byte)
{
    for (;;) {
        if (*input->interrupt) {
            /* What comes next is shown below all of the line: first the cursor goes to its end, as by Ctrl-E. */
            const LineInfoW *line = el_wline(edit);
            *byte = 'E' & 31;
            return line->cursor < line->lastchar && !input->leaves++ ? 1 : -1;
        }
        if (resumed)
            el_set(edit, EL_PREP_TERM, 1);
        if (resized || resumed) {
            resized = resumed = 0;
            redraw(edit);
        }
        /* A signal may come between the questions above and the wait, which it then does not end: so the wait is
         * short. What is typed after Ctrl-C stays in the queue, for the next line. */
        struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
        int ready = poll(&keys, 1, 100);
        if (ready < 0 && errno != EINTR)
            return -1;
        if (ready <= 0 || *input->interrupt)
            continue;
        ssize_t n = read(STDIN_FILENO, byte, 1);
        if (n >= 0)
            return (int)n;
        if (errno != EINTR)
            return -1;
    }
}

/* The next character; what is no UTF-8 comes as U+FFFD. libedit calls it for every key. */
static int read_character(EditLine *edit, wchar_t *out)
{
    ChatInput *input = NULL;
    el_get(edit, EL_CLIENTDATA, &input);
    unsigned char bytes[4];
    int n = read_byte(input, edit, &bytes[0]);
    if (n <= 0)
        return n;
    int need = utf8_need(bytes[0]);
    for (int i = 1; i < need; i++)
        if ((n = read_byte(input, edit, &bytes[i])) <= 0)
            return n;
    bool valid = need > 0 && utf8_length((char *)bytes, (size_t)need) == need;
    *out = valid ? (wchar_t)utf8_point((char *)bytes, need) : 0xfffd;
    return 1;
}

static unsigned char insert_newline(EditLine *edit, wint_t key)
{
    (void)key;
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* Inserts what the terminal sends between its marks of a paste, line ends and all. */
static unsigned char insert_paste(EditLine *edit, wint_t key)
{
    (void)key;
    static const wchar_t end[] = L"\033[201~";
    size_t matched = 0;
    wchar_t c, text[2] = L"", last = 0;
    while (end[matched]) {
        if (read_character(edit, &c) != 1)
            return CC_ERROR;
        if (c == end[matched]) {
            matched++;
            continue;
        }
        /* Control characters of a paste are not commands: a lone escape sequence is dropped. */
        matched = c == end[0];
        bool line_feed_of_pair = c == L'\n' && last == L'\r';
        last = c;
        text[0] = c == L'\r' ? L'\n' : c;
        bool plain = c >= 32 && c != 127;
        if ((plain || c == L'\t' || c == L'\r' || c == L'\n') && !line_feed_of_pair &&
            el_winsertstr(edit, text))
            return CC_ERROR;
    }
    return CC_REFRESH;
}

enum { WORD_MOST = 64 };

/* Completes the word that stands before the cursor, as far as all that it may become agree; where that is no further, they are
   listed. */
static unsigned char complete_word(EditLine *edit, wint_t key)
{
    (void)key;
    ChatInput *input = NULL;
    el_get(edit, EL_CLIENTDATA, &input);
    const LineInfoW *line = el_wline(edit);
    char typed[WORD_MOST] = "", common[WORD_MOST] = "";
    size_t length = (size_t)(line->cursor - line->buffer), n = 0, found = 0;
    const char *word;
    for (size_t i = 0; i < length; i++) {
        if (length >= sizeof typed || line->buffer[i] <= 0 || line->buffer[i] > 126)
            return CC_ERROR;
        typed[i] = (char)line->buffer[i];
    }
    for (size_t i = 0; (word = input->word(typed, i, &n)); i++) {
        size_t same = 0;
        while (found && common[same] && common[same] == word[same])
            same++;
        snprintf(common, sizeof common, "%.*s", (int)(found ? same : sizeof common - 2), word);
        found++;
    }
    if (!found)
        return CC_ERROR;
    wchar_t more[WORD_MOST + 1];
    size_t k = 0;
    for (const char *at = common + n; *at; at++)
        more[k++] = (wchar_t)*at;
    if (found == 1)
        more[k++] = L' ';
    more[k] = 0;
    if (k)
        return el_winsertstr(edit, more) ? CC_ERROR : CC_REFRESH;
    putc('\n', stdout);
    for (size_t i = 0; (word = input->word(typed, i, &n)); i++)
        fprintf(stdout, "%s%s", i ? "  " : "", word);
    putc('\n', stdout);
    fflush(stdout);
    return CC_REDISPLAY;
}

/* The prompt, in bold where there are colours: libedit takes what stands between two \1 as it is. */
static wchar_t *edit_prompt(EditLine *edit)
{
    static wchar_t prompt[32];
    ChatInput *input = NULL;
    el_get(edit, EL_CLIENTDATA, &input);
    swprintf(prompt, 32, input->colors ? L"\1\033[1m\1%s\1\033[0m\1" : L"%s", input->prompt);
    return prompt;
}

static void start_editing(ChatInput *input)
{
    const char *term = getenv("TERM");
    if (!input->terminal || !isatty(STDOUT_FILENO) || !term || strcmp(term, "dumb") == 0)
        return;
    /* libedit shows what is a letter by the locale. */
    if (!setlocale(LC_CTYPE, "") || MB_CUR_MAX == 1)
        setlocale(LC_CTYPE, "C.UTF-8");
    input->edit = el_init("caravan", stdin, stdout, stderr);
    if (!input->edit)
        return;
    el_set(input->edit, EL_CLIENTDATA, input);
    el_wset(input->edit, EL_GETCFN, read_character);
    el_wset(input->edit, EL_PROMPT_ESC, edit_prompt, L'\1');
    el_set(input->edit, EL_EDITOR, "emacs");
    HistEventW event;
    input->history = history_winit();
    if (input->history) {
        history_w(input->history, &event, H_SETSIZE, 1000);
        history_w(input->history, &event, H_SETUNIQUE, 1);
        if (input->history_path)
            history_w(input->history, &event, H_LOAD, input->history_path);
        el_wset(input->edit, EL_HIST, history_w, input->history);
    }
    el_source(input->edit, NULL);
    el_set(input->edit, EL_SIGNAL, 0);
    el_wset(input->edit, EL_ADDFN, L"insert-newline", L"Insert a line break", insert_newline);
    el_wset(input->edit, EL_ADDFN, L"insert-paste", L"Insert pasted text", insert_paste);
    el_wset(input->edit, EL_ADDFN, L"complete-word", L"Complete a word", complete_word);
    el_set(input->edit, EL_BIND, "^I", "complete-word", NULL);
    el_set(input->edit, EL_BIND, "\\e\\r", "insert-newline", NULL);
    el_set(input->edit, EL_BIND, "\\e\\n", "insert-newline", NULL);
    el_set(input->edit, EL_BIND, "\\e[200~", "insert-paste", NULL);
    struct sigaction action = {.sa_handler = on_change};
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGCONT, &action, NULL);
}

static void add_character(StrBuf *out, wchar_t wide)
{
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    uint32_t c = (uint32_t)wide;
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    strbuf_putc(out, (char)(lead[more] | c >> 6 * more));
    while (more-- > 0)
        strbuf_putc(out, (char)(0x80 | (c >> 6 * more & 63)));
}

static ChatTyped read_edited(ChatInput *input, StrBuf *out)
{
    int n = 0;
    if (resized) {
        resized = 0;
        el_resize(input->edit);
    }
    input->leaves = 0;
    fputs("\033[?2004h", stdout); /* mark pastes, please */
    fflush(stdout);
    const wchar_t *line = el_wgets(input->edit, &n);
    fputs("\033[?2004l", stdout);
    fflush(stdout);
    if (!line || n <= 0)
        return *input->interrupt ? CHAT_INTERRUPTED : CHAT_END;
    for (int i = 0; i < n; i++)
        add_character(out, line[i]);
    if (out->length && out->text[out->length - 1] == '\n')
        out->text[--out->length] = '\0';
    HistEventW event;
    SCOPED(scoped_free) wchar_t *entry = calloc((size_t)n + 1, sizeof *entry);
    if (entry && input->history && n > 1) {
        wmemcpy(entry, line, (size_t)n - (line[n - 1] == L'\n'));
        history_w(input->history, &event, H_ENTER, entry);
        /* Saved now: a terminal that is closed leaves no time for it at the end. */
        mode_t mask = umask(077);
        if (input->history_path)
            history_w(input->history, &event, H_SAVE, input->history_path);
        umask(mask);
    }
    return CHAT_TEXT;
}

#endif

ChatInput *chat_input_new(const char *history, volatile int *interrupt, ChatWord word)
{
    ChatInput *input = calloc(1, sizeof *input);
    if (!input)
        return NULL;
    input->interrupt = interrupt;
    input->terminal = isatty(STDIN_FILENO);
    input->colors = terminal_colors(stdout);
    input->word = word;
    input->history_path = history ? strdup(history) : NULL;
    if (input->terminal && isatty(STDOUT_FILENO))
        terminal_keep();
#ifdef CVN_HAVE_EDIT
    start_editing(input);
#endif
    terminal_quiet(true);
    return input;
}

void chat_input_free(ChatInput *input)
{
    if (!input)
        return;
#ifdef CVN_HAVE_EDIT
    if (input->history)
        history_wend(input->history);
    if (input->edit)
        el_end(input->edit);
#endif
    terminal_restore();
    free(input->line);
    free(input->history_path);
    free(input);
}

bool chat_input_is_terminal(const ChatInput *input)
{
    return input->terminal;
}

/* Appends one line, without its end. */
static ChatTyped read_line(ChatInput *input, const char *prompt, StrBuf *out)
{
    input->prompt = prompt;
#ifdef CVN_HAVE_EDIT
    if (input->edit)
        return read_edited(input, out);
#endif
    if (input->terminal) {
        fprintf(stdout, input->colors ? "\033[1m%s\033[0m" : "%s", prompt);
        fflush(stdout);
    }
    ssize_t n = *input->interrupt ? -1 : getline(&input->line, &input->capacity, stdin);
    if (n < 0) {
        clearerr(stdin);
        return *input->interrupt ? CHAT_INTERRUPTED : CHAT_END;
    }
    if (n > 0 && input->line[n - 1] == '\n')
        n--;
    if (n > 0 && input->line[n - 1] == '\r')
        n--;
    strbuf_add(out, input->line, (size_t)n);
    return CHAT_TEXT;
}

static bool ends_with(const StrBuf *text, const char *end)
{
    size_t n = strlen(end);
    return text->length >= n && memcmp(text->text + text->length - n, end, n) == 0;
}

static void cut(StrBuf *text, size_t n)
{
    text->length -= n;
    text->text[text->length] = '\0';
}

static ChatTyped read_turn(ChatInput *input, StrBuf *out)
{
    strbuf_clear(out);
    strbuf_add(out, "", 0);
    ChatTyped typed = read_line(input, FIRST_PROMPT, out);
    bool block = typed == CHAT_TEXT && out->length >= 3 && memcmp(out->text, "\"\"\"", 3) == 0;
    while (typed == CHAT_TEXT && !out->failed) {
        bool more = block ? out->length < 6 || !ends_with(out, "\"\"\"") : ends_with(out, "\\");
        if (!more)
            break;
        if (!block)
            cut(out, 1);
        strbuf_putc(out, '\n');
        typed = read_line(input, NEXT_PROMPT, out);
        /* What ends in mid-turn is a turn all the same. */
        if (typed == CHAT_END && !block)
            return CHAT_TEXT;
    }
    if (typed == CHAT_INTERRUPTED)
        *input->interrupt = 0;
    if (out->failed)
        return CHAT_NO_MEMORY;
    if (typed != CHAT_TEXT || !block)
        return typed;
    /* The marks of the block go, and the line ends beside them. */
    cut(out, 3);
    if (ends_with(out, "\n") && out->length > 3)
        cut(out, 1);
    size_t front = out->text[3] == '\n' ? 4 : 3;
    out->length -= front;
    memmove(out->text, out->text + front, out->length + 1);
    return CHAT_TEXT;
}

ChatTyped chat_input_read(ChatInput *input, StrBuf *out)
{
    terminal_quiet(false);
    ChatTyped typed = read_turn(input, out);
    terminal_quiet(true);
    return typed;
}
