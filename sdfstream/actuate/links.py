"""What is known of links: who loads them, which queue stands there by the probes, and which finding names them.

**Loads**: the links that the data of queue pairs cross (`Loads`), and the share of a link that a newcomer can count on
(`Shares`): on a link of speed C with n other queue pairs that load it C / (n + 1), on its NICs' cables their speed
shared by what they carry now. Capacity that others leave unused is left out of account, so a prediction is rather too
low; in a ring all of a job's queue pairs are as slow as the slowest, and speed up when that one does.

**Queues** (`QueueDelays`), by the probes that cross a link (``sdf.derived.owd.v1``): delay over each path's own floor,
with its error bar. Of every directed probe path the last window counts, for two seconds. A link's excess is the median
over the probe paths that cross it: a queue elsewhere on one of them does not make it look congested, a queue on it
shows on all. Tens of thousands of paths are received ten times a second and a queue is seldom asked for, so only the
messages of the last two seconds are kept until one is.

**Findings** (`ActionableFindings`): the open ones that may move something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.actuate.jobs import OwnedQp, RunningJobs
from sdfstream.actuate.paths import MappedPath
from sdfstream.actuate.routes import Directed, Routes
from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records import columns
from sdfstream.records.fabric import Topology
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from sdfstream.stats import Counters


@dataclass(slots=True)
class Loads:
    """Queue pairs per hop by their data's present routes, and those that would come by armed failovers."""

    of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Queue pair to the hops its data cross now; absent: its route is not known."""
    count: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Queue pair to the hops of its data on its first alternate."""
    reserved_count: dict[str, int] = field(default_factory=dict)

    def put(self, qp: str, hops: Sequence[str]) -> None:
        """The queue pair's data cross these hops now (none: not known, or it is gone)."""
        if self.of.get(qp, ()) == tuple(hops):
            return
        for hop in self.of.pop(qp, ()):
            self.count[hop] -= 1
            if not self.count[hop]:
                del self.count[hop]
        if hops:
            self.of[qp] = tuple(hops)
            for hop in hops:
                self.count[hop] = self.count.get(hop, 0) + 1

    def reserve(self, qp: str, hops: Sequence[str]) -> None:
        """The queue pair's data would cross these hops next (none: nowhere)."""
        for hop in self.reserved.pop(qp, ()):
            self.reserved_count[hop] -= 1
            if not self.reserved_count[hop]:
                del self.reserved_count[hop]
        if hops:
            self.reserved[qp] = tuple(hops)
            for hop in hops:
                self.reserved_count[hop] = self.reserved_count.get(hop, 0) + 1

    def expected(self, qp: str, hops: Sequence[str]) -> int:
        """Most other queue pairs on one of these hops now, and that would come by failovers."""
        own = set(self.reserved.get(qp, ()))
        coming = max((self.reserved_count.get(hop, 0) - (hop in own) for hop in hops[1:]), default=0)
        return self.others(qp, hops) + coming

    def others(self, qp: str, hops: Sequence[str]) -> int:
        """Most other queue pairs on one of these hops, the sender's own cable left out."""
        mine = set(self.of.get(qp, ()))
        return max((self.count.get(hop, 0) - (hop in mine) for hop in hops[1:]), default=0)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {name: [[qp, list(h)] for qp, h in getattr(self, name).items()] for name in ("of", "reserved")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.of, self.count, self.reserved, self.reserved_count = {}, {}, {}, {}
        for qp, hops in state["of"]:
            self.put(qp, hops)
        for qp, hops in state["reserved"]:
            self.reserve(qp, hops)

    def crossing(self) -> dict[str, list[str]]:
        """Hop to the queue pairs whose data cross it, their own NIC's cable left out; by name."""
        found: dict[str, list[str]] = {}
        for qp in sorted(self.of):
            for hop in self.of[qp][1:]:
                found.setdefault(hop, []).append(qp)
        return found


PAYLOAD: Final = 0.9
"""Share of a link's speed that payload can have."""
_UNKNOWN: Final = float("inf")
"""A queue pair whose throughput is not known counts as a load."""


@dataclass(slots=True)
class Shares:
    """Loads of links and NICs at one instant."""

    topology: Topology
    rates: Mapping[str, float]
    """Queue pair to bit/s; absent: not known, or it does not send now."""
    crossing: Mapping[str, Sequence[str]]
    """Hop to queue pairs."""
    busy_share: float
    sent: dict[str, int] = field(default_factory=dict)
    """NIC to queue pairs that it sends at a rate."""
    received: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        topology: Topology,
        rates: Mapping[str, float],
        crossing: Mapping[str, Sequence[str]],
        busy_share: float,
        jobs: RunningJobs,
    ) -> Shares:
        """Count what every NIC carries."""
        shares = cls(topology, rates, crossing, busy_share)
        for owned in jobs:
            pair = owned.pair
            for nic, count in ((pair.src, shares.sent), (pair.dst, shares.received)):
                if rates.get(pair.qp, _UNKNOWN) >= busy_share * topology.nic_speed_bps(nic):
                    count[nic] = count.get(nic, 0) + 1
        return shares

    def load_bps(self, hop: str) -> float:
        """What queue pairs move over a link."""
        return sum(self.rates.get(qp, 0.0) for qp in self.crossing.get(hop, ()))

    def predicted_bps(self, owned: OwnedQp, mapped: MappedPath, full_hop: str) -> float:
        """bit/s that the queue pair may hope for on `mapped`, coming from the full link `full_hop`."""
        qp, pair = owned.pair.qp, owned.pair
        like_full = self.load_bps(full_hop)
        predicted_bps = float("inf")
        for hop in mapped.data[1:]:
            speed = self.topology.speed_bps(hop) * PAYLOAD or like_full
            others = sum(self.rates.get(q, _UNKNOWN) >= self.busy_share * speed for q in self._others(hop, qp))
            predicted_bps = min(predicted_bps, speed / (others + 1))
        for nic, count in ((pair.src, self.sent), (pair.dst, self.received)):
            if speed := self.topology.nic_speed_bps(nic) * PAYLOAD:
                predicted_bps = min(predicted_bps, speed / max(1, count.get(nic, 0)))
        return predicted_bps

    def _others(self, hop: str, qp: str) -> list[str]:
        return [other for other in self.crossing.get(hop, ()) if other != qp]


Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MAX_NICS: Final = 1 << 18
_MAX_PATHS: Final = 400_000
_DELAYS_FRESH_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """The queue of a link, as the probes over it show."""

    excess_ns: float
    err_ns: float
    """Median error bar of the delays behind it."""
    n: int
    """Probe paths behind it; 0: nothing is known."""


