/* Collectives, one rank's view (collective.py), and the numbers that they carry (collective_values.py). */
#ifndef JE_COLLECTIVE_H
#define JE_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "queue.h"
#include "responder.h"
#include "wire.h"

typedef enum je_collective_kind { JE_ALL_REDUCE, JE_ALL_TO_ALL } je_collective_kind;

typedef struct je_shape {
    je_collective_kind kind;
    uint32_t ranks;
    uint32_t elements; /* a multiple of `ranks` */
    uint32_t chunk_elements;
} je_shape;

typedef struct je_collective {
    je_shape shape;
    uint32_t rank, number;
    uint32_t segment; /* elements of a rank's share: a segment, or a block */
    uint32_t pieces;  /* of a segment or block */
    uint32_t last_step;
    uint32_t missing; /* chunks */
    uint8_t *seen;    /* (steps or ranks, pieces) */
    uint32_t *data;   /* (elements) of an all-reduce; (ranks, block) received in an all-to-all */
} je_collective;

/* Takes a piece, to be sent to rank `peer`. */
typedef void je_send(void *context, uint32_t peer, je_piece *piece);

je_collective *je_collective_new(const je_shape *shape, uint32_t rank, uint32_t number);
void je_collective_free(je_collective *collective);
/* The pieces that can be sent without having received anything. */
void je_collective_start(je_collective *collective, je_send *send, void *context);
/* Take a chunk from rank `peer`, and send the pieces that can be sent because of it; or why it is refused. */
enum je_refusal je_collective_take(je_collective *collective, uint32_t peer, const je_incoming *chunk, je_send *send,
                                   void *context);
/* Whether the result is the expected one, number by number. */
bool je_collective_is_right(const je_collective *collective);

#endif
