/* The public interface: constraints, texts that fulfil them, masks. */
#include "caravan/constrain.h"

#include "constrain/automaton.h"
#include "constrain/explore.h"
#include "constrain/mask.h"
#include "constrain/pattern.h"
#include "constrain/schema.h"
#include "constrain/vocabulary.h"

#include <stdlib.h>
#include <string.h>

struct cvn_constraint {
    Automaton m;
    Formula f;   /* of a schema */
    Masks masks; /* of the vocabulary that was asked about last */
};

struct cvn_constrained {
    cvn_constraint *of;
    const cvn_vocabulary *vocabulary;
    uint32_t state;
    bool ended; /* an end token came */
};

/* Goes through the nodes before which there are blanks only: twice, to count and to note them. */
static void look_behind_blanks(cvn_vocabulary *v)
{
    const Trie *trie = &v->trie;
    uint32_t count[257] = {0};
    v->blank = arena_array(&v->arena, CVN_MASK_WORDS(v->n) + 1, sizeof *v->blank);
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < trie->n_nodes;) {
            const TrieNode *node = &trie->node[i];
            if (is_blank(node->byte)) {
                for (uint32_t k = node->first; k < node->first + node->n; k++)
                    v->blank[trie->token[k] / 32] |= 1u << (trie->token[k] % 32);
                i++;
                continue;
            }
            if (pass)
                v->node[v->begin[node->byte] + count[node->byte]] = i;
            count[node->byte]++;
            i = node->after;
        }
        for (int b = 0; b < 256 && !pass; b++) {
            v->begin[b + 1] = v->begin[b] + count[b];
            count[b] = 0;
        }
        v->node = pass ? v->node : arena_array(&v->arena, v->begin[256] + 1, sizeof *v->node);
    }
}

int cvn_vocabulary_new(const char *const *piece, const size_t *length, cvn_token n,
                       const cvn_token *end, size_t n_end, cvn_vocabulary **out, cvn_err *err)
{
    cvn_vocabulary *v = calloc(1, sizeof *v);
    size_t count = 0;
    if (!v || arena_init(&v->arena, err)) {
        free(v);
        return err_set(err, CVN_EMEM, "no memory for the vocabulary");
    }
    v->n = n > 0 ? n : 0;
    v->piece = arena_array(&v->arena, (size_t)v->n + 1, sizeof *v->piece);
    v->length = arena_array(&v->arena, (size_t)v->n + 1, sizeof *v->length);
    v->end = arena_copy(&v->arena, end, n_end * sizeof *end);
    v->n_end = n_end;
    TriePiece *sorted = arena_array(&v->arena, (size_t)v->n + 1, sizeof *sorted);
    for (cvn_token i = 0; i < v->n; i++) {
        bool ends = false;
        for (size_t k = 0; k < n_end; k++)
            ends = ends || end[k] == i;
        v->length[i] = ends || length[i] > TOKEN_BYTES ? 0 : length[i];
        v->piece[i] = arena_copy(&v->arena, piece[i], v->length[i]);
        if (v->length[i] > v->longest)
            v->longest = (uint32_t)v->length[i];
        if (v->length[i])
            sorted[count++] = (TriePiece){v->piece[i], v->length[i], i};
    }
    if (!trie_make(&v->trie, sorted, count) || !trie_look_below(&v->trie) ||
        !(v->free_text[false] = string_mask_free_text(v, false)) ||
        !(v->free_text[true] = string_mask_free_text(v, true))) {
        cvn_vocabulary_free(v);
        return err_set(err, CVN_EMEM, "no memory for the vocabulary");
    }
    look_behind_blanks(v);
    *out = v;
    return CVN_OK;
}

void cvn_vocabulary_free(cvn_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    trie_free(&vocabulary->trie);
    string_mask_free(vocabulary->free_text[false]);
    string_mask_free(vocabulary->free_text[true]);
    arena_free(&vocabulary->arena);
    free(vocabulary);
}

static int new_constraint(const cvn_constrain_options *options, cvn_constraint **out, cvn_err *err)
{
    cvn_constraint *c = calloc(1, sizeof *c);
    if (!c || automaton_init(&c->m, err)) {
        free(c);
        return err_set(err, CVN_EMEM, "no memory for the constraint");
    }
    c->m.compact = options && options->compact;
    c->m.e.spelling.in_order = options && options->in_order;
    c->m.e.spelling.canonical = options && options->canonical;
    *out = c;
    return CVN_OK;
}

