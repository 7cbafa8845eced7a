/* Foresight: what is simulated keeps to the bounds that physics sets, and near to what was measured. */
#include "base/json_file.h"
#include "model/presets.h"
#include "model_make.h"
#include "sim/plan.h"
#include "sim/report.h"
#include "sim/rows.h"
#include "sim/search.h"
#include "sim/training.h"
#include "unit.h"

#include <math.h>
#include <unistd.h>

static SimShape shape_of(const char *preset)
{
    cvn_err err = {0};
    ModelShape shape;
    must(preset_shape(preset, &shape, &err), &err);
    return sim_shape_of(&shape);
}

static SimServing serving(CostModel *chip, const char *name, int tp)
{
    cost_model(chip, chip_find(name));
    return (SimServing){.chip = chip,
                        .shape = shape_of("llama3.1-8b"),
                        .engine = *sim_engine_find("vllm"),
                        .tp = tp,
                        .pp = 1,
                        .in_flight = 8,
                        .input = 512,
                        .output = 64};
}

static SimServed serve(const SimServing *ask)
{
    cvn_err err = {0};
    SimServed served;
    must(sim_serve(ask, &served, &err), &err);
    return served;
}

/* ---- chips ---- */

static void every_chip_says_where_its_numbers_are_from(void **state)
{
    for (size_t i = 0; i < chips_count(); i++) {
        const Chip *c = chip_at(i);
        assert_true(c->source && c->about && c->bf16 > 0 && c->memory > 0 && c->bandwidth > 0 &&
                    c->domain >= 1);
        assert_true(c->net > 0 && c->link > 0);
        assert_ptr_equal(chip_find(c->name), c);
    }
}

/* All of on-demand lists of large clouds, each with its month. */
static void every_price_is_of_the_same_kind_of_list(void **state)
{
    static const char *const clouds[] = {"Google Cloud", "AWS", "Azure"};
    for (size_t i = 0; i < chips_count(); i++) {
        const Chip *c = chip_at(i);
        const char *comma = c->priced ? strrchr(c->priced, ',') : NULL;
        int year, month, listed = 0;
        assert_true((c->price > 0) == (c->priced != NULL));
        if (!c->priced)
            continue;
        for (int k = 0; k < 3; k++)
            listed += strncmp(c->priced, clouds[k], strlen(clouds[k])) == 0;
        assert_true(listed == 1 && strstr(c->priced, ", on demand, ") && comma);
        assert_int_equal(sscanf(comma, ", %d-%d", &year, &month), 2);
        assert_true(year >= 2024 && month >= 1 && month <= 12);
        /* Who commits for three years pays less, in the same place and month. */
        assert_true((c->committed > 0) == (c->commitment != NULL) && c->committed < c->price);
        if (c->commitment) {
            const char *place = strstr(c->commitment, ", three years, ");
            assert_true(place &&
                        strcmp(place + strlen(", three years"),
                               strstr(c->priced, ", on demand") + strlen(", on demand")) == 0);
        }
    }
}

static void shares_of_peaks_are_shares(void **state)
{
    for (size_t i = 0; i < chips_count(); i++) {
        ChipFit fit;
        chip_fit(chip_at(i), &fit);
        for (int t = 0; t < CHIP_TYPES; t++)
            assert_true(fit.product[t].compute > 0 && fit.product[t].compute <= 1 &&
                        fit.product[t].memory > 0 && fit.product[t].memory <= 1 &&
                        fit.product[t].sharp >= 1);
        for (int narrow = 0; narrow < 2; narrow++)
            assert_true(fit.decode_memory[narrow] > 0 && fit.decode_memory[narrow] <= 1);
        assert_true(fit.prefill_compute > 0 && fit.prefill_compute <= 1);
    }
}

static int open_text(const char *text, Chip *chip, json_t **held, cvn_err *err)
{
    char path[] = "/tmp/caravan-chip-XXXXXX.json";
    int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    int code = chip_open(path, chip, held, err);
    unlink(path);
    return code;
}

