/* Sending by a slot: source address, interface and TOS by control message, one system call for all its rows. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "shell_state.h"

_Static_assert(PE_ROWS <= 64, "rows that were not sent are bits of a word");
_Static_assert(PE_CONTROL_SENT_OCTETS + PE_CONTROL_TTL_OCTETS <= PE_CONTROL_OCTETS, "room for the TTL");

/* Errors that say that the NIC may have gone; the other rows would fail the same way. */
static bool means_away(int number)
{
    return number == ENODEV || number == ENETDOWN || number == ENXIO || number == EADDRNOTAVAIL ||
           number == ENETUNREACH;
}

void pe_shell_failed(pe_shell *shell, uint32_t slot, unsigned what, int number, uint32_t n)
{
    uint32_t column = number > 0 && number < PE_ERRNOS ? (uint32_t)number : 0;
    pe_count(&shell->counters[PE_S_BY_ERRNO + what * PE_ERRNOS + column], n);
    if (means_away(number))
        atomic_store_explicit(&shell->sockets[slot].suspect, 1, memory_order_relaxed);
}

void pe_shell_lay_out(pe_shell *shell, uint32_t row, uint32_t slot, const pe_out *out)
{
    const pe_adoption *is = &shell->sockets[slot].is;
    pe_rows *rows = &shell->built;
    struct msghdr *header = &rows->headers[row].msg_hdr;
    uint8_t *control = pe_row_control(rows, row);
    rows->vectors[row] = (struct iovec){out->data, out->length_octets};
    header->msg_namelen = pe_name_set(&rows->names[row], is->v6, out->address, out->port);
    memcpy(control, is->control, PE_CONTROL_SENT_OCTETS);
    control[PE_CONTROL_TOS_AT] = out->tos;
    header->msg_controllen = is->control_octets;
    rows->tokens[row] = out->token;
}

static uint64_t bits(uint32_t first, uint32_t end)
{
    return first < end ? (~UINT64_C(0) >> (64 - (end - first))) << first : 0;
}

/* What happened to a row that the kernel did not take: how many rows are given up with it; 0: it is to be tried again,
 * since an earlier ICMP error was reported instead of its own result. */
static uint32_t give_up(pe_shell *shell, uint32_t slot, int number, uint32_t left, bool tried_again)
{
    bool full = number == EAGAIN;
    if (!full) {
        pe_shell_restart_ids(shell, slot);
        if (!tried_again)
            return 0;
    }
    uint32_t n = full || means_away(number) ? left : 1;
    pe_shell_failed(shell, slot, PE_BY_UNSENT, number, n);
    return n;
}

uint64_t pe_shell_send(pe_shell *shell, uint32_t slot, uint32_t first, uint32_t end)
{
    pe_socket *socket = &shell->sockets[slot];
    uint64_t unsent = 0;
    uint32_t tried = PE_NONE;
    if (!socket->open) {
        pe_shell_count(shell, PE_S_NIC_AWAY, end - first);
        return bits(first, end);
    }
    while (first < end) {
        uint32_t room = pe_shell_stamp_room(shell, slot);
        uint32_t n = end - first < room ? end - first : room;
        int64_t handed_at_ns = pe_system_ns();
        int sent = sendmmsg(socket->is.fd, &shell->built.headers[first], n, MSG_DONTWAIT);
        if (sent > 0) {
            pe_shell_sent(shell, slot, first, (uint32_t)sent, handed_at_ns);
            first += (uint32_t)sent;
            continue;
        }
        uint32_t lost = give_up(shell, slot, sent < 0 ? errno : EAGAIN, end - first, tried == first);
        tried = first;
        unsent |= bits(first, first + lost);
        first += lost;
    }
    return unsent;
}

void pe_shell_send_limited(pe_shell *shell, const pe_limited *datagram, const uint8_t *payload)
{
    const pe_socket *socket = &shell->sockets[datagram->slot];
    uint8_t *data = shell->built.data;
    pe_out out = {.data = data,
                  .length_octets = datagram->octets,
                  .token = PE_NO_TOKEN,
                  .port = datagram->port,
                  .tos = datagram->tos};
    memcpy(data, payload, datagram->octets);
    memcpy(out.address, datagram->address, sizeof out.address);
    pe_shell_lay_out(shell, 0, datagram->slot, &out);
    struct msghdr *header = &shell->built.headers[0].msg_hdr;
    header->msg_controllen = pe_control_add_ttl(header->msg_control, (uint32_t)header->msg_controllen, socket->is.v6,
                                                datagram->ttl);
    if (pe_shell_send(shell, datagram->slot, 0, 1))
        pe_shell_count(shell, PE_S_LIMITED_UNSENT, 1);
}
