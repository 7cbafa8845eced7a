/*
 * Writes short stories, as many as asked for, from a grammar in a file:
 *
 *     stories examples/stories.grammar --seed 1 --megabytes 4 > stories.txt
 *
 * Story k of a seed is always the same one, on every machine. Stories are separated by <|endoftext|>.
 *
 * The grammar is lines. "@rule column column …" begins a rule; the lines that follow are its alternatives,
 * with "|" between columns; "= rule" takes in all alternatives of another rule; "#" begins a comment, and a
 * line that ends in "\" goes on. In text,
 *
 *     <rule>          an alternative of the rule, drawn anew each time
 *     <v=rule>        draws one and calls it v until the story ends; writes nothing
 *     <v=rule!w!x>    the same, but not the one that w or x is
 *     <v> <v.column>  what was drawn: its first column, or another
 *     <V.column>      the same with a capital letter
 *     [one/two/]      one of these, the last of which is nothing
 *     ~               a new paragraph
 *
 * and "a" becomes "an" where a vowel follows. Text in columns is expanded where it is used. A story begins
 * with the rule "story".
 */
#include "base/file.h"
#include "base/rng.h"
#include "base/strbuf.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 512, MAX_COLUMNS = 12, MAX_NAMES = 64, MAX_DEPTH = 40, MAX_NAME = 32 };

/* A piece of the grammar's text. */
typedef struct Span {
    const char *text; /* [n], in the grammar */
    size_t n;
} Span;

typedef struct Row {
    Span column[MAX_COLUMNS];
    int n; /* columns it has */
} Row;

typedef struct Rule {
    Span name;
    Span column[MAX_COLUMNS]; /* names of columns */
    int n_columns;
    Row *row; /* [n], owned */
    size_t n;
} Rule;

typedef struct Name {
    Span name;
    const Rule *rule; /* that it was drawn from */
    const Row *row;
} Name;

typedef struct Writer {
    Rule rule[MAX_RULES];
    size_t n_rules;
    Name name[MAX_NAMES]; /* of the present story */
    size_t n_names;
    RngKey key;
    uint64_t story, draws; /* number of the story; numbers drawn in it */
    StrBuf out;            /* the story so far */
    cvn_err *err;          /* borrowed */
    int code;              /* the first error */
} Writer;

static Span span(const char *text, size_t n)
{
    while (n && isspace((unsigned char)text[0])) {
        text++;
        n--;
    }
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    return (Span){text, n};
}

static bool is(Span a, Span b)
{
    return a.n == b.n && memcmp(a.text, b.text, a.n) == 0;
}

/* Cuts off what stands in front of the next `mark`; all that is left when there is none. */
static Span cut(Span *rest, char mark)
{
    const char *found = rest->n ? memchr(rest->text, mark, rest->n) : NULL;
    size_t n = found ? (size_t)(found - rest->text) : rest->n;
    Span piece = span(rest->text, n);
    rest->text += n + (found != NULL);
    rest->n -= n + (found != NULL);
    return piece;
}

static void fail(Writer *w, const char *what, Span where)
{
    if (!w->code)
        w->code = err_set(w->err, CVN_EFORMAT, "the grammar: %s '%.*s'", what,
                          (int)(where.n < 200 ? where.n : 200), where.text);
}

/* ---- reading ---- */

static Rule *find_rule(Writer *w, Span name)
{
    for (size_t i = 0; i < w->n_rules; i++)
        if (is(w->rule[i].name, name))
            return &w->rule[i];
    return NULL;
}

static void add_row(Writer *w, Rule *rule, const Row *row)
{
    Row *grown = realloc(rule->row, (rule->n + 1) * sizeof *grown);
    if (!grown) {
        w->code = err_set(w->err, CVN_EMEM, "no memory for the grammar");
        return;
    }
    rule->row = grown;
    rule->row[rule->n++] = *row;
}

static void read_line(Writer *w, Span line)
{
    Rule *rule = w->n_rules ? &w->rule[w->n_rules - 1] : NULL;
    if (line.n == 0 || line.text[0] == '#')
        return;
    if (line.text[0] == '@' && w->n_rules < MAX_RULES) {
        Span rest = span(line.text + 1, line.n - 1);
        rule = &w->rule[w->n_rules];
        *rule = (Rule){.name = cut(&rest, ' ')};
        while (rest.n && rule->n_columns < MAX_COLUMNS)
            rule->column[rule->n_columns++] = cut(&rest, ' ');
        if (find_rule(w, rule->name))
            fail(w, "there is already a rule", rule->name);
        w->n_rules++;
    } else if (!rule) {
        fail(w, "no rule has begun before", line);
    } else if (line.text[0] == '=') {
        const Rule *other = find_rule(w, span(line.text + 1, line.n - 1));
        if (!other)
            fail(w, "no rule before this is", line);
        for (size_t i = 0; other && i < other->n; i++)
            add_row(w, rule, &other->row[i]);
    } else {
        Row row = {.n = 0};
        int columns = rule->n_columns ? rule->n_columns : 1;
        for (Span rest = line; rest.n && row.n < columns;)
            row.column[row.n++] = columns > 1 ? cut(&rest, '|') : cut(&rest, '\0');
        if (row.n != columns)
            fail(w, "columns are missing in", line);
        add_row(w, rule, &row);
    }
}

