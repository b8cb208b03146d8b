/* Which routes are dead and which are clean, by the liveness of probe paths alone (agent/commands/path_watch.py), and
 * the orders that wait for that.
 *
 * A route crosses segments; a segment is crossed by probe paths. A segment is dead when all of its probe paths, at least
 * one, are silent; clean when one of them is alive. One broken link silences every probe path across it, so segments up
 * and down the same probe paths look dead with it: only those dead segments are blamed that best explain a silent probe
 * path, so that no other dead segment which this probe path crosses has more silent probe paths to its support. A route
 * is dead when one of its segments is blamed, clean when all of its segments (at least one) are clean, else unknown,
 * upon which nothing is ever done.
 *
 * An order waits for its route to die and then takes the first of its alternates that is clean; without alternates it
 * is given as soon as the route is dead. It is given once. */
#ifndef PE_WATCHES_H
#define PE_WATCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "engine.h"

typedef struct pe_members {
    uint32_t first, n; /* of `links` */
} pe_members;

/* What crosses what. There are two: the one in force, and the one that is being written. */
typedef struct pe_crossings {
    pe_members *segment; /* probe paths of each segment */
    pe_members *route;   /* segments of each route */
    uint32_t *links;
    uint32_t segments, links_used;
} pe_crossings;

typedef enum pe_order_state { PE_ORDER_NONE, PE_ORDER_ARMED, PE_ORDER_STRANDED, PE_ORDER_GIVEN } pe_order_state;

typedef struct pe_armed {
    uint32_t route;
    uint32_t n;
    uint32_t alternates[PE_MOST_ALTERNATES];
    uint8_t state;
} pe_armed;

typedef struct pe_watches {
    pe_crossings crossings[2];
    pe_crossings *in_force, *written;
    uint32_t *support;  /* (segments) silent probe paths of a dead one, else 0 */
    uint32_t *best;     /* (paths) the best support among the dead segments that it crosses */
    uint8_t *clean;     /* (segments) */
    pe_route_report *report; /* (routes), read by Python */
    pe_armed *orders;
    uint32_t most_segments, most_routes, most_links, most_orders, most_paths;
    uint32_t orders_used; /* all that were ever armed lie below */
    bool changed;         /* crossings or orders changed since the last evaluation */
} pe_watches;

void pe_watches_carve(pe_watches *watches, pe_arena *arena, const pe_config *config);
void pe_watches_clear(pe_watches *watches);

void pe_watches_begin(pe_watches *watches);
/* The next segment of the crossings that are written; false: no room, or a number out of range. */
bool pe_watches_segment(pe_watches *watches, const uint32_t *paths, uint32_t n);
bool pe_watches_route(pe_watches *watches, uint32_t route, const uint32_t *segments, uint32_t n);
void pe_watches_commit(pe_watches *watches);

void pe_watches_arm(pe_watches *watches, uint32_t order, uint32_t route, const uint32_t *alternates, uint32_t n);
void pe_watches_disarm(pe_watches *watches, uint32_t order);

/* Verdicts of all routes by the present states of the paths. */
void pe_watches_evaluate(pe_watches *watches, const pe_report *report, int64_t now_ns);

/* What the verdicts mean for an order: PE_ORDER_GIVEN with `alternate` chosen (PE_NONE: it has none), PE_ORDER_STRANDED
 * when it is so for the first time, else PE_ORDER_NONE: nothing to do. */
pe_order_state pe_watches_decide(pe_watches *watches, uint32_t order, uint32_t *alternate);

#endif
