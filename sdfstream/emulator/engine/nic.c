/* One NIC's datagrams: received and sent in batches, with the kernel's stamps. */
#include "shell_state.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/ip.h>
#include <string.h>
#include <time.h>

#define NS_PER_S INT64_C(1000000000)
#define TTL 64
#define STAMP_FLAGS \
    (SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE | SOF_TIMESTAMPING_OPT_TSONLY)

static void gone(je_shell *shell, je_nic *nic, int number)
{
    if (number != ENODEV && number != ENXIO)
        return; /* a socket whose device is down works again; one whose device was removed never does */
    nic->fd = -1;
    nic->n = 0;
    shell->report.away++;
}

/* The kernel's stamp among the control messages; `user_at_ns` where there is none. */
static int64_t arrived_at_ns(struct msghdr *header, int64_t user_at_ns)
{
    for (struct cmsghdr *one = CMSG_FIRSTHDR(header); one; one = CMSG_NXTHDR(header, one))
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SO_TIMESTAMPING) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(one), sizeof stamp);
            return stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
        }
    return user_at_ns;
}

static void take(je_shell *shell, uint32_t rank, const uint8_t *packet, uint32_t octets, int64_t at_ns)
{
    uint32_t header = octets ? (uint32_t)(packet[0] & 0xF) * 4 : 0;
    if (octets < header + JE_UDP_OCTETS || octets > JE_ROW_OCTETS || header < JE_IP_OCTETS) {
        shell->report.bad_length++;
        return;
    }
    const uint8_t *udp = packet + header;
    je_receive(shell->je, rank, (uint16_t)(udp[0] << 8 | udp[1]), packet[1], at_ns, udp + JE_UDP_OCTETS,
               octets - header - JE_UDP_OCTETS, shell->now_ns);
}

void je_nic_receive(je_shell *shell, uint32_t rank)
{
    je_nic *nic = &shell->nics[rank];
    int n = JE_ROWS_IN;
    while (nic->fd >= 0 && n == JE_ROWS_IN) {
        for (uint32_t i = 0; i < JE_ROWS_IN; i++)
            shell->in[i].msg_hdr.msg_controllen = JE_CONTROL_OCTETS;
        n = recvmmsg(nic->fd, shell->in, JE_ROWS_IN, MSG_DONTWAIT, NULL);
        if (n < 0) {
            gone(shell, nic, errno);
            return;
        }
        int64_t user_at_ns = je_clock_ns(CLOCK_REALTIME);
        shell->report.received += (uint64_t)n;
        for (uint32_t i = 0; i < (uint32_t)n; i++)
            take(shell, rank, shell->in_iov[i].iov_base, shell->in[i].msg_len,
                 arrived_at_ns(&shell->in[i].msg_hdr, user_at_ns));
    }
}

/* A transmit stamp from an error queue: its id and instant; false: there is none. */
static bool next_stamp(int fd, uint32_t *id, int64_t *at_ns)
{
    union {
        uint8_t octets[512];
        struct cmsghdr aligned;
    } control;
    uint8_t data[1];
    struct iovec iov = {data, sizeof data};
    struct msghdr header = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.octets, .msg_controllen = sizeof control.octets};
    if (recvmsg(fd, &header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
        return false;
    *at_ns = 0;
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&header); one; one = CMSG_NXTHDR(&header, one)) {
        if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SO_TIMESTAMPING) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(one), sizeof stamp);
            *at_ns = stamp.tv_sec * NS_PER_S + stamp.tv_nsec;
        } else if (one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_RECVERR) {
            struct sock_extended_err error;
            memcpy(&error, CMSG_DATA(one), sizeof error);
            if (error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING)
                *id = error.ee_data;
        }
    }
    return true;
}

void je_nic_read_stamps(je_shell *shell, je_nic *nic, bool any)
{
    uint32_t id = 0;
    int64_t at_ns;
    while ((nic->waiting || any) && nic->fd >= 0 && next_stamp(nic->fd, &id, &at_ns)) {
        je_awaited *awaited = &nic->awaited[id % JE_AWAITED];
        if (!at_ns || !awaited->asks || nic->next_id - id - 1 >= JE_AWAITED)
            continue;
        je_departed(shell->je, awaited->qp, awaited->asks, awaited->chunk, awaited->port, at_ns);
        awaited->asks = 0;
        nic->waiting--;
    }
}

