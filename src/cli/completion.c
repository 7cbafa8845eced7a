#include "cli/help.h"

#include <string.h>

static void add_choices(StrBuf *out, const Option *option)
{
    const char *name;
    for (size_t i = 0; (name = option_choice(option, i)); i++)
        strbuf_printf(out, "%s%s", i ? " " : "", name);
}

/* bash: what may follow an option is decided by "COMMAND OPTION", what may follow a command by its
 * name. */
static void bash_values(StrBuf *out, const Command *command)
{
    for (int i = 0; option_shown(command, i); i++) {
        const Option *option = command->options[i];
        if (option->kind == ARG_FLAG)
            continue;
        strbuf_printf(out, "    '%s --%s'", command->name, option->name);
        if (option->letter)
            strbuf_printf(out, "|'%s -%c'", command->name, option->letter);
        if (option_choice(option, 0)) {
            strbuf_puts(out, ") COMPREPLY=($(compgen -W '");
            add_choices(out, option);
            strbuf_printf(out, "' %s-- \"$word\")); return ;;\n",
                          option->kind == ARG_CHOICE ? "" : "-f ");
        } else if (option->kind == ARG_INPUT || option->kind == ARG_OUTPUT)
            strbuf_puts(out, ") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
        else
            strbuf_puts(out, ") return ;;\n");
    }
}

static void bash_script(StrBuf *out)
{
    strbuf_puts(out, "# bash completion of caravan; made by caravan _completion bash\n"
                     "_caravan() {\n"
                     "    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}\n"
                     "    local last=${COMP_WORDS[COMP_CWORD-1]}\n"
                     "    [[ $word == = ]] && word=\n" /* --option=VALUE comes as three words */
                     "    [[ $last == = ]] && last=${COMP_WORDS[COMP_CWORD-2]}\n"
                     "    COMPREPLY=()\n"
                     "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
                     "        COMPREPLY=($(compgen -W '--help --version help");
    for (int i = 0; commands[i]; i++)
        strbuf_printf(out, " %s", commands[i]->name);
    strbuf_puts(out, "' -- \"$word\"))\n        return\n    fi\n"
                     "    case \"$command $last\" in\n");
    for (int i = 0; commands[i]; i++)
        bash_values(out, commands[i]);
    strbuf_puts(out, "    esac\n    [[ $word == -* ]] || return\n    case \"$command\" in\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(out, "    %s) COMPREPLY=($(compgen -W '--help", commands[i]->name);
        for (int k = 0; option_shown(commands[i], k); k++)
            strbuf_printf(out, " --%s", commands[i]->options[k]->name);
        strbuf_puts(out, "' -- \"$word\")) ;;\n");
    }
    strbuf_puts(out, "    esac\n}\ncomplete -o default -F _caravan caravan\n");
}

/* Adds text inside of single quotes and of _arguments' brackets. */
static void add_zsh(StrBuf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            strbuf_puts(out, "'\\''");
        else {
            if (strchr("[]:\\", *text))
                strbuf_putc(out, '\\');
            strbuf_putc(out, *text);
        }
    }
}

static void zsh_option(StrBuf *out, const Option *option)
{
    strbuf_puts(out, " \\\n            ");
    if (option->letter)
        strbuf_printf(out, "'(-%c --%s)'{-%c,--%s}'[", option->letter, option->name, option->letter,
                      option->name);
    else
        strbuf_printf(out, "'--%s[", option->name);
    add_zsh(out, option->help);
    strbuf_putc(out, ']');
    if (option->kind != ARG_FLAG) {
        strbuf_puts(out, option->optional ? "::" : ":");
        add_zsh(out, option->value);
        strbuf_putc(out, ':');
        if (option_choice(option, 0)) {
            strbuf_putc(out, '(');
            add_choices(out, option);
            strbuf_putc(out, ')');
        } else if (option->kind == ARG_INPUT || option->kind == ARG_OUTPUT)
            strbuf_puts(out, "_files");
    }
    strbuf_putc(out, '\'');
}

static void zsh_script(StrBuf *out)
{
    strbuf_puts(out,
                "#compdef caravan\n# zsh completion of caravan; made by caravan _completion zsh\n"
                "_caravan() {\n"
                "    local -a names\n    names=(\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(out, "        '%s:", commands[i]->name);
        add_zsh(out, commands[i]->about);
        strbuf_puts(out, "'\n");
    }
    strbuf_puts(out, "    )\n    if (( CURRENT == 2 )); then\n"
                     "        _describe 'command' names\n        return\n    fi\n"
                     "    local command=$words[2]\n    shift words\n    (( CURRENT-- ))\n"
                     "    case $command in\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(out, "        %s) _arguments '--help[one page of help]'", commands[i]->name);
        for (int k = 0; option_shown(commands[i], k); k++)
            zsh_option(out, commands[i]->options[k]);
        if (commands[i]->max_operands)
            strbuf_puts(out, " \\\n            '*:file:_files'");
        strbuf_puts(out, " ;;\n");
    }
    strbuf_puts(out, "    esac\n}\n_caravan \"$@\"\n");
}

/* Adds text in single quotes. */
static void add_fish(StrBuf *out, const char *text)
{
    strbuf_putc(out, '\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            strbuf_putc(out, '\\');
        strbuf_putc(out, *text);
    }
    strbuf_putc(out, '\'');
}

static void fish_option(StrBuf *out, const char *command, const Option *option)
{
    strbuf_printf(out, "complete -c caravan -n '__fish_seen_subcommand_from %s' -l %s", command,
                  option->name);
    if (option->letter)
        strbuf_printf(out, " -s %c", option->letter);
    if (option_choice(option, 0)) {
        strbuf_puts(out, option->kind == ARG_CHOICE ? " -x -a '" : " -r -F -a '");
        add_choices(out, option);
        strbuf_putc(out, '\'');
    } else if (option->kind == ARG_INPUT || option->kind == ARG_OUTPUT) {
        strbuf_puts(out, " -r -F");
    } else if (option->kind != ARG_FLAG) {
        strbuf_puts(out, " -x");
    }
    strbuf_puts(out, " -d ");
    add_fish(out, option->help);
    strbuf_putc(out, '\n');
}

static void fish_script(StrBuf *out)
{
    strbuf_puts(out, "# fish completion of caravan; made by caravan _completion fish\n"
                     "complete -c caravan -n __fish_use_subcommand -f\n"
                     "complete -c caravan -l help -s h -d 'one page of help'\n"
                     "complete -c caravan -n __fish_use_subcommand -l version\n");
    for (int i = 0; commands[i]; i++) {
        strbuf_printf(out, "complete -c caravan -n __fish_use_subcommand -f -a %s -d ",
                      commands[i]->name);
        add_fish(out, commands[i]->about);
        strbuf_putc(out, '\n');
    }
    for (int i = 0; commands[i]; i++) {
        if (!commands[i]->max_operands)
            strbuf_printf(out, "complete -c caravan -n '__fish_seen_subcommand_from %s' -f\n",
                          commands[i]->name);
        for (int k = 0; option_shown(commands[i], k); k++)
            fish_option(out, commands[i]->name, commands[i]->options[k]);
    }
}

bool completion_script(StrBuf *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        bash_script(out);
    else if (strcmp(shell, "zsh") == 0)
        zsh_script(out);
    else if (strcmp(shell, "fish") == 0)
        fish_script(out);
    else
        return false;
    return true;
}