/* `text` loses the line ends behind "\". */
static void read_grammar(Writer *w, char *text, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (text[i] == '\\' && text[i + 1] == '\n')
            text[i] = text[i + 1] = ' ';
    for (Span rest = {text, n}; rest.n && !w->code;)
        read_line(w, cut(&rest, '\n'));
}

/* ---- writing ---- */

static size_t draw(Writer *w, size_t n)
{
    uint32_t bits;
    rng_bits(w->key, w->story << 16 | (w->draws++ & 0xffff), 1, &bits);
    return (size_t)((uint64_t)bits * n >> 32);
}

static void expand(Writer *w, Span text, int depth);

static Name *find_name(Writer *w, Span name)
{
    for (size_t i = 0; i < w->n_names; i++)
        if (is(w->name[i].name, name))
            return &w->name[i];
    return NULL;
}

/* "v=rule!w!x" */
static void bind(Writer *w, Span tag)
{
    Span name = cut(&tag, '='), from = cut(&tag, '!');
    Name *old = find_name(w, name);
    Name *made = old ? old : &w->name[w->n_names];
    const Rule *rule = find_rule(w, from);
    if (!rule || !rule->n || w->n_names == MAX_NAMES) {
        fail(w, "no rule, or too many names, for", name);
        return;
    }
    for (int tries = 0; tries < 1000; tries++) {
        const Row *row = &rule->row[draw(w, rule->n)];
        bool taken = false;
        for (Span rest = tag; rest.n;) {
            const Name *other = find_name(w, cut(&rest, '!'));
            taken |= other && is(other->row->column[0], row->column[0]);
        }
        if (taken)
            continue;
        *made = (Name){name, rule, row};
        w->n_names += !old;
        return;
    }
    fail(w, "nothing is left to draw for", name);
}

/* A name or rule with its column, as it stands between < and >. */
static void insert(Writer *w, Span tag, int depth)
{
    char lower[MAX_NAME];
    if (tag.n == 0 || tag.n >= sizeof lower || depth > MAX_DEPTH) {
        fail(w, "this is no tag, or goes round in circles:", tag);
        return;
    }
    memcpy(lower, tag.text, tag.n);
    lower[0] = (char)tolower((unsigned char)lower[0]);
    Span rest = {lower, tag.n}, what = cut(&rest, '.');
    const Name *name = find_name(w, what);
    const Rule *rule = name ? name->rule : find_rule(w, what);
    if (!rule || !rule->n) {
        fail(w, "there is no name or rule", tag);
        return;
    }
    const Row *row = name ? name->row : &rule->row[draw(w, rule->n)];
    int column = 0;
    while (rest.n && column < rule->n_columns && !is(rule->column[column], rest))
        column++;
    if (rest.n && column == rule->n_columns) {
        fail(w, "there is no column", tag);
        return;
    }
    size_t before = w->out.length;
    expand(w, row->column[column], depth + 1);
    if (isupper((unsigned char)tag.text[0]) && w->out.length > before)
        w->out.text[before] = (char)toupper((unsigned char)w->out.text[before]);
}

/* The text up to the bracket that closes the one before it. */
static Span inside(Writer *w, Span text)
{
    int open = 1;
    for (size_t i = 0; i < text.n; i++) {
        open += (text.text[i] == '[') - (text.text[i] == ']');
        if (open == 0)
            return (Span){text.text, i};
    }
    fail(w, "no ] closes", text);
    return (Span){text.text, text.n};
}

/* One of the pieces that "/" separates, at the outer level. */
static Span choose(Writer *w, Span text)
{
    size_t n = 1, begin = 0;
    int open = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t wanted = pass ? draw(w, n) : 0, at = 0;
        for (size_t i = 0; i <= text.n; i++) {
            char c = i < text.n ? text.text[i] : '/';
            open += (c == '[') - (c == ']');
            if (c != '/' || open)
                continue;
            if (pass && at++ == wanted)
                return (Span){text.text + begin, i - begin};
            begin = i + 1;
            n += !pass && i < text.n;
        }
        begin = 0;
    }
    return (Span){text.text, 0};
}

static void expand(Writer *w, Span text, int depth)
{
    for (size_t i = 0; i < text.n && !w->code;) {
        Span rest = {text.text + i + 1, text.n - i - 1};
        char c = text.text[i];
        if (c == '<') {
            size_t before = rest.n;
            Span tag = cut(&rest, '>');
            if (memchr(tag.text, '=', tag.n))
                bind(w, tag);
            else
                insert(w, tag, depth);
            i += 1 + before - rest.n;
        } else if (c == '[') {
            Span all = inside(w, rest);
            expand(w, choose(w, all), depth);
            i += all.n + 2;
        } else {
            strbuf_putc(&w->out, c);
            i++;
        }
    }
}

