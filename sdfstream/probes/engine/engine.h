/* The packet engine's public ABI: what Python and the IO shell call. Everything else is internal.
 *
 * One engine serves all hosts of a process. It is the sending half of STAMP (RFC 8762) without a socket or a clock:
 * which probes are due, to which exchange an answer belongs, which exchanges are finished, which paths are silent, and
 * which orders follow from that. Python's numpy engines (probes/stamp) are the reference: same octets, rows, states.
 *
 * Times: `now_ns` is a steady clock (CLOCK_MONOTONIC) for pacing, time-outs and liveness; `system_ns`, and all times in
 * datagrams and stamps, are the host's system clock.
 *
 * Threads: one thread runs the engine. Another one (one at a time) may call what is marked "any thread"; changes
 * travel through a command ring and are applied by `pe_apply`, between turns.
 *
 * A turn, in this order, so that a process that was stopped reads its answers before it calls a path silent:
 *   pe_apply, pe_take_stamp and pe_take_answer with all that the sockets hold, pe_assess, pe_finish, pe_due.
 * The turn after it is due at the earliest of pe_next_due_ns, pe_next_assess_ns, and a packet. */
#ifndef PE_ENGINE_H
#define PE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "datagram.h"

#define PE_ABI 4

typedef struct pe pe_t;

/* What the engine has room for, and what never changes. Memory is allocated once, by `pe_new`. */
typedef struct pe_config {
    uint32_t octets;         /* sizeof(pe_config) as the caller knows it */
    uint32_t most_paths;
    uint32_t most_exchanges; /* slots of all paths together; see `pe_depth` */
    uint32_t row_capacity;   /* of the ring of rows, a power of two */
    uint32_t event_capacity; /* of the ring of events, a power of two */
    uint32_t most_hosts;
    uint32_t most_nics;
    uint32_t most_segments;
    uint32_t most_routes;
    uint32_t most_links;     /* pairs (segment, probe path) and (route, segment) together */
    uint32_t most_orders;
    uint32_t command_words;  /* of the command ring, a power of two; 4 octets each */
    uint32_t width_octets;   /* longest probe, UDP payload */
    uint16_t error;          /* Error Estimate word of probes (RFC 4656 section 4.1.2); its Z bit: format of stamps */
    uint16_t key_octets;     /* 0: unauthenticated mode */
    uint8_t key[64];         /* a longer one is hashed by the caller (RFC 2104) */
    uint64_t seed;           /* of phases and jitter */
} pe_config;

/* A probe path. */
typedef struct pe_path {
    int64_t interval_ns;
    int64_t liveness_ns; /* silent after the longer of this and three intervals */
    uint32_t socket;     /* slot of the socket that sends its probes and receives their answers */
    uint32_t length_octets; /* UDP payload, as pe_probe_octets allows it */
    uint16_t ssid;       /* of its session, 1..; unique per socket and session */
    uint16_t port;       /* the reflector's */
    uint16_t host;       /* whose clock the probes show */
    uint16_t nic;
    uint16_t step;       /* paths with the same number, not 0, are probed at the same instants */
    uint16_t generation; /* comes back in rows and events; another one than before: another session has the path */
    uint8_t tos;         /* DSCP << 2 | ECN of probes, and wanted on answers */
    uint8_t prompt;      /* not 0: rows wait for no follow-up */
    uint8_t pad[2];
    uint8_t address[PE_ADDRESS_OCTETS]; /* the reflector's, IPv4 as ::ffff:a.b.c.d */
} pe_path;

/* A probe to be sent. `data` and `room_octets` are the caller's (at least width_octets), the rest is filled in. */
typedef struct pe_out {
    uint8_t *data;
    uint32_t room_octets;
    uint32_t length_octets;
    uint64_t token; /* comes back in pe_take_stamp and pe_unsent */
    uint32_t socket;
    uint32_t path;
    uint16_t port;
    uint8_t tos;
    uint8_t pad[5];
    uint8_t address[PE_ADDRESS_OCTETS];
} pe_out;

