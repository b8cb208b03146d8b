"""Units to members of a group: evenly, and with as few moves as that allows. Pure; the group's leader works it out.

A move costs a stop, a restore and ten seconds of repeated input. By names alone (round robin) a process that was frozen
or starved, and whose unit another had taken, would take it back when it returns, and again after every such spell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sdfstream import strict_json
from sdfstream.errors import FormatError


class Held(NamedTuple):
    """The units that a member has, and the group's generation that gave them to it."""

    generation: int = -1
    units: frozenset[int] = frozenset()

    def pack(self) -> bytes:
        """As it travels with a member's request to join."""
        return json.dumps({"generation": self.generation, "units": sorted(self.units)}).encode()

    @classmethod
    def unpack(cls, raw: bytes | None) -> Held:
        """What a member said; nothing held where that cannot be read."""
        try:
            said = strict_json.loads(raw or b"")
            return cls(int(said["generation"]), frozenset(int(unit) for unit in said["units"]))
        except (FormatError, TypeError, KeyError, ValueError):
            return cls()


def assign(units: int, members: Mapping[str, Held]) -> dict[str, set[int]]:
    """Units of each member; their numbers differ by one at most.

    A unit stays with the member to which the newest generation gave it, unless that one has too many.

    Examples
    --------
    A thawed member holds what another has had since:

    >>> assign(1, {"a": Held(5, frozenset({0})), "b": Held(6, frozenset({0}))})
    {'a': set(), 'b': {0}}
    >>> assign(4, {"a": Held(1, frozenset(range(4))), "b": Held()})
    {'a': {0, 1}, 'b': {2, 3}}
    """
    found: dict[str, set[int]] = {name: set() for name in sorted(members)}
    if not found:
        return found
    for unit in range(units):
        holders = [name for name in found if unit in members[name].units]
        if holders:
            found[max(holders, key=lambda name: members[name].generation)].add(unit)
    for unit in sorted(set(range(units)).difference(*found.values())):
        found[_fewest(found)].add(unit)
    while True:
        most, fewest = max(found, key=lambda name: len(found[name])), _fewest(found)
        if len(found[most]) - len(found[fewest]) <= 1:
            return found
        unit = max(found[most])
        found[most].remove(unit)
        found[fewest].add(unit)


def _fewest(found: Mapping[str, Iterable[int]]) -> str:
    return min(found, key=lambda name: len(list(found[name])))
