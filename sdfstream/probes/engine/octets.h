/* Numbers as octets in network byte order, and division that rounds down. */
#ifndef PE_OCTETS_H
#define PE_OCTETS_H

#include <stdint.h>

static inline uint16_t pe_get16(const uint8_t *at)
{
    return (uint16_t)(((unsigned)at[0] << 8) | at[1]);
}

static inline uint32_t pe_get32(const uint8_t *at)
{
    return ((uint32_t)pe_get16(at) << 16) | pe_get16(at + 2);
}

static inline uint64_t pe_get64(const uint8_t *at)
{
    return ((uint64_t)pe_get32(at) << 32) | pe_get32(at + 4);
}

static inline void pe_put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)(value & 0xFF);
}

static inline void pe_put32(uint8_t *at, uint32_t value)
{
    pe_put16(at, (uint16_t)(value >> 16));
    pe_put16(at + 2, (uint16_t)(value & 0xFFFF));
}

static inline void pe_put64(uint8_t *at, uint64_t value)
{
    pe_put32(at, (uint32_t)(value >> 32));
    pe_put32(at + 4, (uint32_t)(value & 0xFFFFFFFFu));
}

/* Quotient rounded down, as Python's //; C rounds towards zero. `by` is positive. */
static inline int64_t pe_floor_div(int64_t value, int64_t by)
{
    int64_t quotient = value / by;
    return quotient - (value % by < 0);
}

/* Sum and product that wrap, as numpy's: signed overflow is undefined in C, and octets from outside may cause it. */
static inline int64_t pe_add_wrap(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t pe_sub_wrap(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

#endif
