"""Queues that begin at once at most ways out of one switch: the switch's doing, told as one finding about it.

When a switch hashes its flows anew and they crowd on one link, the paths that wait are known by their former routes,
over all its links; so all of these seem to have a queue. Independent queues do not begin together and grow alike. Once
the routes are traced again the one link that has the queue remains, and the finding about the switch names it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sdfstream.detect.detections import MAX_SYMPTOMS, Detection
from sdfstream.detect.root.spread import value
from sdfstream.records.finding import IMBALANCE, Subject
from sdfstream.records.units import NS_PER_MS

_LEAST: Final = 3
_AT_ONCE_NS: Final = 500 * NS_PER_MS
_ALIKE: Final = 2.0
"""The longest queue is at most so many times the shortest."""


class CrowdedSwitches:
    """The switches told of, and when their queues began."""

    def __init__(self) -> None:
        self.since_ns: dict[str, int] = {}

    def gather(self, queues: list[Detection], reported: frozenset[str]) -> list[Detection]:
        """`queues` with those at the ways out of one switch as one about it; `reported`: ids of open findings."""
        by_switch: dict[str, list[Detection]] = {}
        for queue in queues:
            if queue.subject.type == "link" and queue.direction:
                by_switch.setdefault(queue.direction.partition("->")[0], []).append(queue)
        self.since_ns = {name: at for name, at in self.since_ns.items() if name in reported}
        for switch, mine in by_switch.items():
            known_ns = self.since_ns.get(switch)
            together = [q for q in mine if known_ns is not None and abs(q.since_ns - known_ns) <= _AT_ONCE_NS]
            if known_ns is None and _alike(mine):
                self.since_ns[switch], together = min(q.since_ns for q in mine), mine
            if together:
                queues = [_whole(switch, together), *(q for q in queues if q not in together)]
        return queues

    def snapshot(self) -> dict[str, int]:
        """The whole state as plain values."""
        return dict(self.since_ns)

    def restore(self, state: dict[str, int]) -> None:
        """Take up a state made by `snapshot`."""
        self.since_ns = {str(name): int(at) for name, at in state.items()}


def _alike(queues: list[Detection]) -> bool:
    began = [queue.since_ns for queue in queues]
    waits = [value(queue, "delay-excess") or 0.0 for queue in queues]
    return len(queues) >= _LEAST and max(began) - min(began) <= _AT_ONCE_NS and max(waits) <= _ALIKE * min(waits)


def _whole(switch: str, queues: list[Detection]) -> Detection:
    """One detection about the switch, as the one of `queues` whose cause is known, or whose paths are most, says it."""
    first = max(queues, key=lambda q: (q.cause == IMBALANCE, value(q, "slow-paths") or 0.0, q.subject.id))
    egresses = tuple(
        direction for queue in sorted(queues, key=lambda q: q.subject.id) for direction in queue.directions
    )
    alone = len(queues) == 1
    suspects = first.suspects if alone else tuple((egress, round(1 / len(egresses), 4)) for egress in egresses)
    symptoms = tuple(symptom for queue in queues for symptom in queue.symptoms)
    return replace(
        first,
        subject=Subject("switch", switch),
        since_ns=min(queue.since_ns for queue in queues),
        suspects=suspects,
        symptoms=symptoms[:MAX_SYMPTOMS],
        directions=egresses,
        direction_known=alone,
        detail=f"queue {' '.join(egresses)}",
    )
