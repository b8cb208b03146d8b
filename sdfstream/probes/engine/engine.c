/* The engine's beginning and end, its commands and its counters. */
#include "engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow.h"
#include "core.h"
#include "row_table.h"

#define MOST_PATHS (UINT32_C(1) << 20)
#define MOST_EXCHANGES (UINT32_C(1) << 28)
#define MOST_OTHERS (UINT32_C(1) << 16)

int pe_abi(void)
{
    return PE_ABI;
}

size_t pe_octets_of(const char *name)
{
    static const struct {
        const char *name;
        size_t octets;
    } KNOWN[] = {{"pe_config", sizeof(pe_config)},     {"pe_path", sizeof(pe_path)},
                 {"pe_out", sizeof(pe_out)},           {"pe_row", sizeof(pe_row)},
                 {"pe_event", sizeof(pe_event)},       {"pe_report", sizeof(pe_report)},
                 {"pe_datagram", sizeof(pe_datagram)}, {"pe_route_report", sizeof(pe_route_report)},
                 {"pe_row_names", sizeof(pe_row_names)}, {"pe_row_host", sizeof(pe_row_host)},
                 {"ArrowArray", sizeof(struct ArrowArray)},
                 {"pe_ring_header", sizeof(pe_ring_header)}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strcmp(KNOWN[i].name, name) == 0)
            return KNOWN[i].octets;
    return 0;
}

_Static_assert(sizeof(pe_row) == 64, "a row is a cache line");
_Static_assert(sizeof(pe_event) == 32, "two events are a cache line");

size_t pe_shared_octets(const pe_config *config)
{
    size_t rows = pe_ring_octets(config->row_capacity, sizeof(pe_row));
    size_t events = pe_ring_octets(config->event_capacity, sizeof(pe_event));
    return rows && events ? rows + events : 0;
}

static bool consistent(const pe_config *config)
{
    uint32_t words = config->command_words;
    return config->octets == sizeof *config && config->most_paths - 1 < MOST_PATHS &&
           config->most_exchanges - 1 < MOST_EXCHANGES && config->most_hosts - 1 < MOST_OTHERS &&
           config->most_nics - 1 < MOST_OTHERS && config->most_segments <= MOST_OTHERS &&
           config->most_routes <= MOST_OTHERS && config->most_orders <= MOST_OTHERS &&
           config->most_links <= MOST_EXCHANGES && words >= 4096 && words <= MOST_EXCHANGES &&
           (words & (words - 1)) == 0 && config->key_octets <= sizeof config->key && pe_shared_octets(config) > 0;
}

static void carve(pe_t *pe, pe_arena *arena, const pe_config *config)
{
    uint32_t keys = config->most_exchanges > config->most_paths ? config->most_exchanges : config->most_paths;
    pe->hosts = pe_carve(arena, config->most_hosts, sizeof *pe->hosts);
    pe->nic_away = pe_carve(arena, config->most_nics, sizeof *pe->nic_away);
    pe->steps = pe_carve(arena, PE_STEPS, sizeof *pe->steps);
    pe->keys = pe_carve(arena, keys, sizeof *pe->keys);
    pe_paths_carve(&pe->paths, arena, config->most_paths);
    pe_exchanges_carve(&pe->exchanges, arena, config->most_exchanges);
    pe_liveness_carve(&pe->liveness, arena, config->most_paths);
    pe_watches_carve(&pe->watches, arena, config);
    pe_commands_carve(&pe->commands, arena, config->command_words);
}

pe_t *pe_new(const pe_config *config, void *shared, size_t octets)
{
    bool aligned = (uintptr_t)shared % PE_RING_LINE_OCTETS == 0;
    if (!consistent(config) || !shared || !aligned || octets < pe_shared_octets(config))
        return NULL;
    pe_t counted = {0};
    pe_arena arena = {0};
    pe_t *pe = pe_carve(&arena, 1, sizeof *pe);
    carve(&counted, &arena, config);
    /* zeroed by the kernel, page by page: what no path uses takes no memory */
    uint8_t *memory = calloc(1, arena.used + PE_ARENA_LINE);
    if (!memory)
        return NULL;
    arena = (pe_arena){.memory = memory + (PE_ARENA_LINE - (uintptr_t)memory % PE_ARENA_LINE)};
    pe = pe_carve(&arena, 1, sizeof *pe);
    carve(pe, &arena, config);
    pe->memory = memory;
    pe->config = *config;
    pe->jitter.state = config->seed;
    pe_codec_begin(&pe->codec, config->key_octets ? config->key : NULL, config->key_octets, config->error);
    memset(pe->config.key, 0, sizeof pe->config.key);
    pe_paths_clear(&pe->paths);
    pe_liveness_clear(&pe->liveness, config->most_paths);
    pe_watches_clear(&pe->watches);
    pe_ring_make(&pe->rows, shared, config->row_capacity, sizeof(pe_row));
    uint8_t *behind = (uint8_t *)shared + pe_ring_octets(config->row_capacity, sizeof(pe_row));
    pe_ring_make(&pe->events, behind, config->event_capacity, sizeof(pe_event));
    return pe;
}

void pe_free(pe_t *pe)
{
    if (pe)
        free(pe->memory);
}

void pe_on_order(pe_t *pe, pe_act act, void *context)
{
    pe->act = act;
    pe->act_context = context;
}

uint64_t pe_take(pe_t *pe, uint64_t *first)
{
    return pe_ring_take(&pe->rows, first);
}

void pe_done(pe_t *pe, uint64_t upto)
{
    pe_ring_done(&pe->rows, upto);
}

uint64_t pe_take_events(pe_t *pe, uint64_t *first)
{
    return pe_ring_take(&pe->events, first);
}

uint64_t pe_events_written(const pe_t *pe)
{
    return pe_ring_ever_written(&pe->events);
}

void pe_done_events(pe_t *pe, uint64_t upto)
{
    pe_ring_done(&pe->events, upto);
}

const pe_report *pe_reports(const pe_t *pe)
{
    return pe->liveness.report;
}

const pe_route_report *pe_route_reports(const pe_t *pe)
{
    return pe->watches.report;
}

int pe_stats(const pe_t *pe, uint64_t *counters, uint32_t n)
{
    for (uint32_t i = 0; i < n && i < PE_COUNTERS; i++)
        counters[i] = atomic_load_explicit(&pe->counters[i], memory_order_relaxed);
    return PE_COUNTERS;
}

const char *pe_counter_name(uint32_t counter)
{
    static const char *const NAMES[PE_N_REFUSED] = {"sent",         "answered", "unsent", "shed.ring", "refused.follow-up",
                                                    "rows.written", "shed.rows", "shed.events", "shed.paths"};
    return counter < PE_N_REFUSED ? NAMES[counter] : NULL;
}
