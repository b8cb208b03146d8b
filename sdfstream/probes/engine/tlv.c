#include "tlv.h"

#include "octets.h"

enum { TYPE_AND_LENGTH = 0x00FFFFFF }; /* of a header word: without the flags */

/* Length that a type's value must have; -1: any, or not known to us. */
static int32_t octets_of_type(uint8_t type)
{
    switch (type) {
    case PE_TLV_FOLLOW_UP_TELEMETRY:
        return PE_FOLLOW_UP_OCTETS;
    case PE_TLV_CLASS_OF_SERVICE:
        return PE_CLASS_OF_SERVICE_OCTETS;
    case PE_TLV_TIMESTAMP_INFORMATION:
        return PE_TIMESTAMP_INFORMATION_OCTETS;
    case PE_TLV_HMAC:
        return PE_MAC_OCTETS;
    default:
        return -1;
    }
}

void pe_walk_tlvs(const uint8_t *data, uint32_t first_at, uint32_t length, pe_walk *walk)
{
    uint32_t at = first_at;
    walk->count = 0;
    while (walk->count < PE_MAX_TLVS && at + PE_TLV_HEADER_OCTETS <= length) {
        if (pe_get32(data + at) == 0)
            return;
        uint8_t type = data[at + 1];
        uint32_t span = pe_get16(data + at + 2);
        int32_t must = octets_of_type(type);
        bool bad = span > length - at - PE_TLV_HEADER_OCTETS || (must >= 0 && span != (uint32_t)must);
        walk->tlvs[walk->count++] = (pe_tlv){.at = at, .type = type, .malformed = bad};
        if (bad)
            return;
        at += PE_TLV_HEADER_OCTETS + span;
    }
}

uint32_t pe_first_tlv(const pe_walk *walk, uint8_t type)
{
    for (unsigned i = 0; i < walk->count; i++)
        if (walk->tlvs[i].type == type && !walk->tlvs[i].malformed)
            return walk->tlvs[i].at;
    return 0;
}

bool pe_tlvs_proven(const pe_codec *codec, const uint8_t *data, const pe_walk *walk)
{
    uint32_t mac_tlv_at = pe_first_tlv(walk, PE_TLV_HMAC);
    bool needed = false, lawful = true;
    for (unsigned i = 0; i < walk->count; i++) {
        const pe_tlv *tlv = &walk->tlvs[i];
        bool other = tlv->type != PE_TLV_EXTRA_PADDING;
        needed |= other;
        lawful &= !tlv->malformed && !(other && tlv->at > mac_tlv_at);
    }
    if (!needed)
        return true;
    if (!lawful || mac_tlv_at == 0)
        return false;
    uint8_t made[PE_MAC_OCTETS];
    pe_mac_of_tlvs(codec, data, mac_tlv_at, made);
    return pe_mac_equal(made, data + mac_tlv_at + PE_TLV_HEADER_OCTETS);
}

void pe_mac_of_tlvs(const pe_codec *codec, const uint8_t *data, uint32_t mac_tlv_at, uint8_t made[PE_MAC_OCTETS])
{
    uint32_t base = codec->layout.base_octets;
    pe_mac_of(&codec->mac, data, sizeof(uint32_t), data + base, mac_tlv_at - base, made);
}

uint32_t pe_least_octets(const pe_codec *codec)
{
    uint32_t mac_tlv = codec->authenticated ? PE_TLV_HEADER_OCTETS + PE_MAC_OCTETS : 0;
    return codec->layout.base_octets + PE_ARRANGED_OCTETS + mac_tlv;
}

static bool has_head(const uint8_t *at, uint8_t type, uint32_t octets)
{
    return (pe_get32(at) & TYPE_AND_LENGTH) == ((uint32_t)type << 16 | octets);
}

bool pe_is_arranged(const pe_codec *codec, const uint8_t *data, uint32_t length)
{
    uint32_t least = pe_least_octets(codec);
    if (length != least && length < least + PE_TLV_HEADER_OCTETS)
        return false;
    const uint8_t *tlvs = data + codec->layout.base_octets;
    if (!has_head(tlvs, PE_TLV_FOLLOW_UP_TELEMETRY, PE_FOLLOW_UP_OCTETS) ||
        !has_head(tlvs + PE_CLASS_OF_SERVICE_AT, PE_TLV_CLASS_OF_SERVICE, PE_CLASS_OF_SERVICE_OCTETS) ||
        !has_head(tlvs + PE_TIMESTAMP_INFORMATION_AT, PE_TLV_TIMESTAMP_INFORMATION, PE_TIMESTAMP_INFORMATION_OCTETS))
        return false;
    if (codec->authenticated && !has_head(tlvs + PE_ARRANGED_OCTETS, PE_TLV_HMAC, PE_MAC_OCTETS))
        return false;
    uint32_t padding = length - least;
    return padding == 0 || has_head(data + least, PE_TLV_EXTRA_PADDING, padding - PE_TLV_HEADER_OCTETS);
}

/* A user-space reading is the control plane's, a kernel stamp is "SW local". */
uint8_t pe_method_of_kind(uint8_t kind)
{
    switch (kind) {
    case PE_KIND_USER:
        return PE_METHOD_CONTROL_PLANE;
    case PE_KIND_KERNEL:
        return PE_METHOD_SW_LOCAL;
    case PE_KIND_HARDWARE:
        return PE_METHOD_HW_ASSIST;
    default:
        return PE_METHOD_NONE;
    }
}

/* What is not said counts as user space, the worst. */
uint8_t pe_kind_of_method(uint8_t method)
{
    switch (method) {
    case PE_METHOD_HW_ASSIST:
        return PE_KIND_HARDWARE;
    case PE_METHOD_SW_LOCAL:
        return PE_KIND_KERNEL;
    default:
        return PE_KIND_USER;
    }
}
