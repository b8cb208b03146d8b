/* The state of the IO shell, which its files share. */
#ifndef JE_SHELL_STATE_H
#define JE_SHELL_STATE_H

#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "shell.h"

#define JE_ROWS_IN 64
#define JE_ROWS_OUT 16 /* of each rank */
#define JE_ROW_OCTETS 2048
#define JE_CONTROL_OCTETS 128
#define JE_IP_OCTETS 20
#define JE_UDP_OCTETS 8
#define JE_AWAITED 4096 /* transmit stamps that may be awaited; a NIC without carrier takes packets and stamps none */

/* What the kernel's transmit stamp of a packet is for. */
typedef struct je_awaited {
    uint32_t qp, chunk;
    uint16_t port;
    uint8_t asks; /* 0: nothing is awaited */
} je_awaited;

/* A datagram that waits to be handed over with others. */
typedef struct je_row_out {
    uint8_t data[JE_ROW_OCTETS];
    uint8_t control[CMSG_SPACE(sizeof(uint32_t))];
    struct sockaddr_in to;
    struct iovec iov;
    je_awaited awaited;
} je_row_out;

typedef struct je_nic {
    int fd;           /* -1: away */
    uint32_t address; /* in network order */
    uint32_t n;       /* rows that wait */
    uint32_t next_id; /* that the kernel gives its next packet whose stamp is asked for (OPT_ID) */
    uint32_t waiting; /* stamps */
    je_row_out rows[JE_ROWS_OUT];
    struct mmsghdr headers[JE_ROWS_OUT];
    je_awaited awaited[JE_AWAITED]; /* by id */
} je_nic;

struct je_shell {
    je_t *je;
    uint32_t ranks;
    je_nic *nics;
    int64_t rest_ns;
    int notified, wake;
    pthread_mutex_t held; /* by a pass, and by whoever asks */
    atomic_bool stop;
    struct pollfd *polled; /* (ranks + 1) the last one is `wake` */
    uint8_t *in_data;      /* (JE_ROWS_IN, JE_ROW_OCTETS) */
    uint8_t *in_control;
    struct iovec in_iov[JE_ROWS_IN];
    struct mmsghdr in[JE_ROWS_IN];
    int64_t now_ns;     /* the job's clock */
    int64_t real_ns;    /* steady clock, of the latest pass */
    int64_t planned_ns; /* steady clock: when the next pass is due, if nothing arrives */
    bool done;
    je_shell_report report;
};

int64_t je_clock_ns(clockid_t clock);

/* nic.c: hand what has arrived to the job; read transmit stamps (`any`: also those
 * that nothing awaits); lay a datagram out; hand the rows over. */
void je_nic_receive(je_shell *shell, uint32_t rank);
void je_nic_read_stamps(je_shell *shell, je_nic *nic, bool any);
void je_nic_send(je_shell *shell, const je_datagram *datagram);
void je_nic_flush(je_shell *shell, je_nic *nic);

#endif
