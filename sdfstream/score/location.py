"""A finding's location against a fault's: exact, among the suspects, near, a symptom, elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from sdfstream.records.fabric import host_of


class LocationMatch(IntEnum):
    """How well a finding's subject meets a fault's target; a greater number is closer."""

    ELSEWHERE = 0
    """Something else is blamed."""
    SYMPTOM = 1
    """A path, a queue pair, a job: a true observation that names no faulty element."""
    NEAR = 2
    """A neighbour: a link of the faulty switch, a switch at an end of the faulty link, the host of the faulty NIC."""
    SUSPECT = 3
    """Among the suspects the finding lists, though not its subject."""
    EXACT = 4
    """The faulty element, or for a link to a NIC either of the two: no measurement from outside tells them apart."""


_LINK = re.compile(r"(.+?)(?:--|->)(.+)")


def locate(target: str, finding: Mapping[str, Any]) -> LocationMatch:
    """How well `finding` (the data object of one) meets the fault's `target`.

    Parameters
    ----------
    target : str
        NIC ``h03/r1``, link ``l0--s1``, direction ``l0->s1``, switch ``s1`` or host ``h03``.
    finding : mapping
        With ``subject`` {type, id} and optionally ``suspects`` [{id, probability}].

    Examples
    --------
    >>> locate("h03/r1--l0", {"subject": {"type": "nic", "id": "h03/r1"}}).name
    'EXACT'
    >>> locate("l0--s1", {"subject": {"type": "switch", "id": "s1"}}).name
    'NEAR'
    """
    subject = finding.get("subject") or {}
    kind, name = str(subject.get("type", "")), str(subject.get("id", ""))
    if name == target:
        return LocationMatch.EXACT  # a job too, where it is what the fault is on
    nic = name.rpartition(":")[0] if kind == "port" else name
    best = LocationMatch.SYMPTOM if kind in ("path", "qp", "job") else _element(target, nic)
    for suspect in finding.get("suspects") or ():
        if best < LocationMatch.SUSPECT and _element(target, str(suspect.get("id", ""))) is LocationMatch.EXACT:
            best = LocationMatch.SUSPECT
    return best


AT_LINKS: frozenset[str] = frozenset({"ecmp-imbalance", "miscabled"})
"""Kinds of fault with more elements than their target, each of which locates it: the links of a switch at which its
trouble stands, the cables of both NICs that are plugged into each other's leaf."""


def located(fault: Mapping[str, Any], finding: Mapping[str, Any]) -> LocationMatch:
    """How well `finding` meets the target of `fault` (a line of ``truth/faults.jsonl``).

    >>> fault = {"kind": "ecmp-imbalance", "target": "l0", "links": ["l0->s1"]}
    >>> located(fault, {"subject": {"type": "link", "id": "l0--s1"}}).name
    'EXACT'
    >>> located(fault, {"subject": {"type": "link", "id": "l0--s2"}}).name
    'NEAR'

    A NIC on a faulty leaf is as near as its cable:

    >>> fault = {"kind": "switch-down", "target": "l0", "links": ["h0/r0->l0", "l0->h0/r0"]}
    >>> located(fault, {"subject": {"type": "nic", "id": "h0/r0"}}).name
    'NEAR'
    """
    links = [str(link) for link in fault.get("links", ())]
    best = max(locate(str(one), finding) for one in [fault["target"], *(links if fault["kind"] in AT_LINKS else ())])
    subject = finding.get("subject") or {}
    if best is LocationMatch.ELSEWHERE and str(subject.get("id", "")) in _nics(frozenset().union(*map(ends, links))):
        return LocationMatch.NEAR
    return best


def touched(target: str, finding: Mapping[str, Any]) -> bool:
    """Whether the subject of `finding` is the fault's target or a part of it, or only a path, queue pair or job.

    >>> touched("s1", {"subject": {"type": "link", "id": "l0--s1"}})
    True
    >>> touched("l0--s1", {"subject": {"type": "switch", "id": "s1"}})
    False
    """
    subject = finding["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    if kind in ("path", "qp", "job") or name == target:
        return True
    nic = name.rpartition(":")[0] if kind == "port" else name
    return _is_same(target, nic) or ends(target) < ends(nic)


def _element(target: str, name: str) -> LocationMatch:
    """How well the element `name` meets `target`, suspects aside."""
    if not name:
        return LocationMatch.ELSEWHERE
    if _is_same(target, name):
        return LocationMatch.EXACT
    return LocationMatch.NEAR if _is_neighbour(target, name) else LocationMatch.ELSEWHERE


def _is_same(target: str, name: str) -> bool:
    """The same element; a NIC and its link; a host as target and one of its NICs or their links."""
    wanted, named = ends(target), ends(name)
    if wanted == named:
        return True
    if len(wanted) != len(named) and _nics(wanted & named):
        return True
    return len(wanted) == 1 and "/" not in target and target in {host_of(nic) for nic in _nics(named)}


def _is_neighbour(target: str, name: str) -> bool:
    """A link of the switch, a switch at an end of the link, the host of the NIC or of its link."""
    wanted, named = ends(target), ends(name)
    if len(wanted) == len(named):
        return len(named) == 1 and host_of(target) == name
    return bool(wanted & named) or (len(named) == 1 and named <= {host_of(end) for end in wanted})


def _nics(elements: frozenset[str]) -> set[str]:
    return {end for end in elements if "/" in end}


def ends(element: str) -> frozenset[str]:
    """The two ends of a link or direction; of anything else itself.

    >>> sorted(ends("s1->l0"))
    ['l0', 's1']
    """
    match = _LINK.fullmatch(element)
    return frozenset(match.groups()) if match else frozenset((element,))
