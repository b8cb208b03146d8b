/* Alive, silent or unknown: the liveness of the paths that this host sends on (probes/stamp/liveness.py).
 *
 * A path is silent when nothing was received for its limit although at least two probes were sent in that time; alive
 * from the first datagram received; unknown at first, while its NIC cannot send or receive, and when it has ended.
 *
 * Only time in which this process was awake counts as quiet: of the time between two assessments a path is charged with
 * at most a quarter of its limit. So a process that slept has read its sockets, and if need be sent and answered anew,
 * several times before it may call a path silent. Assessments are asked for at least eight times a limit, so that one
 * that comes a little late loses nothing of what it may charge. */
#ifndef PE_LIVENESS_H
#define PE_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "engine.h"

typedef struct pe_watched {
    int64_t limit_ns;
    int64_t quiet_ns;
    int64_t last_received_ns; /* since the path is usable; PE_ABSENT_NS: nothing */
    int64_t first_sent_ns;    /* since the path is usable; PE_ABSENT_NS: none */
    int64_t reported_since_ns;
    uint8_t reported;
    bool usable;
    bool listed;
} pe_watched;

typedef struct pe_liveness {
    pe_watched *watched; /* (paths) */
    pe_report *report;   /* (paths), read by Python */
    uint32_t used;       /* all paths that ever began lie below */
    int64_t assessed_at_ns;
    int64_t next_ns;     /* when to assess next */
    bool assessed;
    bool all;   /* the next assessment reports every listed path */
    bool moved; /* some state changed since `pe_liveness_moved` */
} pe_liveness;

void pe_liveness_carve(pe_liveness *liveness, pe_arena *arena, uint32_t most_paths);

/* Nothing is known of any path. */
void pe_liveness_clear(pe_liveness *liveness, uint32_t most_paths);

void pe_liveness_begin(pe_liveness *liveness, uint32_t path, int64_t interval_ns, int64_t liveness_ns, bool usable,
                       int64_t now_ns);
/* The path is unknown, which is reported once, and then no longer listed. */
void pe_liveness_end(pe_liveness *liveness, uint32_t path, int64_t now_ns);
/* Its NIC can or cannot send and receive; in both cases nothing is known now. */
void pe_liveness_usable(pe_liveness *liveness, uint32_t path, bool usable, int64_t now_ns);
void pe_liveness_sent(pe_liveness *liveness, uint32_t path, int64_t now_ns);
void pe_liveness_unsent(pe_liveness *liveness, uint32_t path);
void pe_liveness_received(pe_liveness *liveness, uint32_t path, int64_t now_ns);

/* Charge a path with the time since the assessment before and decide whether it is silent; called for every path by
 * pe_assess. Returns when it must be assessed again. */
int64_t pe_liveness_charge(pe_liveness *liveness, uint32_t path, int64_t before_ns, int64_t now_ns);

/* Whether the path's state is to be reported; `pe_liveness_reported` says that it was. */
bool pe_liveness_changed(const pe_liveness *liveness, uint32_t path);
void pe_liveness_reported(pe_liveness *liveness, uint32_t path);

#endif
