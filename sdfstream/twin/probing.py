"""Sessions, and the exchanges of one block of time, all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import NS_PER_MS, NS_PER_S, Bools, Float64s, Int64s
from sdfstream.twin.conditions import is_hit
from sdfstream.twin.fabric import HOPS, TwinFabric, mixed
from sdfstream.twin.queues import CELL_NS, Cell
from sdfstream.twin.rows import PROBE_BYTES

if TYPE_CHECKING:
    from sdfstream.twin.scenario import ProbeSpec

FIRST_PORT: Final = 50_000
LARGE_PORT: Final = 49_151
"""Source port of the session of large packets."""
_SENDER_PORT, _REFLECTOR_PORT = 862, 863
HOST_NS: Final = 8_000.0
"""Fixed delay between stamp and wire, both hosts together."""
TURN_NS: Final = 20_000
_BUSY_TURN_NS: Final = 2e6
"""Mean turn-round of a reflector whose processor is taken by others: user space waits for its turn."""
_BUSY_STAMP_NS: Final = 300e3
"""Mean extra delay of arrivals there: the kernel's own work waits too, now and then."""
_BUSY_SHARE: Final = 0.15
Float32s = npt.NDArray[np.float32]


@dataclass(slots=True)
class ExchangeBlock:
    """Exchanges of a block; row by row, in order of session and time. Times are true, ns since the start."""

    session: Int64s
    seq: Int64s
    t1: Int64s
    t2: Int64s
    t3: Int64s
    t4: Int64s
    arrived: Bools
    """The probe reached its reflector."""
    answered: Bools
    ce_fwd: Bools
    ce_rev: Bools
    rewritten_fwd: Bools
    """The probe arrived with DSCP 0 instead of its own."""
    rewritten_rev: Bools
    seq_rev: Int64s
    """The reflector's own number of its answer, which may have been lost; of no meaning where none `arrived`."""

    def take(self, rows: Any) -> ExchangeBlock:
        """Some of them."""
        return ExchangeBlock(*(getattr(self, name)[rows] for name in self.__slots__))

    @staticmethod
    def joined(several: Sequence[ExchangeBlock]) -> ExchangeBlock:
        """All of several."""
        return ExchangeBlock(*(np.concatenate([getattr(e, name) for e in several]) for name in ExchangeBlock.__slots__))


@dataclass(slots=True)
class RouteTable:
    """Routes that hold from `since_ns` on: (choices, sessions, 6) link directions, there and back."""

    since_ns: int
    fwd: Int64s
    rev: Int64s
    fixed_fwd: Float64s
    fixed_rev: Float64s