class _DelayRows(NamedTuple):
    """The rows of one message: codes into its own names, −1 for null."""

    at_ns: int
    src: tuple[npt.NDArray[np.int32], list[str]]
    dst: tuple[npt.NDArray[np.int32], list[str]]
    rev: Ints
    path: Ints
    dscp: Ints
    start_ns: Ints
    excess: Floats
    err: Floats


class QueueDelays:
    """The last window of every directed probe path."""

    def __init__(self, routes: Routes, counters: Counters) -> None:
        self._routes, self._counters = routes, counters
        self._nics: dict[str, int] = {}
        self._index = KeyIndex(_MAX_PATHS)
        self._table = Table(
            {"start_ns": np.int64(ABSENT_NS), "seen_ns": np.int64(ABSENT_NS), "excess": np.nan, "err": np.nan}
        )
        self._waiting: deque[_DelayRows] = deque()
        """Messages of the last two seconds that are not in the table yet."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take corrected delays; FormatError when a column cannot be read."""
        direction, directions = columns.names(batch, "dir")
        delays = _DelayRows(
            at_ns,
            columns.names(batch, "src"),
            columns.names(batch, "dst"),
            np.array([{"fwd": 0, "rev": 1}.get(name, -1) for name in directions] + [-1], np.int64)[direction],
            columns.values(batch, "path").astype(np.int64),
            columns.values(batch, "dscp").astype(np.int64),
            columns.values(batch, "at_ns").astype(np.int64),
            columns.filled(batch, "excess_p50_ns", np.nan).astype(np.float64),
            columns.filled(batch, "err_ns", np.nan).astype(np.float64),
        )
        self._counters.add("refused", "owd-row", batch.num_rows - int(np.count_nonzero(_good(delays))))
        self._waiting.append(delays)
        while self._waiting and at_ns - self._waiting[0].at_ns > _DELAYS_FRESH_NS:
            self._waiting.popleft()

    def _settle(self) -> None:
        """Enter what waits into the table, in order; an earlier window replaces only one received over 2 s before."""
        while self._waiting:
            delays = self._waiting.popleft()
            good = _good(delays) & ~np.isnan(delays.excess) & ~np.isnan(delays.err)
            src, dst = self._numbers(*delays.src), self._numbers(*delays.dst)
            good &= (src >= 0) & (dst >= 0)
            slot = self._index.add(
                _packed(src[good], dst[good], delays.path[good], delays.dscp[good], delays.rev[good])
            )
            self._table.ensure(self._index.slots)
            t, start_ns = self._table, delays.start_ns[good]
            keep = slot >= 0
            keep &= (start_ns >= t["start_ns"][slot]) | (delays.at_ns - t["seen_ns"][slot] > _DELAYS_FRESH_NS)
            slot = slot[keep]
            t["start_ns"][slot], t["seen_ns"][slot] = start_ns[keep], delays.at_ns
            t["excess"][slot], t["err"][slot] = delays.excess[good][keep], delays.err[good][keep]

    def forget(self, before_ns: int) -> None:
        """Drop paths without a window since."""
        gone = np.flatnonzero((self._table["seen_ns"] != ABSENT_NS) & (self._table["seen_ns"] < before_ns))
        self._index.remove(gone)
        self._table.reset(gone)

    def _numbers(self, codes: npt.NDArray[np.int32], names: list[str]) -> Ints:
        numbers: Ints = np.array([self._number(n) for n in names] + [-1], np.int64)[codes]
        return numbers

    def _number(self, nic: str | None) -> int:
        if nic is None:
            return -1
        if nic not in self._nics and len(self._nics) >= _MAX_NICS:
            return -1
        return self._nics.setdefault(nic, len(self._nics))

    def queue(self, hop: str, now_ns: int, dscp: int | None = None) -> LinkQueue:
        """The queue of a link by the probes over it; those of class `dscp` alone, where there are any."""
        paths = self._routes.over(hop, now_ns)
        self._settle()
        same = [p for p in paths if p.key.dscp == dscp]
        slots = self._slots(same or paths)
        slots = slots[slots >= 0]
        slots = slots[now_ns - self._table["seen_ns"][slots] <= _DELAYS_FRESH_NS] if slots.size else slots
        if not slots.size:
            return LinkQueue(0.0, 0.0, 0)
        excess, err = self._table["excess"][slots], self._table["err"][slots]
        return LinkQueue(float(np.median(excess)), float(np.median(err)), int(slots.size))

    def _slots(self, paths: Sequence[Directed]) -> Ints:
        known = [p for p in paths if p.key.src in self._nics and p.key.dst in self._nics]
        if not known:
            return np.empty(0, np.int64)
        src = np.array([self._nics[p.key.src] for p in known], np.int64)
        dst = np.array([self._nics[p.key.dst] for p in known], np.int64)
        path = np.array([p.key.path for p in known], np.int64)
        dscp = np.array([p.key.dscp for p in known], np.int64)
        rev = np.array([p.dir == "rev" for p in known], np.int64)
        return self._index.find(_packed(src, dst, path, dscp, rev))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        self._settle()
        return {"nics": list(self._nics), "index": self._index.snapshot(), "table": self._table.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._waiting.clear()
        self._nics = {nic: number for number, nic in enumerate(state["nics"])}
        self._index.restore(state["index"])
        self._table.restore(state["table"])


def _good(delays: _DelayRows) -> npt.NDArray[np.bool_]:
    good: npt.NDArray[np.bool_] = (delays.src[0] >= 0) & (delays.dst[0] >= 0) & (delays.rev >= 0)
    good &= (delays.path < 65_536) & (delays.dscp < 64)
    return good


def _packed(src: Ints, dst: Ints, path: Ints, dscp: Ints, rev: Ints) -> Ints:
    packed: Ints = (((((src << 18) | dst) << 16) | path) << 7) | (dscp << 1) | rev
    return packed


_UNREST: Final = ("link-down", "nic-down", "path-down", "link-flap", "host-silent")
_MOST_FINDINGS: Final = 10_000
_LIKELY: Final = 0.3
"""Suspects less likely than this are not named."""


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """An open finding that may move something."""

    id: str
    kind: str
    subject_type: str
    subject: str
    directions: tuple[str, ...]
    """Link directions ``a->b`` that it may be about."""
    confidence: float
    seen_ns: int
    """Bus time of its newest statement."""


class ActionableFindings:
    """Open findings of the kinds that may move something."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = frozenset(kinds)
        self._open: dict[str, OpenFinding] = {}

    def __iter__(self) -> Any:
        return iter(self._open.values())

    def take(self, data: Mapping[str, Any], at_ns: int) -> bool:
        """Take a finding; True when the fabric changes by it (something is down, or up again)."""
        kind, status, name = str(data["kind"]), data["status"], str(data["id"])
        if kind in self._kinds:
            if status == "resolved":
                self._open.pop(name, None)
            elif name in self._open or len(self._open) < _MOST_FINDINGS:
                self._open[name] = _finding(data, at_ns)
        return kind in _UNREST and status != "update"

    def forget(self, before_ns: int) -> None:
        """Drop what was not repeated since: its resolution was lost."""
        self._open = {name: finding for name, finding in self._open.items() if finding.seen_ns >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [t.id, t.kind, t.subject_type, t.subject, list(t.directions), t.confidence, t.seen_ns]
            for t in self._open.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._open = {
            row[0]: OpenFinding(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], row[6]) for row in state
        }


def _finding(data: Mapping[str, Any], at_ns: int) -> OpenFinding:
    subject = data["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    named = [word for word in str(data.get("detail") or "").split() if "->" in word]
    suspects = [str(s["id"]) for s in data.get("suspects", ()) if float(s["probability"]) >= _LIKELY]
    named = named if kind in ("link", "nic") else []
    directions = tuple(dict.fromkeys([*named, *(s for s in suspects if "->" in s)]))
    if not directions and kind == "link":
        a, dashes, b = name.partition("--")
        directions = (f"{a}->{b}", f"{b}->{a}") if dashes else (name,)
    return OpenFinding(str(data["id"]), str(data["kind"]), kind, name, directions, float(data["confidence"]), at_ns)
