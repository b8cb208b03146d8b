#include "job.h"

#include <stdlib.h>

#include "job_state.h"

#define MOST_ROWS 20000
#define MOST_RANKS 64
#define MOST_QPS 4096
#define CE 3

static bool consistent(const je_config *config)
{
    return config->octets == sizeof *config && config->ranks >= 2 && config->ranks <= MOST_RANKS && config->qps &&
           config->qps <= MOST_QPS && config->collective <= JE_ALL_TO_ALL && config->elements &&
           config->elements % config->ranks == 0 && config->chunk_elements &&
           config->chunk_elements <= JE_MOST_CHUNK_OCTETS / sizeof(uint32_t);
}

static void add_qp(je_t *je, uint32_t index, const je_qp_plan *plan)
{
    je_ends *qp = &je->qps[index];
    *qp = (je_ends){.je = je, .index = index, .rank = plan->rank, .peer = plan->peer};
    je_requester_begin(&qp->requester, je->config.run, plan->number, (uint16_t)plan->path, je->config.now_ns);
    qp->requester.rate_bps = je->config.rate_bps;
    je_responder_begin(&qp->responder, je->config.run, plan->number);
    je_rank *rank = &je->ranks[plan->rank];
    for (uint32_t i = 0; i < rank->n; i++)
        if (rank->stripes[i].peer == plan->peer)
            rank->stripes[i].qps[rank->stripes[i].n++] = &qp->requester;
}

je_t *je_new(const je_config *config, const je_qp_plan *qps)
{
    if (!consistent(config))
        return NULL;
    for (uint32_t i = 0; i < config->qps; i++)
        if (qps[i].rank >= config->ranks || qps[i].peer >= config->ranks || qps[i].path > UINT16_MAX ||
            (i && qps[i].number <= qps[i - 1].number))
            return NULL;
    je_t *je = je_memory(sizeof *je);
    je->config = *config;
    je->shape = (je_shape){config->collective == JE_ALL_REDUCE ? JE_ALL_REDUCE : JE_ALL_TO_ALL, config->ranks,
                           config->elements, config->chunk_elements};
    je->qps = je_memory(config->qps * sizeof *je->qps);
    je->ranks = je_memory(config->ranks * sizeof *je->ranks);
    je_queue_begin(&je->rows, sizeof(je_row));
    for (uint32_t i = 0; i < config->ranks; i++) {
        uint32_t own = 0;
        for (uint32_t q = 0; q < config->qps; q++)
            own += qps[q].rank == i;
        je_rank_init(&je->ranks[i], i, &je->shape, je->refusals, own);
    }
    for (uint32_t i = 0; i < config->qps; i++)
        add_qp(je, i, &qps[i]);
    for (uint32_t i = 0; i < config->ranks; i++)
        for (uint32_t s = 0; s < je->ranks[i].n; s++)
            if (je->ranks[i].stripes[s].n == 0) { /* a peer that no queue pair leads to */
                je_free(je);
                return NULL;
            }
    for (uint32_t i = 0; i < config->ranks; i++)
        je_rank_begin(&je->ranks[i]);
    return je;
}

void je_free(je_t *je)
{
    for (uint32_t i = 0; i < je->config.ranks; i++)
        je_rank_end(&je->ranks[i]);
    for (uint32_t i = 0; i < je->config.qps; i++) {
        je_requester_end(&je->qps[i].requester);
        je_responder_end(&je->qps[i].responder);
    }
    je_queue_end(&je->rows);
    free(je->ranks);
    free(je->qps);
    free(je);
}

