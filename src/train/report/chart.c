#include "train/report/chart.h"

#include "run/ceilings.h"

#include <math.h>

/* The picture's own units, about CSS pixels on a large screen; a page scales it. */
enum {
    WIDE = 1000,
    NARROW = 480,
    HIGH = 300,
    LOW = 230,
    LEFT = 58,
    RIGHT = 24,
    TOP = 12,
    BOTTOM = 30,
    COLUMNS = 96
};

/* One point of the curve: some neighbouring steps. */
typedef struct Bucket {
    int64_t first, last;    /* steps */
    double mean, low, high; /* of what is finite; NAN when nothing is */
    double smooth;          /* smoothed line */
} Bucket;

typedef struct Drawing {
    const Chart *chart;
    StrBuf *out;
    Bucket bucket[CHART_BUCKETS];
    int n;                 /* buckets */
    int width, height;     /* of the picture */
    double x0, x1, y0, y1; /* steps and numbers at the edges of the plot */
} Drawing;

int chart_ticks(double low, double high, int wanted, double tick[CHART_TICKS])
{
    /* Where the range is nothing beside the numbers, room is made around them. */
    double least = 1e-9 * fmax(fabs(low), fabs(high));
    if (!(high - low > least)) {
        double room = low == 0 ? 1 : fabs(low) * 0.1;
        low -= low < 0 || low - room > 0 ? room : low;
        high += room;
    }
    double rough = (high - low) / wanted, power = pow(10, floor(log10(rough)));
    static const double mantissa[] = {1, 2, 5, 10, 20, 50, 100};
    for (size_t m = 0; m < sizeof mantissa / sizeof *mantissa; m++) {
        double step = mantissa[m] * power;
        if (step < rough * (1 - 1e-9))
            continue;
        double first = floor(low / step + 1e-9), last = ceil(high / step - 1e-9);
        if (last - first + 1 > CHART_TICKS)
            continue;
        int n = 0;
        for (double k = first; k <= last; k++)
            tick[n++] = k * step;
        return n;
    }
    tick[0] = low;
    tick[1] = high;
    return 2;
}

void chart_number(StrBuf *out, double number)
{
    double size = fabs(number);
    if (!isfinite(number))
        strbuf_puts(out, "not finite");
    else if (size >= 9.9995e11)
        strbuf_printf(out, "%.4gT", number / 1e12);
    else if (size >= 9.9995e8)
        strbuf_printf(out, "%.4gG", number / 1e9);
    else if (size >= 999999.5)
        strbuf_printf(out, "%.4gM", number / 1e6);
    else if (size >= 999.95)
        strbuf_count(out, (int64_t)round(number));
    else
        strbuf_printf(out, "%.4g", number);
}

static void put_value(StrBuf *out, const Chart *chart, double number)
{
    if (chart->percent && isfinite(number))
        strbuf_printf(out, "%.3g%%", 100 * number);
    else
        chart_number(out, number);
}

static double place_x(const Drawing *d, double step)
{
    return LEFT + (step - d->x0) / (d->x1 - d->x0) * (d->width - LEFT - RIGHT);
}

static double place_y(const Drawing *d, double number)
{
    return d->height - BOTTOM - (number - d->y0) / (d->y1 - d->y0) * (d->height - TOP - BOTTOM);
}

static void fill_buckets(Drawing *d, const MetricsRow *row, size_t n)
{
    d->n = n < CHART_BUCKETS ? (int)n : CHART_BUCKETS;
    for (int b = 0; b < d->n; b++) {
        size_t begin = n * (size_t)b / (size_t)d->n, end = n * ((size_t)b + 1) / (size_t)d->n;
        double total = 0;
        int finite = 0;
        Bucket bucket = {.first = row[begin].step,
                         .last = row[end - 1].step,
                         .low = (double)NAN,
                         .high = (double)NAN};
        for (size_t i = begin; i < end; i++) {
            double number = metrics_number(&row[i], d->chart->offset);
            if (!isfinite(number))
                continue;
            finite++;
            total += number;
            bucket.low = fmin(number, bucket.low); /* fmin and fmax prefer what is a number */
            bucket.high = fmax(number, bucket.high);
        }
        bucket.mean = finite ? total / finite : (double)NAN;
        d->bucket[b] = bucket;
    }
}

