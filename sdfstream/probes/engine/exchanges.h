/* Exchanges in transit: a ring of slots per path, all out of one preallocated block (probes/stamp/exchanges.py).
 *
 * The slot of an exchange is first + (seq & mask). A ring is as deep as the time-out, the wait for the follow-up and the
 * longest expected pause between two calls of pe_finish need; a probe that finds its slot in use pushes the old exchange
 * out. A follow-up is stored as the slot of the answer that carried it, under the *reflector's* sequence number: it may
 * come before the answer it belongs to, and a stateful reflector numbers answers by itself. */
#ifndef PE_EXCHANGES_H
#define PE_EXCHANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "packet.h"

#define PE_FLUSH_PAUSE_NS PE_NS_PER_S /* the longest pause between two calls of pe_finish that loses nothing */
#define PE_DEPTHS 24                  /* powers of two that a depth may be */

enum { PE_FREE, PE_SENT, PE_ANSWERED, PE_DONE, PE_LOST };

typedef struct pe_exchange {
    uint32_t path;
    uint32_t seq;
    uint32_t answer_seq; /* the reflector's number */
    uint32_t carrier;    /* in this ring: the answer whose follow-up is about the number that has this slot */
    uint8_t state;
    uint8_t t1_kind; /* PE_KIND_NONE until a stamp comes */
    uint8_t t4_kind;
    uint8_t t2_kind;
    uint64_t t1_word; /* T1 as in the packet */
    int64_t sent_at_ns; /* steady clock */
    int64_t t1_user_ns; /* system clock: when the packet was built, or handed to the kernel where that is known */
    int64_t t1_at_ns;   /* the stamp */
    int64_t answered_at_ns; /* steady clock */
    int64_t t4_user_ns;
    int64_t t4_at_ns;
    int64_t t2_ns, t3_ns;
    int64_t fu_at_ns; /* the follow-up that this answer carried */
    uint32_t fu_seq;
    uint8_t fu_kind;
    bool follows_up;
    bool classed;
    uint8_t tos_fwd, tos_rev;
    uint8_t ttl_fwd, ttl_rev;
} pe_exchange;

/* The ring of one path. */
typedef struct pe_exchange_ring {
    uint32_t first, mask;
    uint32_t next_seq;
    uint32_t open_seq; /* all before it are finished */
    int64_t timeout_ns, wait_ns;
    uint8_t depth_log2;
    bool present;
} pe_exchange_ring;

typedef struct pe_exchanges {
    pe_exchange *slots;
    uint32_t most, used;
    uint32_t free_first[PE_DEPTHS]; /* rings given back, by depth: a list through `carrier`; PE_NO_SLOT: none */
} pe_exchanges;

#define PE_NO_SLOT UINT32_MAX

void pe_exchanges_carve(pe_exchanges *exchanges, pe_arena *arena, uint32_t most);

/* A ring as deep as the interval needs, in place of the one there, if that has another depth; answered exchanges of a
 * `prompt` path wait for no follow-up. False: no room. */
bool pe_ring_of_path(pe_exchanges *exchanges, pe_exchange_ring *ring, int64_t interval_ns, bool prompt);

/* Forget the exchanges in a ring, and what answers said in it. */
void pe_forget_exchanges(pe_exchanges *exchanges, const pe_exchange_ring *ring);

static inline uint32_t pe_slot_of(const pe_exchange_ring *ring, uint32_t seq)
{
    return ring->first + (seq & ring->mask);
}

/* Start the exchange of the next sequence number in `slot`; whether an old one was pushed out. */
bool pe_exchange_open(pe_exchange *slot, uint32_t seq, int64_t now_ns, int64_t t1_user_ns, uint64_t t1_word);

/* Take a sending time; a better kind that is there already stays. */
void pe_exchange_stamp(pe_exchange *slot, int64_t at_ns, uint8_t kind);

/* Whether an answer to the exchange in `slot` is acceptable: PE_GOOD, PE_UNKNOWN_EXCHANGE, PE_ECHO, PE_DUPLICATE or
 * PE_LATE. */
enum pe_reason pe_exchange_match(const pe_exchange *slot, int64_t timeout_ns, const pe_answer *answer,
                                 const pe_datagram *datagram, int64_t now_ns);

/* Store an answer in its slot, and where its follow-up is found. */
void pe_exchange_answer(pe_exchanges *exchanges, const pe_exchange_ring *ring, uint32_t slot, const pe_answer *answer,
                        const pe_datagram *datagram, int64_t now_ns, int64_t due_at_ns);

/* The answer whose follow-up is about the answer in `slot`; NULL: it has not come. */
const pe_exchange *pe_exchange_carrier(const pe_exchanges *exchanges, const pe_exchange_ring *ring,
                                       const pe_exchange *slot);

#endif
