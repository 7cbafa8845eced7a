#include "serve/queue.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

Job *queue_add(Queue *q, const cvn_request *request)
{
    size_t bytes = (size_t)request->n_prompt * sizeof *request->prompt;
    Job *job = calloc(1, sizeof *job);
    int32_t *prompt = malloc(bytes);
    cvn_bias *bias = calloc((size_t)request->n_bias + 1, sizeof *bias);
    int32_t *end = calloc((size_t)request->n_end + 1, sizeof *end);
    if (!job || !prompt || !bias || !end) {
        free(job);
        free(prompt);
        free(bias);
        free(end);
        return NULL;
    }
    memcpy(prompt, request->prompt, bytes);
    q->last_id = q->last_id == INT_MAX ? 1 : q->last_id + 1;
    int64_t turn = q->turn;
    for (const Job *own = q->first; own; own = own->next)
        turn = own->request.key == request->key && own->turn >= turn ? own->turn + 1 : turn;
    *job = (Job){.before = q->last, .id = q->last_id, .request = *request, .row = -1, .turn = turn};
    job->request.prompt = prompt;
    if (request->n_bias)
        memcpy(bias, request->bias, (size_t)request->n_bias * sizeof *bias);
    job->request.bias = bias;
    if (request->n_end)
        memcpy(end, request->end, (size_t)request->n_end * sizeof *end);
    job->request.end = end;
    *(q->last ? &q->last->next : &q->first) = job;
    q->last = job;
    q->n++;
    return job;
}

Job *queue_find(const Queue *q, int id)
{
    Job *job = q->first;
    while (job && job->id != id)
        job = job->next;
    return job;
}

void queue_end(Queue *q, Job *job)
{
    *(job->before ? &job->before->next : &q->first) = job->next;
    *(job->next ? &job->next->before : &q->last) = job->before;
    job->next = q->ended;
    q->ended = job;
    q->n--;
    q->cancelled -= job->cancelled;
}

void queue_drop(Queue *q)
{
    while (q->ended) {
        Job *job = q->ended;
        q->ended = job->next;
        free((int32_t *)(uintptr_t)job->request.prompt);
        free((cvn_bias *)(uintptr_t)job->request.bias);
        free((int32_t *)(uintptr_t)job->request.end);
        free(job);
    }
}

void queue_free(Queue *q)
{
    while (q->first)
        queue_end(q, q->first);
    queue_drop(q);
}
