"""The sending end of a queue pair: chunks in, packets out, acknowledgements in, finished chunks out.

Loss is repaired by *selective repeat*: the receiver acknowledges packets beyond a gap, too, and only the others are
sent again. Go-back-N, which RoCE NICs have, would take the packets that a move to another path overtakes for lost,
and send a whole window twice.

A packet is lost when one sent `REORDER` or more transmissions later on the same path has arrived (a path keeps the
order), or when it has been in flight for longer than the time-out. After a move everything not acknowledged is sent
again at once on the new path; packets that the old path still delivers count once.

Time (``now_ns``) is any steady clock; only stamps that end in ``at_ns`` are the host's clock, and come from outside.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from sdfstream.emulator import qp_header as wire
from sdfstream.emulator.qp_chunk import Chunk, Finished, OnDeparture, Piece
from sdfstream.emulator.qp_pacer import Pacer
from sdfstream.emulator.qp_round_trip import RoundTrip
from sdfstream.emulator.qp_window import CongestionWindow
from sdfstream.records.units import NS_PER_MS

REORDER: Final = 4
LOOKAHEAD: Final = 8
"""A queue pair takes its next chunk when fewer packets than this wait: it never idles, and takes no more than it can
send soon, so the chunks go where there is room."""
STALL_NS: Final = 60 * NS_PER_MS
"""Without progress for this long, others may carry our chunks."""
_PACING_GAIN: Final = 1.25
"""Paced a little above window per round trip, so that the window, not the pacer, decides."""

Packet = tuple[int, bytes, OnDeparture | None]
"""(source port, UDP payload, callback for the departure)."""


class _Sent:
    """A packet that is not acknowledged yet."""

    __slots__ = ("chunk", "in_flight", "offset", "psn", "sent_ns", "tx")

    def __init__(self, psn: int, chunk: Chunk, offset: int) -> None:
        self.psn = psn
        self.chunk = chunk
        self.offset = offset
        self.tx = 0
        self.sent_ns = 0
        self.in_flight = False


class Requester:
    """One queue pair's sending end.

    Parameters
    ----------
    run, number : int
        Of the header: the process's run and the queue pair's number.
    path : int
        Source port at first.
    now_ns : int
    """

    def __init__(self, run: int, number: int, path: int, now_ns: int) -> None:
        self.run = run
        self.number = number
        self.path = path
        self.rate_bps: int | None = None
        """Limit in force, Ethernet header included; None: none."""
        self.moved_at_ns: int | None = None
        """When the first packet left on the present path; None while it has only had its first path, or none left."""
        self.sent_bytes = 0
        """Payload of all transmissions."""
        self.acknowledged_bytes = 0
        """Payload of finished chunks that this queue pair was first to carry."""
        self.retransmits = 0
        self.time_outs = 0
        self.refused = 0
        """Acknowledgements of packets that were never sent."""
        self.window = CongestionWindow()
        self._pacer = Pacer(now_ns)
        self._chunks: dict[int, Chunk] = {}
        self._fresh: deque[Chunk] = deque()
        self._fresh_packets = 0
        self._next_chunk = 0
        self._next_psn = 0
        self._next_tx = 1
        self._first_unacked = 0
        self._unacked: dict[int, _Sent] = {}
        self._ahead = 0
        self._order: deque[tuple[int, _Sent]] = deque()
        self._lost: deque[_Sent] = deque()
        self._in_flight = 0
        self._path_begins_tx = 0
        self._newest_tx = 0
        self._received = self._ce = 0
        self._round_trip = RoundTrip()
        self._progress_ns = now_ns
        self._stamp_move = False

    @property
    def idle(self) -> bool:
        """Nothing to send and nothing unacknowledged."""
        return not self._unacked and not self._fresh

    @property
    def rtt_ns(self) -> int:
        """Smoothed round-trip time; 0: not known yet."""
        return self._round_trip.smoothed_ns

    @property
    def has_room(self) -> bool:
        """Whether it would take another chunk now."""
        return self._fresh_packets < LOOKAHEAD

    def stalled(self, now_ns: int) -> bool:
        """Whether nothing has been acknowledged for too long."""
        return bool(self._unacked) and now_ns - self._progress_ns > max(STALL_NS, self._round_trip.time_out_ns)

    def push(self, piece: Piece, now_ns: int) -> None:
        """Take a piece to carry."""
        if self.idle:
            self._progress_ns = now_ns
        chunk = Chunk(self._next_chunk, piece)
        self._next_chunk += 1
        self._chunks[chunk.number] = chunk
        self._fresh.append(chunk)
        self._fresh_packets += chunk.packets

    def unfinished(self) -> list[Piece]:
        """The pieces taken here and finished by no queue pair, oldest first."""
        return [chunk.piece for chunk in self._chunks.values() if not chunk.piece.done]

    def steer(self, path: int, now_ns: int) -> None:
        """Send by source port `path` from now on; unacknowledged packets are sent again at once."""
        if path == self.path:
            return
        self.path = path
        self.moved_at_ns = None
        self._stamp_move = True
        self._path_begins_tx = self._next_tx
        self._lose_all_in_flight()
        self.window.on_new_path(self._next_tx)
        self._pacer = Pacer(now_ns)
        self._round_trip.on_progress()
        self._progress_ns = now_ns

    def poll(self, now_ns: int) -> list[Packet]:
        """The packets that are to leave now."""
        self._check_time_out(now_ns)
        if not self._lost and not self._fresh:
            self._pacer.refill(self._rate_bps(), now_ns)
            return []
        out: list[Packet] = []
        self._pacer.refill(self._rate_bps(), now_ns)
        while self._in_flight < self.window.packets and self._pacer.may_send:
            sent = self._next()
            if sent is None:
                break
            out.append(self._transmit(sent, now_ns))
        return out

    def on_ack(self, ack: wire.Ack, at_ns: int, now_ns: int) -> list[Finished]:
        """Take an acknowledgement that arrived at `at_ns` (host's clock); the chunks that it finished."""
        if ack.cumulative + ack.ahead.bit_length() > self._next_psn or ack.newest_tx >= self._next_tx:
            self.refused += 1
            return []
        full = self._in_flight + LOOKAHEAD // 2 >= self.window.packets
        reports = {report.chunk: report for report in ack.reports}
        finished: list[Finished] = []
        acked = 0
        for psn in self._newly_acked(ack):
            sent = self._unacked.pop(psn, None)
            if sent is None:
                continue
            acked += 1
            if sent.in_flight:
                self._in_flight -= 1
                sent.in_flight = False
                if sent.tx == ack.newest_tx:
                    self._round_trip.measure(now_ns - sent.sent_ns)
            sent.psn = -1
            chunk = sent.chunk
            chunk.unacknowledged -= 1
            if not chunk.unacknowledged:
                finished.append(self._finish(chunk, reports.get(chunk.number), at_ns))
        self._update_window(ack, acked, now_ns, full=full)
        return finished

    def _newly_acked(self, ack: wire.Ack) -> list[int]:
        """Packet numbers that this acknowledgement is the first to name."""
        behind = self._first_unacked - ack.cumulative
        if behind >= 0:
            seen = ack.ahead >> behind
            numbers: list[int] = []
        else:
            seen = ack.ahead
            numbers = list(range(self._first_unacked, ack.cumulative))
            self._first_unacked = ack.cumulative
            self._ahead >>= -behind
        news = seen & ~self._ahead
        self._ahead |= news
        while news:
            low = news & -news
            numbers.append(self._first_unacked + low.bit_length() - 1)
            news ^= low
        return numbers

    def _update_window(self, ack: wire.Ack, acked: int, now_ns: int, *, full: bool) -> None:
        """Draw the conclusions of an acknowledgement: progress, marks, losses."""
        received = (ack.received - self._received) & 0xFFFFFFFF
        marked = (ack.ce - self._ce) & 0xFFFFFFFF
        if received >= 1 << 31:  # an older acknowledgement that was overtaken
            received = marked = 0
        else:
            self._received, self._ce = ack.received, ack.ce
        if acked:
            self._progress_ns = now_ns
            self._round_trip.on_progress()
        if ack.newest_tx > self._newest_tx:
            self._newest_tx = ack.newest_tx
        if ack.newest_tx < self._path_begins_tx:
            return  # of the former path
        self.window.on_ack(acked, marked, self._newest_tx, self._next_tx, full=full)
        if self._find_losses():
            self.window.on_loss(self._newest_tx, self._next_tx)

    def _find_losses(self) -> bool:
        found = False
        while self._order:
            tx, sent = self._order[0]
            if sent.tx == tx and sent.in_flight:
                if tx + REORDER > self._newest_tx:
                    break
                self._lose(sent)
                found = True
            self._order.popleft()
        return found

    def _check_time_out(self, now_ns: int) -> None:
        while self._order:
            tx, sent = self._order[0]
            if sent.tx == tx and sent.in_flight:
                break
            self._order.popleft()
        else:
            return
        if now_ns - self._order[0][1].sent_ns <= self._round_trip.time_out_ns:
            return
        self.time_outs += 1
        times = self._round_trip.on_time_out()
        self._lose_all_in_flight()
        self.window.on_time_out(times)

    def _lose_all_in_flight(self) -> None:
        """Take everything in flight for lost; the lowest numbers go first."""
        for tx, sent in self._order:
            if sent.tx == tx and sent.in_flight:
                self._lose(sent)
        self._order.clear()
        self._lost = deque(sorted((s for s in self._lost if s.psn >= 0), key=lambda s: s.psn))

    def _lose(self, sent: _Sent) -> None:
        sent.in_flight = False
        self._in_flight -= 1
        self._lost.append(sent)

    def _rate_bps(self) -> float:
        rtt_ns = max(self._round_trip.smoothed_ns, NS_PER_MS)
        gain = 2.0 if self.window.in_slow_start else _PACING_GAIN
        paced = gain * self.window.packets * 1514 * 8e9 / rtt_ns
        return paced if self.rate_bps is None else min(paced, float(self.rate_bps))

    def _next(self) -> _Sent | None:
        """The packet to send next: lost ones first."""
        while self._lost:
            sent = self._lost.popleft()
            if sent.psn >= 0:
                return sent
        if not self._fresh or self._next_psn >= self._first_unacked + wire.WINDOW:
            return None
        chunk = self._fresh[0]
        sent = _Sent(self._next_psn, chunk, chunk.next_offset)
        self._next_psn += 1
        self._unacked[sent.psn] = sent
        self._fresh_packets -= 1
        chunk.next_offset += wire.PAYLOAD_BYTES
        if chunk.next_offset >= len(chunk.piece.data):
            self._fresh.popleft()
        return sent

    def _transmit(self, sent: _Sent, now_ns: int) -> Packet:
        chunk = sent.chunk
        piece = chunk.piece
        again = sent.tx > 0
        flags = wire.AGAIN if again else 0
        payload = piece.data[sent.offset : sent.offset + wire.PAYLOAD_BYTES]
        if piece.done:
            flags |= wire.VOID
            payload = b""
            chunk.void = True
        sent.tx = tx = self._next_tx
        self._next_tx += 1
        sent.sent_ns = now_ns
        sent.in_flight = True
        self._in_flight += 1
        self._order.append((tx, sent))
        chunk.path = self.path
        if again:
            self.retransmits += 1
            chunk.retransmits += 1
        self.sent_bytes += len(payload)
        header = wire.DataHeader(
            wire.MAGIC, wire.DATA, flags, len(payload), self.run, self.number, sent.psn, tx, chunk.number,
            piece.collective, piece.step, piece.number, len(piece.data), sent.offset,
        )  # fmt: skip
        packet = wire.data_packet(header, payload)
        self._pacer.spend(len(packet))
        return self.path, packet, self._departure_callback(chunk, first=not again and sent.offset == 0)

    def _departure_callback(self, chunk: Chunk, *, first: bool) -> OnDeparture | None:
        moved, self._stamp_move = self._stamp_move, False
        if not moved:
            return chunk.on_departure if first else None
        path = self.path

        def on_departure(at_ns: int) -> None:
            if self.path == path:
                self.moved_at_ns = at_ns
            if first:
                chunk.on_departure(at_ns)

        return on_departure

    def _finish(self, chunk: Chunk, report: wire.ChunkReport | None, at_ns: int) -> Finished:
        del self._chunks[chunk.number]
        piece = chunk.piece
        first = not piece.done
        if first:
            piece.done = True
            self.acknowledged_bytes += len(piece.data)
        return Finished(
            chunk.number, piece, chunk.path, chunk.packets, chunk.retransmits, chunk.sent_at_ns, at_ns, report, first,
            chunk.void,
        )  # fmt: skip
