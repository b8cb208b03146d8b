/* Received datagrams: read with what the kernel says of each, less those that came in by the wrong NIC. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "shell_state.h"

/* Whether an address is one of the same host's NICs. */
static bool ours(const pe_shell *shell, uint32_t host, const uint8_t *address)
{
    for (uint32_t i = 0; i < shell->config.most_sockets; i++) {
        const pe_adoption *is = &shell->sockets[i].is;
        if (is->role && is->host == host && memcmp(is->address, address, PE_ADDRESS_OCTETS) == 0)
            return true;
    }
    return false;
}

/* Whether a datagram came in by the interface of its slot's NIC and is for that NIC's address; a stray is counted. */
static bool belongs(pe_shell *shell, const pe_adoption *is, const pe_control *control)
{
    bool right_address = memcmp(control->destination, is->address, PE_ADDRESS_OCTETS) == 0;
    if (right_address && control->interface == is->interface && control->interface)
        return true;
    if (control->interface == 0)
        pe_shell_count(shell, PE_S_CONTROL, 1);
    else if (right_address || ours(shell, is->host, control->destination))
        pe_shell_count(shell, PE_S_WRONG_RAIL, 1);
    else
        pe_shell_count(shell, PE_S_WRONG_ADDRESS, 1);
    return false;
}

static void describe(const pe_shell *shell, uint32_t slot, uint32_t row, const pe_control *control,
                     pe_datagram *datagram)
{
    const pe_rows *rows = &shell->received;
    const pe_adoption *is = &shell->sockets[slot].is;
    *datagram = (pe_datagram){.data = rows->data + (size_t)row * rows->stride,
                              .length_octets = rows->headers[row].msg_len,
                              .room_octets = rows->stride,
                              .socket = is->role == PE_SENDER ? slot : is->number,
                              .port = pe_name_port(&rows->names[row]),
                              .tos = control->tos,
                              .ttl = control->ttl,
                              .kind = control->kind,
                              .at_ns = control->at_ns};
    pe_name_address(&rows->names[row], datagram->address);
}

static uint64_t icmp_errors(const pe_shell *shell)
{
    return atomic_load_explicit(&shell->counters[PE_S_ICMP], memory_order_relaxed) +
           atomic_load_explicit(&shell->counters[PE_S_ICMP_IGNORED], memory_order_relaxed);
}

/* Read the error queue of a slot; whether it held ICMP errors, of which it is told elsewhere. */
static bool took_icmp(pe_shell *shell, uint32_t slot)
{
    uint64_t before = icmp_errors(shell);
    pe_shell_read_stamps(shell, slot);
    return icmp_errors(shell) != before;
}

uint32_t pe_shell_receive(pe_shell *shell, uint32_t slot)
{
    pe_socket *socket = &shell->sockets[slot];
    pe_rows *rows = &shell->received;
    int n = pe_rows_receive(rows, socket->is.fd, MSG_TRUNC);
    if (n < 0 && n != -EAGAIN) { /* an ICMP error is told in place of what lies behind it, once */
        if (!took_icmp(shell, slot))
            pe_shell_failed(shell, slot, PE_BY_RECEIVING, -n, 1);
        n = pe_rows_receive(rows, socket->is.fd, MSG_TRUNC);
    }
    socket->backlog = n == PE_ROWS;
    if (n <= 0)
        return 0;
    uint32_t accepted = 0;
    int64_t user_at_ns = pe_system_ns();
    for (uint32_t row = 0; row < (uint32_t)n; row++) {
        pe_control control;
        pe_control_read(pe_row_control(rows, row), rows->headers[row].msg_hdr.msg_controllen, &control);
        if (!belongs(shell, &socket->is, &control))
            continue;
        describe(shell, slot, row, &control, &shell->datagrams[accepted]);
        shell->datagrams[accepted++].user_at_ns = user_at_ns;
    }
    pe_shell_count(shell, PE_S_RECEIVED, (uint64_t)n);
    return accepted;
}
