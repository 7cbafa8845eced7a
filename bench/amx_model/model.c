/* The caches and the clock of model.h. Compiled without vector registers: it is called between any two instructions. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

/* Written by the instrumented code before it calls. */
char *model_at;
const char *model_where; /* the function's name */
uint64_t model_kept, model_stride;
uint32_t model_above[1025];
uint32_t model_bytes, model_count, model_vectors, model_tile;

int model_overlap;

/* Picoseconds, of one core. A line of a tile is a sixteenth of its load: 2.6, 6.2 and 35 ns. */
enum {
    LINE = 64,
    L1_PS = 162,
    L2_PS = 387,
    L3_PS = 2187,
    MEMORY_PS = 64 * 1000 / 15, /* 15 GB/s */
    MEMORY_LATENCY = 100000,
    L3_LATENCY = 35000,
    STORE_PS = 270,      /* a line per cycle */
    VECTOR_PS = 135,     /* two per cycle */
    INSTRUCTION_PS = 68, /* four */
    CHAIN_PS = 15900,    /* 52 cycles from product to product of one sum */
    WINDOW = 512,        /* micro-operations */
    TILE_OPERATIONS = 16
};

/* ---- caches ---- */

/* Lines of each set, the last used first: number * 2 + whether it was written, and when it is there. */
typedef struct Cache {
    uint64_t sets;
    int ways;
    uint64_t *line;
    int64_t *ready;
} Cache;

static Cache l1 = {.sets = 64, .ways = 12}, l2 = {.sets = 2048, .ways = 16}, l3 = {.ways = 16};

static void cache_empty(Cache *c)
{
    free(c->line);
    free(c->ready);
    c->line = calloc(c->sets * (uint64_t)c->ways, sizeof *c->line);
    c->ready = calloc(c->sets * (uint64_t)c->ways, sizeof *c->ready);
    if (!c->line || !c->ready)
        abort();
}

/* Puts what is at `way` of a set first. */
static uint64_t *cache_first(Cache *c, uint64_t set, int way, uint64_t entry, int64_t ready)
{
    uint64_t *line = c->line + set * (uint64_t)c->ways;
    int64_t *when = c->ready + set * (uint64_t)c->ways;
    for (; way > 0; way--) {
        line[way] = line[way - 1];
        when[way] = when[way - 1];
    }
    line[0] = entry;
    when[0] = ready;
    return line;
}

/* Whether a line is there; then it is the last used one, and *ready says since when. */
static int cache_find(Cache *c, uint64_t number, int write, int64_t *ready)
{
    uint64_t set = number % c->sets, *line = c->line + set * (uint64_t)c->ways;
    for (int way = 0; way < c->ways; way++)
        if (line[way] >> 1 == number) {
            *ready = c->ready[set * (uint64_t)c->ways + (uint64_t)way];
            cache_first(c, set, way, line[way] | (uint64_t)write, *ready);
            return 1;
        }
    return 0;
}

/* Returns whether what had to leave was written to. */
static int cache_add(Cache *c, uint64_t number, int write, int64_t ready)
{
    uint64_t set = number % c->sets;
    int last = c->ways - 1, dirty = c->line[set * (uint64_t)c->ways + (uint64_t)last] & 1;
    cache_first(c, set, last, number << 1 | (uint64_t)write, ready);
    return dirty;
}

/* ---- the window and the clock ---- */

enum { TILES = 8 };

static struct {
    int64_t cost[COST_COUNT], chain[TILES];
    int64_t count, operations;
} window;

static ModelTimes times;
static int64_t now,
    channel; /* when the window began; when memory will have brought what was asked for */

