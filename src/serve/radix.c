#include "serve/radix.h"

#include "base/num.h"

void radix_init(Radix *t, int slots, Arena *arena)
{
    int nodes = 3 * slots + 1;
    *t = (Radix){.slots = slots, .spare = 1, .newest = 0, .oldest = slots - 1};
    t->node = arena_array(arena, (size_t)nodes, sizeof *t->node);
    t->slot = arena_array(arena, (size_t)slots, sizeof *t->slot);
    t->node[0] = (RadixNode){.parent = -1, .child = -1, .next = -1, .slot = -1, .any = -1};
    for (int i = 1; i < nodes; i++)
        t->node[i].next = i + 1 < nodes ? i + 1 : -1;
    for (int i = 0; i < slots; i++)
        t->slot[i] = (RadixSlot){
            .node = -1, .next = -1, .newer = i - 1, .older = i + 1 < slots ? i + 1 : -1};
}

/* ---- nodes ---- */

static int new_node(Radix *t, int parent, int64_t end)
{
    int at = t->spare;
    t->spare = t->node[at].next;
    t->node[at] = (RadixNode){.parent = parent,
                              .child = -1,
                              .next = t->node[parent].child,
                              .slot = -1,
                              .any = -1,
                              .end = end};
    t->node[parent].child = at;
    return at;
}

/* Where the parent's list names a node. */
static int *link_of(Radix *t, int at)
{
    int *link = &t->node[t->node[at].parent].child;
    while (*link != at)
        link = &t->node[*link].next;
    return link;
}

static int salted(const Radix *t, uint64_t salt, int adapter)
{
    int at = t->node[0].child;
    while (at >= 0 && (t->node[at].salt != salt || t->node[at].adapter != adapter))
        at = t->node[at].next;
    return at;
}

/* The child whose tokens begin with this one, which comes at `end`. */
static int child_with(const Radix *t, int at, int32_t token)
{
    int64_t end = t->node[at].end;
    int child = t->node[at].child;
    while (child >= 0 && t->slot[t->node[child].any].token[end] != token)
        child = t->node[child].next;
    return child;
}

/* How far a sequence goes with the tokens of a node, from `from` on. */
static int64_t follow(const Radix *t, int at, const int32_t *token, int64_t from, int64_t n)
{
    const int32_t *own = t->slot[t->node[at].any].token;
    int64_t end = num_min(t->node[at].end, n);
    while (from < end && own[from] == token[from])
        from++;
    return from;
}

/* Cuts a node in two; returns the upper one. */
static int split(Radix *t, int at, int64_t end)
{
    int parent = t->node[at].parent;
    *link_of(t, at) = t->node[at].next;
    int upper = new_node(t, parent, end);
    t->node[upper].any = t->node[at].any;
    t->node[upper].slots = t->node[at].slots;
    t->node[upper].free = t->node[at].free;
    t->node[upper].child = at;
    t->node[at].parent = upper;
    t->node[at].next = -1;
    return upper;
}

/* Counts a slot in, or out, from its node up; who read its tokens reads others, now that it is in no list. */
static void count(Radix *t, int at, int slot, int sign)
{
    for (; at >= 0; at = t->node[at].parent) {
        RadixNode *n = &t->node[at];
        n->slots += sign;
        n->free += t->slot[slot].busy ? 0 : sign;
        if (sign > 0 && n->any < 0)
            n->any = slot;
        if (sign < 0 && n->any == slot)
            n->any = n->slot;
        for (int c = n->child; sign < 0 && n->any < 0 && c >= 0; c = t->node[c].next)
            n->any = t->node[c].any;
    }
}

/* A node that nothing ends or forks at is none. */
static void tidy(Radix *t, int at)
{
    while (at > 0 && t->node[at].slot < 0) {
        RadixNode *n = &t->node[at];
        int parent = n->parent, child = n->child;
        bool forks = child >= 0 && t->node[child].next >= 0;
        if (forks || (child >= 0 && parent == 0))
            return;
        int *link = link_of(t, at);
        *link = n->next;
        if (child >= 0) {
            t->node[child].parent = parent;
            t->node[child].next = *link;
            *link = child;
        }
        n->next = t->spare;
        t->spare = at;
        at = parent;
    }
}

void radix_set(Radix *t, int slot, uint64_t salt, int adapter, const int32_t *token, int64_t n)
{
    RadixSlot *r = &t->slot[slot];
    int at = r->node;
    if (at >= 0) {
        int *link = &t->node[at].slot;
        while (*link != slot)
            link = &t->slot[*link].next;
        *link = r->next;
        r->node = r->next = -1;
        count(t, at, slot, -1);
        tidy(t, at);
    }
    r->token = token;
    r->n = n;
    if (n < 1)
        return;
    at = salted(t, salt, adapter);
    if (at < 0) {
        at = new_node(t, 0, 0);
        t->node[at].salt = salt;
        t->node[at].adapter = adapter;
    }
    for (int64_t done = 0; done < n;) {
        int child = child_with(t, at, token[done]);
        if (child < 0) {
            at = new_node(t, at, n);
            break;
        }
        done = follow(t, child, token, done, n);
        at = done < t->node[child].end ? split(t, child, done) : child;
    }
    r->node = at;
    r->next = t->node[at].slot;
    t->node[at].slot = slot;
    count(t, at, slot, 1);
}

void radix_set_busy(Radix *t, int slot, bool busy)
{
    RadixSlot *r = &t->slot[slot];
    for (int at = r->node; at >= 0 && r->busy != busy; at = t->node[at].parent)
        t->node[at].free += busy ? -1 : 1;
    r->busy = busy;
}

/* A slot at or below a node, not busy if there is one. */
static int slot_below(const Radix *t, int at)
{
    if (t->node[at].free == 0)
        return t->node[at].any;
    for (;;) {
        int slot = t->node[at].slot, child = t->node[at].child;
        while (slot >= 0 && t->slot[slot].busy)
            slot = t->slot[slot].next;
        if (slot >= 0)
            return slot;
        while (t->node[child].free == 0)
            child = t->node[child].next;
        at = child;
    }
}

int64_t radix_find(const Radix *t, uint64_t salt, int adapter, const int32_t *token, int64_t n,
                   int *slot)
{
    int at = salted(t, salt, adapter), best = -1;
    int64_t done = 0;
    while (at >= 0 && done < n) {
        int child = child_with(t, at, token[done]);
        if (child < 0)
            break;
        best = child;
        done = follow(t, child, token, done, n);
        at = done < t->node[child].end ? -1 : child;
    }
    *slot = best < 0 ? -1 : slot_below(t, best);
    return done;
}

/* ---- the order of use ---- */

void radix_use(Radix *t, int slot)
{
    RadixSlot *r = &t->slot[slot];
    if (t->newest == slot)
        return;
    t->slot[r->newer].older = r->older;
    *(r->older >= 0 ? &t->slot[r->older].newer : &t->oldest) = r->newer;
    t->slot[t->newest].newer = slot;
    r->older = t->newest;
    r->newer = -1;
    t->newest = slot;
}

int radix_oldest(const Radix *t)
{
    int slot = t->oldest;
    while (slot >= 0 && t->slot[slot].busy)
        slot = t->slot[slot].newer;
    return slot;
}
