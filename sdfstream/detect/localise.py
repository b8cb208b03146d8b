"""From sick and healthy paths to the part that is to blame: link, direction, NIC or switch, with rivals.

The maximum-likelihood search itself is `sdfstream.numeric.blame`; here paths become observations, parts become
subjects, and what the evidence cannot tell apart is said so. Every observation also crosses a part of its own, far
less likely than any cable, so that a fault that only one path sees (its hash bucket, its class) blames that path
and nothing that healthy paths cross.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.numeric.blame import Culprit, Trials, blame
from sdfstream.records.finding import Subject

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_OWN_PRIOR = float(np.log(1e-7))
_INCUMBENT = 2.0
"""Nats in favour of a part that is blamed already: near ties must not make a finding jump between subjects."""


@dataclass(frozen=True, slots=True)
class Observations:
    """Paths with trials: each row is a session seen in its forward, its reverse or both directions at once."""

    slots: Ints
    fwd: Bools
    rev: Bools
    failed: Floats
    tried: Floats

    @classmethod
    def join(cls, parts: Iterable[Observations]) -> Observations:
        """All rows, one after the other."""
        whole = list(parts)
        return cls(
            np.concatenate([o.slots for o in whole]),
            np.concatenate([o.fwd for o in whole]),
            np.concatenate([o.rev for o in whole]),
            np.concatenate([o.failed for o in whole]),
            np.concatenate([o.tried for o in whole]),
        )

    @classmethod
    def of(cls, slots: Ints, ways: str, failed: float | Floats, tried: float | Floats) -> Observations:
        """Rows of `slots`, all crossing `ways`: ``fwd``, ``rev`` or ``both``."""
        n = slots.size
        fwd, rev = np.full(n, ways != "rev"), np.full(n, ways != "fwd")
        return cls(slots, fwd, rev, np.broadcast_to(failed, n).astype(float), np.broadcast_to(tried, n).astype(float))


@dataclass(slots=True)
class Located:
    """One subject that explains some of the sick paths."""

    subject: Subject
    directions: list[str]
    """``a->b`` of the sick directions; both when both are, or when the evidence cannot tell which."""
    direction_known: bool
    share: float
    """Estimated share of trials it fails."""
    slots: Ints
    """Sessions it explains."""
    suspects: list[tuple[str, float]]
    """(id of a part, probability), most likely first."""
    probability: float
    """That the subject is right, given that one of the suspects is."""
    ways: list[str] = field(default_factory=list)
    """Way in which each of `slots` is sick: ``fwd``, ``rev`` or ``both``."""


def locate(
    cabling: Cabling,
    seen: Observations,
    *,
    noise: float,
    least_share: float = 0.0,
    incumbents: frozenset[str] = frozenset(),
    most: int = 16,
) -> list[Located]:
    """Subjects that together explain the failed trials in `seen`, the most telling first.

    Parameters
    ----------
    cabling : Cabling
        Brought up to date by this call.
    seen : Observations
        Sick *and* healthy paths; without the healthy ones everything upstream stays suspect.
    noise : float
        Share of trials that fails in a healthy fabric.
    least_share : float
        A sick part fails at least this share of the trials that cross it.
    incumbents : frozenset of str
        Subject ids blamed at the last call.
    most : int
        Most subjects to name.
    """
    cabling.refresh(None)
    seen = _relevant(cabling, seen)
    if not (seen.failed > 0).any():
        return []
    row, part, weight = cabling.entries(seen.slots, seen.fwd, seen.rev)
    shared, n = len(cabling.parts), seen.slots.size
    log_prior = np.concatenate([cabling.log_prior(), np.full(n, _OWN_PRIOR)])
    favour = np.zeros(shared + n)
    for p in np.unique(part).tolist() if incumbents else ():
        favour[p] = _INCUMBENT * (cabling.subject(p).id in incumbents)
    own = np.arange(n, dtype=np.int64)
    trials = Trials(
        seen.failed,
        seen.tried,
        np.concatenate([row, own]),
        np.concatenate([part, shared + own]),
        np.concatenate([weight, np.ones(n)]),
    )
    culprits = blame(trials, log_prior, noise=noise, least_share=least_share, favour=favour, most=most)
    return _merge_switches(cabling, _merge(cabling, seen, culprits, shared))


def _relevant(cabling: Cabling, seen: Observations) -> Observations:
    """Leave out healthy paths that share no part with a sick one: they cannot change the answer."""
    sick = seen.failed > 0
    _, part, _ = cabling.entries(seen.slots[sick], seen.fwd[sick], seen.rev[sick])
    touched = np.zeros(len(cabling.parts) + 1, np.bool_)
    touched[part] = True
    member = touched[cabling.part[seen.slots]] & (cabling.part[seen.slots] >= 0)
    keep = sick | (member[:, 0].any(axis=1) & seen.fwd) | (member[:, 1].any(axis=1) & seen.rev)
    return Observations(seen.slots[keep], seen.fwd[keep], seen.rev[keep], seen.failed[keep], seen.tried[keep])


def _way(seen: Observations, row: int) -> str:
    if seen.fwd[row] and seen.rev[row]:
        return "both"
    return "fwd" if seen.fwd[row] else "rev"


def _merge(cabling: Cabling, seen: Observations, culprits: list[Culprit], shared: int) -> list[Located]:
    """One `Located` per subject; the two directions of a cable or the two sides of a NIC come together."""
    found: dict[Subject, Located] = {}
    for culprit in culprits:
        by_subject: dict[Subject, float] = {}
        suspects: list[tuple[str, float]] = []
        for part, probability in culprit.rivals:
            subject, name = _named(cabling, seen, part, shared)
            by_subject[subject] = by_subject.get(subject, 0.0) + probability
            suspects.append((name, probability))
        likely = [s for s, p in by_subject.items() if p >= 0.4 * max(by_subject.values())]
        best = _named(cabling, seen, culprit.part, shared)[0]
        subject = next((s for s in likely if s in found), best if best in likely else likely[0])
        own = [name for part, name in _parts_of(cabling, seen, culprit, shared, subject)]
        rows = culprit.rows.tolist()
        if subject in found:
            old = found[subject]
            old.directions = list(dict.fromkeys(old.directions + own))
            old.slots = np.concatenate([old.slots, seen.slots[culprit.rows]])
            old.ways += [_way(seen, r) for r in rows]
            old.suspects = _even(old.suspects, suspects)
            continue
        found[subject] = Located(
            subject,
            own,
            len(own) == 1,
            culprit.share,
            seen.slots[culprit.rows],
            suspects,
            min(1.0, by_subject[subject]),
            [_way(seen, r) for r in rows],
        )
    return list(found.values())


def _named(cabling: Cabling, seen: Observations, part: int, shared: int) -> tuple[Subject, str]:
    if part < shared:
        return cabling.subject(part), cabling.direction(part)
    row = part - shared
    name = str(cabling.sessions.path_id(int(seen.slots[row]), "rev" if _way(seen, row) == "rev" else "fwd"))
    return Subject("path", name), name


def _parts_of(
    cabling: Cabling, seen: Observations, culprit: Culprit, shared: int, subject: Subject
) -> list[tuple[int, str]]:
    named = [(part, *_named(cabling, seen, part, shared)) for part, _ in culprit.rivals]
    return [(part, name) for part, its, name in named if its == subject]


def _even(a: list[tuple[str, float]], b: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Suspects of two culprits that are one subject: each list speaks of its own direction, so the larger value stays."""
    both = dict(a)
    for name, probability in b:
        both[name] = max(probability, both.get(name, 0.0))
    return sorted(both.items(), key=lambda s: (-s[1], s[0]))


def _merge_switches(cabling: Cabling, located: list[Located]) -> list[Located]:
    """Two or more sick cables that all end at one switch, and are at least half of its cables: the switch."""
    cables = [x for x in located if x.subject.type in ("link", "nic")]
    if len(cables) < 2:
        return located
    ends = [_ends(cabling, x.subject) for x in cables]
    for switch in sorted(set.intersection(*ends)):
        if 2 * len(cables) >= len(cabling.wiring.cables.get(switch, ())) > 0:
            whole = Located(
                Subject("switch", switch),
                list(dict.fromkeys(d for x in cables for d in x.directions)),
                all(x.direction_known for x in cables),
                max(x.share for x in cables),
                np.concatenate([x.slots for x in cables]),
                [(switch, 1.0)],
                min(x.probability for x in cables),
                [w for x in cables for w in x.ways],
            )
            return [whole] + [x for x in located if x not in cables]
    return located


def _ends(cabling: Cabling, subject: Subject) -> set[str]:
    """Switches that a cable ends at."""
    if subject.type == "nic":
        leaf = cabling.wiring.leaf.get(subject.id)
        return set() if leaf is None else {leaf}
    return {end for end in subject.id.split("--") if end in cabling.wiring.cables}