/* Expect no stamp, and have the kernel count from 0 again: OPT_ID is switched off and on. */
static void restart_stamps(je_nic *nic)
{
    memset(nic->awaited, 0, sizeof nic->awaited);
    nic->next_id = nic->waiting = 0;
    uint32_t id;
    int64_t at_ns;
    while (next_stamp(nic->fd, &id, &at_ns))
        continue;
    int off = STAMP_FLAGS, on = STAMP_FLAGS | SOF_TIMESTAMPING_OPT_ID;
    setsockopt(nic->fd, SOL_SOCKET, SO_TIMESTAMPING, &off, sizeof off);
    setsockopt(nic->fd, SOL_SOCKET, SO_TIMESTAMPING, &on, sizeof on);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* IPv4 and UDP headers; the kernel fills in the IPv4 checksum. */
static void write_headers(uint8_t *out, const je_datagram *datagram, uint32_t from, uint32_t to)
{
    memset(out, 0, JE_IP_OCTETS + JE_UDP_OCTETS);
    out[0] = 0x45;
    out[1] = datagram->tos;
    put16(out + 2, JE_IP_OCTETS + JE_UDP_OCTETS + datagram->octets);
    put16(out + 6, IP_DF);
    out[8] = TTL;
    out[9] = IPPROTO_UDP;
    memcpy(out + 12, &from, 4);
    memcpy(out + 16, &to, 4);
    put16(out + 20, datagram->port);
    put16(out + 22, JE_PORT);
    put16(out + 24, JE_UDP_OCTETS + datagram->octets);
}

static void ask_for_stamp(je_row_out *row, struct msghdr *header)
{
    struct cmsghdr *one = (struct cmsghdr *)row->control;
    uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE;
    *one = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof flags), .cmsg_level = SOL_SOCKET, .cmsg_type = SO_TIMESTAMPING};
    memcpy(CMSG_DATA(one), &flags, sizeof flags);
    header->msg_control = row->control;
    header->msg_controllen = sizeof row->control;
}

void je_nic_send(je_shell *shell, const je_datagram *datagram)
{
    je_nic *nic = &shell->nics[datagram->rank];
    if (nic->fd < 0) {
        shell->report.unsent_away++;
        return;
    }
    je_row_out *row = &nic->rows[nic->n];
    struct msghdr *header = &nic->headers[nic->n++].msg_hdr;
    uint32_t to = shell->nics[datagram->peer].address;
    write_headers(row->data, datagram, nic->address, to);
    memcpy(row->data + JE_IP_OCTETS + JE_UDP_OCTETS, datagram->payload, datagram->octets);
    row->iov = (struct iovec){row->data, JE_IP_OCTETS + JE_UDP_OCTETS + datagram->octets};
    row->to = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {to}};
    row->awaited = (je_awaited){datagram->qp, datagram->chunk, datagram->port, datagram->asks};
    *header = (struct msghdr){.msg_name = &row->to, .msg_namelen = sizeof row->to, .msg_iov = &row->iov, .msg_iovlen = 1};
    if (datagram->asks)
        ask_for_stamp(row, header);
    if (nic->n == JE_ROWS_OUT)
        je_nic_flush(shell, nic);
}

/* The kernel took this packet. */
static void handed_over(je_shell *shell, je_nic *nic, const je_awaited *awaited, int64_t at_ns)
{
    if (!awaited->asks)
        return;
    je_departed(shell->je, awaited->qp, awaited->asks, awaited->chunk, awaited->port, at_ns);
    if (nic->waiting >= JE_AWAITED)
        restart_stamps(nic);
    nic->awaited[nic->next_id++ % JE_AWAITED] = *awaited;
    nic->waiting++;
}

void je_nic_flush(je_shell *shell, je_nic *nic)
{
    uint32_t sent = 0, n = nic->n;
    nic->n = 0;
    if (!n)
        return;
    int64_t at_ns = je_clock_ns(CLOCK_REALTIME);
    int number = 0;
    while (sent < n) {
        int done = sendmmsg(nic->fd, nic->headers + sent, n - sent, MSG_DONTWAIT);
        if (done <= 0) {
            number = errno;
            break;
        }
        for (uint32_t end = sent + (uint32_t)done; sent < end; sent++)
            handed_over(shell, nic, &nic->rows[sent].awaited, at_ns);
    }
    shell->report.sent += sent;
    if (sent < n) {
        shell->report.unsent[number < JE_ERRNOS ? number : 0] += n - sent;
        restart_stamps(nic);
        gone(shell, nic, number);
    }
}
