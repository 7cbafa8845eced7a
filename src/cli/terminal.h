/*
 * What is for people only: colours, progress bars, errors as sentences. Nothing here writes to standard
 * output unless asked to; scripts that read it meet data alone.
 */
#ifndef CVN_CLI_TERMINAL_H
#define CVN_CLI_TERMINAL_H

#include "base/err.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Exit codes of every command. 130 is what shells call "ended by Ctrl-C". */
enum { EXIT_OK = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* Whether the stream is a terminal that wants colours: NO_COLOR is unset or empty, TERM not "dumb". */
bool terminal_colors(FILE *stream);

/* Columns of the terminal; 80 when the stream is none. */
int terminal_width(FILE *stream);

/* Writes text that a model made. On a terminal control characters other than line ends and tabs are shown
 * as ^X: no text may move the cursor or set the title. */
int put_text(FILE *stream, const char *text, size_t n, cvn_err *err);

/* Prints "caravan: MESSAGE" and returns the exit code that belongs to the error. */
int fail(const cvn_err *err);

/* Prints each line of `lines` as "caravan: warning: LINE"; nothing for "". */
void warn_lines(const char *lines);

/* Adds bytes as they are, but control characters and what is not UTF-8 as \xNN, and line ends as \n. */
void add_visible(StrBuf *out, const char *text, size_t n);

/* Whether standard error is a terminal on which a line can be drawn over and over. */
bool terminal_live(void);

/* Draws that line, cut where the terminal ends, and takes it away. Nothing where there is no such terminal. */
void live_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
void live_line_end(void);

/*
 * The terminal that somebody types at. terminal_keep remembers its state: from then on terminal_restore, and every signal that
 * ends or stops the program, puts it back. terminal_quiet(true): what is typed is not shown, and stays for who reads next.
 * Nothing happens where standard input is no terminal.
 */
void terminal_keep(void);
void terminal_quiet(bool quiet);
void terminal_restore(void);

/* A rate for people: 0 of what took no time. */
static inline double per_second(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

/* A bar on standard error, drawn at most ten times a second, and only on a terminal. */
typedef struct Progress {
    const char *what; /* "writing" */
    double total;     /* in any unit */
    double start;     /* seconds, of a clock that only goes forward */
    double drawn;     /* when it was last drawn */
    bool visible;
} Progress;

Progress progress_start(const char *what, double total);
void progress_set(Progress *progress, double done);
void progress_end(Progress *progress); /* takes the bar away */

#endif
