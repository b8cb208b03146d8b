/* The Session-Reflector of one host: answers probes in place, without a socket or a clock (stamp/reflector.py).
 *
 * A shell calls, for what it drained from its sockets (`now_ns`: steady clock; everything in datagrams: system clock):
 *   pe_reflect        turns each probe in its buffer into its answer, all but T3 and HMAC; says which leave, and how
 *   pe_seal           ALWAYS, right before sending an answer: writes T3 and the HMAC
 *   pe_answer_left    the answer's true sending time t3, which goes into a later answer (Follow-Up Telemetry)
 * and now and then pe_reflector_assess. An answer has exactly the octets of its probe and goes to where that came from,
 * by the socket it came in by. All of a host's calls come from one thread. */
#ifndef PE_REFLECTOR_H
#define PE_REFLECTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "datagram.h"
#include "inbound_paths.h"
#include "known_senders.h"
#include "packet.h"
#include "sessions.h"
#include "tlv_answer.h"

#define PE_REFLECT_MOST 1024 /* datagrams a call */

typedef struct pe_reflector pe_reflector;

typedef struct pe_reflector_config {
    pe_reflector_limits limits;
    pe_session_limits sessions;
    pe_answering answering;
    uint32_t most_sockets; /* sockets have numbers below this */
    uint16_t error;        /* Error Estimate word of answers; its Z bit chooses the format of their stamps */
    bool stateful;         /* number the answers of each session and follow them up (RFC 8762 section 4.3) */
    int64_t liveness_ns;
    const uint8_t *key; /* NULL: unauthenticated mode */
    size_t key_octets;
    const uint8_t *own; /* the host's addresses, limits.most_own of them */
} pe_reflector_config;

/* What becomes of a datagram. */
typedef struct pe_reply {
    int64_t token; /* for pe_answer_left; -1: the answer is stateless */
    uint8_t reason; /* pe_reason; PE_GOOD: it is an answer now, to be sealed and sent */
    uint8_t tos;    /* TOS octet that the answer leaves with */
    uint8_t pad[6];
} pe_reply;

typedef struct pe_reflector_counts {
    uint64_t answered;
    uint64_t shed_sessions; /* new sessions that found no row */
    uint64_t refused[PE_REASONS];
} pe_reflector_counts;

/* NULL: no memory. Nothing is allocated after this. */
pe_reflector *pe_reflector_new(const pe_reflector_config *config);
void pe_reflector_free(pe_reflector *reflector);

/* --- changes, between calls of pe_reflect --- */

/* The NIC behind a socket, by the number that Python gave it; PE_NO_NIC: none. False: no such socket. */
bool pe_reflector_socket(pe_reflector *reflector, uint32_t socket, uint32_t nic);
/* These senders and networks, and no others, are known from now on; sessions are watched under their senders' NICs from
 * their next probe. False: too many. */
bool pe_reflector_know(pe_reflector *reflector, const pe_known_sender *senders, uint32_t count,
                       const pe_network *networks, uint32_t network_count);
/* The clock that the host shows; its knots belong to the caller. */
void pe_reflector_clock(pe_reflector *reflector, const pe_clock *clock);
void pe_reflector_usable(pe_reflector *reflector, uint32_t nic, bool usable, int64_t now_ns);

/* --- each turn --- */

/* Answer at most PE_REFLECT_MOST datagrams; `replies` has one for each. Returns how many are answered, which is 0 for
 * more datagrams. */
uint32_t pe_reflect(pe_reflector *reflector, pe_datagram *datagrams, uint32_t count, int64_t now_ns,
                    pe_reply *replies);
void pe_seal(const pe_reflector *reflector, uint8_t *data, int64_t system_ns);
void pe_answer_left(pe_reflector *reflector, int64_t token, int64_t at_ns, uint8_t kind);

/* --- what it knows --- */

/* Assess the inbound paths: those that changed state since the last call, or all (`complete`). Returns how many, and
 * where they are, until the next call. */
uint32_t pe_reflector_assess(pe_reflector *reflector, int64_t now_ns, bool complete,
                             const pe_inbound_change **changes);
/* The shortest interval of the sessions that sent in the last second; 0: some interval is not known; INT64_MAX: there is
 * no session. */
int64_t pe_reflector_shortest_ns(const pe_reflector *reflector, int64_t now_ns);
/* How long true sending times may stay unread so that each is there for its session's next answer; 0: not known. */
int64_t pe_follow_up_due_ns(const pe_reflector *reflector, int64_t now_ns);
/* An inbound path by its number; NULL: there never was one. */
const pe_inbound_path *pe_reflector_path(const pe_reflector *reflector, uint32_t path);
const pe_reflector_counts *pe_reflector_counted(const pe_reflector *reflector);

/* Octets of a structure of the reflector's calls as compiled, by its name; 0: none has it. */
size_t pe_reflector_octets_of(const char *name);

#endif
