/* Liveness of all paths, and the orders that follow from it, by deadlines. */
#include "core.h"

#define AGAIN_NS 10000000 /* when the ring of events is full: until it is tried again */

int64_t pe_next_assess_ns(const pe_t *pe)
{
    return pe->liveness.next_ns;
}

bool pe_event_put(pe_t *pe, pe_event event)
{
    pe_event *room = pe_ring_room(&pe->events);
    if (!room) {
        pe_count(&pe->counters[PE_N_EVENTS_DROPPED], 1);
        return false;
    }
    *room = event;
    pe_ring_written(&pe->events);
    return true;
}

/* False: no room in the ring, so that it has to be reported again. */
static bool report(pe_t *pe, uint32_t path, int64_t now_ns, int64_t system_ns)
{
    const pe_report *now = &pe->liveness.report[path];
    pe_event event = {.path = path,
                      .kind = PE_EVENT_LIVENESS,
                      .state = now->state,
                      .generation = pe->paths.entry[path].is.generation,
                      .at_ns = system_ns,
                      .since_ns = now->since_ns + (system_ns - now_ns),
                      .missed = now->missed};
    if (!pe_event_put(pe, event))
        return false;
    pe_liveness_reported(&pe->liveness, path);
    return true;
}

static uint32_t give_orders(pe_t *pe, int64_t now_ns, int64_t system_ns)
{
    uint32_t events = 0;
    for (uint32_t order = 0; order < pe->watches.orders_used; order++) {
        uint32_t alternate = PE_NONE;
        pe_order_state decided = pe_watches_decide(&pe->watches, order, &alternate);
        if (decided == PE_ORDER_NONE)
            continue;
        int error = decided == PE_ORDER_GIVEN && pe->act ? pe->act(pe->act_context, order, alternate, now_ns) : 0;
        events += pe_event_put(pe, (pe_event){.path = order,
                                              .kind = decided == PE_ORDER_GIVEN ? PE_EVENT_ORDER : PE_EVENT_STRANDED,
                                              .state = (uint8_t)error,
                                              .at_ns = system_ns,
                                              .since_ns = system_ns,
                                              .missed = alternate});
    }
    return events;
}

uint32_t pe_assess(pe_t *pe, int64_t now_ns, int64_t system_ns)
{
    pe_liveness *liveness = &pe->liveness;
    int64_t before_ns = liveness->assessed ? liveness->assessed_at_ns : now_ns;
    int64_t next_ns = PE_NEVER_NS;
    uint32_t events = 0, changed = 0;
    liveness->assessed = true;
    liveness->assessed_at_ns = now_ns;
    for (uint32_t path = 0; path < liveness->used; path++) {
        int64_t at_ns = pe_liveness_charge(liveness, path, before_ns, now_ns);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
        pe->keys[changed].value = path;
        changed += pe_liveness_changed(liveness, path);
    }
    /* orders first: what they do is urgent, what Python reads is not */
    if (liveness->moved || pe->watches.changed) {
        liveness->moved = false;
        pe_watches_evaluate(&pe->watches, liveness->report, now_ns);
        events += give_orders(pe, now_ns, system_ns);
    }
    bool all_reported = true;
    for (uint32_t i = 0; i < changed && all_reported; i++) {
        all_reported = report(pe, pe->keys[i].value, now_ns, system_ns);
        events += all_reported;
    }
    liveness->all = liveness->all && !all_reported;
    liveness->next_ns = all_reported || next_ns < now_ns + AGAIN_NS ? next_ns : now_ns + AGAIN_NS;
    return events;
}
