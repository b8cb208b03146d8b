"""The sync stage: probe exchanges in; clock states and corrected one-way delays out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sdfstream.numeric.codec import dump, load
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import SLICE_NS, in_slices
from sdfstream.records.topics import ANOMALY, CLOCK, OWD, PROBE
from sdfstream.stats import Counters
from sdfstream.sync.bustime import LONGEST_GAP_NS, Ticks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.hosts import HostWork
from sdfstream.sync.intake import Intake
from sdfstream.sync.meshwork import MeshWork

OUTPUTS: Final = (CLOCK.name, OWD.name, ANOMALY.name, PROBE.dead_letters)


class SyncStage:
    """One timeline from two-way probes (`Stage` protocol, ``sdfstream/pipeline.py``).

    Exchanges gather until the next tick (100 ms of bus time). A tick predicts all clocks, updates every session's edge
    filter with its block (`edgework`), solves the mesh over all of them (`meshwork`), and publishes a causal row per
    clock. Delays are corrected on arrival with the state of the tick before, and leave when their window closes, at the
    first end of a slice that is late enough. Ticks, slices and closings depend on bus time alone, so the
    same messages give the same outputs however they are cut into calls.

    Parameters
    ----------
    config : SyncConfig

    Examples
    --------
    >>> stage = SyncStage()
    >>> stage.step([], 0)
    []
    """

    name = "sync"
    reads: tuple[str, ...] = (PROBE.name,)
    writes: tuple[str, ...] = (CLOCK.name, OWD.name, ANOMALY.name)
    step_ns = SLICE_NS
    """Windows close at the end of a slice."""

    def __init__(self, config: SyncConfig | None = None) -> None:
        self._config = config or SyncConfig()
        self.counters = Counters(self.name)
        self._hosts = HostWork(self._config, self.counters)
        self._mesh = MeshWork(self._config, self.counters)
        self._intake = Intake(self._config.max_dead_rows, self.counters)
        self._clock = Ticks(self._config.max_ticks, self.counters)
        self._ticks = 0
        self._bus_at_ns = 0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take probe messages that entered the bus up to `now_ns`; ticks up to `now_ns` are caught up with."""
        out: list[Output] = []
        for run in in_slices(messages):
            if run[0].topic != PROBE.name:
                self.counters.add("ignored", run[0].topic, len(run))
                continue
            self._reach(run[0].bus_at_ns, out)
            for exchanges in self._intake.take(run, out):
                self._hosts.take(exchanges)
        self._tick(now_ns, out)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of a recording: close every window, publish the smoothed rows that still wait."""
        out: list[Output] = []
        self._tick(now_ns, out)
        out += self._hosts.close_all()
        out += self._mesh.flush()
        return out

    def _reach(self, bus_at_ns: int, out: list[Output]) -> None:
        """Everything that is due before a message of this instant is looked at."""
        if self._clock.next is not None and bus_at_ns - self._bus_at_ns > LONGEST_GAP_NS:
            self._begin_anew(out)
        if self._clock.next is None:
            self._clock.begin(bus_at_ns)
            self._mesh.begin(bus_at_ns)
            self._hosts.adopt(self._mesh.clocks, self._mesh.usual_ns2)
            self._bus_at_ns = bus_at_ns
        self._tick(bus_at_ns, out)

    def _begin_anew(self, out: list[Output]) -> None:
        """What is held back goes out; then nothing is known."""
        out += self._hosts.close_all()
        out += self._mesh.flush()
        self._hosts = HostWork(self._config, self.counters)
        self._mesh = MeshWork(self._config, self.counters)
        self._clock.next = None
        self.counters.add("begun-anew", "time-jump")

    def _tick(self, now_ns: int, out: list[Output]) -> None:
        """The sessions report, the mesh solves and publishes, its estimates go back to the sessions: once per tick.

        At the slices' ends in between windows close that have all their rows.
        """
        for at_ns, is_tick in self._clock.slices(self._bus_at_ns, now_ns):
            self._bus_at_ns = at_ns
            if not is_tick:
                out += self._hosts.close(at_ns)
                continue
            self._ticks += 1
            out += self._mesh.tick(at_ns, [self._hosts.tick(at_ns, self._ticks)])
            self._hosts.adopt(self._mesh.clocks, self._mesh.usual_ns2)
            out += self._hosts.end_tick(at_ns)

    def snapshot(self) -> bytes:
        """The whole state (arrays and plain values; no pickle)."""
        state: dict[str, Any] = {
            "next_tick": self._clock.next,
            "bus_at_ns": self._bus_at_ns,
            "counters": [[*key, n] for key, n in self.counters.values.items()],
            "hosts": self._hosts.snapshot(),
            "mesh": self._mesh.snapshot(),
            "ticks": self._ticks,
        }
        return dump(state)

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot` under the same configuration."""
        saved = load(state)
        self._clock.next = saved["next_tick"]
        self._bus_at_ns = saved["bus_at_ns"]
        self.counters.values = {(what, reason): n for what, reason, n in saved["counters"]}
        self._hosts.restore(saved["hosts"])
        self._mesh.restore(saved["mesh"])
        self._ticks = int(saved["ticks"])
