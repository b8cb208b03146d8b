/* SHA-256 by FIPS 180-4, section 6.2. Our packets are one to three blocks, so no unrolled or vector form is needed. */
#include "sha256.h"

#include <string.h>

#include "octets.h"

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static const uint32_t START[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static uint32_t turned(uint32_t word, unsigned by)
{
    return (word >> by) | (word << (32 - by));
}

static void take_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64];
    for (unsigned i = 0; i < 16; i++)
        w[i] = pe_get32(block + i * 4);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t s0 = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t s1 = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (unsigned i = 0; i < 64; i++) {
        uint32_t s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + w[i];
        uint32_t s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void pe_sha256_begin(pe_sha256 *hash)
{
    memcpy(hash->state, START, sizeof START);
    hash->total_octets = 0;
}

void pe_sha256_add(pe_sha256 *hash, const uint8_t *data, size_t octets)
{
    size_t held = (size_t)(hash->total_octets % PE_SHA256_BLOCK_OCTETS);
    hash->total_octets += octets;
    while (octets > 0) {
        size_t room = PE_SHA256_BLOCK_OCTETS - held;
        size_t taken = octets < room ? octets : room;
        memcpy(hash->block + held, data, taken);
        data += taken;
        octets -= taken;
        held += taken;
        if (held == PE_SHA256_BLOCK_OCTETS) {
            take_block(hash->state, hash->block);
            held = 0;
        }
    }
}

void pe_sha256_end(pe_sha256 *hash, uint8_t digest[PE_SHA256_OCTETS])
{
    size_t held = (size_t)(hash->total_octets % PE_SHA256_BLOCK_OCTETS);
    uint64_t bits = hash->total_octets * 8;
    hash->block[held++] = 0x80;
    if (held > PE_SHA256_BLOCK_OCTETS - 8) { /* no room for the length: it goes into a block of its own */
        memset(hash->block + held, 0, PE_SHA256_BLOCK_OCTETS - held);
        take_block(hash->state, hash->block);
        held = 0;
    }
    memset(hash->block + held, 0, PE_SHA256_BLOCK_OCTETS - 8 - held);
    pe_put64(hash->block + PE_SHA256_BLOCK_OCTETS - 8, bits);
    take_block(hash->state, hash->block);
    for (unsigned i = 0; i < 8; i++)
        pe_put32(digest + i * 4, hash->state[i]);
}

static void begin_with_key(pe_sha256 *hash, const uint8_t padded[PE_SHA256_BLOCK_OCTETS], uint8_t with)
{
    uint8_t block[PE_SHA256_BLOCK_OCTETS];
    for (unsigned i = 0; i < PE_SHA256_BLOCK_OCTETS; i++)
        block[i] = padded[i] ^ with;
    pe_sha256_begin(hash);
    pe_sha256_add(hash, block, sizeof block);
}

void pe_mac_key(pe_mac *mac, const uint8_t *key, size_t octets)
{
    uint8_t padded[PE_SHA256_BLOCK_OCTETS] = {0};
    if (octets > PE_SHA256_BLOCK_OCTETS) {
        pe_sha256 hash;
        pe_sha256_begin(&hash);
        pe_sha256_add(&hash, key, octets);
        pe_sha256_end(&hash, padded);
    } else if (octets > 0) {
        memcpy(padded, key, octets);
    }
    begin_with_key(&mac->inner, padded, 0x36);
    begin_with_key(&mac->outer, padded, 0x5C);
}

void pe_mac_of(const pe_mac *mac, const uint8_t *first, size_t first_octets, const uint8_t *second,
               size_t second_octets, uint8_t made[PE_MAC_OCTETS])
{
    uint8_t digest[PE_SHA256_OCTETS];
    pe_sha256 hash = mac->inner;
    pe_sha256_add(&hash, first, first_octets);
    pe_sha256_add(&hash, second, second_octets);
    pe_sha256_end(&hash, digest);
    hash = mac->outer;
    pe_sha256_add(&hash, digest, sizeof digest);
    pe_sha256_end(&hash, digest);
    memcpy(made, digest, PE_MAC_OCTETS);
}

bool pe_mac_equal(const uint8_t a[PE_MAC_OCTETS], const uint8_t b[PE_MAC_OCTETS])
{
    unsigned differ = 0;
    for (unsigned i = 0; i < PE_MAC_OCTETS; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}