void cvn_constraint_free(cvn_constraint *constraint)
{
    if (!constraint)
        return;
    if (constraint->masks.vocabulary)
        masks_free(&constraint->masks);
    automaton_free(&constraint->m);
    free(constraint);
}

bool cvn_constraint_is_empty(const cvn_constraint *constraint)
{
    return constraint->m.begin == STATE_DEAD;
}

/* Hands the constraint over, or frees it where it was refused. */
static int finish(cvn_constraint *c, cvn_constraint **out, cvn_err *err)
{
    if (solver_work(&c->m.e, 0)) {
        *out = c;
        return CVN_OK;
    }
    int code = err_set(err, CVN_EUNSUPPORTED, "%s", c->m.e.failed);
    cvn_constraint_free(c);
    return code;
}

/* Whether an object in the tree has a member of this name. */
static bool mentions(const JsonValue *value, const char *name)
{
    if (json_member(value, name, strlen(name)))
        return true;
    for (size_t i = 0; i < value->n; i++)
        if (mentions(value->item[i], name))
            return true;
    return false;
}

int cvn_constraint_schema(const char *schema, size_t n, const cvn_constrain_options *options,
                          cvn_constraint **out, cvn_err *err)
{
    cvn_constraint *c;
    if (new_constraint(options, &c, err))
        return CVN_EMEM;
    const JsonValue *document = json_tree(&c->m.e.arena, schema, n, err);
    if (!document) {
        err_prefix(err, "the schema");
        cvn_constraint_free(c);
        return CVN_EFORMAT;
    }
    SchemaDraft draft;
    if (!schema_draft(options ? options->draft : 0, &draft)) {
        cvn_constraint_free(c);
        return err_set(err, CVN_EINVAL, "unknown JSON Schema draft %d; give 4, 6, 7, 2019 or 2020",
                       options->draft);
    }
    c->m.reads = mentions(document, "uniqueItems");
    c->f = schema_read(&c->m.e, document, draft, !options || !options->annotate_format);
    automaton_begin_json(&c->m, c->f);
    if (!options || !options->lazy)
        explore(&c->m.e, c->f);
    return finish(c, out, err);
}

int cvn_constraint_check(cvn_constraint *constraint, cvn_err *err)
{
    Solver *e = &constraint->m.e;
    solver_begin(e);
    explore(e, constraint->f);
    return solver_work(e, 0) ? CVN_OK : err_set(err, CVN_EUNSUPPORTED, "%s", e->failed);
}

int cvn_constraint_json(const cvn_constrain_options *options, cvn_constraint **out, cvn_err *err)
{
    return cvn_constraint_schema("true", 4, options, out, err);
}

int cvn_constraint_regex(const char *regex, size_t n, cvn_constraint **out, cvn_err *err)
{
    cvn_constraint *c;
    Term term;
    if (new_constraint(NULL, &c, err))
        return CVN_EMEM;
    int code = pattern_term(&c->m.e.terms, regex, n, true, &term, err);
    if (code) {
        cvn_constraint_free(c);
        return code;
    }
    automaton_begin_text(&c->m, term);
    return finish(c, out, err);
}

int cvn_constraint_grammar(const char *grammar, size_t n, cvn_constraint **out, cvn_err *err)
{
    cvn_constraint *c;
    if (new_constraint(NULL, &c, err))
        return CVN_EMEM;
    int code = grammar_read(&c->m.e, grammar, n, &c->m.grammar, err);
    if (code) {
        cvn_constraint_free(c);
        return code;
    }
    automaton_begin_grammar(&c->m);
    return finish(c, out, err);
}

