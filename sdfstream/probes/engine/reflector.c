#include "reflector.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "reflector_state.h"

enum { ROW_BITS = 16 };

static void carve(pe_reflector *reflector, pe_arena *arena, const pe_reflector_config *config)
{
    uint32_t capacity = config->sessions.capacity;
    pe_known_senders_carve(&reflector->known, arena, &config->limits);
    pe_sessions_carve(&reflector->sessions, arena, &config->sessions);
    pe_inbound_carve(&reflector->inbound, arena, capacity);
    reflector->nics = pe_carve(arena, config->most_sockets, sizeof reflector->nics[0]);
    reflector->arrivals = pe_carve(arena, PE_REFLECT_MOST, sizeof reflector->arrivals[0]);
    reflector->lost = pe_carve(arena, PE_REFLECT_MOST, sizeof reflector->lost[0]);
    reflector->row_marks = pe_carve(arena, capacity, sizeof reflector->row_marks[0]);
    reflector->path_marks = pe_carve(arena, capacity, sizeof reflector->path_marks[0]);
    reflector->changes = pe_carve(arena, capacity, sizeof reflector->changes[0]);
}

static void begin(pe_reflector *reflector, const pe_reflector_config *config)
{
    pe_codec_begin(&reflector->codec, config->key, config->key_octets, config->error);
    reflector->answering = config->answering;
    reflector->stateful = config->stateful;
    reflector->most_sockets = config->most_sockets;
    for (uint32_t i = 0; i < config->most_sockets; i++)
        reflector->nics[i] = PE_NO_NIC;
    pe_known_senders_clear(&reflector->known, config->own);
    pe_sessions_clear(&reflector->sessions, config->limits.salt);
    pe_inbound_clear(&reflector->inbound, config->liveness_ns, config->limits.salt);
    pe_bucket_begin(&reflector->all, config->limits.max_pps);
}

pe_reflector *pe_reflector_new(const pe_reflector_config *config)
{
    pe_arena arena = {0};
    /* rows are named in ROW_BITS of a token */
    if (config->sessions.capacity == 0 || config->sessions.capacity > 1u << ROW_BITS)
        return NULL;
    pe_reflector *reflector = calloc(1, sizeof *reflector);
    if (reflector == NULL)
        return NULL;
    carve(reflector, &arena, config);
    size_t octets = arena.used + PE_ARENA_LINE;
    uint8_t *memory = calloc(1, octets);
    if (memory == NULL) {
        free(reflector);
        return NULL;
    }
    reflector->memory = memory;
    size_t beyond = (size_t)((uintptr_t)memory % PE_ARENA_LINE);
    arena = (pe_arena){.memory = memory + (beyond == 0 ? 0 : PE_ARENA_LINE - beyond)};
    carve(reflector, &arena, config);
    begin(reflector, config);
    return reflector;
}

void pe_reflector_free(pe_reflector *reflector)
{
    if (reflector != NULL)
        free(reflector->memory);
    free(reflector);
}

bool pe_reflector_socket(pe_reflector *reflector, uint32_t socket, uint32_t nic)
{
    if (socket >= reflector->most_sockets)
        return false;
    reflector->nics[socket] = nic;
    return true;
}

/* Sessions of senders whose NIC is another now are tied to their path anew, and all senders are decided on anew. */
bool pe_reflector_know(pe_reflector *reflector, const pe_known_sender *senders, uint32_t count,
                       const pe_network *networks, uint32_t network_count)
{
    pe_sessions *sessions = &reflector->sessions;
    uint32_t *before = reflector->row_marks;
    for (uint32_t i = 0; i < sessions->used; i++)
        before[i] = pe_nic_of_sender(&reflector->known, sessions->rows[i].key.address);
    if (!pe_know_senders(&reflector->known, senders, count, networks, network_count))
        return false;
    for (uint32_t i = 0; i < sessions->used; i++) {
        pe_session *session = &sessions->rows[i];
        session->bucket = PE_UNADMITTED;
        if (before[i] != pe_nic_of_sender(&reflector->known, session->key.address))
            session->dscp = PE_NO_DSCP;
    }
    return true;
}

