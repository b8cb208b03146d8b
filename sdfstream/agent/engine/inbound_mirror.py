"""What the packet engine has reported of the sessions that a host reflects.

The engine reports changes as they happen, and all inbound paths when it is asked; here lies the latest of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sdfstream.probes.stamp.liveness import ALIVE, FORGET_NS, STATES, UNKNOWN, PathName
from sdfstream.probes.trace.trace_io import InboundPaths
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.units import NS_PER_S


@dataclass(slots=True)
class _Inbound:
    """The latest that was reported of one inbound path. Times: system clock."""

    name: PathName
    address: bytes
    state: int = UNKNOWN
    since_ns: int = 0
    interval_ns: int = 0


class InboundMirror:
    """The inbound paths of one host; a name keeps its number.

    Parameters
    ----------
    clock : Clock
        The host's, for the times of entries.
    nic_name : callable
        The reflector's number of a NIC to its id.
    """

    def __init__(self, clock: Clock, nic_name: Callable[[int], str]) -> None:
        self._clock = clock
        self._nic_name = nic_name
        self._paths: dict[PathName, _Inbound] = {}
        self._changed: list[dict[str, Any]] = []

    def take(self, event: np.void) -> None:
        """Take one event (`shell_layouts.INBOUND`)."""
        nic, sender = (self._nic_name(int(event[end])) for end in ("nic", "sender"))
        name = PathName(nic, sender, nic, "udp", int(event["port"]), int(event["dscp"]))
        path = self._paths.setdefault(name, _Inbound(name, event["address"].tobytes()))
        before = path.state, path.since_ns
        path.state, path.since_ns = int(event["state"]), int(event["since_ns"])
        path.interval_ns = int(event["interval_ns"])
        if path.state != before[0] or not event["complete"]:
            self._changed.append(self._entry(path))

    @property
    def has_changes(self) -> bool:
        """Whether `changes` has any."""
        return bool(self._changed)

    def changes(self) -> list[dict[str, Any]]:
        """Entries of the changes since the last call."""
        changed, self._changed = self._changed, []
        return changed

    def complete(self, system_ns: int) -> list[dict[str, Any]]:
        """Entries of all paths that are known and not forgotten."""
        recent = [
            path
            for path in self._paths.values()
            if path.state == ALIVE or (path.state != UNKNOWN and system_ns - path.since_ns < FORGET_NS)
        ]
        return [self._entry(path) for path in recent]

    def paths(self) -> InboundPaths:
        """All paths that were ever reported, by number."""
        held = self._paths.values()
        states = np.array([path.state for path in held], dtype=np.uint8)
        return InboundPaths([path.name for path in held], [path.address for path in held], states)

    def arriving_pps(self, ports: range) -> float:
        """Probes that arrive per second over these source ports."""
        alive = (p for p in self._paths.values() if p.state == ALIVE and p.interval_ns > 0 and p.name.path in ports)
        return float(sum(NS_PER_S / path.interval_ns for path in alive))

    def _entry(self, path: _Inbound) -> dict[str, Any]:
        return {
            **path.name._asdict(),
            "role": "reflector",
            "state": STATES[path.state],
            "since_at_ns": self._clock.at(path.since_ns),
            "interval_ns": path.interval_ns,
            "missed": 0,
        }
