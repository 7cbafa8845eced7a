/* Which row of the programs that are compiled whole a program is. */
#include "cpu/kernels/fusion_whole.h"

#include "compile/fusion.h"

#include <ctype.h>
#include <string.h>

static bool same_step(const TileStep *a, const TileStep *b)
{
    return a->code == b->code && a->op == b->op && a->a == b->a && a->b == b->b &&
           a->out == b->out && (a->c == b->c || a->code == TILE_SELECT);
}

static char letter_of(const TilePlace *place)
{
    static const char letters[] = {[PLACE_REGISTER] = 'r',
                                   [PLACE_OPERAND] = 'o',
                                   [PLACE_RESULT] = 'w',
                                   [PLACE_SCALAR] = 's',
                                   [PLACE_CONSTANT] = 'c'};
    return place->half ? (char)toupper(letters[place->kind]) : letters[place->kind];
}

static bool same_program(const TileProgram *program, const WholeProgram *w)
{
    bool same = program->n_places == (int)strlen(w->place) && program->n_steps == w->n_steps;
    for (int i = 0; same && i < program->n_places; i++)
        same = letter_of(&program->place[i]) == w->place[i];
    for (int i = 0; same && i < w->n_steps; i++)
        same = same_step(&program->step[i], &w->step[i]);
    return same;
}

WholeKind whole_find(const TileProgram *program)
{
    int kind = 0;
    while (kind < WHOLE_COUNT && !same_program(program, &whole_programs[kind]))
        kind++;
    return (WholeKind)kind;
}

int whole_epilogue(const Fusion *fusion)
{
    WholeKind kind = whole_find(fusion->program);
    return kind == WHOLE_SWIGLU || kind == WHOLE_SWIGLU_BACKWARD ? (int)kind : -1;
}
