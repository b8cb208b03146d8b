"""Queue and utilisation of each direction of a link, span by span (``sdf.derived.hop.v1``).

- The queue: excess delays of all paths whose routes are known, shared out over the directions that they cross
  (`numeric.tomography`). A quiet path of which only some directions are known clears those; a slow one says nothing.
  What is normal for a path may be a queue that never leaves it (`normals`). Shorter ones stay hidden in the normal
  delay, so no error is smaller than the scatter of the quietest path over the direction.
  Bytes are delay × the rate at which the queue drains: the declared speed, or what the port moved while it stood.
- Utilisation of a NIC's cable: its ports' counters, between the two readings about the middle of the span.
- Utilisation of other links: bytes of queue pairs along their flows' routes (`carried`), times what ports sent for each
  byte that queue pairs told of. Only while these two agree: where ports moved far more, others' traffic took routes
  that nobody told of, and nothing is said. While a queue stands the link is full, whoever fills it (or it is paused,
  or slow: the error says so).

Spans are of reference time, as the delays are. Where neither cabling nor traces are known nothing is done.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.clocks import ClockDetector
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.flows import Flows
from sdfstream.detect.inband import InBand, Windows
from sdfstream.detect.queues.carried import CarriedByFlows, CarriedBytes
from sdfstream.detect.queues.excess import ExcessSpans, PathExcess
from sdfstream.detect.queues.links import LinkDirections
from sdfstream.detect.queues.normals import PathFloors
from sdfstream.detect.queues.ports import PortBytes, PortRate
from sdfstream.numeric.tomography import HIGH, link_delays
from sdfstream.records import columns
from sdfstream.records.message import Output
from sdfstream.records.topics import HOP
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_REPORTED_LEAST, _REPORTED_MOST = 0.9, 1.15
"""Bytes that ports sent for each byte that queue pairs told of, while those are all the traffic: headers, repeats."""
_FOLLOW: Final = 0.2
_ERRORS: Final = 2.0
"""So many standard errors below the mean is what a link surely carried: of whose routes not all are known."""
_STAMP_NS: Final = 1e6
"""A counter is read within about so long of the instant that is stated for it."""
_STOOD: Final = 0.7
"""Share of the windows of the paths over a link that show a queue when it stood all along."""
_SHOWN: Final = 0.95
"""Share of their windows in which a queue that stands all along shows: some probes meet little of it."""
_KEY: Final = "fabric"


class _LinkQueues(NamedTuple):
    """(elements,) arrays."""

    delay_ns: Floats
    """NaN: not known."""
    err_ns: Floats
    paths: Ints
    """Directed paths behind it."""
    held: Floats
    """Share of the span in which those stood in a queue, mean."""


class _Uses:
    """(elements,) utilisations as they are found."""

    def __init__(self, elements: int) -> None:
        self.share, self.err = np.full(elements, np.nan), np.full(elements, np.nan)
        self.from_ns, self.window_ns = np.full(elements, ABSENT_NS), np.full(elements, ABSENT_NS)
        self.by = np.full(elements, -1, np.int64)
        """Number in `BY`."""


BY: Final = ("ports", "flows")


class HopEstimates:
    """Takes what other engines assessed and read; says a batch for each span."""

    def __init__(
        self,
        config: DetectConfig,
        delays: DelayBaselines,
        cabling: Cabling,
        clocks: ClockDetector,
        inband: InBand,
        flows: Flows,
    ) -> None:
        self._length_ns = round(config.hop_s * NS_PER_S)
        self._delays, self._cabling, self._clocks = delays, cabling, clocks
        self.links = LinkDirections(cabling)
        self.spans = ExcessSpans(max(self._length_ns, 1))
        self.floors = PathFloors()
        self.ports = PortBytes()
        self.carried = CarriedByFlows(inband, flows, cabling)
        self.carried_share = np.zeros(0)
        """(elements,) share of its speed that queue pairs carried at least in the last span; 0: nothing is known."""
        self.per_reported = 0.0
        """Bytes that ports sent for each byte that queue pairs told of, slowly following; 0: not known."""

    @property
    def _runs(self) -> bool:
        return self._length_ns > 0 and self.links.routes_known

    def take_ports(self, batch: pa.RecordBatch) -> None:
        """Take a ``sdf.raw.port.v1`` message."""
        if self._runs:
            self.ports.take(batch, self._clocks.offset_ns)

    def take_windows(self, windows: Windows, batch: pa.RecordBatch) -> None:
        """Take rows of ``sdf.derived.qp.v1``."""
        if self._runs:
            self.carried.take(windows, batch)

    def boundary(self) -> list[Output]:
        """Take the windows that the baselines have just assessed; the batches of spans that are complete now."""
        if not self._runs:
            return []
        for windows in self._delays.assessed:
            self.spans.take(windows)
            self.floors.take(windows.number, windows.start_ns, windows.normal_ns + windows.above_ns)
        out = []
        span = self.spans.due()
        while span is not None:
            out += self._close(span)
            span = self.spans.due()
        return out

    def _close(self, span: int) -> list[Output]:
        from_ns = span * self._length_ns
        carried = self.carried.close(from_ns, from_ns + self._length_ns)
        rates = self.ports.rates(from_ns + self._length_ns // 2)
        self.links.refresh()
        paths = self.spans.close(span)
        queues = self._queues(paths)
        uses = _Uses(len(self.links.direction))
        self.carried_share = self._at_least(carried)
        self._of_flows(uses, carried.by_element, carried.variance, carried.whole, carried.by_sender, rates, from_ns)
        self._of_queues(uses, queues)
        self._of_ports(uses, rates)
        rows = np.flatnonzero(self.links.is_link & ((queues.paths > 0) | ~np.isnan(uses.share)))
        if not rows.size:
            return []
        return [Output(HOP.name, _KEY, self._batch(rows, from_ns, queues, uses))]

    # -- queues -------------------------------------------------------------------------------------------------

    def _queues(self, paths: PathExcess) -> _LinkQueues:
        n = len(self.links.direction)
        crossed, measured = self.links.crossed_by(paths.number), self.floors.without(paths)
        use = crossed.whole | (measured.excess_ns <= HIGH * measured.err_ns)
        there = use[crossed.path]
        path, element = crossed.path[there], crossed.element[there]
        found = link_delays(path, element, measured, n)
        hidden_ns = np.full(n, np.inf)
        np.minimum.at(hidden_ns, element, paths.scatter_ns[path])
        held = np.bincount(element, paths.held[path], n) / np.maximum(found.paths, 1)
        return _LinkQueues(found.delay_ns, np.hypot(found.err_ns, hidden_ns), found.paths, held)

    def _drains_bps(self, queues: _LinkQueues, uses: _Uses) -> Floats:
        """(elements,) bit/s at which each queue drains; NaN: not known.

        The declared speed; of a queue that stood all along no more than what the port moved: that is what was left.
        """
        speed_bps = np.where(self.links.speed_bps > 0, self.links.speed_bps, np.nan)
        stood = (queues.held >= _STOOD) & (queues.delay_ns > HIGH * queues.err_ns) & (uses.by == BY.index("ports"))
        return np.where(stood, np.minimum(uses.share / np.maximum(queues.held, _STOOD), 1.0), 1.0) * speed_bps

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        self.floors.forget(np.concatenate([2 * slots, 2 * slots + 1]))

    # -- utilisation --------------------------------------------------------------------------------------------

    def _of_ports(self, uses: _Uses, rates: dict[str, PortRate]) -> None:
        for nic, rate in rates.items():
            declared_bps = self._cabling.topology.nic_speed_bps(nic) or rate.speed_bps
            if not declared_bps:
                continue
            window_ns = rate.until_ns - rate.from_ns
            for side, bps in (("tx", rate.tx_bps), ("rx", rate.rx_bps)):
                element = self._cabling.nic_element(nic, side)
                if 0 <= element < uses.share.size:
                    uses.share[element] = bps / declared_bps
                    uses.err[element] = bps / declared_bps * _STAMP_NS / window_ns
                    uses.from_ns[element], uses.window_ns[element] = rate.from_ns, window_ns
                    uses.by[element] = BY.index("ports")

    def _at_least(self, carried: CarriedBytes) -> Floats:
        """(elements,) share of its speed that what queue pairs told of surely filled, whatever else was there."""
        most = self.links.speed_bps * self._length_ns / NS_PER_S / 8
        surely = np.maximum(carried.by_element - _ERRORS * np.sqrt(carried.variance), 0.0)
        return np.where(most > 0, surely / np.maximum(most, 1.0), 0.0)

    @staticmethod
    def _of_queues(uses: _Uses, queues: _LinkQueues) -> None:
        """A link is in use for at least as long as a queue stands at it."""
        full = np.minimum(queues.held / _SHOWN, 1.0)
        more = (queues.delay_ns > HIGH * queues.err_ns) & (uses.share < full)
        uses.err[more] = np.hypot(uses.err[more], (full - uses.share)[more] / 2)
        uses.share[more] = full[more]

    def _of_flows(
        self,
        uses: _Uses,
        carried: Floats,
        variance: Floats,
        whole: bool,
        by_sender: dict[str, float],
        rates: dict[str, PortRate],
        from_ns: int,
    ) -> None:
        span_s = self._length_ns / NS_PER_S
        sent = sum(rate.tx_bps for rate in rates.values()) / 8 * span_s
        reported = sum(b for nic, b in by_sender.items() if nic in rates)
        if reported > 0:
            self.per_reported += (_FOLLOW if self.per_reported else 1.0) * (sent / reported - self.per_reported)
        if not whole or not reported or not _REPORTED_LEAST <= self.per_reported <= _REPORTED_MOST:
            return
        bytes_most = self.links.speed_bps * span_s / 8
        use = self.links.is_link & (bytes_most > 0)
        share = carried[use] * self.per_reported / bytes_most[use]
        unsure = np.sqrt(variance[use]) / bytes_most[use]
        uses.share[use] = share
        uses.err[use] = np.hypot(unsure, share * abs(self.per_reported - 1.0))
        uses.from_ns[use], uses.window_ns[use], uses.by[use] = from_ns, self._length_ns, BY.index("flows")

    # -- what is said ---------------------------------------------------------------------------------------------

    def _batch(self, rows: Ints, from_ns: int, queues: _LinkQueues, uses: _Uses) -> pa.RecordBatch:
        delay_ns, speed_bps = queues.delay_ns[rows], self.links.speed_bps[rows]
        return columns.build(
            HOP.columns,
            {
                "at_ns": np.full(rows.size, from_ns),
                "window_ns": np.full(rows.size, self._length_ns),
                "link": [self.links.link[i] for i in rows.tolist()],
                "direction": [self.links.direction[i] for i in rows.tolist()],
                "speed_bps": np.where(speed_bps > 0, speed_bps, np.nan),
                "queue_ns": delay_ns,
                "queue_err_ns": queues.err_ns[rows],
                "queue_bytes": delay_ns * self._drains_bps(queues, uses)[rows] / 8e9,
                "paths": queues.paths[rows].astype(np.uint32),
                "utilisation": uses.share[rows],
                "utilisation_err": uses.err[rows],
                "utilisation_at_ns": uses.from_ns[rows],
                "utilisation_window_ns": uses.window_ns[rows],
                "utilisation_by": columns.name_column(uses.by[rows], list(BY)),
            },
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "spans": self.spans.snapshot(),
            "floors": self.floors.snapshot(),
            "ports": self.ports.snapshot(),
            "carried": self.carried.snapshot(),
            "carried_share": self.carried_share,
            "per_reported": self.per_reported,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.spans.restore(state["spans"])
        self.floors.restore(state["floors"])
        self.ports.restore(state["ports"])
        self.carried.restore(state["carried"])
        self.carried_share = np.asarray(state.get("carried_share", np.zeros(0)), np.float64)
        self.per_reported = float(state["per_reported"])
