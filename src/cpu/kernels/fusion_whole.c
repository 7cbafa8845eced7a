/* Which row of the programs that are compiled whole a program is. */
#include "cpu/kernels/fusion_whole.h"

#include "compile/fusion.h"

static bool same_step(const TileStep *a, const TileStep *b)
{
    return a->code == b->code && a->op == b->op && a->a == b->a && a->b == b->b &&
           a->out == b->out && (a->c == b->c || a->code == TILE_SELECT);
}

static bool same_program(const TileProgram *program, const WholeProgram *w)
{
    bool same = program->n_places == w->n_places && program->n_steps == w->n_steps;
    for (int i = 0; same && i < w->n_places; i++)
        same = program->place[i].kind == w->place[i].kind &&
               program->place[i].half == w->place[i].half;
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
