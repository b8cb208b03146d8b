/* Wire form of the emulated queue pair, as qp_header.py describes it: octets to fields and back, with the checksum. */
#ifndef JE_WIRE_H
#define JE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JE_MAGIC UINT32_C(0x53445131)
#define JE_PORT 4791

enum { JE_DATA = 1, JE_ACK = 2 };
enum { JE_VOID = 1, JE_AGAIN = 2 };

#define JE_WINDOW 512 /* packets beyond the first one missing */
#define JE_WINDOW_WORDS (JE_WINDOW / 64)
#define JE_REPORTS 4
#define JE_PAYLOAD_OCTETS 1408
#define JE_MOST_CHUNK_OCTETS (UINT32_C(1) << 20)
#define JE_DATA_OCTETS 60
#define JE_ACK_OCTETS 44
#define JE_REPORT_OCTETS 24
#define JE_MOST_OCTETS (JE_DATA_OCTETS + JE_PAYLOAD_OCTETS)

/* Why a packet is refused; job.c adds its own reasons. */
enum je_refusal {
    JE_TAKEN,
    JE_BAD_KIND,
    JE_BAD_MAGIC,
    JE_BAD_LENGTH,
    JE_BAD_CHECKSUM,
    JE_MALFORMED,
    JE_UNKNOWN_QP,
    JE_OUT_OF_PLACE,
    JE_FAR_AHEAD,
    JE_DOUBLED, /* no refusal: counted apart */
    JE_REFUSALS
};

typedef struct je_header {
    uint64_t psn, tx;
    uint32_t run, qp;
    uint32_t chunk, collective, step, piece, chunk_octets, offset;
    uint16_t length;
    uint8_t flags;
} je_header;

typedef struct je_chunk_report {
    uint32_t chunk, ce;
    int64_t arrived_at_ns, completed_at_ns;
} je_chunk_report;

typedef struct je_ack {
    uint64_t cumulative, newest_tx;
    uint64_t ahead[JE_WINDOW_WORDS]; /* bit i: psn cumulative + i has arrived */
    uint32_t run, qp, received, ce;
    uint32_t count; /* of reports */
    je_chunk_report reports[JE_REPORTS];
} je_ack;

/* CRC-32 of IEEE 802.3 as zlib has it; `crc` is that of what came before, 0 at first. */
uint32_t je_crc(uint32_t crc, const uint8_t *data, size_t octets);

/* JE_DATA or JE_ACK where the packet says so and has room for that header; else 0. */
int je_kind(const uint8_t *packet, size_t octets);
enum je_refusal je_read_data(const uint8_t *packet, size_t octets, je_header *header);
enum je_refusal je_read_ack(const uint8_t *packet, size_t octets, je_ack *ack);
/* How many octets were written: at most JE_MOST_OCTETS. */
size_t je_write_data(uint8_t *out, const je_header *header, const uint8_t *payload);
size_t je_write_ack(uint8_t *out, const je_ack *ack);

/* Bits up to the highest one set. */
uint32_t je_bits(const uint64_t *words);

static inline uint32_t je_packets_of(uint32_t chunk_octets)
{
    return (chunk_octets + JE_PAYLOAD_OCTETS - 1) / JE_PAYLOAD_OCTETS;
}

#endif
