/* SHA-256 (FIPS 180-4) and HMAC-SHA-256 truncated to 128 bits (RFC 2104, RFC 8762 section 4.4). */
#ifndef PE_SHA256_H
#define PE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PE_SHA256_OCTETS 32
#define PE_SHA256_BLOCK_OCTETS 64
#define PE_MAC_OCTETS 16

typedef struct pe_sha256 {
    uint32_t state[8];
    uint64_t total_octets;
    uint8_t block[PE_SHA256_BLOCK_OCTETS];
} pe_sha256;

void pe_sha256_begin(pe_sha256 *hash);
void pe_sha256_add(pe_sha256 *hash, const uint8_t *data, size_t octets);
void pe_sha256_end(pe_sha256 *hash, uint8_t digest[PE_SHA256_OCTETS]);

/* The two halves of an HMAC that depend on the key alone: hashed once, copied for every packet. */
typedef struct pe_mac {
    pe_sha256 inner;
    pe_sha256 outer;
} pe_mac;

void pe_mac_key(pe_mac *mac, const uint8_t *key, size_t octets);

/* HMAC of two pieces of a message, one behind the other; the second may be empty. */
void pe_mac_of(const pe_mac *mac, const uint8_t *first, size_t first_octets, const uint8_t *second,
               size_t second_octets, uint8_t made[PE_MAC_OCTETS]);

/* Takes the same time wherever the two differ. */
bool pe_mac_equal(const uint8_t a[PE_MAC_OCTETS], const uint8_t b[PE_MAC_OCTETS]);

#endif
