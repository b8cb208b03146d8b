#include "ring.h"

#include <string.h>

#include "engine.h"

_Static_assert(sizeof(pe_ring_header) == 4 * PE_RING_LINE_OCTETS, "the header is four cache lines");

size_t pe_ring_octets(uint32_t capacity, size_t entry_octets)
{
    if (capacity == 0 || (capacity & (capacity - 1)) != 0 || entry_octets == 0 || entry_octets > 4096)
        return 0;
    return sizeof(pe_ring_header) + capacity * entry_octets;
}

void pe_ring_make(pe_ring *ring, void *memory, uint32_t capacity, size_t entry_octets)
{
    pe_ring_header *header = memory;
    memset(header, 0, sizeof *header);
    header->abi = PE_ABI;
    header->entry_octets = (uint32_t)entry_octets;
    header->capacity = capacity;
    header->magic = PE_RING_MAGIC;
    ring->header = header;
    ring->entries = (uint8_t *)memory + sizeof *header;
    ring->mask = capacity - 1;
    ring->entry_octets = entry_octets;
}

void *pe_ring_room(pe_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_acquire);
    if (head - tail > ring->mask) {
        uint64_t dropped = atomic_load_explicit(&ring->header->dropped, memory_order_relaxed);
        atomic_store_explicit(&ring->header->dropped, dropped + 1, memory_order_relaxed);
        return NULL;
    }
    return ring->entries + (head & ring->mask) * ring->entry_octets;
}

void pe_ring_written(pe_ring *ring)
{
    uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_relaxed);
    atomic_store_explicit(&ring->header->head, head + 1, memory_order_release);
}

uint64_t pe_ring_take(pe_ring *ring, uint64_t *first)
{
    uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_acquire);
    *first = tail;
    return head - tail;
}

void pe_ring_done(pe_ring *ring, uint64_t upto)
{
    uint64_t tail = atomic_load_explicit(&ring->header->tail, memory_order_relaxed);
    uint64_t head = atomic_load_explicit(&ring->header->head, memory_order_relaxed);
    if (upto - tail <= head - tail)
        atomic_store_explicit(&ring->header->tail, upto, memory_order_release);
}

uint64_t pe_ring_ever_written(const pe_ring *ring)
{
    return atomic_load_explicit(&ring->header->head, memory_order_relaxed);
}

uint64_t pe_ring_dropped(const pe_ring *ring)
{
    return atomic_load_explicit(&ring->header->dropped, memory_order_relaxed);
}
