"""Where a finding points, measured against where a fault was: exact, among the suspects, near, a symptom, elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from sdfstream.records.fabric import host_of


class Place(IntEnum):
    """How well a finding's subject meets a fault's target; a greater number is closer."""

    ELSEWHERE = 0
    """Something else is blamed."""
    SYMPTOM = 1
    """A path, a queue pair, a job: true as an observation, but it names no culprit."""
    NEAR = 2
    """A neighbour: a link of the faulty switch, a switch at an end of the faulty link, the host of the faulty NIC."""
    SUSPECT = 3
    """Among the suspects the finding lists, though not its subject."""
    EXACT = 4
    """The faulty element, or for a link to a NIC either of the two: no measurement from outside tells them apart."""


_LINK = re.compile(r"(.+?)(?:--|->)(.+)")


def place(target: str, finding: Mapping[str, Any]) -> Place:
    """How well `finding` (the data object of one) meets the fault's `target`.

    Parameters
    ----------
    target : str
        NIC ``h03/r1``, link ``l0--s1``, direction ``l0->s1``, switch ``s1`` or host ``h03``.
    finding : mapping
        With ``subject`` {type, id} and optionally ``suspects`` [{id, probability}].

    Examples
    --------
    >>> place("h03/r1--l0", {"subject": {"type": "nic", "id": "h03/r1"}}).name
    'EXACT'
    >>> place("l0--s1", {"subject": {"type": "switch", "id": "s1"}}).name
    'NEAR'
    """
    subject = finding.get("subject") or {}
    kind, name = str(subject.get("type", "")), str(subject.get("id", ""))
    nic = name.rpartition(":")[0] if kind == "port" else name
    best = Place.SYMPTOM if kind in ("path", "qp", "job") else _element(target, nic)
    for suspect in finding.get("suspects") or ():
        if best < Place.SUSPECT and _element(target, str(suspect.get("id", ""))) is Place.EXACT:
            best = Place.SUSPECT
    return best


def _element(target: str, name: str) -> Place:
    if not name:
        return Place.ELSEWHERE
    wanted, named = ends(target), ends(name)
    if wanted == named:
        return Place.EXACT
    nics = {end for end in wanted | named if "/" in end}
    if nics and len(wanted) != len(named) and wanted & named & nics:
        return Place.EXACT  # a NIC and its link
    if len(wanted) == 1 and "/" not in target and any(host_of(end) == target for end in named if "/" in end):
        return Place.EXACT  # the target is a host: its NICs, and their links, are parts of it
    if len(wanted) == len(named):
        return Place.NEAR if len(named) == 1 and host_of(target) == name else Place.ELSEWHERE
    hosts = {host_of(end) for end in wanted}
    return Place.NEAR if wanted & named or (len(named) == 1 and named <= hosts) else Place.ELSEWHERE


def ends(element: str) -> frozenset[str]:
    """The two ends of a link or direction; of anything else itself.

    >>> sorted(ends("s1->l0"))
    ['l0', 's1']
    """
    match = _LINK.fullmatch(element)
    return frozenset(match.groups()) if match else frozenset((element,))
