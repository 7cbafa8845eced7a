/*
 * Which operations become one.
 *
 * One walk over the graph keeps open groups of elementwise operations of as many elements. An operation joins the
 * groups whose results it reads (which become one group), or else one that reads a tensor it reads, too. A group
 * is closed, and its fusion put in the graph, before the first operation that needs a result of it and is not
 * elementwise; so nothing is computed earlier than it was, and groups never depend on each other in a circle.
 * What stays open for long would keep its operands alive: after PATIENCE operations a group is closed.
 */
#include "compile/fuse.h"

#include "compile/liveness.h"
#include "compile/tile_program.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, PATIENCE = 24 };

typedef struct Group {
    Op *op[FUSION_MEMBERS]; /* [n], in the order of the graph */
    int64_t position[FUSION_MEMBERS];
    int n; /* 0: not in use */
    int64_t elements;
    int64_t joined; /* position of the last operation that joined */
} Group;

typedef struct Fuser {
    cvn_graph *g;
    const Backend *backend;
    uint32_t *uses;       /* [n_values] by operations and outputs, before anything was fused */
    unsigned char *group; /* [n_values] 1 + the open group that computes a value, or 0 */
    Group open[GROUPS];
} Fuser;

/* What v is all of, under another shape. */
static cvn_value *root_of(cvn_value *v)
{
    size_t offset;
    while (op_is_view(v->def, &offset) && offset == 0 &&
           cvn_type_bytes(&v->type) == cvn_type_bytes(&v->def->operand[0]->type))
        v = v->def->operand[0];
    return v;
}

static size_t element_bytes(const cvn_value *v)
{
    return (size_t)cvn_dtype_bits(v->type.dtype) / 8;
}

/* Can the operands be written out tile by tile? */
static bool is_splat(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT && v->def->attr.literal.splat;
}

/* A broadcast of one value, or of a tensor that has a run of the result's dimensions: *inner elements of the result
   in turn are of one element. */
static bool is_spread(const cvn_value *v, int64_t *inner)
{
    const Op *op = v->def;
    if (op->kind != OP_BROADCAST_IN_DIM)
        return false;
    const cvn_type *from = &op->operand[0]->type, *to = &v->type;
    *inner = cvn_type_elements(to);
    if (cvn_type_elements(from) == 1)
        return true;
    int first = (int)op->attr.dims.v[0], last = first + from->rank - 1;
    for (int i = 0; i < from->rank; i++)
        if (op->attr.dims.v[i] != first + i || from->dim[i] != to->dim[first + i])
            return false;
    *inner = 1;
    for (int d = last + 1; d < to->rank; d++)
        *inner *= to->dim[d];
    return true;
}

static const Kernel *member_kernel(const Fuser *f, const Op *op)
{
    if (op->kind == OP_PARAMETER || op->n_results != 1 || op->n_operands > 3 ||
        op->n_operands < 1 || cvn_dtype_bits(op->result[0]->type.dtype) < 8 ||
        cvn_type_elements(&op->result[0]->type) < FUSION_LEAST)
        return NULL;
    for (int i = 0; i < op->n_operands; i++)
        if (cvn_dtype_bits(op->operand[i]->type.dtype) < 8)
            return NULL;
    const Kernel *kernel = kernel_find(f->backend, op);
    return kernel && kernel->elementwise ? kernel : NULL;
}

/* ---- making a fusion of operations [0, n) ---- */

/* A fusion being made. */
typedef struct Making {
    const Fuser *fuser;
    Op *const *op;
    int n;
    Slot slot[2 * FUSION_MEMBERS + FUSION_OPERANDS];
    Member member[FUSION_MEMBERS];
    cvn_value *operand[FUSION_OPERANDS], *result[FUSION_RESULTS];
    uint32_t over[FUSION_RESULTS];
    int n_slots, n_operands, n_results;
    size_t scratch;
    bool spared; /* a constant or broadcast need not be written out */
} Making;

static bool is_inside(const Making *m, const cvn_value *v)
{
    for (int i = 0; i < m->n; i++)
        if (m->op[i] == v->def)
            return true;
    return false;
}

/* Does anything but the members use it? */
static bool is_result(const Making *m, const cvn_value *v)
{
    uint32_t inside = 0;
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->op[i]->n_operands; k++)
            inside += m->op[i]->operand[k] == v;
    return m->fuser->uses[v->id] > inside;
}

