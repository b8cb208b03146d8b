"""Gray loss: paths that lose some of their probes while others pass, pooled over the elements they share.

Loss events (`runs`) of all paths over an element are pooled and tested against normal loss, one-sided, with an exact
(Chernoff) tail bound: a healthy element that loses up to `loss_share` of its probes independently is named with
probability at most `loss_false_alarm` per evaluation of one window. Before the test every bin (200 ms or 2 s) is cut
down to twice the median bin, for gray loss is scattered in time and a short outage is not.

Three windows look back side by side: 1.6 s for sharp loss, 6.4 s, and 64 s for faint loss. An element that loses the
share p is detected after about 21 / KL(p‖p0) probes over it, 70 at 10 % and 750 at 2 % (p0 = 0.2 %, false alarm 1e-9),
and a probe is known to be lost only after its time-out.

A row says only that a round trip failed, so the direction comes from which other paths cross each direction; where
those do not show it, both stay suspects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.recent import RecentFaults
from sdfstream.detect.runs import BINS, LossRuns
from sdfstream.numeric.binomial import log_tail_bound, wilson
from sdfstream.numeric.bins import RingBins
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LOOKS = ((0, 8), (0, BINS), (1, BINS))
"""Windows that are evaluated: (which ring of `LossRuns`, how many of its newest bins)."""
_LEAST_EVENTS = 4
_RECENT = 10
_ALIKE, _UNLIKE, _MOST_HARMED = 1.0, 2.5, 0.6


class LossDetector:
    """Judges loss events of all sessions."""

    def __init__(self, config: DetectConfig, runs: LossRuns, cabling: Cabling, recent: RecentFaults) -> None:
        self.config, self.runs, self.cabling, self.recent = config, runs, cabling, recent
        self.limit = float(np.log(config.loss_false_alarm))
        self.blamed: frozenset[str] = frozenset()

    def detections(self, now: Instant) -> list[Detection]:
        """Elements that lose probes now; what sessions lose over a recent fault is its aftermath."""
        now_ns, left_out = now.now_ns, now.left_out
        everyone = np.arange(self.runs.sessions.count)
        self.runs.wipe(np.flatnonzero(self.recent.touched(everyone, now_ns, surely=True)))
        detections: dict[Subject, Detection] = {}
        for ring in self.runs.windows:
            ring.advance(now_ns)
        for which, bins in _LOOKS:
            ring = self.runs.windows[which]
            if not ring.holds("events"):
                continue
            events = np.where(left_out, 0, ring.recent("events", bins))
            if int(events.sum()) < _LEAST_EVENTS:
                continue
            probes = ring.recent("probes", bins)
            used = np.flatnonzero((probes > 0) & ~left_out)
            if not self._worth_a_look(used, events[used], probes[used]):
                continue
            seen = Observations.of(used, "both", events[used].astype(float), probes[used].astype(float))
            for location in locate(self.cabling, seen, noise=self.config.loss_share, incumbents=self.blamed, most=8):
                detection = self._evaluate(location, ring, bins, used)
                if detection is not None:
                    detections.setdefault(detection.subject, detection)
        self.blamed = frozenset(subject.id for subject in detections)
        return list(detections.values())

    def _worth_a_look(self, used: Ints, events: Ints, probes: Ints) -> bool:
        """Quick look: does any path, or the whole, lose more than is normal? Spares the search in a quiet fabric."""
        if (log_tail_bound(events, probes, self.config.loss_share) <= self.limit).any():
            return True
        self.cabling.refresh(None)
        element = self.cabling.element[used].reshape(used.size, -1)
        there = element >= 0
        number = element[there]
        size = len(self.cabling.elements)
        k = np.bincount(number, np.broadcast_to(events[:, None], element.shape)[there], size)
        n = np.bincount(number, np.broadcast_to(probes[:, None], element.shape)[there], size)
        return bool((log_tail_bound(k, np.maximum(n, k), self.config.loss_share) <= self.limit).any())

    def _evaluate(self, location: Location, ring: RingBins, bins: int, used: Ints) -> Detection | None:
        """The detection, unless what was located is one burst, too little, or over."""
        slots = self._crossing(location, used)
        events, probes = (ring.ordered(field, slots)[-bins:] for field in ("events", "probes"))
        scattered = int(np.minimum(events, max(2.0, 2.0 * float(np.median(events)))).sum())
        tail = float(log_tail_bound(scattered, int(probes.sum()), self.config.loss_share))
        if scattered < _LEAST_EVENTS or tail > self.limit:
            return None
        first = _onset(events)
        since_ns = (ring.now_bin - bins + 1 + first) * ring.width_ns
        n_events, n_probes = int(events[first:].sum()), int(probes[first:].sum())
        if self._healed(slots, n_events / max(1, n_probes)):
            return None
        if location.subject.type in ("nic", "link"):
            unlike = _unlike(ring.recent("events", bins)[slots], ring.recent("probes", bins)[slots])
            if unlike > _UNLIKE:
                location = self._some_path(location, slots, ring.recent("events", bins))
            elif unlike > _ALIKE and location.subject.id not in self.blamed:
                return None  # not yet clear whether the element or something behind it loses
        return self._detection(location, slots[ring.recent("events", bins)[slots] > 0], since_ns, n_events, n_probes)

    def _detection(self, location: Location, lossy: Ints, since_ns: int, events: int, probes: int) -> Detection:
        share, low, high = _shares(events, probes)
        where = " ".join(location.directions)
        evidence = (
            Evidence("loss-share", share, "1", where, self.config.loss_share),
            Evidence("loss-share-low", low, "1", where),
            Evidence("loss-share-high", high, "1", where),
            Evidence("loss-events", float(events), "1", where),
            Evidence("probes", float(probes), "1", where),
        )
        paths = [str(self.cabling.sessions.path_id(s, "fwd")) for s in lossy[:MAX_SYMPTOMS].tolist()]
        return Detection(
            "loss",
            location.subject,
            since_ns,
            "gray-failure",
            location.probability,
            evidence,
            suspects=tuple(location.suspects),
            symptoms=tuple(symptom("loss", Subject("path", p), since_ns) for p in paths),
            confirm_ns=300 * NS_PER_MS,
            hold_ns=2 * NS_PER_S,
            detail=f"loses probes {where}" + ("" if location.direction_known else " (direction not told apart)"),
            directions=tuple(location.directions),
            direction_known=location.direction_known,
        )

    def _some_path(self, location: Location, slots: Ints, events: Ints) -> Location:
        """The paths that lose, reported under the worst of them: not the element loses but something behind it."""
        lossy = slots[events[slots] > 1]
        names = {str(self.cabling.sessions.path_id(s, "fwd")): int(events[s]) for s in lossy.tolist()}
        before = [name for name in names if name in self.blamed]
        worst = before[0] if before else max(names, key=lambda name: names[name])
        suspects = [(worst, 0.5), *((name, p / 2) for name, p in location.suspects)]
        return Location(
            Subject("path", worst), [worst], False, location.share, lossy, suspects, 0.5, ["both"] * lossy.size
        )

    def _crossing(self, location: Location, used: Ints) -> Ints:
        """Sessions that surely cross the blamed subject in a blamed direction."""
        if location.subject.type == "path":
            return np.unique(location.slots)
        wanted = self.cabling.numbers(location.directions)
        cabling = self.cabling
        sure = np.isin(cabling.element[used], wanted) & (cabling.weight[used] > 0.99)
        crossing = used[sure.any(axis=(1, 2))]
        return crossing if crossing.size else np.unique(location.slots)

    def _healed(self, slots: Ints, share: float) -> bool:
        """The last two seconds are clearly better than the window: the loss has ended."""
        fast = self.runs.windows[0]
        events, probes = (int(fast.ordered(f, slots)[-_RECENT:].sum()) for f in ("events", "probes"))
        _, high = wilson(events, probes, 3.0)
        return float(high) < 0.5 * share

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values (the counts are `runs`' own)."""
        return {"blamed": sorted(self.blamed)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.blamed = frozenset(state["blamed"])


def _unlike(events: Ints, probes: Ints) -> float:
    """How far paths are from losing alike: paths without loss beyond what one common share leaves, in sigmas.

    When most paths have lost something they are alike, whatever the share.
    """
    harmed = int((events > 0).sum())
    if harmed >= _MOST_HARMED * events.size:
        return 0.0
    spared = (1.0 - events.sum() / max(1, probes.sum())) ** probes
    sigma = float(np.sqrt((spared * (1.0 - spared)).sum()))
    return float((events.size - harmed - spared.sum()) / max(sigma, 0.5))


def _onset(per_bin: Ints) -> int:
    """First bin of the likeliest change point of a Poisson rate."""
    after = np.cumsum(per_bin[::-1])[::-1].astype(np.float64)
    left = np.arange(per_bin.size, 0, -1, dtype=np.float64)
    before, passed = after[0] - after, per_bin.size - left
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(after > 0, after * np.log(after / left), 0.0)
        gain += np.where(before > 0, before * np.log(before / np.maximum(passed, 1.0)), 0.0)
    return int(np.argmax(gain))


def _shares(events: int, probes: int) -> tuple[float, float, float]:
    """Loss share with 99.8 % bounds, from events per counted probe: with loss p a probe begins a run with p·(1 − p)."""
    low, high = wilson(events, max(1, probes), 3.09)
    ratios = (events / max(1, probes), float(low), float(high))
    share, low_share, high_share = (round(min(1.0, x / (1 - x)), 4) if x < 0.5 else 1.0 for x in ratios)
    return share, low_share, high_share
