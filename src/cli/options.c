#include "cli/options.h"

#include "base/bytes.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/suggest.h"
#include "cli/ranks.h"
#include "io/model_names.h"
#include "model/presets.h"
#include "train/data/source.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Where a value was given, for messages: "--top-p", "-t" or "CARAVAN_TOP_P". */
typedef struct OptionSource {
    char name[64];
    bool on_command_line;
} OptionSource;

void option_variable(const Option *option, char *text, size_t size)
{
    int n = snprintf(text, size, "CARAVAN_%s", option->name);
    for (int i = 8; i < n && (size_t)i < size; i++)
        text[i] = text[i] == '-' ? '_' : (char)toupper((unsigned char)text[i]);
}

const char *option_choice(const Option *option, size_t i)
{
    return option->choices ? option->choices[i] : option->choice ? option->choice(i) : NULL;
}

static const char *choice_at(const void *option, size_t i)
{
    return option_choice(option, i);
}

static const char *option_at(const void *options, size_t i)
{
    const Option *const *list = options;
    return list[i] ? list[i]->name : NULL;
}

/* Of numbers: what they may be. */
typedef struct Range {
    double low, high;
} Range;

static Range range_of(const Option *option)
{
    Range r = {option->low, option->high};
    if (r.low == 0 && r.high == 0)
        r.high = INFINITY;
    return r;
}

static bool in_range(const Option *option, double value)
{
    Range r = range_of(option);
    return value >= r.low && value <= r.high;
}

static int range_error(const Option *option, const OptionSource *source, const char *text,
                       cvn_err *err)
{
    const char *what = option->kind == ARG_INT    ? "a whole number"
                       : option->kind == ARG_SIZE ? "a size in bytes such as 4096, 64K or 2.5G"
                                                  : "a number";
    Range r = range_of(option);
    if (r.high >= 0x1p62)
        return err_set(err, CVN_EINVAL, "%s is \"%s\"; give %s, 0 or more and below 2^63",
                       source->name, text, what);
    if (option->kind == ARG_SIZE)
        return err_set(err, CVN_EINVAL, "%s is \"%s\"; give %s from %.0f to %s", source->name, text,
                       what, r.low, bytes_text(r.high).text);
    return err_set(err, CVN_EINVAL, "%s is \"%s\"; give %s from %.10g to %.10g", source->name, text,
                   what, r.low, r.high);
}

/* An integer, a real number or a size. */
static int read_number(const Option *option, const OptionSource *source, Value *value, cvn_err *err)
{
    static const char units[] = "KMGTP";
    char *end;
    errno = 0;
    long long whole = option->kind == ARG_INT ? strtoll(value->text, &end, 10) : 0;
    double number = option->kind == ARG_INT ? (double)whole : strtod(value->text, &end);
    bool ok = end != value->text && isfinite(number) && !(option->kind == ARG_INT && errno);
    if (option->kind == ARG_SIZE) {
        const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
        if (unit) {
            number = ldexp(number, 10 * (int)(unit - units + 1));
            end += end[1] == 'i' ? 2 : 1;
        }
        end += *end == 'B';
        ok = ok && number < 0x1p62;
        whole = ok ? (int64_t)number : 0;
    }
    if (!ok || *end || !in_range(option, number))
        return range_error(option, source, value->text, err);
    value->integer = whole;
    value->real = number;
    return CVN_OK;
}

static int read_choice(const Option *option, const OptionSource *source, Value *value, cvn_err *err)
{
    const char *name, *text = option->alias ? option->alias(value->text) : value->text;
    char list[900] = ""; /* a sentence has room for 1,023 */
    size_t n = 0, few = 8, i = 0;
    for (; (name = option_choice(option, i)); i++) {
        if (strcasecmp(name, text) == 0) {
            value->integer = (int64_t)i;
            value->text = name;
            return CVN_OK;
        }
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", name);
    }
    if (option->or_shape && preset_is_own(value->text))
        return CVN_OK;
    if (n >= sizeof list) { /* behind the last name that leaves room */
        list[sizeof list - sizeof ", …"] = 0;
        memcpy(strrchr(list, ','), ", …", sizeof ", …");
    }
    const char *near = suggest(value->text, choice_at, option);
    if (near && i > few)
        return err_set(err, CVN_EINVAL, "%s is \"%s\"; did you mean %s?", source->name, value->text,
                       near);
    if (near)
        return err_set(err, CVN_EINVAL, "%s is \"%s\"; did you mean %s? There are %s", source->name,
                       value->text, near, list);
    return err_set(err, CVN_EINVAL, "%s is \"%s\"; give one of %s", source->name, value->text,
                   list);
}

