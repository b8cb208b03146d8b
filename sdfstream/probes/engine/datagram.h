/* A datagram as the core sees it: what arrived, and where it goes. Times are readings of the host's system clock. */
#ifndef PE_DATAGRAM_H
#define PE_DATAGRAM_H

#include <stdbool.h>
#include <stdint.h>

#define PE_ABSENT_NS INT64_MIN
#define PE_NS_PER_S INT64_C(1000000000)
#define PE_ADDRESS_OCTETS 16

/* Who made a time stamp (StampKind of records/units.py). */
enum { PE_KIND_USER = 0, PE_KIND_KERNEL = 1, PE_KIND_HARDWARE = 2, PE_KIND_NONE = 255 };

typedef struct pe_datagram {
    uint8_t *data;                      /* UDP payload */
    uint32_t length_octets;             /* on the wire */
    uint32_t room_octets;               /* of the receive buffer: of a longer datagram the end is missing */
    uint32_t socket;                    /* slot of the socket that received it */
    uint16_t port;                      /* source port, host byte order */
    uint8_t tos;                        /* TOS or traffic class octet: DSCP << 2 | ECN */
    uint8_t ttl;                        /* TTL or hop limit on arrival; 0: not known */
    uint8_t kind;                       /* of `at_ns` */
    uint8_t address[PE_ADDRESS_OCTETS]; /* source, IPv4 as ::ffff:a.b.c.d */
    int64_t at_ns;                      /* RX stamp; PE_ABSENT_NS: none */
    int64_t user_at_ns;                 /* when user space took it */
} pe_datagram;

#endif