/* Index of an operand, which is added if it is not there; -1 where there is no room. */
static int add_operand(Making *m, cvn_value *v)
{
    for (int i = 0; i < m->n_operands; i++)
        if (m->operand[i] == v)
            return i;
    if (m->n_operands == FUSION_OPERANDS)
        return -1;
    m->operand[m->n_operands] = v;
    return m->n_operands++;
}

static int add_slot(Making *m, Slot slot)
{
    for (int i = 0; i < m->n_slots; i++)
        if (m->slot[i].kind == slot.kind && m->slot[i].value_id == slot.value_id)
            return i;
    if (m->n_slots == (int)(sizeof m->slot / sizeof *m->slot))
        return -1;
    m->slot[m->n_slots] = slot;
    return m->n_slots++;
}

/* The slot of what a member reads, or -1. */
static int slot_of(Making *m, cvn_value *v, int64_t elements)
{
    cvn_value *root = root_of(v);
    Slot slot = {.bytes = element_bytes(root), .value_id = root->id};
    int64_t n = cvn_type_elements(&root->type);
    if (is_inside(m, root)) {
        for (int i = 0; i < m->n_slots; i++)
            if (m->slot[i].value_id == root->id)
                return i;
        return -1;
    }
    if (n == elements && is_splat(root)) {
        slot.kind = SLOT_SPLAT;
        slot.value = root->def->attr.literal.data;
        m->spared = true;
        return add_slot(m, slot);
    }
    if (n == elements && is_spread(root, &slot.inner)) {
        cvn_value *from = root_of(root->def->operand[0]);
        slot.kind = SLOT_SPREAD;
        slot.size = cvn_type_elements(&from->type);
        slot.index = add_operand(m, from);
        m->spared = true;
    } else {
        slot.kind = n == elements ? SLOT_OPERAND : SLOT_WHOLE;
        slot.index = add_operand(m, root);
    }
    return slot.index < 0 ? -1 : add_slot(m, slot);
}

static bool make_members(Making *m)
{
    for (int i = 0; i < m->n; i++) {
        Op *op = m->op[i];
        cvn_value *v = op->result[0];
        Member *member = &m->member[i];
        *member = (Member){.op = op, .kernel = member_kernel(m->fuser, op)};
        for (int k = 0; k < op->n_operands; k++) {
            member->in[k] = slot_of(m, op->operand[k], cvn_type_elements(&v->type));
            if (member->in[k] < 0)
                return false;
        }
        Slot slot = {.kind = SLOT_INSIDE, .bytes = element_bytes(v), .value_id = v->id};
        if (is_result(m, v)) {
            if (m->n_results == FUSION_RESULTS)
                return false;
            slot.kind = SLOT_RESULT;
            slot.index = m->n_results;
            m->result[m->n_results++] = v;
        }
        member->out = add_slot(m, slot);
        if (member->out < 0)
            return false;
    }
    return true;
}

/* Does member i read the slot? */
static bool reads_slot(const Making *m, int i, int slot)
{
    for (int k = 0; k < m->op[i]->n_operands; k++)
        if (m->member[i].in[k] == slot)
            return true;
    return false;
}

/* Scratch for the slots: that of one inside, which is read for the last time, is the next one's. Tiles begin PAD bytes past
   multiples of a page, so that no two of them use the same places of the caches. */
static void place_slots(Making *m)
{
    enum { PLACES = 2 * FUSION_MEMBERS + FUSION_OPERANDS, PAD = 192 };
    const size_t tile = FUSION_ELEMENTS * sizeof(double) / 2 + PAD; /* of 4 bytes or fewer */
    int until[PLACES], n = 0; /* the last member that reads what lies there */
    for (int i = 0; i < m->n_slots; i++)
        if (m->slot[i].kind == SLOT_SPREAD || m->slot[i].kind == SLOT_SPLAT) {
            m->slot[i].scratch = (size_t)n * tile;
            until[n++] = m->n;
            if (m->slot[i].bytes > 4) /* two places */
                until[n++] = m->n;
        }
    for (int i = 0; i < m->n; i++) {
        Slot *slot = &m->slot[m->member[i].out];
        if (slot->kind != SLOT_INSIDE)
            continue;
        int last = i, place = slot->bytes > 4 ? n : 0;
        for (int k = i + 1; k < m->n; k++)
            last = reads_slot(m, k, m->member[i].out) ? k : last;
        while (place < n && until[place] >= i)
            place++;
        slot->scratch = (size_t)place * tile;
        until[place] = last;
        n = place == n ? n + 1 : n;
        if (slot->bytes > 4)
            until[n++] = last;
    }
    m->scratch = (size_t)n * tile;
}