static void a_chip_of_a_file_is_that_chip(void **state)
{
    static const char *const refused[] = {"{}",
                                          "{\"bf16\": 1e12}",
                                          "{\"like\": \"abacus\"}",
                                          "{\"like\": \"v5e\", \"torus\": 4}",
                                          "{\"like\": \"v5e\", \"memory\": -1}",
                                          "{\"like\": \"v5e\", \"colour\": 1}",
                                          "{\"like\": \"v5e\", \"name\": 3}",
                                          "{\"like\": \"v5e\", \"domain\": 0}"};
    Chip chip;
    json_t *held;
    cvn_err err = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_not_equal(open_text(refused[i], &chip, &held, &err), CVN_OK);
        json_decref(held);
    }
    assert_int_equal(
        open_text("{\"name\": \"h100-pcie\", \"like\": \"h100_sxm\", \"bandwidth\": 2e12}", &chip,
                  &held, &err),
        CVN_OK);
    assert_string_equal(chip.name, "h100-pcie");
    assert_true(chip.bandwidth == 2e12 && chip.bf16 == chip_find("h100_sxm")->bf16);
    ChipFit fit;
    chip_fit(&chip, &fit);
    assert_true(fit.measured);
    json_decref(held);
}

/* Numbers, texts, and the fit, of every chip; and the same chip under another name is as fast. */
static void what_is_printed_of_a_chip_is_that_chip_when_it_is_read(void **state)
{
    for (size_t i = 0; i < chips_count(); i++)
        for (int renamed = 0; renamed < 2; renamed++) {
            cvn_err err = {0};
            Chip chip;
            json_t *held, *o = chip_json(chip_at(i));
            ChipFit here, there;
            if (renamed) {
                if (!json_object_get(o, "like"))
                    json_object_set_new(o, "like", json_string(chip_at(i)->name));
                json_object_set_new(o, "name", json_string("mine"));
            }
            char *text = json_dumps(o, 0);
            must(open_text(text, &chip, &held, &err), &err);
            json_t *again = chip_json(&chip);
            if (!renamed)
                assert_true(json_equal(o, again));
            chip_fit(chip_at(i), &here);
            chip_fit(&chip, &there);
            assert_memory_equal(here.product, there.product, sizeof here.product);
            assert_memory_equal(here.reduce, there.reduce, sizeof here.reduce);
            assert_true(here.sustained == there.sustained && here.measured == there.measured &&
                        here.prefill_compute == there.prefill_compute &&
                        here.decode_memory[0] == there.decode_memory[0]);
            free(text);
            json_decref(o);
            json_decref(again);
            json_decref(held);
        }
}

/* ---- costs ---- */

static void no_operation_beats_its_bounds(void **state)
{
    for (size_t i = 0; i < chips_count(); i++) {
        CostModel chip;
        cost_model(&chip, chip_at(i));
        for (double m = 1; m < 20000; m *= 3.7) {
            Cost c[4] = {cost_product(&chip, (ChipType)((int)m % CHIP_TYPES), m, 4096, 8192),
                         cost_decode(&chip, m * 1e6, (int)m % 2),
                         cost_prefill(&chip, m, 8, m, 128, 1),
                         cost_collective(&chip, COST_ALL_REDUCE, 8, 1, m * 8192)};
            for (int k = 0; k < 4; k++) {
                double spent = 0;
                for (int b = 0; b < COST_BOUNDS; b++) {
                    assert_true(c[k].seconds >= c[k].bound[b] * (1 - 1e-9) && c[k].spent[b] >= 0);
                    spent += c[k].spent[b];
                }
                assert_true(fabs(spent - c[k].seconds) <= 1e-9 * c[k].seconds);
            }
        }
    }
}

static void faster_parts_are_never_slower(void **state)
{
    for (size_t i = 0; i < chips_count(); i++) {
        CostModel chip, faster;
        cost_model(&chip, chip_at(i));
        SimServing ask = serving(&chip, chip_at(i)->name, 2);
        for (int part = 0; part < 3; part++) {
            faster = chip;
            *(part == 0   ? &faster.chip.bandwidth
              : part == 1 ? &faster.chip.bf16
                          : &faster.chip.link) *= 1.5;
            SimServing with = ask;
            with.chip = &faster;
            for (double m = 1; m < 10000; m *= 7)
                assert_true(sim_step(&with, m, 1000 * m, m, 1, m / 2).seconds <=
                            sim_step(&ask, m, 1000 * m, m, 1, m / 2).seconds * (1 + 1e-9));
        }
    }
}

