/* One rank (rank.py): collective after collective, each checked at its end. */
#ifndef JE_RANK_H
#define JE_RANK_H

#include "collective.h"
#include "stripe.h"

typedef struct je_early {
    je_incoming *chunk;
    uint32_t peer;
} je_early;

typedef struct je_rank {
    const je_shape *shape;
    uint64_t *refusals; /* (JE_REFUSALS) of the job */
    uint32_t rank;
    uint32_t next;   /* number of the next collective */
    bool working;    /* on number next - 1 */
    int64_t outstanding;
    je_collective *collective;
    uint32_t n;      /* of stripes */
    je_stripe *stripes;
    je_queue early;  /* of je_early: chunks of the next collective */
    uint64_t done, right, payload_octets;
} je_rank;

void je_rank_init(je_rank *rank, uint32_t number, const je_shape *shape, uint64_t *refusals, uint32_t qps_to_a_peer);
void je_rank_end(je_rank *rank);
/* Start the next collective. */
void je_rank_begin(je_rank *rank);
/* A chunk came from rank `peer`; it is ours to free. */
void je_rank_take(je_rank *rank, uint32_t peer, je_incoming *chunk);
/* Whether the collective is over; it is checked and counted then. */
bool je_rank_finish(je_rank *rank);

#endif
