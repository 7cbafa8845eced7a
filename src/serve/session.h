/* What the files of a session share. */
#ifndef CVN_SERVE_SESSION_H
#define CVN_SERVE_SESSION_H

#include "caravan/session.h"
#include "serve/engine.h"

/* What it says is a text that the engine keeps for it (serve/prefix.h). */
struct cvn_session {
    cvn_engine *e; /* borrowed */
    cvn_session_stats stats;
};

#endif
