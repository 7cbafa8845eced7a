/* Pages of the simulator: what they draw, and what stands on them. */
#include "model_make.h"
#include "sim/report.h"
#include "sim_support.h"

#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_shows_the_model_on_the_chip),
        cmocka_unit_test(curves_do_not_lie_on_each_other),
        cmocka_unit_test(timelines_have_an_axis_and_name_what_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
