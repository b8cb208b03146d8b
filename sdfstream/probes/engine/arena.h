/* One block of memory for everything: counted in a first pass, carved in a second, so that nothing is allocated after
 * the start and one `free` ends it. */
#ifndef PE_ARENA_H
#define PE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#define PE_ARENA_LINE 64

typedef struct pe_arena {
    uint8_t *memory; /* NULL: count only */
    size_t used;
} pe_arena;

/* `n` zeroed entries, aligned to a cache line; NULL while counting. */
static inline void *pe_carve(pe_arena *arena, size_t n, size_t octets)
{
    size_t first = arena->used;
    arena->used += (n * octets + PE_ARENA_LINE - 1) / PE_ARENA_LINE * PE_ARENA_LINE;
    return arena->memory ? arena->memory + first : NULL;
}

#endif
