#include "cli/terminal.h"

#include "base/threads.h"
#include "cli/ranks.h"
#include "text/utf8.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* How the terminal was, for handlers of signals, which are told nothing. */
static struct termios kept;
static volatile sig_atomic_t keeps, is_quiet;

bool terminal_colors(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(stream)) && !(no_color && *no_color) && !(term && !strcmp(term, "dumb"));
}

int terminal_width(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

static void put_visible(FILE *stream, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool c1 = c == 0xc2 && i + 1 < n && ((unsigned char)text[i + 1] & 0xe0) == 0x80;
        if ((c < 32 && c != '\n' && c != '\t') || c == 127) {
            fputc('^', stream);
            fputc(c ^ 64, stream);
        } else if (c1) {
            fputs("\xef\xbf\xbd", stream);
            i++;
        } else {
            fputc(c, stream);
        }
    }
}

int put_text(FILE *stream, const char *text, size_t n, cvn_err *err)
{
    if (isatty(fileno(stream)))
        put_visible(stream, text, n);
    else
        fwrite(text, 1, n, stream);
    if (fflush(stream) == 0 && !ferror(stream))
        return CVN_OK;
    return err_set(err, CVN_EIO, "cannot write the text: %s", strerror(errno));
}

int fail(const cvn_err *err)
{
    if (err->code == CVN_EINTERRUPTED)
        return EXIT_INTERRUPTED;
    if (!ranks_failed(err))
        return EXIT_REFUSED;
    bool color = terminal_colors(stderr);
    fprintf(stderr, "%scaravan:%s %s\n", color ? "\033[1;31m" : "", color ? "\033[0m" : "",
            err->message[0] ? err->message : cvn_code_text(err->code));
    return EXIT_REFUSED;
}

void warn_lines(const char *lines)
{
    while (*lines) {
        size_t n = strcspn(lines, "\n");
        if (n)
            fprintf(stderr, "caravan: warning: %.*s\n", (int)n, lines);
        lines += n + (lines[n] == '\n');
    }
}

void add_visible(StrBuf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        int length = utf8_length(text + i, n - i);
        if (c == '\n')
            strbuf_puts(out, "\\n");
        else if (length == 0 || c < 0x20 || c == 0x7f)
            strbuf_printf(out, "\\x%02x", c);
        else
            strbuf_add(out, text + i, (size_t)length);
        i += length ? (size_t)length : 1;
    }
}

bool terminal_live(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(term && !strcmp(term, "dumb"));
}

void live_line(const char *format, ...)
{
    if (!terminal_live())
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "\r%.*s\033[K", terminal_width(stderr) - 1, text);
    fflush(stderr);
}

void live_line_end(void)
{
    live_line("%s", "");
}

/* Only what a handler may call. */
void terminal_restore(void)
{
    static const char end_of_pastes[] = "\033[?2004l";
    if (!keeps)
        return;
    tcsetattr(STDIN_FILENO, TCSANOW, &kept);
    if (write(STDIN_FILENO, end_of_pastes, sizeof end_of_pastes - 1) < 0)
        return; /* the terminal is gone */
}

void terminal_quiet(bool quiet)
{
    struct termios now = kept;
    if (!keeps)
        return;
    is_quiet = quiet;
    if (quiet)
        now.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static struct sigaction before[NSIG]; /* what signals did */

/* Puts the terminal back, and does what the signal did before. */
static void on_end(int number)
{
    struct sigaction own;
    terminal_restore();
    sigaction(number, &before[number], &own);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL); /* here it ends, or stops */
    if (number != SIGTSTP)
        return;
    sigaction(number, &own, NULL);
    if (is_quiet)
        terminal_quiet(true);
}

void terminal_keep(void)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGABRT,
                                  SIGSEGV, SIGILL, SIGFPE,  SIGBUS,  SIGPIPE};
    if (keeps || !isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &kept) != 0)
        return;
    keeps = 1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction end = {.sa_handler = on_end};
        sigaction(numbers[i], NULL, &before[numbers[i]]);
        if (before[numbers[i]].sa_handler != SIG_IGN)
            sigaction(numbers[i], &end, NULL);
    }
}

Progress progress_start(const char *what, double total)
{
    return (Progress){.what = what,
                      .total = total,
                      .start = clock_seconds(),
                      .visible = terminal_live() && total > 0};
}

void progress_set(Progress *progress, double done)
{
    double time = clock_seconds();
    /* The first tenth of a second shows nothing: what is quick needs no bar. */
    if (!progress->visible || time - progress->start < 0.1 || time - progress->drawn < 0.1)
        return;
    progress->drawn = time;
    double part = done < progress->total ? done / progress->total : 1;
    int width = terminal_width(stderr) - (int)strlen(progress->what) - 24;
    width = width < 0 ? 0 : width > 50 ? 50 : width;
    int full = (int)(part * width);
    fprintf(stderr, "\r\033[K%s ", progress->what);
    for (int i = 0; i < width; i++)
        fputc(i < full ? '#' : '.', stderr);
    fprintf(stderr, " %3.0f%%", 100 * part);
    if (part > 0) {
        double left = (time - progress->start) * (1 - part) / part;
        if (left < 90)
            fprintf(stderr, ", %.0f s left", left);
        else
            fprintf(stderr, ", %.0f min left", left / 60);
    }
    fflush(stderr);
}

void progress_end(Progress *progress)
{
    if (progress->visible && progress->drawn > 0)
        live_line_end();
    progress->visible = false;
}
