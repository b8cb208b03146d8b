"""NICs that send pause frames without end: where a PFC storm begins.

A receiver that cannot take its packets pauses its switch port; the queue that forms there pauses the ports before it,
and so on, until paths stand that never touch the culprit. By delay all of them are congested. By counters the culprit
is the one that *sends* pause frames: its victims only receive them. Where its switch port is read too, that counts the
same frames as received (`take_far`).

Rates are differences of two readings over the host's own clock; a counter that went back or is null gives no rate. A
few pauses are normal on a lossless fabric, so a rate counts when it is far above the port's own past too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.switches.cables import cable_of
from sdfstream.records import columns
from sdfstream.records.fabric import Topology
from sdfstream.records.units import NS_PER_S

_MOST_PORTS = 10_000
_FRESH_NS = 5 * NS_PER_S
_TIMES = 10.0
_NULL = 2**63


@dataclass(slots=True)
class _Port:
    nic: str
    read_at_ns: int = 0
    """Host clock of the last reading."""
    sent: int = -1
    """Pause frames sent, as last read; −1: not known."""
    usual_hz: float = 0.0
    usual_n: int = 0
    rate_hz: float = 0.0
    high_ns: int = 0
    """Bus time of the last reading with a high rate; 0: never."""
    since_ns: int = 0
    """Bus time of the reading before the first high one: the storm began after it."""
    seen_ns: int = 0
    """Bus time of the last reading."""


class PauseRates:
    """Pause frames that every port sends."""

    def __init__(self, config: DetectConfig) -> None:
        self.config = config
        self._ports: dict[str, _Port] = {}

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.raw.port.v1`` message that speaks of `at_ns`, bus time."""
        self._take(batch, "tx_pause", at_ns, None)

    def take_far(self, batch: pa.RecordBatch, at_ns: int, topology: Topology) -> None:
        """As `take`, a message of a switch: what its port received, the NIC at the far end of its cable has sent."""
        self._take(batch, "rx_pause", at_ns, topology)

    def _take(self, batch: pa.RecordBatch, column: str, at_ns: int, topology: Topology | None) -> None:
        port, names = columns.names(batch, "port")
        nic, nics = columns.names(batch, "nic")
        read_at = columns.values(batch, "at_ns").tolist()
        sent = columns.filled(batch, column, _NULL).tolist()
        for p, n, read_ns, count in zip(port.tolist(), nic.tolist(), read_at, sent, strict=True):
            if p < 0 or n < 0 or count >= _NULL:
                continue
            sender = nics[n] if topology is None else _far_nic(topology, names[p])
            known = self._ports.get(names[p])
            if sender is None or (known is None and len(self._ports) >= _MOST_PORTS):
                continue
            if known is None:
                known = self._ports[names[p]] = _Port(sender)
            self._reading(known, int(count), int(read_ns), at_ns)

    def restarted(self, host: str) -> None:
        """A host's agent is a new run; its counters may have started again."""
        for name, port in self._ports.items():
            if name.startswith(f"{host}/"):
                port.sent = -1

    def _reading(self, port: _Port, count: int, read_ns: int, at_ns: int) -> None:
        passed_s = (read_ns - port.read_at_ns) / NS_PER_S
        usable = port.sent >= 0 and count >= port.sent and 0.05 < passed_s < 600
        rate_hz = (count - port.sent) / passed_s if usable else 0.0
        if usable and rate_hz > max(self.config.pause_rate_hz, _TIMES * port.usual_hz):
            if at_ns - port.high_ns > _FRESH_NS:
                port.since_ns = port.seen_ns
            port.high_ns = at_ns
        elif usable:
            port.usual_n += 1
            port.usual_hz += (rate_hz - port.usual_hz) / min(port.usual_n, 300)
            port.high_ns = 0
        port.rate_hz, port.sent, port.read_at_ns, port.seen_ns = rate_hz, count, read_ns, at_ns

    def storming(self, now_ns: int) -> dict[str, tuple[int, float, float]]:
        """NICs that pause their switch now: (bus time after which it began, frames per second, usual rate)."""
        return {
            port.nic: (port.since_ns, port.rate_hz, port.usual_hz)
            for port in self._ports.values()
            if port.high_ns and now_ns - port.high_ns <= _FRESH_NS
        }

    def is_calm(self, nic: str, now_ns: int) -> bool:
        """Whether the counters of a NIC are known, and say that it does not pause its switch."""
        mine = [p for p in self._ports.values() if p.nic == nic and p.sent >= 0 and now_ns - p.seen_ns <= _FRESH_NS]
        return bool(mine) and nic not in self.storming(now_ns)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"ports": [[name, asdict(port)] for name, port in self._ports.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._ports = {name: _Port(**saved) for name, saved in state["ports"]}


def _far_nic(topology: Topology, port: str) -> str | None:
    """The NIC that the cable of a switch's port leads to; None: it leads to a switch, or is not declared."""
    cable = cable_of(topology, port)
    return cable.id if cable is not None and cable.type == "nic" else None
