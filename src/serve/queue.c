#include "serve/queue.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

Job *queue_add(Queue *q, const cvn_request *request, int64_t room)
{
    const cvn_request *r = request;
    size_t n_bias = (size_t)r->n_bias, n_end = (size_t)r->n_end;
    Job *job =
        malloc(sizeof *job + n_bias * sizeof *r->bias + (n_end + (size_t)room) * sizeof *r->end);
    if (!job)
        return NULL;
    cvn_bias *bias = (cvn_bias *)(job + 1);
    int32_t *end = (int32_t *)(bias + n_bias), *prompt = end + n_end;
    memcpy(prompt, r->prompt, (size_t)r->n_prompt * sizeof *prompt);
    if (n_bias)
        memcpy(bias, r->bias, n_bias * sizeof *bias);
    if (n_end)
        memcpy(end, r->end, n_end * sizeof *end);
    q->last_id = q->last_id == INT_MAX ? 1 : q->last_id + 1;
    int64_t turn = q->turn;
    for (const Job *own = q->first; own; own = own->next)
        turn = own->request.key == r->key && own->turn >= turn ? own->turn + 1 : turn;
    *job = (Job){.before = q->last,
                 .id = q->last_id,
                 .request = *r,
                 .n_prompt = r->n_prompt,
                 .slot = -1,
                 .turn = turn};
    job->request.prompt = prompt;
    job->request.bias = bias;
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
        free(job);
    }
}

void queue_free(Queue *q)
{
    while (q->first)
        queue_end(q, q->first);
    queue_drop(q);
}
