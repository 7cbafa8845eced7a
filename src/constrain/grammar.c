/*
 * From what was read to rules. A rule that leads back to itself stays one; all else becomes terms:
 *
 *     root ::= item ("," item)*          root:  item more       more:  TERM(",") item more  |  (nothing)
 *     item ::= [a-z]+ | "(" root ")"     item:  TERM([a-z]+)  |  TERM("(") root TERM(")")
 */
#include "constrain/grammar.h"

#include "constrain/notation.h"

#include <stdlib.h>
#include <string.h>

/* Of NamedRule.state. */
enum { NOT_LOOKED_AT, WITHIN, REGULAR, RECURSIVE };

/* A rule that is being made. */
typedef struct Made {
    uint32_t *at; /* [n] */
    uint32_t n;
    bool lives;     /* a text comes of it */
    bool empty;     /* the empty text, too */
    uint8_t search; /* of left recursion: 0 not looked at, 1 within, 2 done */
} Made;

typedef struct Maker {
    Solver *e;
    Notation *of;
    uint32_t *number; /* [of->n_rules] of Made + 1, 0: none yet */
    uint32_t *symbol;
    uint32_t n_symbols;
    Made *made;
    uint32_t n_made;
    uint32_t *todo; /* [n_todo] named rules that have a number and no alternatives yet */
    uint32_t n_todo;
    int depth;
} Maker;

/* The symbols of one alternative while it is made. */
typedef struct Line {
    uint32_t *symbol;
    uint32_t n;
} Line;

static bool is_regular(Maker *m, const GrammarPart *part);

static bool rule_is_regular(Maker *m, uint32_t id)
{
    NamedRule *rule = &m->of->rule[id];
    if (rule->state == NOT_LOOKED_AT) {
        rule->state = WITHIN;
        bool regular = ++m->depth < FORMULA_DEPTH && is_regular(m, rule->body);
        m->depth--;
        rule->state = regular ? REGULAR : RECURSIVE;
    }
    return rule->state == REGULAR;
}

static bool is_regular(Maker *m, const GrammarPart *part)
{
    if (part->kind == PART_RULE)
        return rule_is_regular(m, part->rule);
    for (uint32_t i = 0; i < part->n; i++)
        if (!is_regular(m, part->part[i]))
            return false;
    return true;
}

/* Of a part that is regular. */
static Term fold(Maker *m, const GrammarPart *part)
{
    TermTable *t = &m->e->terms;
    Term term = part->kind == PART_ALL ? TERM_EMPTY : TERM_NONE;
    if (!solver_work(m->e, 1))
        return TERM_NONE;
    if (part->kind == PART_TERM)
        return part->term;
    if (part->kind == PART_RULE) {
        NamedRule *rule = &m->of->rule[part->rule];
        if (rule->body) {
            const GrammarPart *body = rule->body;
            rule->body = NULL;
            rule->term = fold(m, body);
        }
        return rule->term;
    }
    if (part->kind == PART_REPEAT)
        return term_rep(t, fold(m, part->part[0]), part->min, part->max);
    Term *list = arena_array(&m->e->arena, part->n + 1, sizeof *list);
    for (uint32_t i = 0; i < part->n; i++)
        list[i] = fold(m, part->part[i]);
    for (uint32_t i = part->n; i-- > 0 && part->kind == PART_ALL;)
        term = term_cat(t, list[i], term);
    return part->kind == PART_ALL ? term : term_or(t, list, part->n);
}

static void add_symbol(Maker *m, Line *line, uint32_t kind, uint32_t what)
{
    uint32_t *last = line->n ? &line->symbol[line->n - 1] : NULL;
    if (kind == SYMBOL_TERM && what == TERM_EMPTY)
        return;
    if (kind == SYMBOL_TERM && last && (*last & 3) == SYMBOL_TERM) {
        what = term_cat(&m->e->terms, *last >> SYMBOL_BITS, what);
        line->n--;
    }
    line->symbol = arena_more(&m->e->arena, line->symbol, line->n, sizeof *line->symbol);
    line->symbol[line->n++] = what << SYMBOL_BITS | kind;
}

