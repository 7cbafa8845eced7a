#include "graph/cse.h"

#include "base/map.h"
#include "graph/region.h"

#include <stdlib.h>
#include <string.h>

void cse_free(Cse *cse)
{
    free(cse->slot);
    *cse = (Cse){0};
}

bool spec_equal(const cvn_spec *a, const cvn_spec *b)
{
    if (!a || !b)
        return a == b;
    if (a->rank != b->rank || a->priority != b->priority)
        return false;
    for (int d = 0; d < a->rank; d++) {
        if (a->dim[d].n != b->dim[d].n)
            return false;
        for (int i = 0; i < a->dim[d].n; i++)
            if (strcmp(a->dim[d].axis[i], b->dim[d].axis[i]) != 0)
                return false;
    }
    return true;
}

/* Swapping the operands gives the same bits. Not so for maximum and minimum of -0 and +0, nor for
   which NaN of two an addition returns; nobody may rely on the latter. */
static bool commutes(const Op *op)
{
    switch (op->kind) {
    case OP_ADD:
    case OP_MULTIPLY:
    case OP_AND:
    case OP_OR:
    case OP_XOR:
        return true;
    case OP_COMPARE:
        return op->attr.compare == CVN_EQ || op->attr.compare == CVN_NE;
    default:
        return false;
    }
}

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static uint64_t hash_op(const Op *op);

static uint64_t hash_body(const cvn_graph *body)
{
    uint64_t hash = (uint64_t)body->n_outputs;
    for (const Op *op = body->first; op; op = op->next)
        hash = mix(hash, op->kind == OP_PARAMETER ? 0 : hash_op(op));
    for (int i = 0; i < body->n_outputs; i++)
        hash = mix(hash, body->output[i].value->id);
    return hash;
}

static uint64_t hash_field(AttrType type, const void *field)
{
    if (type == ATTR_INTS) {
        const Ints *ints = field;
        return hash_bytes(ints->v, (size_t)ints->n * sizeof *ints->v);
    }
    if (type == ATTR_STRING) {
        const char *text = *(const char *const *)field;
        return hash_bytes(text, strlen(text));
    }
    if (type == ATTR_LITERAL) {
        const Literal *literal = field;
        return hash_bytes(literal->data, literal->bytes);
    }
    if (type == ATTR_BODY)
        return hash_body(*(const cvn_graph *const *)field);
    return hash_bytes(field, attr_types[type].size);
}

static uint64_t hash_op(const Op *op)
{
    uint64_t hash = mix((uint64_t)op->kind, (uint64_t)op->n_operands);
    uint32_t id[2] = {0, 0};
    for (int i = 0; i < op->n_operands; i++) {
        if (i < 2)
            id[i] = op->operand[i]->id;
        else
            hash = mix(hash, op->operand[i]->id);
    }
    bool swap = commutes(op) && id[0] > id[1];
    hash = mix(mix(hash, id[swap]), id[!swap]);
    const cvn_type *type = &op->result[0]->type;
    hash = mix(hash, (uint64_t)type->dtype);
    for (int i = 0; i < type->rank; i++)
        hash = mix(hash, (uint64_t)type->dim[i]);
    for (const AttrInfo *row = op_info[op->kind].attrs; row->name; row++)
        hash = mix(hash, hash_field(row->type, attr_field(&op->attr, row)));
    return hash;
}

static bool same(const Op *a, const Op *b)
{
    if (a->kind != b->kind || a->n_operands != b->n_operands)
        return false;
    bool swapped = commutes(a) && a->operand[0] == b->operand[1] && a->operand[1] == b->operand[0];
    for (int i = 0; i < a->n_operands && !swapped; i++)
        if (a->operand[i] != b->operand[i])
            return false;
    if (!attr_equal(a->kind, &a->attr, &b->attr))
        return false;
    for (int i = 0; i < a->n_results; i++)
        if (!cvn_type_equal(&a->result[i]->type, &b->result[i]->type) ||
            !spec_equal(a->result[i]->spec, b->result[i]->spec))
            return false;
    return true;
}

static void grow(Cse *cse)
{
    size_t capacity = cse->capacity ? cse->capacity * 2 : 256;
    Op **slot = calloc(capacity, sizeof *slot);
    if (!slot)
        protect_abandon(capacity * sizeof *slot);
    for (size_t i = 0; i < cse->capacity; i++) {
        Op *op = cse->slot[i];
        if (!op)
            continue;
        size_t at = hash_op(op) & (capacity - 1);
        while (slot[at])
            at = (at + 1) & (capacity - 1);
        slot[at] = op;
    }
    free(cse->slot);
    cse->slot = slot;
    cse->capacity = capacity;
}

Op *cse_find(Cse *cse, Op *op)
{
    bool single = op_info[op->kind].class_ == CLASS_COLLECTIVE
                      ? op->kind != OP_PARTITION_ID
                      : op->kind == OP_PARAMETER || op->kind == OP_OPTIMIZATION_BARRIER;
    if (single)
        return NULL;
    if (cse->n * 2 >= cse->capacity)
        grow(cse);
    size_t at = hash_op(op) & (cse->capacity - 1);
    for (; cse->slot[at]; at = (at + 1) & (cse->capacity - 1))
        if (same(cse->slot[at], op))
            return cse->slot[at];
    cse->slot[at] = op;
    cse->n++;
    return NULL;
}
