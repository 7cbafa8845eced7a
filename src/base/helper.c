#include "base/helper.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct HelperThread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t begins, ends;
    void (*fn)(void *context); /* while it is busy; NULL: it is to end */
    void *context;
    atomic_bool busy; /* written under the lock */
};

static void *work(void *of)
{
    HelperThread *s = of;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!atomic_load(&s->busy))
            pthread_cond_wait(&s->begins, &s->lock);
        if (!s->fn)
            break;
        pthread_mutex_unlock(&s->lock);
        s->fn(s->context);
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->busy, false);
        pthread_cond_broadcast(&s->ends);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

HelperThread *helper_new(cvn_err *err)
{
    HelperThread *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(err, CVN_EMEM, "no memory for a thread");
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->begins, NULL);
    pthread_cond_init(&s->ends, NULL);
    int error = pthread_create(&s->thread, NULL, work, s);
    if (!error)
        return s;
    err_set(err, CVN_EMEM, "the system refused a thread (%s)", strerror(error));
    free(s);
    return NULL;
}

void helper_start(HelperThread *s, void (*fn)(void *context), void *context)
{
    pthread_mutex_lock(&s->lock);
    s->fn = fn;
    s->context = context;
    atomic_store(&s->busy, true);
    pthread_cond_signal(&s->begins);
    pthread_mutex_unlock(&s->lock);
}

void helper_wait(HelperThread *s)
{
    if (!atomic_load_explicit(&s->busy, memory_order_acquire))
        return;
    pthread_mutex_lock(&s->lock);
    while (atomic_load(&s->busy))
        pthread_cond_wait(&s->ends, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void helper_free(HelperThread *s)
{
    if (!s)
        return;
    helper_wait(s);
    helper_start(s, NULL, NULL);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->ends);
    pthread_cond_destroy(&s->begins);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
