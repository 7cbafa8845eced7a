/* Protected calls: what is given up, what is released, and what the error says. */
#include "base/arena.h"
#include "base/strbuf.h"
#include "caravan/graph.h"
#include "unit.h"

enum { MOST = 8 };

/* Which things were released, in order. */
typedef struct Things {
    int released[MOST], n;
} Things;

typedef struct Thing {
    Things *all;
    int name;
} Thing;

static void release(void *what)
{
    const Thing *thing = what;
    thing->all->released[thing->all->n++] = thing->name;
}

/* More than any machine has. */
static void ask_too_much(Arena *arena)
{
    arena_alloc(arena, SIZE_MAX / 2);
    fail_msg("an arena gave more than there is");
}

typedef struct Try {
    Arena *arena;
    Things things;
    int inner; /* code of a protected call inside */
    cvn_err inner_err;
    cvn_graph *graph;
} Try;

static int fill(void *of, cvn_err *err)
{
    Try *t = of;
    (void)err;
    arena_string(t->arena, "this fits");
    return CVN_OK;
}

static int overfill(void *of, cvn_err *err)
{
    Try *t = of;
    (void)err;
    ask_too_much(t->arena);
    return CVN_OK;
}

static void what_cannot_be_had_is_an_error_that_says_so(void **state)
{
    cvn_err err = {0};
    Arena arena;
    assert_int_equal(arena_init(&arena, &err), CVN_OK);
    Try t = {.arena = &arena};
    assert_int_equal(protect(fill, &t, "filling an arena", &err), CVN_OK);
    assert_int_equal(protect(overfill, &t, "filling an arena", &err), CVN_EMEM);
    assert_int_equal(err.code, CVN_EMEM);
    assert_non_null(strstr(err.message, "out of memory while filling an arena"));
    assert_int_equal(protect(overfill, &t, "filling an arena", NULL), CVN_EMEM);
    assert_string_equal(arena_string(&arena, "as good as before"), "as good as before");
    arena_free(&arena);
}

/* Holds 1 to 4: releases 1, keeps 2, and gives up with 3 and 4. */
static int hold_some(void *of, cvn_err *err)
{
    Try *t = of;
    Thing thing[4];
    Cleanup cleanup[4];
    (void)err;
    for (int i = 0; i < 4; i++) {
        thing[i] = (Thing){&t->things, i + 1};
        cleanup_push(&cleanup[i], release, &thing[i]);
    }
    cleanup_run(&cleanup[0]);
    cleanup_cancel(&cleanup[1]);
    ask_too_much(t->arena);
    return CVN_OK;
}

static void held_things_are_released_last_first(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    Try t = {.arena = &arena};
    assert_int_equal(protect(hold_some, &t, "holding", NULL), CVN_EMEM);
    assert_int_equal(t.things.n, 3);
    assert_int_equal(t.things.released[0], 1);
    assert_int_equal(t.things.released[1], 4);
    assert_int_equal(t.things.released[2], 3);
    arena_free(&arena);
}

/* The inner call gives up; what the outer one holds stays. */
static int nest(void *of, cvn_err *err)
{
    Try *t = of;
    Thing thing = {&t->things, 7};
    Cleanup cleanup;
    Arena own;
    if (arena_begin(&own, err))
        return err->code;
    cleanup_push(&cleanup, release, &thing);
    t->inner = protect(hold_some, t, "the inner call", &t->inner_err);
    assert_int_equal(t->things.n, 3);
    assert_string_equal(arena_string(&own, "here still"), "here still");
    cleanup_run(&cleanup);
    arena_free(&own);
    return CVN_OK;
}

static void the_innermost_call_ends_and_no_other(void **state)
{
    cvn_err err = {0};
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    Try t = {.arena = &arena};
    assert_int_equal(protect(nest, &t, "the outer call", &err), CVN_OK);
    assert_int_equal(t.inner, CVN_EMEM);
    assert_non_null(strstr(t.inner_err.message, "the inner call"));
    assert_int_equal(t.things.n, 4);
    assert_int_equal(t.things.released[3], 7);
    arena_free(&arena);
}

/* A local arena, text of the heap, and a graph: AddressSanitizer sees what is left of them. */
static int make_and_give_up(void *of, cvn_err *err)
{
    Try *t = of;
    StrBuf text = {0};
    Cleanup cleanup;
    Arena own;
    if (arena_begin(&own, err))
        return err->code;
    cleanup_push(&cleanup, strbuf_release, &text);
    strbuf_puts(&text, "more than fits into a pointer");
    assert_non_null(cvn_graph_new("g", err));
    ask_too_much(t->arena);
    return CVN_OK;
}

static int make_and_return(void *of, cvn_err *err)
{
    Try *t = of;
    t->graph = cvn_graph_new("g", err);
    return CVN_OK;
}

static void graphs_that_came_to_nothing_are_freed_and_those_returned_stay(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    Try t = {.arena = &arena};
    assert_int_equal(protect(make_and_give_up, &t, "making", NULL), CVN_EMEM);
    assert_int_equal(protect(make_and_return, &t, "making", NULL), CVN_OK);
    assert_int_equal(protect(overfill, &t, "making more", NULL), CVN_EMEM);
    cvn_parameter(t.graph, "x", CVN_TYPE(CVN_F32, 4));
    assert_int_equal(cvn_graph_check(t.graph, NULL), CVN_OK);
    cvn_graph_free(t.graph);
    arena_free(&arena);
}

/* Nobody protects who builds a graph by the public functions: the graph has the error. */
static void a_graph_without_memory_has_an_error_as_after_any_mistake(void **state)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("g", &err);
    cvn_type huge = CVN_TYPE(CVN_I8, (int64_t)1 << 57);
    cvn_value *x = cvn_constant(g, huge, "");
    cvn_output(g, cvn_add(g, x, x));
    assert_int_equal(cvn_graph_check(g, &err), CVN_EMEM);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_had_is_an_error_that_says_so),
        cmocka_unit_test(held_things_are_released_last_first),
        cmocka_unit_test(the_innermost_call_ends_and_no_other),
        cmocka_unit_test(graphs_that_came_to_nothing_are_freed_and_those_returned_stay),
        cmocka_unit_test(a_graph_without_memory_has_an_error_as_after_any_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
