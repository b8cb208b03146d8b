/* Changes of paths, NICs, clocks, watches and orders: checked and written by another thread, applied by the engine's. */
#include <errno.h>
#include <string.h>

#include "core.h"

#define MOST_INTERVAL_NS (3600 * PE_NS_PER_S)
#define MOST_LIVENESS_NS (86400 * PE_NS_PER_S)

static int put_numbers(pe_t *pe, pe_command_kind kind, const uint32_t *numbers, uint32_t n)
{
    pe_piece piece = {numbers, n * (uint32_t)sizeof *numbers};
    return pe_commands_put(&pe->commands, kind, &piece, 1);
}

static bool lawful(const pe_t *pe, const pe_path *is)
{
    const pe_config *config = &pe->config;
    return is->interval_ns > 0 && is->interval_ns <= MOST_INTERVAL_NS && is->liveness_ns >= 0 &&
           is->liveness_ns <= MOST_LIVENESS_NS && is->ssid > 0 && is->host < config->most_hosts &&
           is->nic < config->most_nics && is->length_octets <= config->width_octets &&
           is->length_octets <= UINT16_MAX && pe_probe_octets(&pe->codec, is->length_octets) == is->length_octets &&
           pe_depth(is->interval_ns) > 0;
}

int pe_path_begin(pe_t *pe, uint32_t path, const pe_path *is)
{
    if (path >= pe->config.most_paths || !lawful(pe, is))
        return -EINVAL;
    pe_piece pieces[] = {{&path, sizeof path}, {is, sizeof *is}};
    return pe_commands_put(&pe->commands, PE_PATH_BEGIN, pieces, 2);
}

int pe_path_end(pe_t *pe, uint32_t path)
{
    return path < pe->config.most_paths ? put_numbers(pe, PE_PATH_END, &path, 1) : -EINVAL;
}

int pe_nic_usable(pe_t *pe, uint32_t nic, int usable)
{
    uint32_t numbers[] = {nic, usable != 0};
    return nic < pe->config.most_nics ? put_numbers(pe, PE_NIC_USABLE, numbers, 2) : -EINVAL;
}

int pe_clock_set(pe_t *pe, uint32_t host, int64_t offset_ns, int64_t skew_micro_ppb, int64_t epoch_at_ns,
                 int64_t first_knot, const int64_t *knots_ns, uint32_t knots)
{
    if (host >= pe->config.most_hosts || knots > PE_MOST_KNOTS)
        return -EINVAL;
    pe_clock clock = {offset_ns, skew_micro_ppb, epoch_at_ns, first_knot, NULL, knots, true};
    pe_piece pieces[] = {{&host, sizeof host}, {&clock, sizeof clock}, {knots_ns, knots * (uint32_t)sizeof *knots_ns}};
    return pe_commands_put(&pe->commands, PE_CLOCK_SET, pieces, 3);
}

int pe_report_all(pe_t *pe)
{
    return put_numbers(pe, PE_REPORT_ALL, NULL, 0);
}

int pe_watch_begin(pe_t *pe)
{
    pe->commands.segments = pe->commands.links = 0;
    return put_numbers(pe, PE_WATCH_BEGIN, NULL, 0);
}

int pe_segment(pe_t *pe, const uint32_t *paths, uint32_t n)
{
    if (n > PE_MOST_MEMBERS || n > pe->config.most_links - pe->commands.links ||
        pe->commands.segments == pe->config.most_segments)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (paths[i] != PE_NONE && paths[i] >= pe->config.most_paths)
            return -EINVAL;
    int error = put_numbers(pe, PE_SEGMENT, paths, n);
    pe->commands.segments += error == 0;
    pe->commands.links += error == 0 ? n : 0;
    return error;
}

int pe_route(pe_t *pe, uint32_t route, const uint32_t *segments, uint32_t n)
{
    if (route >= pe->config.most_routes || n > PE_MOST_MEMBERS || n > pe->config.most_links - pe->commands.links)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (segments[i] >= pe->commands.segments)
            return -EINVAL;
    pe_piece pieces[] = {{&route, sizeof route}, {segments, n * (uint32_t)sizeof *segments}};
    int error = pe_commands_put(&pe->commands, PE_ROUTE, pieces, 2);
    pe->commands.links += error == 0 ? n : 0;
    return error;
}

int pe_watch_commit(pe_t *pe)
{
    return put_numbers(pe, PE_WATCH_COMMIT, NULL, 0);
}

int pe_order_arm(pe_t *pe, uint32_t order, uint32_t route, const uint32_t *alternates, uint32_t n)
{
    if (order >= pe->config.most_orders || route >= pe->config.most_routes || n > PE_MOST_ALTERNATES)
        return -EINVAL;
    for (uint32_t i = 0; i < n; i++)
        if (alternates[i] >= pe->config.most_routes)
            return -EINVAL;
    uint32_t numbers[] = {order, route};
    pe_piece pieces[] = {{numbers, sizeof numbers}, {alternates, n * (uint32_t)sizeof *alternates}};
    return pe_commands_put(&pe->commands, PE_ORDER_ARM, pieces, 2);
}