static void groups_beyond_a_domain_take_longer(void **state)
{
    CostModel chip;
    cost_model(&chip, chip_find("h100_sxm"));
    double inside = cost_collective(&chip, COST_ALL_REDUCE, 8, 1, 1e8).seconds;
    assert_true(cost_collective(&chip, COST_ALL_REDUCE, 16, 1, 1e8).seconds > inside);
    assert_true(cost_collective(&chip, COST_ALL_REDUCE, 8, 8, 1e8).seconds > inside);
    assert_true(cost_collective(&chip, COST_ALL_REDUCE, 1, 1, 1e8).seconds == 0);
}

/* A step of one row reads its weights and waits for launches: arithmetic is no part of its time, whatever its numbers are. */
static void one_row_is_bound_by_memory_or_launches_on_every_chip(void **state)
{
    for (size_t i = 0; i < chips_count(); i++)
        for (int type = 0; type < CHIP_TYPES; type++) {
            CostModel chip;
            SimServing ask = serving(&chip, chip_at(i)->name, 1);
            ask.type = (ChipType)type;
            if (chip_peak(&chip.chip, ask.type) <= 0)
                continue;
            Cost c = sim_step(&ask, 1, 1024, 0, 0, 0);
            assert_true(c.spent[COST_COMPUTE] < 0.01 * c.seconds);
            /* and narrower weights are read sooner. */
            if (chip_type_bytes[type] <= 1) {
                ask.type = CHIP_BF16;
                assert_true(c.seconds < sim_step(&ask, 1, 1024, 0, 0, 0).seconds);
            }
        }
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

/* ---- tables ---- */

static void tables_are_read_as_the_rules_say(void **state)
{
    static const char text[] = "id,model,n\r\na,\"x, \"\"y\"\"\nz\",1.5\n\nb\nc,,q\n";
    static const char *const refused[] = {"a,b\n1,2,3\n", "a\n\"x", "a\n\"x\"y\n"};
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    assert_int_equal(arena_init(&arena, &err), CVN_OK);
    assert_int_equal(csv_parse(&csv, "t", text, sizeof text - 1, &arena, &err), CVN_OK);
    assert_int_equal(csv.columns, 3);
    assert_int_equal(csv.rows, 3);
    assert_string_equal(csv_at(&csv, 0, "model"), "x, \"y\"\nz");
    assert_true(csv_number(&csv, 0, "n", 7) == 1.5 && csv_number(&csv, 1, "n", 7) == 7 &&
                isnan(csv_number(&csv, 2, "n", 7)));
    assert_string_equal(csv_at(&csv, 1, "id"), "b");
    assert_string_equal(csv_at(&csv, 1, "nothing"), "");
    assert_true(csv_has(&csv, "n") && !csv_has(&csv, "nothing"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(csv_parse(&csv, "t", refused[i], strlen(refused[i]), &arena, &err),
                         CVN_EFORMAT);
    arena_free(&arena);
}

/* The first row of each table is answered, and no other. */
static void what_cannot_be_answered_is_refused(void **state)
{
    static const char serving[] =
        "id,ask,model,chip,precision,engine,input,output,batch,tp,dim,missing\n"
        "1,serve,llama3.1-8b,h100_sxm,,vllm,1024,128,8,2,,\n"
        "2,serve,Nobody/Knows,h100_sxm,,vllm,1024,128,8,2,,\n"
        "3,serve,llama3.1-8b,abacus,,vllm,1024,128,8,2,,\n"
        "4,serve,llama3.1-8b,h100_sxm,fp4,vllm,1024,128,8,2,,\n"
        "5,serve,llama3.1-8b,h100_sxm,,vllm,1024,128,-3,2,,\n"
        "6,serve,llama3.1-8b,h100_sxm,,other,1024,128,8,2,,\n"
        "7,serve,llama3.1-8b,h100_sxm,,vllm,1e99,128,8,2,,\n"
        "8,serve,llama3.1-8b,h100_sxm,,vllm,,128,8,2,,\n"
        "9,guess,llama3.1-8b,h100_sxm,,vllm,1024,128,8,2,,\n"
        "10,serve,llama3.1-8b,h100_sxm,int3,vllm,1024,128,8,2,,\n"
        "11,serve,llama3.1-8b,h100_sxm,,vllm,1024,128,8,64,,\n"
        "12,serve,llama3.1-8b,h100_sxm,,vllm,1024,128,eight,2,,\n"
        "13,serve,mine,h100_sxm,,vllm,1024,128,8,2,4096,\n"
        "14,serve,llama3.1-8b,h100_sxm,,vllm,1024,128,8,2,,its prompts are not printed\n"
        "15,train,llama3.1-8b,h100_sxm,,vllm,1024,128,8,2,,\n";
    static const char *const headers[] = {"id,ask,model\n", "id,ask,model,chip,colour\n",
                                          "id,isl,osl\n"};
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    RowQuestion question;
    must(arena_init(&arena, &err), &err);
    must(csv_parse(&csv, "t", serving, sizeof serving - 1, &arena, &err), &err);
    must(rows_check(&csv, "t", &err), &err);
    for (int64_t i = 0; i < csv.rows; i++)
        assert_int_equal(rows_ask(&csv, i, &question, &err), i ? CVN_EUNSUPPORTED : CVN_OK);
    for (int i = 0; i < 3; i++) {
        must(csv_parse(&csv, "t", headers[i], strlen(headers[i]), &arena, &err), &err);
        assert_int_equal(rows_check(&csv, "t", &err), CVN_EFORMAT);
    }
    arena_free(&arena);
}

/* What is left out of a row is as its default says; what is said of a model is what its preset is. */
static void columns_that_are_left_out_have_defaults(void **state)
{
    static const char *const tables[] = {
        "id,ask,model,chip,batch,context\na,decode,llama2-7b,v5e,4,512\n",
        "id,ask,model,chip,batch,context,tp,pp,speed,precision,engine\n"
        "b,decode,llama2-7b,v5e,4,512,1,1,1,bf16,vllm\n",
        "id,ask,model,chip,batch,context,dim,layers,heads,kv_heads,head_dim,ffn,vocab,gates,tied\n"
        "c,decode,a model of ours,v5e,4,512,4096,32,32,32,128,11008,32000,3,0\n"};
    double first = 0;
    for (int t = 0; t < 3; t++) {
        cvn_err err = {0};
        Arena arena;
        Csv csv;
        RowQuestion question;
        double figure[ROW_FIGURES];
        must(arena_init(&arena, &err), &err);
        must(csv_parse(&csv, "t", tables[t], strlen(tables[t]), &arena, &err), &err);
        must(rows_ask(&csv, 0, &question, &err), &err);
        must(rows_answer(&question, figure, &err), &err);
        first = t ? first : figure[ROW_MILLISECONDS];
        assert_true(figure[ROW_MILLISECONDS] == first && first > 0);
        assert_true(isnan(figure[ROW_TTFT]) && fabs(figure[ROW_STEPS] - 1e3 / first) < 1e-9);
        arena_free(&arena);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
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

/* ---- pages ---- */

/* A small step, timed, on a page that says of it that it is a larger model's on v5e. */
typedef struct Page {
    SimAnswer answer;
    CostModel chip;
    SimFigures figures;
    SimReport report;
    StrBuf html, svg;
} Page;

static void page_init(Page *p, SimTask task)
{
    cvn_err err = {0};
    SimAsk ask = {.task = task,
                  .batch = 4,
                  .seq = task == SIM_DECODE ? 1 : 64,
                  .context = 64,
                  .compute = CVN_BF16,
                  .chip = chip_find("v5e"),
                  .device = backends[0],
                  .threads = 1,
                  .mesh = task == SIM_TRAIN ? "data=4" : "model=2",
                  .layout = task == SIM_TRAIN ? "fsdp" : "tp",
                  .spans = true};
    *p = (Page){.html = {0}};
    ask.model = model_preset("stories15m");
    ask.train.optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(ask.model).params);
    must(sim_plan(&ask, &p->answer, &err), &err);
    p->figures = (SimFigures){.model = "llama3.1-70b <b>",
                              .task = "a step",
                              .chip = chip_find("v5e"),
                              .chips = 256,
                              .seconds = p->answer.timed.seconds,
                              .tokens = 256,
                              .model_flops = p->answer.model_flops,
                              .exposed = p->answer.timed.exposed,
                              .cost = p->answer.timed.cost};
    p->report = (SimReport){.figures = &p->figures,
                            .task = task,
                            .mesh = ask.mesh,
                            .layout = ask.layout,
                            .memory = p->answer.memory.total,
                            .rows = 4,
                            .seq = task == SIM_DECODE ? 1 : 2048,
                            .context = 2048,
                            .timed = &p->answer.timed,
                            .layers = 6,
                            .serving = serving(&p->chip, task == SIM_DECODE ? "v5e" : "v5p", 16)};
    p->report.serving.shape = shape_of("llama3.1-70b");
    p->report.serving.type = task == SIM_DECODE ? CHIP_INT8 : CHIP_BF16;
    report_html(&p->html, &p->report);
    report_svg(&p->svg, &p->report);
    assert_true(!p->html.failed && !p->svg.failed);
}

static void page_free(Page *p)
{
    strbuf_free(&p->html);
    strbuf_free(&p->svg);
    sim_answer_free(&p->answer);
}

static int times(const char *text, const char *words)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, words)); p++)
        n++;
    return n;
}

