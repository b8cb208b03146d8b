#include "requester.h"

#include <stdlib.h>

#define REORDER 4
#define LOOKAHEAD 8
#define STALL_NS (60 * JE_NS_PER_MS)
#define PACING_GAIN 1.25

void je_requester_begin(je_requester *qp, uint32_t run, uint32_t number, uint16_t path, int64_t now_ns)
{
    *qp = (je_requester){.run = run, .number = number, .path = path, .next_tx = 1, .progress_ns = now_ns};
    je_window_begin(&qp->window);
    je_pacer_begin(&qp->pacer, now_ns);
    je_queue_begin(&qp->order, sizeof(je_transmission));
    je_queue_begin(&qp->lost, sizeof(uint64_t));
}

static void forget(je_requester *qp, je_chunk *chunk)
{
    *(chunk->before ? &chunk->before->behind : &qp->oldest) = chunk->behind;
    *(chunk->behind ? &chunk->behind->before : &qp->newest) = chunk->before;
    je_piece_release(chunk->piece);
    free(chunk);
}

void je_requester_end(je_requester *qp)
{
    while (qp->oldest)
        forget(qp, qp->oldest);
    je_queue_end(&qp->order);
    je_queue_end(&qp->lost);
}

bool je_requester_has_room(const je_requester *qp)
{
    return qp->fresh_packets < LOOKAHEAD;
}

static int64_t stall_ns(const je_requester *qp)
{
    int64_t time_out_ns = je_round_trip_time_out_ns(&qp->round_trip);
    return time_out_ns > STALL_NS ? time_out_ns : STALL_NS;
}

bool je_requester_stalled(const je_requester *qp, int64_t now_ns)
{
    return qp->unacknowledged && now_ns - qp->progress_ns > stall_ns(qp);
}

void je_requester_push(je_requester *qp, je_piece *piece, int64_t now_ns)
{
    if (!qp->unacknowledged && !qp->fresh)
        qp->progress_ns = now_ns;
    je_chunk *chunk = je_memory(sizeof *chunk);
    chunk->piece = piece;
    piece->holders++;
    chunk->number = qp->next_chunk++;
    chunk->packets = chunk->unacknowledged = je_packets_of(piece->octets);
    chunk->before = qp->newest;
    *(qp->newest ? &qp->newest->behind : &qp->oldest) = chunk;
    qp->newest = chunk;
    if (!qp->fresh)
        qp->fresh = chunk;
    qp->fresh_packets += chunk->packets;
}

static je_sent *sent_at(const je_requester *qp, uint64_t psn)
{
    return (je_sent *)&qp->sent[psn % JE_WINDOW];
}

/* The packet `psn` where it is unacknowledged; else NULL. */
static je_sent *unacknowledged(const je_requester *qp, uint64_t psn)
{
    je_sent *sent = sent_at(qp, psn);
    return sent->unacknowledged && sent->psn == psn ? sent : NULL;
}

/* The packet of a transmission that is still in flight; else NULL. */
static je_sent *flying(const je_requester *qp, const je_transmission *transmission)
{
    je_sent *sent = unacknowledged(qp, transmission->psn);
    return sent && sent->tx == transmission->tx && sent->in_flight ? sent : NULL;
}

