/* The data plane of an emulated job (rank_job.py), without I/O: datagrams in, datagrams out, time as an argument.
 *
 * What is done per packet, per chunk and per collective of all ranks is here; which commands are obeyed, the job's
 * files and its rows on the bus are Python's. The Python classes of the same names are the reference: given the same
 * calls both send the same octets (tests/property/test_emulator_engine_twins.py). */
#ifndef JE_JOB_H
#define JE_JOB_H

#include "rank.h"

#define JE_ABI 1

typedef struct je_config {
    uint32_t octets; /* sizeof(je_config) as the caller knows it */
    uint32_t run;
    uint32_t ranks, qps;
    uint32_t collective; /* je_collective_kind */
    uint32_t elements, chunk_elements;
    uint8_t tos_data, tos_ack;
    uint8_t pad[2];
    int64_t collectives; /* end after so many; 0: go on */
    int64_t rate_bps;    /* limit of every queue pair; 0: none */
    int64_t now_ns;      /* any steady clock; the same one in all calls */
} je_config;

/* A queue pair as planned; they are given sorted by number, and by rank and peer in that order. */
typedef struct je_qp_plan {
    uint32_t number;
    uint32_t rank, peer;
    uint32_t path; /* source port at first */
} je_qp_plan;

/* A datagram to send. */
typedef struct je_datagram {
    uint32_t rank, peer; /* sending and receiving */
    uint16_t port;
    uint8_t tos;
    uint8_t asks;   /* other than 0: je_departed is to be called, and again with the kernel's stamp */
    uint32_t qp;    /* index */
    uint32_t chunk; /* what je_departed is to be told */
    uint32_t octets;
    const uint8_t *payload; /* valid during the call */
} je_datagram;

typedef void je_sink(void *context, const je_datagram *datagram);

/* A chunk carried, a row of sdf.raw.qp.v1; instants by the system clock. */
typedef struct je_row {
    uint32_t qp; /* index */
    uint32_t chunk, collective, octets, packets, retransmits;
    uint32_t path, ce;
    int64_t sent_at_ns, acknowledged_at_ns;
    int64_t arrived_at_ns, completed_at_ns; /* JE_NO_INSTANT: the receiver's report was lost */
} je_row;

typedef struct je_qp_report {
    uint64_t sent_octets, acknowledged_octets, retransmits, time_outs, requester_refused;
    uint64_t duplicates, responder_refused;
    int64_t rate_bps;    /* 0: no limit */
    int64_t moved_at_ns; /* JE_NO_INSTANT: not known */
    int64_t rtt_ns;
    double window_packets;
    uint32_t path;
    uint32_t pad;
} je_qp_report;

typedef struct je_report {
    uint64_t collectives, ended, right, payload_octets, rescued, rows_shed;
    uint64_t refusals[JE_REFUSALS];
    uint32_t done; /* every rank has done its last collective */
    uint32_t pad;
} je_report;

typedef struct je_t je_t;

int je_abi(void);
size_t je_octets_of(const char *name);

/* NULL: `config` is not consistent. */
je_t *je_new(const je_config *config, const je_qp_plan *qps);
void je_free(je_t *je);

/* A datagram arrived at the NIC of `rank` at `at_ns` (system clock). */
void je_receive(je_t *je, uint32_t rank, uint16_t port, uint8_t tos, int64_t at_ns, const uint8_t *packet,
                uint32_t octets, int64_t now_ns);
/* Acknowledge, continue collectives, send. */
void je_step(je_t *je, int64_t now_ns, je_sink *sink, void *context);
/* When je_step has something to do if nothing arrives. */
int64_t je_next_ns(const je_t *je, int64_t now_ns);
void je_departed(je_t *je, uint32_t qp, uint8_t asks, uint32_t chunk, uint16_t port, int64_t at_ns);
void je_steer(je_t *je, uint32_t qp, uint16_t path, int64_t now_ns);
void je_limit(je_t *je, uint32_t qp, int64_t rate_bps);

bool je_is_done(const je_t *je);
void je_reported(const je_t *je, je_report *report, je_qp_report *qps);
/* Take the oldest rows, at most `n`; how many. */
uint32_t je_take_rows(je_t *je, je_row *rows, uint32_t n);

#endif
