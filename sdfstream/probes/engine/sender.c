/* The Session-Sender of RFC 8762: due probes out, stamps and answers in (probes/stamp/sender.py). */
#include <string.h>

#include "core.h"

#define LEAST_PAUSE 0.75 /* 1 - jitter */
#define PAUSE_RANGE 0.5
#define SLOT_BITS 31
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)

int64_t pe_next_due_ns(const pe_t *pe)
{
    return pe_heap_next_ns(&pe->paths.due);
}

int64_t pe_shortest_interval_ns(pe_t *pe)
{
    return pe_paths_shortest_ns(&pe->paths);
}

/* Take the paths due until then out of the heap's reach: at most `n`, as keys in the order of their numbers. */
static uint32_t pick(pe_t *pe, int64_t until_ns, uint32_t n)
{
    pe_heap *due = &pe->paths.due;
    uint32_t picked = 0;
    while (picked < n && picked < pe->config.most_paths && pe_heap_next_ns(due) <= until_ns) {
        uint32_t path = due->path[0];
        pe->keys[picked++] = (pe_key){.major = path, .minor = (uint64_t)due->due_ns[path], .value = path};
        pe_heap_remove(due, path);
    }
    pe_order(pe->keys, picked);
    return picked;
}

/* Until the path's next probe: its interval, jittered so that nothing falls in step with it. Paths in one step share a
 * jitter: their packets leave, are answered and are read in one go. */
static int64_t pause_ns(pe_t *pe, const pe_path *is)
{
    double jitter = LEAST_PAUSE + PAUSE_RANGE * pe_jitter_unit(&pe->jitter);
    int64_t own_ns = (int64_t)((double)is->interval_ns * jitter);
    if (is->step == 0)
        return own_ns;
    pe_step *step = &pe->steps[is->step];
    if (step->call != pe->calls)
        *step = (pe_step){.pause_ns = own_ns, .call = pe->calls};
    return step->pause_ns;
}

/* Set the next instants of the picked paths; keep those that can send, by socket. Returns how many. */
static uint32_t reschedule(pe_t *pe, int64_t now_ns, uint32_t picked)
{
    uint32_t kept = 0;
    pe->calls++;
    for (uint32_t i = 0; i < picked; i++) {
        pe_key key = pe->keys[i];
        const pe_path_entry *entry = &pe->paths.entry[key.value];
        int64_t next_ns = (int64_t)key.minor + pause_ns(pe, &entry->is);
        int64_t least_ns = now_ns + (entry->is.interval_ns >> 1); /* late: one probe, never a burst to catch up */
        pe_heap_put(&pe->paths.due, key.value, next_ns > least_ns ? next_ns : least_ns);
        key.major = entry->is.socket;
        key.minor = key.value;
        if (entry->usable)
            pe->keys[kept++] = key;
    }
    pe_order(pe->keys, kept);
    return kept;
}

static void build(pe_t *pe, uint32_t path, int64_t now_ns, int64_t system_ns, pe_out *out)
{
    pe_path_entry *entry = &pe->paths.entry[path];
    uint32_t seq = entry->ring.next_seq++;
    uint32_t at = pe_slot_of(&entry->ring, seq);
    pe_exchange *slot = &pe->exchanges.slots[at];
    uint64_t t1_word = pe_stamp_of(pe_clock_reading(&pe->hosts[entry->is.host].clock, system_ns), pe->codec.error);
    pe_count(&pe->counters[PE_N_SHED_RING], pe_exchange_open(slot, seq, now_ns, system_ns, t1_word));
    slot->path = path;
    pe_count(&pe->counters[PE_N_SENT], 1);
    pe_liveness_sent(&pe->liveness, path, now_ns);
    out->length_octets = pe_build_probe(&pe->codec, &entry->probe, seq, t1_word, out->data);
    out->token = (uint64_t)seq << SLOT_BITS | at;
    out->socket = entry->is.socket;
    out->path = path;
    out->port = entry->is.port;
    out->tos = entry->is.tos;
    memcpy(out->address, entry->is.address, sizeof out->address);
}

