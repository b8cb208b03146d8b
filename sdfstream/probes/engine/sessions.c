#include "sessions.h"

#include <string.h>

#include "inbound_paths.h"
#include "known_senders.h"

#define IDLE_NS (10 * PE_NS_PER_S) /* a session without a probe for this long gives way when a row is wanted */

enum { CONFIRMED = 3 /* probes: a session that sent as many is not one made-up packet */ };

void pe_sessions_carve(pe_sessions *sessions, pe_arena *arena, const pe_session_limits *limits)
{
    uint32_t heads = 1;
    while (heads < limits->capacity)
        heads *= 2;
    sessions->limits = *limits;
    sessions->mask = heads - 1;
    sessions->rows = pe_carve(arena, limits->capacity, sizeof sessions->rows[0]);
    sessions->heads = pe_carve(arena, heads, sizeof sessions->heads[0]);
    sessions->owners = pe_carve(arena, limits->capacity, sizeof sessions->owners[0]);
    sessions->owner_heads = pe_carve(arena, heads, sizeof sessions->owner_heads[0]);
    sessions->candidates = pe_carve(arena, limits->new_per_call, sizeof sessions->candidates[0]);
}

void pe_sessions_clear(pe_sessions *sessions, uint64_t salt)
{
    sessions->used = sessions->strangers = sessions->call = sessions->owners_used = 0;
    sessions->free_owner = PE_NO_SESSION;
    sessions->salt = salt;
    for (uint32_t i = 0; i <= sessions->mask; i++)
        sessions->heads[i] = sessions->owner_heads[i] = PE_NO_SESSION;
}

/* Whoever makes addresses up cannot choose heads: salted. */
static uint32_t *head_of(const pe_sessions *sessions, const pe_session_key *key)
{
    uint64_t rest = (uint64_t)key->socket << 32 | (uint64_t)key->port << 16 | key->ssid;
    return &sessions->heads[(uint32_t)pe_address_key(key->address, rest ^ sessions->salt) & sessions->mask];
}

static bool is_key(const pe_session_key *a, const pe_session_key *b)
{
    return a->socket == b->socket && a->port == b->port && a->ssid == b->ssid &&
           memcmp(a->address, b->address, PE_ADDRESS_OCTETS) == 0;
}

uint32_t pe_session_find(const pe_sessions *sessions, const pe_session_key *key)
{
    uint32_t row = *head_of(sessions, key);
    while (row != PE_NO_SESSION && !is_key(&sessions->rows[row].key, key))
        row = sessions->rows[row].next;
    return row;
}

/* The link that names an address's owner, or that of a new one would. */
static uint32_t *owner_link(pe_sessions *sessions, const uint8_t *address)
{
    uint64_t key = pe_address_key(address, sessions->salt);
    uint32_t *link = &sessions->owner_heads[(uint32_t)key & sessions->mask];
    while (*link != PE_NO_SESSION && memcmp(sessions->owners[*link].address, address, PE_ADDRESS_OCTETS) != 0)
        link = &sessions->owners[*link].next;
    return link;
}

static uint32_t own(pe_sessions *sessions, const uint8_t *address)
{
    uint32_t *link = owner_link(sessions, address);
    uint32_t number = *link;
    if (number == PE_NO_SESSION) { /* there is one: no more owners than rows */
        bool again = sessions->free_owner != PE_NO_SESSION;
        number = again ? sessions->free_owner : sessions->owners_used++;
        pe_owner *owner = &sessions->owners[number];
        if (again)
            sessions->free_owner = owner->next;
        *owner = (pe_owner){.next = PE_NO_SESSION};
        memcpy(owner->address, address, PE_ADDRESS_OCTETS);
        *link = number;
    }
    sessions->owners[number].rows++;
    return number;
}

static void disown(pe_sessions *sessions, uint32_t number)
{
    pe_owner *owner = &sessions->owners[number];
    if (--owner->rows > 0)
        return;
    *owner_link(sessions, owner->address) = owner->next;
    owner->next = sessions->free_owner;
    sessions->free_owner = number;
}

void pe_sessions_call(pe_sessions *sessions)
{
    sessions->call++;
    sessions->chosen = false;
    sessions->idle_stranger = 0;
}

static bool may_give_way(const pe_sessions *sessions, const pe_session *session, int64_t now_ns)
{
    return session->begun != sessions->call &&
           (session->stranger || session->probes < CONFIRMED || now_ns - session->last_received_ns > IDLE_NS);
}

/* Whether row a is given away before row b: strangers' first, of each kind the longest silent first. */
static bool goes_before(const pe_sessions *sessions, uint32_t a, uint32_t b)
{
    const pe_session *x = &sessions->rows[a], *y = &sessions->rows[b];
    if (x->stranger != y->stranger)
        return x->stranger;
    if (x->last_received_ns != y->last_received_ns)
        return x->last_received_ns < y->last_received_ns;
    return a < b;
}

/* Restore the heap of candidates, the one that goes last on top, below `at`. */
static void sink(pe_sessions *sessions, uint32_t at, uint32_t count)
{
    uint32_t *heap = sessions->candidates;
    for (;;) {
        uint32_t last = at;
        for (uint32_t below = 2 * at + 1; below <= 2 * at + 2 && below < count; below++)
            if (goes_before(sessions, heap[last], heap[below]))
                last = below;
        if (last == at)
            return;
        uint32_t moved = heap[at];
        heap[at] = heap[last];
        heap[last] = moved;
        at = last;
    }
}

