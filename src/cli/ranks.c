#include "cli/ranks.h"

#include "caravan/ranks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A process is a rank of one cluster; signals and the end of the program have to find it. */
static struct {
    StrBuf settings;  /* the command line */
    Cluster *cluster; /* NULL when alone */
    cvn_err failure;  /* the last one that was printed */
    volatile sig_atomic_t ending;
    int speak; /* where standard error went before it was closed to this rank */
} ranks = {.speak = STDERR_FILENO};

static void on_term(int signal_number)
{
    (void)signal_number;
    ranks.ending = 1;
}

static void lost(void *context, const char *sentence)
{
    (void)context;
    fflush(stdout);
    dprintf(ranks.speak, "caravan: %s\n", sentence);
}

static void silence(FILE *stream)
{
    if (!freopen("/dev/null", "w", stream))
        fclose(stream);
}

bool ranks_speaks(void)
{
    return transport_number() <= 0;
}

void ranks_command(int argc, char **argv)
{
    if (!transport_launched())
        return;
    if (!ranks_speaks()) { /* standard error is kept for the case that rank 0 is gone */
        fflush(stderr);
        ranks.speak = dup(STDERR_FILENO);
        silence(stdout);
        if (!transport_meets()) /* which rank 0 would not hear of before they have met */
            silence(stderr);
    }
    for (int i = 1; i < argc; i++)
        strbuf_printf(&ranks.settings, "%s%s", i > 1 ? " " : "", argv[i]);
}

bool ranks_first(void)
{
    return cluster_rank(ranks.cluster) == 0;
}

int ranks_join(Cluster **out, cvn_err *err)
{
    if (!ranks.cluster && transport_launched() && !transport_meets())
        signal(SIGTERM, on_term);
    int code = cvn_ranks_join(&(cvn_ranks_options){.settings = ranks.settings.text,
                                                   .lost = lost,
                                                   .ending = &ranks.ending},
                              &ranks.cluster, err);
    *out = ranks.cluster;
    if (!code && transport_meets() && !ranks_first())
        silence(stderr);
    return code;
}

int ranks_share(int64_t *number, StrBuf *text, cvn_err *err)
{
    if (!ranks.cluster)
        return CVN_OK;
    int64_t both[2] = {*number, text ? (int64_t)text->length : 0};
    int code = cluster_share(ranks.cluster, both, sizeof both, err);
    *number = both[0];
    if (code || both[1] == 0)
        return code;
    if (!ranks_first()) {
        SCOPED(scoped_free) char *room = calloc((size_t)both[1], 1);
        strbuf_clear(text);
        strbuf_add(text, room, room ? (size_t)both[1] : 0);
        if (!room || text->failed)
            return err_set(err, CVN_EMEM, "no memory for %lld bytes of text", (long long)both[1]);
    }
    return cluster_share(ranks.cluster, text->text, (size_t)both[1], err);
}

bool ranks_failed(const cvn_err *err)
{
    ranks.failure = *err;
    return !ranks.cluster || cluster_claim(ranks.cluster);
}

int ranks_leave(int status, bool together)
{
    if (!ranks.cluster)
        return status;
    if (status && !together) {
        fflush(stdout);
        if (cluster_rank(ranks.cluster) > 0)
            usleep(500000); /* an error that all have is rank 0's to tell */
        cluster_fail(ranks.cluster, &ranks.failure);
        cluster_abort(ranks.cluster, status);
    }
    cvn_ranks_leave(ranks.cluster);
    ranks.cluster = NULL;
    return status;
}
