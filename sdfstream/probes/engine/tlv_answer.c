#include "tlv_answer.h"

#include <string.h>

#include "octets.h"
#include "tlv.h"

enum {
    ECN_NOT_ECT = 0,
    ECN_CE = 3,
    ECN_DONE = 3,        /* RPE of draft-ietf-ippm-stamp-cos-ecn: EC1 done */
    ECN_REFUSED = 2,
    CLASS_REFUSED = 1,   /* RPD: DSCP1 refused */
    NUMBER_AND_TIME = 12 /* octets of a Follow-Up Telemetry value */
};

static bool is_known(uint8_t type)
{
    return type == PE_TLV_EXTRA_PADDING || type == PE_TLV_TIMESTAMP_INFORMATION ||
           type == PE_TLV_CLASS_OF_SERVICE || type == PE_TLV_FOLLOW_UP_TELEMETRY || type == PE_TLV_HMAC;
}

static bool is_filled_in(uint8_t type)
{
    return type == PE_TLV_TIMESTAMP_INFORMATION || type == PE_TLV_CLASS_OF_SERVICE ||
           type == PE_TLV_FOLLOW_UP_TELEMETRY;
}

static uint8_t flags_of(const pe_walk *walk, const pe_tlv *tlv)
{
    /* only the first well-formed TLV of a type is filled in; a further one was not processed */
    bool again = is_filled_in(tlv->type) && !tlv->malformed && tlv->at != pe_first_tlv(walk, tlv->type);
    unsigned unknown = is_known(tlv->type) && !again ? 0 : PE_TLV_U;
    return (uint8_t)(unknown | (tlv->malformed ? PE_TLV_M : 0u));
}

/* Write the flags of every TLV. A Follow-Up Telemetry TLV of a wrong length goes back with what it has of number and
 * time zeroed. */
static void flag(const pe_walk *walk, bool failed, uint8_t *data, uint32_t length, uint64_t *refused)
{
    for (unsigned i = 0; i < walk->count; i++) {
        const pe_tlv *tlv = &walk->tlvs[i];
        data[tlv->at] = failed ? (uint8_t)((data[tlv->at] & PE_TLV_U) | PE_TLV_I) : flags_of(walk, tlv);
        if (!tlv->malformed)
            continue;
        refused[PE_TLV_MALFORMED]++;
        if (tlv->type == PE_TLV_FOLLOW_UP_TELEMETRY) {
            uint32_t at = tlv->at + PE_TLV_HEADER_OCTETS;
            memset(data + at, 0, length - at < NUMBER_AND_TIME ? length - at : NUMBER_AND_TIME);
        }
    }
}

static void fill_follow_up(const pe_probe_facts *facts, uint8_t *value)
{
    pe_put32(value, facts->follows_up ? facts->fu_seq : 0);
    pe_put64(value + 4, facts->follows_up ? facts->fu_word : 0);
    value[12] = facts->follows_up ? pe_method_of_kind(facts->fu_kind) : PE_METHOD_NONE;
}

/* Fill in Class of Service; returns the TOS octet of the answer. */
static uint8_t fill_class(const pe_answering *answering, uint8_t tos, uint8_t *value)
{
    uint32_t asked = pe_get32(value);
    uint32_t dscp1 = asked >> 26, ec1 = asked >> 14 & 3;
    bool allowed = (answering->classes >> dscp1 & 1) != 0;
    bool may_mark = ec1 != ECN_CE;
    /* DSCP2 and EC2 are the TOS octet as it came: 6 bits and 2 bits side by side in the word as well */
    uint32_t done = may_mark ? ECN_DONE : ECN_REFUSED;
    uint32_t word = dscp1 << 26 | (uint32_t)tos << 18 | ec1 << 14 | done << 12;
    pe_put32(value, word | (allowed ? 0 : (uint32_t)CLASS_REFUSED << 16));
    return (uint8_t)((allowed ? dscp1 : (uint32_t)tos >> 2) << 2 | (may_mark ? ec1 : ECN_NOT_ECT));
}

static void fill_information(const pe_answering *answering, const pe_probe_facts *facts, uint8_t *value)
{
    value[0] = value[2] = answering->sync;
    value[1] = pe_method_of_kind(facts->t2_kind);
    value[3] = PE_METHOD_CONTROL_PLANE; /* T3 is written by user space */
}

/* In unauthenticated mode an HMAC TLV cannot be verified, and so has failed. */
static bool has_failed(const pe_codec *codec, const uint8_t *data, const pe_walk *walk)
{
    if (!codec->authenticated)
        return pe_first_tlv(walk, PE_TLV_HMAC) != 0;
    return !pe_tlvs_proven(codec, data, walk);
}

uint8_t pe_answer_tlvs(const pe_codec *codec, const pe_answering *answering, const pe_probe_facts *facts,
                       uint8_t *data, uint32_t length, uint64_t *refused)
{
    pe_walk walk;
    pe_walk_tlvs(data, codec->layout.base_octets, length, &walk);
    bool failed = has_failed(codec, data, &walk);
    uint8_t tos = facts->tos & 0xFC; /* without Class of Service: the class it arrived in, not ECN-capable */
    pe_put32(data, facts->seq);
    flag(&walk, failed, data, length, refused);
    if (failed) {
        refused[PE_TLV_INTEGRITY]++;
        return tos;
    }
    uint32_t at = pe_first_tlv(&walk, PE_TLV_FOLLOW_UP_TELEMETRY);
    if (at != 0)
        fill_follow_up(facts, data + at + PE_TLV_HEADER_OCTETS);
    at = pe_first_tlv(&walk, PE_TLV_CLASS_OF_SERVICE);
    if (at != 0)
        tos = fill_class(answering, facts->tos, data + at + PE_TLV_HEADER_OCTETS);
    at = pe_first_tlv(&walk, PE_TLV_TIMESTAMP_INFORMATION);
    if (at != 0)
        fill_information(answering, facts, data + at + PE_TLV_HEADER_OCTETS);
    at = pe_first_tlv(&walk, PE_TLV_HMAC);
    if (at != 0)
        pe_mac_of_tlvs(codec, data, at, data + at + PE_TLV_HEADER_OCTETS);
    return tos;
}

uint8_t pe_class_sent(const pe_codec *codec, const uint8_t *data, uint32_t length, uint8_t tos)
{
    if (!pe_is_arranged(codec, data, length))
        return tos >> 2;
    return data[codec->layout.base_octets + PE_CLASS_OF_SERVICE_AT + PE_TLV_HEADER_OCTETS] >> 2;
}
