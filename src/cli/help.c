#include "cli/help.h"

#include <string.h>

enum { WIDTH = 80, LEFT_MAX = 26 };

static const char about_program[] = "train and run Llama and its relatives";
static const char about_environment[] =
    "Every option can also be set by an environment variable: CARAVAN_ and its name in capitals, "
    "such as CARAVAN_THREADS=4. The command line wins.";
static const char about_exit[] =
    "Exit status: 0 success, 1 error (one sentence says why), 2 usage error, 130 interrupted by "
    "Ctrl-C, and train also by SIGTERM or SIGHUP.";

/* Adds text as lines of at most WIDTH columns; the first begins at column `at`, the rest are indented
 * to `indent`. */
static void add_wrapped(StrBuf *out, const char *text, size_t at, size_t indent)
{
    size_t column = at;
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (column > indent && column + 1 + n > WIDTH) {
            strbuf_putc(out, '\n');
            column = 0;
        }
        if (column < indent)
            strbuf_printf(out, "%*s", (int)(indent - column), "");
        else if (column > indent)
            strbuf_putc(out, ' ');
        column = (column < indent ? indent : column + (column > indent)) + n;
        strbuf_add(out, text, n);
        text += n;
        text += strspn(text, " \n");
    }
    strbuf_putc(out, '\n');
}

/* "-o, --out DIR" */
static void add_spelling(StrBuf *out, const Option *option)
{
    if (option->letter)
        strbuf_printf(out, "-%c, ", option->letter);
    strbuf_printf(out, "--%s", option->name);
    if (option->kind != ARG_FLAG)
        strbuf_printf(out, option->optional ? " [%s]" : " %s", option->value);
}

/* The help phrase, what may be chosen, and the value when nothing is said. */
static void add_meaning(StrBuf *out, const Option *option)
{
    strbuf_puts(out, option->help);
    const char *choice;
    size_t n = 0;
    while (option->kind == ARG_CHOICE && !option->brief && (choice = option_choice(option, n)))
        strbuf_printf(out, "%s%s", n++ ? ", " : ": ", choice);
    if (option->fallback && option->kind != ARG_FLAG)
        strbuf_printf(out, " [%s]", option->fallback);
}

/* Takes "command<tab>meaning<newline>" off *lines; false at the end. */
static bool next_example(const char **lines, StrBuf *typed, StrBuf *meaning)
{
    if (!**lines)
        return false;
    size_t n = strcspn(*lines, "\n"), tab = strcspn(*lines, "\t\n");
    strbuf_clear(typed);
    strbuf_clear(meaning);
    strbuf_add(typed, *lines, tab);
    if (tab < n)
        strbuf_add(meaning, *lines + tab + 1, n - tab - 1);
    *lines += n + ((*lines)[n] == '\n');
    return true;
}

/* The next paragraph of a text in which an empty line ends one; false at the end. */
static bool next_paragraph(const char **text, StrBuf *paragraph)
{
    if (!*text || !**text)
        return false;
    const char *end = strstr(*text, "\n\n");
    size_t n = end ? (size_t)(end - *text) : strlen(*text);
    strbuf_clear(paragraph);
    strbuf_add(paragraph, *text, n);
    *text += n;
    *text += strspn(*text, "\n");
    return true;
}

/* Columns of a text in UTF-8 that has one per character. */
static size_t columns(const StrBuf *text)
{
    size_t n = 0;
    for (size_t i = 0; i < text->length; i++)
        n += (text->text[i] & 0xc0) != 0x80;
    return n;
}

static void add_options(StrBuf *out, const Command *command)
{
    SCOPED(strbuf_free) StrBuf left = {0}, right = {0};
    size_t widest = 0;
    for (int i = 0; option_shown(command, i); i++) {
        strbuf_clear(&left);
        add_spelling(&left, command->options[i]);
        if (columns(&left) > widest && columns(&left) <= LEFT_MAX)
            widest = columns(&left);
    }
    strbuf_puts(out, "\nOptions:\n");
    for (int i = 0; option_shown(command, i); i++) {
        strbuf_clear(&left);
        strbuf_clear(&right);
        add_spelling(&left, command->options[i]);
        add_meaning(&right, command->options[i]);
        strbuf_printf(out, "  %s", left.text ? left.text : "");
        size_t column = 2 + columns(&left), indent = widest + 4;
        if (column + 2 > indent) {
            strbuf_putc(out, '\n');
            column = 0;
        }
        if (right.text)
            add_wrapped(out, right.text, column, indent);
    }
}

