"""What every port moves, and how often it is paused: two readings of its counters over the host's own clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Side = Literal["tx", "rx", "busier"]

_MOST_PORTS = 10_000
_FRESH_NS = 5 * NS_PER_S
_NULL = 2**63
_SPAN_NS, _SPANS = 5 * NS_PER_S, 8
_LATELY, _LEAST_SPANS = 3, 3
"""What a port usually sends is known by three to five spans before the last three: a surge is seen for ten seconds."""
_IDLE = 0.01
"""A port that usually sends no more of its speed has no load that could grow."""
_LEAST_PORTS = 6


@dataclass(slots=True)
class _PortCounts:
    nic: str
    read_at_ns: int = 0
    """Host clock of the last reading."""
    rx: int = -1
    tx: int = -1
    """Bytes, as last read; −1: not known."""
    paused: int = -1
    """Pause frames received, as last read; −1: not known."""
    rate_bps: float = -1.0
    """In the busier direction; −1: not known."""
    rx_bps: float = -1.0
    tx_bps: float = -1.0
    paused_hz: float = 0.0
    speed_bps: float = 0.0
    """0: not known."""
    from_ns: int = 0
    """Bus time of the reading before the last."""
    seen_ns: int = 0
    """Bus time of the last reading."""
    span: int = -1
    """Number of the span of `_SPAN_NS` that the last reading was made in, bus time."""
    peaks_bps: list[float] = field(default_factory=list)
    """The most it sent in that span, and in those before it; the newest first."""

    def remember(self, at_ns: int) -> None:
        """What it sent until now belongs to its past."""
        span = at_ns // _SPAN_NS
        if span != self.span:
            gone = min(span - self.span, _SPANS) if self.peaks_bps else 0
            self.peaks_bps = ([0.0] * gone + self.peaks_bps)[:_SPANS] or [0.0]
            self.span = span
        self.peaks_bps[0] = max(self.peaks_bps[0], self.tx_bps)

    def usual_bps(self) -> float:
        """The most it sent in one reading of the half minute before the last spans; 0: not known."""
        before = self.peaks_bps[_LATELY:]
        return max(before) if len(before) >= _LEAST_SPANS and self.tx_bps >= 0 else 0.0


@dataclass(frozen=True, slots=True)
class PortUse:
    """A port between its last two readings."""

    rate_bps: float
    """In the direction that was asked for."""
    speed_bps: float
    """As the port says; 0: not known."""
    paused_hz: float
    """Pause frames that it received, a second."""


class PortRates:
    """Ports by name."""

    def __init__(self) -> None:
        self._ports: dict[str, _PortCounts] = {}
        self._grown: tuple[int, float | None] = (ABSENT_NS, None)
        """What was found last, and for when: it is asked for once for every queue."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.raw.port.v1`` message that speaks of `at_ns`, bus time."""
        port, names = columns.names(batch, "port")
        nic, nics = columns.names(batch, "nic")
        read_at = columns.values(batch, "at_ns").tolist()
        counts = (columns.filled(batch, name, _NULL).tolist() for name in ("rx_bytes", "tx_bytes", "rx_pause"))
        speeds = columns.filled(batch, "speed_mbps", 0).tolist()
        for p, n, read_ns, *now, mbps in zip(port.tolist(), nic.tolist(), read_at, *counts, speeds, strict=True):
            if p < 0 or n < 0:
                continue
            known = self._ports.get(names[p])
            if known is None:
                if len(self._ports) >= _MOST_PORTS:
                    continue
                known = self._ports[names[p]] = _PortCounts(nics[n])
            self._reading(known, [int(c) if c < _NULL else -1 for c in now], int(read_ns), at_ns)
            known.speed_bps = mbps * 1e6

    @staticmethod
    def _reading(port: _PortCounts, now: list[int], read_ns: int, at_ns: int) -> None:
        rx, tx, paused = now
        passed_s = (read_ns - port.read_at_ns) / NS_PER_S
        timely = 0.05 < passed_s < 600
        usable = timely and 0 <= port.rx <= rx and 0 <= port.tx <= tx
        port.rx_bps, port.tx_bps = (
            ((rx - port.rx) * 8 / passed_s, (tx - port.tx) * 8 / passed_s) if usable else (-1, -1)
        )
        port.rate_bps = max(port.rx_bps, port.tx_bps)
        port.paused_hz = (paused - port.paused) / passed_s if timely and 0 <= port.paused <= paused else 0.0
        port.rx, port.tx, port.paused, port.read_at_ns = rx, tx, paused, read_ns
        port.from_ns, port.seen_ns = port.seen_ns, at_ns
        port.remember(at_ns)

    def restarted(self, host: str) -> None:
        """A host's agent is a new run; its counters may have started again."""
        for name, port in self._ports.items():
            if name.startswith(f"{host}/"):
                port.rx = port.tx = port.paused = -1

    def use_of(self, nic: str, since_ns: int, now_ns: int, side: Side = "busier") -> PortUse | None:
        """The busiest port of a NIC between two readings of which the first was made at `since_ns` or later.

        `side`: by what it sends, receives, or the busier of both.
        """
        fresh = [
            (_rate_bps(port, side), port)
            for port in self._ports.values()
            if port.nic == nic
            and _rate_bps(port, side) >= 0
            and port.from_ns >= since_ns
            and now_ns - port.seen_ns <= _FRESH_NS
        ]
        rate_bps, best = max(fresh, key=lambda one: one[0], default=(0.0, None))
        return None if best is None else PortUse(rate_bps, best.speed_bps, best.paused_hz)

    def grown(self, now_ns: int) -> float | None:
        """What ports send for each bit that they lately sent at most, the median of those that send something; None:
        that is known of too few.

        At most: a job that sends in steps sends what it usually does in each of them.
        """
        if self._grown[0] != now_ns:
            ports = [(p, p.usual_bps()) for p in self._ports.values() if now_ns - p.seen_ns <= _FRESH_NS]
            grown = [port.tx_bps / usual_bps for port, usual_bps in ports if usual_bps > _IDLE * port.speed_bps]
            self._grown = now_ns, float(np.median(grown)) if len(grown) >= _LEAST_PORTS else None
        return self._grown[1]

    def paused(self, least_hz: float) -> list[str]:
        """NICs of which a port received at least so many pause frames a second between its last two readings."""
        return sorted({port.nic for port in self._ports.values() if port.paused_hz >= least_hz})

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"ports": [[name, asdict(port)] for name, port in self._ports.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._ports = {name: _PortCounts(**saved) for name, saved in state["ports"]}


def _rate_bps(port: _PortCounts, side: Side) -> float:
    """Bits a second of that side; −1: not known."""
    return {"tx": port.tx_bps, "rx": port.rx_bps, "busier": port.rate_bps}[side]