class ProbeMesh:
    """Who probes whom, drawn by a seed; the routes of all."""

    def __init__(self, fabric: TwinFabric, spec: ProbeSpec, rng: np.random.Generator) -> None:
        self.fabric, self.spec = fabric, spec
        hosts, rails = len(fabric.hosts), fabric.spec.rails
        peers = min(spec.peers, hosts - 1)
        shift = np.array([1 + rng.permutation(hosts - 1)[:peers] for _ in fabric.nics])
        nic = np.arange(len(fabric.nics))
        to = ((fabric.host_of[nic][:, None] + shift) % hosts) * rails + fabric.rail_of[nic][:, None]
        ports = [*range(FIRST_PORT, FIRST_PORT + spec.ports), *([LARGE_PORT] if spec.large_hz else [])]
        self.src = np.repeat(nic, peers * len(ports))
        self.dst = np.repeat(to.ravel(), len(ports))
        self.port = np.tile(ports, self.src.size // len(ports))
        self.src_host, self.dst_host = fabric.host_of[self.src], fabric.host_of[self.dst]
        large, self.common_ns = self.port == LARGE_PORT, round(NS_PER_S / spec.hz)
        self.size_bytes = np.where(large, spec.large_bytes, PROBE_BYTES)
        self.interval_ns = np.where(large, round(NS_PER_S / (spec.large_hz or spec.hz)), self.common_ns)
        """Of each session; `common_ns` of those of small packets."""
        first = self.stretched(rng.integers(0, self.common_ns, self.src.size), slice(None))
        self.first_ns = first + 100 * NS_PER_MS
        self.limit_ns = np.maximum(spec.liveness_ms * NS_PER_MS, 3 * self.interval_ns)
        self.timeout_ns = np.minimum(NS_PER_S, 5 * self.interval_ns)
        self.flow_fwd = mixed(self.src, self.dst, self.port, _SENDER_PORT)
        self.flow_rev = mixed(self.dst, self.src, self.port, _REFLECTOR_PORT)
        self.starts = np.searchsorted(self.src_host, np.arange(hosts + 1))
        """Sessions of host h: starts[h] to starts[h + 1]."""
        self.tables: list[RouteTable] = []
        self.reroute(0, ())
        self.drawn = self.tables[-1]
        """Routes at the start."""

    def __len__(self) -> int:
        return int(self.src.size)

    def stretched(self, ns: Int64s, sessions: Any) -> Int64s:
        """Times within the common interval as times within the interval of each of `sessions`."""
        made: Int64s = (ns * (self.interval_ns[sessions] / self.common_ns)).astype(np.int64)
        return made

    def reroute(self, since_ns: int, dead: Sequence[int]) -> Int64s:
        """Choose all routes anew; returns the sessions whose routes changed (of sprayed ones none is known)."""
        f = self.fabric
        turns = range(len(f.tops)) if f.spec.hash == "spray" else (None,)
        fwd = np.array([f.routes(self.src, self.dst, self.flow_fwd, dead, turn) for turn in turns])
        rev = np.array([f.routes(self.dst, self.src, self.flow_rev, dead, turn) for turn in turns])
        fixed = [f.fixed_ns[routes].sum(axis=2) for routes in (fwd, rev)]
        before = self.tables[-1] if self.tables else None
        self.tables = [*self.tables[-2:], RouteTable(since_ns, fwd, rev, *fixed)]
        if before is None or f.spec.hash == "spray":
            return np.empty(0, np.int64)
        moved = (before.fwd[0] != fwd[0]).any(axis=1) | (before.rev[0] != rev[0]).any(axis=1)
        return np.flatnonzero(moved)

    def crossed(self) -> Float64s:
        """(links + 1,) probe paths over each direction."""
        now = self.tables[-1]
        both = np.concatenate([now.fwd.ravel(), now.rev.ravel()])
        return np.bincount(both, minlength=self.fabric.links + 1).astype(float)


class Prober:
    """Draws exchanges."""

    def __init__(self, sessions: ProbeMesh, phase_ns: Int64s, rng: np.random.Generator) -> None:
        self.sessions, self.rng = sessions, rng
        self.phase_ns = phase_ns[sessions.src_host]
        self.loss_each = 1 - np.sqrt(1 - sessions.spec.loss)
        self._reflected = np.zeros(len(sessions), np.int64)
        """How many answers each session's reflector has numbered, those that were lost on the way back among them."""

    def block(
        self, begin_ns: int, end_ns: int, cells: Sequence[Cell], first_cell: int, busy: Bools, down: Bools
    ) -> ExchangeBlock:
        """Exchanges sent between `begin_ns` and `end_ns`, each host's block later by its phase."""
        s, each = self.sessions, self.sessions.interval_ns
        low = -((s.first_ns - begin_ns - self.phase_ns) // each)
        high = -((s.first_ns - end_ns - self.phase_ns) // each)
        low, high = np.maximum(low, 0), np.maximum(high, 0)
        count = high - low
        if down.any():
            count = np.where(down[s.src_host], 0, count)
        session = np.repeat(np.arange(len(s)), count)
        offset = np.cumsum(count) - count
        seq = np.arange(session.size) + np.repeat(low - offset, count)
        jitter = s.stretched(self.rng.integers(0, max(s.common_ns // 20, 1), session.size), session)
        t1 = s.first_ns[session] + seq * each[session] + jitter
        fabric = CellsTable(cells, first_cell)
        ok_f, d_f, ce_f, zero_f = self._cross(session, t1, fabric, back=False)
        ok_r, d_r, ce_r, zero_r = self._cross(session, t1, fabric, back=True)
        turn: Any = TURN_NS
        if busy.any():
            d_f, d_r, turn = self._starve(session, busy, d_f, d_r)
        if down.any():
            ok_f &= ~down[s.dst_host[session]]
        t2 = t1 + d_f.astype(np.int64)
        t3 = t2 + turn
        t4, ok = t3 + d_r.astype(np.int64), ok_f & ok_r
        numbers = self._numbered(session, ok_f, down)
        return ExchangeBlock(session, seq, t1, t2, t3, t4, ok_f, ok, ce_f, ce_r, zero_f, zero_r, numbers)

    def _numbered(self, session: Int64s, arrived: Bools, down: Bools) -> Int64s:
        """(n,) numbers of the answers as a stateful reflector counts them, session by session in order of sending.

        A host that is down knows nothing of its sessions afterwards: their answers are numbered from 0 again.
        """
        self._reflected[down[self.sessions.dst_host]] = 0
        came = np.bincount(session[arrived], minlength=len(self.sessions))
        before = self._reflected - (np.cumsum(came) - came)
        self._reflected += came
        numbers: Int64s = np.cumsum(arrived) - arrived + before[session]
        return numbers

    def _starve(self, session: Int64s, busy: Bools, d_f: Float32s, d_r: Float32s) -> tuple[Float32s, Float32s, Int64s]:
        n, s = session.size, self.sessions
        waits = [
            busy[host[session]]
            * (self.rng.random(n, np.float32) < _BUSY_SHARE)
            * self.rng.standard_exponential(n, np.float32)
            * np.float32(_BUSY_STAMP_NS)
            for host in (s.dst_host, s.src_host)
        ]
        turn = TURN_NS + (busy[s.dst_host[session]] * self.rng.exponential(_BUSY_TURN_NS, n)).astype(np.int64)
        return d_f + waits[0], d_r + waits[1], turn

    def _cross(
        self, session: Int64s, t1: Int64s, cells: CellsTable, *, back: bool
    ) -> tuple[Bools, Float32s, Bools, Bools]:
        """(arrives, delay ns, marked, DSCP rewritten) of packets sent at `t1`."""
        n, rng, tables = session.size, self.rng, self.sessions.tables
        since = np.array([t.since_ns for t in tables[1:]])
        version = (
            np.searchsorted(since, t1, side="right") if since.size and (t1.size and t1[:].min() < since[-1]) else None
        )
        flat = cells.row(t1)
        fixed, hops = self._hops(session, tables, version, back)
        delay = np.exp(np.float32(0.5) * rng.standard_normal(n, np.float32))
        delay *= np.float32(self.sessions.spec.noise_us * 1e3)
        delay += fixed
        longer = cells.sum("longer", flat, hops)
        if longer is not None:
            delay += longer
        queue = cells.sum("delay", flat, hops)
        spread = cells.sum("random", flat, hops)
        if queue is not None:
            delay += queue * (np.float32(0.85) + np.float32(0.3) * rng.random(n, np.float32))
        if spread is not None:
            delay += spread * rng.standard_exponential(n, np.float32)
        lost = rng.random(n, np.float32)
        survive = cells.sum("pass", flat, hops)
        ok = lost >= self.loss_each if survive is None else lost < (1 - self.loss_each) * np.exp(survive)
        if cells.holds("hashed") or cells.holds("largest"):
            ok &= ~self._dropped(session, cells, flat, hops, back)
        unmarked = cells.sum("unmarked", flat, hops)
        ce = np.zeros(n, bool) if unmarked is None else rng.random(n, np.float32) >= np.exp(unmarked)
        rewritten = cells.sum("rewritten", flat, hops)
        return ok, delay, ce, np.zeros(n, bool) if rewritten is None else rewritten > 0

    def _dropped(self, session: Int64s, cells: CellsTable, flat: Int64s, hops: list[Int64s], back: bool) -> Bools:
        """Packets that a link drops by the hash of their five-tuple, or because they are large."""
        s, gone = self.sessions, np.zeros(session.size, bool)
        flow = (s.flow_rev if back else s.flow_fwd)[session]
        for hop in hops:
            share, largest = cells.at("hashed", flat + hop), cells.at("largest", flat + hop)
            if share is not None:
                gone |= is_hit(flow, hop, share)
            if largest is not None:
                gone |= (largest > 0) & (s.size_bytes[session] > largest)
        return gone

    def _hops(
        self, session: Int64s, tables: list[RouteTable], version: Any, back: bool
    ) -> tuple[Float32s, list[Int64s]]:
        """Fixed delay and the link direction at each hop, per packet; unused hops left out."""
        n = session.size
        choices = tables[-1].fwd.shape[0]
        turn: Any = 0 if choices == 1 else self.rng.integers(0, choices, n)
        names = ("rev", "fixed_rev") if back else ("fwd", "fixed_fwd")
        if version is None:
            routes, fixed = getattr(tables[-1], names[0]), getattr(tables[-1], names[1])
            at = turn * len(self.sessions) + session if choices > 1 else session
            flat = routes.reshape(-1, HOPS)
            used = [j for j in range(HOPS) if (flat[:, j] != self.sessions.fabric.links).any()]
            return (fixed.ravel()[at] + HOST_NS).astype(np.float32), [flat[:, j][at] for j in used]
        routes = np.concatenate([getattr(t, names[0]).reshape(-1, HOPS) for t in tables])
        fixed = np.concatenate([getattr(t, names[1]).ravel() for t in tables])
        at = (version * choices + turn) * len(self.sessions) + session
        return (fixed[at] + HOST_NS).astype(np.float32), [routes[:, j][at] for j in range(HOPS)]


class CellsTable:
    """Some cells' figures, to be looked up by packets."""

    def __init__(self, cells: Sequence[Cell], first: int) -> None:
        self._first, self._count, self._width = first, len(cells), cells[0].now.loss.size
        with np.errstate(divide="ignore"):
            made = {
                "delay": np.array([c.delay_ns for c in cells]),
                "random": np.array([c.random_ns for c in cells]),
                "pass": np.log1p(-np.minimum(np.array([c.now.loss for c in cells]), 1.0)),
                "unmarked": np.log1p(-np.minimum(np.array([c.mark for c in cells]), 1.0)),
            }
        made |= {
            "hashed": self._sparse([c.now.hashed for c in cells]),
            "largest": self._sparse([c.now.largest for c in cells]),
            "longer": self._sparse([c.now.longer_us for c in cells]) * 1e3,
            "rewritten": self._sparse([dict.fromkeys(c.now.rewritten, 1.0) for c in cells]),
        }
        self._tables = {name: table.astype(np.float32).ravel() for name, table in made.items() if (table != 0).any()}

    def _sparse(self, cells: Sequence[Mapping[int, float]]) -> Float64s:
        """(cells, links) of what few directions have; of none where no direction has any."""
        if not any(cells):
            return np.zeros(0)
        table = np.zeros((self._count, self._width))
        for number, values in enumerate(cells):
            for link, value in values.items():
                table[number, link] = value
        return table

    def row(self, t1: Int64s) -> Int64s:
        """Where each packet's cell begins in the tables."""
        return np.clip(t1 // CELL_NS - self._first, 0, self._count - 1) * self._width

    def holds(self, name: str) -> bool:
        """Whether the figure is other than 0 anywhere."""
        return name in self._tables

    def at(self, name: str, index: Int64s) -> Float32s | None:
        """The figure at some cells and directions; None: nowhere other than 0."""
        table = self._tables.get(name)
        return None if table is None else table[index]

    def sum(self, name: str, flat: Int64s, hops: list[Int64s]) -> Float32s | None:
        """The figure along each packet's route; None: nowhere other than 0."""
        table = self._tables.get(name)
        if table is None:
            return None
        total: Float32s = table[flat + hops[0]]
        for hop in hops[1:]:
            total += table[flat + hop]
        return total
