"""Sync split over processes: the work on all clocks together. `edge_stage` is its other half, in any number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.numeric.codec import dump, load
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import CLOCK, EDGE, ESTIMATE
from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters
from sdfstream.sync import wire
from sdfstream.sync.bustime import LONGEST_GAP_NS, NEAR_NS, ReportLateness, Ticks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.gather import Gather
from sdfstream.sync.meshwork import MeshWork

_TICKS_PER_SWEEP: Final = 100
_MOST_AT_ONCE: Final = int(NEAR_NS) // TICK_NS
"""Ticks worked on at one boundary, when rows come less late than before; further ones are left out."""


class SyncMeshStage:
    """Reduced edges in; clock states and estimates out (`Stage`).

    At the end of a tick it works on the rows of an earlier one, by as much as rows usually come late, 100 ms at least
    (`bustime.ReportLateness`). It waits for no single process (`gather`). Causal rows are predicted to the present.

    One that starts anew takes over origin and bases from the edge processes, which hold all evidence: no state
    is needed.

    Parameters
    ----------
    config : SyncConfig
    """

    name = "sync-mesh"
    reads: tuple[str, ...] = (EDGE.name,)
    writes: tuple[str, ...] = (CLOCK.name, ESTIMATE.name)

    def __init__(self, config: SyncConfig | None = None) -> None:
        self._config = config or SyncConfig()
        self.counters = Counters(self.name)
        self._clock = Ticks(self._config.max_ticks, self.counters)
        self._mesh = MeshWork(self._config, self.counters)
        self._gather = Gather()
        self._lateness = ReportLateness()
        self._worked_at_ns = 0
        """The tick last worked on."""

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take edges that entered the bus up to `now_ns`; ticks up to it are caught up with."""
        out: list[Output] = []
        for message in messages:
            if message.topic != EDGE.name:
                self.counters.add("ignored", message.topic)
                continue
            if self._clock.next is not None and message.bus_at_ns - self._clock.next > LONGEST_GAP_NS:
                self._begin_anew(out)
            self._ticks(message.bus_at_ns, out)
            self._take(message)
        self._ticks(now_ns, out)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of a recording: publish the smoothed rows that still wait."""
        out: list[Output] = []
        self._ticks(now_ns, out)
        return out + self._mesh.flush()

    def _begin_anew(self, out: list[Output]) -> None:
        out += self._mesh.flush()
        self._mesh, self._gather = MeshWork(self._config, self.counters), Gather()
        self._lateness, self._clock.next = ReportLateness(), None
        self.counters.add("begun-anew", "time-jump")

    def _take(self, message: Message) -> None:
        if not isinstance(message.body, pa.RecordBatch):
            self.counters.add("refused-message", "not-a-batch")
            return
        try:
            rows = wire.read_edges(message.body)
        except FormatError as problem:
            self.counters.add("refused-message", problem.reason)
            return
        self.counters.add("received", n=message.body.num_rows)
        if not message.body.num_rows:
            return
        late_ns = max(message.bus_at_ns - int(rows.tick_at_ns.max()), 0)
        if self._clock.next is None:
            self._clock.begin(message.bus_at_ns)
            first_ns = message.bus_at_ns - min(late_ns, int(NEAR_NS))
            self._mesh.begin(first_ns, rows.origin_ns)
            self._worked_at_ns = first_ns // TICK_NS * TICK_NS - TICK_NS
        self._lateness.add(float(late_ns), message.body.num_rows)
        self._gather.take(rows)

    def _ticks(self, now_ns: int, out: list[Output]) -> None:
        for at_ns in self._clock.upto(now_ns):
            self._lateness.end_tick()
            due_ns = at_ns - self._lateness.ticks * TICK_NS
            self._worked_at_ns = max(self._worked_at_ns, due_ns - _MOST_AT_ONCE * TICK_NS)
            worked = due_ns > self._worked_at_ns
            late_out: list[Output] = []
            while self._worked_at_ns < due_ns:
                self._worked_at_ns += TICK_NS
                self._mesh.solve(self._worked_at_ns, [self._gather.report(self._worked_at_ns, self._mesh.clocks)])
                if self._worked_at_ns < due_ns:
                    late_out += self._mesh.end_tick()
            out += self._mesh.causal(at_ns - TICK_NS)
            out += late_out
            if worked:
                out += self._mesh.end_tick()
                b = self._mesh.clocks.estimates
                for batch in wire.estimate_batches(due_ns, self._mesh.clocks.names, b, self._mesh.usual_ns2):
                    out.append(Output(ESTIMATE.name, "mesh", batch))
            if at_ns // TICK_NS % _TICKS_PER_SWEEP == 0:
                self._gather.sweep()

    def snapshot(self) -> bytes:
        """The whole state (arrays and plain values; no pickle)."""
        state: dict[str, Any] = {
            "next_tick": self._clock.next,
            "counters": [[*key, n] for key, n in self.counters.values.items()],
            "mesh": self._mesh.snapshot(),
            "gather": self._gather.snapshot(),
            "lateness": self._lateness.snapshot(),
            "worked_at_ns": self._worked_at_ns,
        }
        return dump(state)

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot` under the same configuration."""
        saved = load(state)
        self._clock.next = saved["next_tick"]
        self.counters.values = {(what, reason): n for what, reason, n in saved["counters"]}
        self._mesh.restore(saved["mesh"])
        self._gather.restore(saved["gather"])
        self._lateness.restore(saved["lateness"])
        self._worked_at_ns = int(saved["worked_at_ns"])
