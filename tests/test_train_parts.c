/* Schedules, warnings and the options of a run. */
#include "train/config.h"
#include "train/outlier.h"
#include "train/schedule.h"
#include "train/straggler.h"
#include "unit.h"

#include <math.h>

static void near(double got, double expected)
{
    if (!(fabs(got - expected) < 1e-12))
        fail_msg("%.15g is not %.15g", got, expected);
}

static void warm_up_is_a_line_from_zero(void **state)
{
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++) {
        Schedule s = {.kind = (ScheduleKind)kind, .steps = 100, .warmup = 10, .decay = 20};
        for (int64_t t = 1; t <= 10; t++)
            near(schedule_factor(&s, t), (double)t / 10);
    }
}

static void schedules_are_their_formulas(void **state)
{
    double pi = acos(-1.0);
    for (int64_t t = 11; t <= 120; t++) {
        double done = t > 110 ? 1 : (double)(t - 10) / 100;
        Schedule s = {.kind = SCHEDULE_COSINE, .steps = 110, .warmup = 10, .final = 0.1};
        near(schedule_factor(&s, t), 0.1 + 0.9 * 0.5 * (1 + cos(pi * done)));
        s.kind = SCHEDULE_LINEAR;
        near(schedule_factor(&s, t), 1 - 0.9 * done);
        s.kind = SCHEDULE_CONSTANT;
        near(schedule_factor(&s, t), 1);
        s.kind = SCHEDULE_WSD;
        s.decay = 40;
        double fallen = t <= 70 ? 0 : t > 110 ? 1 : (double)(t - 70) / 40;
        near(schedule_factor(&s, t), 1 - 0.9 * fallen);
    }
}

static void schedules_without_room_are_refused(void **state)
{
    const Schedule wrong[] = {
        {.steps = 0},
        {.steps = 10, .warmup = 11},
        {.steps = 10, .warmup = -1},
        {.kind = SCHEDULE_WSD, .steps = 10, .warmup = 5, .decay = 6},
        {.steps = 10, .final = 1.5},
        {.steps = 10, .final = NAN},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cvn_err err = {0};
        assert_int_equal(schedule_check(&wrong[i], &err), CVN_EINVAL);
    }
    Schedule all = {.kind = SCHEDULE_WSD, .steps = 10, .warmup = 5, .decay = 5};
    assert_int_equal(schedule_check(&all, NULL), 0);
    near(schedule_factor(&all, 10), 0);
    Schedule one = {.kind = SCHEDULE_COSINE, .steps = 1, .final = 0.5};
    near(schedule_factor(&one, 1), 0.5);
}

static void outliers_are_above_not_below(void **state)
{
    Outlier o = {0};
    double mean;
    for (int i = 0; i < 200; i++)
        assert_false(outlier_add(&o, 5 - i * 0.01 + (i % 3) * 0.1, &mean));
    assert_false(outlier_add(&o, 0.1, &mean));
    assert_false(outlier_add(&o, NAN, &mean));
    assert_true(outlier_add(&o, 40, &mean));
    assert_true(mean > 3 && mean < 5);
    Outlier young = {0};
    for (int i = 0; i < OUTLIER_LEAST; i++)
        assert_false(outlier_add(&young, i == OUTLIER_LEAST - 1 ? 100 : 1, &mean));
}

static void the_slowest_rank_is_held_to_the_median_of_the_others(void **state)
{
    SlowestRank s = slowest_rank((double[]){0.50, 0.52, 0.91, 0.51}, 4);
    assert_int_equal(s.rank, 2);
    near(s.busy, 0.91);
    near(s.others, 0.51);
    s = slowest_rank((double[]){3, 1}, 2);
    assert_int_equal(s.rank, 0);
    near(s.others, 1);
    s = slowest_rank((double[]){1, 4, 2, 8, 1}, 5);
    assert_int_equal(s.rank, 3);
    near(s.others, 1.5);
}

