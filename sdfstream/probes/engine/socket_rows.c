#define _GNU_SOURCE
#include "socket_rows.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

void pe_rows_carve(pe_rows *rows, pe_arena *arena, uint32_t width_octets)
{
    /* an odd number of cache lines: rows spread over all sets of the cache */
    rows->stride = ((width_octets + 63) / 64 | 1) * 64;
    rows->headers = pe_carve(arena, PE_ROWS, sizeof *rows->headers);
    rows->vectors = pe_carve(arena, PE_ROWS, sizeof *rows->vectors);
    rows->names = pe_carve(arena, PE_ROWS, sizeof *rows->names);
    rows->control = pe_carve(arena, PE_ROWS, PE_CONTROL_OCTETS);
    rows->data = pe_carve(arena, PE_ROWS, rows->stride);
    rows->tokens = pe_carve(arena, PE_ROWS, sizeof *rows->tokens);
}

void pe_rows_begin(pe_rows *rows)
{
    for (uint32_t i = 0; i < PE_ROWS; i++) {
        rows->vectors[i] = (struct iovec){rows->data + (size_t)i * rows->stride, rows->stride};
        rows->headers[i].msg_hdr = (struct msghdr){.msg_name = &rows->names[i],
                                                   .msg_namelen = sizeof rows->names[i],
                                                   .msg_iov = &rows->vectors[i],
                                                   .msg_iovlen = 1,
                                                   .msg_control = pe_row_control(rows, i),
                                                   .msg_controllen = PE_CONTROL_OCTETS};
    }
    rows->touched = 0;
}

int pe_rows_receive(pe_rows *rows, int fd, int flags)
{
    for (uint32_t i = 0; i < rows->touched; i++) {
        rows->headers[i].msg_hdr.msg_namelen = sizeof rows->names[i];
        rows->headers[i].msg_hdr.msg_controllen = PE_CONTROL_OCTETS;
    }
    int n = recvmmsg(fd, rows->headers, PE_ROWS, flags | MSG_DONTWAIT, NULL);
    rows->touched = n > 0 ? (uint32_t)n : 0;
    return n >= 0 ? n : -errno;
}

void pe_name_address(const pe_name *name, uint8_t address[PE_ADDRESS_OCTETS])
{
    if (name->any.sa_family == AF_INET6) {
        memcpy(address, &name->v6.sin6_addr, PE_ADDRESS_OCTETS);
        return;
    }
    memset(address, 0, 10);
    memset(address + 10, 0xFF, 2);
    memcpy(address + 12, &name->v4.sin_addr, 4);
}

uint16_t pe_name_port(const pe_name *name)
{
    return ntohs(name->v4.sin_port);
}

socklen_t pe_name_set(pe_name *name, bool v6, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port)
{
    if (v6) {
        name->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&name->v6.sin6_addr, address, PE_ADDRESS_OCTETS);
        return sizeof name->v6;
    }
    name->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&name->v4.sin_addr, address + 12, 4);
    return sizeof name->v4;
}
