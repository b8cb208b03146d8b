/* A ring of entries of one size in memory that another thread or process reads without a copy (numpy over a memfd).
 *
 * One producer, one consumer. The header is four cache lines, so that neither writes into a line that the other polls:
 *
 *   0: magic, ABI, octets of an entry, capacity | 64: head | 128: tail | 192: dropped | 256: entries
 *
 * `head` counts the entries ever written, `tail` those ever released; both only grow, and entry n lies at n modulo the
 * capacity. What the consumer sees below `head` is whole: the entry is written before `head` is stored with release and
 * `head` is loaded with acquire before the entry is read. A full ring drops the new entry and counts it; the producer
 * never waits. */
#ifndef PE_RING_H
#define PE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PE_RING_MAGIC UINT32_C(0x676E7270) /* "prng" in memory */
#define PE_RING_LINE_OCTETS 64

typedef struct pe_ring_header {
    uint32_t magic;
    uint32_t abi;
    uint32_t entry_octets;
    uint32_t capacity; /* entries, a power of two */
    uint8_t pad0[PE_RING_LINE_OCTETS - 16];
    _Atomic uint64_t head;
    uint8_t pad1[PE_RING_LINE_OCTETS - 8];
    _Atomic uint64_t tail;
    uint8_t pad2[PE_RING_LINE_OCTETS - 8];
    _Atomic uint64_t dropped;
    uint8_t pad3[PE_RING_LINE_OCTETS - 8];
} pe_ring_header;

/* The producer's or consumer's own view: what it needs not read from memory that the other end may write. */
typedef struct pe_ring {
    pe_ring_header *header;
    uint8_t *entries;
    uint64_t mask;
    size_t entry_octets;
} pe_ring;

/* Octets that a ring takes; 0: the capacity is no power of two, or too large. */
size_t pe_ring_octets(uint32_t capacity, size_t entry_octets);

/* Make an empty ring in `memory`, aligned to a cache line. */
void pe_ring_make(pe_ring *ring, void *memory, uint32_t capacity, size_t entry_octets);

/* Producer: room for the next entry; NULL: full, and the entry is counted as dropped. */
void *pe_ring_room(pe_ring *ring);

/* Producer: the entry in the room given is whole. */
void pe_ring_written(pe_ring *ring);

/* Consumer: how many entries there are, and the number of the first. */
uint64_t pe_ring_take(pe_ring *ring, uint64_t *first);

/* Consumer: entries below `upto` are read. Any other number than one from the last take is ignored. */
void pe_ring_done(pe_ring *ring, uint64_t upto);

/* Either end: entries ever written. */
uint64_t pe_ring_ever_written(const pe_ring *ring);

uint64_t pe_ring_dropped(const pe_ring *ring);

#endif
