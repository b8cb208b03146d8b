#include "exchanges.h"

#include <string.h>

#include "engine.h"
#include "octets.h"

#define MAX_TIMEOUT_NS PE_NS_PER_S
#define TIMEOUT_INTERVALS 5
#define LEAST_PAUSE 0.75  /* 1 - jitter */
#define WAIT_INTERVALS 1.5 /* the longest interval that the jitter allows, and a quarter for a round trip that grew */

static int64_t timeout_ns(int64_t interval_ns)
{
    return interval_ns < MAX_TIMEOUT_NS / TIMEOUT_INTERVALS ? TIMEOUT_INTERVALS * interval_ns : MAX_TIMEOUT_NS;
}

static int64_t wait_ns(int64_t interval_ns)
{
    return (int64_t)(WAIT_INTERVALS * (double)interval_ns);
}

static uint8_t depth_log2(int64_t interval_ns)
{
    int64_t shortest = (int64_t)((double)interval_ns * LEAST_PAUSE);
    if (shortest < 1)
        shortest = 1;
    int64_t need = (timeout_ns(interval_ns) + wait_ns(interval_ns) + PE_FLUSH_PAUSE_NS) / shortest + 2;
    uint8_t log2 = 0;
    while ((INT64_C(1) << log2) < need)
        log2++;
    return log2;
}

uint32_t pe_depth(int64_t interval_ns)
{
    if (interval_ns < 1)
        return 0;
    uint8_t log2 = depth_log2(interval_ns);
    return log2 < PE_DEPTHS ? UINT32_C(1) << log2 : 0;
}

void pe_exchanges_carve(pe_exchanges *exchanges, pe_arena *arena, uint32_t most)
{
    exchanges->slots = pe_carve(arena, most, sizeof *exchanges->slots);
    exchanges->most = most;
    exchanges->used = 0;
    for (unsigned i = 0; i < PE_DEPTHS; i++)
        exchanges->free_first[i] = PE_NO_SLOT;
}

/* Where a ring of that depth begins, out of those given back or behind all others. */
static uint32_t find_room(pe_exchanges *exchanges, uint8_t log2)
{
    uint32_t first = exchanges->free_first[log2];
    uint32_t depth = UINT32_C(1) << log2;
    if (first != PE_NO_SLOT) {
        exchanges->free_first[log2] = exchanges->slots[first].carrier;
    } else if (depth <= exchanges->most - exchanges->used) {
        first = exchanges->used;
        exchanges->used += depth;
    }
    return first;
}

bool pe_ring_of_path(pe_exchanges *exchanges, pe_exchange_ring *ring, int64_t interval_ns, bool prompt)
{
    uint8_t log2 = depth_log2(interval_ns);
    if (!ring->present || ring->depth_log2 != log2) {
        uint32_t first = log2 < PE_DEPTHS ? find_room(exchanges, log2) : PE_NO_SLOT;
        if (first == PE_NO_SLOT)
            return false;
        if (ring->present) {
            pe_forget_exchanges(exchanges, ring);
            exchanges->slots[ring->first].carrier = exchanges->free_first[ring->depth_log2];
            exchanges->free_first[ring->depth_log2] = ring->first;
        }
        ring->first = first;
        ring->mask = (UINT32_C(1) << log2) - 1;
        ring->depth_log2 = log2;
        ring->present = true;
        ring->open_seq = ring->next_seq;
        pe_forget_exchanges(exchanges, ring);
    }
    ring->timeout_ns = timeout_ns(interval_ns);
    ring->wait_ns = prompt ? 0 : wait_ns(interval_ns);
    return true;
}

void pe_forget_exchanges(pe_exchanges *exchanges, const pe_exchange_ring *ring)
{
    if (ring->present)
        memset(&exchanges->slots[ring->first], 0, ((size_t)ring->mask + 1) * sizeof *exchanges->slots);
}

bool pe_exchange_open(pe_exchange *slot, uint32_t seq, int64_t now_ns, int64_t t1_user_ns, uint64_t t1_word)
{
    bool shed = slot->state == PE_SENT || slot->state == PE_ANSWERED;
    slot->state = PE_SENT;
    slot->seq = seq;
    slot->sent_at_ns = now_ns;
    slot->t1_word = t1_word;
    slot->t1_user_ns = t1_user_ns;
    slot->t1_at_ns = PE_ABSENT_NS;
    slot->t1_kind = PE_KIND_NONE;
    return shed;
}