/* A page of each task has that task's pictures and no other's, published points where there are some, and nothing from elsewhere. */
static void a_page_shows_the_model_on_the_chip(void **state)
{
    static const char *const own[] = {[SIM_TRAIN] = "MFU by number of chips",
                                      [SIM_PREFILL] = "Prefill time",
                                      [SIM_DECODE] = "Decode throughput"};
    for (int task = 0; task < 3; task++) {
        Page p;
        page_init(&p, (SimTask)task);
        const char *html = p.html.text;
        assert_int_equal(times(html, "<svg "), 5);
        assert_int_equal(times(html, "<table>"), 1);
        for (int other = 0; other < 3; other++)
            assert_int_equal(times(html, own[other]), task == other);
        assert_int_equal(times(html, ">published, TP 16<"), task == SIM_DECODE ? 2 : 0);
        assert_int_equal(times(html, "<b>"), 7); /* figures; no name's */
        assert_true(!strstr(html, "nan") && !strstr(html, "inf\""));
        assert_int_equal(times(html, "http"), times(html, "http://www.w3.org/2000/svg"));
        assert_int_equal(strncmp(p.svg.text, "<svg ", 5), 0);
        page_free(&p);
    }
}

/* Points of the next curve in a picture; NULL after the last. */
static const char *next_curve(const char *p, const char *end, double x[], double y[], int *n)
{
    while ((p = strstr(p, "<path d=\"M")) && p < end) {
        const char *close = strchr(p + 10, '"');
        int used = 0;
        *n = 0;
        for (p += 9;
             p < close && *n < 64 && sscanf(p, "%*1[ML]%lf %lf%n", &x[*n], &y[*n], &used) == 2;
             p += used)
            (*n)++;
        if (strncmp(close, "\" class=\"l", 10) == 0)
            return close;
    }
    return NULL;
}