/* A finished exchange. Times by the system clocks; Python applies a virtual clock, where one is set, to t1 and t4. */
typedef struct pe_row {
    uint32_t path;
    uint32_t seq;
    int64_t t1_ns, t2_ns, t3_ns, t4_ns; /* PE_ABSENT_NS: t2..t4 of an unanswered probe */
    int32_t tx_host_ns;                 /* in this host before it was sent; valid where t1_kind is the kernel's */
    int32_t rx_host_ns;                 /* in this host after it came; valid where t4_kind is the kernel's */
    uint8_t t1_kind, t2_kind, t3_kind, t4_kind;
    uint8_t ttl_fwd, ttl_rev; /* on arrival; 0: not known */
    uint8_t tos_fwd, tos_rev; /* on arrival; tos_fwd valid with PE_ROW_CLASSED */
    uint32_t seq_rev;         /* the reflector's number of its answer; valid with PE_ROW_ANSWERED */
    uint16_t generation;      /* of the path */
    uint16_t flags;
} pe_row;

enum { PE_ROW_ANSWERED = 1, PE_ROW_CLASSED = 2 };

/* A change that Python has to know. */
typedef struct pe_event {
    uint32_t path;   /* or the order, of PE_EVENT_ORDER and PE_EVENT_STRANDED */
    uint8_t kind;
    uint8_t state;   /* of the path: pe_state; of an order: 0, or the errno of what carried it out */
    uint16_t generation;
    int64_t at_ns;   /* system clock, when it was decided */
    int64_t since_ns; /* system clock, in that state since; silent: last reception, or first probe */
    uint32_t missed; /* unanswered probes; of an order: index of its alternate, PE_NONE: it has none */
    uint32_t pad;
} pe_event;

enum {
    PE_EVENT_LIVENESS = 1, /* a path changed its state, or is listed in a complete report */
    PE_EVENT_ORDER = 2,    /* an order was given to `act` */
    PE_EVENT_STRANDED = 3, /* an order's route is dead and none of its alternates is clean; once */
    PE_EVENT_NO_ROOM = 4   /* a path could not begin: most_exchanges is used up */
};

typedef enum pe_state { PE_UNKNOWN = 0, PE_ALIVE = 1, PE_SILENT = 2 } pe_state;
typedef enum pe_verdict { PE_ROUTE_UNKNOWN = 0, PE_ROUTE_CLEAN = 1, PE_ROUTE_DEAD = 2 } pe_verdict;

#define PE_NONE UINT32_MAX

/* Read by Python at any time, without a copy: what is known of each path now. */
typedef struct pe_report {
    int64_t since_ns;         /* steady clock, in this state since; silent: last reception, or first probe */
    int64_t last_received_ns; /* steady clock; PE_ABSENT_NS: never */
    uint32_t missed;
    uint8_t state;
    uint8_t ttl_fwd;          /* of probes on arrival, by the last answer; 0: not reported */
    uint8_t pad[2];
} pe_report;

/* The same of each route. */
typedef struct pe_route_report {
    int64_t clean_since_ns; /* steady clock, clean at every assessment since; PE_ABSENT_NS: it is not clean */
    uint8_t verdict;
    uint8_t pad[7];
} pe_route_report;

/* Carries an order out, without Python: 0 or an errno. Called by the engine's thread from within pe_assess, so it must
 * not wait, nor call what is marked "any thread" here: the command ring has one producer, the other thread. */
typedef int (*pe_act)(void *context, uint32_t order, uint32_t alternate, int64_t now_ns);

/* Counters: those of Python's "sender" stage, then what only the engine counts. Names: pe_counter_name. */
enum pe_counter {
    PE_N_SENT,
    PE_N_ANSWERED,
    PE_N_UNSENT,
    PE_N_SHED_RING,    /* an exchange pushed out by a newer one */
    PE_N_FOLLOW_UP,    /* a follow-up that cannot be this answer's */
    PE_N_ROWS,
    PE_N_ROWS_DROPPED, /* the ring of rows was full */
    PE_N_EVENTS_DROPPED,
    PE_N_NO_ROOM,      /* paths that could not begin */
    PE_N_REFUSED       /* + pe_reason: answers refused; the last */
};

int pe_abi(void);

/* Octets of a structure of this file as compiled, by its name; 0: none has it. Python compares them with its own. */
size_t pe_octets_of(const char *name);

/* Octets of shared memory for both rings; 0: a capacity is no power of two. */
size_t pe_shared_octets(const pe_config *config);

/* Exchange slots that a path of this interval takes. */
uint32_t pe_depth(int64_t interval_ns);

/* NULL: `config` is not consistent, `shared` too small or unaligned (64), or no memory. Rows lie at the start of
 * `shared`, events behind them (see ring.h). */
pe_t *pe_new(const pe_config *config, void *shared, size_t octets);
void pe_free(pe_t *pe);

