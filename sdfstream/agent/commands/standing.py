"""What stands on one host: its leases, its queue pairs, its watches. `executor` changes it, `conditions` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.agent.commands.actuator import Answer
from sdfstream.agent.commands.inventory import Inventory, Known
from sdfstream.agent.commands.lease import State
from sdfstream.agent.commands.terms import Terms
from sdfstream.agent.commands.watch import CLEAN, Slots, Watches, WatchKey
from sdfstream.records.command import Command
from sdfstream.records.units import NS_PER_MS

RETRY_NS: Final = (50 * NS_PER_MS, 5_000 * NS_PER_MS)
"""First and longest pause before a request that was not done is made again; each doubles the one before."""


@dataclass(slots=True)
class Lease:
    """A command in force."""

    command: Command
    data: Mapping[str, Any]
    """As signed."""
    terms: Terms
    host: str
    deadline_ns: int
    """Steady clock: it has then lasted as long as it was given."""
    src: str
    """NIC that sends; its probes watch."""
    state: State = State.NEW
    path: int | None = None
    """Source port that it put its queue pair on."""
    asked: int | None = None
    """Source port that was asked for last."""
    asked_rate_bps: int | None = None
    ttl_ns: int = 0
    """The time limit in the last request."""
    limit_until_ns: int = 0
    """Steady clock by which the actuator's own time limit has ended the limit for certain."""
    resumed: bool = False
    """Taken over from the journal: what an earlier run asked for may have been done unseen."""
    request: int | None = None
    """Under way."""
    answer: Answer | None = None
    """To the last request."""
    undo: bool = False
    """An undo command names it."""
    retry_ns: int = 0
    """Not asked again before; steady clock."""
    pause_ns: int = RETRY_NS[0]

    def key(self, path: int | None) -> WatchKey:
        """Of the watch of one of its paths."""
        return WatchKey(self.command.id, path or 0)


@dataclass(slots=True)
class Place:
    """One host."""

    name: str
    slots: Slots | None = None
    watches: Watches = field(default_factory=Watches)
    inventory: Inventory = field(default_factory=Inventory)
    leases: dict[str, Lease] = field(default_factory=dict)
    look_ns: int = 0
    """Leases are looked at again at this time, whatever happens."""
    stirred: bool = False
    """Something happened that may matter to any lease."""
    began_ns: int | None = None
    """First look at this host."""

    def known(self, lease: Lease) -> Known | None:
        """The queue pair of a lease; None: it is not there (yet)."""
        return self.inventory.get(lease.terms.qp, sends=lease.terms.kind != "peer")

    def verdict(self, lease: Lease, path: int | None) -> int:
        """Of the watch of one of the lease's paths."""
        return self.watches.verdict(lease.key(path))

    def alternate(self, lease: Lease, known: Known) -> int | None:
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
        """Watch the lease's paths by what its newest statement says, from the next judgement on."""
        for path, segments in (lease.terms.watches or {}).items():
            self.watches.put(lease.key(path), lease.src, segments, lease.command.issued_at_ns)
        if lease.terms.watches:
            self.stirred = True  # newer lists may tell other leases something, too

    def judge(self, now_ns: int) -> bool:
        """Judge the watches by the present liveness; whether any verdict may have changed."""
        return self.slots is not None and self.watches.judge(self.slots, now_ns)

    def unwatch(self, lease: Lease, keep: Mapping[int, Any] | None = None) -> None:
        """Watch its paths no longer, but those in `keep`."""
        for path in lease.terms.watches or {}:
            if path not in (keep or {}):
                self.watches.drop(lease.key(path))