/* Two curves of a picture are apart by more than their width where they are farthest apart. */
static void curves_do_not_lie_on_each_other(void **state)
{
    for (int task = 0; task < 3; task++) {
        Page p;
        int pairs = 0;
        page_init(&p, (SimTask)task);
        for (const char *svg = p.html.text; (svg = strstr(svg, "<svg ")); svg++) {
            const char *end = strstr(svg, "</svg>"), *a = svg, *b;
            double ax[64], ay[64], bx[64], by[64];
            int an, bn;
            while ((a = next_curve(a, end, ax, ay, &an)))
                for (b = a; (b = next_curve(b, end, bx, by, &bn)); pairs++) {
                    double apart = 0;
                    for (int i = 0; i < an; i++)
                        for (int k = 0; k < bn; k++)
                            if (ax[i] == bx[k])
                                apart = fmax(apart, fabs(ay[i] - by[k]));
                    assert_true(apart > 4);
                }
        }

        assert_true(pairs >= 4);
        page_free(&p);
    }
}

/* Of what the chip does: kinds with a color of their own; and an axis of time. */
static void timelines_have_an_axis_and_name_what_takes_long(void **state)
{
    for (int task = 0; task < 3; task++) {
        Page p;
        double all = 0, rest = 0;
        page_init(&p, (SimTask)task);
        for (const char *box = p.svg.text; (box = strstr(box, "<rect ")); box++) {
            double wide = strtod(strstr(box, "width=\"") + 7, NULL);
            const char *end = strchr(box, '>');
            if (strncmp(end, "><title>", 8) != 0)
                continue;
            all += wide;
            rest += strncmp(end - 5, "rest\"", 5) == 0 ? wide : 0;
        }
        assert_true(all > 600 && rest < 0.1 * all);
        assert_int_equal(times(p.svg.text, ">ms<") + times(p.svg.text, ">µs<"), 2);
        assert_true(times(p.svg.text, "class=\"axis\"") > 8);
        page_free(&p);
    }
}

