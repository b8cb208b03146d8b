#include "collective.h"

#include <stdlib.h>
#include <string.h>

#define OCTETS 4
#define INDEX UINT32_C(2654435761)
#define RANK UINT32_C(2246822519)
#define COLLECTIVE UINT32_C(3266489917)
#define PEER UINT32_C(668265263)

/* The index-th number of the input of `rank` to an all-reduce; sums are modulo 2^32. */
static uint32_t brought(uint32_t rank, uint32_t collective, uint32_t index)
{
    return index * INDEX + rank * RANK + collective * COLLECTIVE;
}

static uint32_t total(uint32_t ranks, uint32_t collective, uint32_t index)
{
    return index * INDEX * ranks + ranks * (ranks - 1) / 2 * RANK + ranks * collective * COLLECTIVE;
}

/* The index-th number of the block from `rank` to `peer` in an all-to-all. */
static uint32_t sent_to(uint32_t rank, uint32_t peer, uint32_t collective, uint32_t index)
{
    return index * INDEX + rank * RANK + peer * PEER + collective * COLLECTIVE;
}

je_collective *je_collective_new(const je_shape *shape, uint32_t rank, uint32_t number)
{
    je_collective *made = je_memory(sizeof *made);
    made->shape = *shape;
    made->rank = rank;
    made->number = number;
    made->segment = shape->elements / shape->ranks;
    made->pieces = (made->segment + shape->chunk_elements - 1) / shape->chunk_elements;
    made->data = je_memory((size_t)shape->elements * OCTETS);
    if (shape->kind == JE_ALL_REDUCE) {
        made->last_step = 2 * (shape->ranks - 1) - 1;
        made->missing = (made->last_step + 1) * made->pieces;
        made->seen = je_memory(made->missing);
        for (uint32_t i = 0; i < shape->elements; i++)
            made->data[i] = brought(rank, number, i);
    } else {
        made->missing = (shape->ranks - 1) * made->pieces;
        made->seen = je_memory((size_t)shape->ranks * made->pieces);
    }
    return made;
}

void je_collective_free(je_collective *collective)
{
    if (!collective)
        return;
    free(collective->seen);
    free(collective->data);
    free(collective);
}

/* Elements of a piece. */
static uint32_t piece_elements(const je_collective *collective, uint32_t piece)
{
    uint32_t first = piece * collective->shape.chunk_elements;
    uint32_t left = collective->segment - first;
    return left < collective->shape.chunk_elements ? left : collective->shape.chunk_elements;
}

static uint32_t *span(const je_collective *collective, uint32_t segment, uint32_t piece)
{
    return collective->data + (size_t)segment * collective->segment +
           (size_t)piece * collective->shape.chunk_elements;
}

static void pass_on(const je_collective *collective, uint32_t step, uint32_t segment, uint32_t piece, je_send *send,
                    void *context)
{
    uint32_t octets = piece_elements(collective, piece) * OCTETS;
    send(context, (collective->rank + 1) % collective->shape.ranks,
         je_piece_new(collective->number, step, piece, span(collective, segment, piece), octets));
}

static void start_all_to_all(je_collective *collective, je_send *send, void *context)
{
    uint32_t ranks = collective->shape.ranks;
    uint32_t *values = je_memory((size_t)collective->shape.chunk_elements * OCTETS);
    for (uint32_t piece = 0; piece < collective->pieces; piece++)
        for (uint32_t step = 1; step < ranks; step++) {
            uint32_t peer = (collective->rank + step) % ranks;
            uint32_t n = piece_elements(collective, piece), first = piece * collective->shape.chunk_elements;
            for (uint32_t i = 0; i < n; i++)
                values[i] = sent_to(collective->rank, peer, collective->number, first + i);
            send(context, peer, je_piece_new(collective->number, collective->rank, piece, values, n * OCTETS));
        }
    free(values);
}

void je_collective_start(je_collective *collective, je_send *send, void *context)
{
    if (collective->shape.kind == JE_ALL_TO_ALL) {
        start_all_to_all(collective, send, context);
        return;
    }
    for (uint32_t piece = 0; piece < collective->pieces; piece++)
        pass_on(collective, 0, collective->rank, piece, send, context);
}

/* The segment that comes in `step` of an all-reduce. */
static uint32_t segment_of(const je_collective *collective, uint32_t step)
{
    uint32_t ranks = collective->shape.ranks;
    uint32_t back = step < ranks - 1 ? 1 + step : step - ranks + 1;
    return (collective->rank + 2 * ranks - back) % ranks;
}

static bool in_place(const je_collective *collective, uint32_t peer, const je_incoming *chunk)
{
    uint32_t ranks = collective->shape.ranks;
    bool right = collective->shape.kind == JE_ALL_TO_ALL
                     ? chunk->step == peer
                     : peer == (collective->rank + ranks - 1) % ranks && chunk->step <= collective->last_step;
    return right && chunk->piece < collective->pieces &&
           chunk->octets == piece_elements(collective, chunk->piece) * OCTETS;
}

enum je_refusal je_collective_take(je_collective *collective, uint32_t peer, const je_incoming *chunk, je_send *send,
                                   void *context)
{
    if (!in_place(collective, peer, chunk))
        return JE_OUT_OF_PLACE;
    uint8_t *seen = &collective->seen[chunk->step * collective->pieces + chunk->piece];
    if (*seen)
        return JE_DOUBLED;
    *seen = 1;
    collective->missing--;
    if (collective->shape.kind == JE_ALL_TO_ALL) {
        memcpy(span(collective, peer, chunk->piece), chunk->data, chunk->octets);
        return JE_TAKEN;
    }
    uint32_t segment = segment_of(collective, chunk->step);
    uint32_t *data = span(collective, segment, chunk->piece);
    if (chunk->step < collective->shape.ranks - 1) {
        for (uint32_t i = 0; i < chunk->octets / OCTETS; i++) {
            uint32_t came;
            memcpy(&came, chunk->data + (size_t)i * OCTETS, OCTETS);
            data[i] += came;
        }
    } else {
        memcpy(data, chunk->data, chunk->octets);
    }
    if (chunk->step < collective->last_step)
        pass_on(collective, chunk->step + 1, segment, chunk->piece, send, context);
    return JE_TAKEN;
}

bool je_collective_is_right(const je_collective *collective)
{
    const je_shape *shape = &collective->shape;
    for (uint32_t i = 0; i < shape->elements; i++) {
        uint32_t peer = i / collective->segment, wanted;
        if (shape->kind == JE_ALL_REDUCE)
            wanted = total(shape->ranks, collective->number, i);
        else if (peer == collective->rank)
            continue;
        else
            wanted = sent_to(peer, collective->rank, collective->number, i % collective->segment);
        if (collective->data[i] != wanted)
            return false;
    }
    return true;
}
