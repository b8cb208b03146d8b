/* The state of a job, which its files share. */
#ifndef JE_JOB_STATE_H
#define JE_JOB_STATE_H

#include "job.h"

/* Both ends of a planned queue pair (in the lab, both are ours). */
typedef struct je_ends {
    je_t *je;
    uint32_t index, rank, peer;
    je_requester requester;
    je_responder responder;
    int64_t acknowledged_at_ns; /* of the acknowledgement in hand */
} je_ends;

struct je_t {
    je_config config;
    je_shape shape;
    je_ends *qps;
    je_rank *ranks;
    je_queue rows;
    uint64_t rows_shed;
    uint64_t refusals[JE_REFUSALS];
    uint32_t turn; /* index of the queue pair that is first in turn */
    je_packet packet;
};

#endif