/* --- any thread; 0, -EINVAL, or -EAGAIN: the command ring is full, try again after the next turn --- */

int pe_path_begin(pe_t *pe, uint32_t path, const pe_path *is);
int pe_path_end(pe_t *pe, uint32_t path);
int pe_nic_usable(pe_t *pe, uint32_t nic, int usable);
/* The clock a host shows (clock.h); without a call it is the system clock. At most PE_MOST_KNOTS knots are taken. */
int pe_clock_set(pe_t *pe, uint32_t host, int64_t offset_ns, int64_t skew_micro_ppb, int64_t epoch_at_ns,
                 int64_t first_knot, const int64_t *knots_ns, uint32_t knots);
/* Report every listed path with the next assessment. */
int pe_report_all(pe_t *pe);
/* What crosses what, anew: begin, every segment's probe paths (numbered from 0 in the order of the calls; PE_NONE for
 * one that is not probed), every route's segments, then commit, which puts all of it in force at once. */
int pe_watch_begin(pe_t *pe);
int pe_segment(pe_t *pe, const uint32_t *paths, uint32_t n);
int pe_route(pe_t *pe, uint32_t route, const uint32_t *segments, uint32_t n);
int pe_watch_commit(pe_t *pe);
/* When `route` is dead, and the first of `alternates` that is clean: act. Once; setting it again arms it again. */
int pe_order_arm(pe_t *pe, uint32_t order, uint32_t route, const uint32_t *alternates, uint32_t n);
int pe_order_disarm(pe_t *pe, uint32_t order);

/* Consumer of the rings: how many rows or events there are and the number of the first; those below `upto` are read. */
uint64_t pe_take(pe_t *pe, uint64_t *first);
void pe_done(pe_t *pe, uint64_t upto);
uint64_t pe_take_events(pe_t *pe, uint64_t *first);
/* Events ever written; for any thread. */
uint64_t pe_events_written(const pe_t *pe);
void pe_done_events(pe_t *pe, uint64_t upto);
const pe_report *pe_reports(const pe_t *pe);              /* (most_paths) */
const pe_route_report *pe_route_reports(const pe_t *pe);  /* (most_routes) */
/* Copies at most `n` counters; returns how many there are. */
int pe_stats(const pe_t *pe, uint64_t *counters, uint32_t n);
/* "sent", "shed.ring", ...; NULL from PE_N_REFUSED on, where pe_reason_name goes on (packet.h). */
const char *pe_counter_name(uint32_t counter);

/* --- the engine's own thread --- */

void pe_on_order(pe_t *pe, pe_act act, void *context);
/* Apply the commands that have come; how many. */
uint32_t pe_apply(pe_t *pe, int64_t now_ns);
/* Steady clock: when the next probe is due, and when liveness is to be assessed next; INT64_MAX: never. */
int64_t pe_next_due_ns(const pe_t *pe);
int64_t pe_next_assess_ns(const pe_t *pe);
/* The probes due by now, at most `n`, sorted by socket and path; how many. Late: one probe per path, never a burst. */
uint32_t pe_due(pe_t *pe, int64_t now_ns, int64_t system_ns, pe_out *out, uint32_t n);
/* When a probe truly left. Kinds other than kernel and hardware say nothing of `at_ns`. */
void pe_take_stamp(pe_t *pe, uint64_t token, int64_t at_ns, uint8_t kind, int64_t user_at_ns);
/* A probe was not sent after all: no row, and no miss for liveness. */
void pe_unsent(pe_t *pe, uint64_t token);
/* Take one datagram that came to a sender's socket. `due_at_ns` (system clock): when the shell had planned to read it;
 * before that it waited on purpose, which is no delay inside this host. Returns a pe_reason; 0: taken. */
int pe_take_answer(pe_t *pe, const pe_datagram *datagram, int64_t now_ns, int64_t due_at_ns);
/* Assess liveness, give the orders that follow; how many events were written. */
uint32_t pe_assess(pe_t *pe, int64_t now_ns, int64_t system_ns);
/* Write the rows of finished exchanges; how many. A limit counts once it had passed at the call before. */
uint32_t pe_finish(pe_t *pe, int64_t now_ns);

#define PE_MOST_KNOTS 1024
#define PE_MOST_ALTERNATES 8
#define PE_MOST_MEMBERS 256 /* probe paths of a segment, segments of a route */

#endif