void pe_reflector_clock(pe_reflector *reflector, const pe_clock *clock)
{
    reflector->clock = *clock;
}

void pe_reflector_usable(pe_reflector *reflector, uint32_t nic, bool usable, int64_t now_ns)
{
    pe_inbound_usable(&reflector->inbound, nic, usable, now_ns);
}

/* Only stamps of the kernel or the NIC become follow-ups: user space does not know when a packet truly left. The host's
 * clock is read now: of a clock that wanders only the latest stretch is there. */
void pe_answer_left(pe_reflector *reflector, int64_t token, int64_t at_ns, uint8_t kind)
{
    if (token < 0 || at_ns == PE_ABSENT_NS || kind == PE_KIND_NONE || kind == PE_KIND_USER)
        return;
    uint64_t name = (uint64_t)token >> 32;
    uint32_t row = (uint32_t)name & ((1u << ROW_BITS) - 1);
    if (row >= reflector->sessions.used)
        return;
    pe_session *session = &reflector->sessions.rows[row];
    if (session->generation == name >> ROW_BITS)
        pe_session_store(session, (uint32_t)((uint64_t)token & UINT32_MAX),
                         pe_clock_reading(&reflector->clock, at_ns), kind);
}

uint32_t pe_reflector_assess(pe_reflector *reflector, int64_t now_ns, bool complete,
                             const pe_inbound_change **changes)
{
    *changes = reflector->changes;
    return pe_inbound_assess(&reflector->inbound, now_ns, complete, reflector->changes);
}

int64_t pe_reflector_shortest_ns(const pe_reflector *reflector, int64_t now_ns)
{
    int64_t shortest_ns = INT64_MAX;
    for (uint32_t i = 0; i < reflector->sessions.used; i++) {
        const pe_session *session = &reflector->sessions.rows[i];
        if (now_ns - session->last_received_ns >= PE_NS_PER_S)
            continue;
        if (session->path == PE_NO_PATH)
            return 0;
        int64_t interval_ns = reflector->inbound.paths[session->path].interval_ns;
        shortest_ns = interval_ns < shortest_ns ? interval_ns : shortest_ns;
    }
    return shortest_ns;
}

/* A third of the shortest interval among the sessions that sent in the last second. */
int64_t pe_follow_up_due_ns(const pe_reflector *reflector, int64_t now_ns)
{
    int64_t shortest_ns = pe_reflector_shortest_ns(reflector, now_ns);
    return shortest_ns == INT64_MAX ? 0 : shortest_ns / 3;
}

const pe_inbound_path *pe_reflector_path(const pe_reflector *reflector, uint32_t path)
{
    return path < reflector->inbound.used ? &reflector->inbound.paths[path] : NULL;
}

const pe_reflector_counts *pe_reflector_counted(const pe_reflector *reflector)
{
    return &reflector->counts;
}

size_t pe_reflector_octets_of(const char *name)
{
    static const struct {
        const char *name;
        size_t octets;
    } STRUCTURES[] = {
        {"pe_reflector_config", sizeof(pe_reflector_config)}, {"pe_reflector_counts", sizeof(pe_reflector_counts)},
        {"pe_known_sender", sizeof(pe_known_sender)},         {"pe_network", sizeof(pe_network)},
        {"pe_clock", sizeof(pe_clock)},                       {"pe_datagram", sizeof(pe_datagram)},
        {"pe_reply", sizeof(pe_reply)},                       {"pe_inbound_change", sizeof(pe_inbound_change)},
        {"pe_inbound_path", sizeof(pe_inbound_path)},
    };
    for (size_t i = 0; i < sizeof STRUCTURES / sizeof STRUCTURES[0]; i++)
        if (strcmp(STRUCTURES[i].name, name) == 0)
            return STRUCTURES[i].octets;
    return 0;
}
