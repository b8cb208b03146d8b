"""The queue pairs of one host.

They are known from the job map, corrected by the agent's own changes: the job map is read every now and then, an answer
of an actuator is newer. So for a while after a change by the agent the job map's path of that queue pair does not
count. The path of a kernel flow is never in the job map, which has the program's own port; there only the agent's own
changes count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.units import NS_PER_S

_OURS_COUNTS_NS: Final = 2 * NS_PER_S
GONE_NS: Final = 10 * NS_PER_S
"""A queue pair that the job map has not had for this long is there no more: a job's process may be slow to answer."""


@dataclass(slots=True)
class QpState:
    """One queue pair."""

    qp: QueuePair
    job: str
    control: str
    path: int
    """Source port that its packets leave with."""
    rate_bps: int | None
    sends: bool
    """Its sending end is here; False: its receiving end."""
    missing_ns: int | None = None
    """Since when the job map has it no more; steady clock. None: it has it."""
    changed_ns: int | None = None
    """Last change by this agent; steady clock."""
    moved_ns: int | None = None
    pending_request: int | None = None
    """Number of the request about its path that is in flight."""


class QpInventory:
    """The queue pairs of one host."""

    def __init__(self) -> None:
        self._known: dict[str, QpState] = {}
        self._receiving: dict[str, QpState] = {}
        self.kernel_paths: dict[str, int] = {}
        """Source ports that packets of kernel flows leave with, where it is not the program's own."""

    def __len__(self) -> int:
        return len(self._known) + len(self._receiving)

    def get(self, qp: str, *, sends: bool = True) -> QpState | None:
        """The queue pair whose sending (or receiving) end is here, None when there is none now."""
        return (self._known if sends else self._receiving).get(qp)

    def take(self, shards: Iterable[JobShard], now_ns: int) -> None:
        """All job shards of this host."""
        running = [p for p in shards if p.state == "running"]
        for table, sends in ((self._known, True), (self._receiving, False)):
            seen = set()
            for shard in running:
                for qp in shard.qps if sends else shard.receives:
                    seen.add(qp.qp)
                    self._see(table, qp, shard, now_ns, sends=sends)
            for name in table.keys() - seen:
                if table[name].missing_ns is None:
                    table[name].missing_ns = now_ns
        self.age(now_ns)

    def age(self, now_ns: int) -> bool:
        """Forget what has been missing for long enough; whether there was any."""
        gone = [
            (table, name)
            for table in (self._known, self._receiving)
            for name, known in table.items()
            if known.missing_ns is not None and now_ns - known.missing_ns >= GONE_NS
        ]
        for table, name in gone:
            del table[name]
            if table is self._known:
                self.kernel_paths.pop(name, None)
        return bool(gone)

    def _see(self, table: dict[str, QpState], qp: QueuePair, shard: JobShard, now_ns: int, *, sends: bool) -> None:
        known = table.get(qp.qp)
        if known is None:
            path = self.kernel_paths.get(qp.qp, qp.path) if sends else qp.path
            table[qp.qp] = QpState(qp, shard.job, shard.control, path, qp.rate_bps, sends)
            return
        if qp.steering != "kernel" and (known.changed_ns is None or now_ns - known.changed_ns >= _OURS_COUNTS_NS):
            known.path, known.rate_bps = qp.path, qp.rate_bps
        known.qp, known.job, known.control = qp, shard.job, shard.control
        known.missing_ns = None
