"""What hosts' ports moved: rates between readings of their counters, on reference time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.units import NS_PER_S

_MOST_PORTS: Final = 65_536
_HELD: Final = 6
"""Readings held of a port: those that a span may ask for."""
_NULL: Final = 2**63
_LEAST_S, _MOST_S = 0.05, 30.0
"""Time between two readings from which a rate is made."""


class ByteReading(NamedTuple):
    """A port's counters, bytes; −1: not known."""

    at_ns: int
    """Reference time."""
    rx: int
    tx: int


class PortRate(NamedTuple):
    """What a NIC moved between two readings."""

    from_ns: int
    """Reference time."""
    until_ns: int
    tx_bps: float
    rx_bps: float
    speed_bps: float
    """As its ports say; 0: not known."""


class PortBytes:
    """The last readings of every port."""

    def __init__(self) -> None:
        self._readings: dict[str, dict[str, list[ByteReading]]] = {}
        """By NIC and port, oldest first."""
        self._speed_bps: dict[str, float] = {}
        """By port."""

    def take(self, batch: pa.RecordBatch, offset_ns: Callable[[str], float | None]) -> None:
        """Take a ``sdf.raw.port.v1`` message.

        `offset_ns` tells of a host its clock − reference; None: not known, and its readings are passed over.

        Raises
        ------
        FormatError
            A column is missing, or not of its type.
        """
        host, hosts = columns.names(batch, "host")
        nic, nics = columns.names(batch, "nic")
        port, ports = columns.names(batch, "port")
        at = columns.values(batch, "at_ns").tolist()
        counts = (columns.filled(batch, name, _NULL).tolist() for name in ("rx_bytes", "tx_bytes"))
        speeds = columns.filled(batch, "speed_mbps", 0).tolist()
        rows = zip(host.tolist(), nic.tolist(), port.tolist(), at, *counts, speeds, strict=True)
        for h, n, p, at_ns, rx, tx, mbps in rows:
            offset = offset_ns(hosts[h]) if h >= 0 else None
            if offset is None or n < 0 or p < 0:
                continue
            reading = ByteReading(int(at_ns) - round(offset), *(int(c) if c < _NULL else -1 for c in (rx, tx)))
            self._take(nics[n], ports[p], reading, mbps * 1e6)

    def _take(self, nic: str, port: str, reading: ByteReading, speed_bps: float) -> None:
        if port not in self._speed_bps and len(self._speed_bps) >= _MOST_PORTS:
            return
        held = self._readings.setdefault(nic, {}).setdefault(port, [])
        if held and (reading.at_ns <= held[-1].at_ns or reading.rx < held[-1].rx or reading.tx < held[-1].tx):
            held.clear()  # the host's clock was set back, or the counters began anew
        held.append(reading)
        del held[:-_HELD]
        self._speed_bps[port] = speed_bps

    def rates(self, at_ns: int) -> dict[str, PortRate]:
        """What each NIC moved between the two readings about `at_ns`, reference time; without such it is left out."""
        found = {}
        for nic, ports in self._readings.items():
            pairs = [_about(held, at_ns) for held in ports.values()]
            if not pairs or None in pairs:
                continue
            speed_bps = sum(self._speed_bps[port] for port in ports)
            found[nic] = _summed([pair for pair in pairs if pair is not None], speed_bps)
        return found

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        readings = [
            [nic, [[port, [list(r) for r in held]] for port, held in ports.items()]]
            for nic, ports in self._readings.items()
        ]
        return {"readings": readings, "speeds": [[port, bps] for port, bps in self._speed_bps.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._readings = {
            nic: {port: [ByteReading(*r) for r in held] for port, held in ports} for nic, ports in state["readings"]
        }
        self._speed_bps = {port: float(bps) for port, bps in state["speeds"]}


def _about(held: Sequence[ByteReading], at_ns: int) -> tuple[ByteReading, ByteReading] | None:
    """The neighbouring readings between which `at_ns` lies."""
    for old, new in pairwise(held):
        if old.at_ns <= at_ns < new.at_ns:
            usable = _LEAST_S <= (new.at_ns - old.at_ns) / NS_PER_S <= _MOST_S and min(old.rx, old.tx) >= 0
            return (old, new) if usable else None
    return None


def _summed(pairs: Sequence[tuple[ByteReading, ByteReading]], speed_bps: float) -> PortRate:
    """Of a bonded NIC's ports together."""
    tx, rx = 0.0, 0.0
    for old, new in pairs:
        passed_s = (new.at_ns - old.at_ns) / NS_PER_S
        tx, rx = tx + (new.tx - old.tx) * 8 / passed_s, rx + (new.rx - old.rx) * 8 / passed_s
    return PortRate(pairs[0][0].at_ns, pairs[0][1].at_ns, tx, rx, speed_bps)
