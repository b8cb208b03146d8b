/* The IO shell of the packet engine: one thread that carries the packets of all hosts and NICs of a process between
 * their sockets, the sending engine (engine.h) and one reflector a host (reflector.h). Python opens, binds and closes
 * sockets (namespaces, options: probes/net/socket_io.py); the shell borrows their descriptors.
 *
 * A turn: what Python wants changed; packets, probes answered at once; liveness, and the orders that follow from it;
 * rows; due probes. Then, where there are many packets a second, a rest: waking costs as much as they do. Where no path
 * is quick, our own or an inbound one, rests are longer, and what is due within one is done in the turn before (ease.c).
 *
 * Threads: `pe_shell_run` is the engine's thread. One other thread at a time may call all else. What that changes
 * travels through a command ring and is done between turns; each call returns the number of its command, and memory or
 * descriptors that a command names stay the caller's and must live until they are replaced or closed by another command
 * and pe_shell_done has reached the number of that. */
#ifndef PE_SHELL_H
#define PE_SHELL_H

#include <stddef.h>
#include <stdint.h>

#include "control_messages.h"
#include "engine.h"
#include "reflector.h"

#define PE_SHELL_ABI 2

typedef struct pe_shell pe_shell;

enum { PE_SHELL_REALTIME = 1 /* ask for a real-time priority */, PE_SHELL_OLD_WAIT = 2 /* as before Linux 5.11 */ };

typedef struct pe_shell_config {
    uint32_t octets; /* sizeof(pe_shell_config) as the caller knows it */
    uint32_t flags;
    uint32_t most_sockets;   /* slots: a sender's is the `socket` of its paths */
    uint32_t most_hosts;     /* reflectors */
    uint32_t most_orders;
    uint32_t most_links;     /* connections that orders are given by */
    uint32_t link_octets;    /* of an order, so much may wait until its connection takes it */
    uint32_t width_octets;   /* longest UDP payload, received whole or sent */
    uint32_t inbound_capacity; /* of the ring of inbound changes, a power of two */
    uint32_t command_words;  /* of the command ring, a power of two */
    int64_t rest_ns;         /* a rest lasts until so long after its turn's wake; 0: never */
    int64_t rest_most_ns;    /* where no path is quick it may last until then, and probes leave so much early */
    int64_t rest_late_ns;    /* by so much a rest may make a due probe late */
    int64_t finish_ns;       /* pause between two writings of rows */
    int64_t inbound_ns;      /* pause between two assessments of inbound paths */
} pe_shell_config;

typedef enum pe_role { PE_SENDER = 1, PE_REFLECTOR = 2 } pe_role;

/* An open socket, as ProbeSocket of probes/net/socket_io.py describes it. */
typedef struct pe_adoption {
    int32_t fd;
    uint32_t interface;
    uint32_t host;       /* whose it is */
    uint32_t number;     /* of a reflecting one, in its reflector */
    uint32_t nic;        /* of a reflecting one, as its reflector is told */
    uint32_t stamp_room; /* TX stamps that fit into its buffers */
    uint32_t control_octets;
    uint8_t role, kind, v6;
    uint8_t pad;
    uint8_t address[PE_ADDRESS_OCTETS];
    uint8_t control[PE_CONTROL_SENT_OCTETS]; /* what it sends with: TOS at PE_CONTROL_TOS_AT, PKTINFO */
} pe_adoption;

/* A datagram with its own TTL (path tracing). */
typedef struct pe_limited {
    uint32_t slot;
    uint16_t port;
    uint8_t tos, ttl;
    uint8_t address[PE_ADDRESS_OCTETS];
    uint32_t octets; /* of the payload, which follows */
} pe_limited;

/* Something that an order sends: octets to a connection. */
typedef struct pe_move {
    uint32_t link;
    uint32_t octets;
    const uint8_t *data;
} pe_move;

/* An ICMP error that one of our datagrams caused (probes/net/icmp.py). */
typedef struct pe_icmp {
    uint32_t slot;
    uint16_t port; /* where the datagram was going */
    uint8_t type, code, v6;
    uint8_t quote_octets;
    uint8_t pad[2];
    uint8_t destination[PE_ADDRESS_OCTETS];
    uint8_t offender[PE_ADDRESS_OCTETS]; /* the router that sent the error */
    uint8_t quote[64];                   /* of our payload */
    uint8_t more[4];
} pe_icmp;

/* The state of an inbound path (pe_inbound_change), with what names it. Times: system clock. */
typedef struct pe_inbound_event {
    uint32_t host;
    uint32_t path;
    uint32_t nic, sender;
    uint16_t port;
    uint8_t dscp, state;
    uint8_t complete; /* one of a complete report */
    uint8_t pad[3];
    uint8_t address[PE_ADDRESS_OCTETS];
    int64_t at_ns, since_ns;
    int64_t interval_ns;
} pe_inbound_event;

