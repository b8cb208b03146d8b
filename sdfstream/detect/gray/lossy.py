"""An element that has been found to lose probes: since when, what share, and whether it still does.

What is not seen is not healed: while the agents of most of its paths are late, an element stands as it was last seen,
and what it loses is counted anew from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import Course, KnownLosses, LossCounts
from sdfstream.detect.gray.spines import between_leaves, is_one_of_spines
from sdfstream.detect.localise import Location
from sdfstream.detect.recent import revived
from sdfstream.detect.runs import BINS
from sdfstream.numeric.binomial import log_tail_bound, wilson
from sdfstream.numeric.bins import RingBins
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_HEALED = 10.0
"""Nats by which what passed lately must speak for normal loss against the element's share."""
_NORMAL_AGAIN = float(np.log(1e-3))
"""What passed since an element healed must not be less likely than this (log) in normal loss."""
_LUCK = -10.0
"""Nats: so unlikely a run of events is met now and then by who looks every 0.2 s."""
_LEAST_EVENTS, _RECENT_EVENTS = 4, 16
_REMEMBERED_NS = 64 * NS_PER_S
"""So long an element stands of which nothing clear was seen since its agents were late: as far as the windows reach."""
_FAINTEST, _STEPS = 1e-6, 24
"""Paths are told apart by what others cost them in powers of two of the least."""
_MOST_HARMED = 0.6
_LIKELY = float(np.log(20.0))
ALIKE, UNLIKE = 1.0, 2.5
"""Paths that are less unlike, in sigmas, are of one element; those more unlike are not."""
_BEHIND = 3.5
"""What stands is dropped when they are so much unlike: who looks ten times a second meets `UNLIKE` by chance."""
_SURE = 0.9
"""A direction at fault stays named while newer evidence holds it to be so likely."""


