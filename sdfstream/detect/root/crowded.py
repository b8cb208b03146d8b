"""Queues that begin at once at most ways out of one switch: the switch's doing, told as one finding about it.

When a switch hashes its flows anew and they crowd on one link, the paths that wait are known by their former routes,
over all its links; so all of these seem to have a queue. Independent queues do not begin together and grow alike. Once
the routes are traced again the one link that has the queue remains, and the finding about the switch names it.

Where all ways out have few paths each, the NICs below explain them as well: what these send waits. Three NICs that
nobody tells to pause and that begin to be slow within half a second are not; their leaf crowds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sdfstream.detect.detections import MAX_SYMPTOMS, Detection
from sdfstream.detect.queues.controlled import sent_by_nics
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

    def gather(
        self,
        queues: list[Detection],
        reported: frozenset[str],
        paused: frozenset[str] = frozenset(),
        neighbours: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Detection]:
        """`queues` with those at the ways out of one switch, or of NICs below it, as one about it.

        `reported`: ids of open findings; `paused`: NICs that are told to wait, whose queues are another's;
        `neighbours`: switches that each switch is cabled to, where that is known.
        """
        by_switch: dict[str, list[Detection]] = {}
        for queue in queues:
            if queue.direction and queue.subject.id not in paused:
                by_switch.setdefault(_crowding(queue), []).append(queue)
        by_switch.pop("", None)
        self.since_ns = {name: at for name, at in self.since_ns.items() if name in reported}
        for switch, mine in by_switch.items():
            known_ns = self.since_ns.get(switch)
            together = [q for q in mine if known_ns is not None and abs(q.since_ns - known_ns) <= _AT_ONCE_NS]
            if known_ns is None and _alike(mine, len((neighbours or {}).get(switch, ()))):
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


def _crowding(queue: Detection) -> str:
    """The switch whose doing the queue may be: the one before a link, or that a NIC sends to; else none."""
    start, _, end = queue.direction.partition("->")
    if queue.subject.type == "link":
        return start
    return end if queue.subject.type == "nic" and sent_by_nics(queue.directions) else ""


def _alike(queues: list[Detection], uplinks: int) -> bool:
    """Whether queues are enough, and began together and are of a length: all but one of few ways out are enough too."""
    out = all(queue.subject.type == "link" for queue in queues)
    least = min(_LEAST, max(uplinks - 1, 2)) if out and uplinks else _LEAST
    began = [queue.since_ns for queue in queues]
    waits = [value(queue, "delay-excess") or 0.0 for queue in queues]
    return len(queues) >= least and max(began) - min(began) <= _AT_ONCE_NS and max(waits) <= _ALIKE * min(waits)


def _whole(switch: str, queues: list[Detection]) -> Detection:
    """One detection about the switch, as the one of `queues` whose cause is known, or whose paths are most, says it."""
    known = [q for q in queues if q.cause == IMBALANCE] or [q for q in queues if q.subject.type == "link"] or queues
    first = max(known, key=lambda q: (value(q, "slow-paths") or 0.0, q.subject.id))
    egresses = tuple(
        direction for queue in sorted(queues, key=lambda q: q.subject.id) for direction in queue.directions
    )
    alone = len(queues) == 1
    suspects = first.suspects if alone else tuple((egress, round(1 / len(egresses), 4)) for egress in egresses)
    symptoms = tuple(symptom for queue in queues for symptom in queue.symptoms)
    return replace(
        first,
        cause=first.cause if first.subject.type == "link" else "queueing",
        subject=Subject("switch", switch),
        since_ns=min(queue.since_ns for queue in queues),
        suspects=suspects,
        symptoms=symptoms[:MAX_SYMPTOMS],
        directions=egresses,
        direction_known=alone,
        detail=f"queue {' '.join(egresses)}",
    )
