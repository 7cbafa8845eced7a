/* The simulator: steps of programs, of training by shapes and of serving keep to their bounds, faster parts pay, and the best meshes
 * are found. (test_rows.c holds it to what was measured.) */
#include "model_make.h"
#include "sim/plan.h"
#include "sim/search.h"
#include "sim/training.h"
#include "sim_support.h"

#include <math.h>

static SimServed serve(const SimServing *ask)
{
    cvn_err err = {0};
    SimServed served;
    must(sim_serve(ask, &served, &err), &err);
    return served;
}

/* ---- steps of programs ---- */

typedef struct Case {
    SimTask task;
    const char *mesh, *layout, *quantize;
    const char *preset; /* NULL: a small one */
} Case;

static Timed timed(const Chip *chip, const Case *c, bool blocking, double *memory)
{
    cvn_err err = {0};
    SimAnswer answer;
    SimAsk ask = {.mesh = c->mesh,
                  .layout = c->layout,
                  .task = c->task,
                  .batch = 8,
                  .seq = 256,
                  .context = 512,
                  .compute = CVN_BF16,
                  .chip = chip,
                  .device = backends[0],
                  .threads = 1,
                  .blocking = blocking};
    QuantScheme scheme;
    Model *model = model_preset(c->preset ? c->preset : "stories15m");
    must(quant_parse(c->quantize, &scheme, &err), &err);
    model_set_quant(model, scheme);
    ask.model = model;
    ask.train.clip = 1;
    ask.train.optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(ask.model).params);
    must(sim_plan(&ask, &answer, &err), &err);
    Timed t = answer.timed;
    *memory = answer.memory.total;
    double spent = 0;
    for (int b = 0; b < COST_BOUNDS; b++) {
        assert_true(t.seconds >= t.cost.bound[b] * (1 - 1e-9));
        spent += t.cost.spent[b];
    }
    assert_true(t.seconds > 0 && fabs(spent - t.seconds) < 1e-6 * t.seconds &&
                t.exposed <= t.in_flight * (1 + 1e-9));
    assert_true(answer.model_flops / (double)answer.rt.mesh.n_devices <=
                t.seconds * fmax(chip->bf16, chip->int8));
    sim_answer_free(&answer);
    t.span = NULL;
    return t;
}

