/* The whole public interface of libcaravan. */
#ifndef CARAVAN_CARAVAN_H
#define CARAVAN_CARAVAN_H

#include "caravan/chat.h"
#include "caravan/constrain.h"
#include "caravan/dtype.h"
#include "caravan/engine.h"
#include "caravan/error.h"
#include "caravan/graph.h"
#include "caravan/ranks.h"
#include "caravan/run.h"
#include "caravan/session.h"
#include "caravan/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" */
const char *cvn_version(void);

#ifdef __cplusplus
}
#endif
#endif