static void a_rank_that_stays_slow_is_warned_of_once(void **state)
{
    Straggler seen = {0};
    SlowestRank slow = {1, 1.3, 1}, other = {2, 1.3, 1}, even = {1, 1.2, 1};
    for (int i = 1; i <= 3 * STRAGGLER_STEPS; i++)
        assert_int_equal(straggler_add(&seen, slow), i == STRAGGLER_STEPS);
    /* A step that is even now and then hides nothing, nor is the same told again. */
    assert_false(straggler_add(&seen, even));
    assert_false(straggler_add(&seen, slow));
    /* Another rank, or none, for as long: what was counted is gone. */
    for (int i = 1; i <= STRAGGLER_STEPS; i++)
        assert_false(straggler_add(&seen, i % 2 ? other : even));
    for (int i = 1; i <= STRAGGLER_STEPS; i++)
        assert_int_equal(straggler_add(&seen, other), i == STRAGGLER_STEPS);
}

static TrainConfig read(const char *text, Arena *arena, int expected, const char *message)
{
    cvn_err err = {0};
    json_error_t where;
    TrainConfig c = train_config_defaults();
    json_t *json = json_loads(text, 0, &where);
    assert_non_null(json);
    int code = train_config_read(&c, "run.json", json, NULL, arena, &err);
    if (code == CVN_OK)
        code = train_config_check(&c, &err);
    if (code != expected || (message && !strstr(err.message, message)))
        fail_msg("%s: %d, %s", text, code, err.message);
    json_decref(json);
    return c;
}

static void options_round_trip_through_json(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), 0);
    TrainConfig c = read("{\"data\":[\"a\",\"b\"],\"preset\":\"tiny\",\"out\":\"R\",\"lr\":1e-3,"
                         "\"micro_batch\":4,\"save-every\":7,\"prompt\":\"Hi\",\"final_lr\":0}",
                         &arena, CVN_OK, NULL);
    assert_int_equal(c.n_data, 2);
    assert_int_equal(c.micro_batch, 4);
    assert_int_equal(c.save_every, 7);
    json_t *json = train_config_json(&c);
    char *text = json_dumps(json, 0);
    TrainConfig again = read(text, &arena, CVN_OK, NULL);
    for (int i = 0; i < train_n_keys; i++)
        if (!train_config_same(&c, &again, &train_keys[i]))
            fail_msg("%s is lost", train_keys[i].name);
    free(text);
    json_decref(json);
    arena_free(&arena);
}

/* A copy of a key changes that key and no other: offsets and types are right. */
static void keys_are_apart(void **state)
{
    TrainConfig a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    for (int i = 0; i < train_n_keys; i++) {
        const TrainKey *key = &train_keys[i];
        char *at = (char *)&b + key->offset;
        if (key->type == KEY_REAL)
            *(double *)(void *)at = i + 1;
        else if (key->type == KEY_TEXT)
            *(const char **)(void *)at = key->name;
        else if (key->type == KEY_DATA)
            b.n_data = 1;
        else if (key->type == KEY_FLAG)
            *(bool *)(void *)at = true;
        else
            *(int64_t *)(void *)at = i + 1;
    }
    for (int i = 0; i < train_n_keys; i++)
        for (int k = 0; k < train_n_keys; k++) {
            bool same = train_config_same(&a, &b, &train_keys[k]);
            assert_int_equal(same, k < i);
            if (k == train_n_keys - 1)
                train_config_copy(&a, &b, &train_keys[i]);
        }
    assert_memory_equal(&a, &b, sizeof a);
}

/* Each name of a key finds it, and no other. */
static void names_of_keys_are_apart(void **state)
{
    for (int i = 0; i < train_n_keys; i++) {
        const TrainKey *key = &train_keys[i];
        assert_ptr_equal(train_key_find(key->name), key);
        size_t n;
        for (const char *at = key->other; at && (n = strcspn(at, " ")); at += n + (at[n] == ' ')) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)n, at);
            if (train_key_find(name) != key)
                fail_msg("\"%s\" of %s is taken", name, key->name);
            for (char *c = name; *c; c++)
                *c = *c == '-' ? '_' : *c;
            assert_ptr_equal(train_key_find(name), key);
        }
    }
    assert_null(train_key_find("learning"));
    assert_null(train_key_find("max-steps num-steps"));
}