static bool is_letter(char c)
{
    return isalpha((unsigned char)c) || c == '\'';
}

/* Appends the story to `to`: single spaces, none in front of a line or a mark, paragraphs, "an". */
static void tidy(const char *text, StrBuf *to)
{
    size_t begin = to->length;
    bool paragraph = true;
    for (size_t i = 0; text[i]; i++) {
        char c = text[i], last = to->length > begin ? to->text[to->length - 1] : '\n';
        if (c == '~') {
            while (to->length > begin && isspace((unsigned char)to->text[to->length - 1]))
                to->text[--to->length] = '\0';
            strbuf_puts(to, "\n\n");
            paragraph = true;
            continue;
        }
        if (c == ' ' && (paragraph || last == ' '))
            continue;
        paragraph = false;
        if (last == ' ' && strchr(".,!?", c))
            to->text[--to->length] = '\0';
        strbuf_putc(to, c);
        bool article = (c == 'a' || c == 'A') && !is_letter(last) && text[i + 1] == ' ';
        size_t next = i + 1 + strspn(text + i + 1, " ");
        if (article && text[next] && strchr("aeiouAEIOU", text[next]))
            strbuf_putc(to, 'n');
    }
    while (to->length > begin && isspace((unsigned char)to->text[to->length - 1]))
        to->text[--to->length] = '\0';
}

static void write_story(Writer *w, StrBuf *to)
{
    static const char first[] = "story";
    w->n_names = 0;
    w->draws = 0;
    strbuf_clear(&w->out);
    insert(w, (Span){first, sizeof first - 1}, 0);
    if (w->out.text)
        tidy(w->out.text, to);
}

/* ---- the program ---- */

typedef struct Options {
    const char *grammar;
    double megabytes;
    long stories; /* 0: as many as fill the megabytes */
    uint64_t seed;
} Options;

static bool parse(Options *options, int argc, char **argv)
{
    *options = (Options){.megabytes = 4, .seed = 1};
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        bool takes = argv[i][0] == '-' && i + 1 < argc;
        if (takes && strcmp(argv[i], "--seed") == 0)
            options->seed = strtoull(argv[++i], &end, 10);
        else if (takes && strcmp(argv[i], "--megabytes") == 0)
            options->megabytes = strtod(argv[++i], &end);
        else if (takes && strcmp(argv[i], "--stories") == 0)
            options->stories = strtol(argv[++i], &end, 10);
        else if (argv[i][0] != '-' && !options->grammar)
            options->grammar = argv[i];
        else
            return false;
        if (end && (*end || end == argv[i]))
            return false;
    }
    return options->grammar && options->megabytes > 0 && options->megabytes < 1e6 &&
           options->stories >= 0;
}

static int run(Writer *w, const Options *options)
{
    StrBuf text = {0};
    double written = 0;
    w->key = rng_key(options->seed, "stories");
    for (; !w->code; w->story++) {
        bool enough = options->stories ? (long)w->story == options->stories
                                       : written >= options->megabytes * 1e6;
        if (enough)
            break;
        strbuf_clear(&text);
        write_story(w, &text);
        strbuf_puts(&text, "\n<|endoftext|>\n");
        if (!w->code && (text.failed || w->out.failed))
            w->code = err_set(w->err, CVN_EMEM, "no memory for a story");
        if (!w->code && fwrite(text.text, 1, text.length, stdout) != text.length)
            w->code = err_set(w->err, CVN_EIO, "standard output cannot be written");
        written += (double)text.length;
    }
    strbuf_free(&text);
    return w->code;
}

int main(int argc, char **argv)
{
    static Writer writer;
    cvn_err err = {0};
    Options options;
    FileMap map = {0};
    if (!parse(&options, argc, argv)) {
        fprintf(stderr, "Usage: stories GRAMMAR [--seed N] [--megabytes X | --stories N]\n");
        return 2;
    }
    writer.err = &err;
    writer.code = file_map(&map, options.grammar, &err);
    char *text = malloc(map.size + 1);
    if (!writer.code && text) {
        memcpy(text, map.data ? (const char *)map.data : "", map.size);
        read_grammar(&writer, text, map.size);
        run(&writer, &options);
    }
    if (!writer.code && fflush(stdout) != 0)
        writer.code = err_set(&err, CVN_EIO, "standard output cannot be written");
    if (writer.code)
        fprintf(stderr, "stories: %s\n", err.message);
    for (size_t i = 0; i < writer.n_rules; i++)
        free(writer.rule[i].row);
    strbuf_free(&writer.out);
    free(text);
    file_unmap(&map);
    return writer.code || !text ? 1 : 0;
}
