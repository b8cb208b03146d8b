/* Whom a reflector answers: Session-Senders that it was told of, each at its own rate (stamp/known_senders.py, where
 * the rules and their reasons are). The table is merged, sorted out and bounded in Python; it arrives here whole. */
#ifndef PE_KNOWN_SENDERS_H
#define PE_KNOWN_SENDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"
#include "datagram.h"
#include "packet.h"
#include "rates.h"

#define PE_NO_NIC UINT32_MAX
#define PE_WELL_KNOWN_PORT 862

typedef struct pe_known_sender {
    uint8_t address[PE_ADDRESS_OCTETS];
    uint32_t nic;  /* number that Python gave its NIC */
    uint16_t port; /* UDP port of its own reflector; 0: not known */
} pe_known_sender;

typedef struct pe_network {
    uint8_t network[PE_ADDRESS_OCTETS];
    uint8_t mask[PE_ADDRESS_OCTETS];
} pe_network;

/* ReflectorLimits of stamp/known_senders.py, and what is fixed for a host. */
typedef struct pe_reflector_limits {
    double max_pps, source_pps, stranger_pps;
    uint64_t salt;         /* a number that strangers cannot guess */
    uint16_t port;         /* the reflector's own */
    bool strangers;        /* answer senders that are not known, too */
    bool on_loopback;      /* one of the host's own addresses is loopback's */
    uint32_t most_senders; /* room for known senders, */
    uint32_t most_networks;
    uint32_t most_own;     /* and for the host's own addresses */
} pe_reflector_limits;

typedef struct pe_known_senders {
    pe_reflector_limits limits;
    pe_known_sender *senders;
    uint32_t *slots; /* hash table of 1 + index into `senders`, by address; 0: empty */
    uint32_t slots_mask;
    uint32_t count;
    pe_network *networks;
    uint32_t network_count;
    uint8_t *own; /* addresses of the host, one behind the other */
    uint32_t own_count;
    pe_source_buckets sources;
    pe_bucket strangers;
} pe_known_senders;

/* What `pe_admit` says of a sender. */
typedef struct pe_admission {
    enum pe_reason reason; /* PE_GOOD: it may be answered */
    uint32_t bucket;
    bool stranger;
} pe_admission;

void pe_known_senders_carve(pe_known_senders *known, pe_arena *arena, const pe_reflector_limits *limits);

/* Of zeroed memory: nobody is known. `own`: the host's addresses, `limits->most_own` of them, one behind the other. */
void pe_known_senders_clear(pe_known_senders *known, const uint8_t *own);

/* These senders and networks, and no others, are known from now on. Every bucket is full. False: too many. */
bool pe_know_senders(pe_known_senders *known, const pe_known_sender *senders, uint32_t count,
                     const pe_network *networks, uint32_t network_count);

/* NIC of a known sender; PE_NO_NIC: none that we were told of. */
uint32_t pe_nic_of_sender(const pe_known_senders *known, const uint8_t address[PE_ADDRESS_OCTETS]);

/* Whether a sender is answered at all, whatever its rate. */
pe_admission pe_admit(const pe_known_senders *known, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port);

/* One 64-bit key from an address and another word, as address_keys of stamp/datagrams.py. */
uint64_t pe_address_key(const uint8_t address[PE_ADDRESS_OCTETS], uint64_t extra);

#endif