static void steps_keep_to_their_bounds_and_faster_parts_pay(void **state)
{
    static const Case cases[] = {{SIM_DECODE, "", "2d", "none", NULL},
                                 {SIM_DECODE, "model=2", "tp", "none", NULL},
                                 {SIM_DECODE, "model=2", "tp", "int8", NULL},
                                 {SIM_PREFILL, "model=2", "tp", "none", NULL},
                                 {SIM_TRAIN, "data=4,model=2", "fsdp+tp", "none", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double memory;
        Chip chip = *chip_find("v5e");
        Timed t = timed(&chip, &cases[i], false, &memory);
        assert_true(t.seconds <= timed(&chip, &cases[i], true, &memory).seconds * (1 + 1e-9));
        for (int part = 0; part < 3; part++) {
            Chip faster = chip;
            *(part == 0 ? &faster.bandwidth : part == 1 ? &faster.bf16 : &faster.link) *= 2;
            assert_true(timed(&faster, &cases[i], false, &memory).seconds <=
                        t.seconds * (1 + 1e-9));
        }
    }
}

static void more_chips_hold_less_each_and_int8_weights_are_read_sooner(void **state)
{
    const Chip *chip = chip_find("v5e");
    double one, two, narrow;
    Timed wide = timed(chip, &(Case){SIM_DECODE, "", "tp", "none", "llama2-7b"}, false, &one);
    Timed int8 = timed(chip, &(Case){SIM_DECODE, "", "tp", "int8", "llama2-7b"}, false, &narrow);
    assert_true(int8.cost.bytes < wide.cost.bytes && narrow < one);
    Timed half =
        timed(chip, &(Case){SIM_DECODE, "model=2", "tp", "none", "llama2-7b"}, false, &two);
    assert_true(half.cost.bytes < wide.cost.bytes && two < one && half.cost.sent > 0);
}

/* ---- training by shapes ---- */

static SimTrained trained(const SimTraining *ask)
{
    cvn_err err = {0};
    SimTrained step;
    must(sim_train(ask, &step, &err), &err);
    return step;
}

/* Faster parts never make a step longer, and no step takes less than its operations do at the peak. */
static void training_keeps_to_its_bounds(void **state)
{
    for (size_t i = 0; i < chips_count(); i++)
        for (double tp = 1; tp <= 8; tp *= 2)
            for (double pp = 1; pp <= 4; pp *= 4) {
                Chip faster = *chip_at(i);
                CostModel chip, better;
                SimTraining ask = {.chip = &chip,
                                   .shape = shape_of("llama3.1-8b"),
                                   .chips = 64,
                                   .tp = tp,
                                   .pp = pp,
                                   .cp = 1,
                                   .sharded = true,
                                   .rows = 128,
                                   .seq = 4096,
                                   .micro = 1,
                                   .stack = sim_stack_at(0),
                                   .again = 1};
                cost_model(&chip, chip_at(i));
                SimTrained step = trained(&ask);
                double flops = sim_shape_flops(&ask.shape, 2048) * 128 * 4096;
                assert_true(step.seconds * 64 * chip.chip.bf16 >= flops);
                assert_true(step.exposed >= 0 && step.exposed < step.seconds);
                for (int part = 0; part < 3; part++) {
                    *(part == 0 ? &faster.bandwidth : part == 1 ? &faster.link : &faster.net) *= 2;
                    cost_model(&better, &faster);
                    ask.chip = &better;
                    assert_true(trained(&ask).seconds <= step.seconds * (1 + 1e-9));
                }
                ask.chip = &chip;
                ask.again = 0;
                assert_true(trained(&ask).seconds <= step.seconds * (1 + 1e-9));
                assert_true(trained(&ask).cost.flops < step.cost.flops);
            }
}

/* ---- serving ---- */

static void every_request_is_answered(void **state)
{
    static const char *const names[] = {"trtllm", "vllm", "sglang", "caravan"};
    CostModel chip;
    for (int i = 0; i < 4; i++) {
        SimServing ask = serving(&chip, "h100_sxm", 1);
        ask.engine = *sim_engine_find(names[i]);
        ask.requests = 33;
        SimServed served = serve(&ask);
        assert_true(fabs(served.tokens * served.seconds - 33 * 64) < 1e-6);
        assert_true(served.ttft > 0 && served.tpot > 0 &&
                    fabs(served.cost.seconds - served.seconds) < 1e-9 * served.seconds);
        assert_true(served.cost.flops / served.seconds < chip.chip.bf16);
        assert_true(served.cost.bytes / served.seconds < chip.chip.bandwidth);
    }
}

static void company_and_length_take_time(void **state)
{
    CostModel chip;
    SimServing ask = serving(&chip, "h200_sxm", 1);
    SimServed few = serve(&ask), more;
    ask.in_flight = 32;
    more = serve(&ask);
    assert_true(more.tpot > few.tpot && more.tokens > few.tokens);
    ask.in_flight = 8;
    ask.input = 4096;
    more = serve(&ask);
    assert_true(more.ttft > few.ttft && more.tpot > few.tpot);
    /* Prompts that came before are not read again. */
    ask.prompts = 4;
    assert_true(serve(&ask).ttft < more.ttft);
}

/* Requests that come by themselves: rarely, each is alone; more often, they wait for one another; all are answered. */
static void requests_come_by_themselves(void **state)
{
    CostModel chip;
    SimServing ask = serving(&chip, "h100_sxm", 1);
    double before = 0;
    for (double rate = 0.01; rate < 2000; rate *= 10) {
        ask.rate = rate;
        ask.requests = 200;
        SimServed served = serve(&ask);
        assert_true(fabs(served.tokens * served.seconds - 200 * 64) < 1e-6);
        assert_true(served.ttft >= before * 0.999 && served.seconds > 100 / rate);
        if (rate < 1)
            assert_true(served.ttft < 0.1);
        before = served.ttft;
    }
    assert_true(before > 0.1);
}

/* A cache with room for a few requests: they wait, are put off and begin again, and all end. */
static void a_full_cache_makes_requests_wait(void **state)
{
    CostModel chip;
    for (int whole = 0; whole < 2; whole++) {
        SimServing ask = serving(&chip, "h100_sxm", 1);
        ask.engine.whole = whole;
        ask.input = 1000;
        ask.output = 600;
        ask.in_flight = 24;
        ask.requests = 60;
        SimServed roomy = serve(&ask);
        double token = 2 * 2 * 128 * 8 * 32, room = 5 * 1600 * token;
        chip.chip.memory -= (roomy.room - room) / ask.engine.fraction;
        SimServed tight = serve(&ask);
        assert_true(fabs(tight.room - room) < 1e-3 * room && tight.ttft > 2 * roomy.ttft);
        assert_true(fabs(tight.tokens * tight.seconds - 60 * 600) < 1e-3);
        chip.chip.memory = 17e9;
        cvn_err err = {0};
        assert_int_equal(sim_serve(&ask, &tight, &err), CVN_EINVAL);
    }
}

/* ---- meshes ---- */

/* The best ways fit, are in order, take what planning them takes, and are as good as any that was tried by hand. */
static void the_best_meshes_are_found(void **state)
{
    cvn_err err = {0};
    Chip chip = *chip_find("v5e");
    SearchAsk ask = {.goal = SEARCH_LATENCY,
                     .chips = 4,
                     .remat = true,
                     .ask = {.task = SIM_TRAIN,
                             .batch = 8,
                             .seq = 128,
                             .context = 128,
                             .compute = CVN_BF16,
                             .chip = &chip,
                             .device = backends[0],
                             .threads = 1}};
    SearchFound found;
    ask.ask.model = model_preset("stories15m");
    assert_int_equal(sim_search(&ask, &found, &err), CVN_OK);
    assert_true(found.n == SEARCH_BEST && found.fit == found.tried && found.tried == 15);
    for (int i = 0; i < found.n; i++) {
        SimAsk one = ask.ask;
        SimAnswer a;
        const SearchWay *w = &found.way[i];
        one.mesh = w->mesh;
        one.layout = w->layout;
        one.train.remat = w->remat;
        assert_int_equal(sim_plan(&one, &a, &err), CVN_OK);
        assert_true(w->seconds == a.timed.seconds && w->memory == a.memory.total);
        assert_true(w->memory <= chip.memory && w->seconds >= found.way[0].seconds);
        sim_answer_free(&a);
    }
    SimAsk hand = ask.ask;
    SimAnswer a;
    hand.mesh = "data=4";
    hand.layout = "fsdp";
    hand.train.remat = REMAT_NONE;
    assert_int_equal(sim_plan(&hand, &a, &err), CVN_OK);
    assert_true(found.way[0].seconds <= a.timed.seconds);
    sim_answer_free(&a);
    /* Too little memory for anything. */
    chip.memory = 1e6;
    assert_int_equal(sim_search(&ask, &found, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "none of 15 shardings fits"));
}

/* Of six heads, three chips have two each, where two have too little memory. */
static void as_few_chips_as_do_need_not_be_a_power_of_two(void **state)
{
    cvn_err err = {0};
    Chip chip = *chip_find("v5e");
    double memory[2];
    static const char *const meshes[] = {"model=2", "model=3"};
    SearchAsk ask = {.goal = SEARCH_COST,
                     .ask = {.task = SIM_DECODE,
                             .batch = 1,
                             .seq = 1,
                             .context = 256,
                             .compute = CVN_BF16,
                             .chip = &chip,
                             .layout = "tp",
                             .device = backends[0],
                             .threads = 1}};
    SearchFound found;
    ask.ask.model = model_preset("stories15m");
    for (int i = 0; i < 2; i++) {
        SimAsk one = ask.ask;
        SimAnswer a;
        one.mesh = meshes[i];
        must(sim_plan(&one, &a, &err), &err);
        memory[i] = a.memory.total;
        sim_answer_free(&a);
    }
    assert_true(memory[1] < memory[0]);
    chip.memory = (memory[0] + memory[1]) / 2;
    must(sim_search(&ask, &found, &err), &err);
    assert_true(found.n > 0 && found.way[0].chips == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_keep_to_their_bounds_and_faster_parts_pay),
        cmocka_unit_test(more_chips_hold_less_each_and_int8_weights_are_read_sooner),
        cmocka_unit_test(every_request_is_answered),
        cmocka_unit_test(company_and_length_take_time),
        cmocka_unit_test(requests_come_by_themselves),
        cmocka_unit_test(a_full_cache_makes_requests_wait),
        cmocka_unit_test(the_best_meshes_are_found),
        cmocka_unit_test(as_few_chips_as_do_need_not_be_a_power_of_two),
        cmocka_unit_test(training_keeps_to_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
