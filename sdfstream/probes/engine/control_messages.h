/* Control messages of received datagrams (cmsg(3), RFC 3542), and those that ours are sent with.
 *
 * The kernel writes them in an order that depends on its version, the address family, and on whether there was a stamp,
 * so they are walked one by one; the first of a kind counts. probes/net/cmsg.py is the reference. */
#ifndef PE_CONTROL_MESSAGES_H
#define PE_CONTROL_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "datagram.h"

#define PE_CONTROL_OCTETS 256     /* of a received datagram: stamp, PKTINFO, TTL and TOS need 152 on IPv6 */
#define PE_CONTROL_TOS_AT 16      /* of the TOS octet, in the control messages that we send with */
#define PE_CONTROL_SENT_OCTETS 64 /* TOS, and PKTINFO with source address and interface */
#define PE_CONTROL_TTL_OCTETS 24  /* a TTL message behind them */

/* What they say of one datagram. */
typedef struct pe_control {
    int64_t at_ns;       /* kernel or hardware stamp; PE_ABSENT_NS: none */
    uint32_t interface;  /* by which it came in; 0: not given, or the messages make no sense */
    uint32_t error_at;   /* offset of struct sock_extended_err, the offender's socket address behind it; 0: none */
    uint8_t kind;        /* of the stamp; PE_KIND_USER: none */
    uint8_t tos, ttl;    /* 0: not given */
    uint8_t pad[5];
    uint8_t destination[PE_ADDRESS_OCTETS]; /* of the packet, IPv4 as ::ffff:a.b.c.d */
} pe_control;

/* Read `octets` of control messages; false: they make no sense, and everything is blank. `control`: aligned to 8. */
bool pe_control_read(const uint8_t *control, size_t octets, pe_control *out);

/* Append the TTL or hop limit to send with; returns the octets then. Room: PE_CONTROL_TTL_OCTETS. */
uint32_t pe_control_add_ttl(uint8_t *control, uint32_t octets, bool v6, uint8_t ttl);

#endif
