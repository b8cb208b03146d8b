"""Which process at the link speaks for which host: the first that does, for as long as it runs and is connected.

The kernel names the process at a unix socket's other end (``SO_PEERCRED``), so a producer cannot pretend to be another
one. A second process that speaks for a host already spoken for is refused: two agents were given one name, or one of
them was taken over. One process may speak for several hosts and over several connections. Rows of queue pairs
(``sdf.raw.qp.v1``) are not held to this: beside the agent every job's process writes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

MOST_HOSTS: Final = 65_536
"""Beyond, a host that nobody spoke for yet is refused."""


class Process(NamedTuple):
    """A process of this machine; `began` tells a later process of the same number apart."""

    pid: int
    uid: int
    began: str

    def __str__(self) -> str:
        return f"process {self.pid} of user {self.uid}"


class HostOwners:
    """Host → the process that speaks for it.

    Parameters
    ----------
    runs : callable
        Whether a process still runs; asked only when another one wants its host.
    """

    def __init__(self, runs: Callable[[Process], bool]) -> None:
        self._runs = runs
        self._owner: dict[str, Process] = {}
        self._connections: Counter[Process] = Counter()

    def connected(self, process: Process) -> None:
        """A connection of `process` began."""
        self._connections[process] += 1

    def disconnected(self, process: Process) -> None:
        """A connection of `process` ended; with its last one it speaks for no host."""
        self._connections[process] -= 1
        if self._connections[process] <= 0:
            del self._connections[process]
            self._owner = {host: owner for host, owner in self._owner.items() if owner != process}

    def other(self, host: str, process: Process) -> Process | None:
        """The process that speaks for `host` instead of `process`; None: `process` does, from now on if not before."""
        owner = self._owner.get(host)
        if owner == process:
            return None
        if owner is not None and self._runs(owner):
            return owner
        if owner is None and len(self._owner) >= MOST_HOSTS:
            return Process(0, 0, "")
        self._owner[host] = process
        return None
