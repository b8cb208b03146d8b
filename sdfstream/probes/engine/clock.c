#include "clock.h"

#include "datagram.h"
#include "octets.h"

#define MICRO_PPB INT64_C(1000000)

/* skew * elapsed / 1e15, rounded down, cut so that no product leaves 64 bits. */
static int64_t skewed(int64_t skew_micro_ppb, int64_t elapsed_ns)
{
    int64_t ppb = pe_floor_div(skew_micro_ppb, MICRO_PPB);
    int64_t rest = skew_micro_ppb - ppb * MICRO_PPB;
    int64_t seconds = pe_floor_div(elapsed_ns, PE_NS_PER_S);
    int64_t below = elapsed_ns - seconds * PE_NS_PER_S;
    int64_t nano = seconds * (rest * 1000) + below * ppb + pe_floor_div(below * rest, MICRO_PPB);
    return seconds * ppb + pe_floor_div(nano, PE_NS_PER_S);
}

static int64_t knot_ns(const pe_clock *clock, int64_t number)
{
    int64_t index = number - clock->first_knot;
    int64_t last = (int64_t)clock->knots - 1;
    return clock->knots_ns[index < 0 ? 0 : index > last ? last : index];
}

static int64_t wander_ns(const pe_clock *clock, int64_t elapsed_ns)
{
    int64_t knot = pe_floor_div(elapsed_ns, PE_KNOT_NS);
    int64_t beyond = elapsed_ns - knot * PE_KNOT_NS;
    int64_t low = knot_ns(clock, knot);
    int64_t high = knot_ns(clock, knot + 1);
    return low + pe_floor_div((high - low) * beyond, PE_KNOT_NS);
}

int64_t pe_clock_reading(const pe_clock *clock, int64_t system_ns)
{
    if (!clock->wrong || system_ns == PE_ABSENT_NS)
        return system_ns;
    int64_t elapsed_ns = pe_sub_wrap(system_ns, clock->epoch_at_ns);
    int64_t shown_ns = pe_add_wrap(system_ns, clock->offset_ns);
    if (clock->skew_micro_ppb != 0)
        shown_ns = pe_add_wrap(shown_ns, skewed(clock->skew_micro_ppb, elapsed_ns));
    if (clock->knots > 0)
        shown_ns = pe_add_wrap(shown_ns, wander_ns(clock, elapsed_ns));
    return shown_ns;
}
