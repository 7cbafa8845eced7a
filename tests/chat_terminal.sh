#!/bin/sh
# A person at a terminal, played by tmux: chat_terminal.sh CARAVAN MODEL SCRATCH. Ends with 77 where tmux is
# missing or ends before the program that runs in it, with 1 and the screen where something is not seen in time.
caravan=$1 model=$2 scratch=$3
command -v tmux >/dev/null || { echo "tmux is not installed"; exit 77; }
export LC_ALL=C.UTF-8 TMUX= HOME=$scratch TMUX_TMPDIR=$scratch
tm() { tmux -L chat -f /dev/null "$@"; }

show() { tm capture-pane -p -S -100 -t chat 2>/dev/null; }

# give_up WHAT: it was not seen.
give_up() {
    if ! tm has-session -t chat 2>/dev/null && [ ! -e "$scratch/left" ]; then
        echo "tmux ended by itself, waiting for this: $1"
        exit 77
    fi
    echo "$1"
    show | grep -v "^ *\$" | tail -15
    tm kill-server
    exit 1
}

# until_true WHAT CONDITION…: wait for a condition, which is a command; the program must not have ended before.
until_true() {
    what=$1
    shift
    for _ in $(seq 1200); do
        "$@" && return
        tm has-session -t chat 2>/dev/null || break
        sleep 0.05
    done
    give_up "$what"
}

matches() { show | grep -q -e "$1"; }
matches_times() { [ "$(show | grep -c -e "$2")" -ge "$1" ]; }
matches_last() { show | grep -v '^ *$' | tail -1 | grep -q -e "$1"; }
answers() { stty -a <"$tty" | grep -q '[^-]icanon' && ! matches_last "$1"; }

# see PATTERN: a line of the screen matches; see_times N PATTERN: N lines do; see_last PATTERN: the last that is not
# empty does.
see() { until_true "not seen: $1" matches "$1"; }
see_times() { until_true "not seen $1 times: $2" matches_times "$1" "$2"; }
see_last() { until_true "not the last line: $1" matches_last "$1"; }

# see_answer PATTERN: a turn, whose last line matches, is being answered: the terminal makes a signal of Ctrl-C
# (while a line is edited it does not), and something stands below that line.
see_answer() {
    tty=$(tm display-message -p -t chat '#{pane_tty}')
    until_true "no answer: $1" answers "$1"
}

at_beginning() { [ "$(tm display-message -p -t chat '#{cursor_x}')" = 2 ]; }
type() { tm send-keys -t chat "$@"; }

tm new-session -d -s chat -x 70 -y 20 \
    "'$caravan' chat -m '$model' --ignore-eos --threads 1; echo left with \$? | tee '$scratch/left'; sleep 600" || exit 77
see 'Ctrl-D exits'
see_last '^> *$'

# Typing, and Ctrl-C in mid-answer: the program stays.
type 'First question' Enter
see_answer '^> '
type C-c
see_last '^> *$'
type '/stats' Enter
see 'all  *1 turn: 0 tokens reused'
see_last '^> *$'

# Ctrl-C clears a line; editing in the middle of one.
type 'to be dropped' C-c
see_last '^> *$'
type '/sats' Left Left Left t Enter
see_times 2 'all  *1 turn:'
see_last '^> *$'

# History: up goes back to what was typed.
type Up
see_last '^> /stats'
type Up
see_last '^> First question'
type C-c
see_last '^> *$'

# The window changes under a line.
type 'half a line'
see_last '^> half a line$'
tm resize-window -t chat -x 50 -y 15
see_last '^> half a line$'
type ' and more'
see_last '^> half a line and more$'
type C-c
see_last '^> *$'

# A paste of several lines is one turn, and waits for Enter.
printf '/one\ntwo \303\251\nthree' | tm load-buffer -
tm paste-buffer -p -t chat
see_last '^three$'
type Enter
see_answer '^three$'
type C-c
see_last '^> *$'
type '/stats' Enter
see 'all  *2 turns'
see_last '^> *$'

# What is typed while an answer comes is not in it, and is there when it has ended.
type 'Another question' Enter
see_answer '^> '
stty -a <"$tty" | grep -q -e '-echo ' || give_up "keys are shown while an answer comes"
type C-c
see_last '^> *$'
type '/set max-tokens 4000' Enter
see_last '^> *$'
type 'Third question' Enter
see_answer '^> '
type 'typed ahead'
see_last '^> typed ahead$'
[ "$(show | grep -c 'typed ahead')" = 1 ] || give_up "keys are within an answer"
type C-c
see_last '^> *$'

# Tab completes commands, and names of settings.
type '/re' Tab
see '^regen *reset$'
type 'g' Tab
see_last '^> /regen *$'
type C-c
see_last '^> *$'
type '/se' Tab 'temp' Tab '0.5' Enter
see '^temperature *0.5$'
see_last '^> *$'

# A line of two rows is dropped with the cursor at its beginning: nothing of it stands behind the new prompt.
type '123456789 123456789 123456789 123456789 123456789 last words'
see_last 'last words$'
tm send-keys -t chat Home
until_true "Home does not go to the beginning" at_beginning
type C-c
see_last '^> *$'
type 'after'
see_last '^> after$'
see 'last words$'
type C-c
see_last '^> *$'

type '/reset' Enter
see 'A new conversation'
see_last '^> *$'
type '/stats' Enter
see 'context  *0 of'
see_last '^> *$'
type "/save $scratch/saved.json" Enter
see 'saved.json: 0 messages'
see_last '^> *$'
type C-d
see 'left with 0'
tm kill-server

# Ended by a signal in mid-answer, the terminal is as it was.
rm "$scratch/left"
tm new-session -d -s chat -x 70 -y 20 \
    "'$caravan' chat '$model' --ignore-eos --threads 1; stty -a | tr ' ' '\n' | grep -x '.*echo;*'; echo left | tee '$scratch/left'; sleep 600" || exit 77
see_last '^> *$'
type 'A question' Enter
see_answer '^> '
kill -TERM "$(pgrep -P "$(tm display-message -p -t chat '#{pane_pid}')" caravan)"
see '^left'
see '^echo;*$'
tm kill-server
grep -q '^First.*question' "$scratch/.caravan_history" || { echo "no history was kept"; exit 1; }
