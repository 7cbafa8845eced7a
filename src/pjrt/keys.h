/*
 * What plugins of several processes tell each other: keys that one puts and others wait for, such as where the devices of a
 * process are, or how a group of them is joined. A client gets the functions below; a key that is put is sent to all other
 * processes, whose thread for that notes it.
 *
 *     rank 0   put "cuda/local/0" = …                        → rank 1
 *     rank 1   get "cuda/local/0", within 60 s               waits until it has come
 */
#ifndef CVN_PJRT_KEYS_H
#define CVN_PJRT_KEYS_H

#include "comm/transport.h"
#include "pjrt/api.h"

typedef struct Keys Keys;

/* transport is borrowed. All processes open theirs, and close them: closing waits for the others, some seconds at most. */
int keys_open(Transport *transport, Keys **out, cvn_err *err);
void keys_close(Keys *keys); /* NULL is allowed */

/* For the client: the context is the Keys. */
PjrtError *keys_get(PjrtKeyGetArgs *args);
PjrtError *keys_try_get(PjrtKeyTryGetArgs *args);
PjrtError *keys_put(PjrtKeyPutArgs *args);

#endif
