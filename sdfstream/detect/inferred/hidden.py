"""Sick paths of unknown routes laid to what must lie on their way: a link of the switch that some of their NICs share,
or a switch beyond.

Of the paths that leave (or reach) the NICs of one switch an unknown share p crosses each of its links. If one of these
fails, k of the n paths that may cross it are sick, which has the likelihood p^k (1 − p)^(n − k), at most that of
p = k/n; sick paths that do not pass there need causes of their own. The same holds of a switch beyond and all paths
between groups. What is likeliest, prior included, is named when it is clear; what cannot be told apart stays with the
paths. Between two switches alone all paths cross a link of each, and nothing will ever tell: that is laid to what joins
them, with both as suspects.

Names of what is inferred begin with ``~``: ``~leaf(h00:r0)`` is the switch of the group whose first NIC is ``h00/r0``,
``~core`` is whatever joins the groups. Which link it is, of several alike, the paths tell that are listed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sdfstream.detect.inferred.some_flows import drops_some
from sdfstream.detect.problem import Observations
from sdfstream.detect.sessions import Sessions
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import Bools, Float64s, Int64s

CORE: Final = "~core"
MEMBERS: Final = "nics-on-switch"
"""Evidence: the NICs that share the switch at the near end of an inferred link."""
CABLE, _SWITCH, _OWN = float(np.log(1e-4)), float(np.log(1e-5)), float(np.log(1e-7))
"""Log odds of being faulty before anything is seen, as `Cabling` and `localise` have them."""
_LEAST: Final = 2
"""Sick paths, of which one alone tells nothing."""
_MOST: Final = 4
_CLEAR: Final = 0.7
_MOST_GROUPS: Final = 512


@dataclass(frozen=True, slots=True)
class HiddenElement:
    """Something between NICs that explains sick paths."""

    subject: Subject
    directions: list[str]
    direction_known: bool
    rows: Int64s
    """Sick paths that it explains."""
    suspects: list[tuple[str, float]]
    probability: float
    nics: tuple[str, ...]
    """That share the switch at its near end, or at one of the two between which it lies; none: it lies beyond all."""
    crossed: int = 0
    """Paths that may cross it in its directions, well or sick."""
    alive: int = 0
    """Living paths into (or out of) that switch; 0: it is sick in both directions."""
    drops_some: float = 0.0
    """Probability that it drops some flows rather than all (`some_flows`)."""


@dataclass(frozen=True, slots=True)
class _Guess:
    nics: Int64s
    """Numbers of the NICs that share the switch; none: the core."""
    direction: str
    """``out``, ``in``, ``both``."""
    crossed: Bools
    """(rows,) paths that may cross it."""
    prior: float


def leaf_name(nic: str) -> str:
    """Name of the switch of a group whose first NIC is `nic`."""
    return f"~leaf({nic.replace('/', ':')})"


def is_inferred(subject: Subject) -> bool:
    """Whether a subject is a place that no map names."""
    return CORE in subject.id


def evidence_of(nics: Sequence[str], of: Subject | None = None) -> tuple[Evidence, ...]:
    """The NICs that share the switch of an inferred link; nothing, of what is not one, or lies between two of them."""
    known = nics and (of is None or of.id != CORE)
    return (Evidence(MEMBERS, float(len(nics)), "NICs", " ".join(nics)),) if known else ()


def hidden_elements(sessions: Sessions, group: Int64s, seen: Observations, sick: Bools) -> list[HiddenElement]:
    """What explains the `sick` among the paths `seen`, the others of which are well.

    Parameters
    ----------
    sessions : Sessions
    group : (nics,) int64
        As `numeric.proximity.leaf_groups` gives them.
    seen : Observations
        Paths whose routes are not known.
    sick : (rows,) bool
        Those that nothing explains so far.
    """
    seen, sick, row = _directed(seen, sick)
    src, dst = (sessions.table[end][seen.slots] for end in ("src", "dst"))
    usable = (group[src] >= 0) & (group[dst] >= 0) & (group[src] != group[dst])
    if int((sick & usable).sum()) < _LEAST:
        return []
    guesses = _guesses(sessions, group, seen, sick & usable, usable)
    links, core = guesses[:-1], guesses[-1]
    chosen, total = _greedy(links, sick & usable, usable)
    if _score(core, sick & usable, usable) > total:
        chosen = [core]
    left, found = sick & usable, []
    for guess in chosen:
        element = _element(sessions, guess, guesses, left, usable)
        if element is not None:
            found.append(replace(element, rows=row[element.rows]))
            left = left & ~guess.crossed
    return found


def _directed(seen: Observations, sick: Bools) -> tuple[Observations, Bools, Int64s]:
    """What works both ways as a row for each direction; which rows are sick; number of the path that each is of."""
    round_trip = seen.fwd & seen.rev & ~sick
    row = np.concatenate([np.arange(sick.size), np.flatnonzero(round_trip)])
    back = np.arange(row.size) >= sick.size
    there = np.append(round_trip, np.zeros(int(round_trip.sum()), np.bool_))
    directed = Observations(
        seen.slots[row], seen.fwd[row] & ~back, seen.rev[row] & ~there, seen.failed[row], seen.tried[row],
        seen.then_ns[row],
    )  # fmt: skip
    return directed, sick[row] & ~back, row


def _guesses(sessions: Sessions, group: Int64s, seen: Observations, sick: Bools, usable: Bools) -> list[_Guess]:
    """Links of every group, or of several that may be one since nobody probes between them, at either end of a sick
    path; and the core, last.
    """
    src, dst = (sessions.table[end][seen.slots] for end in ("src", "dst"))
    ends = np.unique(np.concatenate([group[src[sick]], group[dst[sick]]]))[:_MOST_GROUPS]
    number = len(np.unique(group[group >= 0]))
    crossed: list[dict[str, Bools]] = []
    for one in ends.tolist():
        starts, stops = group[src] == one, group[dst] == one
        out = usable & ((seen.fwd & starts) | (seen.rev & stops)) & ~(starts & stops)
        into = usable & ((seen.fwd & stops) | (seen.rev & starts)) & ~(starts & stops)
        crossed.append({"both": out | into, "out": out, "in": into})
    dearer = float(np.log(max(2, number)))
    unions = _unions(crossed, sick, probed_between(sessions, group, ends), dearer)
    found = []
    for union in [*((i,) for i in range(ends.size)), *unions]:
        nics = np.flatnonzero(np.isin(group, ends[list(union)]))
        prior = CABLE - (len(union) - 1) * dearer
        for direction in ("both", "out", "in"):
            rows = np.logical_or.reduce([crossed[i][direction] for i in union])
            found.append(_Guess(nics, direction, rows, prior))
    return [*found, _Guess(np.empty(0, np.int64), "both", usable, _SWITCH)]


def probed_between(sessions: Sessions, group: Int64s, ends: Int64s) -> Bools:
    """(ends, ends) whether anybody probes between two groups, or they are one: then they share no switch."""
    src, dst = sessions.table["src"][: sessions.count], sessions.table["dst"][: sessions.count]
    number = np.full(group.size + 1, -1, np.int64)
    number[:-1] = np.where(np.isin(group, ends), np.searchsorted(ends, group), -1)
    a, b = number[src], number[dst]
    known = (src >= 0) & (a >= 0) & (b >= 0)
    result = np.eye(ends.size, dtype=np.bool_)
    result[a[known], b[known]] = result[b[known], a[known]] = True
    return result


def _unions(crossed: list[dict[str, Bools]], sick: Bools, probed: Bools, dearer: float) -> list[tuple[int, ...]]:
    """Groups that nobody probes between and whose sick paths one link explains best, grown from each group in turn.

    Paths of one are no paths of another, so that their numbers add up. Each further group costs `dearer`: it is so
    unlikely to share the switch.
    """
    found: dict[tuple[int, ...], None] = {}
    for direction in ("both", "out", "in"):
        k = np.array([int((sick & one[direction]).sum()) for one in crossed], np.float64)
        n = np.array([int(one[direction].sum()) for one in crossed], np.float64)
        for first in np.flatnonzero(k > 0).tolist():
            union, free = [first], ~probed[first] & (k > 0)
            while free.any():
                mine = np.array(union)
                now = fit(k[mine].sum(), n[mine].sum()) - _OWN * k[mine].sum()
                then = fit(k[mine].sum() + k, n[mine].sum() + n) - _OWN * (k[mine].sum() + k)
                gain = np.where(free, then - now - dearer, -np.inf)
                best = int(np.argmax(gain))
                if gain[best] <= 0:
                    break
                union.append(best)
                free &= ~probed[best]
            if len(union) > 1:
                found[tuple(sorted(union))] = None
    return list(found)


def fit(k: float | Float64s, n: float | Float64s) -> Float64s:
    """Log-likelihood that k of n paths are sick, at the share that makes it largest."""
    share = np.clip(k / np.maximum(n, 1.0), 1e-300, 1.0 - 1e-16)
    result: Float64s = k * np.log(share) + (n - k) * np.log1p(-share)
    return result


def _score(guess: _Guess, sick: Bools, usable: Bools) -> float:
    """Log-likelihood with the prior; a sick path that it does not explain has a cause of its own."""
    k, n = int((sick & guess.crossed).sum()), int((usable & guess.crossed).sum())
    return float(guess.prior + fit(k, n) + _OWN * int((sick & ~guess.crossed).sum()))


def _greedy(guesses: Sequence[_Guess], sick: Bools, usable: Bools) -> tuple[list[_Guess], float]:
    """The links that together explain the sick paths best, one after the other, and their joint score."""
    chosen: list[_Guess] = []
    left, total, priors = sick.copy(), _OWN * int(sick.sum()), 0.0
    while len(chosen) < _MOST and guesses and int(left.sum()) >= _LEAST:
        score = [_score(g, left, usable) for g in guesses]
        best = int(np.argmax(score))
        if priors + score[best] <= total:
            break
        rest = left & ~guesses[best].crossed
        priors += score[best] - _OWN * int(rest.sum())
        total, left = priors + _OWN * int(rest.sum()), rest
        chosen.append(guesses[best])
    return chosen, total


def _element(
    sessions: Sessions, guess: _Guess, rivals: Sequence[_Guess], sick: Bools, usable: Bools
) -> HiddenElement | None:
    """The place with its rivals; None where it is not clear, or where it explains too little."""
    rows = np.flatnonzero(sick & guess.crossed)
    if rows.size < _LEAST or _score(guess, sick, usable) <= _OWN * int(sick.sum()):
        return None
    mine = sick & guess.crossed  # what others explain is not held against a rival
    score = np.array([_score(g, mine, usable) for g in rivals])
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    by_subject: dict[Subject, float] = {}
    by_direction: dict[tuple[Subject, str], float] = {}
    for rival, p in zip(rivals, weight.tolist(), strict=True):
        subject = _subject(sessions, rival)
        by_subject[subject] = by_subject.get(subject, 0.0) + p
        by_direction[subject, rival.direction] = by_direction.get((subject, rival.direction), 0.0) + p
    subject = _subject(sessions, guess)
    twins = {_subject(sessions, g) for g in rivals if np.array_equal(g.crossed & usable, guess.crossed & usable)}
    between = by_subject[subject] < _CLEAR <= sum(by_subject[twin] for twin in twins)
    if by_subject[subject] < _CLEAR and not between:
        return None
    suspects: dict[str, float] = {}
    for (of, direction), p in by_direction.items():
        for name in _directions(of, direction):
            suspects[name] = suspects.get(name, 0.0) + p
    ordered = sorted(
        ((n, min(1.0, p)) for n, p in suspects.items() if p >= 0.01), key=lambda s: (-round(s[1], 6), s[0])
    )
    names = tuple(sessions.nics.list[nic] for nic in guess.nics.tolist())
    if between:
        ends = [name for name, _ in ordered if name != CORE]
        return HiddenElement(Subject("switch", CORE), ends, False, rows, ordered, by_subject[subject], names)
    direction = max(("both", "out", "in"), key=lambda w: by_direction.get((subject, w), 0.0))
    known = direction != "both" and by_direction[subject, direction] >= _CLEAR * by_subject[subject]
    directions = _directions(subject, direction if known else "both")
    crossed = int((usable & guess.crossed).sum())
    element = HiddenElement(
        subject, directions, known or subject.type == "switch", rows, ordered, by_subject[subject], names, crossed
    )
    if guess.direction == "both" or not names:
        return element
    return replace(element, alive=crossed - rows.size, drops_some=drops_some(rows.size, crossed, len(names)))


def _subject(sessions: Sessions, guess: _Guess) -> Subject:
    if not guess.nics.size:
        return Subject("switch", CORE)
    first = min(sessions.nics.list[nic] for nic in guess.nics.tolist())
    return Subject("link", link_id(leaf_name(first), CORE))


def _directions(subject: Subject, direction: str) -> list[str]:
    if subject.type == "switch":
        return [subject.id]
    leaf = next(end for end in subject.id.split("--") if end != CORE)
    return {"out": [f"{leaf}->{CORE}"], "in": [f"{CORE}->{leaf}"]}.get(
        direction, [f"{leaf}->{CORE}", f"{CORE}->{leaf}"]
    )