void pe_exchange_stamp(pe_exchange *slot, int64_t at_ns, uint8_t kind)
{
    if (slot->t1_kind == PE_KIND_NONE || slot->t1_kind < kind) {
        slot->t1_at_ns = at_ns;
        slot->t1_kind = kind;
    }
}

/* Whether an answer came too late, by its own stamps: a stalled process may read an answer long after it came. The
 * steady clock must agree, since the system clock may have been stepped in between. The time that the probe lay at a
 * stalled reflector, t3 - t2, is no transit time either. */
static bool overdue(const pe_exchange *slot, int64_t limit_ns, const pe_answer *answer, const pe_datagram *datagram,
                    int64_t now_ns)
{
    if (now_ns - slot->sent_at_ns < limit_ns)
        return false;
    int64_t arrived_ns = datagram->kind == PE_KIND_KERNEL ? datagram->at_ns : datagram->user_at_ns;
    int64_t stay_ns = answer->t3_ns - answer->t2_ns;
    return pe_sub_wrap(pe_sub_wrap(arrived_ns, slot->t1_user_ns), stay_ns > 0 ? stay_ns : 0) >= limit_ns;
}

enum pe_reason pe_exchange_match(const pe_exchange *slot, int64_t timeout, const pe_answer *answer,
                                 const pe_datagram *datagram, int64_t now_ns)
{
    if (slot->seq != answer->sender_seq || slot->state == PE_FREE)
        return PE_UNKNOWN_EXCHANGE;
    if (slot->t1_word != answer->t1_word)
        return PE_ECHO;
    if (slot->state == PE_ANSWERED || slot->state == PE_DONE)
        return PE_DUPLICATE;
    if (slot->state == PE_LOST || overdue(slot, timeout, answer, datagram, now_ns))
        return PE_LATE;
    return PE_GOOD;
}

static void store_arrival(pe_exchange *slot, const pe_datagram *datagram, int64_t due_at_ns)
{
    bool absent = datagram->at_ns == PE_ABSENT_NS || datagram->kind == PE_KIND_NONE;
    int64_t waited_ns = datagram->kind == PE_KIND_KERNEL ? pe_sub_wrap(due_at_ns, datagram->at_ns) : 0;
    slot->t4_user_ns = pe_sub_wrap(datagram->user_at_ns, waited_ns > 0 ? waited_ns : 0);
    slot->t4_at_ns = absent ? datagram->user_at_ns : datagram->at_ns;
    slot->t4_kind = absent ? PE_KIND_USER : datagram->kind;
    slot->tos_rev = datagram->tos;
    slot->ttl_rev = datagram->ttl;
}

void pe_exchange_answer(pe_exchanges *exchanges, const pe_exchange_ring *ring, uint32_t at, const pe_answer *answer,
                        const pe_datagram *datagram, int64_t now_ns, int64_t due_at_ns)
{
    pe_exchange *slot = &exchanges->slots[at];
    slot->state = PE_ANSWERED;
    slot->answered_at_ns = now_ns;
    slot->answer_seq = answer->seq;
    slot->t2_ns = answer->t2_ns;
    slot->t3_ns = answer->t3_ns;
    slot->t2_kind = answer->t2_kind;
    slot->ttl_fwd = answer->ttl;
    slot->classed = answer->classed;
    slot->tos_fwd = (uint8_t)(answer->dscp_fwd << 2 | answer->ecn_fwd);
    slot->follows_up = answer->follows_up;
    slot->fu_seq = answer->fu_seq;
    slot->fu_at_ns = answer->fu_at_ns;
    slot->fu_kind = answer->fu_kind;
    store_arrival(slot, datagram, due_at_ns);
    if (answer->follows_up)
        exchanges->slots[pe_slot_of(ring, answer->fu_seq)].carrier = at - ring->first;
}

const pe_exchange *pe_exchange_carrier(const pe_exchanges *exchanges, const pe_exchange_ring *ring,
                                       const pe_exchange *slot)
{
    uint32_t carrier = exchanges->slots[pe_slot_of(ring, slot->answer_seq)].carrier & ring->mask;
    const pe_exchange *found = &exchanges->slots[ring->first + carrier];
    return found->follows_up && found->fu_seq == slot->answer_seq ? found : NULL;
}
