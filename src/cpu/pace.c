#include "cpu/pace.h"

/* A window is over after this many runs, if they took long enough to be told from noise; after fewer, if they took
   so long that it is time to ask why. */
enum { WINDOW_RUNS = 8, WINDOW_RUNS_MOST = 256, WINDOW_RUNS_LEAST = 3 };

/* Most windows between two tries: where they are long, the machine is to be found idle again before long. */
enum { PAUSE_MOST = 1024, PAUSE_MOST_LONG = 32, RARER = 4 /* times, after each that fails */ };
static const int64_t window_ns = 2000000, long_window_ns = 20000000;

/* Runs shorter than this are tried on fewer threads without further reason. */
static const double short_ns = 250e3;

static const double better = 0.93;     /* of the time before: worth a change */
static const double different = 1.5;   /* times the time before: something has happened */
static const double wait_share = 0.25; /* of a run: much */

void pace_init(Pace *pace, int most)
{
    *pace = (Pace){.most = most, .threads = most, .rest = 1, .pause = 1};
}

int pace_threads(const Pace *pace)
{
    return pace->trying ? pace->trying : pace->threads;
}

/* Half or twice as many threads; 0 when there is no such step. */
static int neighbour(const Pace *pace)
{
    if (!pace->up)
        return pace->threads / 2;
    int twice = 2 * pace->threads;
    return pace->threads == pace->most ? 0 : twice < pace->most ? twice : pace->most;
}

static void end_try(Pace *pace, double mean)
{
    if (mean < better * pace->mean) {
        pace->threads = pace->trying;
        pace->mean = mean;
        pace->pause = 1;
    } else {
        pace->up = !pace->up;
        int most = mean * WINDOW_RUNS > (double)long_window_ns ? PAUSE_MOST_LONG : PAUSE_MOST;
        pace->pause = RARER * pace->pause < most ? RARER * pace->pause : most;
    }
    pace->trying = 0;
    pace->rest = pace->pause;
}

static void end_window(Pace *pace, double mean, double waited)
{
    double before = pace->mean;
    if (before > 0 && (mean > different * before || before > different * mean)) {
        pace->pause = pace->pause > RARER ? pace->pause / RARER : 1;
        pace->rest = 1;
    }
    pace->mean = mean;
    if (--pace->rest > 0)
        return;
    bool all = pace->threads == pace->most;
    if (all && mean > short_ns && waited < wait_share * mean) {
        pace->rest = 1; /* look again after the next window */
        return;
    }
    pace->trying = neighbour(pace);
    if (!pace->trying) {
        pace->up = !pace->up;
        pace->trying = neighbour(pace);
    }
}

void pace_add(Pace *pace, int64_t ns, int64_t waited)
{
    if (pace->most == 1)
        return;
    if (!pace->warm) {
        pace->warm = true;
        return;
    }
    pace->runs++;
    pace->ns += ns;
    pace->waited += waited;
    int64_t needed = pace->runs >= WINDOW_RUNS         ? window_ns
                     : pace->runs >= WINDOW_RUNS_LEAST ? long_window_ns
                                                       : INT64_MAX;
    if (pace->ns < needed && pace->runs < WINDOW_RUNS_MOST)
        return;
    double mean = (double)pace->ns / pace->runs, wait = (double)pace->waited / pace->runs;
    pace->runs = 0;
    pace->ns = pace->waited = 0;
    if (pace->trying)
        end_try(pace, mean);
    else
        end_window(pace, mean, wait);
}
