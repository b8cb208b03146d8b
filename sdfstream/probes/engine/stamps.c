/* TX stamps, and ICMP errors: the error queues of sockets.
 *
 * The kernel numbers the packets of a socket (OPT_ID) and returns each TX stamp with that number; a ring a socket keeps
 * the tokens of its last packets. Queues are read when a stamp is first needed: for a follow-up, before the next
 * answers leave by that socket; for t1, before rows are finished. So no system call is made for a stamp alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h> /* linux/errqueue.h needs it */
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <string.h>
#include <sys/socket.h>

#include "shell_state.h"

#ifndef SO_TIMESTAMPING
#define SO_TIMESTAMPING 37
#endif
#define KERNEL_FLAGS                                                                                                  \
    (SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE |                        \
     SOF_TIMESTAMPING_OPT_TSONLY)
#define HARDWARE_FLAGS                                                                                                \
    (SOF_TIMESTAMPING_TX_HARDWARE | SOF_TIMESTAMPING_RX_HARDWARE | SOF_TIMESTAMPING_RAW_HARDWARE |                    \
     SOF_TIMESTAMPING_OPT_TSONLY)

#define MOST_CALLS 16 /* to read a queue: it holds our own stamps, but also what strangers' ICMP errors say */

_Static_assert((PE_STAMPS & (PE_STAMPS - 1)) == 0, "packets are found by a mask");
_Static_assert(sizeof(struct sock_extended_err) == 16, "as in probes/net/icmp.py");

void pe_shell_sent(pe_shell *shell, uint32_t slot, uint32_t first, uint32_t n, int64_t handed_at_ns)
{
    pe_socket *socket = &shell->sockets[slot];
    for (uint32_t i = 0; i < n; i++)
        socket->sent[socket->next_id++ & (PE_STAMPS - 1)] = (pe_sent){shell->built.tokens[first + i], handed_at_ns};
    socket->outstanding += n;
    pe_shell_count(shell, PE_S_SENT, n);
}

uint32_t pe_shell_stamp_room(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    uint32_t most = socket->is.stamp_room < PE_STAMPS ? socket->is.stamp_room : PE_STAMPS;
    most = most > 0 ? most : 1;
    if (socket->outstanding >= most) {
        pe_shell_read_stamps(shell, slot);
        socket->outstanding = 0; /* one that has not come by now is late or lost: the others do not wait for it */
    }
    return most - socket->outstanding;
}

static void forget(pe_socket *socket)
{
    socket->next_id = 0;
    socket->outstanding = 0;
}

void pe_shell_restart_ids(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    int flags = socket->is.kind == PE_KIND_HARDWARE ? HARDWARE_FLAGS : KERNEL_FLAGS;
    int with_id = flags | SOF_TIMESTAMPING_OPT_ID;
    pe_shell_read_stamps(shell, slot);
    /* switching only OPT_ID off and on resets the kernel's counter and leaves receive stamps undisturbed */
    setsockopt(socket->is.fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags);
    setsockopt(socket->is.fd, SOL_SOCKET, SO_TIMESTAMPING, &with_id, sizeof with_id);
    forget(socket);
}

/* Give a stamp to whoever sent the packet. */
static void match(pe_shell *shell, uint32_t slot, uint32_t id, const pe_control *control)
{
    const pe_socket *socket = &shell->sockets[slot];
    if (socket->next_id - id - 1 >= PE_STAMPS) {
        pe_shell_count(shell, PE_S_STAMPS_UNMATCHED, 1);
        return;
    }
    const pe_sent *sent = &socket->sent[id & (PE_STAMPS - 1)];
    if (sent->token == PE_NO_TOKEN)
        return;
    pe_reflector *reflector = shell->reflectors[socket->is.host];
    pe_shell_count(shell, PE_S_STAMPS, 1);
    if (socket->is.role == PE_SENDER)
        pe_take_stamp(shell->pe, sent->token, control->at_ns, control->kind, sent->handed_at_ns);
    else if (reflector)
        pe_answer_left(reflector, (int64_t)sent->token, control->at_ns, control->kind);
}

/* An ICMP error goes to Python; one of local origin (longer than the MTU) says nothing that the send did not. */
static void keep_icmp(pe_shell *shell, uint32_t slot, uint32_t row, const struct sock_extended_err *error,
                      const uint8_t *behind)
{
    const pe_rows *rows = &shell->errors;
    bool icmp = error->ee_origin == SO_EE_ORIGIN_ICMP || error->ee_origin == SO_EE_ORIGIN_ICMP6;
    pe_icmp *room = icmp ? pe_ring_room(&shell->icmp) : NULL;
    if (!room) {
        pe_shell_count(shell, PE_S_ICMP_IGNORED, 1);
        return;
    }
    uint32_t quoted = rows->headers[row].msg_len < sizeof room->quote ? rows->headers[row].msg_len : sizeof room->quote;
    pe_name offender = {0};
    if (behind + sizeof offender <= pe_row_control(rows, row) + PE_CONTROL_OCTETS)
        memcpy(&offender, behind, sizeof offender);
    *room = (pe_icmp){.slot = slot,
                      .port = pe_name_port(&rows->names[row]),
                      .type = error->ee_type,
                      .code = error->ee_code,
                      .v6 = error->ee_origin == SO_EE_ORIGIN_ICMP6,
                      .quote_octets = (uint8_t)quoted};
    pe_name_address(&rows->names[row], room->destination);
    pe_name_address(&offender, room->offender);
    memcpy(room->quote, rows->data + (size_t)row * rows->stride, quoted);
    pe_ring_written(&shell->icmp);
    pe_shell_count(shell, PE_S_ICMP, 1);
}

static void take_entry(pe_shell *shell, uint32_t slot, uint32_t row)
{
    const uint8_t *octets = pe_row_control(&shell->errors, row);
    pe_control control;
    struct sock_extended_err error = {0};
    pe_control_read(octets, shell->errors.headers[row].msg_hdr.msg_controllen, &control);
    if (control.error_at)
        memcpy(&error, octets + control.error_at, sizeof error);
    bool stamp = error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING && control.at_ns != PE_ABSENT_NS;
    if (stamp)
        match(shell, slot, error.ee_data, &control);
    else
        keep_icmp(shell, slot, row, &error, octets + control.error_at + sizeof error);
}

/* Clear an error that a socket holds without an entry in its queue; else it would wake us again. */
static void take_error(pe_shell *shell, uint32_t slot)
{
    int number = 0;
    socklen_t octets = sizeof number;
    if (getsockopt(shell->sockets[slot].is.fd, SOL_SOCKET, SO_ERROR, &number, &octets) == 0 && number)
        pe_shell_failed(shell, slot, PE_BY_SOCKET, number, 1);
}

void pe_shell_read_stamps(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    uint32_t entries = 0;
    socket->stamps_read_ns = shell->now_ns;
    socket->errors = false;
    for (int n = PE_ROWS, calls = 0; n == PE_ROWS && calls < MOST_CALLS; calls++) {
        n = pe_rows_receive(&shell->errors, socket->is.fd, MSG_ERRQUEUE);
        for (uint32_t row = 0; n > 0 && row < (uint32_t)n; row++)
            take_entry(shell, slot, row);
        entries += n > 0 ? (uint32_t)n : 0;
    }
    if (!entries)
        take_error(shell, slot);
    socket->outstanding -= entries < socket->outstanding ? entries : socket->outstanding;
}
