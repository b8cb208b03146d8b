/* Several queue pairs from one rank to another (qp_stripe.py): every piece goes to whichever has room. */
#ifndef JE_STRIPE_H
#define JE_STRIPE_H

#include "requester.h"

typedef struct je_stripe {
    uint32_t peer; /* rank that they lead to */
    uint32_t n;
    je_requester **qps; /* (n) the first in turn first */
    je_queue waiting;   /* of je_piece pointers, each held */
    uint64_t rescued;
} je_stripe;

void je_stripe_begin(je_stripe *stripe, uint32_t peer, uint32_t most);
void je_stripe_end(je_stripe *stripe);
void je_stripe_put(je_stripe *stripe, je_piece *piece);
void je_stripe_feed(je_stripe *stripe, int64_t now_ns);
/* A piece waits, and a queue pair has room for it. */
bool je_stripe_hungry(const je_stripe *stripe);

#endif