/* The first `wanted` rows that may be given away, sorted; one walk over the table however many are wanted. */
static void choose_candidates(pe_sessions *sessions, uint32_t wanted, int64_t now_ns)
{
    uint32_t *heap = sessions->candidates;
    uint32_t count = 0;
    for (uint32_t row = 0; row < sessions->used; row++) {
        if (!may_give_way(sessions, &sessions->rows[row], now_ns))
            continue;
        if (count < wanted) {
            heap[count++] = row;
            if (count == wanted)
                for (uint32_t at = count; at-- > 0;)
                    sink(sessions, at, count);
        } else if (goes_before(sessions, row, heap[0])) {
            heap[0] = row;
            sink(sessions, 0, count);
        }
    }
    if (count < wanted)
        for (uint32_t at = count; at-- > 0;)
            sink(sessions, at, count);
    for (uint32_t left = count; left > 1; left--) { /* heap sort */
        uint32_t last = heap[0];
        heap[0] = heap[left - 1];
        heap[left - 1] = last;
        sink(sessions, 0, left - 1);
    }
    sessions->candidate = 0;
    sessions->candidate_count = count;
    sessions->chosen = true;
}

static uint32_t next_candidate(pe_sessions *sessions, uint32_t more, int64_t now_ns)
{
    if (!sessions->chosen)
        choose_candidates(sessions, more, now_ns);
    while (sessions->candidate < sessions->candidate_count) {
        uint32_t row = sessions->candidates[sessions->candidate++];
        if (sessions->rows[row].begun != sessions->call)
            return row;
    }
    return PE_NO_SESSION;
}

/* The first row to give way among those of one address. */
static uint32_t row_of_address(const pe_sessions *sessions, const uint8_t *address, int64_t now_ns)
{
    uint32_t found = PE_NO_SESSION;
    for (uint32_t row = 0; row < sessions->used; row++) {
        const pe_session *session = &sessions->rows[row];
        if (memcmp(session->key.address, address, PE_ADDRESS_OCTETS) == 0 &&
            may_give_way(sessions, session, now_ns) &&
            (found == PE_NO_SESSION || goes_before(sessions, row, found)))
            found = row;
    }
    return found;
}

uint32_t pe_session_room(pe_sessions *sessions, const uint8_t address[PE_ADDRESS_OCTETS], uint32_t more,
                         int64_t now_ns)
{
    uint32_t owner = *owner_link(sessions, address);
    if (owner != PE_NO_SESSION && sessions->owners[owner].rows >= sessions->limits.source_rows)
        return row_of_address(sessions, address, now_ns);
    if (sessions->used < sessions->limits.capacity)
        return sessions->used++;
    return next_candidate(sessions, more, now_ns);
}

uint32_t pe_session_room_stranger(pe_sessions *sessions, int64_t now_ns)
{
    if (sessions->strangers < sessions->limits.stranger_rows && sessions->used < sessions->limits.capacity)
        return sessions->used++;
    while (sessions->idle_stranger < sessions->used) {
        uint32_t row = sessions->idle_stranger++;
        const pe_session *session = &sessions->rows[row];
        if (session->stranger && session->begun != sessions->call && now_ns - session->last_received_ns > IDLE_NS)
            return row;
    }
    return PE_NO_SESSION;
}

static void end(pe_sessions *sessions, uint32_t row)
{
    pe_session *session = &sessions->rows[row];
    uint32_t *link = head_of(sessions, &session->key);
    while (*link != row)
        link = &sessions->rows[*link].next;
    *link = session->next;
    if (session->stranger)
        sessions->strangers--;
    else
        disown(sessions, session->owner);
    session->present = false;
}

void pe_session_begin(pe_sessions *sessions, uint32_t row, const pe_session_key *key, bool stranger, int64_t now_ns)
{
    pe_session *session = &sessions->rows[row];
    if (session->present)
        end(sessions, row);
    uint32_t *head = head_of(sessions, key);
    *session = (pe_session){
        .key = *key,
        .next = *head,
        .owner = stranger ? PE_NO_SESSION : own(sessions, key->address),
        .bucket = PE_UNADMITTED,
        .path = PE_NO_PATH,
        .begun = sessions->call,
        .seq = session->seq,
        .generation = (session->generation + 1) & 0x7FFF,
        .dscp = PE_NO_DSCP,
        .stranger = stranger,
        .present = true,
        .last_received_ns = now_ns,
    };
    *head = row;
    sessions->strangers += stranger;
}

void pe_session_store(pe_session *session, uint32_t seq, int64_t shown_ns, uint8_t kind)
{
    pe_follow_up *stored = &session->follow_ups[session->stored++ % PE_FOLLOW_UPS];
    *stored = (pe_follow_up){.shown_ns = shown_ns, .seq = seq, .kind = kind};
}

const pe_follow_up *pe_session_follow_up(pe_session *session)
{
    if (session->stored == 0)
        return NULL;
    uint64_t oldest = session->stored > PE_FOLLOW_UPS ? session->stored - PE_FOLLOW_UPS : 0;
    uint64_t next = session->sent > oldest ? session->sent : oldest;
    if (next < session->stored)
        next++;
    session->sent = next;
    return &session->follow_ups[(next - 1) % PE_FOLLOW_UPS];
}
