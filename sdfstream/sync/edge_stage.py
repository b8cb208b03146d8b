"""Sync split over processes: the work on the sessions of some sending hosts. `mesh_stage` is its other half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.numeric.codec import dump, load
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import SLICE_NS, in_slices
from sdfstream.records.topics import ANOMALY, EDGE, ESTIMATE, OWD, PROBE
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.stats import Counters
from sdfstream.sync import wire
from sdfstream.sync.bustime import LONGEST_GAP_NS, Ticks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.estimates import COLUMNS, ClockEstimates, NamedEstimates
from sdfstream.sync.hosts import HostWork
from sdfstream.sync.intake import Intake
from sdfstream.sync.meshwork import TickReport
from sdfstream.sync.wire import EstimateRows


class EstimateInbox:
    """Messages of estimates until those of a tick are complete."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[EstimateRows]] = {}
        self._newest = -1
        self._names: list[str] = []

    def put(self, rows: EstimateRows) -> None:
        """Take a message; one of a tick that is past is dropped."""
        if rows.tick_at_ns > self._newest:
            self._waiting.setdefault(rows.tick_at_ns, []).append(rows)

    def newest(self) -> tuple[NamedEstimates, float] | None:
        """The newest complete estimates since the last call, and the usual disagreement (ns²); None: there are none."""
        for tick in sorted(self._waiting, reverse=True):
            batches = self._waiting[tick]
            first: dict[str, int] = {}
            for k, name in enumerate(name for rows in batches for name in rows.names):
                first.setdefault(name, k)
            if len(first) == batches[0].clocks:
                self._newest = tick
                self._waiting = {t: rows for t, rows in self._waiting.items() if t > tick}
                return self._adopted(batches, first), batches[0].usual_ns2
        return None

    def _adopted(self, batches: list[EstimateRows], first: dict[str, int]) -> NamedEstimates:
        """One table of all messages; a row that came twice counts once (`first`: index of each name's first)."""
        head = batches[0].estimates
        b = ClockEstimates()
        b.origin_ns, b.at_ns, b.lag_ns, b.reference_state = (
            head.origin_ns,
            head.at_ns,
            head.lag_ns,
            head.reference_state,
        )
        b.table.grow(len(first))
        pick = np.fromiter(first.values(), np.int64, len(first))
        for name in COLUMNS:
            b.table[name] = np.concatenate([rows.estimates.table[name] for rows in batches])[pick]
        # the same list as long as the names are the same, so that they are looked up once
        names = list(first)
        self._names = self._names if names == self._names else names
        return NamedEstimates(self._names, b)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "newest": self._newest,
            "waiting": [
                [r.tick_at_ns, r.clocks, r.usual_ns2, r.names, r.estimates.snapshot()]
                for rows in self._waiting.values()
                for r in rows
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._newest, self._waiting = int(state["newest"]), {}
        for tick, clocks, usual_ns2, names, saved in state["waiting"]:
            b = ClockEstimates()
            b.restore(saved)
            self._waiting.setdefault(int(tick), []).append(EstimateRows(int(tick), clocks, usual_ns2, list(names), b))


_HOUR_NS: Final = 3600 * NS_PER_S


class SyncEdgeStage:
    """Probe exchanges of some hosts and the mesh's estimates in; reduced edges and corrected delays out (`Stage`).

    At a tick the sessions report, then the newest complete set of estimates is adopted: that of two ticks ago, as the
    mesh works on a tick one tick later. So everything of one tick is corrected with one set of estimates, and the
    outputs for a host do not depend on which other hosts this process serves.

    Parameters
    ----------
    config : SyncConfig
    share : str
        Key of its messages on the bus.
    """

    name = "sync-edge"
    reads: tuple[str, ...] = (PROBE.name, ESTIMATE.name)
    writes: tuple[str, ...] = (EDGE.name, OWD.name, ANOMALY.name)
    step_ns = SLICE_NS

    def __init__(self, config: SyncConfig | None = None, share: str = "all") -> None:
        self._config = config or SyncConfig()
        self._share = share
        self.counters = Counters(self.name)
        self._intake = Intake(self._config.max_dead_rows, self.counters)
        self._clock = Ticks(self._config.max_ticks, self.counters)
        self._hosts = HostWork(self._config, self.counters)
        self._inbox = EstimateInbox()
        self._adopted = False
        self._bus_at_ns = 0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take probe messages and estimates that entered the bus up to `now_ns`; ticks up to it are caught up with."""
        out: list[Output] = []
        for run in in_slices(messages):
            if run[0].topic == PROBE.name:
                self._reach(run[0].bus_at_ns, out)
                for exchanges in self._intake.take(run, out):
                    self._hosts.take(exchanges)
            elif run[0].topic == ESTIMATE.name:
                self._reach(run[0].bus_at_ns, out)
                for message in run:
                    self._take_estimates(message)
            else:
                self.counters.add("ignored", run[0].topic, len(run))
        self._ticks(now_ns, out)
        return out

    def finish(self, now_ns: int) -> list[Output]:
        """End of a recording: close every window."""
        out: list[Output] = []
        self._ticks(now_ns, out)
        return out + self._hosts.close_all()

    def _reach(self, bus_at_ns: int, out: list[Output]) -> None:
        """Everything that is due before a message of this instant is looked at."""
        if self._clock.next is not None and bus_at_ns - self._bus_at_ns > LONGEST_GAP_NS:
            out += self._hosts.close_all()
            self._hosts, self._inbox = HostWork(self._config, self.counters), EstimateInbox()
            self._adopted, self._clock.next = False, None
            self.counters.add("begun-anew", "time-jump")
        if self._clock.next is None:
            self._clock.begin(bus_at_ns)
            self._hosts.begin(bus_at_ns // _HOUR_NS * _HOUR_NS)
            self._bus_at_ns = bus_at_ns
        self._ticks(bus_at_ns, out)

    def _ticks(self, now_ns: int, out: list[Output]) -> None:
        for at_ns, is_tick in self._clock.slices(self._bus_at_ns, now_ns):
            self._bus_at_ns = at_ns
            if not is_tick:
                out += self._hosts.close(at_ns) if self._adopted else []
                continue
            report = self._hosts.tick(at_ns, at_ns // TICK_NS)
            out += self._reported(at_ns, report)
            self._adopt(out)
            if self._adopted:
                out += self._hosts.end_tick(at_ns)

    def _reported(self, at_ns: int, report: TickReport) -> list[Output]:
        b = self._hosts.estimates
        base_ns, based = b.table["base_ns"].copy(), b.table["based"].copy()
        if report.new_bases_ns:
            number = {name: k for k, name in enumerate(report.clocks)}
            at = [number[name] for name in report.new_bases_ns]
            base_ns[at], based[at] = list(report.new_bases_ns.values()), True
        origin_ns = b.origin_ns if self._adopted else None
        drifted = np.stack([b.table["followed_ns"], b.table["followed_ppb"]])
        batches = wire.edge_batches(
            at_ns, origin_ns, report.lag_ns, report.clocks, report.edges, base_ns, based, drifted
        )
        return [Output(EDGE.name, self._share, batch) for batch in batches]

    def _take_estimates(self, message: Message) -> None:
        if not isinstance(message.body, pa.RecordBatch):
            self.counters.add("refused-message", "not-a-batch")
            return
        try:
            rows = wire.read_estimates(message.body)
        except FormatError as problem:
            self.counters.add("refused-message", problem.reason)
            return
        if rows is not None:
            self._inbox.put(rows)

    def _adopt(self, out: list[Output]) -> None:
        news = self._inbox.newest()
        if news is None:
            if self._adopted:
                self.counters.add("beliefs-late")
            return
        named, usual_ns2 = news
        if self._hosts.foreign(named):
            # a mesh that began anew and knows nothing of what was: no session can be gone on with
            self.counters.add("begun-anew")
            out += self._hosts.close_all()
            self._hosts = HostWork(self._config, self.counters)
            self._hosts.begin(named.estimates.origin_ns)
        self._hosts.adopt_named(named, usual_ns2)
        self._adopted = True

    def snapshot(self) -> bytes:
        """The whole state (arrays and plain values; no pickle)."""
        state: dict[str, Any] = {
            "next_tick": self._clock.next,
            "bus_at_ns": self._bus_at_ns,
            "adopted": self._adopted,
            "counters": [[*key, n] for key, n in self.counters.values.items()],
            "inbox": self._inbox.snapshot(),
            "hosts": self._hosts.snapshot(),
        }
        return dump(state)

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot` under the same configuration."""
        saved = load(state)
        self._clock.next = saved["next_tick"]
        self._bus_at_ns = saved["bus_at_ns"]
        self._adopted = saved["adopted"]
        self.counters.values = {(what, reason): n for what, reason, n in saved["counters"]}
        self._inbox.restore(saved["inbox"])
        self._hosts.restore(saved["hosts"])
