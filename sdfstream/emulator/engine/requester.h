/* The sending end of a queue pair (qp_send.py): pieces in, packets out, acknowledgements in, finished chunks out. */
#ifndef JE_REQUESTER_H
#define JE_REQUESTER_H

#include "congestion.h"
#include "queue.h"
#include "wire.h"

#define JE_NO_INSTANT INT64_MIN /* instants that are not known; as ABSENT_NS of records/units.py */

/* A piece on one queue pair, in a list from the oldest to the newest. */
typedef struct je_chunk {
    struct je_chunk *before, *behind;
    je_piece *piece;
    uint32_t number;
    uint32_t packets, unacknowledged;
    uint32_t next_offset;
    uint32_t retransmits;
    uint16_t path;
    bool nothing; /* some of its packets were void */
    int64_t sent_at_ns;
} je_chunk;

/* A packet that is not acknowledged yet, at the place of its number modulo JE_WINDOW. */
typedef struct je_sent {
    uint64_t psn;
    uint64_t tx;
    je_chunk *chunk;
    uint32_t offset;
    bool unacknowledged;
    bool in_flight;
    int64_t sent_ns;
} je_sent;

typedef struct je_transmission {
    uint64_t tx, psn;
} je_transmission;

/* Why the departure of a packet is asked for. */
enum { JE_FIRST_OF_CHUNK = 1, JE_FIRST_ON_PATH = 2 };

/* A packet to send. */
typedef struct je_packet {
    uint16_t port;
    uint8_t asks; /* JE_FIRST_...: */
    uint32_t chunk;
    uint32_t octets;
    uint8_t data[JE_MOST_OCTETS];
} je_packet;

/* A chunk whose packets have all been acknowledged. */
typedef struct je_finished {
    const je_chunk *chunk;
    const je_chunk_report *report; /* NULL: it was lost */
    bool first; /* to carry the piece */
} je_finished;

typedef struct je_requester {
    uint32_t run, number;
    uint16_t path;
    bool stamp_move; /* the next packet is the first on this path */
    bool moved;      /* moved_at_ns is known */
    bool stalled, rescued; /* as the stripe has found it */
    int64_t rate_bps;      /* 0: no limit */
    int64_t moved_at_ns;
    uint64_t sent_octets, acknowledged_octets, retransmits, time_outs, refused;
    je_window window;
    je_pacer pacer;
    je_round_trip round_trip;
    je_chunk *oldest, *newest, *fresh; /* `fresh`: the first with packets that were never sent */
    uint32_t fresh_packets;
    uint32_t next_chunk;
    uint64_t next_psn, next_tx, first_unacked, path_begins_tx, newest_tx;
    uint32_t received, ce;
    int32_t in_flight, unacknowledged;
    int64_t progress_ns;
    je_sent sent[JE_WINDOW];
    je_queue order; /* of je_transmission, as sent */
    je_queue lost;  /* of psn */
} je_requester;

void je_requester_begin(je_requester *qp, uint32_t run, uint32_t number, uint16_t path, int64_t now_ns);
void je_requester_end(je_requester *qp);
bool je_requester_has_room(const je_requester *qp);
/* Nothing has been acknowledged for too long. */
bool je_requester_stalled(const je_requester *qp, int64_t now_ns);
void je_requester_push(je_requester *qp, je_piece *piece, int64_t now_ns);
void je_requester_steer(je_requester *qp, uint16_t path, int64_t now_ns);
/* Before the packets of a pass: time-outs, credit. */
void je_requester_poll(je_requester *qp, int64_t now_ns);
/* The next packet that is to leave now; false: none. */
bool je_requester_next(je_requester *qp, je_packet *packet, int64_t now_ns);
/* Take an acknowledgement; each chunk that it finishes is given to `finish` before it is freed. */
void je_requester_on_ack(je_requester *qp, const je_ack *ack, int64_t now_ns,
                         void (*finish)(void *context, const je_finished *finished), void *context);
void je_requester_departed(je_requester *qp, uint8_t asks, uint32_t chunk, uint16_t path, int64_t at_ns);
/* When it has something to do if nothing arrives: a packet may leave, a time-out or a stall is over. */
int64_t je_requester_next_ns(const je_requester *qp, int64_t now_ns);

#endif
