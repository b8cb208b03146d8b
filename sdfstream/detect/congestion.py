"""Queues: slow and well paths of one class to the link, switch or NIC whose queue makes them slow.

Classes are evaluated apart: a class whose own queue stands is not contradicted by others that pass the same link.
"""

from __future__ import annotations

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
from sdfstream.detect.inferred.beside import neighbours_wait
from sdfstream.detect.inferred.full_port import hidden_full_port
from sdfstream.detect.inferred.hidden import evidence_of, is_inferred
from sdfstream.detect.inferred.waiting_nics import paused_leaves, under_links
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.marks import MARKS_NS, MarkDetector
from sdfstream.detect.problem import Observations
from sdfstream.detect.queues.controlled import LATE_MARKS_US, is_controlled, sent_by_nics, side_of
from sdfstream.detect.queues.placed import SURELY, UNPLACED, Located, crossing, in_doubt, settled
from sdfstream.detect.queues.surges import Surges
from sdfstream.detect.recent import LocationCache, revived
from sdfstream.detect.root.crowded import CrowdedSwitches
from sdfstream.detect.root.displaced import is_displaced
from sdfstream.detect.root.held_up import (
    HELD_UP,
    behind_the_core,
    confirmed_by_counters,
    full_port,
    one_of_several,
    under_full_port,
    waiting_for_counters,
)
from sdfstream.detect.root.hidden_queues import HiddenQueues
from sdfstream.detect.root.pauses import PauseRates
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.detect.root.spread import UNMARKED, longest, under_the_first
from sdfstream.detect.root.storms import CAUSE as STORM
from sdfstream.detect.root.storms import name_culprits
from sdfstream.records.finding import IMBALANCE, Evidence, Severity, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ALONE_NS = 5 * NS_PER_S
"""A queue that few paths see, and nothing places, is worth a warning after so long: a starved host delays some, too."""
_ALONE_WINDOWS = 15
"""And so many windows: of a path that is probed once a second, five show as little."""
_SINGLE_NS = 30 * NS_PER_S
"""And one that a single path sees, of several that cross the place now, after so long: its own way became longer."""
_SURGE_US = 250.0
"""And one that no NIC sends, once load has not grown everywhere for a while any more (`surges`): what is normal follows
load. A path waits at three ports of a surge at most, some 80 µs at each, where all is marked. A longer
queue is none of a surge, and moves the clocks of whoever waits in it."""
_TRIALS = 8.0
"""What a verdict on one path weighs, in trials: enough that a queue only one path sees can be located at all."""
_BUSY = 0.5
"""A NIC at which a queue stands and that nobody pauses is slow if it moves less than this share of its speed."""


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
        self._crowded = CrowdedSwitches()
        self._full: Subject | None = None
        """The port that holds up NICs."""
        self._surges = Surges(delays, cabling, rates)
        self._mild: set[Subject] = set()
        """Queues that few of what crosses them saw, since they stand."""
        self._serious: set[Subject] = set()
        """Queues that were worth a warning since they stand."""

    def detections(self, now: Instant) -> list[Detection]:
        """Queues that stand now.

        A subject with an open finding stays until its paths are released. A new one takes paths that are high now, for
        else a burst that is over would live on in the release.
        """
        now_ns, left_out = now.now_ns, now.left_out
        reached_ns = now.reached_ns
        everything = self.delays.slow(reached_ns) & ~np.repeat(left_out, 2)
        reported = now.findings.reported("congestion")
        if not everything.any():
            self.blamed = frozenset()
            self._keep(reported)
            return []
        slow, well = np.flatnonzero(everything), np.flatnonzero(self._well(now))
        located: list[Located] = []
        classes = self.cabling.sessions.table["dscp"]
        for dscp in np.unique(classes[slow // 2]).tolist():
            mine, others = slow[classes[slow // 2] == dscp], well[classes[well // 2] == dscp]
            here = self._cache.recall(observe(mine, others), now_ns, partial(self._located, mine, others))
            here = paused_leaves(self.cabling, self.delays, here, self.rates.paused(self.config.pause_rate_hz))
            here = under_links(self.cabling, here, self.delays.mean_wait_ns)
            located += [(location, location.directed_paths()) for location in here]
        found = settled(self.cabling, located, self._placed)
        hot = self.delays.hot()
        full = self._full_port(slow, reported, now_ns)
        self._full = None if full is None else full.subject
        if full is not None and (is_inferred(full.subject) or full.subject not in found):
            found[full.subject] = full, full.directed_paths()  # of an inferred link, paths that surely cross it
        detected = [
            (location, number)
            for subject, (location, number) in found.items()
            if number.size and (subject.id in reported or 2 * int(hot[number].sum()) >= number.size)
        ]
        self.blamed = frozenset(location.subject.id for location, _ in detected)
        self._keep(reported)
        self._placed |= {location.subject: location for location, _ in detected if location.subject.type != "path"}
        ce_share = self.marks.share(now_ns)
        queues = [self._detection(location, number, ce_share, now) for location, number in detected]
        return self._rooted(queues, slow, well, now)

    def _full_port(self, slow: Ints, reported: frozenset[str], now_ns: int) -> Location | None:
        """The port that holds up several NICs, which hide its queue; one that was told stays while it holds up any."""
        paused = self.rates.paused(self.config.pause_rate_hz)
        if len(paused) < HELD_UP:
            return None
        former = next((x for x in self._placed.values() if x.subject == self._full and x.subject.id in reported), None)
        wait_ns = self.delays.mean_wait_ns(slow)
        found = full_port(self.cabling, paused, slow, wait_ns)
        if found is not None or self.pauses.storming(now_ns):
            return found or former
        hidden = hidden_full_port(self.cabling, paused, slow, wait_ns, self.marks.share(now_ns)[slow])
        if hidden is None or not reported.isdisjoint(hidden.subject.id.split("--")):  # told as one of its ends
            return former
        return hidden if former is None or hidden.subject == former.subject else former

    def _rooted(self, queues: list[Detection], slow: Ints, well: Ints, now: Instant) -> list[Detection]:
        """`queues` with those that others make put under them."""
        marking = any(self.marks.marks_class(c, now.now_ns) for queue in queues for c in queue.classes)
        paused, beside = self.rates.paused(self.config.pause_rate_hz), self.cabling.topology.graph
        queues = self._crowded.gather(queues, now.findings.reported("congestion"), frozenset(paused), beside)
        queues = name_culprits(queues, self.pauses, self.cabling, now.now_ns)
        hidden, leaves = HiddenQueues(self.cabling, slow, well), self.cabling.topology.leaves
        calm = partial(self.pauses.is_calm, now_ns=now.now_ns)
        queues = under_the_first(queues, marking=marking, hidden=hidden.may_stand, calm=calm, leaves=leaves)
        if any(queue.cause == STORM for queue in queues):
            return queues
        full = self._full or behind_the_core(queues, paused)
        if full is None and not self.cabling.topology.leaf_of:
            queues = one_of_several(queues, paused, now.findings.reported("congestion"))
        queues = under_full_port(queues, full)
        queues = waiting_for_counters(queues, paused)
        return [confirmed_by_counters(queue) for queue in queues] if marking else queues

    def _located(self, slow: Ints, well: Ints, seen: Observations) -> list[Location]:
        """Where the queues of these paths stand; where there are several, or none is clear, the longest first.

        Queues spread against the traffic: paths to a full port wait at those before it too, which explain them all.
        Among paths that wait far less that port is the only one that explains its own.
        """
        found = self._locate(seen)
        if len(found) < 2 and not any(location.subject.type in UNPLACED for location in found):
            return found
        long = longest(self.delays.table["peak"][slow])
        if not long.any():
            return found
        rest = slow[~long]
        first = self._locate(observe(slow[long], np.concatenate([rest, well])))
        if any(map(in_doubt, first)):
            return found
        return [*first, *self._located(rest, well, observe(rest, well))]

    def _locate(self, seen: Observations) -> list[Location]:
        return locate(self.cabling, seen, noise=0.01, least_share=0.6, kind="queue", incumbents=self.blamed)

    def _detection(self, location: Location, number: Ints, ce_share: Floats, now: Instant) -> Detection:
        t = self.delays.table
        where = " ".join(location.directions)
        excess_us = float(np.median(self.delays.excess_ns(number))) / 1e3
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
        severity = self._severity(location, cause, excess_us, standing, since_ns, now)
        return Detection(
            "congestion",
            location.subject,
            since_ns,
            cause,
            location.probability,
            (*evidence, *more),
            severity=severity,
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

    def _keep(self, reported: frozenset[str]) -> None:
        """Forget what was known of queues that neither stand nor have an open finding any more."""
        standing = self.blamed | reported
        self._placed = {subject: location for subject, location in self._placed.items() if subject.id in reported}
        self._causes = {subject: cause for subject, cause in self._causes.items() if subject.id in standing}
        self._serious = {subject for subject in self._serious if subject.id in standing}
        self._mild = {subject for subject in self._mild if subject.id in standing}

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
        side = side_of(directions)  # a NIC that sends slowly may receive much, and the reverse
        use = self.rates.use_of(subject.id, since_ns, now.reached_ns, side) if subject.type == "nic" else None
        speed_bps = 0.0 if use is None else self.cabling.topology.nic_speed_bps(subject.id) or use.speed_bps
        idle = use is not None and use.rate_bps < _BUSY * speed_bps and use.paused_hz < self.config.pause_rate_hz
        alone = idle and not neighbours_wait(self.cabling, self.delays, subject.id, side, now.reached_ns)
        if use is not None and alone and not (self._of_few(location, now) or self._elsewhere(location, now)):
            self._causes[subject] = "slow-nic"
            return "slow-nic", (Evidence("port-use", round(use.rate_bps / speed_bps, 3), "1", subject.id, 1.0),)
        known = marked[np.isfinite(marked)]
        marking = any(self.marks.marks_class(int(c), now.now_ns) for c in self._classes(number))
        whole = now.reached_ns - since_ns >= MARKS_NS  # what arrived before the queue is not counted any more
        if (
            marking
            and whole
            and not sent_by_nics(directions)
            and known.size
            and excess_us >= LATE_MARKS_US
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

    def _severity(
        self, location: Location, cause: str, excess_us: float, marked: Floats, since_ns: int, now: Instant
    ) -> Severity:
        """Whether the queue is worth a warning; what was worth one stays so while it stands."""
        subject, known = location.subject, marked[np.isfinite(marked)]
        age_ns = now.reached_ns - since_ns
        reported = subject.id in now.findings.reported("congestion")
        if not reported:
            self._serious.discard(subject)  # whether load has grown everywhere shows a moment after the first queue
        unexplained = cause == "queueing" or subject.type == "path"
        if unexplained and subject not in self._serious and self._may_pass(location, excess_us, age_ns, now):
            return "info"
        if subject.type in ("link", "path") or cause != "queueing":
            self._serious.add(subject)
            return "warning"
        paused = subject.id in self.rates.paused(self.config.pause_rate_hz)
        marking = any(self.marks.marks_class(c, now.now_ns) for c in self._classes(location.directed_paths()))
        if not is_controlled(excess_us, known, location.directions, age_ns, marking=marking, paused=paused):
            self._serious.add(subject)
        return "warning" if subject in self._serious else "info"

    def _may_pass(self, location: Location, excess_us: float, age_ns: int, now: Instant) -> bool:
        """Whether it may be a burst, a path that became longer, or what a surge of load or a dead link makes."""
        subject, single = location.subject, location.slots.size == 1
        if is_displaced(location.directions, now.findings.reported("link-down"), self.cabling.topology, age_ns):
            return True
        if single and (subject in self._mild or in_doubt(location)) and age_ns < _ALONE_NS:
            return True  # of a few paths one is left, which makes it no worse, or it may not cross the place
        if age_ns < (_SINGLE_NS if single else _ALONE_NS) and self._of_few(location, now):
            self._mild.add(subject)
            return True
        if subject.type == "path":
            waits = int(self.delays.table["waits"][location.directed_paths()].max(initial=0))
            usual = 1e3 * excess_us < self.delays.noise.rough_threshold_ns
            if usual or age_ns < _ALONE_NS or waits < _ALONE_WINDOWS:
                return True
        elif sent_by_nics(location.directions):
            return False
        return excess_us < _SURGE_US and self._surges.stands_in_one(location, now)

    def _elsewhere(self, location: Location, now: Instant) -> bool:
        """Whether what a NIC's paths wait for may be anywhere: no cabling is known, and load has grown everywhere."""
        return not self.cabling.topology.leaf_of and self._surges.stands_in_one(location, now)

    def _of_few(self, location: Location, now: Instant) -> bool:
        """Whether less than half of what crosses a place now waits there: before a port all would, in a busy host some
        do, and where bursts meet some do.

        Of an inferred place, which nobody knows who crosses: whether one NIC alone sees what its leaf's others do not.
        """
        if len(location.beside) > 1:
            sessions = self.cabling.sessions
            ends = np.concatenate([sessions.table[end][location.slots] for end in ("src", "dst")])
            return len({sessions.nics.list[n] for n in ends.tolist()}.intersection(location.beside)) < 2
        mine = location.directed_paths()
        port = location.subject.type in ("link", "nic") or mine.size == 1  # one of a switch's, nobody knows which
        if not port or sent_by_nics(location.directions):
            return False
        every = np.flatnonzero(self.delays.current(now.reached_ns)[: 2 * self.cabling.sessions.count])
        every = every[np.isin(self.cabling.sessions.table["dscp"][every // 2], self._classes(mine))]
        return 2 * mine.size < int(np.count_nonzero(crossing(self.cabling, every, location) > SURELY))

    def _well(self, now: Instant) -> Bools:
        return self.delays.well(now.reached_ns) & ~np.repeat(now.left_out, 2)

    def _classes(self, number: Ints) -> list[int]:
        return sorted(set(self.cabling.sessions.table["dscp"][number // 2].tolist()))

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        causes = [[subject.type, subject.id, cause] for subject, cause in self._causes.items()]
        placed = [asdict(location) for location in self._placed.values()]
        blamed = sorted(self.blamed)
        serious, mild = (sorted([x.type, x.id] for x in subjects) for subjects in (self._serious, self._mild))
        saved = {"blamed": blamed, "placed": placed, "cache": self._cache.snapshot(), "causes": causes}
        full = None if self._full is None else [self._full.type, self._full.id]
        more = {"crowded": self._crowded.snapshot(), "surges": self._surges.snapshot(), "mild": mild}
        return {**saved, "serious": serious, "full": full, **more}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.blamed = frozenset(state["blamed"])
        self._placed = {location.subject: location for location in map(revived, state["placed"])}
        self._cache.restore(state["cache"])
        self._causes = {Subject(kind, name): str(cause) for kind, name, cause in state["causes"]}
        # a release before had none of these
        self._serious = {Subject(kind, name) for kind, name in state.get("serious", ())}
        self._full = Subject(*state["full"]) if state.get("full") else None
        self._crowded.restore(state.get("crowded", {}))
        if "surges" in state:
            self._surges.restore(state["surges"])
        self._mild = {Subject(kind, name) for kind, name in state.get("mild", ())}


def observe(slow: Ints, well: Ints) -> Observations:
    """Directed paths, slow ones and well ones, as observations of one direction each."""
    observed = []
    for number, failed in ((slow, _TRIALS), (well, 0.0)):
        for direction, code in (("fwd", 0), ("rev", 1)):
            observed.append(Observations.of(number[number % 2 == code] // 2, direction, failed, _TRIALS))
    return Observations.join(observed)
