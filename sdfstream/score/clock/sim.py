"""Simulated probes between simulated clocks, with known truth, for the score card and the tests of sync.

A clock is 10 ppm off with a frequency that walks by 1e-9 per second unless said otherwise; delays are drawn from the
laws of `delays`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, TICK_NS, Float64s
from sdfstream.score.clock.delays import Extra, Law, law
from sdfstream.twin.clock_model import START_NS, SimulatedClock, Slew, seeded

Table = dict[str, npt.NDArray[Any]]


@dataclass
class Session:
    """Probes from one clock's NIC to another's."""

    src: str
    dst: str
    rate: float
    forward: Law
    reverse: Law | None = None
    path: int = 49152
    dscp: int = 46
    loss: float = 0.0
    extra_forward: Extra | None = None
    """More forward delay as a function of true time (ns), for standing queues."""
    extra_reverse: Extra | None = None
    cut_s: tuple[float, float] = (np.inf, np.inf)
    """Exchanges sent between these two instants are lost."""


@dataclass
class World:
    """Clocks (one NIC each) and sessions."""

    clocks: dict[str, SimulatedClock]
    sessions: list[Session]
    rng: np.random.Generator
    flush_ns: float = 100e6
    turn_ns: float = 20e3
    kind: int = 1
    stamp_noise_ns: float = 0.0
    """Two-sided normal noise of each of the four stamps."""
    troubled: set[str] = field(default_factory=set)
    """Clocks that a trouble is about, for the metrics."""
    exchanges: Table = field(default_factory=dict)
    """All that `messages` simulated, with the truth, in the order in which it went out."""

    @property
    def reference(self) -> str:
        """The clock that offsets are given against."""
        return min(self.clocks)

    def offset(self, clock: str, t: Float64s) -> Float64s:
        """True offset of `clock` against the reference at true time `t`, ns."""
        return self.clocks[clock].offset(t) - self.clocks[self.reference].offset(t)

    def messages(self, seconds: float, start_s: float = 0.0) -> list[Message]:
        """Probe messages of every host, flushed every 100 ms at a phase of its own, in bus order.

        All rows are made as one batch, of which every message is a slice: building small batches one by one would cost
        more than the exchanges themselves.
        """
        tables = [self._exchanges(s, number, start_s, seconds) for number, s in enumerate(self.sessions)]
        table = {k: np.concatenate([p[k] for p in tables]) for k in tables[0]}
        hosts = sorted({s.src for s in self.sessions})
        number = {host: i for i, host in enumerate(hosts)}
        host = np.array([number[s.src] for s in self.sessions])[table["session"]]
        phase = np.array([self.rng.uniform(0, self.flush_ns) for _ in hosts])
        slot = np.floor((table["done"] + phase[host]) / self.flush_ns)
        sent_at = ((slot + 1) * self.flush_ns - phase[host] + 1e6).astype(np.int64)
        order = np.lexsort((table["done"], host, sent_at))
        self.exchanges = {k: v[order] for k, v in table.items()}
        batch = self._batch(self.exchanges)
        host, sent_at = host[order], sent_at[order]
        cuts = [0, *(np.flatnonzero(np.diff(host) | np.diff(sent_at)) + 1).tolist(), order.size]
        return [
            Message(
                PROBE.name, hosts[host[low]], batch.slice(low, high - low), START_NS + int(sent_at[low]), i, "boot", i
            )
            for i, (low, high) in enumerate(itertools.pairwise(cuts))
        ]

    def _exchanges(self, s: Session, number: int, start: float, seconds: float) -> Table:
        g = self.rng
        n = int(s.rate * (seconds - start))
        sent = (start + (np.arange(n) + g.uniform() + g.uniform(-0.25, 0.25, n)) / s.rate) * 1e9
        sent = np.sort(np.maximum(sent, start * 1e9))
        fwd = s.forward(g, n)
        if s.extra_forward is not None:
            fwd = fwd + s.extra_forward(sent, g)
        rev = (s.reverse or s.forward)(g, n)
        if s.extra_reverse is not None:
            rev = rev + s.extra_reverse(sent, g)
        arrives = sent + fwd
        leaves = arrives + self.turn_ns
        back = leaves + rev
        a, b = self.clocks[s.src], self.clocks[s.dst]
        lost = (g.uniform(size=n) < s.loss) | ((sent >= s.cut_s[0] * 1e9) & (sent < s.cut_s[1] * 1e9))
        noise = self.stamp_noise_ns * g.standard_normal((4, n)) if self.stamp_noise_ns else np.zeros((4, 1))
        return {
            "session": np.full(n, number),
            "seq": np.arange(n, dtype=np.int64),
            "sent": sent,
            "fwd": fwd,
            "rev": rev,
            "lost": lost,
            "t1": a.reading(sent, noise[0]),
            "t2": np.where(lost, ABSENT_NS, b.reading(arrives, noise[1])),
            "t3": np.where(lost, ABSENT_NS, b.reading(leaves, noise[2])),
            "t4": np.where(lost, ABSENT_NS, a.reading(back, noise[3])),
            "done": np.where(lost, sent + min(1e9, 5e9 / s.rate), back),
        }

    def _batch(self, r: Table) -> pa.RecordBatch:
        session = r["session"]
        n = session.size
        names = sorted(self.clocks)
        numbers = {name: i for i, name in enumerate(names)}
        sides = [s.src for s in self.sessions], [s.dst for s in self.sessions]
        ends = [np.array([numbers[name] for name in side])[session] for side in sides]
        assert PROBE.columns is not None
        return columns.build(
            PROBE.columns,
            {
                "src": columns.name_column(ends[0], [f"{name}/r0" for name in names]),
                "dst": columns.name_column(ends[1], [f"{name}/r0" for name in names]),
                "clock_src": columns.name_column(ends[0], names),
                "clock_dst": columns.name_column(ends[1], names),
                "transport": columns.name_column(np.zeros(n, dtype=np.int64), ["udp"]),
                "path": np.array([s.path for s in self.sessions], dtype=np.uint32)[session],
                "seq": r["seq"].astype(np.uint32),
                "t1_ns": r["t1"],
                "t2_ns": r["t2"],
                "t3_ns": r["t3"],
                "t4_ns": r["t4"],
                **{f"t{i}_kind": np.full(n, self.kind, dtype=np.uint8) for i in (1, 2, 3, 4)},
                "dscp_sent": np.array([s.dscp for s in self.sessions], dtype=np.uint8)[session],
                "ecn_sent": np.full(n, 2, dtype=np.uint8),
                "size_bytes": np.full(n, 128, dtype=np.uint16),
            },
        )


def pair(name: str, rate: float, seed: int, wander_ppb: float = 1.0, **world: Any) -> World:
    """Clock a is perfect; clock b starts 1 ms and 10 ppm off; a probes b."""
    g = seeded(seed)
    clocks = {
        "a": SimulatedClock("a", rng=g),
        "b": SimulatedClock("b", 1e6, 10_000.0, wander_ppb, rng=g),
    }
    return World(clocks, [Session("a", "b", rate, law(name))], g, **world)


def mesh(clocks: int, degree: int, name: str, rate: float, seed: int, wander_ppb: float = 1.0) -> World:
    """`clocks` clocks up to 1 ms and 10 ppm off; clocks·degree/2 edges, each probed from one end."""
    g = seeded(seed)
    names = [f"h{i:02d}" for i in range(clocks)]
    made = {
        n: SimulatedClock(n, g.uniform(-1e6, 1e6), g.uniform(-1e4, 1e4), wander_ppb, rng=g, seconds=600) for n in names
    }
    chosen: set[tuple[int, int]] = {(i, (i + 1) % clocks) for i in range(clocks)}
    while len(chosen) < clocks * degree // 2:
        i, j = (int(v) for v in g.integers(0, clocks, 2))
        if i != j and (j, i) not in chosen:
            chosen.add((i, j))
    sessions = [Session(names[i], names[j], rate, law(name)) for i, j in sorted(chosen)]
    return World(made, sessions, g)


def drive(stage: object, messages: Iterable[Message], until_ns: int | None = None) -> list[tuple[int, Output]]:
    """Step a stage as the replay driver does: every 100 ms boundary, then each slice's messages; (bus time, output)."""
    out: list[tuple[int, Output]] = []
    tick = None
    at = 0
    for call in in_calls(messages):
        at = call[-1].bus_at_ns
        tick = tick if tick is not None else (at // TICK_NS) * TICK_NS
        while tick <= at:
            out += [(tick, o) for o in stage.step([], tick)]  # type: ignore[attr-defined]
            tick += TICK_NS
        out += [(at, o) for o in stage.step(call, at)]  # type: ignore[attr-defined]
    end = until_ns if until_ns is not None else at
    while tick is not None and tick <= end:
        out += [(tick, o) for o in stage.step([], tick)]  # type: ignore[attr-defined]
        tick += TICK_NS
    finish = getattr(stage, "finish", None)
    if finish is not None:
        out += [(end, o) for o in finish(end)]
    return out


__all__ = [
    "START_NS",
    "Session",
    "SimulatedClock",
    "Slew",
    "World",
    "drive",
    "law",
    "mesh",
    "pair",
    "seeded",
]
