/* How the engine's thread does: durations in histograms that another thread may read at any time. */
#ifndef PE_MEASURES_H
#define PE_MEASURES_H

#include <stdatomic.h>
#include <stdint.h>

#define PE_BINS 160 /* four an octave: a quantile is known to a fifth */

typedef struct pe_histogram {
    _Atomic uint64_t bins[PE_BINS]; /* how many durations were in each, ever */
} pe_histogram;

static inline void pe_count(_Atomic uint64_t *counter, uint64_t n)
{
    /* one writer: no locked instruction is needed */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

/* The bin of a duration; of 4 ns or less, the first ones. */
static inline uint32_t pe_bin_of(int64_t ns)
{
    if (ns < 4)
        return ns < 0 ? 0 : (uint32_t)ns;
    uint32_t octave = 63 - (uint32_t)__builtin_clzll((uint64_t)ns);
    uint32_t bin = 4 * (octave - 1) + (uint32_t)((uint64_t)ns >> (octave - 2) & 3);
    return bin < PE_BINS ? bin : PE_BINS - 1;
}

/* The least duration of a bin. */
static inline int64_t pe_bin_least_ns(uint32_t bin)
{
    return bin < 4 ? (int64_t)bin : (int64_t)(UINT64_C(4) + bin % 4) << (bin / 4 - 1);
}

static inline void pe_histogram_add(pe_histogram *histogram, int64_t ns)
{
    pe_count(&histogram->bins[pe_bin_of(ns)], 1);
}

#endif