void help_command(StrBuf *out, const Command *command)
{
    strbuf_printf(out, "caravan %s: %s\n\n", command->name, command->about);
    SCOPED(strbuf_free) StrBuf typed = {0}, meaning = {0}, usage = {0};
    const char *examples = command->examples;
    strbuf_puts(out, "Examples:\n");
    while (next_example(&examples, &typed, &meaning)) {
        strbuf_printf(out, "  caravan %s\n", typed.text ? typed.text : "");
        if (meaning.length)
            add_wrapped(out, meaning.text, 0, 6);
    }
    strbuf_printf(&usage, "Usage: caravan %s %s", command->name, command->usage);
    strbuf_putc(out, '\n');
    if (usage.text)
        add_wrapped(out, usage.text, 0, 0);
    if (command->options[0])
        add_options(out, command);
    SCOPED(strbuf_free) StrBuf paragraph = {0};
    const char *notes = command->notes;
    while (next_paragraph(&notes, &paragraph)) {
        strbuf_putc(out, '\n');
        add_wrapped(out, paragraph.text, 0, 0);
    }
    for (int i = 0; option_shown(command, i); i++)
        if (command->options[i]->kind != ARG_FLAG) {
            char name[64];
            option_variable(command->options[i], name, sizeof name);
            strbuf_printf(out, "\nEnvironment: %s sets --%s, and likewise for every option.\n",
                          name, command->options[i]->name);
            break;
        }
}

void help_program(StrBuf *out)
{
    strbuf_printf(out, "caravan: %s\n\nCommands:\n", about_program);
    for (int i = 0; commands[i]; i++)
        strbuf_printf(out, "  %-10s %s\n", commands[i]->name, commands[i]->about);
    strbuf_puts(out, "\n  caravan COMMAND --help   one page with examples\n"
                     "  caravan --version        version, processor, optional parts\n\n");
    add_wrapped(out, about_environment, 0, 0);
    strbuf_putc(out, '\n');
    add_wrapped(out, about_exit, 0, 0);
}

/* Adds text with what roff would take for markup escaped. */
static void add_roff(StrBuf *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        strbuf_puts(out, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            strbuf_puts(out, "\\e");
        else if (*text == '-')
            strbuf_puts(out, "\\-");
        else
            strbuf_putc(out, *text);
        if (*text == '\n' && (text[1] == '.' || text[1] == '\''))
            strbuf_puts(out, "\\&");
    }
}

static void add_man_head(StrBuf *out, const char *name, const char *about)
{
    strbuf_printf(out, ".TH \"%s\" 1 \"\" \"Caravan %s\" \"Caravan\"\n.SH NAME\n", name,
                  CVN_VERSION);
    add_roff(out, name);
    strbuf_puts(out, " \\- ");
    add_roff(out, about);
    strbuf_puts(out, "\n.SH SYNOPSIS\n");
}

void man_command(StrBuf *out, const Command *command)
{
    SCOPED(strbuf_free) StrBuf text = {0}, meaning = {0};
    strbuf_printf(&text, "caravan-%s", command->name);
    add_man_head(out, text.text ? text.text : "", command->about);
    strbuf_printf(out, ".B caravan %s\n", command->name);
    add_roff(out, command->usage);
    strbuf_puts(out, "\n.SH EXAMPLES\n");
    const char *examples = command->examples;
    while (next_example(&examples, &text, &meaning)) {
        strbuf_puts(out, ".TP\n.B caravan ");
        add_roff(out, text.text ? text.text : "");
        strbuf_putc(out, '\n');
        add_roff(out, meaning.text ? meaning.text : "");
        strbuf_putc(out, '\n');
    }
    strbuf_puts(out, ".SH OPTIONS\n");
    for (int i = 0; option_shown(command, i); i++) {
        strbuf_clear(&text);
        strbuf_clear(&meaning);
        add_spelling(&text, command->options[i]);
        add_meaning(&meaning, command->options[i]);
        strbuf_puts(out, ".TP\n.B ");
        add_roff(out, text.text ? text.text : "");
        strbuf_putc(out, '\n');
        add_roff(out, meaning.text ? meaning.text : "");
        strbuf_putc(out, '\n');
    }
    const char *notes = command->notes;
    if (notes)
        strbuf_puts(out, ".SH NOTES\n");
    while (next_paragraph(&notes, &text)) {
        strbuf_puts(out, ".PP\n");
        add_roff(out, text.text);
        strbuf_putc(out, '\n');
    }
    strbuf_puts(out, ".SH ENVIRONMENT\n");
    add_roff(out, about_environment);
    strbuf_puts(out, "\n.SH \"EXIT STATUS\"\n");
    add_roff(out, about_exit);
    strbuf_puts(out, "\n.SH \"SEE ALSO\"\n.BR caravan (1)\n");
}

void man_program(StrBuf *out)
{
    add_man_head(out, "caravan", about_program);
    strbuf_puts(out, ".B caravan\n.I COMMAND\n[options]\n.SH COMMANDS\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(out, ".TP\n.BR caravan\\-%s (1)\n", commands[i]->name);
        add_roff(out, commands[i]->about);
        strbuf_putc(out, '\n');
    }
    strbuf_puts(out, ".SH ENVIRONMENT\n");
    add_roff(out, about_environment);
    strbuf_puts(out, "\n.PP\n.B CARAVAN_CPU\nlowers the instruction set in use;\n"
                     ".B NO_COLOR\nturns colours off.\n.SH \"EXIT STATUS\"\n");
    add_roff(out, about_exit);
    strbuf_putc(out, '\n');
}