/* The sum of model.h for two costs, without floating point. */
static int64_t combine(int64_t a, int64_t b)
{
    int64_t high = a > b ? a : b, low = a > b ? b : a;
    return high ? high + (high * model_above[low * 1024 / high] >> 20) : 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What the loads of a window take. Either one after the other, or lines come into L1 while others are loaded from it: they
   then take all of their time, and not only what they have more than a line in L1. */
static int64_t load_time(const int64_t *cost)
{
    int64_t behind = cost[COST_MEMORY] + cost[COST_LATE];
    if (!model_overlap)
        return cost[COST_L1] + cost[COST_L2] + cost[COST_L3] + behind;
    behind += cost[COST_L2] * L2_PS / (L2_PS - L1_PS) + cost[COST_L3] * L3_PS / (L3_PS - L1_PS);
    return combine(cost[COST_L1], behind);
}

static void end_window(void)
{
    int64_t *cost = window.cost, products = cost[COST_PRODUCTS], chain = 0;
    int64_t loads = load_time(cost);
    for (int i = 0; i < TILES; i++)
        chain = larger(chain, window.chain[i] * CHAIN_PS);
    cost[COST_VECTORS] = larger(cost[COST_VECTORS], window.count * INSTRUCTION_PS);
    int64_t time = combine(combine(larger(products, chain), loads),
                           combine(cost[COST_STORES], cost[COST_VECTORS]));
    cost[COST_PRODUCTS] = larger(chain - products, 0); /* what waits for sums */
    int64_t weight = 0;
    for (int i = 0; i < COST_COUNT; i++)
        weight += cost[i];
    for (int i = 0; i < COST_COUNT && weight; i++)
        times.lost[i] += (time - products) * cost[i] / weight;
    times.picoseconds += time;
    now += time;
    memset(&window, 0, sizeof window);
}

static void add(Cost kind, int64_t picoseconds)
{
    int at = 0;
    window.cost[kind] += picoseconds;
    while (at < MODEL_FUNCTIONS - 1 && times.name[at] && times.name[at] != model_where)
        at++;
    times.name[at] = model_where;
    times.function[at][kind] += picoseconds;
}

/* The instructions since the last call. */
static void step(int64_t operations)
{
    window.count += model_count;
    add(COST_VECTORS, model_vectors * VECTOR_PS);
    window.operations += model_count + operations;
    if (window.operations >= WINDOW)
        end_window();
}

/* ---- lines ---- */

/* Brings a line from behind L2; returns when it is there. */
static int64_t bring(uint64_t number, int write, int *far)
{
    int64_t ready;
    *far = !cache_find(&l3, number, write, &ready);
    if (!*far)
        return now + L3_LATENCY;
    channel = larger(channel, now) + MEMORY_PS;
    times.bytes += LINE;
    if (cache_add(&l3, number, write, 0)) {
        channel += MEMORY_PS;
        times.bytes += LINE;
    }
    return channel + MEMORY_LATENCY;
}

/* A line that is needed: what reading it costs beyond L1. */
static void need(uint64_t number, int write)
{
    int64_t ready, late;
    if (cache_find(&l1, number, write, &ready)) {
        if ((late = ready - now - window.cost[COST_LATE]) > 0)
            add(COST_LATE, late);
        return;
    }
    if (cache_find(&l2, number, write, &ready)) {
        cache_add(&l1, number, write, 0);
        add(COST_L2, L2_PS - L1_PS);
        if ((late = ready - now - window.cost[COST_LATE]) > 0)
            add(COST_LATE, late);
        return;
    }
    int far;
    bring(number, write, &far);
    add(far ? COST_MEMORY : COST_L3, (far ? MEMORY_PS : L3_PS) - L1_PS);
    cache_add(&l2, number, write, 0);
    cache_add(&l1, number, write, 0);
}

static void ask(uint64_t number, int near)
{
    int64_t ready = 0;
    int far;
    if (cache_find(&l1, number, 0, &ready))
        return;
    if (!cache_find(&l2, number, 0, &ready)) {
        ready = bring(number, 0, &far);
        cache_add(&l2, number, 0, ready);
    }
    if (near)
        cache_add(&l1, number, 0, ready);
}

static void touch(const char *at, uint64_t bytes, int write)
{
    for (uint64_t n = (uint64_t)at / LINE; n <= ((uint64_t)at + bytes - 1) / LINE; n++) {
        add(write ? COST_STORES : COST_L1, write ? STORE_PS : L1_PS);
        need(n, write);
    }
}

/* ---- what the instrumented code calls ---- */

void on_read(void), on_write(void), on_fetch(void), on_fetch_near(void), on_load_tile(void),
    on_store_tile(void), on_product(void), on_step(void);

void on_step(void)
{
    step(0);
}

void on_read(void)
{
    touch(model_at, model_bytes, 0);
    step(0);
}

void on_write(void)
{
    touch(model_at, model_bytes, 1);
    step(0);
}

void on_fetch(void)
{
    ask((uint64_t)model_at / LINE, 0);
    add(COST_L1, L1_PS);
    step(0);
}

void on_fetch_near(void)
{
    ask((uint64_t)model_at / LINE, 1);
    add(COST_L1, L1_PS);
    step(0);
}

void on_load_tile(void)
{
    for (int r = 0; r < 16; r++)
        touch(model_at + (uint64_t)r * model_stride, LINE, 0);
    step(TILE_OPERATIONS);
}

void on_store_tile(void)
{
    for (int r = 0; r < 16; r++)
        touch(model_at + (uint64_t)r * model_stride, LINE, 1);
    step(TILE_OPERATIONS);
}

void on_product(void)
{
    window.chain[model_tile]++;
    times.products++;
    add(COST_PRODUCTS, PRODUCT_PS);
    step(0);
}

static void move(const void *to, const void *from, size_t n, const char *where)
{
    model_where = where;
    model_count = 10 + (uint32_t)(n / 32);
    model_vectors = 0;
    if (n && from)
        touch(from, n, 0);
    if (n)
        touch(to, n, 1);
    step(0);
}

void *model_memcpy(void *to, const void *from, size_t n);
void *model_memmove(void *to, const void *from, size_t n);
void *model_memset(void *to, int c, size_t n);

void *model_memcpy(void *to, const void *from, size_t n)
{
    move(to, from, n, "memcpy");
    return memcpy(to, from, n);
}

void *model_memmove(void *to, const void *from, size_t n)
{
    move(to, from, n, "memcpy");
    return memmove(to, from, n);
}

void *model_memset(void *to, int c, size_t n)
{
    move(to, NULL, n, "memset");
    return memset(to, c, n);
}

/* Keeps what a call may change. */
#define ENTRY(name)                                                                                \
    __asm__(".globl model_" #name "\nmodel_" #name ":\n"                                           \
            "pushfq\npush %rax\npush %rcx\npush %rdx\npush %rsi\npush %rdi\npush %r8\npush %r9\n"  \
            "push %r10\npush %r11\npush %rbp\nmov %rsp, %rbp\nand $-16, %rsp\ncld\n"               \
            "call on_" #name "\n"                                                                  \
            "mov %rbp, %rsp\npop %rbp\npop %r11\npop %r10\npop %r9\npop %r8\npop %rdi\npop %rsi\n" \
            "pop %rdx\npop %rcx\npop %rax\npopfq\nret\n")

ENTRY(step);
ENTRY(read);
ENTRY(write);
ENTRY(fetch);
ENTRY(fetch_near);
ENTRY(load_tile);
ENTRY(store_tile);
ENTRY(product);

void model_warm(const void *at, size_t bytes)
{
    int64_t ready;
    for (uint64_t n = (uint64_t)at / LINE; n < ((uint64_t)at + bytes) / LINE; n++)
        if (!cache_find(&l3, n, 0, &ready))
            cache_add(&l3, n, 0, 0);
}

void model_begin(int64_t l3_bytes, int keep)
{
    if (!keep) {
        l3.sets = (uint64_t)l3_bytes / LINE / (uint64_t)l3.ways;
        cache_empty(&l1);
        cache_empty(&l2);
        cache_empty(&l3);
    }
    now = channel = 0;
    memset(&window, 0, sizeof window);
    memset(&times, 0, sizeof times);
}

ModelTimes model_end(void)
{
    end_window();
    return times;
}
