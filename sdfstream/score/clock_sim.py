"""Simulated clocks, delays and probe messages with known truth, for the score card and the tests of sync.

Laws A, B, L40 and L90 are those of the published comparison (docs/sync.md): one-way delay 10 µs plus

- A: normal, 5 ns;  B: exponential, mean 10 µs;
- L40, L90: three M/M/1 hops at 40 % and 90 % load (10 Gbit/s, 1.2 µs service).

A clock is 10 ppm off with a frequency that walks by 1e-9 per second unless said otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import PROBE
from sdfstream.records.units import ABSENT_NS, TICK_NS

START_NS = 1_800_000_000 * 1_000_000_000
F = npt.NDArray[np.float64]


def seeded(seed: int) -> np.random.Generator:
    """The generator of a published seed: numpy's own default, so that others can draw the same."""
    return np.random.Generator(np.random.PCG64(seed))


def law(name: str) -> Callable[[np.random.Generator, int], F]:
    """One-way delays in ns."""

    def hops(shift: float, mean: float) -> Callable[[np.random.Generator, int], F]:
        def draw(g: np.random.Generator, n: int) -> F:
            parts = [np.maximum(0.0, shift + mean * g.exponential(size=n)) for _ in range(3)]
            total: F = 10e3 + parts[0] + parts[1] + parts[2]
            return total

        return draw

    return {
        "A": lambda g, n: 10e3 + 5.0 * g.standard_normal(n),
        "B": lambda g, n: 10e3 + 10e3 * g.exponential(size=n),
        "L40": hops(-1832.58, 2e3),
        "L90": hops(-1264.33, 12e3),
    }[name]


@dataclass
class Clock:
    """reading = true time + offset(true time)."""

    name: str
    offset_ns: float = 0.0
    skew_ppb: float = 0.0
    wander_ppb: float = 0.0
    """Frequency random walk per √s, in steps of one second."""
    phase_ns: float = 0.0
    """Phase random walk per √s, in steps of 10 ms."""
    step_at_s: float = np.inf
    step_ns: float = 0.0
    ramp_ppb: float = 0.0
    """Steady change of the frequency per second (a warming room: 1e-8/s at most)."""
    seconds: int = 4000
    rng: np.random.Generator = field(default_factory=lambda: seeded(0))

    def __post_init__(self) -> None:
        self._skew = self.skew_ppb + np.cumsum(self.wander_ppb * self.rng.standard_normal(self.seconds))
        self._skew = self._skew + self.ramp_ppb * np.arange(self.seconds)
        self._at = np.concatenate([[0.0], np.cumsum(self._skew)])
        walk = self.phase_ns * 0.1 * self.rng.standard_normal(self.seconds * 100 if self.phase_ns else 1)
        self._walk = np.concatenate([[0.0], np.cumsum(walk)])

    def offset(self, t: F) -> F:
        """Offset in ns at true time `t` (ns since the start)."""
        s = t / 1e9
        k = np.clip(np.floor(s).astype(int), 0, self.seconds - 1)
        phase = 0.0
        if self.phase_ns:
            phase = np.interp(s * 100, np.arange(self._walk.size), self._walk)
        line: F = self.offset_ns + self._at[k] + self._skew[k] * (s - k) + phase
        return line + self.step_ns * (s >= self.step_at_s)

    def reading(self, t: F) -> npt.NDArray[np.int64]:
        """What the clock shows at true time `t`, ns since the Unix epoch."""
        return START_NS + np.rint(t + self.offset(t)).astype(np.int64)

    def true_time(self, reading_ns: npt.NDArray[np.int64]) -> F:
        """True time (ns since the start) at which the clock shows `reading_ns`."""
        t = (reading_ns - START_NS).astype(np.float64)
        guess = t.copy()
        for _ in range(3):
            guess = t - self.offset(guess)
        return guess


@dataclass
class Session:
    """Probes from one clock's NIC to another's."""

    src: str
    dst: str
    rate: float
    forward: Callable[[np.random.Generator, int], F]
    reverse: Callable[[np.random.Generator, int], F] | None = None
    path: int = 49152
    dscp: int = 46
    loss: float = 0.0
    extra_forward: Callable[[F, np.random.Generator], F] | None = None
    """More forward delay as a function of true time (ns), for standing queues."""
    extra_reverse: Callable[[F, np.random.Generator], F] | None = None


