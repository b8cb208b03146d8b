"""In which direction a NIC or link loses, by the probes that were lost on the way there (`lost_there`).

Of paths whose way there crosses it in one direction some are lost there; where those that cross it in the other are
spared although as many of them should have been lost, it is that direction alone. A probe that was lost on the way back
proves nothing: its reflector may be stateless.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import FWD, Cabling
from sdfstream.detect.localise import Location
from sdfstream.records.units import Int64s

_LEAST: Final = 4.0
"""Lost there, beyond normal loss, or expected to be: fewer tell nothing."""
_DOUBT: Final = 1.5
"""Lost there in the direction that is held to be well."""
_SPARED, _SHARED = 0.15, 0.3
"""Of what the other direction's share would cost it, a direction that is well loses at most, a lossy one at least."""
_SURELY: Final = 0.9


def directed(cabling: Cabling, found: Location, there: Int64s, probes: Int64s, normal: float) -> Location:
    """`found` with its direction as far as it shows; unchanged where it does not.

    `there` and `probes`, (sessions,): lost on the way there and sent since it began; `normal`: share lost anyway.
    What was lost beyond what was sent is of probes that are not counted: an outage took them, or they are older.
    """
    there = np.minimum(there, probes)
    sides = _sides(cabling, found)
    if sides is None:
        return found
    lost = {name: float(there[slots].sum() - normal * probes[slots].sum()) for name, slots in sides.items()}
    sent = {name: float(probes[slots].sum()) for name, slots in sides.items()}
    worst, other = sorted(sides, key=lambda name: -lost[name] / max(1.0, sent[name]))
    well = [name for name in sides if name not in found.directions]
    if found.direction_known and well and lost[well[0]] >= _DOUBT:
        found = _with_directions(found, list(sides), known=False)  # what the paths say is contradicted
    if lost[worst] < _LEAST:
        return found
    expected = sent[other] * lost[worst] / sent[worst]
    if expected >= _LEAST and lost[other] <= _SPARED * expected:
        return _with_directions(found, [worst], known=True)
    if lost[other] >= max(_LEAST, _SHARED * expected):
        return _with_directions(found, list(sides), known=True)
    return found


def _with_directions(found: Location, directions: list[str], *, known: bool) -> Location:
    if (set(found.directions), found.direction_known) == (set(directions), known):
        return found
    each = found.probability / (1 if known else len(directions))
    return replace(found, directions=directions, direction_known=known, suspects=[(name, each) for name in directions])


def _sides(cabling: Cabling, found: Location) -> dict[str, Int64s] | None:
    """Both directions of a NIC or link, each with the sessions whose way there surely crosses it; None: neither."""
    count, table = cabling.sessions.count, cabling.sessions.table
    src, dst = table["src"][:count], table["dst"][:count]
    if found.subject.type == "nic":
        number, name = cabling.sessions.nics.find(found.subject.id), found.subject.id
        ends = {cabling.side(name, "tx"): src == number, cabling.side(name, "rx"): dst == number}
        return {side: np.flatnonzero(mine & (src >= 0)) for side, mine in ends.items()}
    if found.subject.type != "link" or not found.directions:
        return None
    first = found.directions[0]
    second = "->".join(reversed(first.split("->")))
    if found.beside:
        near = [cabling.sessions.nics.find(name) for name in found.beside]
        slots = np.unique(found.slots)
        leaves = np.isin(src[slots], near)
        out, into = slots[leaves], slots[~leaves]
        return {first: out, second: into} if first.endswith(_far(found)) else {first: into, second: out}
    element, weight = cabling.element[:count, FWD], cabling.weight[:count, FWD]
    return {
        name: np.flatnonzero((np.isin(element, cabling.numbers([name])) & (weight > _SURELY)).any(axis=1))
        for name in (first, second)
    }


def _far(found: Location) -> str:
    """The end of an inferred link at which the NICs that are listed with it are not."""
    return next(end for end in found.subject.id.split("--") if not end.startswith("~leaf("))