/* The queue pair of this number, of this run; NULL: there is none. */
static je_ends *find(je_t *je, uint32_t run, uint32_t number)
{
    if (run != je->config.run)
        return NULL;
    uint32_t low = 0, high = je->config.qps;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (je->qps[middle].requester.number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < je->config.qps && je->qps[low].requester.number == number ? &je->qps[low] : NULL;
}

static enum je_refusal take_data(je_t *je, uint32_t rank, uint16_t port, uint8_t tos, int64_t at_ns,
                                 const uint8_t *packet, uint32_t octets)
{
    je_header header;
    enum je_refusal refused = je_read_data(packet, octets, &header);
    if (refused != JE_TAKEN)
        return refused;
    je_ends *qp = find(je, header.run, header.qp);
    if (!qp || qp->peer != rank)
        return JE_UNKNOWN_QP;
    je_incoming *chunk =
        je_responder_take(&qp->responder, &header, packet + JE_DATA_OCTETS, port, at_ns, (tos & CE) == CE);
    if (chunk)
        je_rank_take(&je->ranks[rank], qp->rank, chunk);
    return JE_TAKEN;
}

/* A chunk has been carried. */
static void finish(void *context, const je_finished *finished)
{
    je_ends *qp = context;
    const je_chunk *chunk = finished->chunk;
    const je_chunk_report *report = finished->report;
    je_t *je = qp->je;
    if (finished->first)
        je->ranks[qp->rank].outstanding--;
    if (chunk->nothing)
        return;
    je_queue_push(&je->rows, &(je_row){
        .qp = qp->index, .chunk = chunk->number, .collective = chunk->piece->collective,
        .octets = chunk->piece->octets, .packets = chunk->packets, .retransmits = chunk->retransmits,
        .path = chunk->path, .ce = report ? report->ce : 0, .sent_at_ns = chunk->sent_at_ns,
        .acknowledged_at_ns = qp->acknowledged_at_ns,
        .arrived_at_ns = report ? report->arrived_at_ns : JE_NO_INSTANT,
        .completed_at_ns = report ? report->completed_at_ns : JE_NO_INSTANT,
    });
    if (je->rows.n > MOST_ROWS) {
        je_queue_pop(&je->rows);
        je->rows_shed++;
    }
}

static enum je_refusal take_ack(je_t *je, uint32_t rank, int64_t at_ns, const uint8_t *packet, uint32_t octets,
                                int64_t now_ns)
{
    je_ack ack;
    enum je_refusal refused = je_read_ack(packet, octets, &ack);
    if (refused != JE_TAKEN)
        return refused;
    je_ends *qp = find(je, ack.run, ack.qp);
    if (!qp || qp->rank != rank)
        return JE_UNKNOWN_QP;
    qp->acknowledged_at_ns = at_ns;
    je_requester_on_ack(&qp->requester, &ack, now_ns, finish, qp);
    return JE_TAKEN;
}

void je_receive(je_t *je, uint32_t rank, uint16_t port, uint8_t tos, int64_t at_ns, const uint8_t *packet,
                uint32_t octets, int64_t now_ns)
{
    int kind = je_kind(packet, octets);
    enum je_refusal refused = JE_BAD_KIND;
    if (kind == JE_DATA)
        refused = take_data(je, rank, port, tos, at_ns, packet, octets);
    else if (kind == JE_ACK)
        refused = take_ack(je, rank, at_ns, packet, octets, now_ns);
    if (refused != JE_TAKEN)
        je->refusals[refused]++;
}

static bool is_last(const je_t *je, const je_rank *rank)
{
    return je->config.collectives && rank->done >= (uint64_t)je->config.collectives;
}

/* Send what a queue pair has to send: an acknowledgement from its far end, packets from its near end. */
static void send(je_t *je, je_ends *qp, int64_t now_ns, je_sink *sink, void *context)
{
    je_packet *packet = &je->packet;
    uint32_t octets = je_responder_acknowledge(&qp->responder, packet->data, now_ns);
    if (octets)
        sink(context, &(je_datagram){
            .rank = qp->peer, .peer = qp->rank, .port = qp->responder.ack_path, .tos = je->config.tos_ack,
            .qp = qp->index, .octets = octets, .payload = packet->data,
        });
    je_requester_poll(&qp->requester, now_ns);
    while (je_requester_next(&qp->requester, packet, now_ns))
        sink(context, &(je_datagram){
            .rank = qp->rank, .peer = qp->peer, .port = packet->port, .tos = je->config.tos_data,
            .asks = packet->asks, .qp = qp->index, .chunk = packet->chunk, .octets = packet->octets,
            .payload = packet->data,
        });
}

void je_step(je_t *je, int64_t now_ns, je_sink *sink, void *context)
{
    for (uint32_t i = 0; i < je->config.ranks; i++) {
        je_rank *rank = &je->ranks[i];
        if (je_rank_finish(rank) && !is_last(je, rank))
            je_rank_begin(rank);
        for (uint32_t s = 0; s < rank->n; s++)
            je_stripe_feed(&rank->stripes[s], now_ns);
    }
    /* the first queue pair finds the shorter queue, so each is first in turn */
    je->turn = (je->turn + 1) % je->config.qps;
    for (uint32_t i = 0; i < je->config.qps; i++)
        send(je, &je->qps[(je->turn + i) % je->config.qps], now_ns, sink, context);
}

int64_t je_next_ns(const je_t *je, int64_t now_ns)
{
    int64_t next_ns = INT64_MAX;
    for (uint32_t i = 0; i < je->config.qps; i++) {
        int64_t one_ns = je_requester_next_ns(&je->qps[i].requester, now_ns);
        int64_t ack_ns = je->qps[i].responder.ack_due_ns;
        one_ns = ack_ns < one_ns ? ack_ns : one_ns;
        next_ns = one_ns < next_ns ? one_ns : next_ns;
    }
    for (uint32_t i = 0; i < je->config.ranks; i++)
        for (uint32_t s = 0; s < je->ranks[i].n; s++)
            if (je_stripe_hungry(&je->ranks[i].stripes[s]))
                return now_ns;
    return next_ns;
}

void je_departed(je_t *je, uint32_t qp, uint8_t asks, uint32_t chunk, uint16_t port, int64_t at_ns)
{
    if (qp < je->config.qps)
        je_requester_departed(&je->qps[qp].requester, asks, chunk, port, at_ns);
}

void je_steer(je_t *je, uint32_t qp, uint16_t path, int64_t now_ns)
{
    if (qp < je->config.qps)
        je_requester_steer(&je->qps[qp].requester, path, now_ns);
}

void je_limit(je_t *je, uint32_t qp, int64_t rate_bps)
{
    if (qp < je->config.qps)
        je->qps[qp].requester.rate_bps = rate_bps;
}
