/* The receiving end of a queue pair (qp_receive.py): packets in, whole chunks out, exactly once each, and
 * acknowledgements. */
#ifndef JE_RESPONDER_H
#define JE_RESPONDER_H

#include "queue.h"
#include "wire.h"

/* A chunk that is not complete, in a list in order of arrival; then a whole one. */
typedef struct je_incoming {
    struct je_incoming *behind;
    uint64_t first_psn, last_psn;
    uint32_t number;
    uint32_t collective, step, piece;
    uint32_t missing; /* packets */
    uint32_t ce;
    int64_t arrived_at_ns;
    uint32_t octets;
    uint8_t data[];
} je_incoming;

typedef struct je_repeated {
    je_chunk_report report;
    uint64_t until_acks; /* acknowledgements ever, with which it is repeated for the last time */
} je_repeated;

typedef struct je_responder {
    uint32_t run, number;
    uint16_t ack_path; /* source port of the newest transmission that has arrived */
    bool at_once;      /* an acknowledgement is due now */
    bool marked;       /* the newest packet had CE */
    uint32_t pending;  /* packets since the last acknowledgement */
    int64_t ack_due_ns; /* when one alone is acknowledged; INT64_MAX: not known before the next pass */
    uint64_t duplicates, refused;
    uint64_t cumulative;
    uint64_t ahead[JE_WINDOW_WORDS];
    uint64_t newest_tx;
    uint32_t received, ce;
    uint32_t chunks;
    je_incoming *oldest, *newest;
    je_repeated reports[JE_REPORTS];
    uint32_t report_count;
    uint64_t acks;
} je_responder;

void je_responder_begin(je_responder *qp, uint32_t run, uint32_t number);
void je_responder_end(je_responder *qp);
/* Take a data packet that arrived at `at_ns`; the chunk that it completed, the caller's to free, or NULL. */
je_incoming *je_responder_take(je_responder *qp, const je_header *header, const uint8_t *payload, uint16_t source_port,
                               int64_t at_ns, bool ce);
/* The acknowledgement for what arrived since the last one: its octets; 0: none is due. */
uint32_t je_responder_acknowledge(je_responder *qp, uint8_t *out, int64_t now_ns);

#endif
