/* The IO shell of a job: one thread that carries the datagrams of all ranks between their sockets and the job (job.h).
 * Python opens and closes sockets (process_nic_io.py); the shell borrows their descriptors.
 *
 * A pass: what has arrived, then what is due, then a rest of `rest_ns`, and then a wait until something arrives or is
 * due. Arrivals are stamped by the kernel, so a rest falsifies no delay. The job's clock does not count stalls: a
 * thread that was not scheduled for a while must not take packets in its sockets for lost.
 *
 * `je_shell_run` is the shell's thread; all else may be called by other threads, and waits for a pass to end. */
#ifndef JE_SHELL_H
#define JE_SHELL_H

#include "job.h"

#define JE_ERRNOS 136

typedef struct je_shell je_shell;

typedef struct je_shell_report {
    uint64_t received, sent;
    uint64_t bad_length;          /* refused: no UDP datagram of ours is so short */
    uint64_t away;                /* NICs whose device went away */
    uint64_t unsent_away;         /* not sent: the NIC is away */
    uint64_t unsent[JE_ERRNOS];   /* not sent, by errno */
    uint64_t passes;
    int64_t latest_ns;            /* by so much a pass was later than planned, at worst */
} je_shell_report;

/* `addresses`: IPv4 address of each rank, in network order. `notified`: a descriptor of an eventfd, which is added to when
 * the job is done and when a NIC has gone away. The job must outlive the shell. NULL: no descriptors. */
je_shell *je_shell_new(je_t *je, uint32_t ranks, const uint8_t *addresses, int64_t rest_ns, int notified);
void je_shell_free(je_shell *shell);

/* Run until je_shell_stop, or until the job is done. */
void je_shell_run(je_shell *shell);
void je_shell_stop(je_shell *shell);
/* Send and receive for `rank` by this descriptor from now on; -1: by none, until there is another. */
void je_shell_adopt(je_shell *shell, uint32_t rank, int fd);
/* Whether a rank has no descriptor. */
bool je_shell_is_away(je_shell *shell, uint32_t rank);
/* Move a queue pair, and send at once what is due on the new path. */
void je_shell_steer(je_shell *shell, uint32_t qp, uint16_t path);
void je_shell_limit(je_shell *shell, uint32_t qp, int64_t rate_bps);
void je_shell_reported(je_shell *shell, je_shell_report *own, je_report *report, je_qp_report *qps);
uint32_t je_shell_take_rows(je_shell *shell, je_row *rows, uint32_t n);

#endif