static int read_tokens(const Option *option, const OptionSource *source, Value *value, cvn_err *err)
{
    const char *at = value->text;
    size_t most = 1;
    for (const char *p = at; *p; p++)
        most += *p == ',';
    free(value->ids);
    value->n_ids = 0;
    value->ids = malloc(most * sizeof *value->ids);
    if (!value->ids)
        return err_set(err, CVN_EMEM, "no memory for %zu token ids", most);
    for (;;) {
        char *end;
        errno = 0;
        long id = strtol(at, &end, 10);
        while (*end == ' ')
            end++;
        if (end == at || errno || id > INT32_MAX || !in_range(option, (double)id) ||
            (*end && *end != ','))
            return err_set(err, CVN_EINVAL,
                           "%s is \"%.60s\", and \"%.*s\" is invalid; give comma-separated "
                           "integers of at least %.0f, such as 1,64",
                           source->name, value->text, (int)strcspn(at, ",") % 60, at, option->low);
        value->ids[value->n_ids++] = (int32_t)id;
        if (!*end)
            return CVN_OK;
        at = end + 1;
    }
}

static int read_flag(const OptionSource *source, Value *value, cvn_err *err)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(value->text, words[i]) == 0) {
            value->flag = i % 2;
            return CVN_OK;
        }
    return err_set(err, CVN_EINVAL, "%s is \"%s\"; give 1 or 0", source->name, value->text);
}

