/* Requests that were submitted and have not ended, in the order in which they came. */
#ifndef CVN_SERVE_QUEUE_H
#define CVN_SERVE_QUEUE_H

#include "caravan/engine.h"

typedef struct Job {
    struct Job *before, *next; /* in the queue; next: also among those that have ended */
    int id;
    /* Its biases, end tokens and prompt lie behind the job, in one block, and behind the prompt what was handed over. request.n_prompt
       tokens are read, at first those of the prompt, and, where it was preempted, what was handed over with them. */
    cvn_request request;
    cvn_listener listener;
    /* The session whose text it goes on with; NULL: of anybody (serve/prefix.h). */
    const void *owner;
    int64_t n_prompt;
    /* Tokens that follow the prompt in its slot: those of the first result.n_tokens were handed over before. */
    int64_t drawn;
    int slot;       /* that it works on; -1: it waits for one */
    int64_t turn;   /* when those who ask take turns: one of each, then a second of each */
    int64_t passed; /* requests that came later and have got a slot before it */
    bool cancelled;
    double begin; /* when it was submitted */
    cvn_result result;
} Job;

typedef struct Queue {
    Job *first, *last; /* owned */
    Job *ended;        /* owned: to be freed when nobody looks at them any more */
    int n, running;    /* in the queue; that have a slot */
    int cancelled;     /* in the queue, marked so */
    int last_id;
    int64_t turn; /* that is on */
    bool busy;    /* a step, or a cancellation, is under way: callbacks may be, too */
} Queue;

/* At the end; the request, its prompt, with room for so many tokens in all, biases and end tokens are copied. NULL: no memory. */
Job *queue_add(Queue *queue, const cvn_request *request, int64_t room);
/* NULL: it has ended, or never was. */
Job *queue_find(const Queue *queue, int id);
/* Out of the queue, until it is freed by queue_drop. */
void queue_end(Queue *queue, Job *job);
/* Frees those that have ended. */
void queue_drop(Queue *queue);
void queue_free(Queue *queue);

#endif
