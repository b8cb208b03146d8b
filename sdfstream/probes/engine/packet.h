/* STAMP test packets (RFC 8762, RFC 8972): their octets, time stamps and HMACs, both modes, sender's side.
 *
 * A sender calls, for each probe:   word = pe_stamp_of(pe_clock_reading(clock, system_ns), codec->error);
 *                                   length = pe_build_probe(codec, &path->probe, seq, word, buffer);
 * and for each datagram it got, in this order, each refusal counted once under its first reason:
 *   1. pe_read_answer    PE_SHORT, PE_CUT; fills the base packet's fields
 *   2. find the path by socket and ssid (0: by socket, address and port)   PE_UNKNOWN_SESSION, PE_WRONG_REFLECTOR
 *   3. pe_proven         PE_BAD_HMAC
 *   4. match sender_seq and t1_word                                PE_UNKNOWN_EXCHANGE, PE_ECHO, PE_DUPLICATE, PE_LATE
 *   5. pe_read_tlvs      fills the TLVs' fields; false: none may be used (PE_TLV_INTEGRITY), the answer counts all the same
 */
#ifndef PE_PACKET_H
#define PE_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "datagram.h"
#include "sha256.h"

enum {
    PE_SYNCED = 0x8000, /* S bit of an error estimate: the clock is synchronised to UTC by an external source */
    PE_PTP = 0x4000     /* Z bit: stamps are PTPv2 truncated (RFC 8186 section 2.3); else NTP 64-bit */
};

/* Why an engine refuses a datagram: BatchVerdict of stamp/packet.py, where each is explained. The last three do not
 * refuse the datagram. */
enum pe_reason {
    PE_GOOD,
    PE_SHORT,
    PE_CUT,
    PE_BAD_HMAC,
    PE_UNKNOWN_SESSION,
    PE_WRONG_REFLECTOR,
    PE_UNKNOWN_EXCHANGE,
    PE_LATE,
    PE_ECHO,
    PE_DUPLICATE,
    PE_RATE,
    PE_STRANGER,
    PE_REFLECTOR_PORT,
    PE_ANSWER,
    PE_OWN_ADDRESS,
    PE_NO_HOST,
    PE_SOURCE_RATE,
    PE_STRANGER_RATE,
    PE_TLV_INTEGRITY,
    PE_TLV_MALFORMED,
    PE_LATE_STAMP,
    PE_REASONS
};

/* As counted under `<stage>.refused.`: "short", "oversized", ...; NULL for PE_GOOD and beyond the last. */
const char *pe_reason_name(unsigned reason);

/* Where things lie in the base packets of a mode (RFC 8762 figures 2 to 6; SSID: RFC 8972 section 3), octets. Both
 * directions share `seq` (0), `stamp` (t1 or t3), `error`, `ssid`; only answers have what follows. */
typedef struct pe_layout {
    uint16_t base_octets;
    uint16_t stamp, error, ssid;
    uint16_t t2, sender_seq, sender_t1, sender_error, ttl;
    uint16_t mac; /* 0: no HMAC */
} pe_layout;

/* What all packets of a host have in common. */
typedef struct pe_codec {
    pe_layout layout;
    bool authenticated;
    uint16_t error; /* Error Estimate word of our own packets; its PE_PTP chooses the format of their stamps */
    pe_mac mac;     /* authenticated mode */
} pe_codec;

/* `key` NULL: unauthenticated mode. */
void pe_codec_begin(pe_codec *codec, const uint8_t *key, size_t key_octets, uint16_t error);

/* Unix ns to a stamp in the format that `error` announces, and back; exact there and back for 1968..2104. */
uint64_t pe_stamp_of(int64_t at_ns, uint16_t error);
int64_t pe_ns_of(uint64_t stamp, uint16_t error);

/* What all probes of a path have in common. */
typedef struct pe_probe {
    uint16_t ssid;          /* of the session, 1.. */
    uint16_t length_octets; /* UDP payload, as `pe_probe_octets` allows it */
    uint8_t dscp1;          /* DSCP wanted on the answer: the path's own */
    uint8_t ec1;            /* ECN wanted on the answer: the path's own */
} pe_probe;

/* The UDP payload that `wanted` becomes: at least our TLVs, and never 1..3 octets more (no room for a padding
 * header). */
uint32_t pe_probe_octets(const pe_codec *codec, uint32_t wanted_octets);

/* Write a probe, both HMACs included, into `out` (probe->length_octets of room); returns its length. */
uint32_t pe_build_probe(const pe_codec *codec, const pe_probe *probe, uint32_t seq, uint64_t t1_word, uint8_t *out);

/* What an answer says. */
typedef struct pe_answer {
    /* base packet, by `pe_read_answer` */
    int64_t t2_ns, t3_ns; /* by the reflector's clock */
    uint64_t t1_word;     /* the probe's, repeated */
    uint32_t seq;         /* the answer's own number */
    uint32_t sender_seq;  /* the probe's, repeated */
    uint16_t error;       /* the reflector's error estimate */
    uint16_t ssid;
    uint8_t ttl;          /* with which the probe arrived; 0: not reported */
    /* TLVs, by `pe_read_tlvs` */
    uint8_t t2_kind;      /* of t2, by Timestamp Information; PE_KIND_USER where that is missing */
    bool classed;         /* Class of Service came: dscp_fwd and ecn_fwd are as the probe arrived */
    uint8_t dscp_fwd, ecn_fwd;
    bool follows_up;      /* Follow-Up Telemetry came and is not empty: */
    uint8_t fu_kind;      /* kind of the stamp */
    uint32_t fu_seq;      /* answer number (`seq`) that it is about */
    int64_t fu_at_ns;     /* when that answer truly left, by the reflector's clock */
} pe_answer;

/* Read the base packet. PE_GOOD, PE_SHORT or PE_CUT; `answer` is filled where PE_GOOD, without TLVs. */
enum pe_reason pe_read_answer(const pe_codec *codec, const pe_datagram *datagram, pe_answer *answer);

/* Whether the base packet's HMAC is right (always in unauthenticated mode). The datagram must be PE_GOOD. */
bool pe_proven(const pe_codec *codec, const pe_datagram *datagram);

/* Read the TLVs into `answer`. False: their integrity is in doubt, so none is used. */
bool pe_read_tlvs(const pe_codec *codec, const pe_datagram *datagram, pe_answer *answer);

/* Whether a packet of at least the base packet's length is an answer itself: t2 is there, and zeros are where only an
 * answer has them (RFC 8762 sections 4.2.1 and 4.6). */
bool pe_is_answer(const pe_codec *codec, const uint8_t *data);

/* HMAC of all octets of the base packet before its HMAC field. */
void pe_mac_of_base(const pe_codec *codec, const uint8_t *data, uint8_t made[PE_MAC_OCTETS]);

#endif
