#include "paths.h"

#include <string.h>

#define SEVERAL UINT32_C(0x80000000)

static uint32_t hash_size(uint32_t most)
{
    uint32_t size = 2;
    while (size < 2 * most)
        size *= 2;
    return size;
}

void pe_paths_carve(pe_paths *paths, pe_arena *arena, uint32_t most)
{
    uint32_t hashed = hash_size(most);
    paths->entry = pe_carve(arena, most, sizeof *paths->entry);
    paths->due.path = pe_carve(arena, most, sizeof *paths->due.path);
    paths->due.place = pe_carve(arena, most, sizeof *paths->due.place);
    paths->due.due_ns = pe_carve(arena, most, sizeof *paths->due.due_ns);
    paths->by_ssid = pe_carve(arena, hashed, sizeof *paths->by_ssid);
    paths->by_address = pe_carve(arena, hashed, sizeof *paths->by_address);
    paths->hash_mask = hashed - 1;
    paths->most = most;
}

void pe_paths_clear(pe_paths *paths)
{
    pe_heap_clear(&paths->due, paths->most);
    paths->used = 0;
    paths->indexed = false;
}

int64_t pe_paths_phase(const pe_paths *paths, uint32_t path, int64_t now_ns, pe_jitter *jitter)
{
    const pe_path *is = &paths->entry[path].is;
    int64_t step_ns = PE_NEVER_NS;
    for (uint32_t i = 0; is->step && i < paths->used; i++)
        if (i != path && paths->entry[i].is.step == is->step && paths->due.due_ns[i] < step_ns)
            step_ns = paths->due.due_ns[i];
    if (step_ns != PE_NEVER_NS)
        return step_ns;
    return now_ns + (int64_t)((double)is->interval_ns * pe_jitter_unit(jitter));
}

/* Finalizer of MurmurHash3: every bit of the key reaches the low ones. */
static uint32_t mixed(uint64_t key)
{
    key = (key ^ (key >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    key = (key ^ (key >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return (uint32_t)(key ^ (key >> 33));
}

static uint32_t hash_of_ssid(uint32_t socket, uint16_t ssid)
{
    return mixed((uint64_t)socket << 16 | ssid);
}

static uint32_t hash_of_address(uint32_t socket, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port)
{
    uint64_t high, low;
    memcpy(&high, address, sizeof high);
    memcpy(&low, address + sizeof high, sizeof low);
    return mixed(high ^ mixed(low ^ ((uint64_t)socket << 16 | port)));
}

static bool goes_to(const pe_path *is, uint32_t socket, const uint8_t address[PE_ADDRESS_OCTETS], uint16_t port)
{
    return is->socket == socket && is->port == port && memcmp(is->address, address, PE_ADDRESS_OCTETS) == 0;
}

/* Of several paths with one socket and SSID the first counts. */
static void add_by_ssid(pe_paths *paths, uint32_t path)
{
    const pe_path *is = &paths->entry[path].is;
    uint32_t at = hash_of_ssid(is->socket, is->ssid) & paths->hash_mask;
    for (; paths->by_ssid[at]; at = (at + 1) & paths->hash_mask) {
        const pe_path *other = &paths->entry[paths->by_ssid[at] - 1].is;
        if (other->socket == is->socket && other->ssid == is->ssid)
            return;
    }
    paths->by_ssid[at] = path + 1;
}

static void add_by_address(pe_paths *paths, uint32_t path)
{
    const pe_path *is = &paths->entry[path].is;
    uint32_t at = hash_of_address(is->socket, is->address, is->port) & paths->hash_mask;
    for (; paths->by_address[at]; at = (at + 1) & paths->hash_mask) {
        const pe_path *other = &paths->entry[(paths->by_address[at] & ~SEVERAL) - 1].is;
        if (goes_to(other, is->socket, is->address, is->port)) {
            paths->by_address[at] |= SEVERAL;
            return;
        }
    }
    paths->by_address[at] = path + 1;
}

/* Paths change seldom, so the tables are built anew: one that nothing is deleted from needs no tombstones. */
static void index_paths(pe_paths *paths)
{
    size_t octets = ((size_t)paths->hash_mask + 1) * sizeof *paths->by_ssid;
    memset(paths->by_ssid, 0, octets);
    memset(paths->by_address, 0, octets);
    paths->shortest_ns = INT64_MAX;
    for (uint32_t path = 0; path < paths->used; path++) {
        const pe_path_entry *entry = &paths->entry[path];
        if (!entry->begun)
            continue;
        add_by_ssid(paths, path);
        add_by_address(paths, path);
        if (!entry->ended && entry->is.interval_ns < paths->shortest_ns)
            paths->shortest_ns = entry->is.interval_ns;
    }
    paths->indexed = true;
}

int64_t pe_paths_shortest_ns(pe_paths *paths)
{
    if (!paths->indexed)
        index_paths(paths);
    return paths->shortest_ns;
}

static uint32_t find_by_ssid(const pe_paths *paths, uint32_t socket, uint16_t ssid)
{
    uint32_t at = hash_of_ssid(socket, ssid) & paths->hash_mask;
    for (; paths->by_ssid[at]; at = (at + 1) & paths->hash_mask) {
        const pe_path *is = &paths->entry[paths->by_ssid[at] - 1].is;
        if (is->socket == socket && is->ssid == ssid)
            return paths->by_ssid[at] - 1;
    }
    return PE_NONE;
}

static uint32_t find_by_address(const pe_paths *paths, const pe_datagram *datagram)
{
    uint32_t at = hash_of_address(datagram->socket, datagram->address, datagram->port) & paths->hash_mask;
    for (; paths->by_address[at]; at = (at + 1) & paths->hash_mask) {
        uint32_t path = (paths->by_address[at] & ~SEVERAL) - 1;
        if (goes_to(&paths->entry[path].is, datagram->socket, datagram->address, datagram->port))
            return paths->by_address[at] & SEVERAL ? PE_NONE : path;
    }
    return PE_NONE;
}

uint32_t pe_paths_find(pe_paths *paths, const pe_datagram *datagram, uint16_t ssid)
{
    if (!paths->indexed)
        index_paths(paths);
    return ssid ? find_by_ssid(paths, datagram->socket, ssid) : find_by_address(paths, datagram);
}

bool pe_paths_from(const pe_paths *paths, uint32_t path, const pe_datagram *datagram)
{
    const pe_path *is = &paths->entry[path].is;
    return is->port == datagram->port && memcmp(is->address, datagram->address, PE_ADDRESS_OCTETS) == 0;
}