static uint32_t new_rule(Maker *m)
{
    if (m->n_made >= GRAMMAR_RULES) {
        solver_fail(m->e, "the grammar expands to more than %d rules", GRAMMAR_RULES);
        return 0;
    }
    m->made = arena_more(&m->e->arena, m->made, m->n_made, sizeof *m->made);
    m->made[m->n_made] = (Made){0};
    return m->n_made++;
}

static void add_line(Maker *m, uint32_t rule, const Line *line)
{
    if (m->n_symbols + line->n >= GRAMMAR_SYMBOLS) {
        solver_fail(m->e, "the grammar expands to more than %d symbols", GRAMMAR_SYMBOLS);
        return;
    }
    Made *made = &m->made[rule];
    made->at = arena_more(&m->e->arena, made->at, made->n, sizeof *made->at);
    made->at[made->n++] = m->n_symbols;
    for (uint32_t i = 0; i <= line->n; i++) {
        m->symbol = arena_more(&m->e->arena, m->symbol, m->n_symbols, sizeof *m->symbol);
        m->symbol[m->n_symbols++] = i < line->n ? line->symbol[i] : SYMBOL_END;
    }
}

static uint32_t number_of(Maker *m, uint32_t named)
{
    if (!m->number[named]) {
        m->number[named] = 1 + new_rule(m);
        m->todo = arena_more(&m->e->arena, m->todo, m->n_todo, sizeof *m->todo);
        m->todo[m->n_todo++] = named;
    }
    return m->number[named] - 1;
}

static void add_part(Maker *m, Line *line, const GrammarPart *part);

/* A rule with the alternatives of a part. */
static uint32_t rule_of(Maker *m, const GrammarPart *part)
{
    uint32_t rule = new_rule(m);
    bool several = part->kind == PART_ONE;
    for (uint32_t i = 0; i < (several ? part->n : 1) && solver_work(m->e, 1); i++) {
        Line line = {0};
        add_part(m, &line, several ? part->part[i] : part);
        add_line(m, rule, &line);
    }
    return rule;
}

/* one x, or nothing, and then `rest` times more: the rule of x{0,n} */
static void add_repeat(Maker *m, Line *line, const GrammarPart *part)
{
    uint32_t one = rule_of(m, part->part[0]), min = part->min, max = part->max;
    const Line nothing = {0};
    if (min > GRAMMAR_REPEAT || (max != TERM_MANY && max > GRAMMAR_REPEAT)) {
        solver_fail(m->e, "repeating a recursive rule more than %d times is not supported",
                    GRAMMAR_REPEAT);
        return;
    }
    for (uint32_t i = 0; i < min; i++)
        add_symbol(m, line, SYMBOL_RULE, one);
    if (max == min)
        return;
    uint32_t rest = new_rule(m);
    add_line(m, rest, &nothing);
    if (max == TERM_MANY) {
        Line more = {0};
        add_symbol(m, &more, SYMBOL_RULE, one);
        add_symbol(m, &more, SYMBOL_RULE, rest);
        add_line(m, rest, &more);
    }
    for (uint32_t i = min; max != TERM_MANY && i < max && solver_work(m->e, 1); i++) {
        Line more = {0};
        uint32_t rule = new_rule(m);
        add_symbol(m, &more, SYMBOL_RULE, one);
        add_symbol(m, &more, SYMBOL_RULE, rest);
        add_line(m, rule, &nothing);
        add_line(m, rule, &more);
        rest = rule;
    }
    add_symbol(m, line, SYMBOL_RULE, rest);
}