/* Which operands the result of member `at` may lie over: those that are read for the last time there, or before. */
static uint32_t overwrites(const Making *m, int at)
{
    uint32_t mask = 0;
    for (int o = 0; o < m->n_operands; o++) {
        bool allowed = o < 32 && element_bytes(m->operand[o]) == m->slot[m->member[at].out].bytes;
        for (int i = 0; i < m->n; i++)
            for (int k = 0; k < m->member[i].op->n_operands; k++) {
                const Slot *slot = &m->slot[m->member[i].in[k]];
                if (slot->kind > SLOT_SPREAD || slot->kind == SLOT_RESULT || slot->index != o)
                    continue;
                bool good = i < at || (i == at && m->member[i].kernel->in_place >> k & 1);
                allowed = allowed && slot->kind == SLOT_OPERAND && good;
            }
        mask |= (uint32_t)allowed << o;
    }
    return mask;
}

/* ---- the graph ---- */

void fuse_put_before(cvn_graph *g, Op *op, Op *next)
{
    Op *prev = next ? next->prev : g->last;
    op->prev = prev;
    op->next = next;
    *(prev ? &prev->next : &g->first) = op;
    *(next ? &next->prev : &g->last) = op;
    g->n_ops++;
}

static void put_fusion(Making *m, Op *next)
{
    cvn_graph *g = m->fuser->g;
    Arena *arena = &g->arena;
    place_slots(m);
    for (int i = 0; i < m->n; i++)
        if (m->slot[m->member[i].out].kind == SLOT_RESULT)
            m->over[m->slot[m->member[i].out].index] = overwrites(m, i);
    Fusion *f = arena_alloc(arena, sizeof *f);
    *f = (Fusion){
        .elements = cvn_type_elements(&m->op[0]->result[0]->type),
        .n_members = m->n,
        .n_slots = m->n_slots,
        .scratch = (m->scratch + 63) / 64 * 64,
        .member = arena_copy(arena, m->member, (size_t)m->n * sizeof *m->member),
        .slot = arena_copy(arena, m->slot, (size_t)m->n_slots * sizeof *m->slot),
        .over = arena_copy(arena, m->over, sizeof m->over),
    };
    f->program = tile_program_make(arena, f);
    Op *op = arena_alloc(arena, sizeof *op);
    *op = (Op){
        .kind = OP_FUSION,
        .n_operands = m->n_operands,
        .n_results = m->n_results,
        .operand = arena_copy(arena, m->operand, sizeof m->operand),
        .result = arena_copy(arena, m->result, sizeof m->result),
        .attr = {.fusion = f},
        .file = m->op[m->n - 1]->file,
        .line = m->op[m->n - 1]->line,
    };
    for (int i = 0; i < m->n; i++)
        graph_remove(g, m->op[i]);
    for (int k = 0; k < m->n_results; k++) {
        m->result[k]->def = op;
        m->result[k]->result = k;
    }
    fuse_put_before(g, op, next);
}

/* Makes a fusion of n operations; of each half where they are too many for one. What stays alone keeps its order. */
static int fuse(const Fuser *f, Op *const *op, int n, Op *next)
{
    Making *m = calloc(1, sizeof *m);
    if (!m)
        return CVN_EMEM;
    *m = (Making){.fuser = f, .op = op, .n = n};
    int code = CVN_OK;
    bool fits = make_members(m);
    if (fits && (n > 1 || m->spared)) {
        put_fusion(m, next);
    } else if (n > 1) {
        code = fuse(f, op, n / 2, next);
        if (!code)
            code = fuse(f, op + n / 2, n - n / 2, next);
    } else {
        graph_remove(f->g, op[0]);
        fuse_put_before(f->g, op[0], next);
    }
    free(m);
    return code;
}

static int close_group(Fuser *f, Group *group, Op *next)
{
    int n = group->n;
    for (int i = 0; i < n; i++)
        f->group[group->op[i]->result[0]->id] = 0;
    group->n = 0;
    return n ? fuse(f, group->op, n, next) : CVN_OK;
}

/* ---- the walk ---- */

static Group *group_of(Fuser *f, cvn_value *v)
{
    int group = f->group[root_of(v)->id];
    return group ? &f->open[group - 1] : NULL;
}

static void add_member(Fuser *f, Group *group, Op *op, int64_t position)
{
    int i = group->n++;
    for (; i > 0 && group->position[i - 1] > position; i--) {
        group->op[i] = group->op[i - 1];
        group->position[i] = group->position[i - 1];
    }
    group->op[i] = op;
    group->position[i] = position;
    group->elements = cvn_type_elements(&op->result[0]->type);
    group->joined = position > group->joined ? position : group->joined;
    f->group[op->result[0]->id] = (unsigned char)(group - f->open + 1);
}

