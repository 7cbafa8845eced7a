/* Chips say where their numbers are from, and no operation on them beats the bounds that physics sets. */
#include "base/json_file.h"
#include "sim_support.h"

#include <math.h>
#include <unistd.h>

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
