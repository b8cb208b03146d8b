/* TLVs of RFC 8972 behind the base packet: constants, our own fixed arrangement, and the walk over any other.
 *
 * Octets: Flags(1) Type(1) Length(2) Value(Length). Our sender always writes Follow-Up Telemetry, Class of Service,
 * Timestamp Information, then (authenticated mode) HMAC, then Extra Padding up to the wanted size. Layout of Class of
 * Service and what is not implemented: stamp/tlv.py. */
#ifndef PE_TLV_H
#define PE_TLV_H

#include <stdbool.h>
#include <stdint.h>

#include "packet.h"

/* Flags: not recognised (sent as 1, cleared by a reflector that understood), malformed, integrity failed. */
enum { PE_TLV_U = 0x80, PE_TLV_M = 0x40, PE_TLV_I = 0x20 };

/* Types that we understand (IANA "STAMP TLV Types"). */
enum {
    PE_TLV_EXTRA_PADDING = 1,
    PE_TLV_TIMESTAMP_INFORMATION = 3,
    PE_TLV_CLASS_OF_SERVICE = 4,
    PE_TLV_FOLLOW_UP_TELEMETRY = 7,
    PE_TLV_HMAC = 8
};

/* How a stamp was made (IANA "STAMP Timestamping Methods"). */
enum { PE_METHOD_NONE, PE_METHOD_HW_ASSIST, PE_METHOD_SW_LOCAL, PE_METHOD_CONTROL_PLANE };

enum {
    PE_TLV_HEADER_OCTETS = 4,
    PE_MAX_TLVS = 32,              /* looked at per packet; what lies behind them is copied untouched */
    PE_FOLLOW_UP_OCTETS = 16,      /* values: */
    PE_CLASS_OF_SERVICE_OCTETS = 4,
    PE_TIMESTAMP_INFORMATION_OCTETS = 4,
    PE_CLASS_OF_SERVICE_AT = 20,   /* in our arrangement, octets behind the base packet */
    PE_TIMESTAMP_INFORMATION_AT = 28,
    PE_ARRANGED_OCTETS = 36
};

typedef struct pe_tlv {
    uint32_t at;    /* where its header begins */
    uint8_t type;
    bool malformed; /* its length is wrong for its type or reaches beyond the packet: always the last */
} pe_tlv;

typedef struct pe_walk {
    unsigned count;
    pe_tlv tlvs[PE_MAX_TLVS];
} pe_walk;

/* Find the TLVs between octets `first_at` and `length`. A walk ends at the packet's end, at a malformed TLV, at fewer
 * than 4 octets, after PE_MAX_TLVS, or at a header of four zero octets: plain padding of a sender that knows no TLVs
 * (it would have set the U flag). */
void pe_walk_tlvs(const uint8_t *data, uint32_t first_at, uint32_t length, pe_walk *walk);

/* Where the first well-formed TLV of a type begins; 0: there is none. */
uint32_t pe_first_tlv(const pe_walk *walk, uint8_t type);

/* Whether an HMAC TLV is there where one must be, and right: anything but Extra Padding needs one, and nothing but
 * Extra Padding may follow it (RFC 8972 section 4.8). In unauthenticated mode an HMAC TLV cannot be verified: what a
 * sender makes of that, and what a reflector does, differs, so neither calls this there. */
bool pe_tlvs_proven(const pe_codec *codec, const uint8_t *data, const pe_walk *walk);

/* HMAC of the sequence number and all TLVs before the HMAC TLV, whose header begins at `mac_tlv_at`. */
void pe_mac_of_tlvs(const pe_codec *codec, const uint8_t *data, uint32_t mac_tlv_at, uint8_t made[PE_MAC_OCTETS]);

/* Whether the TLVs are exactly our own arrangement, flags aside. */
bool pe_is_arranged(const pe_codec *codec, const uint8_t *data, uint32_t length);

/* Octets of our base packet and TLVs without Extra Padding. */
uint32_t pe_least_octets(const pe_codec *codec);

uint8_t pe_method_of_kind(uint8_t kind);
uint8_t pe_kind_of_method(uint8_t method);

#endif
