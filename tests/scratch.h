/* A folder of its own for a test program: made with a name that no other has, removed with all that is in it. */
#ifndef CVN_TESTS_SCRATCH_H
#define CVN_TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch[64]; /* empty until make_scratch */

static inline int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/caravan-test-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int remove_scratch(void **state)
{
    (void)state;
    char line[80];
    snprintf(line, sizeof line, "rm -rf '%s'", scratch);
    return system(line);
}

/* scratch/name, in one of eight rotating buffers. */
static inline const char *in_scratch(const char *name)
{
    static char path[8][256];
    static unsigned next;
    char *slot = path[next++ % 8];
    snprintf(slot, sizeof path[0], "%s/%s", scratch, name);
    return slot;
}

#endif
