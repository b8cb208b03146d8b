/* Numbers for phases and jitter: splitmix64 (Steele, Lea, Flood 2014). Eight octets of state, and Python makes the same
 * sequence in five lines, which is what the tests need; nothing here is a secret. */
#ifndef PE_JITTER_H
#define PE_JITTER_H

#include <stdint.h>

typedef struct pe_jitter {
    uint64_t state;
} pe_jitter;

static inline uint64_t pe_jitter_next(pe_jitter *jitter)
{
    uint64_t z = jitter->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Uniform in [0, 1), of 53 bits as numpy's. */
static inline double pe_jitter_unit(pe_jitter *jitter)
{
    return (double)(pe_jitter_next(jitter) >> 11) * 0x1.0p-53;
}

#endif
