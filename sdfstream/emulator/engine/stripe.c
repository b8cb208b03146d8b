#include "stripe.h"

#include <stdlib.h>
#include <string.h>

void je_stripe_begin(je_stripe *stripe, uint32_t peer, uint32_t most)
{
    *stripe = (je_stripe){.peer = peer, .qps = je_memory(most * sizeof(je_requester *))};
    je_queue_begin(&stripe->waiting, sizeof(je_piece *));
}

/* The first piece that waits, still held; NULL: none. */
static je_piece *take_first(je_stripe *stripe)
{
    if (!stripe->waiting.n)
        return NULL;
    je_piece *piece = *(je_piece **)je_queue_at(&stripe->waiting, 0);
    je_queue_pop(&stripe->waiting);
    return piece;
}

void je_stripe_end(je_stripe *stripe)
{
    for (je_piece *piece; (piece = take_first(stripe));)
        je_piece_release(piece);
    je_queue_end(&stripe->waiting);
    free(stripe->qps);
}

void je_stripe_put(je_stripe *stripe, je_piece *piece)
{
    piece->holders++;
    je_queue_push(&stripe->waiting, &piece);
}

/* Give the unfinished pieces of a queue pair to the others, in their order, before those that wait. */
static void rescue(je_stripe *stripe, je_requester *qp)
{
    qp->rescued = true;
    for (je_chunk *chunk = qp->newest; chunk; chunk = chunk->before)
        if (!chunk->piece->done) {
            chunk->piece->holders++;
            je_queue_push_front(&stripe->waiting, &chunk->piece);
            stripe->rescued++;
        }
}

static void find_stalled(je_stripe *stripe, int64_t now_ns)
{
    uint32_t stalled = 0;
    for (uint32_t i = 0; i < stripe->n; i++) {
        je_requester *qp = stripe->qps[i];
        qp->stalled = je_requester_stalled(qp, now_ns);
        qp->rescued = qp->rescued && qp->stalled;
        stalled += qp->stalled;
    }
    if (stalled == stripe->n)
        return;
    for (uint32_t i = 0; i < stripe->n; i++)
        if (stripe->qps[i]->stalled && !stripe->qps[i]->rescued)
            rescue(stripe, stripe->qps[i]);
}

bool je_stripe_hungry(const je_stripe *stripe)
{
    if (!stripe->waiting.n)
        return false;
    for (uint32_t i = 0; i < stripe->n; i++)
        if (!stripe->qps[i]->stalled && je_requester_has_room(stripe->qps[i]))
            return true;
    return false;
}

/* Give the next piece that nobody has carried to `qp`. */
static void feed_one(je_stripe *stripe, je_requester *qp, int64_t now_ns)
{
    for (je_piece *piece; (piece = take_first(stripe));) {
        bool done = piece->done;
        if (!done)
            je_requester_push(qp, piece, now_ns);
        je_piece_release(piece);
        if (!done)
            return;
    }
}

void je_stripe_feed(je_stripe *stripe, int64_t now_ns)
{
    find_stalled(stripe, now_ns);
    if (!stripe->waiting.n)
        return;
    while (je_stripe_hungry(stripe))
        for (uint32_t i = 0; i < stripe->n; i++)
            if (!stripe->qps[i]->stalled && je_requester_has_room(stripe->qps[i]))
                feed_one(stripe, stripe->qps[i], now_ns);
    /* the first in turn is the last next time: with few pieces it would get them all */
    je_requester *first = stripe->qps[0];
    memmove(stripe->qps, stripe->qps + 1, (stripe->n - 1) * sizeof(je_requester *));
    stripe->qps[stripe->n - 1] = first;
}
