/* When a queue pair may send: congestion window (qp_window.py), spacing (qp_pacer.py), round trips and the time-out
 * (qp_round_trip.py). Arithmetic is done in the order of the Python code, so both come to the same doubles. */
#ifndef JE_CONGESTION_H
#define JE_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

#define JE_NS_PER_MS INT64_C(1000000)

typedef struct je_window {
    double packets;
    double slow_start_until;
    double alpha;
    double before_time_out;
    uint64_t round_ends_tx, cut_until_tx;
    int64_t seen, marked;
} je_window;

typedef struct je_pacer {
    double credit; /* octets; a packet may leave while it is positive */
    int64_t at_ns;
} je_pacer;

typedef struct je_round_trip {
    int64_t smoothed_ns; /* 0: not known yet */
    int64_t spread_ns;
    int times; /* time-outs in a row */
} je_round_trip;

void je_window_begin(je_window *window);
bool je_window_in_slow_start(const je_window *window);
void je_window_on_ack(je_window *window, int64_t acked, int64_t marked, uint64_t newest_tx, uint64_t next_tx,
                      bool full);
void je_window_on_loss(je_window *window, uint64_t newest_tx, uint64_t next_tx);
void je_window_on_time_out(je_window *window, int times);
void je_window_on_new_path(je_window *window, uint64_t next_tx);

void je_pacer_begin(je_pacer *pacer, int64_t now_ns);
void je_pacer_refill(je_pacer *pacer, double rate_bps, int64_t now_ns);
void je_pacer_spend(je_pacer *pacer, uint32_t datagram_octets);
/* When the next packet may leave at this rate, if nothing else changes. */
int64_t je_pacer_next_ns(const je_pacer *pacer, double rate_bps);

int64_t je_round_trip_time_out_ns(const je_round_trip *round_trip);
void je_round_trip_measure(je_round_trip *round_trip, int64_t rtt_ns);
/* How many time-outs in a row. */
int je_round_trip_on_time_out(je_round_trip *round_trip);

#endif