/* ---- rows that were measured ---- */

static void open_table(const char *name, Csv *csv, Arena *arena)
{
    cvn_err err = {0};
    char path[512];
    snprintf(path, sizeof path, CVN_TEST_DATA "/../../bench/published/rows/%s", name);
    must(arena_init(arena, &err), &err);
    must(csv_read(csv, path, arena, &err), &err);
    must(rows_check(csv, path, &err), &err);
}

static int ask_row(const Csv *csv, int64_t row, RowQuestion *question, cvn_err *err)
{
    TRY(rows_ask(csv, row, question, err));
    question->device = backends[0];
    return CVN_OK;
}

typedef struct Wrong {
    double of[1024]; /* |simulated / measured - 1|, least first */
    int n, refused;
} Wrong;

/* Of a table's rows of one kind, and of one figure; -1: of any. */
static Wrong wrong(const char *name, const char *ask, int figure)
{
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    Wrong w = {.n = 0};
    open_table(name, &csv, &arena);
    for (int64_t i = 0; i < csv.rows; i++) {
        RowQuestion question;
        double said[ROW_FIGURES];
        if (strcmp(csv_at(&csv, i, "ask"), ask) != 0)
            continue;
        if (ask_row(&csv, i, &question, &err) || rows_answer(&question, said, &err)) {
            w.refused++;
            continue;
        }
        for (int f = 0; f < ROW_FIGURES; f++) {
            double measured = rows_measured(&csv, i, (RowFigure)f);
            if (isfinite(measured) && (figure < 0 || figure == f))
                w.of[w.n++] = fabs(said[f] / measured - 1);
        }
        assert_true(w.n < 1024);
    }
    qsort(w.of, (size_t)w.n, sizeof *w.of, compare);
    arena_free(&arena);
    return w;
}

/* Every figure that the articles print is answered, and each is as near as its own row says, for the reason that stands there: no row is
   forgiven, and no bound is wider than its row needs. */
static void articles_are_foretold(void **state)
{
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    int figures = 0;
    open_table("articles.csv", &csv, &arena);
    for (int64_t i = 0; i < csv.rows; i++) {
        RowQuestion question;
        double said[ROW_FIGURES], within = rows_within(&csv, i);
        must(ask_row(&csv, i, &question, &err), &err);
        must(rows_answer(&question, said, &err), &err);
        assert_true(within > 0 && *csv_at(&csv, i, "why"));
        for (int f = 0; f < ROW_FIGURES; f++) {
            double measured = rows_measured(&csv, i, (RowFigure)f);
            if (!isfinite(measured))
                continue;
            double error = fabs(said[f] / measured - 1);
            if (error > within || within > error + 0.06)
                fail_msg("%s: %.1f %%, held to %.0f %%", csv_at(&csv, i, "id"), 100 * error,
                         100 * within);
            figures++;
        }
    }
    assert_int_equal(figures, 59);
    arena_free(&arena);
}