static int set_value(const Option *option, const OptionSource *source, Value *value,
                     const char *text, cvn_err *err)
{
    /* Of settings the last one holds, which lets a script's be changed; a text or a file would be lost without a word. */
    const bool setting = option->kind != ARG_TEXT && option->kind != ARG_TOKENS &&
                         option->kind != ARG_INPUT && option->kind != ARG_OUTPUT;
    if (source->on_command_line && value->on_command_line && !setting && !option->repeats &&
        strcmp(value->text, text) != 0)
        return err_set(err, CVN_EINVAL, "%s is given twice, \"%.60s\" and \"%.60s\"; give it once",
                       source->name, value->text, text);
    value->given = true;
    value->on_command_line = source->on_command_line;
    value->text = text;
    switch (option->kind) {
    case ARG_FLAG:
        return read_flag(source, value, err);
    case ARG_INT:
    case ARG_REAL:
    case ARG_SIZE:
        return read_number(option, source, value, err);
    case ARG_CHOICE:
        return read_choice(option, source, value, err);
    case ARG_TOKENS:
        return read_tokens(option, source, value, err);
    case ARG_TEXT:
        if (option->check && *text)
            TRY(option->check(text, err));
        break;
    case ARG_INPUT:
    case ARG_OUTPUT:
        if (!*text)
            return err_set(err, CVN_EINVAL, "%s is empty; give a path", source->name);
        break;
    }
    if (!option->repeats)
        return CVN_OK;
    const char **more = heap_more(value->texts, value->n_texts, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for the options");
    value->texts = more;
    value->texts[value->n_texts++] = value->text;
    return CVN_OK;
}

/* Whether a name of n bytes is one of a list of names with blanks between them, which may be NULL. */
static bool is_listed(const char *list, const char *name, size_t n)
{
    for (size_t length; list && (length = strcspn(list, " "));
         list += length + (list[length] == ' '))
        if (length == n && memcmp(list, name, n) == 0)
            return true;
    return false;
}

int option_find(const Command *command, const char *name, size_t n)
{
    for (int i = 0; command->options[i]; i++)
        if (is_listed(command->options[i]->name, name, n))
            return i;
    for (int i = 0; command->options[i]; i++)
        if (is_listed(command->options[i]->aliases, name, n))
            return i;
    return -1;
}

const Option *option_shown(const Command *command, int i)
{
    const Option *option = command->options[i];
    return option && !option->hidden ? option : NULL;
}

/* Reads the option at argv[*i] and its value; *i moves past both. */
static int parse_option(Args *args, const Command *command, int argc, char **argv, int *i,
                        cvn_err *err)
{
    const char *typed = argv[(*i)++], *text = NULL;
    OptionSource source = {.on_command_line = true};
    int k;
    if (typed[1] == '-') {
        const char *equals = strchr(typed, '=');
        size_t n = equals ? (size_t)(equals - typed) - 2 : strlen(typed) - 2;
        k = option_find(command, typed + 2, n);
        if (k < 0 && n == 4 && memcmp(typed + 2, "help", 4) == 0)
            return err_set(err, CVN_EINVAL, "--help takes no value");
        if (k < 0) {
            char word[64];
            snprintf(word, sizeof word, "%.*s", (int)n, typed + 2);
            const char *near = suggest(word, option_at, command->options);
            if (near)
                return err_set(err, CVN_EINVAL, "unknown option --%s; did you mean --%s?", word,
                               near);
            return err_set(err, CVN_EINVAL, "unknown option --%s", word);
        }
        text = equals ? equals + 1 : NULL;
        snprintf(source.name, sizeof source.name, "--%s", command->options[k]->name);
    } else {
        k = 0;
        while (command->options[k] && command->options[k]->letter != typed[1])
            k++;
        if (!command->options[k])
            return err_set(err, CVN_EINVAL, "unknown option -%c", typed[1]);
        text = typed[2] ? typed + 2 : NULL;
        snprintf(source.name, sizeof source.name, "-%c", typed[1]);
    }
    const Option *option = command->options[k];
    if (option->kind == ARG_FLAG) {
        if (text)
            return err_set(err, CVN_EINVAL, "%s takes no value", source.name);
        text = "1";
    } else if (!text) {
        const bool bare = *i == argc || (argv[*i][0] == '-' && argv[*i][1]);
        if (option->optional && bare) {
            args->value[k] = (Value){.given = true, .on_command_line = true, .text = ""};
            return CVN_OK;
        }
        if (*i == argc)
            return err_set(err, CVN_EINVAL, "%s needs a value: %s %s", source.name, source.name,
                           option->value);
        text = argv[(*i)++];
    }
    return set_value(option, &source, &args->value[k], text, err);
}

int option_operand(const Command *command)
{
    int i = option_find(command, "model", 5);
    bool has = i >= 0 && strcmp(command->options[i]->name, "model") == 0; /* no other's alias */
    return has && command->min_operands == 0 ? i : -1;
}

/* What was typed without a dash, as the model that it is. */
static int take_model(Args *args, const Command *command, cvn_err *err)
{
    int model = option_operand(command), n = 0;
    const OptionSource source = {.name = "the model", .on_command_line = true};
    const Option *option = model < 0 ? NULL : command->options[model];
    bool wanted = option && (option->repeats || !args->value[model].on_command_line);
    for (int i = 0; wanted && command->options[i]; i++)
        wanted = i == model || !option->group || command->options[i]->group != option->group ||
                 !args->value[i].on_command_line;
    while (wanted && n < args->n_operands && (n == 0 || option->repeats))
        TRY(set_value(option, &source, &args->value[model], args->operand[n++], err));
    for (int i = n; i < args->n_operands; i++)
        args->operand[i - n] = args->operand[i];
    args->n_operands -= n;
    return CVN_OK;
}

int option_read(const Option *option, const char *name, const char *text, Value *value,
                cvn_err *err)
{
    OptionSource source = {.on_command_line = true};
    snprintf(source.name, sizeof source.name, "%s", name);
    *value = (Value){0};
    return set_value(option, &source, value, text, err);
}

/* Fills in what the command line left open. */
static int apply_environment(Args *args, const Command *command, cvn_err *err)
{
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        OptionSource source = {0};
        option_variable(option, source.name, sizeof source.name);
        const char *text = getenv(source.name);
        bool typed = args->value[i].given; /* it, or another of its group */
        for (int k = 0; option->group && command->options[k]; k++)
            typed |= command->options[k]->group == option->group && args->value[k].on_command_line;
        if (!text || !*text || typed)
            continue;
        TRY(set_value(option, &source, &args->value[i], text, err));
    }
    return CVN_OK;
}

static int apply_fallbacks(Args *args, const Command *command, cvn_err *err)
{
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        Value *value = &args->value[i];
        if (value->given || !option->fallback)
            continue;
        OptionSource source = {0};
        snprintf(source.name, sizeof source.name, "--%s", option->name);
        TRY(set_value(option, &source, value, option->fallback, err));
        value->given = false;
    }
    return CVN_OK;
}

