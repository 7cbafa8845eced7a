/* One fusion out of its members: what they read, what is wanted of them, and where it lies in the scratch of a thread. */
#include "compile/fusion_make.h"

#include "compile/liveness.h"
#include "compile/tile_program.h"
#include "graph/strides.h"

bool fuse_is_whole(const Op *op)
{
    size_t offset;
    return op_is_view(op, &offset) && offset == 0 &&
           cvn_type_bytes(&op->result[0]->type) == cvn_type_bytes(&op->operand[0]->type);
}

cvn_value *fuse_root_of(cvn_value *v)
{
    while (fuse_is_whole(v->def))
        v = v->def->operand[0];
    return v;
}

static size_t element_bytes(const cvn_value *v)
{
    return (size_t)cvn_dtype_bits(v->type.dtype) / 8;
}

bool fuse_is_splat(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT && v->def->attr.literal.splat;
}

bool fuse_is_spread(const cvn_value *v, int64_t *inner)
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
    *inner = type_span(to, last + 1, to->rank);
    return true;
}

const Kernel *fuse_member_kernel(const KernelSet *backend, const Op *op)
{
    if (op->kind == OP_PARAMETER || op->n_results != 1 || op->n_operands > 3 ||
        op->n_operands < 1 || cvn_dtype_bits(op->result[0]->type.dtype) < 8 ||
        cvn_type_elements(&op->result[0]->type) < FUSION_LEAST)
        return NULL;
    for (int i = 0; i < op->n_operands; i++)
        if (cvn_dtype_bits(op->operand[i]->type.dtype) < 8)
            return NULL;
    const Kernel *kernel = kernel_find(backend, op);
    return kernel && kernel->elementwise ? kernel : NULL;
}

/* Index of an operand, which is added if it is not there; -1 where there is no room, or it is no parameter of the body. */
static int add_operand(Making *m, cvn_value *v)
{
    for (int i = 0; i < m->n_operands; i++)
        if (m->operand[i] == v)
            return i;
    if (m->n_operands == FUSION_OPERANDS || v->def->kind != OP_PARAMETER)
        return -1;
    m->operand[m->n_operands] = v;
    return m->n_operands++;
}

static int add_slot(Making *m, Slot slot)
{
    for (int i = 0; i < m->n_slots; i++)
        if (m->slot[i].kind == slot.kind && m->slot[i].value_id == slot.value_id)
            return i;
    if (m->n_slots == FUSION_SLOTS)
        return -1;
    m->slot[m->n_slots] = slot;
    return m->n_slots++;
}

/* The slot of what a member reads, or -1. */
static int slot_of(Making *m, cvn_value *v, int64_t elements)
{
    cvn_value *root = fuse_root_of(v);
    Slot slot = {.bytes = element_bytes(root), .value_id = root->id};
    int64_t n = cvn_type_elements(&root->type);
    bool inside = false;
    for (int i = 0; i < m->n; i++)
        inside = inside || m->op[i]->result[0] == root;
    if (inside) {
        for (int i = 0; i < m->n_slots; i++)
            if (m->slot[i].value_id == root->id)
                return i;
        return -1;
    }
    if (n == elements && fuse_is_splat(root)) {
        slot.kind = SLOT_SPLAT;
        slot.value = root->def->attr.literal.data;
        return add_slot(m, slot);
    }
    if (n == elements && fuse_is_spread(root, &slot.inner)) {
        cvn_value *from = fuse_root_of(root->def->operand[0]);
        slot.kind = SLOT_SPREAD;
        slot.size = cvn_type_elements(&from->type);
        slot.index = add_operand(m, from);
    } else {
        slot.kind = n == elements ? SLOT_OPERAND : SLOT_WHOLE;
        slot.index = root == m->sums ? FUSION_SUMS : add_operand(m, root);
    }
    return slot.index < 0 && root != m->sums ? -1 : add_slot(m, slot);
}

/* Which result of the fusion v is, or -1. */
static int result_index(const Making *m, const cvn_value *v)
{
    if (m->only)
        return m->only == v ? 0 : -1;
    for (int i = 0; i < m->body->n_outputs; i++)
        if (m->body->output[i].value == v)
            return i;
    return -1;
}

bool fuse_make_members(Making *m)
{
    for (int i = 0; i < m->n; i++) {
        Op *op = m->op[i];
        cvn_value *v = op->result[0];
        Member *member = &m->member[i];
        *member = (Member){.op = op, .kernel = fuse_member_kernel(m->backend, op)};
        if (!member->kernel)
            return false;
        for (int k = 0; k < op->n_operands; k++) {
            member->in[k] = slot_of(m, op->operand[k], cvn_type_elements(&v->type));
            if (member->in[k] < 0)
                return false;
        }
        Slot slot = {.kind = SLOT_INSIDE, .bytes = element_bytes(v), .value_id = v->id};
        int result = result_index(m, v);
        if (result >= FUSION_RESULTS)
            return false;
        if (result >= 0) {
            slot.kind = SLOT_RESULT;
            slot.index = result;
            m->n_results++;
        }
        member->out = add_slot(m, slot);
        if (member->out < 0)
            return false;
    }
    return true;
}

/* Scratch for the slots: that of one inside, which is read for the last time, is the next one's. Tiles begin PAD bytes past
   multiples of a page, so that no two of them use the same places of the caches. */
static void place_slots(Making *m)
{
    enum { PAD = 192 };
    const size_t tile = FUSION_ELEMENTS * sizeof(double) / 2 + PAD; /* of 4 bytes or fewer */
    int until[FUSION_SLOTS], n = 0; /* the last member that reads what lies there */
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
            for (int o = 0; o < m->op[k]->n_operands; o++)
                last = m->member[k].in[o] == m->member[i].out ? k : last;
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

Fusion *fuse_make(Making *m, Arena *arena)
{
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
    return f;
}
