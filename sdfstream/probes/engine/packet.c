#include "packet.h"

#include <string.h>

#include "octets.h"
#include "tlv.h"

#define NTP_EPOCH_S UINT64_C(2208988800) /* seconds from 1900-01-01 to 1970-01-01 */

static const pe_layout OPEN = {
    .base_octets = 44, .stamp = 4, .error = 12, .ssid = 14,
    .t2 = 16, .sender_seq = 24, .sender_t1 = 28, .sender_error = 36, .ttl = 40, .mac = 0,
};

static const pe_layout AUTHENTICATED = {
    .base_octets = 112, .stamp = 16, .error = 24, .ssid = 26,
    .t2 = 32, .sender_seq = 48, .sender_t1 = 64, .sender_error = 72, .ttl = 80, .mac = 96,
};

static const char *const REASONS[PE_REASONS] = {
    [PE_SHORT] = "short",
    [PE_CUT] = "oversized",
    [PE_BAD_HMAC] = "hmac",
    [PE_UNKNOWN_SESSION] = "unknown-session",
    [PE_WRONG_REFLECTOR] = "wrong-reflector",
    [PE_UNKNOWN_EXCHANGE] = "unknown-exchange",
    [PE_LATE] = "late",
    [PE_ECHO] = "echo",
    [PE_DUPLICATE] = "duplicate",
    [PE_RATE] = "rate",
    [PE_STRANGER] = "stranger",
    [PE_REFLECTOR_PORT] = "reflector-port",
    [PE_ANSWER] = "answer",
    [PE_OWN_ADDRESS] = "own-address",
    [PE_NO_HOST] = "no-host",
    [PE_SOURCE_RATE] = "source-rate",
    [PE_STRANGER_RATE] = "stranger-rate",
    [PE_TLV_INTEGRITY] = "tlv-integrity",
    [PE_TLV_MALFORMED] = "tlv-malformed",
    [PE_LATE_STAMP] = "late-stamp",
};

const char *pe_reason_name(unsigned reason)
{
    return reason < PE_REASONS ? REASONS[reason] : NULL;
}

void pe_codec_begin(pe_codec *codec, const uint8_t *key, size_t key_octets, uint16_t error)
{
    memset(codec, 0, sizeof *codec);
    codec->layout = key == NULL ? OPEN : AUTHENTICATED;
    codec->authenticated = key != NULL;
    codec->error = error;
    if (key != NULL)
        pe_mac_key(&codec->mac, key, key_octets);
}

/* PTP: seconds since 1970 and nanoseconds. NTP: seconds since 1900 and a fraction, rounded up by less than 0.24 ns so
 * that `pe_ns_of` returns exactly `at_ns`. */
uint64_t pe_stamp_of(int64_t at_ns, uint16_t error)
{
    int64_t seconds = pe_floor_div(at_ns, PE_NS_PER_S);
    uint64_t rest = (uint64_t)at_ns - (uint64_t)seconds * (uint64_t)PE_NS_PER_S;
    if (error & PE_PTP)
        return (uint64_t)seconds << 32 | rest;
    uint64_t fraction = ((rest << 32) + (uint64_t)(PE_NS_PER_S - 1)) / (uint64_t)PE_NS_PER_S;
    return ((uint64_t)seconds + NTP_EPOCH_S) << 32 | fraction;
}

/* The NTP era is chosen as RFC 4330 section 3 does: seconds with the top bit set lie in 1968..2036, others in
 * 2036..2104. */
int64_t pe_ns_of(uint64_t stamp, uint16_t error)
{
    int64_t seconds = (int64_t)(stamp >> 32);
    int64_t below = (int64_t)(stamp & 0xFFFFFFFFu);
    if (error & PE_PTP)
        return seconds * PE_NS_PER_S + below;
    if (seconds < INT64_C(0x80000000))
        seconds += INT64_C(1) << 32;
    return (seconds - (int64_t)NTP_EPOCH_S) * PE_NS_PER_S + ((below * PE_NS_PER_S + (INT64_C(1) << 31)) >> 32);
}

uint32_t pe_probe_octets(const pe_codec *codec, uint32_t wanted_octets)
{
    uint32_t least = pe_least_octets(codec);
    if (wanted_octets <= least)
        return least;
    return wanted_octets < least + PE_TLV_HEADER_OCTETS ? least + PE_TLV_HEADER_OCTETS : wanted_octets;
}

static void put_head(uint8_t *at, uint8_t type, uint32_t octets)
{
    pe_put32(at, (uint32_t)PE_TLV_U << 24 | (uint32_t)type << 16 | octets);
}

static void put_tlvs(const pe_codec *codec, const pe_probe *probe, uint8_t *out)
{
    uint8_t *tlvs = out + codec->layout.base_octets;
    uint8_t *class_of_service = tlvs + PE_CLASS_OF_SERVICE_AT;
    put_head(tlvs, PE_TLV_FOLLOW_UP_TELEMETRY, PE_FOLLOW_UP_OCTETS);
    put_head(class_of_service, PE_TLV_CLASS_OF_SERVICE, PE_CLASS_OF_SERVICE_OCTETS);
    pe_put32(class_of_service + PE_TLV_HEADER_OCTETS, (uint32_t)probe->dscp1 << 26 | (uint32_t)probe->ec1 << 14);
    put_head(tlvs + PE_TIMESTAMP_INFORMATION_AT, PE_TLV_TIMESTAMP_INFORMATION, PE_TIMESTAMP_INFORMATION_OCTETS);
    if (codec->authenticated)
        put_head(tlvs + PE_ARRANGED_OCTETS, PE_TLV_HMAC, PE_MAC_OCTETS);
    uint32_t least = pe_least_octets(codec);
    if (probe->length_octets > least)
        put_head(out + least, PE_TLV_EXTRA_PADDING, probe->length_octets - least - PE_TLV_HEADER_OCTETS);
}

