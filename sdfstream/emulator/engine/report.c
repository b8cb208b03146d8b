/* What may be read of a job, and the layouts that Python checks. */
#include <string.h>

#include "job_state.h"
#include "shell.h"

int je_abi(void)
{
    return JE_ABI;
}

size_t je_octets_of(const char *name)
{
    static const struct {
        const char *name;
        size_t octets;
    } KNOWN[] = {{"je_config", sizeof(je_config)},       {"je_qp_plan", sizeof(je_qp_plan)},
                 {"je_datagram", sizeof(je_datagram)},   {"je_row", sizeof(je_row)},
                 {"je_qp_report", sizeof(je_qp_report)}, {"je_report", sizeof(je_report)},
                 {"je_shell_report", sizeof(je_shell_report)}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        if (strcmp(KNOWN[i].name, name) == 0)
            return KNOWN[i].octets;
    return 0;
}

bool je_is_done(const je_t *je)
{
    for (uint32_t i = 0; i < je->config.ranks; i++)
        if (je->ranks[i].working)
            return false;
    return je->config.collectives > 0;
}

static void report_qp(const je_ends *qp, je_qp_report *report)
{
    const je_requester *sending = &qp->requester;
    *report = (je_qp_report){
        .sent_octets = sending->sent_octets,
        .acknowledged_octets = sending->acknowledged_octets,
        .retransmits = sending->retransmits,
        .time_outs = sending->time_outs,
        .requester_refused = sending->refused,
        .duplicates = qp->responder.duplicates,
        .responder_refused = qp->responder.refused,
        .rate_bps = sending->rate_bps,
        .moved_at_ns = sending->moved ? sending->moved_at_ns : JE_NO_INSTANT,
        .rtt_ns = sending->round_trip.smoothed_ns,
        .window_packets = sending->window.packets,
        .path = sending->path,
    };
}

void je_reported(const je_t *je, je_report *report, je_qp_report *qps)
{
    *report = (je_report){.collectives = UINT64_MAX, .rows_shed = je->rows_shed, .done = je_is_done(je)};
    memcpy(report->refusals, je->refusals, sizeof report->refusals);
    for (uint32_t i = 0; i < je->config.ranks; i++) {
        const je_rank *rank = &je->ranks[i];
        report->collectives = rank->done < report->collectives ? rank->done : report->collectives;
        report->ended += rank->done;
        report->right += rank->right;
        report->payload_octets += rank->payload_octets;
        for (uint32_t s = 0; s < rank->n; s++)
            report->rescued += rank->stripes[s].rescued;
    }
    for (uint32_t i = 0; qps && i < je->config.qps; i++)
        report_qp(&je->qps[i], &qps[i]);
}

uint32_t je_take_rows(je_t *je, je_row *rows, uint32_t n)
{
    uint32_t taken = 0;
    for (; taken < n && je->rows.n; taken++) {
        rows[taken] = *(je_row *)je_queue_at(&je->rows, 0);
        je_queue_pop(&je->rows);
    }
    return taken;
}