static void add_part(Maker *m, Line *line, const GrammarPart *part)
{
    if (!solver_work(m->e, 1))
        return;
    if (is_regular(m, part)) {
        add_symbol(m, line, SYMBOL_TERM, fold(m, part));
        return;
    }
    if (part->kind == PART_RULE)
        add_symbol(m, line, SYMBOL_RULE, number_of(m, part->rule));
    else if (part->kind == PART_ONE)
        add_symbol(m, line, SYMBOL_RULE, rule_of(m, part));
    else if (part->kind == PART_REPEAT)
        add_repeat(m, line, part);
    else
        for (uint32_t i = 0; i < part->n; i++)
            add_part(m, line, part->part[i]);
}

/* Where a rule's alternative begins with the rule itself: what follows; else NULL. */
static GrammarPart *behind_itself(Maker *m, uint32_t named, GrammarPart *part)
{
    if (part->kind == PART_RULE && part->rule == named)
        return part_term(m->e, TERM_EMPTY);
    if (part->kind != PART_ALL || part->part[0]->kind != PART_RULE || part->part[0]->rule != named)
        return NULL;
    return part_list(m->e, PART_ALL, part->part + 1, part->n - 1);
}

/* a: a x | y becomes a: y x* */
static const GrammarPart *without_left_recursion(Maker *m, uint32_t named)
{
    GrammarPart *body = m->of->rule[named].body, *alone[] = {body};
    bool several = body->kind == PART_ONE;
    GrammarPart **from = several ? body->part : alone;
    uint32_t n = several ? body->n : 1, first = 0, after = 0;
    GrammarPart **list = arena_array(&m->e->arena, 2 * (size_t)n + 1, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        GrammarPart *rest = behind_itself(m, named, from[i]);
        if (rest)
            list[n + after++] = rest;
        else
            list[first++] = from[i];
    }
    if (!after)
        return body;
    GrammarPart *both[] = {
        part_list(m->e, PART_ONE, list, first),
        part_repeat(m->e, part_list(m->e, PART_ONE, list + n, after), 0, TERM_MANY),
    };
    return part_list(m->e, PART_ALL, both, 2);
}

/* Which rules have a text, and which the empty one. Alternatives without a text go. */
static void find_living(Maker *m)
{
    for (bool again = true; again && solver_work(m->e, m->n_symbols);) {
        again = false;
        for (uint32_t r = 0; r < m->n_made; r++) {
            Made *made = &m->made[r];
            for (uint32_t i = 0; i < made->n && !(made->lives && made->empty); i++) {
                bool lives = true, empty = true;
                for (uint32_t at = made->at[i]; m->symbol[at] != SYMBOL_END; at++) {
                    uint32_t what = m->symbol[at] >> SYMBOL_BITS;
                    bool term = (m->symbol[at] & 3) == SYMBOL_TERM;
                    lives =
                        lives && (term ? term_is_live(&m->e->terms, what, 0) : m->made[what].lives);
                    empty = empty &&
                            (term ? term_is_nullable(&m->e->terms, what) : m->made[what].empty);
                }
                again = again || (lives && !made->lives) || (empty && !made->empty);
                made->lives = made->lives || lives;
                made->empty = made->empty || empty;
            }
        }
    }
    for (uint32_t r = 0; r < m->n_made; r++) {
        Made *made = &m->made[r];
        uint32_t kept = 0;
        for (uint32_t i = 0; i < made->n; i++) {
            bool lives = true;
            for (uint32_t at = made->at[i]; m->symbol[at] != SYMBOL_END; at++) {
                uint32_t what = m->symbol[at] >> SYMBOL_BITS;
                lives = lives &&
                        ((m->symbol[at] & 3) == SYMBOL_TERM ? term_is_live(&m->e->terms, what, 0)
                                                            : m->made[what].lives);
            }
            if (lives)
                made->at[kept++] = made->at[i];
        }
        made->n = kept;
    }
}

