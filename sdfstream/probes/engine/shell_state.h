/* The state of the IO shell, which its files share. */
#ifndef PE_SHELL_STATE_H
#define PE_SHELL_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "actions.h"
#include "commands.h"
#include "measures.h"
#include "ring.h"
#include "shell.h"
#include "socket_rows.h"
#include "wait.h"

#define PE_STAMPS 256 /* packets of a socket whose TX stamp may be outstanding; a power of two */

/* A packet whose TX stamp has not come. */
typedef struct pe_sent {
    uint64_t token;
    int64_t handed_at_ns; /* system clock */
} pe_sent;

#define PE_NO_TOKEN UINT64_MAX

/* A slot. What it is stays when its socket is closed. */
typedef struct pe_socket {
    pe_adoption is;
    bool open;
    bool backlog; /* more may wait than was received in this turn */
    bool errors;  /* its error queue may hold something */
    uint32_t next_id;     /* that the kernel gives its next packet (OPT_ID), modulo 2^32 */
    uint32_t outstanding; /* TX stamps that have not been read */
    int64_t stamps_read_ns; /* steady clock */
    _Atomic uint8_t suspect;
    pe_sent *sent; /* (PE_STAMPS) by id */
} pe_socket;

struct pe_shell {
    pe_shell_config config;
    pe_t *pe;
    pe_waiter waiter;
    pe_socket *sockets;
    pe_reflector **reflectors; /* by host; NULL: none */
    pe_sent *sent;             /* of all sockets */
    pe_rows received;
    pe_rows built;
    pe_rows errors;
    pe_datagram *datagrams; /* (PE_ROWS) of `received`, those accepted */
    pe_reply *replies;      /* (PE_ROWS) */
    pe_out *outs;           /* (PE_ROWS) */
    uint32_t *backlog;      /* slots with one */
    uint32_t backlogs;
    pe_actions actions;
    pe_commands commands;
    int64_t put; /* commands ever, by the other thread */
    _Atomic int64_t done;
    pe_ring icmp, inbound;
    void *icmp_memory, *inbound_memory;
    void *memory; /* what is to be freed */
    bool inbound_all;  /* report all with the next assessment, which is due now */
    bool inbound_lost; /* the ring was full: report all with the next one */
    /* the turn */
    int64_t now_ns;        /* steady clock, read several times a turn */
    int64_t planned_ns;    /* the instant that the next turn is for, whatever comes before */
    int64_t due_at_ns;     /* system clock: until then datagrams wait on purpose; 0: they do not */
    int64_t finish_at_ns, inbound_at_ns;
    int64_t blocked_ns;    /* last time that the thread gave its core away */
    int64_t busy_cpu_ns;   /* CPU time when it was first found not to have done so for long; -1: it has */
    int64_t window_ns;     /* when counting of packets began */
    uint64_t window_packets; /* ever, when it began */
    int64_t ease_ns;       /* rests may last so long; more than `rest_ns` while no path is quick */
    uint32_t unassessed;   /* turns that assessing has been put off for */
    bool more;             /* more sockets are ready than were returned */
    int found_fd;          /* eventfd: see pe_shell_found_fd */
    uint64_t told;         /* events and inbound changes that it was written for */
    _Atomic bool resting, stop, running;
    _Atomic int priority, priority_error;
    _Atomic int64_t began_ns, turned_ns, cpu_ns;
    _Atomic uint64_t counters[PE_SHELL_COUNTERS];
    pe_histogram histograms[PE_HISTOGRAMS];
};

enum { PE_BY_UNSENT, PE_BY_RECEIVING, PE_BY_SOCKET };

/* Count `n` failures of a kind under their errno; note a slot whose NIC seems to have gone. */
void pe_shell_failed(pe_shell *shell, uint32_t slot, unsigned what, int number, uint32_t n);

static inline void pe_shell_count(pe_shell *shell, enum pe_shell_counter counter, uint64_t n)
{
    pe_count(&shell->counters[counter], n);
}

/* receive.c: receive at most PE_ROWS datagrams by a slot; those accepted are in `datagrams`, how many. */
uint32_t pe_shell_receive(pe_shell *shell, uint32_t slot);

/* send.c: begin laying out, lay out the next row (its number), send all of them, by one slot. A row whose bit is set
 * in what is returned was not sent. */
void pe_shell_lay_out(pe_shell *shell, uint32_t row, uint32_t slot, const pe_out *out);
uint64_t pe_shell_send(pe_shell *shell, uint32_t slot, uint32_t first, uint32_t end);
void pe_shell_send_limited(pe_shell *shell, const pe_limited *datagram, const uint8_t *payload);

/* stamps.c: read the error queue of a slot. */
void pe_shell_read_stamps(pe_shell *shell, uint32_t slot);
/* Packets that may be sent by a slot now so that no stamp is lost for want of room; at least 1. */
uint32_t pe_shell_stamp_room(pe_shell *shell, uint32_t slot);
/* The kernel took these rows of `built`, in this order. */
void pe_shell_sent(pe_shell *shell, uint32_t slot, uint32_t first, uint32_t n, int64_t handed_at_ns);
/* Restart the ids of a slot: a failed send may have used one up or not (kernels differ). */
void pe_shell_restart_ids(pe_shell *shell, uint32_t slot);

/* ease.c: how long a rest may be now, by how quick the paths are; and until when a turn does what is due. */
void pe_shell_judge_ease(pe_shell *shell);
int64_t pe_shell_until_ns(const pe_shell *shell);

/* turn.c */
void pe_shell_one_turn(pe_shell *shell, bool wait);

/* shell_commands.c: do what has been asked for. */
void pe_shell_apply(pe_shell *shell);

#endif