enum pe_shell_counter {
    PE_S_TURNS,
    PE_S_WAKES,          /* turns that were waited for */
    PE_S_RESTS,
    PE_S_FORCED_RESTS,   /* so that a flood does not keep a core from all others */
    PE_S_RECEIVED,
    PE_S_SENT,
    PE_S_WRONG_RAIL,     /* refused: came in by another NIC than the one it was for */
    PE_S_WRONG_ADDRESS,  /* for none of our addresses */
    PE_S_CONTROL,        /* its control messages make no sense */
    PE_S_STAMPS,
    PE_S_STAMPS_UNMATCHED,
    PE_S_ICMP,
    PE_S_ICMP_IGNORED,
    PE_S_NIC_AWAY,       /* not sent: the socket is closed */
    PE_S_INBOUND_DROPPED, /* the ring of inbound changes was full */
    PE_S_ORDERS,         /* carried out */
    PE_S_ORDERS_UNPREPARED,
    PE_S_ORDERS_FAILED,
    PE_S_LIMITED_UNSENT,
    PE_S_BY_ERRNO        /* PE_ERRNOS each: not sent, receiving failed, error of a socket */
};

#define PE_ERRNOS 136
#define PE_SHELL_COUNTERS (PE_S_BY_ERRNO + 3 * PE_ERRNOS)

enum pe_shell_histogram {
    PE_H_LATE,   /* turns behind the instant that they were for */
    PE_H_TURN,   /* length of a turn */
    PE_H_ANSWER, /* from a probe's arrival in the kernel until its answer is handed over */
    PE_HISTOGRAMS
};

typedef struct pe_shell_report {
    int64_t cpu_ns;  /* of the engine's thread */
    int64_t began_ns, turned_ns; /* steady clock: of running, and of the latest turn */
    int32_t priority;       /* PE_PRIORITY_..., of the thread now or last */
    int32_t priority_error; /* why it is no better; 0: it is the best */
    int32_t running;
    int32_t resting;        /* rests are being taken */
} pe_shell_report;

int pe_shell_abi(void);
size_t pe_shell_octets_of(const char *name);

/* NULL: no memory or descriptors, or `config` is not consistent. `pe` must outlive it. */
pe_shell *pe_shell_new(const pe_shell_config *config, pe_t *pe);
void pe_shell_free(pe_shell *shell);

/* Run until pe_shell_stop; 0, or -EBUSY: it runs already. A stop before it begins ends it at once. */
int pe_shell_run(pe_shell *shell);
void pe_shell_stop(pe_shell *shell);
/* One turn without waiting, by a thread that is the only one (tests; before and after running). */
void pe_shell_turn(pe_shell *shell);
/* Make the next turn come now: after changes by calls of engine.h. */
void pe_shell_wake(pe_shell *shell);

/* --- changes: the number of the command, from 1; -EINVAL, or -EAGAIN: no room now, try again --- */

int64_t pe_shell_adopt(pe_shell *shell, uint32_t slot, const pe_adoption *is);
/* Use its descriptor no longer. */
int64_t pe_shell_close(pe_shell *shell, uint32_t slot);
int64_t pe_shell_limited(pe_shell *shell, const pe_limited *datagram, const uint8_t *payload);
/* NULL: none. */
int64_t pe_shell_reflector(pe_shell *shell, uint32_t host, pe_reflector *reflector);
int64_t pe_shell_know(pe_shell *shell, uint32_t host, const pe_known_sender *senders, uint32_t count,
                      const pe_network *networks, uint32_t network_count);
int64_t pe_shell_clock(pe_shell *shell, uint32_t host, const pe_clock *clock);
int64_t pe_shell_usable(pe_shell *shell, uint32_t host, uint32_t nic, int usable);
/* Report all inbound paths with the next assessment. */
int64_t pe_shell_inbound_all(pe_shell *shell);
/* Orders may be given by this descriptor from now on; -1: not any more. What waits for the one before is dropped. */
int64_t pe_shell_link(pe_shell *shell, uint32_t link, int fd);
/* What `order` with this alternate (its index; PE_NONE: none) sends; at most PE_MOST_MOVES, 0: it is not prepared. */
int64_t pe_shell_prepare(pe_shell *shell, uint32_t order, uint32_t alternate, const pe_move *moves, uint32_t n);

#define PE_MOST_MOVES 4

/* The command up to which all are done. */
int64_t pe_shell_done(const pe_shell *shell);

/* --- what it has found --- */

/* An eventfd, readable once events (engine.h) or inbound changes have been written since it was last read; so one need
 * not ask for them now and then. Closed with the shell. */
int pe_shell_found_fd(const pe_shell *shell);

void pe_shell_reported(const pe_shell *shell, pe_shell_report *report);
int pe_shell_stats(const pe_shell *shell, uint64_t *counters, uint32_t n);
/* How many durations were in each bin, ever; pe_shell_bin_least_ns is where a bin begins. */
int pe_shell_bins(const pe_shell *shell, uint32_t histogram, uint64_t *bins, uint32_t n);
int64_t pe_shell_bin_least_ns(uint32_t bin);
/* Slots that failed since the last call as if their NIC had gone; at most `n`, how many. */
uint32_t pe_shell_suspects(pe_shell *shell, uint32_t *slots, uint32_t n);
/* The error of a connection; 0: none. */
int pe_shell_link_error(const pe_shell *shell, uint32_t link);
uint32_t pe_shell_take_icmp(pe_shell *shell, pe_icmp *out, uint32_t n);
uint32_t pe_shell_take_inbound(pe_shell *shell, pe_inbound_event *out, uint32_t n);

#endif