/* One group of two, if it is not too large. */
static bool merge(Fuser *f, Group *into, Group *from)
{
    if (into->n + from->n >= FUSION_MEMBERS || into->elements != from->elements)
        return false;
    for (int i = 0; i < from->n; i++)
        add_member(f, into, from->op[i], from->position[i]);
    from->n = 0;
    return true;
}

static bool reads(const Group *group, const cvn_value *root)
{
    for (int i = 0; i < group->n; i++)
        for (int k = 0; k < group->op[i]->n_operands; k++)
            if (root_of(group->op[i]->operand[k]) == root)
                return true;
    return false;
}

/* An open group that reads a tensor that op reads. */
static Group *sibling_of(Fuser *f, const Op *op)
{
    int64_t n = cvn_type_elements(&op->result[0]->type), inner;
    for (int k = 0; k < op->n_operands; k++) {
        cvn_value *root = root_of(op->operand[k]);
        if (cvn_type_elements(&root->type) != n || is_splat(root) || is_spread(root, &inner))
            continue;
        for (int i = 0; i < GROUPS; i++)
            if (f->open[i].n && f->open[i].n < FUSION_MEMBERS && f->open[i].elements == n &&
                reads(&f->open[i], root))
                return &f->open[i];
    }
    return NULL;
}

/* A group that is not in use; the one that waits longest is closed for it. */
static int new_group(Fuser *f, Op *next, Group **out)
{
    Group *oldest = &f->open[0];
    for (int i = 0; i < GROUPS; i++) {
        if (f->open[i].n == 0) {
            f->open[i].joined = 0;
            *out = &f->open[i];
            return CVN_OK;
        }
        if (f->open[i].joined < oldest->joined)
            oldest = &f->open[i];
    }
    *out = oldest;
    int code = close_group(f, oldest, next);
    oldest->joined = 0;
    return code;
}

static int join(Fuser *f, Op *op, int64_t position)
{
    Group *group = NULL;
    int64_t elements = cvn_type_elements(&op->result[0]->type);
    for (int k = 0; k < op->n_operands; k++) {
        Group *other = group_of(f, op->operand[k]);
        bool fits = other && other->elements == elements && other->n < FUSION_MEMBERS;
        if (other && fits && !group)
            group = other;
        else if (other && other != group && !(fits && merge(f, group, other)))
            if (close_group(f, other, op))
                return CVN_EMEM;
    }
    if (!group)
        group = sibling_of(f, op);
    if (!group && new_group(f, op, &group))
        return CVN_EMEM;
    add_member(f, group, op, position);
    return CVN_OK;
}

/* Closes what an operation that is not elementwise needs, and what has waited for long. */
static int pass_by(Fuser *f, Op *op, int64_t position)
{
    int code = CVN_OK;
    for (int k = 0; k < op->n_operands && !code; k++) {
        Group *group = group_of(f, op->operand[k]);
        if (group)
            code = close_group(f, group, op);
    }
    for (int i = 0; i < GROUPS && !code; i++)
        if (f->open[i].n && position - f->open[i].joined > PATIENCE)
            code = close_group(f, &f->open[i], op);
    return code;
}

static int walk(Fuser *f)
{
    int64_t position = 0;
    int code = CVN_OK;
    for (Op *op = f->g->first, *next; op && !code; op = next, position++) {
        next = op->next;
        code = member_kernel(f, op) ? join(f, op, position) : pass_by(f, op, position);
    }
    for (int i = 0; i < GROUPS && !code; i++)
        code = close_group(f, &f->open[i], NULL);
    return code;
}

int fuse_graph(cvn_graph *g, const Backend *backend, cvn_err *err)
{
    Fuser *f = calloc(1, sizeof *f);
    Arena arena;
    int code = arena_init(&arena, err);
    if (!f || code) {
        free(f);
        return code ? code : err_set(err, CVN_EMEM, "no memory to lower graph '%s'", g->name);
    }
    fuse_neighbours(g, backend, &arena);
    fuse_written(g, backend, &arena);
    fuse_again(g, backend, &arena);
    *f = (Fuser){.g = g, .backend = backend, .uses = graph_uses(g, &arena)};
    f->group = arena_array(&arena, g->n_values + (size_t)1, sizeof *f->group);
    if (walk(f))
        code = err_set(err, CVN_EMEM, "no memory to lower graph '%s'", g->name);
    else
        graph_remove_dead(g);
    arena_free(&arena);
    free(f);
    return code;
}
