"""The state of the one timeline and the order of its work; `stage` feeds it, the other modules do the parts."""

from __future__ import annotations

from typing import Any

from sdfstream.records.message import Output
from sdfstream.stats import Counters
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.hosts import HostWork
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.meshwork import MeshWork


class Timeline:
    """Edge work and mesh work in one process: each tick the sites report, the mesh solves, the beliefs go back."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._hosts = HostWork(config, counters)
        self._mesh = MeshWork(config, counters)
        self._ticks = 0

    def begin(self, bus_at_ns: int) -> None:
        """The first message came."""
        self._mesh.begin(bus_at_ns)
        self._hosts.take_up(self._mesh.clocks, self._mesh.usual)

    def take(self, x: Exchanges, bus_at_ns: int) -> None:
        """Accepted rows."""
        self._hosts.take(x, bus_at_ns)

    def close(self, bus_at_ns: int) -> list[Output]:
        """Close the windows that are late enough at this bus time."""
        return self._hosts.close(bus_at_ns)

    def close_all(self) -> list[Output]:
        """Close every window that holds rows."""
        return self._hosts.close_all()

    def tick(self, bus_at_ns: int) -> list[Output]:
        """100 ms of bus time have passed: learn from what came, publish every clock's causal row."""
        self._ticks += 1
        out = self._mesh.tick(bus_at_ns, [self._hosts.tick(bus_at_ns, self._ticks)])
        self._hosts.take_up(self._mesh.clocks, self._mesh.usual)
        return out + self._hosts.turn(bus_at_ns)

    def flush(self) -> list[Output]:
        """Smoothed rows that still wait."""
        return self._mesh.flush()

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"hosts": self._hosts.state(), "mesh": self._mesh.state(), "ticks": self._ticks}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._hosts.load(state["hosts"])
        self._mesh.load(state["mesh"])
        self._ticks = int(state["ticks"])
