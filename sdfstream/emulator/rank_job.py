"""All ranks of a job in one engine: datagrams in, datagrams out, time as an argument.

The shell (`plane_io`) calls `receive` for everything that has arrived, then `step`, and sends what that returns.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from sdfstream.emulator import collective
from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.qp_chunk import CarriedChunk, Finished, OnDeparture
from sdfstream.emulator.qp_receive import Responder
from sdfstream.emulator.qp_send import Requester
from sdfstream.emulator.qp_stripe import Stripe
from sdfstream.emulator.rank import RankEngine
from sdfstream.emulator.rank_plan import JobPlan, QpPlan
from sdfstream.records.units import Ecn
from sdfstream.stats import Counters

_MOST_FINISHED: Final = 20_000
"""Finished chunks that wait to be fetched; older ones are shed and counted."""


class OutgoingDatagram(NamedTuple):
    """A datagram to send."""

    rank: int
    """Sending rank."""
    peer: int
    """Receiving rank."""
    source_port: int
    tos: int
    payload: bytes
    on_departure: OnDeparture | None
    """Where given, to be called with the departure (host's clock, ns), and again with the kernel's stamp."""


class QpEnds:
    """Both ends of a planned queue pair (in the lab, both are ours)."""

    def __init__(self, plan: QpPlan, run: int, rate_bps: int | None, now_ns: int) -> None:
        self.plan = plan
        self.requester = Requester(run, plan.number, plan.ports[0], now_ns)
        self.requester.rate_bps = rate_bps
        self.responder = Responder(run, plan.number)


class JobEngine:
    """A running job.

    Parameters
    ----------
    plan : JobPlan
    run : int
        Number of this run, 32 random bits.
    now_ns : int
        Any steady clock; the same one in all calls.
    """

    def __init__(self, plan: JobPlan, run: int, now_ns: int) -> None:
        self.plan = plan
        self.counters = Counters("job")
        self.finished: deque[tuple[QpPlan, CarriedChunk]] = deque()
        """Chunks carried, oldest first; the shell publishes and removes them."""
        self.ends = {qp.number: QpEnds(qp, run, plan.spec.rate_bps, now_ns) for qp in plan.qps}
        self.ranks = [self._rank(number) for number in range(len(plan.nics))]
        self._turn = deque(self.ends.values())
        self._run = run
        self._tos = (plan.spec.dscp << 2 | Ecn.ECT0, plan.spec.dscp << 2)
        for rank in self.ranks:
            rank.begin()

    def receive(self, rank: int, source_port: int, tos: int, at_ns: int, packet: memoryview, now_ns: int) -> None:
        """A datagram arrived at the NIC of `rank` at `at_ns` (host's clock)."""
        kind = wire.kind_of(packet)
        if kind == wire.DATA:
            refused = self._take_data(rank, source_port, tos, at_ns, packet)
        elif kind == wire.ACK:
            refused = self._take_ack(rank, at_ns, packet, now_ns)
        else:
            refused = "kind"
        if refused:
            self.counters.add("refused", refused)

    def step(self, now_ns: int) -> list[OutgoingDatagram]:
        """Acknowledge, continue collectives, send: the datagrams that are to leave now, rank by rank."""
        for rank in self.ranks:
            if rank.finish() and not self._is_last(rank):
                rank.begin()
            for stripe in rank.stripes.values():
                stripe.feed(now_ns)
        ect, plain = self._tos
        out: list[OutgoingDatagram] = []
        # The first queue pair finds the shorter queue, so each is first in turn.
        self._turn.rotate(-1)
        for ends in self._turn:
            qp = ends.plan
            ack = ends.responder.acknowledge(now_ns)
            if ack is not None:
                out.append(OutgoingDatagram(qp.peer_rank, qp.rank, ack[0], plain, ack[1], None))
            for port, packet, on_departure in ends.requester.poll(now_ns):
                out.append(OutgoingDatagram(qp.rank, qp.peer_rank, port, ect, packet, on_departure))
        out.sort(key=lambda item: item.rank)
        return out

    @property
    def is_done(self) -> bool:
        """Whether every rank has done its last collective."""
        return self.plan.spec.collectives is not None and all(rank.current is None for rank in self.ranks)

    def find(self, qp: str) -> QpEnds | None:
        """A queue pair by its id."""
        return next((ends for ends in self.ends.values() if ends.plan.id == qp), None)

    def stats(self) -> dict[str, Any]:
        """Figures since the start, plain JSON."""
        tallies = [rank.tally for rank in self.ranks]
        ends = self.ends.values()
        return {
            "collectives": min(t.done for t in tallies),
            "checked_right": sum(t.right for t in tallies),
            "checked_wrong": sum(t.done - t.right for t in tallies),
            "payload_bytes": sum(t.payload_bytes for t in tallies),
            "doubled_chunks": self.counters.get("doubled"),
            "rescued_chunks": sum(s.rescued for rank in self.ranks for s in rank.stripes.values()),
            "duplicate_packets": sum(e.responder.duplicates for e in ends),
            "retransmits": sum(e.requester.retransmits for e in ends),
            "time_outs": sum(e.requester.time_outs for e in ends),
            "refused": self.counters.total("refused") + sum(e.requester.refused + e.responder.refused for e in ends),
            "counters": self.counters.as_dict(),
            "qps": [qp_stats(e) for e in ends],
        }

    def _rank(self, number: int) -> RankEngine:
        spec = self.plan.spec
        make = collective.maker(spec.collective, len(spec.hosts), spec.elements, spec.chunk_elements)
        stripes = {
            peer: Stripe([e.requester for e in self.ends.values() if (e.plan.rank, e.plan.peer_rank) == (number, peer)])
            for peer in spec.peers(number)
        }
        return RankEngine(number, make, stripes, self.counters)

    def _is_last(self, rank: RankEngine) -> bool:
        most = self.plan.spec.collectives
        return most is not None and rank.tally.done >= most

    def _ends_of(self, run: int, qp: int) -> QpEnds | None:
        return self.ends.get(qp) if run == self._run else None

    def _take_data(self, rank: int, source_port: int, tos: int, at_ns: int, packet: memoryview) -> str:
        header = wire.data(packet)
        if isinstance(header, str):
            return header
        ends = self._ends_of(header.run, header.qp)
        if ends is None or ends.plan.peer_rank != rank:
            return "unknown-qp"
        payload = packet[wire.DATA_BYTES :]
        chunk = ends.responder.take(header, payload, source_port, at_ns, ce=tos & 3 == Ecn.CE)
        if chunk is not None:
            self.ranks[rank].take(ends.plan.rank, chunk)
        return ""

    def _take_ack(self, rank: int, at_ns: int, packet: memoryview, now_ns: int) -> str:
        ack = wire.acknowledgement(packet)
        if isinstance(ack, str):
            return ack
        ends = self._ends_of(ack.run, ack.qp)
        if ends is None or ends.plan.rank != rank:
            return "unknown-qp"
        for finished in ends.requester.on_ack(ack, at_ns, now_ns):
            if finished.first:
                self.ranks[rank].acknowledged(finished.piece)
            if not finished.void:
                self._store(ends.plan, finished)
        return ""

    def _store(self, qp: QpPlan, finished: Finished) -> None:
        piece = finished.piece
        self.finished.append(
            (
                qp,
                CarriedChunk(
                    finished.chunk, piece.collective, len(piece.data), finished.path, finished.packets,
                    finished.retransmits, finished.sent_at_ns, finished.acknowledged_at_ns, finished.report,
                ),
            )
        )  # fmt: skip
        if len(self.finished) > _MOST_FINISHED:
            self.finished.popleft()
            self.counters.add("rows-shed")


def qp_stats(ends: QpEnds) -> dict[str, Any]:
    """Figures of one queue pair, plain JSON."""
    qp, sending = ends.plan, ends.requester
    return {
        "qp": qp.id,
        "rank": qp.rank,
        "peer_rank": qp.peer_rank,
        "path": sending.path,
        "rate_bps": sending.rate_bps,
        "sent_bytes": sending.sent_bytes,
        "acknowledged_bytes": sending.acknowledged_bytes,
        "retransmits": sending.retransmits,
        "time_outs": sending.time_outs,
        "moved_at_ns": sending.moved_at_ns,
        "rtt_ns": sending.rtt_ns,
        "window_packets": round(sending.window.packets, 1),
    }