@dataclass
class World:
    """Clocks (one NIC each) and sessions."""

    clocks: dict[str, Clock]
    sessions: list[Session]
    rng: np.random.Generator
    flush_ns: float = 100e6
    turn_ns: float = 20e3
    kind: int = 1

    def messages(self, seconds: float, start_s: float = 0.0) -> list[Message]:
        """Probe messages of every host, flushed every 100 ms at a phase of its own, in bus order.

        All rows are made as one batch, of which every message is a slice: building small batches one by one would cost
        more than the exchanges themselves.
        """
        parts = [self._exchanges(s, number, start_s, seconds) for number, s in enumerate(self.sessions)]
        table = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
        hosts = sorted({s.src for s in self.sessions})
        number = {host: i for i, host in enumerate(hosts)}
        host = np.array([number[s.src] for s in self.sessions])[table["session"]]
        phase = np.array([self.rng.uniform(0, self.flush_ns) for _ in hosts])
        slot = np.floor((table["done"] + phase[host]) / self.flush_ns)
        sent_at = ((slot + 1) * self.flush_ns - phase[host] + 1e6).astype(np.int64)
        order = np.lexsort((table["done"], host, sent_at))
        batch = self._batch({k: v[order] for k, v in table.items()})
        host, sent_at = host[order], sent_at[order]
        cuts = [0, *(np.flatnonzero(np.diff(host) | np.diff(sent_at)) + 1).tolist(), order.size]
        return [
            Message(
                PROBE.name, hosts[host[low]], batch.slice(low, high - low), START_NS + int(sent_at[low]), i, "boot", i
            )
            for i, (low, high) in enumerate(itertools.pairwise(cuts))
        ]

    def _sides(self) -> tuple[list[str], list[str]]:
        return [s.src for s in self.sessions], [s.dst for s in self.sessions]

    def _exchanges(self, s: Session, number: int, start: float, seconds: float) -> dict[str, npt.NDArray[np.generic]]:
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
        lost = g.uniform(size=n) < s.loss
        return {
            "session": np.full(n, number),
            "seq": np.arange(n, dtype=np.int64),
            "t1": a.reading(sent),
            "t2": np.where(lost, ABSENT_NS, b.reading(arrives)),
            "t3": np.where(lost, ABSENT_NS, b.reading(leaves)),
            "t4": np.where(lost, ABSENT_NS, a.reading(back)),
            "done": np.where(lost, sent + min(1e9, 5e9 / s.rate), back),
        }

    def _batch(self, r: dict[str, npt.NDArray[np.generic]]) -> pa.RecordBatch:
        session = r["session"]
        n = session.size
        names = sorted(self.clocks)
        numbers = {name: i for i, name in enumerate(names)}
        ends = [np.array([numbers[name] for name in side])[session] for side in self._sides()]
        assert PROBE.columns is not None
        return columns.build(
            PROBE.columns,
            {
                "src": columns.name_column(ends[0], [f"{name}/r0" for name in names]),
                "dst": columns.name_column(ends[1], [f"{name}/r0" for name in names]),
                "clock_src": columns.name_column(ends[0], names),
                "clock_dst": columns.name_column(ends[1], names),
                "transport": columns.name_column(np.zeros(n, dtype=np.int64), ["udp"]),
                "path": np.array([s.path for s in self.sessions], dtype=np.uint32)[r["session"]],
                "seq": r["seq"].astype(np.uint32),
                "t1_ns": r["t1"],
                "t2_ns": r["t2"],
                "t3_ns": r["t3"],
                "t4_ns": r["t4"],
                **{f"t{i}_kind": np.full(n, self.kind, dtype=np.uint8) for i in (1, 2, 3, 4)},
                "dscp_sent": np.array([s.dscp for s in self.sessions], dtype=np.uint8)[r["session"]],
                "ecn_sent": np.full(n, 2, dtype=np.uint8),
                "size_bytes": np.full(n, 128, dtype=np.uint16),
            },
        )


def pair(name: str, rate: float, seed: int, wander_ppb: float = 1.0, **world: object) -> World:
    """Clock a is perfect; clock b starts 1 ms and 10 ppm off; a probes b."""
    g = seeded(seed)
    clocks = {
        "a": Clock("a", rng=g),
        "b": Clock("b", 1e6, 10_000.0, wander_ppb, rng=g),
    }
    return World(clocks, [Session("a", "b", rate, law(name))], g, **world)  # type: ignore[arg-type]


def mesh(clocks: int, degree: int, name: str, rate: float, seed: int, wander_ppb: float = 1.0) -> World:
    """`clocks` clocks up to 1 ms and 10 ppm off; clocks·degree/2 edges, each probed from one end."""
    g = seeded(seed)
    names = [f"h{i:02d}" for i in range(clocks)]
    made = {n: Clock(n, g.uniform(-1e6, 1e6), g.uniform(-1e4, 1e4), wander_ppb, rng=g, seconds=600) for n in names}
    chosen: set[tuple[int, int]] = {(i, (i + 1) % clocks) for i in range(clocks)}
    while len(chosen) < clocks * degree // 2:
        i, j = (int(v) for v in g.integers(0, clocks, 2))
        if i != j and (j, i) not in chosen:
            chosen.add((i, j))
    sessions = [Session(names[i], names[j], rate, law(name)) for i, j in sorted(chosen)]
    return World(made, sessions, g)


def drive(stage: object, messages: Iterable[Message], until_ns: int | None = None) -> list[tuple[int, Output]]:
    """Step a stage as the replay driver does: every 100 ms boundary, then each message; (bus time, output)."""
    out: list[tuple[int, Output]] = []
    tick = None
    at = 0
    for m in messages:
        at = m.bus_at_ns
        tick = tick if tick is not None else (at // TICK_NS) * TICK_NS
        while tick <= at:
            out += [(tick, o) for o in stage.step([], tick)]  # type: ignore[attr-defined]
            tick += TICK_NS
        out += [(at, o) for o in stage.step([m], at)]  # type: ignore[attr-defined]
    end = until_ns if until_ns is not None else at
    while tick is not None and tick <= end:
        out += [(tick, o) for o in stage.step([], tick)]  # type: ignore[attr-defined]
        tick += TICK_NS
    finish = getattr(stage, "finish", None)
    if finish is not None:
        out += [(end, o) for o in finish(end)]
    return out
