/* What a Session-Reflector does to the TLVs of a packet that it sends back (RFC 8972 section 4).
 *
 * Understood TLVs are filled in and lose their U flag, unknown ones keep their octets and get U, malformed ones get M
 * and end the processing, and where the HMAC TLV does not verify every TLV goes back unprocessed with I. */
#ifndef PE_TLV_ANSWER_H
#define PE_TLV_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "packet.h"

/* What is the same in all answers of a host. */
typedef struct pe_answering {
    uint64_t classes; /* bit d: answers may leave in DSCP d; others are refused (RPD) */
    uint8_t sync;     /* what disciplines the clock (IANA "STAMP Synchronization Sources") */
} pe_answering;

/* What the reflector knows about one probe. */
typedef struct pe_probe_facts {
    uint32_t seq;     /* the answer's own number; written here, since the TLVs' HMAC covers it in either direction */
    uint8_t tos;      /* as the probe arrived */
    uint8_t t2_kind;
    bool follows_up;  /* there is the true sending time of an earlier answer: */
    uint8_t fu_kind;
    uint32_t fu_seq;
    uint64_t fu_word; /* in the packet's format */
} pe_probe_facts;

/* Work on the TLVs of a probe of `length` octets in place, and write the answer's number. Returns the TOS octet that
 * the answer leaves with. Adds to `refused` (by pe_reason) what was wrong with the TLVs. */
uint8_t pe_answer_tlvs(const pe_codec *codec, const pe_answering *answering, const pe_probe_facts *facts,
                       uint8_t *data, uint32_t length, uint64_t *refused);

/* The class a probe says it left in (DSCP1 of Class of Service, in our own arrangement), else the one it arrived in. */
uint8_t pe_class_sent(const pe_codec *codec, const uint8_t *data, uint32_t length, uint8_t tos);

#endif