static void lose(je_requester *qp, je_sent *sent)
{
    sent->in_flight = false;
    qp->in_flight--;
    je_queue_push(&qp->lost, &sent->psn);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Take everything in flight for lost; the lowest numbers go first. */
static void lose_all(je_requester *qp)
{
    for (uint32_t i = 0; i < qp->order.n; i++) {
        je_sent *sent = flying(qp, je_queue_at(&qp->order, i));
        if (sent)
            lose(qp, sent);
    }
    qp->order.n = 0;
    uint32_t n = 0;
    uint64_t *numbers = je_memory(qp->lost.n * sizeof *numbers);
    for (uint32_t i = 0; i < qp->lost.n; i++) {
        uint64_t psn = *(uint64_t *)je_queue_at(&qp->lost, i);
        if (unacknowledged(qp, psn))
            numbers[n++] = psn;
    }
    qsort(numbers, n, sizeof *numbers, by_number);
    qp->lost.n = 0;
    for (uint32_t i = 0; i < n; i++)
        je_queue_push(&qp->lost, &numbers[i]);
    free(numbers);
}

void je_requester_steer(je_requester *qp, uint16_t path, int64_t now_ns)
{
    if (path == qp->path)
        return;
    qp->path = path;
    qp->moved = false;
    qp->stamp_move = true;
    qp->path_begins_tx = qp->next_tx;
    lose_all(qp);
    je_window_on_new_path(&qp->window, qp->next_tx);
    je_pacer_begin(&qp->pacer, now_ns);
    qp->round_trip.times = 0;
    qp->progress_ns = now_ns;
}

static double rate_bps(const je_requester *qp)
{
    int64_t smoothed_ns = qp->round_trip.smoothed_ns;
    double rtt_ns = (double)(smoothed_ns > JE_NS_PER_MS ? smoothed_ns : JE_NS_PER_MS);
    double gain = je_window_in_slow_start(&qp->window) ? 2.0 : PACING_GAIN;
    double paced = gain * qp->window.packets * 1514 * 8e9 / rtt_ns;
    return qp->rate_bps && (double)qp->rate_bps < paced ? (double)qp->rate_bps : paced;
}

/* The oldest transmission in flight, after the former ones are forgotten; NULL: none. */
static je_sent *oldest_flying(je_requester *qp)
{
    for (; qp->order.n; je_queue_pop(&qp->order)) {
        je_sent *sent = flying(qp, je_queue_at(&qp->order, 0));
        if (sent)
            return sent;
    }
    return NULL;
}

void je_requester_poll(je_requester *qp, int64_t now_ns)
{
    je_sent *oldest = oldest_flying(qp);
    if (oldest && now_ns - oldest->sent_ns > je_round_trip_time_out_ns(&qp->round_trip)) {
        qp->time_outs++;
        int times = je_round_trip_on_time_out(&qp->round_trip);
        lose_all(qp);
        je_window_on_time_out(&qp->window, times);
    }
    je_pacer_refill(&qp->pacer, rate_bps(qp), now_ns);
}

/* The packet to send next: lost ones first. */
static je_sent *next_sent(je_requester *qp)
{
    while (qp->lost.n) {
        je_sent *sent = unacknowledged(qp, *(uint64_t *)je_queue_at(&qp->lost, 0));
        je_queue_pop(&qp->lost);
        if (sent)
            return sent;
    }
    if (!qp->fresh || qp->next_psn >= qp->first_unacked + JE_WINDOW)
        return NULL;
    je_chunk *chunk = qp->fresh;
    je_sent *sent = sent_at(qp, qp->next_psn);
    *sent = (je_sent){.psn = qp->next_psn++, .chunk = chunk, .offset = chunk->next_offset, .unacknowledged = true};
    qp->unacknowledged++;
    qp->fresh_packets--;
    chunk->next_offset += JE_PAYLOAD_OCTETS;
    if (chunk->next_offset >= chunk->piece->octets)
        qp->fresh = chunk->behind;
    return sent;
}

static void transmit(je_requester *qp, je_sent *sent, je_packet *packet, int64_t now_ns)
{
    je_chunk *chunk = sent->chunk;
    const je_piece *piece = chunk->piece;
    bool again = sent->tx > 0;
    uint32_t left = piece->octets - sent->offset;
    uint32_t length = left < JE_PAYLOAD_OCTETS ? left : JE_PAYLOAD_OCTETS;
    uint8_t flags = again ? JE_AGAIN : 0;
    if (piece->done) {
        flags |= JE_VOID;
        length = 0;
        chunk->nothing = true;
    }
    sent->tx = qp->next_tx++;
    sent->sent_ns = now_ns;
    sent->in_flight = true;
    qp->in_flight++;
    je_queue_push(&qp->order, &(je_transmission){sent->tx, sent->psn});
    chunk->path = qp->path;
    qp->retransmits += again;
    chunk->retransmits += again;
    qp->sent_octets += length;
    je_header header = {
        .psn = sent->psn, .tx = sent->tx, .run = qp->run, .qp = qp->number, .chunk = chunk->number,
        .collective = piece->collective, .step = piece->step, .piece = piece->number, .chunk_octets = piece->octets,
        .offset = sent->offset, .length = (uint16_t)length, .flags = flags,
    };
    packet->octets = (uint32_t)je_write_data(packet->data, &header, piece->data + sent->offset);
    packet->port = qp->path;
    packet->chunk = chunk->number;
    packet->asks = (uint8_t)((!again && sent->offset == 0 ? JE_FIRST_OF_CHUNK : 0) |
                             (qp->stamp_move ? JE_FIRST_ON_PATH : 0));
    qp->stamp_move = false;
    je_pacer_spend(&qp->pacer, packet->octets);
}

bool je_requester_next(je_requester *qp, je_packet *packet, int64_t now_ns)
{
    if ((double)qp->in_flight >= qp->window.packets || qp->pacer.credit <= 0.0)
        return false;
    je_sent *sent = next_sent(qp);
    if (sent)
        transmit(qp, sent, packet, now_ns);
    return sent != NULL;
}

static void finish_chunk(je_requester *qp, je_chunk *chunk, const je_ack *ack,
                         void (*finish)(void *context, const je_finished *finished), void *context)
{
    je_finished finished = {.chunk = chunk, .first = !chunk->piece->done};
    for (uint32_t i = 0; i < ack->count; i++)
        if (ack->reports[i].chunk == chunk->number)
            finished.report = &ack->reports[i];
    if (finished.first) {
        chunk->piece->done = true;
        qp->acknowledged_octets += chunk->piece->octets;
    }
    finish(context, &finished);
    forget(qp, chunk);
}

/* Draw the conclusions of an acknowledgement: progress, marks, losses. */
static void update_window(je_requester *qp, const je_ack *ack, int64_t acked, int64_t now_ns, bool full)
{
    uint32_t received = ack->received - qp->received;
    uint32_t marked = ack->ce - qp->ce;
    if (received >= UINT32_C(1) << 31) { /* an older acknowledgement that was overtaken */
        marked = 0;
    } else {
        qp->received = ack->received;
        qp->ce = ack->ce;
    }
    if (acked) {
        qp->progress_ns = now_ns;
        qp->round_trip.times = 0;
    }
    if (ack->newest_tx > qp->newest_tx)
        qp->newest_tx = ack->newest_tx;
    if (ack->newest_tx < qp->path_begins_tx)
        return; /* of the former path */
    je_window_on_ack(&qp->window, acked, marked, qp->newest_tx, qp->next_tx, full);
    bool found = false;
    for (je_sent *sent; (sent = oldest_flying(qp)) && sent->tx + REORDER <= qp->newest_tx; found = true) {
        lose(qp, sent);
        je_queue_pop(&qp->order);
    }
    if (found)
        je_window_on_loss(&qp->window, qp->newest_tx, qp->next_tx);
}

void je_requester_on_ack(je_requester *qp, const je_ack *ack, int64_t now_ns,
                         void (*finish)(void *context, const je_finished *finished), void *context)
{
    uint32_t bits = je_bits(ack->ahead);
    if (ack->cumulative > qp->next_psn || ack->cumulative + bits > qp->next_psn || ack->newest_tx >= qp->next_tx) {
        qp->refused++;
        return;
    }
    bool full = (double)(qp->in_flight + LOOKAHEAD / 2) >= qp->window.packets;
    int64_t acked = 0;
    for (uint64_t psn = qp->first_unacked; psn < ack->cumulative + bits; psn++) {
        if (psn >= ack->cumulative) {
            uint64_t bit = psn - ack->cumulative;
            if (!(ack->ahead[bit / 64] >> bit % 64 & 1))
                continue;
        }
        je_sent *sent = unacknowledged(qp, psn);
        if (!sent)
            continue;
        acked++;
        if (sent->in_flight) {
            qp->in_flight--;
            sent->in_flight = false;
            if (sent->tx == ack->newest_tx)
                je_round_trip_measure(&qp->round_trip, now_ns - sent->sent_ns);
        }
        sent->unacknowledged = false;
        qp->unacknowledged--;
        if (--sent->chunk->unacknowledged == 0)
            finish_chunk(qp, sent->chunk, ack, finish, context);
    }
    if (ack->cumulative > qp->first_unacked)
        qp->first_unacked = ack->cumulative;
    update_window(qp, ack, acked, now_ns, full);
}

void je_requester_departed(je_requester *qp, uint8_t asks, uint32_t chunk, uint16_t path, int64_t at_ns)
{
    if (asks & JE_FIRST_ON_PATH && qp->path == path) {
        qp->moved_at_ns = at_ns;
        qp->moved = true;
    }
    if (!(asks & JE_FIRST_OF_CHUNK))
        return;
    for (je_chunk *one = qp->newest; one; one = one->before)
        if (one->number == chunk)
            one->sent_at_ns = at_ns;
}

int64_t je_requester_next_ns(const je_requester *qp, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    if ((qp->lost.n || (qp->fresh && qp->next_psn < qp->first_unacked + JE_WINDOW)) &&
        (double)qp->in_flight < qp->window.packets)
        next_ns = je_pacer_next_ns(&qp->pacer, rate_bps(qp));
    for (uint32_t i = 0; i < qp->order.n; i++) {
        const je_sent *sent = flying(qp, je_queue_at(&qp->order, i));
        if (sent) {
            int64_t over_ns = sent->sent_ns + je_round_trip_time_out_ns(&qp->round_trip) + 1;
            next_ns = over_ns < next_ns ? over_ns : next_ns;
            break;
        }
    }
    int64_t stalled_ns = qp->progress_ns + stall_ns(qp) + 1;
    if (qp->unacknowledged && stalled_ns > now_ns && stalled_ns < next_ns)
        next_ns = stalled_ns;
    return next_ns;
}
