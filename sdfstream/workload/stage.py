"""The workload stage: chunks that queue pairs carried in; what each queue pair got, window by window, out.

Chunks are put on reference time as they come, by the clock states known then, and wait in their window. At every
100 ms boundary of bus time the windows past their allowed lateness close. So the output depends on the order of the
messages alone, not on how the driver cut them into calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import CLOCK, QP, QP_WINDOW
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS, Bools, Int64s
from sdfstream.stats import Counters
from sdfstream.workload import publish
from sdfstream.workload.chunks import Chunks, read
from sdfstream.workload.config import WorkloadConfig
from sdfstream.workload.lateness import Lateness
from sdfstream.workload.queue_pairs import QueuePairs
from sdfstream.workload.reference_time import ReferenceTime
from sdfstream.workload.repeats import Repeats
from sdfstream.workload.windows import ChunkRows, OpenWindows, QpWindow

_AHEAD_NS: Final = NS_PER_S
"""A chunk acknowledged further ahead of the present than this has a wrong stamp: it counts as just now."""
_JUMP_NS: Final = 5 * NS_PER_S
"""Reference time that moves this far against bus time has jumped: window numbers begin afresh."""
_LONGEST_NS: Final = 60 * NS_PER_S
"""A one-way delay with a magnitude beyond this comes from a broken stamp."""
_SWEEP_TICKS: Final = 600


class WorkloadStage:
    """Windows of what queue pairs got (`Stage` protocol, ``sdfstream/pipeline.py``).

    Reads ``sdf.raw.qp.v1`` and causal rows of ``sdf.state.clock.v1``; writes ``sdf.derived.qp.v1``. A chunk counts in
    the window of reference time in which it was acknowledged; where the sender's clock is not known, in the window of
    the report's bus time (`unclocked`).

    Notes
    -----
    Counters, in rows unless said otherwise: ``received``, ``refused.<reason>``, ``repeated``, ``unclocked``, ``late``
    (counted in a later window than their own), ``stale`` (backlog: not shown; its payload is ``stale-bytes``),
    ``ahead``, ``owd-withheld``, ``windows-cut`` (waiting windows left out), ``closed-early``, ``rebased`` (times).
    """

    name = "workload"
    reads: tuple[str, ...] = (QP.name, CLOCK.name)
    writes: tuple[str, ...] = (QP_WINDOW.name,)

    def __init__(self, config: WorkloadConfig | None = None) -> None:
        self.config = config or WorkloadConfig()
        self.counters = Counters(self.name)
        self._reference = ReferenceTime(self.config)
        self._queue_pairs = QueuePairs(self.config.max_pairs)
        self._windows = OpenWindows()
        self._repeats = Repeats()
        self._lateness = Lateness(self.config.lateness_ns, self.config.max_hold_ns)
        self._lead_ns = 0
        """Reference time less bus time, as the windows were numbered."""
        self._tick = -1
        """Number of the last 100 ms boundary that was stepped; −1: none yet."""

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` in order, then go on to `now_ns`."""
        out: list[Output] = []
        for message in messages:
            out += self._advance_to(message.bus_at_ns)
            if message.topic == QP.name:
                out += self._follow_reference()
            try:
                self._take(message)
            except FormatError as error:
                self.counters.add("refused", error.reason, message.rows)
        return out + self._advance_to(now_ns)

    def finish(self, now_ns: int) -> list[Output]:
        """End of the input: close every window."""
        out = self._advance_to(now_ns)
        return out + self._publish(self._windows.restart())

    def _advance_to(self, now_ns: int) -> list[Output]:
        last = now_ns // TICK_NS
        if self._tick < 0:
            self._tick = last
        if last - self._tick > _SWEEP_TICKS:  # a gap in bus time: nothing can have waited for it
            self._tick = last - 1
        out: list[Output] = []
        while self._tick < last:
            self._tick += 1
            out += self._tick_at(self._tick * TICK_NS)
        return out

    def _tick_at(self, bus_ns: int) -> list[Output]:
        """A 100 ms boundary of bus time: close the windows past their allowed lateness."""
        out = self._follow_reference()
        until = (bus_ns + self._lead_ns - self._lateness.tick()) // self.config.window_ns - 1
        closed = self._windows.close(until)
        early = self._windows.close_beyond(self.config.max_chunks)
        self.counters.add("closed-early", n=sum(int(f.n.sum()) for f in early))
        if self._tick % _SWEEP_TICKS == 0:
            self._queue_pairs.forget(bus_ns - self.config.forget_ns, self._windows.pairs())
        return out + self._publish(closed + early)

    def _follow_reference(self) -> list[Output]:
        """Number windows by reference time as it is known now; where it has jumped, close all and begin afresh."""
        lead_ns, was_ns = self._reference.lead_ns, self._lead_ns
        self._lead_ns = lead_ns
        if abs(lead_ns - was_ns) <= _JUMP_NS:
            return []
        self.counters.add("rebased")
        out = self._publish(self._windows.restart())
        self._queue_pairs.forget_windows()
        return out

    def _publish(self, closed: Sequence[QpWindow]) -> list[Output]:
        out: list[Output] = []
        for window in closed:
            made, cut = publish.outputs(window, self._queue_pairs, self.config.window_ns, self.config.max_waiting)
            self.counters.add("windows-cut", n=cut)
            out += made
        return out

    def _take(self, message: Message) -> None:
        if not isinstance(message.body, pa.RecordBatch):
            raise FormatError("form", f"{message.topic} carries batches")
        if message.topic == CLOCK.name:
            self._reference.take(message.body, message.bus_at_ns)
        elif message.topic == QP.name:
            self.counters.add("received", n=message.rows)
            if self._repeats.is_repeat(message):
                self.counters.add("repeated", n=message.rows)
                return
            chunks = read(message.body, self.counters)
            if chunks.size:
                self._assign_windows(chunks, message.bus_at_ns)
        else:
            self.counters.add("ignored", message.topic)

    def _assign_windows(self, chunks: Chunks, bus_ns: int) -> None:
        """Correct chunks onto reference time and put them into their windows."""
        pair = self._queue_pairs.numbers_of(chunks, bus_ns)
        present_ns = bus_ns + self._lead_ns
        near, far = chunks.names["clock_src"], chunks.names["clock_dst"]
        sent = self._reference.correct(*near, chunks.sent_ns, bus_ns)
        has_end = chunks.acknowledged_ns != ABSENT_NS
        end = self._reference.correct(*near, np.where(has_end, chunks.acknowledged_ns, chunks.sent_ns), bus_ns)
        end_ns = np.where(end.known, end.rounded(), present_ns)
        ahead = end_ns > present_ns + _AHEAD_NS
        end_ns = np.where(ahead, present_ns, end_ns)
        fresh = end_ns >= present_ns - self.config.max_late_ns
        self._count_anomalies(chunks, pair, end.known, ahead, fresh)
        if fresh.any():
            self._lateness.observe(present_ns - int(end_ns[fresh].min()))
        begun_ns = np.where(sent.known & ~ahead, np.minimum(sent.rounded(), end_ns), end_ns)
        arrived = self._reference.correct(*far, chunks.arrived_ns, bus_ns)
        same = near[0] == _renamed(far, near[1])
        err = np.where(same, 0.0, sent.err_ns + arrived.err_ns)
        owd = (arrived.at_ns - sent.at_ns) + (arrived.fraction_ns - sent.fraction_ns)
        both_known = sent.known & arrived.known
        narrow = (err <= self.config.max_err_ns) & (np.abs(owd) <= _LONGEST_NS)
        self.counters.add("owd-withheld", n=int((both_known & ~narrow).sum()))
        took = np.where(has_end, chunks.acknowledged_ns - chunks.sent_ns, 0)
        numbers = chunks.numbers
        rows = ChunkRows(
            window=end_ns // self.config.window_ns,
            sent=begun_ns // self.config.window_ns,
            pair=pair,
            path=numbers["path"],
            bytes=numbers["bytes"],
            packets=numbers["packets"],
            ce=chunks.ce,
            retransmits=chunks.retransmits,
            owd=np.where(both_known & narrow, owd, np.nan),
            duration=np.where(has_end & (took >= 0), took, np.nan),
            err=err,
        )
        self.counters.add("late", n=self._windows.put(rows.pick((pair >= 0) & fresh)))

    def _count_anomalies(self, chunks: Chunks, pair: Int64s, known: Bools, ahead: Bools, fresh: Bools) -> None:
        """Counters of chunks that are refused, or not counted in their own window."""
        self.counters.add("refused", "too-many-pairs", int((pair < 0).sum()))
        self.counters.add("unclocked", n=int((~known).sum()))
        self.counters.add("ahead", n=int(ahead.sum()))
        stale = ~fresh & (pair >= 0)
        self.counters.add("stale", n=int(stale.sum()))
        self.counters.add("stale-bytes", n=int(chunks.numbers["bytes"][stale].sum()))

    def snapshot(self) -> bytes:
        """The whole state (arrays and plain values; no pickle)."""
        return codec.dump(
            {
                "tick": self._tick,
                "lead_ns": self._lead_ns,
                "clocks": self._reference.snapshot(),
                "pairs": self._queue_pairs.snapshot(),
                "windows": self._windows.snapshot(),
                "repeats": self._repeats.snapshot(),
                "holdback": self._lateness.snapshot(),
                "counters": [[*key, n] for key, n in self.counters.values.items()],
            }
        )

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot` under the same configuration."""
        saved = codec.load(state)
        self._tick, self._lead_ns = saved["tick"], saved["lead_ns"]
        self._reference.restore(saved["clocks"])
        self._queue_pairs.restore(saved["pairs"])
        self._windows.restore(saved["windows"])
        self._repeats.restore(saved["repeats"])
        self._lateness.restore(saved["holdback"])
        self.counters.values = {(what, reason): n for what, reason, n in saved["counters"]}


def _renamed(far: tuple[Any, list[str]], names: list[str]) -> Any:
    """Codes of `far` in the dictionary `names`; −1 for a name that is not in it."""
    codes, dictionary = far
    number = {name: i for i, name in enumerate(names)}
    return np.array([number.get(name, -1) for name in dictionary] or [-1], np.int64)[codes]
