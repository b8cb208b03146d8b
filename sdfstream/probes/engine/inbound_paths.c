#include "inbound_paths.h"

#include <string.h>

#include "octets.h"

#define FORGET_NS (600 * PE_NS_PER_S) /* nothing received for this long: the sender is gone for good */
#define FIRST_INTERVAL_NS PE_NS_PER_S /* what an interval is taken for until a second probe has come */
#define GAP_WEIGHT 0.125

enum { LIMIT_INTERVALS = 3, MIN_ASSESSMENTS = 4, AHEAD_LIMIT = 1 << 16 };

static uint32_t power_of_two(uint32_t least)
{
    uint32_t size = 1;
    while (size < least)
        size *= 2;
    return size;
}

void pe_inbound_carve(pe_inbound_paths *inbound, pe_arena *arena, uint32_t most)
{
    uint32_t heads = power_of_two(most);
    inbound->most = most;
    inbound->mask = heads - 1;
    inbound->paths = pe_carve(arena, most, sizeof inbound->paths[0]);
    inbound->heads = pe_carve(arena, heads, sizeof inbound->heads[0]);
    inbound->free = pe_carve(arena, most, sizeof inbound->free[0]);
}

void pe_inbound_clear(pe_inbound_paths *inbound, int64_t liveness_ns, uint64_t salt)
{
    inbound->used = inbound->free_count = 0;
    inbound->liveness_ns = liveness_ns;
    inbound->salt = salt;
    inbound->assessed = false;
    for (uint32_t i = 0; i <= inbound->mask; i++)
        inbound->heads[i] = PE_NO_PATH;
}

static uint32_t *head_of(const pe_inbound_paths *inbound, const pe_inbound_name *name)
{
    uint64_t word = (uint64_t)name->nic << 32 | name->sender;
    uint64_t key = (word ^ inbound->salt) * UINT64_C(0x9E3779B97F4A7C15);
    key = (key ^ key >> 29 ^ ((uint64_t)name->port << 8 | name->dscp)) * UINT64_C(0xC2B2AE3D27D4EB4F);
    return &inbound->heads[(uint32_t)(key >> 32) & inbound->mask];
}

static bool is_named(const pe_inbound_path *path, const pe_inbound_name *name)
{
    return path->name.nic == name->nic && path->name.sender == name->sender && path->name.port == name->port &&
           path->name.dscp == name->dscp;
}

/* In both cases nothing is known now. */
static void set_usable(pe_inbound_path *path, bool usable, int64_t now_ns)
{
    path->usable = usable;
    path->state = PE_INBOUND_UNKNOWN;
    path->since_ns = now_ns;
    path->last_received_ns = PE_ABSENT_NS;
    path->quiet_ns = 0;
}

uint32_t pe_inbound_join(pe_inbound_paths *inbound, const pe_inbound_name *name,
                         const uint8_t address[PE_ADDRESS_OCTETS], int64_t now_ns)
{
    uint32_t *head = head_of(inbound, name);
    for (uint32_t i = *head; i != PE_NO_PATH; i = inbound->paths[i].next)
        if (is_named(&inbound->paths[i], name)) {
            inbound->paths[i].sessions++;
            return i;
        }
    uint32_t number;
    if (inbound->free_count > 0)
        number = inbound->free[--inbound->free_count];
    else if (inbound->used < inbound->most)
        number = inbound->used++;
    else
        return PE_NO_PATH;
    pe_inbound_path *path = &inbound->paths[number];
    *path = (pe_inbound_path){
        .name = *name, .next = *head, .sessions = 1, .reported_since_ns = PE_ABSENT_NS, .listed = true};
    memcpy(path->address, address, PE_ADDRESS_OCTETS);
    set_usable(path, true, now_ns);
    *head = number;
    return number;
}