int pe_order_disarm(pe_t *pe, uint32_t order)
{
    return order < pe->config.most_orders ? put_numbers(pe, PE_ORDER_DISARM, &order, 1) : -EINVAL;
}

static void begin_path(pe_t *pe, uint32_t path, const pe_path *is, int64_t now_ns)
{
    pe_paths *paths = &pe->paths;
    pe_path_entry *entry = &paths->entry[path];
    if (!pe_ring_of_path(&pe->exchanges, &entry->ring, is->interval_ns, is->prompt != 0)) {
        pe_count(&pe->counters[PE_N_NO_ROOM], 1);
        pe_event_put(pe, (pe_event){.path = path, .kind = PE_EVENT_NO_ROOM, .generation = is->generation});
        return;
    }
    if (entry->begun && entry->is.generation != is->generation)
        pe_forget_exchanges(&pe->exchanges, &entry->ring);
    entry->is = *is;
    entry->probe = (pe_probe){.ssid = is->ssid,
                              .length_octets = (uint16_t)is->length_octets,
                              .dscp1 = (uint8_t)(is->tos >> 2),
                              .ec1 = (uint8_t)(is->tos & 3)};
    entry->begun = true;
    entry->ended = false;
    entry->usable = !pe->nic_away[is->nic];
    if (path >= paths->used)
        paths->used = path + 1;
    paths->indexed = false;
    pe_heap_put(&paths->due, path, pe_paths_phase(paths, path, now_ns, &pe->jitter));
    pe_liveness_begin(&pe->liveness, path, is->interval_ns, is->liveness_ns, entry->usable, now_ns);
}

static void end_path(pe_t *pe, uint32_t path, int64_t now_ns)
{
    pe_path_entry *entry = &pe->paths.entry[path];
    if (!entry->begun)
        return;
    entry->ended = true;
    pe->paths.indexed = false;
    pe_heap_remove(&pe->paths.due, path);
    pe_liveness_end(&pe->liveness, path, now_ns);
}

static void set_usable(pe_t *pe, uint32_t nic, bool usable, int64_t now_ns)
{
    pe->nic_away[nic] = !usable;
    for (uint32_t path = 0; path < pe->paths.used; path++) {
        pe_path_entry *entry = &pe->paths.entry[path];
        if (!entry->begun || entry->ended || entry->is.nic != nic || entry->usable == usable)
            continue;
        entry->usable = usable;
        pe_liveness_usable(&pe->liveness, path, usable, now_ns);
    }
}

static void set_clock(pe_t *pe, const uint32_t *words)
{
    pe_host *host = &pe->hosts[words[0]];
    memcpy(&host->clock, words + 1, sizeof host->clock);
    memcpy(host->knots_ns, words + 1 + sizeof host->clock / 4, host->clock.knots * sizeof *host->knots_ns);
    host->clock.knots_ns = host->clock.knots ? host->knots_ns : NULL;
}

static void apply_watch(pe_t *pe, pe_command_kind kind, const uint32_t *words, uint32_t n)
{
    pe_watches *watches = &pe->watches;
    if (kind == PE_WATCH_BEGIN)
        pe_watches_begin(watches);
    else if (kind == PE_SEGMENT)
        pe_watches_segment(watches, words, n);
    else if (kind == PE_ROUTE)
        pe_watches_route(watches, words[0], words + 1, n - 1);
    else if (kind == PE_WATCH_COMMIT)
        pe_watches_commit(watches);
    else if (kind == PE_ORDER_ARM)
        pe_watches_arm(watches, words[0], words[1], words + 2, n - 2);
    else if (kind == PE_ORDER_DISARM)
        pe_watches_disarm(watches, words[0]);
}

static void apply(pe_t *pe, pe_command_kind kind, const uint32_t *words, uint32_t n, int64_t now_ns)
{
    pe_path is;
    switch (kind) {
    case PE_PATH_BEGIN:
        memcpy(&is, words + 1, sizeof is);
        begin_path(pe, words[0], &is, now_ns);
        break;
    case PE_PATH_END:
        end_path(pe, words[0], now_ns);
        break;
    case PE_NIC_USABLE:
        set_usable(pe, words[0], words[1] != 0, now_ns);
        break;
    case PE_CLOCK_SET:
        set_clock(pe, words);
        break;
    case PE_REPORT_ALL:
        pe->liveness.all = true;
        pe->liveness.next_ns = now_ns;
        break;
    default:
        apply_watch(pe, kind, words, n);
    }
}

uint32_t pe_apply(pe_t *pe, int64_t now_ns)
{
    pe_command_kind kind = PE_SKIP;
    uint32_t words = 0, applied = 0;
    for (const uint32_t *command; (command = pe_commands_next(&pe->commands, &kind, &words)); applied++) {
        apply(pe, kind, command, words, now_ns);
        pe_commands_taken(&pe->commands, words);
    }
    if (pe->watches.changed && now_ns < pe->liveness.next_ns)
        pe->liveness.next_ns = now_ns;
    return applied;
}