/* "--prompt, --tokens or --file" of a group, into text. */
static void group_names(const Command *command, int group, char *text, size_t size)
{
    size_t n = 0;
    int last = 0;
    for (int i = 0; command->options[i]; i++)
        if (command->options[i]->group == group)
            last = i;
    for (int i = 0; command->options[i] && n < size; i++)
        if (command->options[i]->group == group)
            n += (size_t)snprintf(text + n, size - n, "%s--%s",
                                  n == 0      ? ""
                                  : i == last ? " or "
                                              : ", ",
                                  command->options[i]->name);
}

static int check_groups(const Args *args, const Command *command, cvn_err *err)
{
    char names[256];
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        int n = args->value[i].given;
        for (int j = 0; option->group && command->options[j]; j++)
            n += j != i && command->options[j]->group == option->group && args->value[j].given;
        if (n > 1) {
            group_names(command, option->group, names, sizeof names);
            return err_set(err, CVN_EINVAL, "give only one of %s", names);
        }
        if (n == 0 && option->required && option->group) {
            group_names(command, option->group, names, sizeof names);
            return err_set(err, CVN_EINVAL, "%s is missing", names);
        }
        if (n == 0 && option->required)
            return err_set(err, CVN_EINVAL, "--%s %s is missing", option->name, option->value);
    }
    return CVN_OK;
}

/* An option that says more of another one is a mistake without it, where somebody typed it. */
static int check_refused(const Args *args, const Command *command, cvn_err *err)
{
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        const char *at = option->refuses;
        for (size_t n; at && args->value[i].on_command_line && (n = strcspn(at, " "));
             at += n + (at[n] == ' ')) {
            int other = option_find(command, at, n);
            if (other >= 0 && args->value[other].on_command_line)
                return err_set(err, CVN_EINVAL, "--%s and --%s exclude each other; leave one out",
                               option->name, command->options[other]->name);
        }
    }
    return CVN_OK;
}

static int check_needs(const Args *args, const Command *command, cvn_err *err)
{
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        if (!option->needs || !args->value[i].on_command_line)
            continue;
        int other = option_find(command, option->needs, strlen(option->needs));
        if (other >= 0 && !args->value[other].given)
            return err_set(err, CVN_EINVAL, "--%s has no effect without --%s; give both or neither",
                           option->name, option->needs);
    }
    return CVN_OK;
}

static int check_operands(const Args *args, const Command *command, cvn_err *err)
{
    if (args->n_operands > command->max_operands) {
        const char *extra = args->operand[command->max_operands];
        if (option_operand(command) >= 0 && command->max_operands == 0)
            return err_set(err, CVN_EINVAL,
                           "unexpected argument \"%s\"; %s takes a model and options; quote text "
                           "that contains spaces",
                           extra, command->name);
        if (command->max_operands == 0)
            return err_set(err, CVN_EINVAL, "unexpected argument \"%s\"; %s takes only options",
                           extra, command->name);
        return err_set(err, CVN_EINVAL, "unexpected argument \"%s\"; %s takes %s%s", extra,
                       command->name, command->max_operands > 1 ? "" : "one ", command->operands);
    }
    for (int i = 0; i < args->n_operands; i++)
        if (!*args->operand[i])
            return err_set(err, CVN_EINVAL, "an argument is empty; %s takes %s", command->name,
                           command->operands);
    if (args->n_operands && args->n_operands < command->min_operands)
        return err_set(err, CVN_EINVAL, "%s takes %s, and there is only \"%s\"", command->name,
                       command->operands, args->operand[0]);
    if (args->n_operands < command->min_operands)
        return err_set(err, CVN_EINVAL, "%s %s missing", command->operands,
                       command->min_operands > 1 ? "are" : "is");
    return CVN_OK;
}

const char *option_named(const char *text, size_t *name)
{
    size_t n = strcspn(text, "=");
    bool named = text[n] && n && !file_exists(text) && text[0] != '/' && text[0] != '.';
    *name = named ? n : 0;
    return named ? text + n + 1 : text;
}

/* A path, or, where it is the name of a model, that model's, which the Args own. */
static const char *path_of_model(Args *args, const char *path)
{
    FilePath found;
    if (args->n_models == CLI_MAX_MODELS || file_exists(path) || !model_names_find(path, &found))
        return path;
    char *copy = strdup(found.text);
    if (copy)
        args->model[args->n_models++] = copy;
    return copy ? copy : path;
}

