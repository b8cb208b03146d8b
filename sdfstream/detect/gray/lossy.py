"""An element that has been found to lose probes: since when, what share, and whether it still does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import KnownLosses, LossCounts
from sdfstream.detect.localise import Location
from sdfstream.detect.recent import revived
from sdfstream.detect.runs import BINS
from sdfstream.numeric.binomial import wilson
from sdfstream.numeric.bins import RingBins

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_HEALED = 9.0
"""Nats by which what passed lately must speak for normal loss against the element's share."""
_MOST_HARMED = 0.6


@dataclass(slots=True, eq=False)
class LossySubject:
    """What stands, with the evidence of the window since it began (64 s at most)."""

    location: Location
    since_ns: int
    """When it began, bus time, to a bin."""
    events: int = 0
    """Loss events of the paths that surely cross it."""
    probes: int = 0
    """Known probes of these paths."""
    share: float = 0.0
    """Events for each probe that crosses it, beside what else costs the same paths."""
    others: float = 0.0
    """Events for each probe that all else brings."""
    slots: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """These paths' sessions."""
    harmed: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Those of them that lost something."""

    def window(self, rings: tuple[RingBins, ...]) -> tuple[int, int]:
        """(ring, newest bins of it) that look back to the beginning."""
        for which, ring in enumerate(rings):
            bins = int(ring.now_bin - self.since_ns // ring.width_ns) + 1
            if bins <= BINS:
                return which, max(1, bins)
        return len(rings) - 1, BINS

    def heed(self, found: Location, *, whole: bool) -> None:
        """Take the newest word on directions and suspects, unless it is less clear, or by less evidence, than the last.

        A short window may have met one of two lossy directions only: it may add directions, the whole one drop some.
        """
        clear = found.direction_known >= self.location.direction_known
        if clear and (whole or set(found.directions) >= set(self.location.directions)):
            self.location = found

    def measure(self, counts: LossCounts, used: Ints, exposure: Floats, share: float, others: Floats) -> None:
        """Take the evidence of a window: exposure, others' events for each probe by session of `used`; −1: no share."""
        sure = exposure > 0.99
        slots = used[sure] if sure.any() else np.unique(self.location.slots)
        self.slots, self.harmed = slots, slots[counts.events[slots] > 0]
        self.events, self.probes = int(counts.events[slots].sum()), int(counts.probes[slots].sum())
        ratio = self.events / max(1, self.probes)
        self.share = ratio if share < 0 else share
        self.others = float((counts.probes[used] * others)[sure].sum() / max(1, self.probes)) if sure.any() else 0.0

    def shares(self) -> tuple[float, float, float]:
        """Loss share with 99.8 % bounds: with loss p a counted probe begins a run with p/(1 + p)."""
        low, high = wilson(self.events, max(1, self.probes), 3.09)
        ratio = self.events / max(1, self.probes)
        scale = self.share / ratio if ratio > 0 else 1.0
        least = 0.5 / max(1, self.probes)
        values = (max(x * scale, least) for x in (ratio, float(low), float(high)))
        share, low_share, high_share = (round(min(1.0, x / (1 - x)), 6) if x < 0.5 else 1.0 for x in values)
        return share, low_share, high_share

    def healed(self, seen: KnownLosses) -> bool:
        """Whether the likeliest end of the loss lies far enough back: a cumulative sum of log-likelihood ratios.

        Since a moment t, n probes brought k events: normal loss λ0 instead of λ0 + x is worth n·x − k·ln(1 + x/λ0).
        """
        base = max(self.others, 1e-6)
        for ring in range(len(seen.rings)):
            bins = int(seen.rings[ring].now_bin - self.since_ns // seen.rings[ring].width_ns) + 1
            course = seen.over(self.slots, ring, min(BINS, max(1, bins)))
            each = course.probes * self.share - course.events * np.log1p(self.share / base)
            if float(np.cumsum(each[::-1]).max(initial=0.0)) > _HEALED:
                return True
        return False

    @classmethod
    def revived(cls, saved: dict[str, Any]) -> LossySubject:
        """From the plain values that a snapshot holds."""
        arrays = {name: np.asarray(saved[name], np.int64) for name in ("slots", "harmed")}
        return cls(**{**saved, **arrays, "location": revived(saved["location"])})


def exposure(cabling: Cabling, location: Location, sessions: int) -> Floats:
    """(sessions,) how often a round trip crosses the blamed directions of a subject, as far as routes are known."""
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


def alike(events: Ints, probes: Ints, others: Floats) -> float:
    """How far paths are from losing alike: paths without loss beyond what one common share leaves, in sigmas.

    When most paths have lost something they are alike, whatever the share.
    """
    harmed = int((events > 0).sum())
    if harmed >= _MOST_HARMED * events.size:
        return 0.0
    share = max(0.0, float(events.sum() - (probes * others).sum()) / max(1, probes.sum()))
    spared = np.clip(1.0 - share - others, 1e-9, 1.0) ** probes
    sigma = float(np.sqrt((spared * (1.0 - spared)).sum()))
    return float((events.size - harmed - spared.sum()) / max(sigma, 0.5))
