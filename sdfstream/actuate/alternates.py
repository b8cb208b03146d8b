"""Where an armed failover may go: the alternates of a queue pair's present path, and the ``set`` that names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.jobs import OwnedQp
from sdfstream.actuate.links import Loads
from sdfstream.actuate.paths import MappedPath, Mapper, Watch, draw
from sdfstream.actuate.refusals import Doubt

Avoids = Callable[[OwnedQp, Sequence[str], int], bool]
"""Queue pair, hops of a route and now to whether a maintenance keeps the queue pair off it."""


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What would be armed."""

    present: MappedPath
    alternates: tuple[MappedPath, ...]


class Alternates:
    """Chooses where queue pairs may fail over to, and notes what that would load."""

    def __init__(self, config: ActuateConfig, mapper: Mapper, loads: Loads, avoids: Avoids) -> None:
        self._config, self._mapper, self._loads, self._avoids = config, mapper, loads, avoids

    def plan(self, owned: OwnedQp, now_ns: int) -> FailoverPlan | Doubt:
        """The present path and the best alternates."""
        present = self._mapper.path(owned, owned.pair.path, now_ns)
        if isinstance(present, Doubt):
            return present
        found = self._open(owned, now_ns)
        chosen = self._choose(owned, present, [m for m in found if m.segments != present.segments])
        if not chosen:
            doubts = len(owned.pair.alternates) - len(found)
            return Doubt(
                "no-alternate",
                f"of {len(owned.pair.alternates)} source ports none has a known way apart from the present one "
                f"({doubts} not known, not covered or in maintenance)",
            )
        return FailoverPlan(present, tuple(chosen))

    def others(self, owned: OwnedQp, present: MappedPath, but: int, now_ns: int) -> list[MappedPath]:
        """Alternates to a path that the queue pair was moved to, the one it left apart."""
        found = [m for m in self._open(owned, now_ns) if m.path != but and m.segments != present.segments]
        return self._choose(owned, present, found)

    def _open(self, owned: OwnedQp, now_ns: int) -> list[MappedPath]:
        """Mapped alternates but for those that cross what is in maintenance."""
        return [
            m for m in self._mapper.alternates(owned, now_ns) if not self._avoids(owned, (*m.data, *m.segments), now_ns)
        ]

    def _choose(self, owned: OwnedQp, present: MappedPath, found: Sequence[MappedPath]) -> list[MappedPath]:
        """Apart from the present path and from each other where possible, better covered and less loaded first.

        Ties are drawn by a hash of the queue pair, so that those that share a link do not all run to the same other.
        """
        chosen: list[MappedPath] = []
        taken = set(present.segments)
        rest = list(found)
        while rest and len(chosen) < self._config.most_alternates:
            best = min(
                rest,
                key=lambda m: (
                    len(set(m.segments) & set(present.segments)),
                    len(set(m.segments) & taken),
                    m.covered < 2,
                    self._loads.expected(owned.pair.qp, m.data),
                    draw(self._config.seed, owned.pair.qp, m.path),
                ),
            )
            rest.remove(best)
            chosen.append(best)
            taken |= set(best.segments)
        self._loads.reserve(owned.pair.qp, chosen[0].data if chosen else ())
        return chosen


def failover_set(
    former_watch: Watch, alternates: Sequence[tuple[int, Watch]], config: ActuateConfig, hold_down_ms: int
) -> dict[str, Any]:
    """The ``set`` of an armed failover.

    ``watch`` is always that of the path to go back to (``expected.path``); a queue pair that was moved finds the watch
    of its present path among the alternates.
    """
    return {
        "watch": former_watch,
        "alternates": [{"path": path, "watch": watch} for path, watch in alternates],
        "hold_down_ms": hold_down_ms,
        "clean_probes": config.clean_probes,
    }


def watch_of(set_: Mapping[str, Any], path: int) -> Watch | None:
    """The watch of an alternate in the ``set`` of an armed failover."""
    for alternate in set_.get("alternates", ()):
        if alternate["path"] == path:
            watch: Watch = alternate["watch"]
            return watch
    return None
