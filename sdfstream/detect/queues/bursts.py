"""Queues that are gone before they count as standing: told once they are over, as information, resolved from the start.

An incast of 200 ms fills a port every half minute; counters that are scraped every 30 s do not show it, and each path
sees it in two windows, which alone prove nothing (`delays`). But all paths over the port see it at the same instant: so
many slow paths that one element explains, and that no other path over it contradicts, are a queue.

Packets that come together fill every port for some milliseconds, and a host's processor stalls for some tens: of that
a path sees one window. Told is what most of the paths saw in two or more, and what is no finding of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.congestion import observe
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.recent import revived
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S, TICK_NS, Bools, Int64s

_LEAST_PATHS: Final = 6
"""So many paths must be slow at one instant: a window of one probe is high by chance now and then."""
_STRONG: Final = 2.0
"""Each by so many times its threshold."""
_CLEAR: Final = 0.9
_MOST: Final = 0.9
"""So many of its paths must have seen a burst in two windows or more."""
_INSTANT_NS: Final = 250 * NS_PER_MS
"""Windows are of one instant when they came within this time: two windows, and what their agents are apart."""
_OVER_NS: Final = NS_PER_S
"""Not seen for so long it is over, and no finding that is pending will tell it."""
_LONGEST_NS: Final = 2 * NS_PER_S
"""What was slow for longer is no burst; had it been clear, it would have become a finding."""
_DRAINS_NS: Final = 10 * NS_PER_S
"""What paths over a queue see so shortly after its finding was open is its aftermath."""
_AGAIN_NS: Final = 20 * NS_PER_S
"""One subject's bursts are told at most this often, with their number."""


@dataclass(slots=True)
class Burst:
    """Slow paths that one element explained at one instant, or at several that follow each other."""

    location: Location
    since_ns: int
    """First slow window, bus time."""
    last_ns: int
    """When the last of its slow windows came, bus time."""
    excess_ns: float
    """Median over its paths, at the instant at which it was the largest."""
    once: set[int]
    """Directed paths that saw it."""
    twice: set[int]
    """Those of them that saw it in two windows that follow each other."""