static void mistakes_in_options_are_named(void **state)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), 0);
    read("{\"stepps\":3}", &arena, CVN_EFORMAT, "did you mean \"steps\"?");
    read("{\"micro_bach\":3}", &arena, CVN_EFORMAT, "did you mean \"micro-batch\"?");
    read("{\"qqqqqqq\":3}", &arena, CVN_EFORMAT, "see caravan train --help");
    read("{\"steps\":\"3\"}", &arena, CVN_EFORMAT, "steps");
    read("{\"steps\":3.5}", &arena, CVN_EFORMAT, "steps");
    read("{\"data\":[]}", &arena, CVN_EFORMAT, "data");
    read("{\"data\":[1]}", &arena, CVN_EFORMAT, "data");
    read("{\"data\":\"a\",\"preset\":\"tiny\"}", &arena, CVN_EINVAL, "--out");
    read("{\"preset\":\"tiny\",\"out\":\"R\"}", &arena, CVN_EINVAL, "--data");
    read("{\"data\":\"a\",\"out\":\"R\"}", &arena, CVN_EINVAL, "--preset");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"init\":\"x\"}", &arena, CVN_EINVAL,
         "--init");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"optimizer\":\"sgd\"}", &arena,
         CVN_EINVAL, "run.json: \"optimizer\" is \"sgd\"; give one of adamw, adafactor");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"validation\":0.9}", &arena,
         CVN_EINVAL, "run.json: \"validation\" is 0.9; give a number from 0 to 0.5");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"batch\":-1}", &arena, CVN_EINVAL,
         "batch");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"attention_dropout\":-0.5}", &arena,
         CVN_EINVAL, "\"attention-dropout\" is -0.5; give a number from 0 to 0.99, or -1");
    read("{\"data\":\"a\",\"out\":\"\",\"preset\":\"tiny\"}", &arena, CVN_EINVAL, "--out");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"batch\":3,\"micro_batch\":2}", &arena,
         CVN_EINVAL, "give a --micro-batch that divides it");
    read("{\"data\":\"a\",\"out\":\"R\",\"preset\":\"tiny\",\"steps\":3,\"warmup\":4}", &arena,
         CVN_EINVAL, "does not fit in 3 steps");
    arena_free(&arena);
}

/* Tokens per step of shapes that people begin with; never more than asked for by hand before, never none. */
static void the_default_batch_grows_with_the_model(void **state)
{
    assert_int_equal(train_default_batch(260032, 512, 0), 4);
    assert_int_equal(train_default_batch(1049728, 512, 0), 4);
    assert_int_equal(train_default_batch(15191712, 256, 0), 32);
    assert_int_equal(train_default_batch(109529856, 1024, 0), 16);
    assert_int_equal(train_default_batch((int64_t)70e9, 1024, 0), 32);
    assert_int_equal(train_default_batch(260032, 16, 0), 32);
    assert_int_equal(train_default_batch(260032, INT64_MAX, 0), 1);
    assert_int_equal(train_default_batch(260032, 512, 3), 6);
    assert_int_equal(train_default_batch(260032, 512, INT32_MAX), INT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_up_is_a_line_from_zero),
        cmocka_unit_test(schedules_are_their_formulas),
        cmocka_unit_test(schedules_without_room_are_refused),
        cmocka_unit_test(outliers_are_above_not_below),
        cmocka_unit_test(the_slowest_rank_is_held_to_the_median_of_the_others),
        cmocka_unit_test(a_rank_that_stays_slow_is_warned_of_once),
        cmocka_unit_test(options_round_trip_through_json),
        cmocka_unit_test(keys_are_apart),
        cmocka_unit_test(names_of_keys_are_apart),
        cmocka_unit_test(mistakes_in_options_are_named),
        cmocka_unit_test(the_default_batch_grows_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
