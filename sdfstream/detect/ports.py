"""Ports whose error counters rise: bit errors, drops, failing forward error correction.

Rates are differences of two readings over the host's own clock; a counter that went back (reset, reboot) or is null
gives no rate. Limits follow published practice for InfiniBand and RoCE NICs: symbol and receive errors above 10 per
second, discards ten times that, any uncorrectable FEC block. Corrected FEC blocks are normal on PAM4 links; only a
rate far above the port's own past is reported, as information: optics that degrade do so before they fail.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.instant import Instant
from sdfstream.records import columns
from sdfstream.records.finding import Evidence, Severity, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

_MOST_PORTS = 10_000
_ERRORS = ("rx_errors", "tx_errors", "symbol_errors")
_DISCARDS = ("rx_discards", "tx_discards")
_FEC_BAD, _FEC_GOOD = "fec_uncorrectable", "fec_corrected"
_RECEIVED: Final = frozenset({"rx_errors", "symbol_errors", "rx_discards", _FEC_BAD, _FEC_GOOD})
"""Counters of what arrives at the port: it was damaged on its way there."""
COUNTERS: Final = (*_ERRORS, *_DISCARDS, _FEC_BAD, _FEC_GOOD)
_FEC_TIMES, _FEC_LEAST_HZ, _FEC_WARM = 10.0, 100.0, 10


@dataclass(slots=True)
class _PortErrors:
    read_at_ns: int = 0
    """Host clock of the last reading."""
    last: dict[str, int] = field(default_factory=dict)
    carrier: int = -1
    """Its last count of carrier changes."""
    fec_hz: float = 0.0
    """Usual rate of corrected blocks."""
    fec_n: int = 0
    since_ns: int = 0
    risen_ns: int = 0
    """Bus time of the last rise beyond a limit; 0: never."""
    rates: dict[str, float] = field(default_factory=dict)
    """Counters beyond their limit at that time, per second."""


class PortDetector:
    """Counters of every port."""

    def __init__(self, config: DetectConfig) -> None:
        self.config = config
        self._ports: dict[str, _PortErrors] = {}

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a ``sdf.raw.port.v1`` message."""
        port, names = columns.names(batch, "port")
        read_at = columns.values(batch, "at_ns").tolist()
        state, states = columns.names(batch, "state")
        carrier = columns.filled(batch, "carrier_changes", 2**63).tolist()
        readings = {c: columns.filled(batch, c, 2**63).tolist() for c in COUNTERS}
        for i, number in enumerate(port.tolist()):
            name = names[number] if number >= 0 else None
            if name is None or (name not in self._ports and len(self._ports) >= _MOST_PORTS):
                continue
            now = {c: int(values[i]) for c, values in readings.items() if values[i] < 2**63}
            record = self._ports.setdefault(name, _PortErrors())
            up = (state[i] < 0 or states[state[i]] == "up") and int(carrier[i]) == record.carrier
            record.carrier = int(carrier[i])
            self._reading(record, now, int(read_at[i]), at_ns, up)

    def restarted(self, host: str) -> None:
        """A host's agent is a new run; its counters may have started again."""
        for name, port in self._ports.items():
            if name.startswith(f"{host}/"):
                port.last = {}

    def _reading(self, port: _PortErrors, now: dict[str, int], read_at_ns: int, at_ns: int, up: bool) -> None:
        """Judge one reading; drops count only if the port stayed `up` since the last: a port that is down drops all."""
        passed_s = (read_at_ns - port.read_at_ns) / NS_PER_S
        rates = {}
        if 0.05 < passed_s < 600:
            rates = {c: (n - port.last[c]) / passed_s for c, n in now.items() if n >= port.last.get(c, n + 1)}
        port.last, port.read_at_ns = now, read_at_ns
        limit = self.config.port_error_rate_hz
        over = {c: r for c in _ERRORS if (r := rates.get(c, 0.0)) > limit}
        over |= {c: r for c in _DISCARDS if up and (r := rates.get(c, 0.0)) > 10 * limit}
        over |= {c: r for c in (_FEC_BAD,) if (r := rates.get(c, 0.0)) > 0}
        if _FEC_GOOD in rates:
            over |= self._corrected(port, rates[_FEC_GOOD])
        if not over:
            return
        if at_ns - port.risen_ns > int(self.config.port_quiet_s * NS_PER_S):
            port.since_ns = at_ns
        port.risen_ns, port.rates = at_ns, over

    @staticmethod
    def _corrected(port: _PortErrors, rate: float) -> dict[str, float]:
        """Corrected blocks far above the port's own usual rate (which learns only from usual readings)."""
        if port.fec_n >= _FEC_WARM and rate > max(_FEC_LEAST_HZ, _FEC_TIMES * port.fec_hz):
            return {_FEC_GOOD: rate}
        port.fec_n += 1
        port.fec_hz += (rate - port.fec_hz) / min(port.fec_n, 300)
        return {}

    def detections(self, now: Instant) -> list[Detection]:
        """Ports whose counters rose lately."""
        quiet_ns = int(self.config.port_quiet_s * NS_PER_S)
        return [
            self._detection(name, port)
            for name, port in self._ports.items()
            if port.risen_ns and now.now_ns - port.risen_ns <= quiet_ns
        ]

    def _detection(self, name: str, port: _PortErrors) -> Detection:
        limits = dict.fromkeys(_ERRORS, self.config.port_error_rate_hz)
        limits |= dict.fromkeys(_DISCARDS, 10 * self.config.port_error_rate_hz)
        limits |= {_FEC_BAD: 0.0, _FEC_GOOD: port.fec_hz}
        evidence = tuple(
            Evidence(counter.replace("_", "-"), round(rate, 1), "1/s", name, round(limits[counter], 1))
            for counter, rate in sorted(port.rates.items())
        )
        only_corrected, only_dropped = port.rates.keys() <= {_FEC_GOOD}, port.rates.keys() <= set(_DISCARDS)
        severity: Severity = "info" if only_corrected else "warning"
        nic, received = name.rpartition(":")[0], port.rates.keys() & _RECEIVED
        sides = [f"{nic} rx"] if received else []
        sides += [f"{nic} tx"] if port.rates.keys() - received else []
        return Detection(
            "port-errors",
            Subject("port", name),
            port.since_ns,
            "queueing" if only_dropped else "degraded-link",
            0.6 if only_corrected else 0.9,
            evidence,
            severity=severity,
            suspects=((name, 1.0),),
            confirm_ns=200 * NS_PER_MS,
            detail=", ".join(sorted(port.rates)),
            directions=tuple(sides),
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"ports": [[name, asdict(port)] for name, port in self._ports.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._ports = {name: _PortErrors(**saved) for name, saved in state["ports"]}
