"""A switch is not blamed where one of its cables explains the same silence.

A pulled cable or a dead NIC silences both its directions, which are two elements of the search; a switch is one, and so
looks likelier than the two together as long as nothing is known of its other cables. Where every silent path crosses
one and the same cable of the switch, and no healthy path does, the cable is the simpler answer: cables fail far more
often than switches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.problem import Problem
from sdfstream.records.finding import Subject

Ints = npt.NDArray[np.int64]

_SURELY = 0.9
"""A path crosses an element when it does so with this probability."""


def cable_instead(cabling: Cabling, posed: Problem, switch: str, slots: Ints) -> tuple[Subject, list[str]] | None:
    """The one cable of `switch` that its silent paths `slots`, and no healthy one, all cross, and its sick directions.

    None where there is no such cable, or several.
    """
    elements = _elements_by_cable(cabling, posed, switch, slots)
    if len(elements) != 1:
        return None
    cable, numbers = next(iter(elements.items()))
    return cable, [cabling.direction(int(posed.elements[number])) for number in numbers]


def over_one_cable(cabling: Cabling, switch: str, slots: Ints) -> bool:
    """Whether one cable of a switch may be all that these sessions cross of it, in whichever direction.

    Those of known routes all cross it, and so may the others.
    """
    element, weight = cabling.element[slots], cabling.weight[slots]
    for end in sorted(cabling.topology.neighbours.get(switch, ())):
        both = cabling.numbers((f"{end}->{switch}", f"{switch}->{end}"))
        crosses = np.isin(element, both) & (weight > 0.0)
        if both and bool(crosses.any(axis=(1, 2)).all()):
            return True
    return False


def _elements_by_cable(cabling: Cabling, posed: Problem, switch: str, slots: Ints) -> dict[Subject, list[int]]:
    """Elements, by cable at `switch`, of the cables that all of `slots` surely cross and no healthy path does."""
    trials, sick = posed.trials, posed.sick.slots.size
    sure = trials.weight > _SURELY
    healthy = set(trials.element[sure & (trials.row >= sick)].tolist())
    rows = np.flatnonzero(np.isin(posed.sick.slots, slots))
    mine = sure & np.isin(trials.row, rows) & (trials.element < posed.elements.size)
    crossing: dict[Subject, set[int]] = {}
    numbers: dict[Subject, list[int]] = {}
    for number in np.unique(trials.element[mine]).tolist():
        subject = cabling.subject(int(posed.elements[number]))
        if subject.type in ("nic", "link") and switch in cabling.switches_of(subject):
            crossing.setdefault(subject, set()).update(trials.row[mine & (trials.element == number)].tolist())
            numbers.setdefault(subject, []).append(number)
    return {
        cable: numbers[cable]
        for cable, crossed in crossing.items()
        if len(crossed) == rows.size and healthy.isdisjoint(numbers[cable])
    }