void pe_inbound_leave(pe_inbound_paths *inbound, uint32_t number, int64_t now_ns)
{
    pe_inbound_path *path = &inbound->paths[number];
    if (--path->sessions > 0)
        return;
    uint32_t *link = head_of(inbound, &path->name);
    while (*link != number)
        link = &inbound->paths[*link].next;
    *link = path->next;
    set_usable(path, false, now_ns);
    path->listed = false;
    inbound->free[inbound->free_count++] = number;
}

void pe_inbound_arrived(pe_inbound_paths *inbound, uint32_t number, uint32_t ahead, int64_t now_ns)
{
    pe_inbound_path *path = &inbound->paths[number];
    if (path->last_received_ns != PE_ABSENT_NS && ahead > 0 && ahead < AHEAD_LIMIT) {
        int64_t gap_ns = pe_floor_div(now_ns - path->last_received_ns, ahead);
        if (path->interval_ns == 0)
            path->interval_ns = gap_ns;
        else
            path->interval_ns += (int64_t)((double)(gap_ns - path->interval_ns) * GAP_WEIGHT);
    }
    path->last_received_ns = now_ns;
    path->quiet_ns = 0;
    if (path->state != PE_INBOUND_ALIVE && path->usable) {
        path->state = PE_INBOUND_ALIVE;
        path->since_ns = now_ns;
    }
}

void pe_inbound_usable(pe_inbound_paths *inbound, uint32_t nic, bool usable, int64_t now_ns)
{
    for (uint32_t i = 0; i < inbound->used; i++)
        if (inbound->paths[i].name.nic == nic)
            set_usable(&inbound->paths[i], usable, now_ns);
}

static int64_t clipped(int64_t value, int64_t most)
{
    return value < 0 ? 0 : value > most ? most : value;
}

/* Charge the path with the time since the call before, and call it silent if it was quiet too long. */
static void charge(pe_inbound_path *path, int64_t liveness_ns, int64_t before_ns, int64_t now_ns)
{
    int64_t last_ns = path->last_received_ns;
    if (last_ns == PE_ABSENT_NS || path->state == PE_INBOUND_SILENT || !path->usable)
        return;
    int64_t interval_ns = path->interval_ns > 0 ? path->interval_ns : FIRST_INTERVAL_NS;
    int64_t limit_ns = LIMIT_INTERVALS * interval_ns;
    if (limit_ns < liveness_ns)
        limit_ns = liveness_ns;
    path->quiet_ns += clipped(now_ns - (last_ns > before_ns ? last_ns : before_ns), limit_ns / MIN_ASSESSMENTS);
    if (path->quiet_ns < limit_ns)
        return;
    path->state = PE_INBOUND_SILENT;
    path->since_ns = last_ns;
}

/* A path that fell silent and came back between two calls is reported by its new `since`. */
static bool is_to_report(const pe_inbound_path *path, int64_t now_ns, bool complete)
{
    bool recent = path->last_received_ns == PE_ABSENT_NS || now_ns - path->last_received_ns < FORGET_NS;
    bool changed = path->state != path->reported ||
                   (path->reported != PE_INBOUND_UNKNOWN && path->since_ns != path->reported_since_ns);
    return recent && (changed || (complete && path->listed));
}

uint32_t pe_inbound_assess(pe_inbound_paths *inbound, int64_t now_ns, bool complete, pe_inbound_change *changes)
{
    int64_t before_ns = inbound->assessed ? inbound->assessed_at_ns : now_ns;
    uint32_t count = 0;
    inbound->assessed = true;
    inbound->assessed_at_ns = now_ns;
    for (uint32_t i = 0; i < inbound->used; i++) {
        pe_inbound_path *path = &inbound->paths[i];
        charge(path, inbound->liveness_ns, before_ns, now_ns);
        if (!is_to_report(path, now_ns, complete))
            continue;
        path->reported = path->state;
        path->reported_since_ns = path->since_ns;
        changes[count++] = (pe_inbound_change){
            .path = i, .state = path->state, .since_ns = path->since_ns, .interval_ns = path->interval_ns};
    }
    return count;
}