/* The weights reach equally far to both sides, so less far near the ends: a slope stays where it is. */
static void smooth(Drawing *d)
{
    double decay = 1 - 1 / fmax(1, d->n / 60.0);
    for (int b = 0; b < d->n; b++) {
        int reach = b < d->n - 1 - b ? b : d->n - 1 - b;
        double sum = 0, weight = 0, w = 1;
        for (int k = 0; k <= reach && w > 1e-3; k++, w *= decay) {
            const double mean[] = {d->bucket[b - k].mean, d->bucket[b + k].mean};
            for (int side = 0; side < 2 && !isnan(mean[0]) && !isnan(mean[1]); side++) {
                sum += w * mean[side];
                weight += w;
            }
        }
        d->bucket[b].smooth = isnan(d->bucket[b].mean) ? (double)NAN : sum / weight;
    }
}

/* The y axis covers the curve; a few wild values must not flatten all others, so beyond four times the
 * range of the middle 96% of buckets the picture ends. False when nothing is finite. */
static bool find_range(const Drawing *d, const MetricsRow *row, size_t n, double *low, double *high)
{
    double mean[CHART_BUCKETS], least = (double)INFINITY, most = (double)-INFINITY;
    int finite = 0;
    for (int b = 0; b < d->n; b++) {
        if (isnan(d->bucket[b].mean))
            continue;
        mean[finite++] = d->bucket[b].mean;
        least = fmin(least, d->bucket[b].low);
        most = fmax(most, d->bucket[b].high);
    }
    if (finite == 0)
        return false;
    sort_numbers(mean, (size_t)finite);
    double from = mean[finite / 50], to = mean[finite - 1 - finite / 50], room = 4 * (to - from);
    if (finite >= 50 && room > 0) {
        least = fmax(least, from - room);
        most = fmin(most, to + room);
    }
    for (size_t i = 0; i < n && d->chart->points; i++) {
        double number = metrics_number(&row[i], d->chart->points);
        least = isfinite(number) ? fmin(least, number) : least;
        most = isfinite(number) ? fmax(most, number) : most;
    }
    *low = d->chart->from_zero ? fmin(0, least) : least;
    *high = most;
    return true;
}

static double clamp_y(const Drawing *d, double number)
{
    return fmin(fmax(number, d->y0), d->y1);
}

static void draw_axes(Drawing *d, double low, double high)
{
    double tick[CHART_TICKS];
    int n = chart_ticks(low, high, 5, tick);
    d->y0 = tick[0];
    d->y1 = tick[n - 1];
    for (int i = 0; i < n; i++) {
        double y = place_y(d, tick[i]);
        strbuf_printf(d->out, "<line class=grid x1=%d x2=%d y1=%.1f y2=%.1f />", LEFT,
                      d->width - RIGHT, y, y);
        strbuf_printf(d->out, "<text x=%d y=%.1f text-anchor=end>", LEFT - 8, y + 4);
        put_value(d->out, d->chart, fabs(tick[i]) < 1e-9 * (d->y1 - d->y0) ? 0 : tick[i]);
        strbuf_puts(d->out, "</text>\n");
    }
    strbuf_printf(d->out, "<text x=%d y=%d text-anchor=end>step</text>\n", LEFT - 8,
                  d->height - BOTTOM + 18);
    n = chart_ticks(d->x0, d->x1, 6, tick);
    for (int i = 0; i < n; i++) {
        if (tick[i] < d->x0 || tick[i] > d->x1 || tick[i] != floor(tick[i]))
            continue;
        double x = place_x(d, tick[i]);
        strbuf_printf(d->out, "<line class=grid x1=%.1f x2=%.1f y1=%d y2=%d />", x, x, TOP,
                      d->height - BOTTOM);
        strbuf_printf(d->out, "<text x=%.1f y=%d text-anchor=middle>", x, d->height - BOTTOM + 18);
        chart_number(d->out, tick[i]);
        strbuf_puts(d->out, "</text>\n");
    }
}

static double middle(const Bucket *bucket)
{
    return 0.5 * (double)(bucket->first + bucket->last);
}

/* The range of each bucket, where there is more than a step in it. */
static void draw_band(Drawing *d)
{
    for (int b = 0; b < d->n;) {
        int end = b;
        while (end < d->n && !isnan(d->bucket[end].mean))
            end++;
        if (end - b > 1) {
            strbuf_puts(d->out, "<path class=band d=\"M");
            for (int i = b; i < end; i++)
                strbuf_printf(d->out, "%.1f %.1f ", place_x(d, middle(&d->bucket[i])),
                              place_y(d, clamp_y(d, d->bucket[i].high)));
            for (int i = end - 1; i >= b; i--)
                strbuf_printf(d->out, "%.1f %.1f ", place_x(d, middle(&d->bucket[i])),
                              place_y(d, clamp_y(d, d->bucket[i].low)));
            strbuf_puts(d->out, "z\"/>\n");
        }
        b = end + 1;
    }
}

