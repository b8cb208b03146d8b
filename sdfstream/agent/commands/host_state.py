"""The state of one host: its queue pairs, its leases, its watches. `executor` changes it, `conditions` reads it.

Queue pairs are known from the job map, corrected by the agent's own changes: the job map is read every now and then, an
answer of an actuator is newer. So for a while after a change by the agent the job map's path of that queue pair does
not count. The path of a kernel flow is never in the job map, which has the program's own port; there only the agent's
own changes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.agent.commands.lease import Lease
from sdfstream.agent.commands.path_watch import CLEAN, PathLiveness, PathWatches
from sdfstream.records.job import JobShard, QueuePair
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


@dataclass(slots=True)
class HostState:
    """One host."""

    name: str
    slots: PathLiveness | None = None
    watches: PathWatches = field(default_factory=PathWatches)
    inventory: QpInventory = field(default_factory=QpInventory)
    leases: dict[str, Lease] = field(default_factory=dict)
    look_at_ns: int = 0
    """Leases are looked at again at this time, whatever happens."""
    needs_look: bool = False
    """Something happened that may matter to any lease."""
    first_look_ns: int | None = None
    """First look at this host."""

    def known(self, lease: Lease) -> QpState | None:
        """The queue pair of a lease; None: it is not there (yet)."""
        return self.inventory.get(lease.terms.qp, sends=lease.terms.kind != "peer")

    def verdict(self, lease: Lease, path: int | None) -> int:
        """Of the watch of one of the lease's paths."""
        return self.watches.verdict(lease.key(path))

    def alternate(self, lease: Lease, known: QpState) -> int | None:
        """The first path of the lease that is clean and not in use."""
        for path in lease.terms.paths:
            if path != known.path and self.verdict(lease, path) == CLEAN:
                return path
        return None

    def healed(self, lease: Lease, now_ns: int) -> bool:
        """The former path has been clean throughout the hold-down."""
        since_ns = self.watches.clean_since_ns(lease.key(lease.terms.former))
        return since_ns is not None and now_ns - since_ns >= lease.terms.hold_down_ns

    def watch(self, lease: Lease) -> None:
        """Watch the lease's paths by its newest statement, from the next assessment on."""
        for path, segments in (lease.terms.watches or {}).items():
            self.watches.put(lease.key(path), lease.src, segments, lease.command.issued_at_ns)
        if lease.terms.watches:
            self.needs_look = True  # newer lists may matter to other leases, too

    def assess(self, now_ns: int) -> bool:
        """Assess the watches by the present liveness; whether any verdict may have changed."""
        return self.slots is not None and self.watches.assess(self.slots, now_ns)

    def unwatch(self, lease: Lease, keep: Mapping[int, Any] | None = None) -> None:
        """Watch its paths no longer, but those in `keep`."""
        for path in lease.terms.watches or {}:
            if path not in (keep or {}):
                self.watches.drop(lease.key(path))
