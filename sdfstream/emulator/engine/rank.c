#include "rank.h"

#include <stdlib.h>

void je_rank_init(je_rank *rank, uint32_t number, const je_shape *shape, uint64_t *refusals, uint32_t qps_to_a_peer)
{
    *rank = (je_rank){.shape = shape, .refusals = refusals, .rank = number};
    rank->n = shape->kind == JE_ALL_TO_ALL ? shape->ranks - 1 : 1;
    rank->stripes = je_memory(rank->n * sizeof(je_stripe));
    for (uint32_t i = 0; i < rank->n; i++)
        je_stripe_begin(&rank->stripes[i], (number + 1 + i) % shape->ranks, qps_to_a_peer);
    je_queue_begin(&rank->early, sizeof(je_early));
}

void je_rank_end(je_rank *rank)
{
    for (uint32_t i = 0; i < rank->n; i++)
        je_stripe_end(&rank->stripes[i]);
    free(rank->stripes);
    for (; rank->early.n; je_queue_pop(&rank->early))
        free(((je_early *)je_queue_at(&rank->early, 0))->chunk);
    je_queue_end(&rank->early);
    je_collective_free(rank->collective);
}

static void put(void *context, uint32_t peer, je_piece *piece)
{
    je_rank *rank = context;
    for (uint32_t i = 0; i < rank->n; i++)
        if (rank->stripes[i].peer == peer)
            je_stripe_put(&rank->stripes[i], piece);
    rank->outstanding++;
}

void je_rank_begin(je_rank *rank)
{
    rank->collective = je_collective_new(rank->shape, rank->rank, rank->next++);
    rank->working = true;
    je_collective_start(rank->collective, put, rank);
    for (uint32_t n = rank->early.n; n; n--) {
        je_early early = *(je_early *)je_queue_at(&rank->early, 0);
        je_queue_pop(&rank->early);
        je_rank_take(rank, early.peer, early.chunk);
    }
}

void je_rank_take(je_rank *rank, uint32_t peer, je_incoming *chunk)
{
    if (!rank->working || chunk->collective != rank->next - 1) {
        if (chunk->collective == rank->next) {
            je_queue_push(&rank->early, &(je_early){chunk, peer});
            return;
        }
        rank->refusals[chunk->collective < rank->next ? JE_DOUBLED : JE_FAR_AHEAD]++;
        free(chunk);
        return;
    }
    enum je_refusal refused = je_collective_take(rank->collective, peer, chunk, put, rank);
    if (refused == JE_TAKEN)
        rank->payload_octets += chunk->octets;
    else
        rank->refusals[refused]++;
    free(chunk);
}

bool je_rank_finish(je_rank *rank)
{
    if (!rank->working || rank->outstanding || rank->collective->missing)
        return false;
    rank->done++;
    rank->right += je_collective_is_right(rank->collective);
    je_collective_free(rank->collective);
    rank->collective = NULL;
    rank->working = false;
    return true;
}