uint32_t pe_build_probe(const pe_codec *codec, const pe_probe *probe, uint32_t seq, uint64_t t1_word, uint8_t *out)
{
    const pe_layout *layout = &codec->layout;
    memset(out, 0, probe->length_octets);
    pe_put32(out, seq);
    pe_put64(out + layout->stamp, t1_word);
    pe_put16(out + layout->error, codec->error);
    pe_put16(out + layout->ssid, probe->ssid);
    put_tlvs(codec, probe, out);
    if (codec->authenticated) {
        uint32_t mac_tlv_at = layout->base_octets + (uint32_t)PE_ARRANGED_OCTETS;
        pe_mac_of_base(codec, out, out + layout->mac);
        pe_mac_of_tlvs(codec, out, mac_tlv_at, out + mac_tlv_at + PE_TLV_HEADER_OCTETS);
    }
    return probe->length_octets;
}

void pe_mac_of_base(const pe_codec *codec, const uint8_t *data, uint8_t made[PE_MAC_OCTETS])
{
    pe_mac_of(&codec->mac, data, codec->layout.mac, data, 0, made);
}

bool pe_proven(const pe_codec *codec, const pe_datagram *datagram)
{
    if (!codec->authenticated)
        return true;
    uint8_t made[PE_MAC_OCTETS];
    pe_mac_of_base(codec, datagram->data, made);
    return pe_mac_equal(made, datagram->data + codec->layout.mac);
}

bool pe_is_answer(const pe_codec *codec, const uint8_t *data)
{
    if (pe_get64(data + codec->layout.t2) == 0)
        return false;
    if (codec->authenticated) /* between the sender's error estimate and its TTL */
        return pe_get16(data + 74) == 0 && pe_get32(data + 76) == 0;
    return pe_get16(data + 38) == 0 && data[41] == 0 && pe_get16(data + 42) == 0;
}

enum pe_reason pe_read_answer(const pe_codec *codec, const pe_datagram *datagram, pe_answer *answer)
{
    const pe_layout *layout = &codec->layout;
    const uint8_t *data = datagram->data;
    if (datagram->length_octets < layout->base_octets)
        return PE_SHORT;
    if (datagram->length_octets > datagram->room_octets)
        return PE_CUT;
    memset(answer, 0, sizeof *answer);
    answer->error = pe_get16(data + layout->error);
    answer->t2_ns = pe_ns_of(pe_get64(data + layout->t2), answer->error);
    answer->t3_ns = pe_ns_of(pe_get64(data + layout->stamp), answer->error);
    answer->t1_word = pe_get64(data + layout->sender_t1);
    answer->seq = pe_get32(data);
    answer->sender_seq = pe_get32(data + layout->sender_seq);
    answer->ssid = pe_get16(data + layout->ssid);
    answer->ttl = data[layout->ttl];
    return PE_GOOD;
}

/* The value of the first usable TLV of a type: well-formed, not flagged, not behind one that the reflector called
 * malformed (RFC 8972 section 4); NULL: none. Reserved flags are ignored. */
static const uint8_t *usable_tlv(const uint8_t *data, const pe_walk *walk, uint8_t type)
{
    for (unsigned i = 0; i < walk->count; i++) {
        const pe_tlv *tlv = &walk->tlvs[i];
        uint8_t flags = data[tlv->at];
        if (flags & PE_TLV_M)
            return NULL;
        if (tlv->type == type && !tlv->malformed)
            return flags & (PE_TLV_U | PE_TLV_I) ? NULL : data + tlv->at + PE_TLV_HEADER_OCTETS;
    }
    return NULL;
}

static bool any_integrity_failed(const uint8_t *data, const pe_walk *walk)
{
    unsigned flags = 0;
    for (unsigned i = 0; i < walk->count; i++)
        flags |= data[walk->tlvs[i].at];
    return (flags & PE_TLV_I) != 0;
}

bool pe_read_tlvs(const pe_codec *codec, const pe_datagram *datagram, pe_answer *answer)
{
    const uint8_t *data = datagram->data;
    pe_walk walk;
    pe_walk_tlvs(data, codec->layout.base_octets, datagram->length_octets, &walk);
    if (any_integrity_failed(data, &walk) || (codec->authenticated && !pe_tlvs_proven(codec, data, &walk)))
        return false;
    const uint8_t *value = usable_tlv(data, &walk, PE_TLV_TIMESTAMP_INFORMATION);
    if (value != NULL)
        answer->t2_kind = pe_kind_of_method(value[1]);
    value = usable_tlv(data, &walk, PE_TLV_CLASS_OF_SERVICE);
    if (value != NULL) {
        uint32_t word = pe_get32(value);
        answer->classed = true;
        answer->dscp_fwd = (uint8_t)(word >> 20 & 63);
        answer->ecn_fwd = (uint8_t)(word >> 18 & 3);
    }
    value = usable_tlv(data, &walk, PE_TLV_FOLLOW_UP_TELEMETRY);
    if (value != NULL && pe_get64(value + 4) != 0) {
        answer->follows_up = true;
        answer->fu_seq = pe_get32(value);
        answer->fu_at_ns = pe_ns_of(pe_get64(value + 4), answer->error);
        answer->fu_kind = pe_kind_of_method(value[12]);
    }
    return true;
}