/* Whoever asks, a row of a table or a mesh, is given the time of the same program; and what shapes say is near to it. */
static void rows_and_meshes_say_the_same_of_training(void **state)
{
    static const struct {
        const char *model, *chip, *mesh, *layout, *row;
        int64_t batch, seq;
        RematPolicy remat;
    } cases[] = {
        {"llama2-7b", "v4", "data=16", "fsdp", "16,1,256,1024,1,1", 256, 1024, REMAT_BLOCK},
        {"llama2-7b", "v5e", "data=8,model=4", "2d", "32,4,64,2048,1,1", 64, 2048, REMAT_BLOCK},
        {"llama2-7b", "h100_sxm", "data=8", "fsdp", "8,1,32,2048,0,0", 32, 2048, REMAT_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double seconds[2];
        for (int shapes = 0; shapes < 2; shapes++) {
            cvn_err err = {0};
            Arena arena;
            Csv csv;
            RowQuestion question;
            double said[ROW_FIGURES];
            char path[] = "/tmp/caravan-rows-XXXXXX", text[512];
            int fd = mkstemp(path);
            int n = snprintf(text, sizeof text,
                             "id,ask,model,chip,chips,tp,batch,seq,recompute,recompute_attention,"
                             "layout,stack\nx,train,%s,%s,%s,%s,pytorch-xla\n",
                             cases[i].model, cases[i].chip, cases[i].row,
                             shapes ? "" : cases[i].layout);
            assert_true(fd >= 0 && write(fd, text, (size_t)n) == n);
            close(fd);
            must(arena_init(&arena, &err), &err);
            must(csv_read(&csv, path, &arena, &err), &err);
            must(ask_row(&csv, 0, &question, &err), &err);
            must(rows_answer(&question, said, &err), &err);
            seconds[shapes] = said[ROW_SECONDS];
            arena_free(&arena);
            unlink(path);
        }
        cvn_err err = {0};
        SimAnswer answer;
        Model *model = model_preset(cases[i].model);
        SimAsk ask = {
            .model = model,
            .mesh = cases[i].mesh,
            .layout = cases[i].layout,
            .task = SIM_TRAIN,
            .batch = cases[i].batch,
            .seq = cases[i].seq,
            .compute = CVN_BF16,
            .chip = chip_find(cases[i].chip),
            .device = backends[0],
            .threads = 1,
            .train = {.clip = 1,
                      .remat = cases[i].remat,
                      .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(model).params)}};
        must(sim_plan(&ask, &answer, &err), &err);
        assert_true(fabs(seconds[0] / answer.timed.seconds - 1) < 0.005);
        assert_true(fabs(seconds[1] / answer.timed.seconds - 1) < 0.10);
        sim_answer_free(&answer);
    }
}

/* As the article has it: weights that are gathered between barriers, while nothing is computed, cost more than splitting layers, too. */
static void fsdp_that_waits_is_behind_two_dimensions(void **state)
{
    cvn_err err = {0};
    Arena arena;
    Csv csv;
    double mfu[2] = {0, 0};
    open_table("articles.csv", &csv, &arena);
    for (int64_t i = 0; i < csv.rows; i++) {
        RowQuestion question;
        double said[ROW_FIGURES];
        int waits = strcmp(csv_at(&csv, i, "id"), "A58") == 0;
        if (!waits && strcmp(csv_at(&csv, i, "id"), "A01") != 0)
            continue;
        must(ask_row(&csv, i, &question, &err), &err);
        must(rows_answer(&question, said, &err), &err);
        mfu[waits] = said[ROW_MFU];
    }
    assert_true(mfu[1] > 0 && mfu[0] > 1.05 * mfu[1]);
    arena_free(&arena);
}

static void training_that_was_measured_is_foretold(void **state)
{
    Wrong w = wrong("rows.csv", "train", -1);
    assert_true(w.n >= 60 && w.of[w.n / 2] <= 0.10 && w.of[w.n * 9 / 10] <= 0.25);
    w = wrong("rows.csv", "decode", -1);
    assert_true(w.of[w.n / 2] < 0.10);
    w = wrong("rows.csv", "serve", ROW_TPOT);
    assert_true(w.of[w.n / 2] < 0.10);
}

static void serving_that_was_measured_is_foretold(void **state)
{
    Wrong tpot = wrong("silicon.csv", "serve", ROW_TPOT),
          ttft = wrong("silicon.csv", "serve", ROW_TTFT);
    assert_true(tpot.n >= 539 * 99 / 100 && tpot.n == ttft.n);
    assert_true(tpot.of[tpot.n / 2] <= 0.10 && tpot.of[tpot.n * 9 / 10] <= 0.25);
    assert_true(ttft.of[ttft.n / 2] < 0.18 && ttft.of[ttft.n * 9 / 10] < 0.65);
}

