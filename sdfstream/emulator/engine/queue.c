#include "queue.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 16

void *je_memory(size_t octets)
{
    void *memory = calloc(1, octets ? octets : 1);
    if (memory == NULL)
        abort();
    return memory;
}

void je_queue_begin(je_queue *queue, uint32_t octets)
{
    *queue = (je_queue){.octets = octets};
}

void je_queue_end(je_queue *queue)
{
    free(queue->memory);
    *queue = (je_queue){.octets = queue->octets};
}

void *je_queue_at(const je_queue *queue, uint32_t i)
{
    return queue->memory + (size_t)((queue->first + i) & (queue->room - 1)) * queue->octets;
}

static void make_room(je_queue *queue)
{
    if (queue->n < queue->room)
        return;
    uint32_t room = queue->room ? 2 * queue->room : FIRST_ROOM;
    uint8_t *memory = je_memory((size_t)room * queue->octets);
    for (uint32_t i = 0; i < queue->n; i++)
        memcpy(memory + (size_t)i * queue->octets, je_queue_at(queue, i), queue->octets);
    free(queue->memory);
    queue->memory = memory;
    queue->room = room;
    queue->first = 0;
}

void je_queue_push(je_queue *queue, const void *entry)
{
    make_room(queue);
    memcpy(je_queue_at(queue, queue->n++), entry, queue->octets);
}

void je_queue_push_front(je_queue *queue, const void *entry)
{
    make_room(queue);
    queue->first = (queue->first - 1) & (queue->room - 1);
    queue->n++;
    memcpy(je_queue_at(queue, 0), entry, queue->octets);
}

void je_queue_pop(je_queue *queue)
{
    queue->first = (queue->first + 1) & (queue->room - 1);
    queue->n--;
}

je_piece *je_piece_new(uint32_t collective, uint32_t step, uint32_t number, const void *data, uint32_t octets)
{
    je_piece *piece = je_memory(sizeof *piece + octets);
    piece->collective = collective;
    piece->step = step;
    piece->number = number;
    piece->octets = octets;
    memcpy(piece->data, data, octets);
    return piece;
}

void je_piece_release(je_piece *piece)
{
    if (--piece->holders == 0)
        free(piece);
}