class BurstDetector:
    """Bursts that are over at this instant; asked after `congestion`, whose findings come first."""

    def __init__(self, delays: DelayBaselines, cabling: Cabling) -> None:
        self.delays, self.cabling = delays, cabling
        self._bursts: dict[Subject, Burst] = {}
        self._standing: dict[str, int] = {}
        """Directions of reported queues, and when each was last open, bus time."""
        self._reported: dict[Subject, tuple[int, int]] = {}
        """When a subject's bursts were told last, bus time, and how many were over since."""

    def detections(self, now: Instant) -> list[Detection]:
        """One for each burst that is over, unless its subject's were told a moment ago."""
        self._heed_findings(now)
        fresh = self.delays.fresh(now.reached_ns, _INSTANT_NS) & ~np.repeat(now.left_out, 2)
        slow = np.flatnonzero(self.delays.hot(_STRONG) & fresh)
        if slow.size >= _LEAST_PATHS:
            slow = slow[~self._over_standing(slow)]
        if slow.size >= _LEAST_PATHS:
            self._note(slow, now)
        over = [s for s, burst in self._bursts.items() if now.now_ns - burst.last_ns > _OVER_NS]
        ended = [(subject, self._bursts.pop(subject)) for subject in over]
        return [d for subject, burst in ended if (d := self._report(subject, burst, now.now_ns)) is not None]

    def _heed_findings(self, now: Instant) -> None:
        """Leave to findings what is theirs."""
        for queue in now.findings.published("congestion"):
            self._standing |= dict.fromkeys(queue.directions, now.now_ns)
            for subject in [s for s, b in self._bursts.items() if set(b.location.directions) <= set(queue.directions)]:
                del self._bursts[subject]
            self._bursts.pop(queue.subject, None)
        self._standing = {d: ns for d, ns in self._standing.items() if now.now_ns - ns <= _DRAINS_NS}

    def _over_standing(self, slow: Int64s) -> Bools:
        """Which of these directed paths cross a reported queue."""
        element, weight = self.cabling.element[slow // 2, slow % 2], self.cabling.weight[slow // 2, slow % 2]
        over = np.isin(element, self.cabling.numbers(list(self._standing))) & (weight > 0)
        result: Bools = np.logical_or.reduce(over, axis=1)
        return result

    def _note(self, slow: Int64s, now: Instant) -> None:
        """Put the paths that are slow at this instant to elements."""
        well = np.flatnonzero(self.delays.well(now.reached_ns) & ~np.repeat(now.left_out, 2))
        ids = frozenset(subject.id for subject in self._bursts)
        seen = observe(slow, well)
        for found in locate(self.cabling, seen, noise=0.01, least_share=0.6, kind="queue", incumbents=ids):
            number = found.directed_paths()
            clear = found.subject.type in ("nic", "link") and found.probability >= _CLEAR and found.direction_known
            if clear and number.size >= _LEAST_PATHS:
                self._add(found, number)

    def _add(self, found: Location, number: Int64s) -> None:
        """These directed paths are slow at this instant, for what was found."""
        table = self.delays.table
        excess_ns, last_ns = float(np.median(table["held"][number])), int(table["seen_ns"][number].max())
        burst = self._bursts.setdefault(
            found.subject, Burst(found, int(table["since_ns"][number].min()), last_ns, excess_ns, set(), set())
        )
        burst.last_ns = last_ns
        if excess_ns > burst.excess_ns:
            burst.location, burst.excess_ns = found, excess_ns
        again = number[table["window_ns"][number] - table["begun_ns"][number] >= TICK_NS]
        burst.once.update(number.tolist())
        burst.twice.update(again.tolist())

    def _report(self, subject: Subject, burst: Burst, now_ns: int) -> Detection | None:
        if burst.last_ns - burst.since_ns > _LONGEST_NS or len(burst.twice) < _MOST * len(burst.once):
            return None
        reported_ns, more = self._reported.get(subject, (0, 0))
        if now_ns - reported_ns < _AGAIN_NS:
            self._reported[subject] = reported_ns, more + 1
            return None
        self._reported = {s: last for s, last in self._reported.items() if now_ns - last[0] < 10 * _AGAIN_NS}
        self._reported[subject] = now_ns, 0
        return self._detection(subject, burst, more)

    def _detection(self, subject: Subject, burst: Burst, more: int) -> Detection:
        found, where = burst.location, " ".join(burst.location.directions)
        lasted_ms = (burst.last_ns - burst.since_ns) / NS_PER_MS
        names = [
            str(self.cabling.sessions.path_id(n // 2, "rev" if n % 2 else "fwd"))
            for n in found.directed_paths()[:MAX_SYMPTOMS].tolist()
        ]
        return Detection(
            "congestion",
            subject,
            burst.since_ns,
            "queueing",
            found.probability,
            (
                Evidence("delay-excess", round(burst.excess_ns / 1e3, 1), "µs", where, 0.0),
                Evidence("slow-paths", float(len(burst.once)), "paths", where, 0.0),
                Evidence("slow-for", round(lasted_ms), "ms", where, 0.0),
                *([Evidence("bursts-untold", float(more), "1", where, 0.0)] if more else []),
            ),
            severity="info",
            suspects=tuple(found.suspects),
            symptoms=tuple(symptom("congestion", Subject("path", name), burst.since_ns) for name in names),
            detail=f"burst {where}",
            directions=tuple(found.directions),
            over_ns=burst.last_ns,
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "bursts": [
                {**asdict(burst), "once": sorted(burst.once), "twice": sorted(burst.twice)}
                for burst in self._bursts.values()
            ],
            "standing": dict(self._standing),
            "reported": [[subject.type, subject.id, *reported] for subject, reported in self._reported.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        bursts = [
            Burst(**{**b, "location": revived(b["location"]), "once": set(b["once"]), "twice": set(b["twice"])})
            for b in state["bursts"]
        ]
        self._bursts = {burst.location.subject: burst for burst in bursts}
        self._standing = {str(direction): int(ns) for direction, ns in state["standing"].items()}
        self._reported = {Subject(kind, name): (int(ns), int(more)) for kind, name, ns, more in state["reported"]}