@dataclass(slots=True, eq=False)
class LossySubject:
    """What stands, with the evidence of the window since it began (64 s at most)."""

    location: Location
    since_ns: int
    """When it began, bus time, to a bin."""
    resumed_ns: int = 0
    """Since when its losses are counted: what was counted before was wiped with its late agents'. 0: since it began."""
    queued_ns: int = 0
    """When a queue that drops last stood on its way, bus time; 0: never."""
    events: int = 0
    """Loss events of the paths that surely cross it."""
    probes: int = 0
    """Known probes of these paths."""
    share: float = 0.0
    """Events for each probe that crosses it, beside what else costs the same paths."""
    others: float = 0.0
    """Events for each probe that all else brings."""
    unlike: float = 0.0
    """How far its paths are from losing alike, in sigmas (`unlikeness`)."""
    slots: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """These paths' sessions: of all that surely cross it those that show it best (`clearest`)."""
    harmed: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Of all that surely cross it, those that lost something."""
    evenly: bool = False
    """It was found by what all its paths lost one probe after the other (`going_on`)."""
    instead_of: tuple[tuple[str, str], ...] = ()
    """Type and id of subjects that its losses were laid to before (`explained_away`)."""
    dead: Location | None = None
    """The one uplink, or spine, of it that passes nothing (`dead_uplink`); None: nobody knows which."""

    @classmethod
    def lost_evenly(
        cls, location: Location, since_ns: int, slots: Ints, counts: LossCounts, a: Floats, found: tuple[int, int]
    ) -> LossySubject:
        """What these sessions lost together, `found` events of so many probes; `a`: `exposure`."""
        events, probes = found
        share = events / probes / max(1.0, float(a[slots].mean()))
        harmed = slots[counts.events[slots] > 0]
        return cls(location, since_ns, 0, 0, events, probes, share, slots=slots, harmed=harmed, evenly=True)

    def window(self, rings: tuple[RingBins, ...]) -> tuple[int, int]:
        """(ring, newest bins of it) that look back to the beginning."""
        for which, ring in enumerate(rings):
            bins = self.bins_of(ring)
            if bins <= BINS:
                return which, max(1, bins)
        return len(rings) - 1, BINS

    def counts(self, seen: KnownLosses) -> LossCounts:
        """What is known since the beginning; of what was found at once, without the time that is known in part."""
        ring, bins = self.window(seen.rings)
        return seen.closed(bins) if self.evenly and ring == 0 else seen.newest(ring, bins)

    def bins_of(self, ring: RingBins) -> int:
        """How many of a ring's newest bins look back to the beginning."""
        return int(ring.now_bin - max(self.since_ns, self.resumed_ns) // ring.width_ns) + 1

    def heed(self, found: Location, *, whole: bool) -> None:
        """Take the newest word on directions and suspects, unless it is less clear, or by less evidence, than the last.

        A short window may have met one of two lossy directions only: it may add directions, the whole one drop some.
        And few losses may all have met paths that come back over the other direction: what a short window was sure of
        is in doubt again once the whole one is not.
        """
        clear = found.direction_known >= self.location.direction_known or (whole and self._doubted(found))
        if clear and (whole or set(found.directions) >= set(self.location.directions)):
            self.location = found

    def _doubted(self, found: Location) -> bool:
        """Whether the direction of a cable that was held to be known is not so likely by newer evidence."""
        likely = sum(p for name, p in found.suspects if name in self.location.directions)
        return self.location.subject.type in ("link", "nic") and likely < _SURE

    def measure(self, counts: LossCounts, used: Ints, exposure: Floats, share: float, others: Floats) -> None:
        """Take the evidence of a window: exposure, others' events for each probe by session of `used`; −1: no share."""
        sure = exposure > 0.99
        slots = used[sure] if sure.any() else np.unique(self.location.slots)
        if self.resumed_ns and min(counts.events[slots].sum(), self.share * counts.probes[slots].sum()) < _LEAST_EVENTS:
            return  # too little since then to say anything new
        self.harmed = slots[counts.events[slots] > 0]
        costs = others[sure] if sure.any() else np.zeros(slots.size)
        shown = clearest(counts.events[slots], counts.probes[slots], costs)
        self.slots, costs = slots[shown], costs[shown]
        slots = self.slots
        self.events, self.probes = int(counts.events[slots].sum()), int(counts.probes[slots].sum())
        ratio = self.events / max(1, self.probes)
        self.share = ratio if share < 0 else share
        self.others = float((counts.probes[slots] * costs).sum() / max(1, self.probes))
        each = np.full(slots.size, self.others)
        nic = self.location.subject.type == "nic"
        self.unlike = unlikeness(counts.events[slots], counts.probes[slots], each, in_whole=nic)
        if self.location.beside:
            self.harmed = self._likely(counts, self.harmed)

    def _likely(self, counts: LossCounts, slots: Ints) -> Ints:
        """Of sessions that lost something those that most likely cross an inferred link; all, where none is so likely.

        Which do is known by their losses alone, and one loss may be chance's: k of n lost in normal loss λ0 or in
        λ0 + x have the likelihood ratio (1 + x/λ0)^k · exp(−n·x).
        """
        base, events, probes = max(self.others, 1e-6), counts.events[slots], counts.probes[slots]
        found = slots[events * np.log1p(self.share / base) - probes * self.share > _LIKELY]
        return found if found.size else slots

    def shares(self) -> tuple[float, float, float]:
        """Loss share with 99.8 % bounds: with loss p a counted probe begins a run with p/(1 + p)."""
        low, high = wilson(self.events, max(1, self.probes), 3.09)
        ratio = self.events / max(1, self.probes)
        scale = self.share / ratio if ratio > 0 else 1.0
        least = 0.5 / max(1, self.probes)
        values = (max(x * scale, least) for x in (ratio, float(low), float(high)))
        share, low_share, high_share = (round(min(1.0, x / (1 - x)), 6) if x < 0.5 else 1.0 for x in values)
        return share, low_share, high_share

    def shows(self, now_ns: int, limit: float) -> bool:
        """Whether it still shows more than what all else brings: by its evidence, or for want of newer one.

        All paths of a NIC cross it: where they prove unlike, what loses is behind it.
        """
        if self.location.subject.type == "nic" and self.unlike > _BEHIND:
            return False
        if self.resumed_ns:
            return now_ns - self.resumed_ns < _REMEMBERED_NS
        return self.events > 0 and float(log_tail_bound(self.events, self.probes, min(self.others, 0.999))) <= limit

    def healed(self, seen: KnownLosses) -> bool:
        """Whether the likeliest end of the loss lies far enough back: a cumulative sum of log-likelihood ratios.

        Since a moment t, n probes brought k events: normal loss λ0 instead of λ0 + x is worth n·x − k·ln(1 + x/λ0).
        The share x is that of the last events before t, one standard deviation below its estimate: what passed since
        must not thin it, nor what was lost long before make it more. Nor must chance: where the last events are no more
        than a run of luck would make of the share of all before t, it is no more than that. Where too few are left to
        tell it, it is the share that was measured last.
        """
        for ring in range(len(seen.rings)):
            course = seen.over(self.slots, ring, min(BINS, max(1, self.bins_of(seen.rings[ring]))))
            if _ended(course, self.share, max(self.others, 1e-6), self.events, self.probes):
                return True
        return False

    def forget(self, slots: Ints) -> bool:
        """Leave out sessions whose numbers are free for others now; whether any of its own is left."""
        self.slots, self.harmed = (remaining[~np.isin(remaining, slots)] for remaining in (self.slots, self.harmed))
        self.location = _without(self.location, slots)
        if not self.location.slots.size:
            both = ["both"] * self.slots.size
            self.location = replace(self.location, slots=self.slots, path_directions=both)
        if self.dead is not None:
            self.dead = _without(self.dead, slots)
        return bool(self.location.slots.size)

    @classmethod
    def revived(cls, saved: dict[str, Any]) -> LossySubject:
        """From the plain values that a snapshot holds."""
        arrays = {name: np.asarray(saved[name], np.int64) for name in ("slots", "harmed")}
        dead = saved.get("dead")  # a release before had none
        saved["instead_of"] = tuple((t, i) for t, i in saved.get("instead_of", ()))
        located = {"location": revived(saved["location"]), "dead": dead and revived(dead)}
        return cls(**{**saved, **arrays, **located})


def _without(location: Location, slots: Ints) -> Location:
    remaining = ~np.isin(location.slots, slots)
    directions = [name for name, stays in zip(location.path_directions, remaining.tolist(), strict=False) if stays]
    return replace(location, slots=location.slots[remaining], path_directions=directions)


def _ended(course: Course, share: float, base: float, events: int, probes: int) -> bool:
    """Whether a share has gone back to `base` at some moment of the course.

    It was `share` while `events` of `probes` were lost, since it began.
    """
    k, n = (np.cumsum(x[::-1]).astype(np.float64) for x in (course.events, course.probes))
    if not k.size:
        return False
    if k[-1] < _LEAST_EVENTS:
        return float(n[-1] * share - k[-1] * np.log1p(share / base)) > _HEALED
    back = np.minimum(np.searchsorted(k, k + _RECENT_EVENTS), k.size - 1)
    before, sent = k[back] - k, n[back] - n
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(before >= _LEAST_EVENTS, (before - np.sqrt(before)) / sent, 0.0)
    ever = np.clip(np.maximum(events - k, before) / np.maximum(np.maximum(probes - n, sent), 1.0), 1e-9, 0.999)
    least = np.where(log_tail_bound(before, np.maximum(sent, before), ever) > _LUCK, np.minimum(least, ever), least)
    x = least * (share * probes / events if events > 0 else 1.0)
    gain = n * x - k * np.log1p(x / base)
    over = gain > _HEALED
    return bool((log_tail_bound(k[over], n[over], base) > _NORMAL_AGAIN).any())


def exposure(cabling: Cabling, location: Location, sessions: int) -> Floats:
    """(sessions,) how often a round trip crosses the blamed directions of a subject, as far as routes are known."""
    if is_one_of_spines(cabling.topology, location.subject):
        return between_leaves(cabling, sessions).astype(np.float64)
    result: Floats = np.zeros(sessions)
    if location.subject.type == "path":
        result[np.unique(location.slots)] = 1.0
        return result
    wanted = cabling.numbers(location.directions)
    element, weight = cabling.element[:sessions], cabling.weight[:sessions]
    result = np.where(np.isin(element, wanted), weight, 0.0).sum(axis=(1, 2))
    if not (result > 0.99).any():
        result[np.unique(location.slots)] = 1.0
    return result


def clearest(events: Ints, probes: Ints, others: Floats) -> Ints:
    """Which of an element's paths show most clearly that it loses: all, or those that others cost little.

    `others`, (paths,): events for each probe that all else brings. Where worse elements share some of its paths, chance
    makes more or fewer of their losses than it loses itself.
    """
    order = np.argsort(others, kind="stable")
    k, n = np.cumsum(events[order]), np.cumsum(probes[order])
    expected = np.cumsum(probes[order] * others[order])
    steps = np.maximum(others[order[:1]], _FAINTEST) * 2.0 ** np.arange(1, _STEPS)
    ends = np.unique(np.append(np.searchsorted(others[order], steps, side="right"), order.size))
    last = ends[(ends > 0) & (n[ends - 1] > 0)] - 1
    if not last.size:
        return order
    tail = log_tail_bound(k[last], n[last], np.clip(expected[last] / n[last], 1e-9, 0.999))
    return order[: int(last[np.argmin(tail)]) + 1]


def unlikeness(events: Ints, probes: Ints, others: Floats, *, in_whole: bool) -> float:
    """How far paths are from losing alike, in sigmas: an element treats all paths over it alike.

    Counted are paths without loss beyond what one common share leaves. Where all of them cross the element `in_whole`,
    there and back, as they do a NIC, how much their losses differ beyond chance counts by half, if it is more: few
    losses differ by a few sigmas now and then. (A link often loses in one direction, which some of its paths do not
    cross.) When most paths have lost something they are alike, whatever the share.
    """
    harmed = int((events > 0).sum())
    if harmed >= _MOST_HARMED * events.size:
        return 0.0
    share = max(0.0, float(events.sum() - (probes * others).sum()) / max(1, probes.sum()))
    each = np.clip(share + others, 1e-9, 1.0 - 1e-9)
    spared = (1.0 - each) ** probes
    sigma = float(np.sqrt((spared * (1.0 - spared)).sum()))
    beyond = (events.size - harmed - spared.sum()) / max(sigma, 0.5)
    if not in_whole:
        return float(beyond)
    expected, free = probes * each, max(1, events.size - 1)
    squares = float(((events - expected) ** 2 / np.maximum(expected * (1.0 - each), 1e-9))[probes > 0].sum())
    return max(float(beyond), (squares - free) / float(np.sqrt(2.0 * free)) / 2.0)
