#include "watches.h"

#include <string.h>

void pe_watches_carve(pe_watches *watches, pe_arena *arena, const pe_config *config)
{
    for (unsigned i = 0; i < 2; i++) {
        pe_crossings *crossings = &watches->crossings[i];
        crossings->segment = pe_carve(arena, config->most_segments, sizeof *crossings->segment);
        crossings->route = pe_carve(arena, config->most_routes, sizeof *crossings->route);
        crossings->links = pe_carve(arena, config->most_links, sizeof *crossings->links);
    }
    watches->support = pe_carve(arena, config->most_segments, sizeof *watches->support);
    watches->clean = pe_carve(arena, config->most_segments, sizeof *watches->clean);
    watches->best = pe_carve(arena, config->most_paths, sizeof *watches->best);
    watches->report = pe_carve(arena, config->most_routes, sizeof *watches->report);
    watches->orders = pe_carve(arena, config->most_orders, sizeof *watches->orders);
    watches->most_segments = config->most_segments;
    watches->most_routes = config->most_routes;
    watches->most_links = config->most_links;
    watches->most_orders = config->most_orders;
    watches->most_paths = config->most_paths;
}

void pe_watches_clear(pe_watches *watches)
{
    watches->in_force = &watches->crossings[0];
    watches->written = &watches->crossings[1];
    for (uint32_t route = 0; route < watches->most_routes; route++)
        watches->report[route].clean_since_ns = PE_ABSENT_NS;
}

void pe_watches_begin(pe_watches *watches)
{
    pe_crossings *written = watches->written;
    written->segments = written->links_used = 0;
    memset(written->route, 0, watches->most_routes * sizeof *written->route);
}

static bool add_members(pe_watches *watches, pe_members *members, const uint32_t *numbers, uint32_t n)
{
    pe_crossings *written = watches->written;
    if (n > watches->most_links - written->links_used)
        return false;
    *members = (pe_members){.first = written->links_used, .n = n};
    memcpy(written->links + written->links_used, numbers, n * sizeof *numbers);
    written->links_used += n;
    return true;
}

bool pe_watches_segment(pe_watches *watches, const uint32_t *paths, uint32_t n)
{
    pe_crossings *written = watches->written;
    if (written->segments == watches->most_segments)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (paths[i] != PE_NONE && paths[i] >= watches->most_paths)
            return false;
    if (!add_members(watches, &written->segment[written->segments], paths, n))
        return false;
    written->segments++;
    return true;
}

bool pe_watches_route(pe_watches *watches, uint32_t route, const uint32_t *segments, uint32_t n)
{
    if (route >= watches->most_routes)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (segments[i] >= watches->written->segments)
            return false;
    return add_members(watches, &watches->written->route[route], segments, n);
}

void pe_watches_commit(pe_watches *watches)
{
    pe_crossings *before = watches->in_force;
    watches->in_force = watches->written;
    watches->written = before;
    watches->changed = true;
}

void pe_watches_arm(pe_watches *watches, uint32_t order, uint32_t route, const uint32_t *alternates, uint32_t n)
{
    pe_armed *armed = &watches->orders[order];
    *armed = (pe_armed){.route = route, .n = n, .state = PE_ORDER_ARMED};
    memcpy(armed->alternates, alternates, n * sizeof *alternates);
    if (order >= watches->orders_used)
        watches->orders_used = order + 1;
    watches->changed = true;
}

void pe_watches_disarm(pe_watches *watches, uint32_t order)
{
    watches->orders[order].state = PE_ORDER_NONE;
}

/* What the probe paths of a segment say of it. */
static void look_at(pe_watches *watches, uint32_t segment, const pe_report *report)
{
    const pe_crossings *in_force = watches->in_force;
    pe_members members = in_force->segment[segment];
    uint32_t probed = 0, silent = 0, alive = 0;
    for (uint32_t i = 0; i < members.n; i++) {
        uint32_t path = in_force->links[members.first + i];
        if (path == PE_NONE)
            continue;
        probed++;
        silent += report[path].state == PE_SILENT;
        alive += report[path].state == PE_ALIVE;
        watches->best[path] = 0;
    }
    watches->support[segment] = silent == probed ? silent : 0;
    watches->clean[segment] = alive > 0;
}

/* Raise the best support of the probe paths that cross a segment. */
static void support_paths(pe_watches *watches, uint32_t segment)
{
    const pe_crossings *in_force = watches->in_force;
    pe_members members = in_force->segment[segment];
    for (uint32_t i = 0; watches->support[segment] && i < members.n; i++) {
        uint32_t path = in_force->links[members.first + i];
        if (path != PE_NONE && watches->support[segment] > watches->best[path])
            watches->best[path] = watches->support[segment];
    }
}

static bool is_blamed(const pe_watches *watches, uint32_t segment)
{
    const pe_crossings *in_force = watches->in_force;
    pe_members members = in_force->segment[segment];
    for (uint32_t i = 0; watches->support[segment] && i < members.n; i++) {
        uint32_t path = in_force->links[members.first + i];
        if (path != PE_NONE && watches->support[segment] >= watches->best[path])
            return true;
    }
    return false;
}

static pe_verdict verdict_of(const pe_watches *watches, uint32_t route)
{
    pe_members members = watches->in_force->route[route];
    bool clean = members.n > 0;
    for (uint32_t i = 0; i < members.n; i++) {
        uint32_t segment = watches->in_force->links[members.first + i];
        if (is_blamed(watches, segment))
            return PE_ROUTE_DEAD;
        clean = clean && watches->clean[segment];
    }
    return clean ? PE_ROUTE_CLEAN : PE_ROUTE_UNKNOWN;
}

void pe_watches_evaluate(pe_watches *watches, const pe_report *report, int64_t now_ns)
{
    uint32_t segments = watches->in_force->segments;
    for (uint32_t segment = 0; segment < segments; segment++)
        look_at(watches, segment, report);
    for (uint32_t segment = 0; segment < segments; segment++)
        support_paths(watches, segment);
    for (uint32_t route = 0; route < watches->most_routes; route++) {
        pe_route_report *seen = &watches->report[route];
        seen->verdict = (uint8_t)verdict_of(watches, route);
        if (seen->verdict != PE_ROUTE_CLEAN)
            seen->clean_since_ns = PE_ABSENT_NS;
        else if (seen->clean_since_ns == PE_ABSENT_NS)
            seen->clean_since_ns = now_ns;
    }
    watches->changed = false;
}

pe_order_state pe_watches_decide(pe_watches *watches, uint32_t order, uint32_t *alternate)
{
    pe_armed *armed = &watches->orders[order];
    if (armed->state != PE_ORDER_ARMED && armed->state != PE_ORDER_STRANDED)
        return PE_ORDER_NONE;
    if (watches->report[armed->route].verdict != PE_ROUTE_DEAD)
        return PE_ORDER_NONE;
    *alternate = PE_NONE;
    for (uint32_t i = 0; i < armed->n && *alternate == PE_NONE; i++)
        if (watches->report[armed->alternates[i]].verdict == PE_ROUTE_CLEAN)
            *alternate = i;
    if (*alternate == PE_NONE && armed->n > 0) {
        bool first = armed->state == PE_ORDER_ARMED;
        armed->state = PE_ORDER_STRANDED;
        return first ? PE_ORDER_STRANDED : PE_ORDER_NONE;
    }
    armed->state = PE_ORDER_GIVEN;
    return PE_ORDER_GIVEN;
}
