#include "wire.h"

#include <string.h>

#define CRC_AT_DATA (JE_DATA_OCTETS - 4)
#define CRC_AT_ACK (JE_ACK_OCTETS - 4)

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t get64(const uint8_t *at)
{
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static void put32(uint8_t *at, uint32_t value)
{
    for (unsigned i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void put64(uint8_t *at, uint64_t value)
{
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

/* Eight octets a step (Intel's "slicing by 8"): table t gives the CRC of an octet that t octets follow. */
static uint32_t tables[8][256];

__attribute__((constructor)) static void fill_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
        tables[0][i] = crc;
    }
    for (unsigned t = 1; t < 8; t++)
        for (unsigned i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xFF];
}

uint32_t je_crc(uint32_t crc, const uint8_t *data, size_t octets)
{
    crc = ~crc;
    for (; octets >= 8; octets -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8); /* little endian, as every machine that the lab runs on */
        word ^= crc;
        crc = tables[7][word & 0xFF] ^ tables[6][word >> 8 & 0xFF] ^ tables[5][word >> 16 & 0xFF] ^
              tables[4][word >> 24 & 0xFF] ^ tables[3][word >> 32 & 0xFF] ^ tables[2][word >> 40 & 0xFF] ^
              tables[1][word >> 48 & 0xFF] ^ tables[0][word >> 56];
    }
    for (; octets; octets--, data++)
        crc = crc >> 8 ^ tables[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

/* Everything before the checksum and everything behind it. */
static uint32_t checksum(const uint8_t *packet, size_t octets, size_t at)
{
    return je_crc(je_crc(0, packet, at), packet + at + 4, octets - at - 4);
}

int je_kind(const uint8_t *packet, size_t octets)
{
    if (octets >= JE_ACK_OCTETS && packet[4] == JE_ACK)
        return JE_ACK;
    return octets >= JE_DATA_OCTETS && packet[4] == JE_DATA ? JE_DATA : 0;
}

enum je_refusal je_read_data(const uint8_t *packet, size_t octets, je_header *header)
{
    if (get32(packet) != JE_MAGIC)
        return JE_BAD_MAGIC;
    *header = (je_header){
        .flags = packet[5],
        .length = (uint16_t)(packet[6] << 8 | packet[7]),
        .run = get32(packet + 8),
        .qp = get32(packet + 12),
        .psn = get64(packet + 16),
        .tx = get64(packet + 24),
        .chunk = get32(packet + 32),
        .collective = get32(packet + 36),
        .step = get32(packet + 40),
        .piece = get32(packet + 44),
        .chunk_octets = get32(packet + 48),
        .offset = get32(packet + 52),
    };
    if (octets != (size_t)JE_DATA_OCTETS + header->length)
        return JE_BAD_LENGTH;
    if (get32(packet + CRC_AT_DATA) != checksum(packet, octets, CRC_AT_DATA))
        return JE_BAD_CHECKSUM;
    if (header->chunk_octets == 0 || header->chunk_octets > JE_MOST_CHUNK_OCTETS ||
        header->offset % JE_PAYLOAD_OCTETS || header->offset >= header->chunk_octets)
        return JE_MALFORMED;
    uint32_t left = header->chunk_octets - header->offset;
    uint32_t whole = left < JE_PAYLOAD_OCTETS ? left : JE_PAYLOAD_OCTETS;
    return header->length == (header->flags & JE_VOID ? 0 : whole) ? JE_TAKEN : JE_MALFORMED;
}

enum je_refusal je_read_ack(const uint8_t *packet, size_t octets, je_ack *ack)
{
    if (get32(packet) != JE_MAGIC)
        return JE_BAD_MAGIC;
    size_t width = (size_t)packet[6] << 8 | packet[7];
    uint32_t count = packet[5];
    if (count > JE_REPORTS || width > JE_WINDOW / 8 || octets != JE_ACK_OCTETS + width + count * JE_REPORT_OCTETS)
        return JE_BAD_LENGTH;
    if (get32(packet + CRC_AT_ACK) != checksum(packet, octets, CRC_AT_ACK))
        return JE_BAD_CHECKSUM;
    ack->run = get32(packet + 8);
    ack->qp = get32(packet + 12);
    ack->cumulative = get64(packet + 16);
    ack->newest_tx = get64(packet + 24);
    ack->received = get32(packet + 32);
    ack->ce = get32(packet + 36);
    ack->count = count;
    memset(ack->ahead, 0, sizeof ack->ahead);
    memcpy(ack->ahead, packet + JE_ACK_OCTETS, width);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = packet + JE_ACK_OCTETS + width + i * JE_REPORT_OCTETS;
        ack->reports[i] = (je_chunk_report){get32(at), get32(at + 4), (int64_t)get64(at + 8), (int64_t)get64(at + 16)};
    }
    return JE_TAKEN;
}

size_t je_write_data(uint8_t *out, const je_header *header, const uint8_t *payload)
{
    put32(out, JE_MAGIC);
    out[4] = JE_DATA;
    out[5] = header->flags;
    out[6] = (uint8_t)(header->length >> 8);
    out[7] = (uint8_t)header->length;
    put32(out + 8, header->run);
    put32(out + 12, header->qp);
    put64(out + 16, header->psn);
    put64(out + 24, header->tx);
    put32(out + 32, header->chunk);
    put32(out + 36, header->collective);
    put32(out + 40, header->step);
    put32(out + 44, header->piece);
    put32(out + 48, header->chunk_octets);
    put32(out + 52, header->offset);
    if (header->length)
        memcpy(out + JE_DATA_OCTETS, payload, header->length);
    size_t octets = (size_t)JE_DATA_OCTETS + header->length;
    put32(out + CRC_AT_DATA, checksum(out, octets, CRC_AT_DATA));
    return octets;
}

uint32_t je_bits(const uint64_t *words)
{
    for (unsigned i = JE_WINDOW_WORDS; i-- > 0;)
        if (words[i])
            return i * 64 + 64 - (uint32_t)__builtin_clzll(words[i]);
    return 0;
}

size_t je_write_ack(uint8_t *out, const je_ack *ack)
{
    size_t width = (je_bits(ack->ahead) + 7) / 8;
    put32(out, JE_MAGIC);
    out[4] = JE_ACK;
    out[5] = (uint8_t)ack->count;
    out[6] = 0;
    out[7] = (uint8_t)width;
    put32(out + 8, ack->run);
    put32(out + 12, ack->qp);
    put64(out + 16, ack->cumulative);
    put64(out + 24, ack->newest_tx);
    put32(out + 32, ack->received);
    put32(out + 36, ack->ce);
    memcpy(out + JE_ACK_OCTETS, ack->ahead, width);
    for (uint32_t i = 0; i < ack->count; i++) {
        uint8_t *at = out + JE_ACK_OCTETS + width + i * JE_REPORT_OCTETS;
        put32(at, ack->reports[i].chunk);
        put32(at + 4, ack->reports[i].ce);
        put64(at + 8, (uint64_t)ack->reports[i].arrived_at_ns);
        put64(at + 16, (uint64_t)ack->reports[i].completed_at_ns);
    }
    size_t octets = JE_ACK_OCTETS + width + ack->count * JE_REPORT_OCTETS;
    put32(out + CRC_AT_ACK, checksum(out, octets, CRC_AT_ACK));
    return octets;
}
