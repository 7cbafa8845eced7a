/* Which row of the programs that are compiled whole a program is. */
#include "cpu/kernels/fusion_whole.h"

#include <ctype.h>
#include <string.h>

static bool same_program(const TileProgram *program, const WholeProgram *w)
{
    static const char letters[] = {
        [PLACE_REGISTER] = 'r', [PLACE_OPERAND] = 'o', [PLACE_RESULT] = 'w',
        [PLACE_SCALAR] = 's',   [PLACE_SPREAD] = 'p',  [PLACE_CONSTANT] = 'c'};
    bool same = program->n_places == (int)strlen(w->place) && program->n_steps == w->n_steps;
    for (int i = 0; same && i < program->n_places; i++) {
        char letter = letters[program->place[i].kind];
        same = (program->place[i].bytes == 2 ? (char)toupper(letter) : letter) == w->place[i];
    }
    for (int i = 0; same && i < w->n_steps; i++) {
        const TileStep *a = &program->step[i], *b = &w->step[i];
        same = a->code == b->code && a->op == b->op && a->a == b->a && a->b == b->b &&
               a->out == b->out && (a->c == b->c || a->code == TILE_SELECT);
    }
    return same;
}

WholeKind whole_find(const TileProgram *program)
{
    int kind = 0;
    while (kind < WHOLE_COUNT && !same_program(program, &whole_programs[kind]))
        kind++;
    return (WholeKind)kind;
}

bool whole_is_epilogue(TileProgram *program)
{
    program->epilogue = (int)whole_find(program);
    return program->epilogue == WHOLE_SWIGLU || program->epilogue == WHOLE_SWIGLU_BACKWARD;
}
