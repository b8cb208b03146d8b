"""The receiving end of a queue pair: packets in, whole chunks out, exactly once each, and acknowledgements.

Packets may come in any order, twice, or by any source port: what counts is the packet number in the header. An
acknowledgement leaves by the source port of the newest transmission that has arrived, so both directions of a queue
pair depend on that one port.

Half of all packets would be acknowledgements if each packet had one. So every second packet is acknowledged at once
(RFC 9000 section 13.2.2), one alone after `ACK_DELAY_NS`, and at once whatever the sender is waiting for: a packet out
of order or sent again (RFC 5681 section 4.2), the first with or without CE (RFC 8257 section 3.2), the first by another
source port, and the last of a chunk.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from sdfstream.emulator import qp_header as wire
from sdfstream.records.units import NS_PER_MS

_REPORT_REPEATS: Final = 6
"""Acknowledgements that carry a chunk's report: with every second one lost, one report in 64 is lost."""
ACK_EVERY: Final = 2
"""Packets that are acknowledged at once."""
ACK_DELAY_NS: Final = 6 * NS_PER_MS
"""How long one packet alone waits: with three passes of 4 ms, still less than the least retransmission time-out."""
_CHUNKS: Final = wire.WINDOW
"""Incomplete chunks at a time: each has a packet within the window."""


class Delivered(NamedTuple):
    """A whole chunk."""

    collective: int
    step: int
    piece: int
    data: bytearray


class _Incoming:
    __slots__ = ("arrived_at_ns", "ce", "collective", "data", "first_psn", "last_psn", "missing", "piece", "step")

    def __init__(self, header: wire.DataHeader, first_psn: int, at_ns: int) -> None:
        self.collective = header.collective
        self.step = header.step
        self.piece = header.piece
        self.data = bytearray(header.chunk_bytes)
        self.missing = wire.packets_of(header.chunk_bytes)
        self.first_psn = first_psn
        self.last_psn = first_psn + self.missing - 1
        self.arrived_at_ns = at_ns
        self.ce = 0

    def is_of(self, header: wire.DataHeader, first_psn: int) -> bool:
        return (
            self.first_psn == first_psn
            and len(self.data) == header.chunk_bytes
            and self.collective == header.collective
            and self.step == header.step
            and self.piece == header.piece
        )


class Responder:
    """One queue pair's receiving end.

    Parameters
    ----------
    run, number : int
        Of the header: the process's run and the queue pair's number.
    """

    def __init__(self, run: int, number: int) -> None:
        self.run = run
        self.number = number
        self.ack_path = 0
        """Source port of the newest transmission that has arrived."""
        self.delivered_bytes = 0
        self.duplicates = 0
        """Packets that had arrived before."""
        self.refused = 0
        """Packets outside the window, or at odds with earlier packets of their chunk."""
        self._cumulative = 0
        self._ahead = 0
        self._newest_tx = 0
        self._received = self._ce = 0
        self._chunks: dict[int, _Incoming] = {}
        self._reports: deque[tuple[wire.ChunkReport, int]] = deque(maxlen=wire.REPORTS)
        self._acks = 0
        self._pending = 0
        """Packets since the last acknowledgement."""
        self._at_once = False
        self._marked = False
        """Whether the newest packet had CE."""
        self._ack_due_ns: int | None = None
        """When one packet alone is acknowledged; None: not known before the next pass."""

    def take(
        self, header: wire.DataHeader, payload: memoryview, source_port: int, at_ns: int, *, ce: bool
    ) -> Delivered | None:
        """Take a data packet that arrived at `at_ns` (host's clock); the chunk that it completed."""
        beyond = header.psn - self._cumulative
        if beyond >= wire.WINDOW or not header.tx:
            self.refused += 1
            return None
        self._pending += 1
        self._received += 1
        self._ce += ce
        if beyond or self._ahead or header.flags & wire.AGAIN or ce != self._marked:
            self._at_once = True
        self._marked = ce
        if header.tx > self._newest_tx:
            self._newest_tx = header.tx
            self._at_once |= source_port != self.ack_path
            self.ack_path = source_port
        if beyond < 0 or self._ahead >> beyond & 1:
            self.duplicates += 1
            return None
        index = header.offset // wire.PAYLOAD_BYTES
        chunk = self._chunk(header, header.psn - index, at_ns)
        if chunk is None:
            self.refused += 1
            return None
        self._mark(beyond)
        chunk.ce += ce
        delivered = None
        if not header.flags & wire.VOID:
            chunk.data[header.offset : header.offset + header.length] = payload
            chunk.missing -= 1
            if not chunk.missing:
                delivered = self._complete(header.chunk, chunk, at_ns)
        self._forget_passed()
        return delivered

    def acknowledge(self, now_ns: int) -> tuple[int, bytes] | None:
        """(source port, acknowledgement) for what arrived since the last one; None: none is due."""
        if not self._pending:
            return None
        if not self._at_once and self._pending < ACK_EVERY:
            if self._ack_due_ns is None:
                self._ack_due_ns = now_ns + ACK_DELAY_NS
            if now_ns < self._ack_due_ns:
                return None
        self._pending = 0
        self._at_once = False
        self._ack_due_ns = None
        ack = wire.Ack(
            self.run, self.number, self._cumulative, self._newest_tx, self._received, self._ce, self._ahead,
            tuple(report for report, _ in self._reports),
        )  # fmt: skip
        self._acks += 1
        while self._reports and self._reports[0][1] <= self._acks:
            self._reports.popleft()
        return self.ack_path, wire.ack_packet(ack)

    def _chunk(self, header: wire.DataHeader, first_psn: int, at_ns: int) -> _Incoming | None:
        chunk = self._chunks.get(header.chunk)
        if chunk is None:
            if first_psn < 0 or len(self._chunks) >= _CHUNKS:
                return None
            chunk = self._chunks[header.chunk] = _Incoming(header, first_psn, at_ns)
        elif not chunk.is_of(header, first_psn):
            return None
        return chunk

    def _mark(self, beyond: int) -> None:
        """Packet cumulative + `beyond` is here."""
        ahead = self._ahead | 1 << beyond
        run = (~ahead & ahead + 1).bit_length() - 1  # ones at the low end
        self._ahead = ahead >> run
        self._cumulative += run

    def _complete(self, number: int, chunk: _Incoming, at_ns: int) -> Delivered:
        del self._chunks[number]
        self.delivered_bytes += len(chunk.data)
        self._at_once = True
        self._reports.append(
            (wire.ChunkReport(number, chunk.ce, chunk.arrived_at_ns, at_ns), self._acks + _REPORT_REPEATS)
        )
        return Delivered(chunk.collective, chunk.step, chunk.piece, chunk.data)

    def _forget_passed(self) -> None:
        """Drop the chunks all of whose packets have arrived without completing them: some were void."""
        while self._chunks:
            number = next(iter(self._chunks))
            if self._chunks[number].last_psn >= self._cumulative:
                return
            del self._chunks[number]
