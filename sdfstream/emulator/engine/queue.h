/* A double-ended queue of fixed-size entries that grows as it must, and a piece of data that several of them share. */
#ifndef JE_QUEUE_H
#define JE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct je_queue {
    uint8_t *memory;
    uint32_t octets; /* of an entry */
    uint32_t room;   /* entries, a power of two or 0 */
    uint32_t first, n;
} je_queue;

void je_queue_begin(je_queue *queue, uint32_t octets);
void je_queue_end(je_queue *queue);
void je_queue_push(je_queue *queue, const void *entry);
void je_queue_push_front(je_queue *queue, const void *entry);
/* The i-th entry, valid until the next push. */
void *je_queue_at(const je_queue *queue, uint32_t i);
/* Discard the first entry. */
void je_queue_pop(je_queue *queue);

/* Memory of `octets`, zeroed; a job without memory ends its process: it has nothing to go on with. */
void *je_memory(size_t octets);

/* Octets from one rank to another: carried once, by whichever queue pair is first. */
typedef struct je_piece {
    uint32_t collective, step, number;
    uint32_t octets;
    uint32_t holders; /* freed when none is left */
    bool done;
    uint8_t data[];
} je_piece;

je_piece *je_piece_new(uint32_t collective, uint32_t step, uint32_t number, const void *data, uint32_t octets);
void je_piece_release(je_piece *piece);

#endif
