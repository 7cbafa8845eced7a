/* What the files of a session share. */
#ifndef CVN_SERVE_SESSION_H
#define CVN_SERVE_SESSION_H

#include "caravan/session.h"
#include "serve/scheduler.h"

struct cvn_session {
    cvn_engine *e;   /* borrowed */
    Kept kept;       /* the slot, and how many of `cached` its cache holds */
    int32_t *cached; /* [context + 1] the ids of the dialog, owned */
    cvn_session_stats stats;
};

/* Whether nobody else has used the slot since. */
bool session_is_ours(const cvn_session *session);

#endif