static void find_models(Args *args, const Command *command)
{
    if (command->model_first && args->n_operands)
        args->operand[0] = path_of_model(args, args->operand[0]);
    for (int i = 0; command->options[i]; i++) {
        Value *value = &args->value[i];
        if (!command->options[i]->model || !value->given)
            continue;
        if (!value->n_texts)
            value->text = path_of_model(args, value->text);
        for (size_t k = 0; k < value->n_texts; k++)
            value->texts[k] = path_of_model(args, value->texts[k]);
    }
}

static int check_input(const Option *option, const Value *value, const char *path, cvn_err *err)
{
    char name[64];
    SCOPED(strbuf_free) StrBuf near = {0};
    size_t named;
    path = option->named ? option_named(path, &named) : path;
    if (option->optional && !*path)
        return CVN_OK;
    if (strcmp(path, "-") == 0 || file_exists(path) ||
        (option->weighed && file_exists(source_path(path, NULL).text)))
        return CVN_OK;
    if (value->on_command_line)
        snprintf(name, sizeof name, "--%s", option->name);
    else
        option_variable(option, name, sizeof name);
    struct stat info;
    if (lstat(path, &info) == 0)
        return err_set(err, CVN_EIO, "%s: %s is a dangling symbolic link", name, path);
    if (errno != ENOENT)
        return err_set(err, CVN_EIO, "%s: cannot stat %s: %s", name, path, strerror(errno));
    if (option->model && model_names_of_hub(path))
        return err_set(err, CVN_EIO, "%s: there is no local model %s; download it: caravan pull %s",
                       name, path, path);
    if (suggest_path(path, &near) && !near.failed)
        err_set(err, CVN_EIO, "%s: there is no %s; did you mean %s?", name, path, near.text);
    else
        err_set(err, CVN_EIO, "%s: there is no file or folder %s", name, path);
    return CVN_EIO;
}

/* Paths are looked at last: a mistake in the command line is told before a file that is not there. */
static int check_paths(const Args *args, const Command *command, cvn_err *err)
{
    for (int i = 0; command->options[i]; i++) {
        const Option *option = command->options[i];
        const Value *value = &args->value[i];
        cvn_err why = {0};
        /* What is written at the end of something long is tried before; of several processes the first one writes it. */
        if (option->kind == ARG_OUTPUT && option->tried && value->given && ranks_speaks() &&
            file_check_output(value->text, &why) != CVN_OK)
            return err_set(err, CVN_EIO, "--%s: %s", option->name, why.message);
        if (option->kind != ARG_INPUT || !value->given)
            continue;
        if (!option->repeats && check_input(option, value, value->text, err))
            return err->code;
        for (size_t k = 0; k < value->n_texts; k++)
            TRY(check_input(option, value, value->texts[k], err));
    }
    return CVN_OK;
}

int args_parse(Args *args, const Command *command, int argc, char **argv, cvn_err *err)
{
    *args = (Args){.command = command};
    bool options = true;
    for (int i = 0; i < argc;) {
        const char *word = argv[i];
        if (options && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            args->help = true;
            return CVN_OK;
        }
        if (options && strcmp(word, "--") == 0) {
            options = false;
            i++;
        } else if (options && word[0] == '-' && word[1]) {
            TRY(parse_option(args, command, argc, argv, &i, err));
        } else {
            if (args->n_operands == CLI_MAX_OPERANDS)
                return err_set(err, CVN_EINVAL, "more than %d operands", CLI_MAX_OPERANDS);
            args->operand[args->n_operands++] = word;
            i++;
        }
    }
    if (take_model(args, command, err) || apply_environment(args, command, err) ||
        check_operands(args, command, err) || check_groups(args, command, err) ||
        apply_fallbacks(args, command, err) || check_needs(args, command, err) ||
        check_refused(args, command, err))
        return err->code;
    find_models(args, command);
    return check_paths(args, command, err);
}

void args_free(Args *args)
{
    for (int i = 0; i < CLI_MAX_OPTIONS; i++) {
        free(args->value[i].ids);
        free(args->value[i].texts);
    }
    for (int i = 0; i < args->n_models; i++)
        free(args->model[i]);
    *args = (Args){0};
}

const Value *args_value(const Args *args, const Option *option)
{
    static const Value none;
    for (int i = 0; args->command->options[i]; i++)
        if (args->command->options[i] == option)
            return &args->value[i];
    return &none;
}
