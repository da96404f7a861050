/* prepare.c - see prepare.h. */
#include "server/prepare.h"

#include <pthread.h>
#include <stdlib.h>

#define MAX_WAITING 256
#define MAX_WAITING_BYTES ((size_t)256 << 20) /* of their bodies; one alone may be larger */

struct cairn__preparer {
    cairn__api_request_env   env;
    cairn__mailbox      *box;
    pthread_t            thread;
    pthread_mutex_t      lock;
    pthread_cond_t       wake;
    cairn__preparation  *first, **end;
    unsigned             n_waiting;
    size_t               waiting_bytes;
    bool                 stopping;
};

void cairn__preparation_destroy(cairn__preparation *preparation)
{
    if (!preparation)
        return;
    free(preparation->body.text);
    cairn__api_request_destroy(preparation->request);
    free(preparation);
}

static void prepare(cairn__preparer *preparer, cairn__preparation *p)
{
    if (!atomic_load(&p->abandoned))
        (void)!cairn__api_request_parse(&preparer->env, &p->body, &p->request, &p->refusal);
    free(p->body.text);
    p->body.text = NULL;
}

static cairn__preparation *take(cairn__preparer *preparer, bool *ret_stopping)
{
    pthread_mutex_lock(&preparer->lock);
    while (!preparer->first && !preparer->stopping)
        pthread_cond_wait(&preparer->wake, &preparer->lock);
    cairn__preparation *p = preparer->first;
    if (p) {
        preparer->first = p->next;
        if (!preparer->first)
            preparer->end = &preparer->first;
        preparer->n_waiting--;
        preparer->waiting_bytes -= p->body.size;
    }
    *ret_stopping = preparer->stopping;
    pthread_mutex_unlock(&preparer->lock);
    return p;
}

static void *run(void *ctx)
{
    cairn__preparer    *preparer = ctx;
    cairn__preparation *p;
    bool                stopping;
    while ((p = take(preparer, &stopping))) {
        if (stopping)
            cairn__refuse(&p->refusal, 503, "shutting_down", NULL, "the server is shutting down");
        else
            prepare(preparer, p);
        cairn__mailbox_post(preparer->box, &p->mail);
    }
    return NULL;
}

cairn_status cairn__preparer_create(const cairn__api_request_env *env, cairn__mailbox *box, cairn__preparer **ret_preparer)
{
    cairn__preparer *preparer = calloc(1, sizeof *preparer);
    if (!preparer)
        return CAIRN_ENOMEM;
    preparer->env = *env;
    preparer->box = box;
    preparer->end = &preparer->first;
    pthread_mutex_init(&preparer->lock, NULL);
    pthread_cond_init(&preparer->wake, NULL);
    if (pthread_create(&preparer->thread, NULL, run, preparer) != 0) {
        free(preparer);
        return CAIRN_ENOMEM;
    }
    *ret_preparer = preparer;
    return CAIRN_OK;
}

cairn_status cairn__preparer_submit(cairn__preparer *preparer, cairn__preparation *preparation_take)
{
    pthread_mutex_lock(&preparer->lock);
    bool full = preparer->n_waiting >= MAX_WAITING ||
                (preparer->n_waiting && preparer->waiting_bytes + preparation_take->body.size > MAX_WAITING_BYTES);
    if (!full) {
        preparation_take->next = NULL;
        *preparer->end         = preparation_take;
        preparer->end          = &preparation_take->next;
        preparer->n_waiting++;
        preparer->waiting_bytes += preparation_take->body.size;
        pthread_cond_signal(&preparer->wake);
    }
    pthread_mutex_unlock(&preparer->lock);
    return full ? CAIRN_EBUSY : CAIRN_OK;
}

void cairn__preparer_destroy(cairn__preparer *preparer)
{
    if (!preparer)
        return;
    pthread_mutex_lock(&preparer->lock);
    preparer->stopping = true;
    pthread_cond_signal(&preparer->wake);
    pthread_mutex_unlock(&preparer->lock);
    pthread_join(preparer->thread, NULL);
    pthread_mutex_destroy(&preparer->lock);
    pthread_cond_destroy(&preparer->wake);
    free(preparer);
}
