#include "responder.h"

#include <stdlib.h>
#include <string.h>

#define REPORT_REPEATS 6
#define ACK_EVERY 2
#define ACK_DELAY_NS INT64_C(6000000)
#define MOST_CHUNKS JE_WINDOW

void je_responder_begin(je_responder *qp, uint32_t run, uint32_t number)
{
    *qp = (je_responder){.run = run, .number = number, .ack_due_ns = INT64_MAX};
}

/* Take a chunk, which `before` is in front of, out of the list. */
static void unlink_chunk(je_responder *qp, je_incoming *before, je_incoming *chunk)
{
    *(before ? &before->behind : &qp->oldest) = chunk->behind;
    if (qp->newest == chunk)
        qp->newest = before;
    qp->chunks--;
}

void je_responder_end(je_responder *qp)
{
    while (qp->oldest) {
        je_incoming *chunk = qp->oldest;
        unlink_chunk(qp, NULL, chunk);
        free(chunk);
    }
}

static bool is_of(const je_incoming *chunk, const je_header *header, uint64_t first_psn)
{
    return chunk->first_psn == first_psn && chunk->octets == header->chunk_octets &&
           chunk->collective == header->collective && chunk->step == header->step && chunk->piece == header->piece;
}

static je_incoming *add_chunk(je_responder *qp, const je_header *header, uint64_t first_psn, int64_t at_ns)
{
    je_incoming *chunk = je_memory(sizeof *chunk + header->chunk_octets);
    chunk->number = header->chunk;
    chunk->collective = header->collective;
    chunk->step = header->step;
    chunk->piece = header->piece;
    chunk->octets = header->chunk_octets;
    chunk->missing = je_packets_of(header->chunk_octets);
    chunk->first_psn = first_psn;
    chunk->last_psn = first_psn + chunk->missing - 1;
    chunk->arrived_at_ns = at_ns;
    *(qp->newest ? &qp->newest->behind : &qp->oldest) = chunk;
    qp->newest = chunk;
    qp->chunks++;
    return chunk;
}

/* Packet cumulative + `beyond` is here. */
static void mark(je_responder *qp, uint32_t beyond)
{
    uint64_t *ahead = qp->ahead;
    ahead[beyond / 64] |= UINT64_C(1) << beyond % 64;
    while (ahead[0] & 1) {
        uint32_t ones = ~ahead[0] ? (uint32_t)__builtin_ctzll(~ahead[0]) : 64;
        for (unsigned i = 0; i < JE_WINDOW_WORDS; i++) {
            uint64_t above = i + 1 < JE_WINDOW_WORDS ? ahead[i + 1] : 0;
            ahead[i] = ones == 64 ? above : ahead[i] >> ones | above << (64 - ones);
        }
        qp->cumulative += ones;
    }
}

static void report(je_responder *qp, const je_incoming *chunk, int64_t at_ns)
{
    if (qp->report_count == JE_REPORTS)
        memmove(&qp->reports[0], &qp->reports[1], --qp->report_count * sizeof qp->reports[0]);
    qp->reports[qp->report_count++] = (je_repeated){
        {.chunk = chunk->number, .ce = chunk->ce, .arrived_at_ns = chunk->arrived_at_ns, .completed_at_ns = at_ns},
        qp->acks + REPORT_REPEATS,
    };
}

/* Drop the chunks all of whose packets have arrived without completing them: some were void. */
static void forget_passed(je_responder *qp)
{
    while (qp->oldest && qp->oldest->last_psn < qp->cumulative) {
        je_incoming *chunk = qp->oldest;
        unlink_chunk(qp, NULL, chunk);
        free(chunk);
    }
}

/* What arrived is new: its octets, and the chunk where it is complete. */
static je_incoming *take_new(je_responder *qp, const je_header *header, const uint8_t *payload, int64_t at_ns, bool ce)
{
    uint64_t index = header->offset / JE_PAYLOAD_OCTETS;
    je_incoming *before = NULL, *chunk = qp->oldest;
    while (chunk && chunk->number != header->chunk) {
        before = chunk;
        chunk = chunk->behind;
    }
    bool fits = chunk ? is_of(chunk, header, header->psn - index) : header->psn >= index && qp->chunks < MOST_CHUNKS;
    if (!fits) {
        qp->refused++;
        return NULL;
    }
    if (!chunk)
        chunk = add_chunk(qp, header, header->psn - index, at_ns);
    mark(qp, (uint32_t)(header->psn - qp->cumulative));
    chunk->ce += ce;
    if (!(header->flags & JE_VOID)) {
        memcpy(chunk->data + header->offset, payload, header->length);
        if (--chunk->missing == 0) {
            unlink_chunk(qp, before, chunk);
            report(qp, chunk, at_ns);
            qp->at_once = true;
            forget_passed(qp);
            return chunk;
        }
    }
    forget_passed(qp);
    return NULL;
}

je_incoming *je_responder_take(je_responder *qp, const je_header *header, const uint8_t *payload, uint16_t source_port,
                               int64_t at_ns, bool ce)
{
    bool old = header->psn < qp->cumulative;
    if ((!old && header->psn - qp->cumulative >= JE_WINDOW) || !header->tx) {
        qp->refused++;
        return NULL;
    }
    qp->pending++;
    qp->received++;
    qp->ce += ce;
    if (header->psn != qp->cumulative || je_bits(qp->ahead) || header->flags & JE_AGAIN || ce != qp->marked)
        qp->at_once = true;
    qp->marked = ce;
    if (header->tx > qp->newest_tx) {
        qp->newest_tx = header->tx;
        qp->at_once |= source_port != qp->ack_path;
        qp->ack_path = source_port;
    }
    uint64_t beyond = header->psn - qp->cumulative;
    if (old || qp->ahead[beyond / 64] >> beyond % 64 & 1) {
        qp->duplicates++;
        return NULL;
    }
    return take_new(qp, header, payload, at_ns, ce);
}

uint32_t je_responder_acknowledge(je_responder *qp, uint8_t *out, int64_t now_ns)
{
    if (!qp->pending)
        return 0;
    if (!qp->at_once && qp->pending < ACK_EVERY) {
        if (qp->ack_due_ns == INT64_MAX)
            qp->ack_due_ns = now_ns + ACK_DELAY_NS;
        if (now_ns < qp->ack_due_ns)
            return 0;
    }
    qp->pending = 0;
    qp->at_once = false;
    qp->ack_due_ns = INT64_MAX;
    je_ack ack = {
        .cumulative = qp->cumulative, .newest_tx = qp->newest_tx, .run = qp->run, .qp = qp->number,
        .received = qp->received, .ce = qp->ce, .count = qp->report_count,
    };
    memcpy(ack.ahead, qp->ahead, sizeof ack.ahead);
    for (uint32_t i = 0; i < qp->report_count; i++)
        ack.reports[i] = qp->reports[i].report;
    qp->acks++;
    uint32_t over = 0;
    while (over < qp->report_count && qp->reports[over].until_acks <= qp->acks)
        over++;
    qp->report_count -= over;
    memmove(&qp->reports[0], &qp->reports[over], qp->report_count * sizeof qp->reports[0]);
    return (uint32_t)je_write_ack(out, &ack);
}
