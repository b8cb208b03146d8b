/* Finished exchanges to rows (probes/stamp/rows.py).
 *
 * An answered exchange is finished with its true t3 and t1, else 1.5 intervals after the answer, on a prompt path at
 * once; an unanswered one after its time-out. One clock made both t1 and t4: where only one of them is the NIC's, its stamp is replaced by the
 * user-space reading. */
#include "core.h"
#include "octets.h"

#define FOLLOW_UP_LIMIT_NS (10 * PE_NS_PER_S) /* the time between t2 and a follow-up that is believable */

/* t1 and t4, by one clock, and the delays inside this host. */
static void write_near(pe_row *row, const pe_exchange *slot, bool answered)
{
    bool t1_hard = slot->t1_kind == PE_KIND_HARDWARE;
    bool t4_hard = answered && slot->t4_kind == PE_KIND_HARDWARE;
    bool hardware = t1_hard && (t4_hard || !answered);
    bool t1_user = slot->t1_kind == PE_KIND_NONE || (t1_hard && !hardware);
    bool t4_user = t4_hard && !hardware;
    row->t1_ns = t1_user ? slot->t1_user_ns : slot->t1_at_ns;
    row->t1_kind = t1_user ? PE_KIND_USER : slot->t1_kind;
    row->tx_host_ns = pe_clipped(pe_sub_wrap(row->t1_ns, slot->t1_user_ns));
    row->t4_ns = !answered ? PE_ABSENT_NS : t4_user ? slot->t4_user_ns : slot->t4_at_ns;
    row->t4_kind = !answered ? PE_KIND_NONE : t4_user ? PE_KIND_USER : slot->t4_kind;
    row->rx_host_ns = answered ? pe_clipped(pe_sub_wrap(slot->t4_user_ns, row->t4_ns)) : 0;
}

/* Whether a follow-up may be this answer's: made by the clock that made t2, and not long after it. */
static bool plausible(const pe_exchange *slot, const pe_exchange *carrier)
{
    bool same_clock = (slot->t2_kind == PE_KIND_HARDWARE) == (carrier->fu_kind == PE_KIND_HARDWARE);
    int64_t stay_ns = carrier->fu_at_ns - slot->t2_ns;
    return same_clock && stay_ns >= 0 && stay_ns <= FOLLOW_UP_LIMIT_NS;
}

/* t2 and t3, by the reflector's clock. */
static void write_far(pe_t *pe, pe_row *row, const pe_exchange *slot, const pe_exchange *carrier)
{
    if (carrier && !plausible(slot, carrier)) {
        pe_count(&pe->counters[PE_N_FOLLOW_UP], 1);
        carrier = NULL;
    }
    row->t2_ns = slot->t2_ns;
    row->t2_kind = slot->t2_kind;
    row->t3_ns = carrier ? carrier->fu_at_ns : slot->t3_ns;
    row->t3_kind = carrier ? carrier->fu_kind : PE_KIND_USER;
    row->ttl_fwd = slot->ttl_fwd;
    row->ttl_rev = slot->ttl_rev;
    row->tos_fwd = slot->classed ? slot->tos_fwd : 0;
    row->tos_rev = slot->tos_rev;
    row->seq_rev = slot->answer_seq;
    row->flags = (uint16_t)(PE_ROW_ANSWERED | (slot->classed ? PE_ROW_CLASSED : 0));
}

static void write_row(pe_t *pe, uint32_t at, bool answered)
{
    const pe_exchange *slot = &pe->exchanges.slots[at];
    const pe_path_entry *entry = &pe->paths.entry[slot->path];
    pe_row *row = pe_ring_room(&pe->rows);
    pe_row unread;
    if (!row) {
        pe_count(&pe->counters[PE_N_ROWS_DROPPED], 1);
        row = &unread; /* what is counted on the row's account is counted all the same */
    }
    *row = (pe_row){.path = slot->path, .seq = slot->seq, .t2_ns = PE_ABSENT_NS, .t3_ns = PE_ABSENT_NS,
                    .t2_kind = PE_KIND_NONE, .t3_kind = PE_KIND_NONE, .generation = entry->is.generation};
    write_near(row, slot, answered);
    if (answered)
        write_far(pe, row, slot, pe_exchange_carrier(&pe->exchanges, &entry->ring, slot));
    if (row != &unread) {
        pe_ring_written(&pe->rows);
        pe_count(&pe->counters[PE_N_ROWS], 1);
    }
}

/* Whether an answered exchange has all its stamps, or they are not waited for any more. */
static bool settled(const pe_t *pe, const pe_exchange_ring *ring, const pe_exchange *slot, int64_t passed_ns)
{
    if (passed_ns - slot->answered_at_ns >= ring->wait_ns)
        return true;
    return slot->t1_kind != PE_KIND_NONE && pe_exchange_carrier(&pe->exchanges, ring, slot);
}

/* Finish what is over in one path's ring; returns how many keys there are then. */
static uint32_t finish_path(pe_t *pe, uint32_t path, int64_t passed_ns, uint32_t n)
{
    pe_exchange_ring *ring = &pe->paths.entry[path].ring;
    bool open = false;
    if (ring->next_seq - ring->open_seq > ring->mask + 1)
        ring->open_seq = ring->next_seq - ring->mask - 1;
    for (uint32_t seq = ring->open_seq; seq != ring->next_seq; seq++) {
        uint32_t at = pe_slot_of(ring, seq);
        pe_exchange *slot = &pe->exchanges.slots[at];
        bool answered = slot->state == PE_ANSWERED;
        if (slot->state == PE_SENT || answered) {
            if (answered ? settled(pe, ring, slot, passed_ns) : passed_ns - slot->sent_at_ns >= ring->timeout_ns) {
                slot->state = answered ? PE_DONE : PE_LOST;
                pe->keys[n++] = (pe_key){.major = (uint64_t)slot->sent_at_ns, .minor = (uint64_t)path << 32 | slot->seq,
                                         .value = at, .more = answered};
            } else {
                open = true;
            }
        }
        if (!open)
            ring->open_seq = seq + 1;
    }
    return n;
}

uint32_t pe_finish(pe_t *pe, int64_t now_ns)
{
    /* a limit counts once it had passed at the call before: after a stall what lies in the sockets is read first */
    int64_t passed_ns = pe->finished ? pe->finished_at_ns : now_ns;
    uint32_t n = 0;
    pe->finished = true;
    pe->finished_at_ns = now_ns;
    for (uint32_t path = 0; path < pe->paths.used; path++)
        if (pe->paths.entry[path].ring.open_seq != pe->paths.entry[path].ring.next_seq)
            n = finish_path(pe, path, passed_ns, n);
    pe_order(pe->keys, n);
    for (uint32_t i = 0; i < n; i++)
        write_row(pe, pe->keys[i].value, pe->keys[i].more);
    return n;
}