int cvn_constraint_choices(const char *const *choice, const size_t *length, size_t n,
                           cvn_constraint **out, cvn_err *err)
{
    cvn_constraint *c;
    if (new_constraint(NULL, &c, err))
        return CVN_EMEM;
    Term *list = arena_array(&c->m.e.arena, n + 1, sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = term_text(&c->m.e.terms, choice[i], length[i]);
    automaton_begin_text(&c->m, term_or(&c->m.e.terms, list, n));
    return finish(c, out, err);
}

int cvn_constrained_new(cvn_constraint *constraint, const cvn_vocabulary *vocabulary,
                        cvn_constrained **out, cvn_err *err)
{
    cvn_constrained *text = calloc(1, sizeof *text);
    if (!text)
        return err_set(err, CVN_EMEM, "no memory for the state of a constraint");
    *text =
        (cvn_constrained){.of = constraint, .vocabulary = vocabulary, .state = constraint->m.begin};
    *out = text;
    return CVN_OK;
}

cvn_constrained *cvn_constrained_clone(const cvn_constrained *text)
{
    cvn_constrained *clone = malloc(sizeof *clone);
    if (clone)
        *clone = *text;
    return clone;
}

void cvn_constrained_free(cvn_constrained *text)
{
    free(text);
}

static int no_tokens(cvn_err *err)
{
    return err_set(err, CVN_EINVAL,
                   "this constrained text has no vocabulary; give one to cvn_constrained_new");
}

static int check(const cvn_constrained *text, cvn_err *err)
{
    Solver *e = &text->of->m.e;
    return solver_work(e, 0) ? CVN_OK : err_set(err, CVN_EUNSUPPORTED, "%s", e->failed);
}

int cvn_constrained_mask(cvn_constrained *text, uint32_t *mask, cvn_err *err)
{
    Automaton *m = &text->of->m;
    const cvn_vocabulary *v = text->vocabulary;
    Masks *masks = &text->of->masks;
    if (!v)
        return no_tokens(err);
    solver_begin(&m->e);
    if (text->ended) {
        memset(mask, 0, CVN_MASK_WORDS(v->n) * sizeof *mask);
        return CVN_OK;
    }
    if (masks->vocabulary != v) {
        if (masks->vocabulary)
            masks_free(masks);
        if (masks_init(masks, v, err))
            return CVN_EMEM;
    }
    masks_fill(masks, m, text->state, mask);
    for (size_t i = 0; i < v->n_end && m->states.state[text->state].can_end; i++)
        if (v->end[i] >= 0 && v->end[i] < v->n)
            mask[v->end[i] / 32] |= 1u << (v->end[i] % 32);
    return check(text, err);
}

bool cvn_constrained_is_quick(cvn_constrained *text)
{
    Automaton *m = &text->of->m;
    const cvn_vocabulary *v = text->vocabulary;
    const Masks *masks = &text->of->masks;
    int ways = m->states.state[text->state].can_end;
    if (!v || text->ended || (masks->vocabulary == v && masks_know(masks, m, text->state)))
        return true;
    solver_begin(&m->e);
    for (int i = 0; i < 256 && ways < 2; i++) {
        unsigned char b = (unsigned char)('a' + i); /* of strings, the first two will do */
        ways += v->begin[b] < v->begin[b + 1] && automaton_next(m, text->state, b) != STATE_DEAD;
    }
    return ways < 2;
}

int cvn_constrained_advance_bytes(cvn_constrained *text, const char *bytes, size_t n, cvn_err *err)
{
    uint32_t state = text->state;
    solver_begin(&text->of->m.e);
    for (size_t i = 0; i < n && state != STATE_DEAD; i++)
        state = automaton_next(&text->of->m, state, (unsigned char)bytes[i]);
    if (check(text, err))
        return CVN_EUNSUPPORTED;
    if (state == STATE_DEAD || text->ended)
        return err_set(err, CVN_EINVAL, "the constraint does not allow this text here");
    text->state = state;
    return CVN_OK;
}

int cvn_constrained_advance(cvn_constrained *text, cvn_token token, cvn_err *err)
{
    const cvn_vocabulary *v = text->vocabulary;
    if (!v)
        return no_tokens(err);
    for (size_t i = 0; i < v->n_end; i++) {
        if (v->end[i] != token)
            continue;
        if (text->ended || !cvn_constrained_complete(text))
            return err_set(err, CVN_EINVAL, "the constraint does not allow the text to end here");
        text->ended = true;
        return CVN_OK;
    }
    if (token < 0 || token >= v->n || !v->length[token])
        return err_set(err, CVN_EINVAL, "token %d has no text, so no constraint allows it",
                       (int)token);
    return cvn_constrained_advance_bytes(text, v->piece[token], v->length[token], err);
}

bool cvn_constrained_complete(const cvn_constrained *text)
{
    return text->of->m.states.state[text->state].can_end;
}
