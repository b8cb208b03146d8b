/* The kernel's message blocks (recvmmsg, sendmmsg) with everything that they point to, made once. */
#ifndef PE_SOCKET_ROWS_H
#define PE_SOCKET_ROWS_H

#ifndef _GNU_SOURCE
#error "struct mmsghdr needs _GNU_SOURCE"
#endif

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "arena.h"
#include "control_messages.h"

#define PE_ROWS 64 /* at most so many datagrams of a socket a turn, so that a flood at one does not stop the others */

typedef union pe_name {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} pe_name;

typedef struct pe_rows {
    struct mmsghdr *headers;
    struct iovec *vectors;
    pe_name *names;
    uint8_t *control; /* PE_CONTROL_OCTETS a row */
    uint8_t *data;
    uint64_t *tokens; /* of rows to be sent */
    uint32_t stride;
    uint32_t touched; /* rows whose lengths the kernel has overwritten */
} pe_rows;

void pe_rows_carve(pe_rows *rows, pe_arena *arena, uint32_t width_octets);
/* Of carved memory. */
void pe_rows_begin(pe_rows *rows);

static inline uint8_t *pe_row_control(const pe_rows *rows, uint32_t row)
{
    return rows->control + (size_t)row * PE_CONTROL_OCTETS;
}

/* Receive into the first rows; how many, or -errno. Lengths are those on the wire, also of what was cut. */
int pe_rows_receive(pe_rows *rows, int fd, int flags);

/* 16 octets of the address in a socket address, IPv4 as ::ffff:a.b.c.d. */
void pe_name_address(const pe_name *name, uint8_t address[PE_ADDRESS_OCTETS]);
/* In host byte order; it stands at the same place in both families. */
uint16_t pe_name_port(const pe_name *name);
/* The other way round; returns the octets of the name. */
socklen_t pe_name_set(pe_name *name, bool v6, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port);

#endif
