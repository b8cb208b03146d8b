"""Queues: slow and well paths of one class to the link, switch or NIC whose queue makes them slow.

Classes are evaluated apart: a class whose own queue stands is not contradicted by others that pass the same link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.compare.siblings import LASTS_NS, SiblingComparison
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.inferred.hidden import evidence_of, is_inferred
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.marks import MARKS_NS, MarkDetector
from sdfstream.detect.problem import Observations
from sdfstream.detect.recent import LocationCache, revived
from sdfstream.detect.root.pauses import PauseRates
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.detect.root.spread import UNMARKED, longest, under_the_first
from sdfstream.detect.root.storms import name_culprits
from sdfstream.records.finding import IMBALANCE, Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SURELY = 0.9
"""A path crosses an element when it does so with this probability; so probable is a place that is not in doubt."""
_UNPLACED = {"switch": 1, "path": 2}
"""Subjects that stand for a place which is not known, the vaguest last."""
_TRIALS = 8.0
"""What a verdict on one path weighs, in trials: enough that a queue only one path sees can be located at all."""
_BUSY = 0.5
"""A NIC at which a queue stands and that nobody pauses is slow if it moves less than this share of its speed."""
_LATE_MARKS_US = 300.0
"""A queue of this length is beyond the upper marking threshold of any port from 10 Gbit/s on (400 kB take 320 µs)."""


class CongestionDetector:
    """Lays slow paths to queues."""

    def __init__(
        self,
        config: DetectConfig,
        delays: DelayBaselines,
        marks: MarkDetector,
        pauses: PauseRates,
        rates: PortRates,
        cabling: Cabling,
        siblings: SiblingComparison,
    ) -> None:
        self.config, self.delays, self.marks, self.cabling = config, delays, marks, cabling
        self.pauses, self.rates, self.siblings = pauses, rates, siblings
        self.blamed: frozenset[str] = frozenset()
        self._cache = LocationCache()
        self._placed: dict[Subject, Location] = {}
        """Where queues stand, or stood a moment ago: their findings are open."""
        self._causes: dict[Subject, str] = {}
        """What was told of queues that stand, other than that they do."""

    def detections(self, now: Instant) -> list[Detection]:
        """Queues that stand now.

        A subject with an open finding stays until its paths are released. A new one takes paths that are high now, for
        else a burst that is over would live on in the release.
        """
        now_ns, left_out = now.now_ns, now.left_out
        reached_ns = now.reached_ns
        everything = self.delays.slow(reached_ns) & ~np.repeat(left_out, 2)
        if not everything.any():
            self.blamed = frozenset()
            self._placed.clear()
            self._causes.clear()
            return []
        slow, well = np.flatnonzero(everything), np.flatnonzero(self._well(now))
        found: dict[Subject, tuple[Location, Ints]] = {}
        classes = self.cabling.sessions.table["dscp"]
        for dscp in np.unique(classes[slow // 2]).tolist():
            mine, others = slow[classes[slow // 2] == dscp], well[classes[well // 2] == dscp]
            for location in self._cache.recall(observe(mine, others), now_ns, partial(self._located, mine, others)):
                number = location.directed_paths()
                if location.subject in found:
                    number = np.concatenate([found[location.subject][1], number])
                found[location.subject] = (location, number)
        self._locate_by_others(found)
        hot, reported = self.delays.hot(), now.findings.reported("congestion")
        detected = [
            (location, number)
            for subject, (location, number) in found.items()
            if number.size and (subject.id in reported or 2 * int(hot[number].sum()) >= number.size)
        ]
        self.blamed = frozenset(location.subject.id for location, _ in detected)
        self._placed = {subject: location for subject, location in self._placed.items() if subject.id in reported}
        self._placed |= {location.subject: location for location, _ in detected if location.subject.type != "path"}
        standing = self.blamed | reported
        self._causes = {subject: cause for subject, cause in self._causes.items() if subject.id in standing}
        ce_share = self.marks.share(now_ns)
        queues = [self._detection(location, number, ce_share, now) for location, number in detected]
        marking = any(self.marks.marks_class(c, now_ns) for queue in queues for c in queue.classes)
        culprits = name_culprits(queues, self.pauses, self.cabling, now_ns)
        return under_the_first(culprits, marking=marking, hidden=HiddenQueues(self.cabling, slow, well).may_stand)

    def _locate_by_others(self, found: dict[Subject, tuple[Location, Ints]]) -> None:
        """Paths that one class alone cannot place are those of a queue that is placed on all of them: by another class,
        or before, by more paths than report now.

        Few paths of a class, none of them well, may cross several elements alike: those are laid to a switch, to none,
        or to the first of the links in a row, of which another class may know that a later one has the queue.
        """
        placed = self._placed | {subject: location for subject, (location, _) in found.items()}
        for subject in [s for s, (location, number) in found.items() if number.size and _in_doubt(location)]:
            doubtful, number = found[subject]
            for other, location in placed.items():
                if not _clearer(location, doubtful) or not self._all_cross(number, location):
                    continue
                theirs = found[other][1] if other in found else np.empty(0, np.int64)
                found[other] = found[other][0] if other in found else location, np.concatenate([theirs, number])
                del found[subject]
                break

    def _all_cross(self, number: Ints, location: Location) -> bool:
        """Whether all of these directed paths cross one of the directions of a location."""
        element, weight = self.cabling.element[number // 2, number % 2], self.cabling.weight[number // 2, number % 2]
        over = np.isin(element, self.cabling.numbers(location.directions)) & (weight > _SURELY)
        return bool(over.any(axis=1).all())

    def _located(self, slow: Ints, well: Ints, seen: Observations) -> list[Location]:
        """Where the queues of these paths stand; where there are several, or none is clear, the longest first.

        Queues spread against the traffic: paths to a full port wait at those before it too, which explain them all.
        Among paths that wait far less that port is the only one that explains its own.
        """
        found = self._locate(seen)
        if len(found) < 2 and not any(location.subject.type in _UNPLACED for location in found):
            return found
        long = longest(self.delays.table["peak"][slow])
        if not long.any():
            return found
        rest = slow[~long]
        first = self._locate(observe(slow[long], np.concatenate([rest, well])))
        if any(map(_in_doubt, first)):
            return found
        return [*first, *self._located(rest, well, observe(rest, well))]

    def _locate(self, seen: Observations) -> list[Location]:
        return locate(self.cabling, seen, noise=0.01, least_share=0.6, kind="queue", incumbents=self.blamed)

    def _detection(self, location: Location, number: Ints, ce_share: Floats, now: Instant) -> Detection:
        t = self.delays.table
        where = " ".join(location.directions)
        excess_us = float(np.median(t["held"][number])) / 1e3
        evidence = [
            Evidence("delay-excess", round(excess_us, 1), "µs", where, 0.0),
            Evidence("error-bar", round(float(np.median(t["err"][number])) / 1e3, 1), "µs", where),
            Evidence("slow-paths", float(number.size), "paths", where, 0.0),
        ]
        marked = ce_share[number]
        if np.isfinite(marked).any():
            evidence.append(Evidence("ce-share", round(float(np.nanmean(marked)), 3), "1", where, 0.0))
        classes = self._classes(number)
        evidence += [Evidence("class", float(c), "DSCP", where) for c in classes[:8]]
        evidence += evidence_of(location.beside)
        since = t["since_ns"][number]
        since_ns = int(np.min(since[since != ABSENT_NS], initial=int(t["seen_ns"][number].max())))
        paths = [
            str(self.cabling.sessions.path_id(n // 2, "rev" if n % 2 else "fwd"))
            for n in number[:MAX_SYMPTOMS].tolist()
        ]
        vague = location.subject.type == "path" or is_inferred(location.subject)
        standing = marked[self.delays.hot()[number]]
        cause, more = self._cause(location, number, since_ns, excess_us, standing, now)
        return Detection(
            "congestion",
            location.subject,
            since_ns,
            cause,
            location.probability,
            (*evidence, *more),
            suspects=tuple(location.suspects),
            symptoms=tuple(symptom("congestion", Subject("path", p), since_ns) for p in paths),
            confirm_ns=(1000 if vague else 300) * NS_PER_MS,
            measured_ns=self.delays.measured_ns(number),
            hold_ns=int(self.config.hold_s * NS_PER_S),
            detail=f"queue {where}",
            directions=tuple(location.directions),
            direction_known=location.direction_known,
            classes=tuple(int(c) for c in classes),
        )

    def _cause(
        self, location: Location, number: Ints, since_ns: int, excess_us: float, marked: Floats, now: Instant
    ) -> tuple[str, tuple[Evidence, ...]]:
        """Why the queue of these directed paths stands, as far as the evidence tells; and what tells it.

        `marked` has the shares of those on which it still stands: as it drains, the marks are gone before the delay is.
        What was told of a queue stays while it stands.
        """
        subject, directions = location.subject, location.directions
        former = self._causes.get(subject)
        if former == IMBALANCE:
            return former, self.siblings.imbalance(location, number, self._well(now), now.reached_ns)
        if former is not None:
            return former, ()
        use = self.rates.use_of(subject.id, since_ns, now.reached_ns) if subject.type == "nic" else None
        speed_bps = 0.0 if use is None else self.cabling.topology.nic_speed_bps(subject.id) or use.speed_bps
        if use is not None and use.rate_bps < _BUSY * speed_bps and use.paused_hz < self.config.pause_rate_hz:
            self._causes[subject] = "slow-nic"
            return "slow-nic", (Evidence("port-use", round(use.rate_bps / speed_bps, 3), "1", subject.id, 1.0),)
        known = marked[np.isfinite(marked)]
        marking = any(self.marks.marks_class(int(c), now.now_ns) for c in self._classes(number))
        whole = now.reached_ns - since_ns >= MARKS_NS  # what arrived before the queue is not counted any more
        if (
            marking
            and whole
            and not _sent_by_nics(directions)
            and known.size
            and excess_us >= _LATE_MARKS_US
            and float(known.mean()) < UNMARKED
        ):
            self._causes[subject] = "ecn-mistuned"
            return "ecn-mistuned", ()
        if now.reached_ns - since_ns >= LASTS_NS and self.siblings.is_full(location, now.reached_ns):
            uneven = self.siblings.imbalance(location, number, self._well(now), now.reached_ns)
            if uneven:
                self._causes[subject] = IMBALANCE
                return IMBALANCE, uneven
        return "queueing", ()

    def _well(self, now: Instant) -> Bools:
        return self.delays.well(now.reached_ns) & ~np.repeat(now.left_out, 2)

    def _classes(self, number: Ints) -> list[int]:
        return sorted(set(self.cabling.sessions.table["dscp"][number // 2].tolist()))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        causes = [[subject.type, subject.id, cause] for subject, cause in self._causes.items()]
        placed = [asdict(location) for location in self._placed.values()]
        blamed = sorted(self.blamed)
        return {"blamed": blamed, "placed": placed, "cache": self._cache.snapshot(), "causes": causes}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.blamed = frozenset(state["blamed"])
        self._placed = {location.subject: location for location in map(revived, state["placed"])}
        self._cache.restore(state["cache"])
        self._causes = {Subject(kind, name): str(cause) for kind, name, cause in state["causes"]}


class HiddenQueues:
    """Directions over which nothing is well: a queue may stand there too, behind those that slow all its paths."""

    def __init__(self, cabling: Cabling, slow: Ints, well: Ints) -> None:
        self.cabling, self._paths = cabling, (slow, well)
        self._crossed: tuple[set[int], set[int]] | None = None

    def may_stand(self, start: str, end: str) -> bool:
        """Whether slow paths surely cross the direction ``start->end``, and no path that is well."""
        if "/" in start or "/" in end:  # NICs forward nothing
            return False
        if self._crossed is None:  # most queues lead to none, or to one that is told
            self._crossed = self._over(self._paths[0]), self._over(self._paths[1])
        numbers = set(self.cabling.numbers([f"{start}->{end}"]))
        return bool(numbers & self._crossed[0]) and not numbers & self._crossed[1]

    def _over(self, number: Ints) -> set[int]:
        element, weight = self.cabling.element[number // 2, number % 2], self.cabling.weight[number // 2, number % 2]
        return set(np.unique(element[weight > _SURELY]).tolist())


def _in_doubt(location: Location) -> bool:
    """Whether paths of one class do not say by themselves where their queue stands."""
    return location.subject.type in _UNPLACED or location.probability < _SURELY


def _clearer(known: Location, doubtful: Location) -> bool:
    """Whether a queue's place is known better than a doubtful one, and may be that one's."""
    vague, vaguer = _UNPLACED.get(known.subject.type, 0), _UNPLACED.get(doubtful.subject.type, 0)
    if vaguer:
        return vague < vaguer
    suspects = {name for name, _ in doubtful.suspects}
    return not vague and known.probability >= _SURELY and not suspects.isdisjoint(known.directions)


def _sent_by_nics(directions: Sequence[str]) -> bool:
    """Whether all of these are what NICs send: such a queue stands in a host, and no switch could have marked it."""
    return all("/" in direction.partition("->")[0] for direction in directions)


def observe(slow: Ints, well: Ints) -> Observations:
    """Directed paths, slow ones and well ones, as observations of one direction each."""
    observed = []
    for number, failed in ((slow, _TRIALS), (well, 0.0)):
        for direction, code in (("fwd", 0), ("rev", 1)):
            observed.append(Observations.of(number[number % 2 == code] // 2, direction, failed, _TRIALS))
    return Observations.join(observed)
