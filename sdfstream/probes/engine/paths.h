/* The table of probe paths: what each is, its exchanges, when it is due. A path keeps its number and its sequence
 * numbers when its session ends, and when another session gets it. */
#ifndef PE_PATHS_H
#define PE_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "engine.h"
#include "exchanges.h"
#include "heap.h"
#include "jitter.h"

typedef struct pe_path_entry {
    pe_path is;
    pe_probe probe;
    pe_exchange_ring ring;
    bool begun; /* at least once: it can be matched */
    bool ended;
    bool usable;
} pe_path_entry;

typedef struct pe_paths {
    pe_path_entry *entry; /* (most) */
    pe_heap due;
    uint32_t *by_ssid;    /* hash tables: path + 1, 0: empty */
    uint32_t *by_address; /* with PE_SEVERAL: several paths go there, so that it names none */
    uint32_t hash_mask;
    uint32_t most, used; /* all paths that ever began lie below `used` */
    int64_t shortest_ns; /* interval of those that are probed; INT64_MAX: none is */
    bool indexed;        /* the hash tables and `shortest_ns` are up to date */
} pe_paths;

void pe_paths_carve(pe_paths *paths, pe_arena *arena, uint32_t most);
void pe_paths_clear(pe_paths *paths);

/* When the first probe of a path goes: with the others in its step, else somewhere within one interval. */
int64_t pe_paths_phase(const pe_paths *paths, uint32_t path, int64_t now_ns, pe_jitter *jitter);

/* The path that an answer belongs to; PE_NONE: none. By socket and SSID; an answer without SSID (a reflector older than
 * RFC 8972) by socket, address and port, where only one path goes there. */
uint32_t pe_paths_find(pe_paths *paths, const pe_datagram *datagram, uint16_t ssid);

/* The shortest interval of the paths that are probed; INT64_MAX: there is none. */
int64_t pe_paths_shortest_ns(pe_paths *paths);

/* Whether the datagram comes from where the path's probes go. */
bool pe_paths_from(const pe_paths *paths, uint32_t path, const pe_datagram *datagram);

#endif