static void draw_line(Drawing *d, const char *class_, bool smooth)
{
    bool drawing = false;
    strbuf_printf(d->out, "<path class=%s d=\"", class_);
    for (int b = 0; b < d->n; b++) {
        double number = smooth ? d->bucket[b].smooth : d->bucket[b].mean;
        if (!isnan(number)) {
            double x = place_x(d, middle(&d->bucket[b])), y = place_y(d, clamp_y(d, number));
            /* A lone point is a line of length 0, which round caps show. */
            strbuf_printf(d->out, drawing ? "%.1f %.1f " : "M%.1f %.1f h0 L", x, y);
            if (!drawing)
                strbuf_printf(d->out, "%.1f %.1f ", x, y);
        }
        drawing = !isnan(number);
    }
    strbuf_puts(d->out, "\"/>\n");
}

static void draw_points(Drawing *d, const MetricsRow *row, size_t n)
{
    for (size_t i = 0; i < n && d->chart->points; i++) {
        double number = metrics_number(&row[i], d->chart->points);
        if (!isfinite(number))
            continue;
        strbuf_printf(d->out, "<circle class=point cx=%.1f cy=%.1f r=3.5><title>step ",
                      place_x(d, (double)row[i].step), place_y(d, clamp_y(d, number)));
        strbuf_count(d->out, row[i].step);
        strbuf_printf(d->out, ", %s: ", d->chart->points_name);
        put_value(d->out, d->chart, number);
        strbuf_puts(d->out, "</title></circle>\n");
    }
}

/* Draws invisible columns that show their number under the pointer. */
static void draw_columns(Drawing *d)
{
    int n = d->n < COLUMNS ? d->n : COLUMNS;
    double width = (double)(d->width - LEFT - RIGHT) / n;
    for (int c = 0; c < n; c++) {
        const Bucket *bucket = &d->bucket[(d->n - 1) * (long)c / (n > 1 ? n - 1 : 1)];
        strbuf_printf(d->out, "<rect class=column x=%.1f y=%d width=%.1f height=%d><title>step ",
                      LEFT + c * width, TOP, width, d->height - TOP - BOTTOM);
        strbuf_count(d->out, bucket->last);
        strbuf_printf(d->out, ", %s: ", d->chart->title);
        put_value(d->out, d->chart, d->chart->smooth ? bucket->smooth : bucket->mean);
        strbuf_puts(d->out, "</title></rect>");
    }
    strbuf_puts(d->out, "\n");
}

void chart_draw(StrBuf *out, const Chart *chart, const MetricsRow *row, size_t n)
{
    Drawing d = {.chart = chart,
                 .out = out,
                 .width = chart->wide ? WIDE : NARROW,
                 .height = chart->wide ? HIGH : LOW};
    double low, high;
    bool points = false;
    for (size_t i = 0; i < n && chart->points; i++)
        points = points || isfinite(metrics_number(&row[i], chart->points));
    fill_buckets(&d, row, n);
    smooth(&d);
    strbuf_printf(out, "<figure><figcaption><b>%s</b>%s%s", chart->title, *chart->unit ? " " : "",
                  chart->unit);
    if (points)
        strbuf_printf(out, " <span class=mark>&#9679; %s</span>", chart->points_name);
    strbuf_puts(out, "</figcaption>\n");
    if (!find_range(&d, row, n, &low, &high)) {
        strbuf_puts(out, "<p class=none>nothing measured yet</p></figure>\n");
        return;
    }
    d.x0 = (double)row[0].step - (n == 1);
    d.x1 = (double)row[n - 1].step + (n == 1);
    strbuf_printf(out, "<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"%s over steps\">\n",
                  d.width, d.height, chart->title);
    draw_axes(&d, low, high);
    if (n > CHART_BUCKETS)
        draw_band(&d);
    if (chart->smooth && n > 2) {
        draw_line(&d, "raw", false);
        draw_line(&d, "line", true);
    } else {
        draw_line(&d, "line", false);
    }
    draw_columns(&d);
    draw_points(&d, row, n);
    strbuf_puts(out, "</svg></figure>\n");
}