uint32_t pe_due(pe_t *pe, int64_t now_ns, int64_t until_ns, int64_t system_ns, pe_out *out, uint32_t n)
{
    uint32_t sent = reschedule(pe, now_ns, pick(pe, until_ns, n));
    for (uint32_t i = 0; i < sent; i++)
        build(pe, pe->keys[i].value, now_ns, system_ns, &out[i]);
    return sent;
}

/* The exchange that a token names, as long as it is in transit; NULL: another one has its slot, or none. */
static pe_exchange *sent_slot(pe_t *pe, uint64_t token)
{
    uint64_t at = token & SLOT_MASK;
    if (at >= pe->exchanges.used || token >> (SLOT_BITS + 32))
        return NULL;
    pe_exchange *slot = &pe->exchanges.slots[at];
    bool open = slot->state == PE_SENT || slot->state == PE_ANSWERED;
    return open && slot->seq == token >> SLOT_BITS ? slot : NULL;
}

void pe_take_stamp(pe_t *pe, uint64_t token, int64_t at_ns, uint8_t kind, int64_t user_at_ns)
{
    pe_exchange *slot = sent_slot(pe, token);
    if (!slot) {
        pe_count(&pe->counters[PE_N_REFUSED + PE_LATE_STAMP], 1);
        return;
    }
    if (user_at_ns != PE_ABSENT_NS)
        slot->t1_user_ns = user_at_ns;
    if (at_ns != PE_ABSENT_NS && (kind == PE_KIND_KERNEL || kind == PE_KIND_HARDWARE))
        pe_exchange_stamp(slot, at_ns, kind);
}

void pe_unsent(pe_t *pe, uint64_t token)
{
    pe_exchange *slot = sent_slot(pe, token);
    if (!slot)
        return;
    slot->state = PE_FREE;
    pe_liveness_unsent(&pe->liveness, slot->path);
    pe_count(&pe->counters[PE_N_UNSENT], 1);
}

/* The path of an answer and the slot of its exchange, or why it is refused. */
static enum pe_reason match(pe_t *pe, const pe_datagram *datagram, pe_answer *answer, int64_t now_ns, uint32_t *path,
                            uint32_t *slot)
{
    enum pe_reason reason = pe_read_answer(&pe->codec, datagram, answer);
    if (reason != PE_GOOD)
        return reason;
    *path = pe_paths_find(&pe->paths, datagram, answer->ssid);
    if (*path == PE_NONE)
        return PE_UNKNOWN_SESSION;
    if (!pe_paths_from(&pe->paths, *path, datagram))
        return PE_WRONG_REFLECTOR;
    if (!pe_proven(&pe->codec, datagram))
        return PE_BAD_HMAC;
    const pe_exchange_ring *ring = &pe->paths.entry[*path].ring;
    *slot = pe_slot_of(ring, answer->sender_seq);
    return pe_exchange_match(&pe->exchanges.slots[*slot], ring->timeout_ns, answer, datagram, now_ns);
}

int pe_take_answer(pe_t *pe, const pe_datagram *datagram, int64_t now_ns, int64_t due_at_ns)
{
    pe_answer answer = {0};
    uint32_t path = PE_NONE, slot = 0;
    enum pe_reason reason = match(pe, datagram, &answer, now_ns, &path, &slot);
    if (reason != PE_GOOD) {
        pe_count(&pe->counters[PE_N_REFUSED + reason], 1);
        if (reason == PE_LATE)
            pe_liveness_received(&pe->liveness, path, now_ns); /* too late for a row, but the path lives */
        return (int)reason;
    }
    if (!pe_read_tlvs(&pe->codec, datagram, &answer))
        pe_count(&pe->counters[PE_N_REFUSED + PE_TLV_INTEGRITY], 1);
    pe_exchange_answer(&pe->exchanges, &pe->paths.entry[path].ring, slot, &answer, datagram, now_ns, due_at_ns);
    pe_liveness_received(&pe->liveness, path, now_ns);
    pe->liveness.report[path].last_received_ns = now_ns;
    pe->liveness.report[path].ttl_fwd = answer.ttl;
    pe_count(&pe->counters[PE_N_ANSWERED], 1);
    return PE_GOOD;
}
