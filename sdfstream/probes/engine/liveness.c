#include "liveness.h"

#include "heap.h"

#define LIMIT_INTERVALS 3
#define MIN_MISSED 2      /* probes that must have gone unanswered: a stalled sender proves nothing */
#define MIN_ASSESSMENTS 4 /* before a path is silent, however long the process sleeps between them */
#define ASSESSMENTS 8     /* asked for in a limit */

void pe_liveness_carve(pe_liveness *liveness, pe_arena *arena, uint32_t most_paths)
{
    liveness->watched = pe_carve(arena, most_paths, sizeof *liveness->watched);
    liveness->report = pe_carve(arena, most_paths, sizeof *liveness->report);
}

void pe_liveness_clear(pe_liveness *liveness, uint32_t most_paths)
{
    for (uint32_t path = 0; path < most_paths; path++) {
        liveness->watched[path] = (pe_watched){.last_received_ns = PE_ABSENT_NS,
                                               .first_sent_ns = PE_ABSENT_NS,
                                               .reported_since_ns = PE_ABSENT_NS};
        liveness->report[path] = (pe_report){.since_ns = PE_ABSENT_NS, .last_received_ns = PE_ABSENT_NS};
    }
    liveness->used = 0;
    liveness->next_ns = PE_NEVER_NS;
    liveness->assessed = liveness->all = liveness->moved = false;
}

static void assess_by(pe_liveness *liveness, int64_t at_ns)
{
    if (at_ns < liveness->next_ns)
        liveness->next_ns = at_ns;
}

void pe_liveness_begin(pe_liveness *liveness, uint32_t path, int64_t interval_ns, int64_t liveness_ns, bool usable,
                       int64_t now_ns)
{
    pe_watched *watched = &liveness->watched[path];
    int64_t least_ns = LIMIT_INTERVALS * interval_ns;
    if (path >= liveness->used)
        liveness->used = path + 1;
    watched->limit_ns = liveness_ns > least_ns ? liveness_ns : least_ns;
    watched->listed = true;
    watched->reported = PE_UNKNOWN;
    watched->reported_since_ns = PE_ABSENT_NS;
    liveness->report[path].last_received_ns = PE_ABSENT_NS;
    liveness->report[path].ttl_fwd = 0;
    pe_liveness_usable(liveness, path, usable, now_ns);
}

void pe_liveness_end(pe_liveness *liveness, uint32_t path, int64_t now_ns)
{
    pe_liveness_usable(liveness, path, false, now_ns);
    liveness->watched[path].listed = false;
}

void pe_liveness_usable(pe_liveness *liveness, uint32_t path, bool usable, int64_t now_ns)
{
    pe_watched *watched = &liveness->watched[path];
    pe_report *report = &liveness->report[path];
    watched->usable = usable;
    watched->last_received_ns = watched->first_sent_ns = PE_ABSENT_NS;
    watched->quiet_ns = 0;
    report->state = PE_UNKNOWN;
    report->since_ns = now_ns;
    report->missed = 0;
    liveness->moved = true;
    assess_by(liveness, now_ns);
}

void pe_liveness_sent(pe_liveness *liveness, uint32_t path, int64_t now_ns)
{
    pe_watched *watched = &liveness->watched[path];
    uint32_t missed = ++liveness->report[path].missed;
    if (watched->first_sent_ns == PE_ABSENT_NS) {
        watched->first_sent_ns = now_ns;
        assess_by(liveness, now_ns + watched->limit_ns / ASSESSMENTS);
    }
    if (missed == MIN_MISSED && watched->quiet_ns >= watched->limit_ns)
        assess_by(liveness, now_ns); /* quiet long enough; only the probe was lacking */
}

void pe_liveness_unsent(pe_liveness *liveness, uint32_t path)
{
    if (liveness->report[path].missed > 0)
        liveness->report[path].missed--;
}

void pe_liveness_received(pe_liveness *liveness, uint32_t path, int64_t now_ns)
{
    pe_watched *watched = &liveness->watched[path];
    pe_report *report = &liveness->report[path];
    watched->last_received_ns = now_ns;
    watched->quiet_ns = 0;
    report->missed = 0;
    if (report->state != PE_ALIVE && watched->usable) {
        report->state = PE_ALIVE;
        report->since_ns = now_ns;
        liveness->moved = true;
        assess_by(liveness, now_ns);
    }
}

int64_t pe_liveness_charge(pe_liveness *liveness, uint32_t path, int64_t before_ns, int64_t now_ns)
{
    pe_watched *watched = &liveness->watched[path];
    pe_report *report = &liveness->report[path];
    int64_t last_ns = watched->last_received_ns != PE_ABSENT_NS ? watched->last_received_ns : watched->first_sent_ns;
    if (last_ns == PE_ABSENT_NS || report->state == PE_SILENT || !watched->usable)
        return PE_NEVER_NS;
    int64_t most_ns = watched->limit_ns / MIN_ASSESSMENTS;
    int64_t waited_ns = now_ns - (last_ns > before_ns ? last_ns : before_ns);
    waited_ns = waited_ns < 0 ? 0 : waited_ns > most_ns ? most_ns : waited_ns;
    watched->quiet_ns += waited_ns;
    if (watched->quiet_ns >= watched->limit_ns && report->missed >= MIN_MISSED) {
        report->state = PE_SILENT;
        report->since_ns = last_ns;
        liveness->moved = true;
        return PE_NEVER_NS;
    }
    int64_t left_ns = watched->limit_ns - watched->quiet_ns;
    int64_t step_ns = watched->limit_ns / ASSESSMENTS;
    return now_ns + (left_ns > 0 && left_ns < step_ns ? left_ns : step_ns);
}

bool pe_liveness_changed(const pe_liveness *liveness, uint32_t path)
{
    const pe_watched *watched = &liveness->watched[path];
    const pe_report *report = &liveness->report[path];
    if (liveness->all && watched->listed)
        return true;
    /* a path that fell silent and came back between two assessments is reported by its new since */
    return report->state != watched->reported ||
           (watched->reported != PE_UNKNOWN && report->since_ns != watched->reported_since_ns);
}

void pe_liveness_reported(pe_liveness *liveness, uint32_t path)
{
    liveness->watched[path].reported = liveness->report[path].state;
    liveness->watched[path].reported_since_ns = liveness->report[path].since_ns;
}