/* Whether what a rule begins with leads back to a rule that the search is within, with something behind it. Going round
   with nothing behind adds nothing, and is let be. */
static bool begins_with_itself(Maker *m, uint32_t rule, uint32_t goal, uint8_t *seen, int depth)
{
    const Made *made = &m->made[rule];
    if (depth > FORMULA_DEPTH || !solver_work(m->e, 1)) {
        solver_fail(m->e, "its rules are nested more than %d deep", FORMULA_DEPTH);
        return false;
    }
    for (uint32_t i = 0; i < made->n; i++)
        for (uint32_t at = made->at[i]; m->symbol[at] != SYMBOL_END; at++) {
            uint32_t what = m->symbol[at] >> SYMBOL_BITS;
            bool is_rule = (m->symbol[at] & 3) == SYMBOL_RULE,
                 behind = m->symbol[at + 1] != SYMBOL_END;
            if (is_rule) {
                uint8_t how = behind || seen[rule] > 1 ? 2 : 1; /* 2: something stands behind */
                if (what == goal && how == 2)
                    return true;
                if (seen[what] < how) {
                    seen[what] = how;
                    if (begins_with_itself(m, what, goal, seen, depth + 1))
                        return true;
                }
            }
            if (is_rule ? !m->made[what].empty : !term_is_nullable(&m->e->terms, what))
                break;
        }
    return false;
}

static void check_left_recursion(Maker *m)
{
    uint8_t *seen = malloc(m->n_made + 1);
    if (!seen)
        solver_fail(m->e, "out of memory");
    for (uint32_t r = 0; seen && r < m->n_made && !m->e->failed[0]; r++) {
        memset(seen, 0, m->n_made);
        seen[r] = 1;
        if (!begins_with_itself(m, r, r, seen, 0))
            continue;
        const char *name = NULL;
        for (uint32_t i = 0; i < m->of->n_rules && !name; i++)
            name = m->number[i] == r + 1 ? m->of->rule[i].name : NULL;
        solver_fail(
            m->e,
            "the grammar's rule%s%s begins with itself by way of another or behind what may "
            "be empty: write what comes first before it",
            name ? " " : "s: one", name ? name : "");
    }
    free(seen);
}

int grammar_read(Solver *e, const char *text, size_t n, Grammar *out, cvn_err *err)
{
    cvn_err local = {0};
    err = err ? err : &local;
    Notation notation = {.e = e};
    Maker m = {.e = e, .of = &notation};
    map_init(&notation.names, &e->arena);
    if (notation_read(&notation, text, n, err))
        return err->code;
    m.number = arena_array(&e->arena, notation.n_rules, sizeof *m.number);
    rule_of(&m, part_rule(e, notation.start));
    for (uint32_t i = 0; i < m.n_todo && solver_work(e, 1); i++) {
        uint32_t named = m.todo[i], rule = m.number[named] - 1;
        const GrammarPart *body = without_left_recursion(&m, named);
        bool several = body->kind == PART_ONE;
        for (uint32_t k = 0; k < (several ? body->n : 1) && solver_work(e, 1); k++) {
            Line line = {0};
            add_part(&m, &line, several ? body->part[k] : body);
            add_line(&m, rule, &line);
        }
    }
    if (solver_work(e, 1))
        find_living(&m);
    if (solver_work(e, 1))
        check_left_recursion(&m);
    if (!solver_work(e, 1))
        return err_set(err, CVN_EUNSUPPORTED, "%s", e->failed);
    if (!m.made[0].lives)
        return err_set(err, CVN_EFORMAT, "the grammar matches no text");
    GrammarRule *rule = arena_array(&e->arena, m.n_made, sizeof *rule);
    for (uint32_t i = 0; i < m.n_made; i++)
        rule[i] = (GrammarRule){m.made[i].at, m.made[i].n};
    *out = (Grammar){m.symbol, rule};
    return CVN_OK;
}
