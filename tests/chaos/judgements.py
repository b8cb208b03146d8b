"""What the stages said: findings against the faults that were built in, commands against one another."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sdfstream.records.units import NS_PER_S
from tests.chaos.story import Known

LATE_S = 20.0
"""A finding may be said so long after its fault ended: agents and stages were being killed meanwhile."""


@dataclass(frozen=True, slots=True)
class Said:
    """An event on the topic of findings or of commands."""

    place: str
    """``topic[partition]@offset``."""
    event_id: str
    at_s: float
    """Bus time of what it says, since the story's beginning."""
    data: Mapping[str, Any]


@dataclass(slots=True)
class Verdict:
    """What was expected and what was seen; sentences where the two differ."""

    expected: int = 0
    seen: int = 0
    doubled: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def findings(known: Sequence[Known], said: Sequence[Said]) -> Verdict:
    """Every fault was found, and is over; nothing was said twice; each opens and ends once, or is told once."""
    verdict = Verdict(expected=len(known))
    _twice(verdict, said, lambda d: (d["id"], d["status"], d["seen_at_ns"]), "finding")
    found = _episodes(verdict, said)
    _overlaps(verdict, found)
    for fault in known:
        _judge(verdict, fault, found)
    return verdict


def _episodes(verdict: Verdict, said: Sequence[Said]) -> list[list[Said]]:
    """What was said of each finding, from its opening to its end; one that comes back begins again."""
    found: list[list[Said]] = []
    lives: dict[str, list[Said]] = {}
    for one in sorted(said, key=lambda s: s.data["seen_at_ns"]):
        id_, status = one.data["id"], one.data["status"]
        life = lives.get(id_, [])
        over = not life or life[-1].data["status"] == "resolved"
        passed = status == "resolved" and not life  # a fault that was over before it could be told opens resolved
        if over != (status == "open" or passed):
            before = life[-1].data["status"] if life else "nothing"
            verdict.remarks.append(f"finding {id_} of {_subject(one)}: {status} after {before} at {one.place}")
        if over:
            life = lives[id_] = []
            found.append(life)
        life.append(one)
    return found


def _subject(one: Said) -> str:
    return f"{one.data['kind']} {one.data['subject']['id']}"


def _judge(verdict: Verdict, fault: Known, lives: Sequence[list[Said]]) -> None:
    """Whether one fault has its finding."""
    matching = [life for life in lives if _speaks_of(life, fault)]
    entry: dict[str, Any] = {"fault": fault.name, "target": fault.target, "at_s": round(fault.at_s, 1)}
    if not matching:
        near = sorted({_subject(one) for life in lives for one in life if _in_time(one, fault)})
        verdict.remarks.append(
            f"no finding {' or '.join(fault.kinds)} of {fault.target}, broken {fault.at_s:.0f}..{fault.until_s:.0f} s; "
            f"said meanwhile: {', '.join(near) or 'nothing'}"
        )
        verdict.faults.append({**entry, "seen": False})
        return
    verdict.seen += 1
    ended = any(life[-1].data["status"] == "resolved" for life in matching)
    if not ended:
        verdict.remarks.append(f"the finding of {fault.target} ({fault.name}) was never resolved")
    first = min(life[0].at_s for life in matching)
    verdict.faults.append({**entry, "seen": True, "after_s": round(first - fault.at_s, 2), "resolved": ended})


def _in_time(one: Said, fault: Known) -> bool:
    return fault.at_s <= one.at_s <= fault.until_s + LATE_S


def _speaks_of(life: Sequence[Said], fault: Known) -> bool:
    """A finding of the right kind that opened in time and names the target at some point of its life."""
    if life[0].data["kind"] not in fault.kinds or not _in_time(life[0], fault):
        return False
    return any(fault.target in named for one in life for named in (_names(one),))


def _names(one: Said) -> set[str]:
    """Elements that a finding names: its subject, its suspects, and the cables of their directions."""
    said = [one.data["subject"]["id"], *(s["id"] for s in one.data["suspects"])]
    named = set(said)
    for suspect in said:
        a, arrow, b = suspect.partition("->")
        if arrow:
            named.add(next((end for end in (a, b) if "/" in end), "--".join(sorted((a, b)))))
    return named


def _overlaps(verdict: Verdict, lives: Sequence[list[Said]]) -> None:
    """Two findings of one kind about one subject are never open at once: the second is the first said again."""
    by_subject: dict[str, list[list[Said]]] = defaultdict(list)
    for life in lives:
        by_subject[_subject(life[0])].append(life)
    for subject, several in by_subject.items():
        several.sort(key=lambda life: life[0].data["seen_at_ns"])
        for before, after in pairwise(several):
            open_until = before[-1].data["seen_at_ns"] if before[-1].data["status"] == "resolved" else 1 << 63
            if after[0].data["seen_at_ns"] < open_until:
                verdict.doubled += 1
                ids = f"{before[0].data['id']} and {after[0].data['id']}"
                verdict.remarks.append(f"{subject} was open twice at once: {ids}, the second at {after[0].place}")


def commands(said: Sequence[Said]) -> Verdict:
    """No command twice or with two contents, no queue pair under two commands for one thing at once."""
    verdict = Verdict(seen=len(said))
    _twice(verdict, said, lambda d: (d["id"], d["epoch"], d["issued_at_ns"]), "command")
    lives: dict[tuple[str, str, str], list[Said]] = defaultdict(list)
    for one in sorted(said, key=lambda s: s.data["issued_at_ns"]):
        data = one.data
        lives[data["target"]["id"], data["action"], str(data["expected"])].append(one)
    for (target, action, _), life in lives.items():
        for before, after in pairwise(life):
            if before.data["id"] != after.data["id"] and after.data["issued_at_ns"] < before.data["expires_at_ns"]:
                verdict.doubled += 1
                left = (before.data["expires_at_ns"] - after.data["issued_at_ns"]) / NS_PER_S
                verdict.remarks.append(
                    f"{action} of {target} was commanded anew ({after.data['id']} at {after.place}) "
                    f"with {left:.1f} s left of {before.data['id']}"
                )
    return verdict


def _twice(verdict: Verdict, said: Sequence[Said], what: Any, name: str) -> None:
    """Count events that say the same thing again, by their own number or by what they say."""
    places: dict[Any, list[Said]] = defaultdict(list)
    for one in said:
        places[what(one.data)].append(one)
    again = {key: several for key, several in places.items() if len(several) > 1}
    ids = Counter(one.event_id for one in said)
    for key, several in again.items():
        verdict.doubled += len(several) - 1
        different = len({repr(sorted(one.data.items())) for one in several}) > 1
        how = "twice with different content" if different else "twice"
        verdict.remarks.append(f"{name} {key} was said {how}: {', '.join(one.place for one in several)}")
    told = {one.event_id for several in again.values() for one in several}
    for event_id, n in ids.items():
        if n > 1 and event_id not in told:
            verdict.doubled += n - 1
            verdict.remarks.append(f"event {event_id} of {name}s is there {n} times with different content")