/* Every row of the tables has the figures that are stored of it, but for last bits: whatever reads tables, or changes how a step's time is
   added up, changes none of them unnoticed. CARAVAN_FORETOLD=FILE writes what is to be stored. */
static void rows_say_what_they_said(void **state)
{
    static const char *const names[] = {"articles.csv", "rows.csv", "silicon.csv"};
    cvn_err err = {0};
    Arena stored, arena;
    Csv said, csv;
    int64_t at = 0;
    FILE *out = getenv("CARAVAN_FORETOLD") ? fopen(getenv("CARAVAN_FORETOLD"), "w") : NULL;
    must(arena_init(&stored, &err), &err);
    must(csv_read(&said, CVN_TEST_DATA "/foretold.csv", &stored, &err), &err);
    if (out)
        fprintf(out, "id,first,second\n");
    for (int t = 0; t < 3; t++, arena_free(&arena)) {
        open_table(names[t], &csv, &arena);
        for (int64_t i = 0; i < csv.rows; i++) {
            RowQuestion question;
            double all[ROW_FIGURES], figure[2] = {0, 0};
            int n = 0;
            if (ask_row(&csv, i, &question, &err) || rows_answer(&question, all, &err))
                continue;
            for (int f = 0; f < ROW_FIGURES; f++)
                if (isfinite(rows_measured(&csv, i, (RowFigure)f)))
                    figure[n++] = all[f];
            if (out)
                fprintf(out, "%s,%a,%a\n", csv_at(&csv, i, "id"), figure[0], figure[1]);
            else
                assert_string_equal(csv_at(&said, at, "id"), csv_at(&csv, i, "id"));
            static const char *const columns[] = {"first", "second"};
            for (int k = 0; k < 2 && !out; k++) {
                double before = csv_number(&said, at, columns[k], NAN);
                assert_true(fabs(figure[k] - before) <= 1e-9 * fabs(before));
            }
            at++;
        }
    }
    assert_true(out || at == said.rows);
    if (out)
        fclose(out);
    arena_free(&stored);
}

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chip_says_where_its_numbers_are_from),
        cmocka_unit_test(every_price_is_of_the_same_kind_of_list),
        cmocka_unit_test(shares_of_peaks_are_shares),
        cmocka_unit_test(a_chip_of_a_file_is_that_chip),
        cmocka_unit_test(what_is_printed_of_a_chip_is_that_chip_when_it_is_read),
        cmocka_unit_test(no_operation_beats_its_bounds),
        cmocka_unit_test(faster_parts_are_never_slower),
        cmocka_unit_test(groups_beyond_a_domain_take_longer),
        cmocka_unit_test(one_row_is_bound_by_memory_or_launches_on_every_chip),
        cmocka_unit_test(steps_keep_to_their_bounds_and_faster_parts_pay),
        cmocka_unit_test(more_chips_hold_less_each_and_int8_weights_are_read_sooner),
        cmocka_unit_test(every_request_is_answered),
        cmocka_unit_test(company_and_length_take_time),
        cmocka_unit_test(requests_come_by_themselves),
        cmocka_unit_test(a_full_cache_makes_requests_wait),
        cmocka_unit_test(tables_are_read_as_the_rules_say),
        cmocka_unit_test(what_cannot_be_answered_is_refused),
        cmocka_unit_test(columns_that_are_left_out_have_defaults),
        cmocka_unit_test(the_best_meshes_are_found),
        cmocka_unit_test(as_few_chips_as_do_need_not_be_a_power_of_two),
        cmocka_unit_test(a_page_shows_the_model_on_the_chip),
        cmocka_unit_test(curves_do_not_lie_on_each_other),
        cmocka_unit_test(timelines_have_an_axis_and_name_what_takes_long),
        cmocka_unit_test(articles_are_foretold),
        cmocka_unit_test(rows_and_meshes_say_the_same_of_training),
        cmocka_unit_test(fsdp_that_waits_is_behind_two_dimensions),
        cmocka_unit_test(training_that_was_measured_is_foretold),
        cmocka_unit_test(rows_say_what_they_said),
        cmocka_unit_test(training_keeps_to_its_bounds),
        cmocka_unit_test(serving_that_was_measured_is_foretold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
