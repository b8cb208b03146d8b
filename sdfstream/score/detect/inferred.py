"""Inferred places against the truth: which element of the fabric a finding singles out that knows no switch by name.

Where neither cabling nor traces are known a finding may name a link of the switch that some NICs share, or a switch
beyond (``~leaf(h00:r0)``, ``~core``), by the NICs and by the paths that cross it. It singles out an element

- if the NICs that it lists (evidence ``nics-on-switch``) are all the NICs of one leaf, no other among them,
- and if just one link of that leaf is crossed by every path that it lists, in the direction that it names, if it names
  one; of one beyond: just one that is no leaf, or the one at which all links beyond the leaves meet that every path
  crosses (with two pods no path crosses one link of a core switch without the other).

Then its subject, direction and suspects are read as that element, right or wrong. One trace of any path that it lists
shows the same to an operator. Where packets are sprayed no path has a route, and nothing tells the links of a leaf to
those above it apart: what names one of them is read as its leaf, which is near. Otherwise they are no place, and the
finding is judged by its invented name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from sdfstream.score.location import ends

Data = Mapping[str, Any]

MEMBERS: Final = "nics-on-switch"
_INFERRED: Final = re.compile(r"~leaf\([^()]*\)|~core")
_PATH: Final = re.compile(r"(\S+>\S+) \w+:(\d+) ")


def is_inferred(statement: Data) -> bool:
    """Whether the subject of a statement has an inferred end."""
    return _INFERRED.search(str(statement["subject"]["id"])) is not None


def in_truth(statement: Data, leaves: Mapping[str, str], routes: Mapping[str, Iterable[str]]) -> Data:
    """`statement` with the element that it singles out in place of inferred names; itself, where it does not.

    Parameters
    ----------
    statement : mapping
    leaves : mapping
        Leaf of every NIC.
    routes : mapping
        ``src>dst:port`` to the directions ``a->b`` that a path crosses, there and back.
    """
    crossed = [frozenset(routes[key]) for key in _paths(statement) if key in routes]
    if not is_inferred(statement):
        return statement
    members = {nic for e in statement["evidence"] if e["what"] == MEMBERS for nic in str(e["where"]).split()}
    if members and statement["subject"]["type"] == "switch":
        whole = _leaf_of(members, leaves)
        return statement if whole is None else _renamed(statement, {str(statement["subject"]["id"]): whole})
    name = _leaf_of(members, leaves)
    if not crossed:
        sprayed = not routes and name is not None and statement["subject"]["type"] == "link"
        return {**statement, "subject": {"type": "switch", "id": name}} if sprayed else statement
    cables = frozenset.intersection(*(frozenset(map(ends, one)) for one in crossed))
    if statement["subject"]["type"] == "switch":
        nodes = frozenset.intersection(*(frozenset().union(*map(ends, one)) for one in crossed))
        beyond = {end for end in nodes if "/" not in end} - set(leaves.values())
        above = [cable for cable in cables if cable <= beyond]
        if len(above) > 1:
            beyond = set(frozenset.intersection(*above))
        return _renamed(statement, {"~core": beyond.pop()}) if len(beyond) == 1 else statement
    if name is None:
        return statement
    inferred = next(one for one in _INFERRED.findall(str(statement["subject"]["id"])) if one != "~core")
    direction = str(statement["subject"].get("direction") or "")
    if direction:  # a path may cross one link of the leaf on its way out and another on its way in
        into = direction.endswith(inferred)
        every = frozenset.intersection(*crossed)
        cables = frozenset(ends(one) for one in every if (one.split("->")[1] == name) == into)
    far = [next(iter(cable - {name})) for cable in cables if name in cable]
    far = [end for end in far if "/" not in end]
    return _renamed(statement, {inferred: name, "~core": far[0]}) if len(far) == 1 else statement


def _leaf_of(members: Collection[str], leaves: Mapping[str, str]) -> str | None:
    """The leaf all of whose NICs these are; None: they are of several, or others share it."""
    leaf = {leaves.get(nic) for nic in members}
    name = leaf.pop() if len(leaf) == 1 else None
    return None if name is None or set(members) != {nic for nic, on in leaves.items() if on == name} else name


def _paths(statement: Data) -> list[str]:
    """``src>dst:port`` of the paths among the symptoms."""
    named = (str(s["subject"]["id"]) for s in statement.get("symptoms") or () if s["subject"]["type"] == "path")
    return [f"{match[1]}:{match[2]}" for match in map(_PATH.match, named) if match]


def _renamed(statement: Data, names: Mapping[str, str]) -> Data:
    def named(text: str) -> str:
        renamed = _INFERRED.sub(lambda match: names.get(match[0], match[0]), text)
        return "--".join(sorted(renamed.split("--"))) if "--" in renamed else renamed

    subject = {key: named(str(text)) for key, text in statement["subject"].items()}
    suspects = [{**s, "id": named(str(s["id"]))} for s in statement.get("suspects") or ()]
    return {**statement, "subject": subject, "suspects": suspects}
