/* The clock that a host shows: the system clock itself, or one that is wrong on purpose (probes/virtual_clock.py).
 *
 * shown = system + offset + skew * (system - epoch) + wander. The wander is a straight line between knots 100 ms
 * apart; Python draws the knots (it takes a logarithm and a cosine) and hands over those of the next minutes. All else
 * is exact integer arithmetic, so C and Python agree to the nanosecond. */
#ifndef PE_CLOCK_H
#define PE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PE_KNOT_NS INT64_C(100000000)

typedef struct pe_clock {
    int64_t offset_ns;
    int64_t skew_micro_ppb; /* in steps of 1e-6 ppb */
    int64_t epoch_at_ns;
    int64_t first_knot;       /* number of the first of `knots_ns` */
    const int64_t *knots_ns;  /* NULL: no wander. Belongs to the caller, who replaces it between turns */
    size_t knots;             /* how many; before the first and behind the last the wander stands still */
    bool wrong;               /* false: the system clock itself */
} pe_clock;

/* What the clock shows at a system instant; PE_ABSENT_NS stays. */
int64_t pe_clock_reading(const pe_clock *clock, int64_t system_ns);

#endif
