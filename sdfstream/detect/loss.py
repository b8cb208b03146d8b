"""Gray loss: paths that lose some of their probes while others pass, put to the elements that they share.

Loss events (`runs`) are counted by path. What they exceed normal loss by, which is learnt from the paths that no lossy
element explains, is put to elements by `localise`, over three windows that look back side by side: 1.6 s for sharp
loss, 6.4 s, and 64 s for faint loss. The windows have one verdict: an element that one of them has named **stands**,
with its share, until what passes since disproves it or other elements explain its losses better; a window speaks again
only of what standing elements leave unexplained.

An element is named when its scattered losses, beyond normal loss and what other elements cost the same paths, have a
probability below `loss_false_alarm` (Chernoff bound), and no other element fits them as well; where several do, when
the evidence has become `_AMBIGUOUS` times as strong. A row says only that a round trip failed, so the direction comes
from which other paths cross each direction; where those do not show it, both stay suspects. What is lost under packet
spraying, by all paths alike, is named without waiting for windows to fill (`gray.going_on`), and as one of the spines
where all paths between leaves are alike (`gray.one_spine`).

What a standing queue drops is told with the queue (`root.queues`); once it has gone, losses are counted afresh.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, revived, symptom
from sdfstream.detect.gray.behind import grown, leaving, links_instead, paths_instead
from sdfstream.detect.gray.dead_uplink import as_if_dead, share_evidence, which_is_dead
from sdfstream.detect.gray.directed import directed
from sdfstream.detect.gray.explained_away import explained_away, note_heirs
from sdfstream.detect.gray.going_on import lost_evenly
from sdfstream.detect.gray.known import KnownLosses, Look, LossCounts, onset, scattered, unreported_ns
from sdfstream.detect.gray.lossy import ALIKE, UNLIKE, LossySubject, clearest, exposure, unlikeness
from sdfstream.detect.gray.one_spine import one_of_spines
from sdfstream.detect.gray.spines import is_one_of_spines
from sdfstream.detect.gray.unexplained import is_unexplained, normal_share
from sdfstream.detect.gray.whole_switch import CLEAR, is_set_apart, is_sprayed, says_no_more
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.instant import Instant
from sdfstream.detect.liveness import SessionLiveness
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.recent import RecentFaults
from sdfstream.detect.root.queues import drops
from sdfstream.detect.runs import BINS, LossRuns
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.numeric.mixture import fit_shares
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_MS, NS_PER_S, TICK_NS

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LONG = Look(1, BINS)
_SHORT, _MIDDLE = Look(0, 8), Look(0, BINS)
_SLOW = (Look(1, 8), _LONG)
_LOOKS = (_SHORT, _MIDDLE, *_SLOW)
_LEAST_EVENTS = 4
_AMBIGUOUS = 2.5
_SEPARATE_NS = 4 * NS_PER_S
"""How long loss lasts before a switch, or what is not clear, is named: paths over other cables tell them apart. Unless
all paths of the switch lose alike (`gray.whole_switch`)."""
_MIDDLE_TICKS, _SLOW_TICKS, _REVIEW_TICKS = 4, 10, 20
"""The long window is searched this often for what is new, and for whether what stands is still the best answer."""
_FEWER = float(np.log(100.0))
"""It is searched less often and moves on more slowly by so much: as many chances for false alarms as others have."""
_SHOWS = 0.5
"""An element stands while its evidence is at least so strong, as a share of what it took to name it."""
_LIKELY = float(np.log(0.01))
"""What loses beside cables that stand does so on other paths, with no more than this probability by chance."""
_PERHAPS, _LATELY = 0.2, 0.75
"""A path that crosses an element with this probability lost there what it lost since, if that is so much of it all."""
_DRAINED_NS = 2 * NS_PER_S
"""A queue that has not been found for so long has drained: its finding is resolved, and its losses are known."""


class LossDetector:
    """Judges loss events of all sessions."""

    def __init__(
        self,
        config: DetectConfig,
        runs: LossRuns,
        cabling: Cabling,
        recent: RecentFaults,
        liveness: SessionLiveness,
    ) -> None:
        self.config, self.runs, self.cabling, self.recent, self.liveness = config, runs, cabling, recent, liveness
        self.limit = float(np.log(config.loss_false_alarm))
        self.presence = liveness.presence
        self.standing: dict[Subject, LossySubject] = {}
        self.normal: float | None = None
        """Share of probes that healthy paths lose, as of the last whole second; None: not known yet."""
        self._queues: dict[Subject, tuple[Detection, int]] = {}
        """Reported queues that stand, or have not drained yet, and when each was last found."""

    def detections(self, now: Instant) -> list[Detection]:
        """Elements that lose probes now; what sessions lose over a recent fault is its aftermath."""
        now_ns, sessions = now.now_ns, self.runs.sessions.count
        self.runs.wipe(np.flatnonzero(self.recent.down(np.arange(sessions), now_ns)))
        for ring in self.runs.windows:
            ring.advance(now_ns)
        if not self.runs.windows[1].holds("events"):
            self.standing.clear()
            self._queues.clear()
            return []
        late_ns = unreported_ns(self.presence, self.runs.sessions, now_ns)
        seen = KnownLosses(self.runs, self.liveness.table["interval_ns"], now.left_out, late_ns)
        whole, tick = seen.of(_LONG), now_ns // TICK_NS
        self.cabling.refresh()
        exposures = {s: exposure(self.cabling, x.location, sessions) for s, x in self.standing.items()}
        if tick % _SLOW_TICKS == 0 or self.normal is None:
            self.normal = normal_share(self.cabling, whole, list(exposures.values()), self.config)
        normal = self.normal
        before, healed = dict(self.standing), self._settle(seen, now, exposures, normal)
        for look in _LOOKS:
            slow = look in _SLOW
            if (slow and tick % _SLOW_TICKS) or (look is _MIDDLE and tick % _MIDDLE_TICKS):
                continue
            counts = whole if look is _LONG else seen.of(look)
            review = look is _LONG and bool(self.standing) and tick % _REVIEW_TICKS == 0
            if int(counts.events.sum()) < _LEAST_EVENTS:
                continue
            a, limit = list(exposures.values()), self.limit + _FEWER * slow
            if review or is_unexplained(self.cabling, counts, a, normal, limit):
                self._search(look, counts, seen, exposures, normal)
        self._direct(seen, exposures, normal)
        detections = [self._detection(x, exposures[s], seen) for s, x in self.standing.items()]
        gone = (x for s, x in before.items() if s not in self.standing and s not in healed)
        note_heirs(gone, self.standing, exposures, seen, normal, self.limit)
        self._heed_queues(detections, now)
        return detections

    # -- which element ---------------------------------------------------------------------------------------------

    def _search(
        self, look: Look, counts: LossCounts, seen: KnownLosses, exposures: dict[Subject, Floats], normal: float
    ) -> None:
        """Put what one window holds to elements; those take the place of standing ones that they explain away."""
        used = counts.used
        k, n = counts.events[used].astype(float), counts.probes[used].astype(float)
        ids = frozenset(s.id for s in self.standing)
        seen_now = Observations.of(used, "both", k, n)
        found = locate(self.cabling, seen_now, noise=normal, kind="loss", incumbents=ids, most=12)
        known = [x.location for x in self.standing.values()]
        found = [x for x in found if not any(says_no_more(x, location) for location in known)]
        for x in (x for x in found if x.subject in self.standing):
            self.standing[x.subject].heed(x, whole=look is _LONG)
        standing = np.array(list(exposures.values())).reshape(len(exposures), counts.probes.size)
        apart = normal + fit_shares(k, n, standing[:, used], normal)[0] @ standing
        new = links_instead(self.cabling, found, known, counts, apart)
        if (spine := one_of_spines(self.cabling, counts, apart, self.limit)) is not None:
            new = {spine.subject: spine}
        pool = exposures | {s: exposure(self.cabling, x, self.runs.sessions.count) for s, x in new.items()}
        if not new:
            return
        gone = explained_away(self.cabling, [*self.standing], pool, [*new], (k, n, used), normal)
        former = {s: (self.standing[s], exposures[s]) for s in gone}
        for subject in former:
            del pool[subject], self.standing[subject], exposures[subject]
        matrix = np.array([a[used] for a in pool.values()])
        share, _ = fit_shares(k, n, matrix, normal)
        losing = dict(zip(pool, share.tolist(), strict=True))
        for subject, location in new.items():
            others = normal + sum(losing[s] * a for s, a in pool.items() if s != subject)
            if any(is_one_of_spines(self.cabling.topology, s) for s in self.standing):
                others = np.maximum(others, apart)
            lossy = self._evaluate(location, pool[subject], look, counts, seen, others * np.ones(counts.probes.size))
            if lossy is not None and lossy.location.subject not in self.standing:
                self.standing[lossy.location.subject] = lossy
                exposures[lossy.location.subject] = exposure(self.cabling, lossy.location, counts.probes.size)
        if not any(s in self.standing for s in new):  # what would take its place is not clear yet
            for subject, (lossy, a) in former.items():
                self.standing[subject], exposures[subject] = lossy, a

    def _evaluate(
        self, location: Location, a: Floats, look: Look, counts: LossCounts, seen: KnownLosses, others: Floats
    ) -> LossySubject | None:
        """The element, unless what was located is one burst, too little, or not yet clear."""
        slots = np.flatnonzero((a > 0.99) & (counts.probes > 0))
        if not slots.size:
            slots = np.unique(location.slots)
        limit = self.limit + _FEWER * (look in _SLOW)
        if location.subject.type == "path":  # several may be gathered under one: each must say so itself
            lost, sent = counts.events[slots], np.maximum(counts.probes[slots], 1)
            twice = np.clip(2.0 * others[slots], 1e-9, 0.999)  # what others cost one path is known to that at best
            slots = slots[(log_tail_bound(lost, sent, twice) <= limit) & ~self._beside_standing(slots)]
            if not slots.size:
                return None
        elif self.standing and not self._shown_beside(location, slots, counts, others, limit):
            return None
        if look is _SHORT and (found := self._lost_evenly(location, a, slots, counts, seen, others)) is not None:
            return found
        shown = slots[clearest(counts.events[slots], counts.probes[slots], others[slots])]
        course = seen.over(shown, look.ring, seen.bins(look))
        events, probes = scattered(course), counts.probes[shown]
        normal = float(np.clip((probes * others[shown]).sum() / max(1, probes.sum()), 1e-9, 0.999))
        tail = float(log_tail_bound(events, max(int(probes.sum()), events), normal))
        if events < _LEAST_EVENTS or tail > limit:
            return None
        if location.subject.type in ("nic", "link"):
            nic = location.subject.type == "nic"
            every = [counts, *(seen.of(other) for other in _LOOKS if nic and other is not look)]
            sums = ((c.events[slots], c.probes[slots], others[slots]) for c in every)
            unlike = max(unlikeness(*one, in_whole=nic) for one in sums)
            if unlike > UNLIKE:
                rest = slots[(counts.events[slots] > 0) & ~self._beside_standing(slots)]
                if not rest.size:
                    return None
                named = frozenset(s.id for s in self.standing)
                location = paths_instead(self.cabling, location, rest, counts.events, named)
            elif unlike > ALIKE:
                return None  # not yet clear whether the element or something behind it loses
        first = onset(course)
        lasts_ns = (course.events.size - first) * course.width_ns
        clear, early = location.probability >= CLEAR, lasts_ns < _SEPARATE_NS
        if early and not (clear and is_set_apart(self.cabling, location, slots, counts, others, self.limit)):
            return None
        if not clear and tail > _AMBIGUOUS * limit:
            return None
        return LossySubject(location, course.start_ns(first))

    def _lost_evenly(
        self, location: Location, a: Floats, slots: Ints, counts: LossCounts, seen: KnownLosses, others: Floats
    ) -> LossySubject | None:
        """What loses where packets are sprayed, if it has gone on for as long as silence takes."""
        if not is_sprayed(self.cabling, location, slots, counts, others, a, self.limit):
            return None
        each_ns = self.liveness.table["interval_ns"][slots]
        found = lost_evenly(self.runs, slots, each_ns, self.config.liveness_ns)
        since_ns = seen.began_ns(slots, seen.bins(_SHORT))
        return LossySubject.lost_evenly(location, since_ns, slots, counts, a, found) if found[0] else None

    def _shown_beside(self, location: Location, slots: Ints, counts: LossCounts, others: Floats, limit: float) -> bool:
        """Whether an element loses on paths over no cable that stands: of one that stands a direction, or a share of
        what it loses, may not be known yet. Where there is no such path nothing speaks against a cable.
        """
        free = slots[~self._beside_standing(slots)]
        if not counts.probes[free].any():
            return location.subject.type != "switch"
        return counts.by_chance(free, others) <= (limit if location.subject.type == "switch" else _LIKELY)

    def _beside_standing(self, slots: Ints) -> Bools:
        """Which sessions cross a cable that stands, in whichever direction: what they lose may be its.

        Of an inferred link, whose paths are known by their losses alone: which begin or end at its switch, not both.
        """
        result = np.zeros(slots.size, np.bool_)
        for subject, lossy in self.standing.items():
            if lossy.location.beside:
                result |= leaving(self.cabling, lossy.location, slots)
            elif subject.type != "path":
                result |= np.isin(self.cabling.element[slots], self._both_directions(lossy)).any(axis=(1, 2))
        return result

    def _both_directions(self, lossy: LossySubject) -> list[int]:
        """The blamed elements of a cable, and those of its other direction."""
        each = ((one, "->".join(reversed(one.split("->")))) for one in lossy.location.directions)
        return self.cabling.numbers([name for both in each for name in both])

    # -- what stands -----------------------------------------------------------------------------------------------

    def _settle(self, seen: KnownLosses, now: Instant, exposures: dict[Subject, Floats], normal: float) -> set[Subject]:
        """Bring the shares of what stands up to date; drop what has healed (returned), or shows nothing any more."""
        over = set[Subject]()
        for subject in list(self.standing):
            standing = self.standing[subject]
            if now.late[standing.slots].mean() > 0.5:  # its agents are late: it stands as it was last seen
                standing.resumed_ns = now.now_ns
                continue
            counts = standing.counts(seen)
            used = counts.used
            matrix = np.array([exposures[s][used] for s in self.standing])
            share, _ = fit_shares(counts.events[used].astype(float), counts.probes[used].astype(float), matrix, normal)
            mine = list(self.standing).index(subject)
            others = normal + np.delete(share, mine) @ np.delete(matrix, mine, axis=0)
            if standing.location.beside:
                standing.location = grown(self.cabling, standing.location, counts, others)
                exposures[subject] = exposure(self.cabling, standing.location, self.runs.sessions.count)
                matrix[mine] = exposures[subject][used]
            standing.measure(counts, used, matrix[mine], float(share[mine]), others)
            healed = standing.healed(seen)
            if healed:
                over.add(subject)
                self._begin_afresh(standing)
            if healed or not standing.shows(now.now_ns, _SHOWS * self.limit):
                del self.standing[subject], exposures[subject]
        return over

    def _direct(self, seen: KnownLosses, exposures: dict[Subject, Floats], normal: float) -> None:
        """Name the direction of what stands, where the reflectors' numbers show it."""
        for subject, lossy in self.standing.items():
            probes = seen.newest(*lossy.window(seen.rings)).probes
            found = directed(self.cabling, lossy.location, self.runs.there.since(lossy.since_ns), probes, normal)
            if found is not lossy.location:
                lossy.location = found
                exposures[subject] = exposure(self.cabling, found, self.runs.sessions.count)

    def _begin_afresh(self, lossy: LossySubject) -> None:
        """What the paths over an element lost so far is told: its own, and those that cross it the other way alone.

        So is what those lost since it began that may cross it: gray loss takes traces too, and leaves routes in doubt.
        """
        n, ring = self.runs.sessions.count, self.runs.windows[1]
        over = np.isin(self.cabling.element[:n], self._both_directions(lossy))
        if is_one_of_spines(self.cabling.topology, lossy.location.subject):
            over |= (exposure(self.cabling, lossy.location, n) > 0)[:, None, None]
        surely = (over & (self.cabling.weight[:n] > 0.5)).any(axis=(1, 2))
        lost, since = (ring.recent("events", x)[:n] for x in (BINS, min(BINS, max(1, lossy.bins_of(ring)))))
        perhaps = (over & (self.cabling.weight[:n] >= _PERHAPS)).any(axis=(1, 2))
        if lossy.location.beside:
            perhaps |= leaving(self.cabling, lossy.location, np.arange(n))
        self.runs.wipe(np.union1d(lossy.slots, np.flatnonzero(surely | (perhaps & (since > _LATELY * lost)))))

    def _heed_queues(self, detections: list[Detection], now: Instant) -> None:
        """Drop what only a queue dropped, once the queue has gone; what goes on will be found by what it loses then.

        So are losses that were too few to be laid to anything: the long window would still hold them a minute later.
        """
        found, reported = now.found.get("congestion", []), now.findings.reported("congestion")
        self._queues |= {queue.subject: (queue, now.now_ns) for queue in found if queue.subject.id in reported}
        queues = [*self._queues.values(), *((q, now.now_ns) for q in found if q.subject not in self._queues)]
        for (subject, lossy), detection in zip(list(self.standing.items()), detections, strict=True):
            last_ns = [ns for queue, ns in queues if drops(queue, detection, self.cabling)]
            lossy.queued_ns = max([lossy.queued_ns, *last_ns])
            if lossy.queued_ns and now.now_ns - lossy.queued_ns > _DRAINED_NS:
                self._begin_afresh(lossy)
                del self.standing[subject]
        for subject, (queue, ns) in list(self._queues.items()):
            if now.now_ns - ns > _DRAINED_NS:
                del self._queues[subject]
                self.runs.wipe(self._unlaid(queue.directions))

    def _unlaid(self, directions: tuple[str, ...]) -> Ints:
        """Sessions over these directions whose losses are laid to nothing."""
        n = self.runs.sessions.count
        over = np.isin(self.cabling.element[:n], self.cabling.numbers(directions)) & (self.cabling.weight[:n] > 0.5)
        crossing = np.flatnonzero(over.any(axis=(1, 2)))
        return crossing[~self._beside_standing(crossing)]

    def _detection(self, lossy: LossySubject, a: Floats, seen: KnownLosses) -> Detection:
        if not lossy.events:
            counts = lossy.counts(seen)
            lossy.measure(counts, counts.used, a[counts.used], -1.0, np.zeros(counts.used.size))
        uplinks = which_is_dead(self.cabling, lossy, seen)
        location = lossy.dead or lossy.location
        where = " ".join(location.directions)
        evidence = (
            *share_evidence(lossy, where, self.config.loss_share if self.normal is None else self.normal),
            Evidence("loss-events", float(lossy.events), "1", where),
            Evidence("probes", float(lossy.probes), "1", where),
            *evidence_of(() if location.subject.type == "switch" else location.beside),
        )
        paths = [str(self.cabling.sessions.path_id(s, "fwd")) for s in lossy.harmed[:MAX_SYMPTOMS].tolist()]
        dead = uplinks > 0 or lossy.dead is not None
        detail = f"loses probes {where}" + ("" if location.direction_known else " (direction not told apart)")
        return Detection(
            "loss",
            location.subject,
            lossy.since_ns,
            "link-failure" if dead else "gray-failure",
            location.probability,
            evidence,
            suspects=tuple(location.suspects),
            symptoms=tuple(symptom("loss", Subject("path", p), lossy.since_ns) for p in paths),
            confirm_ns=0 if lossy.evenly and location.subject.type == "switch" else 300 * NS_PER_MS,
            hold_ns=2 * NS_PER_S,
            detail=detail + (as_if_dead(self.cabling.topology, location.subject, uplinks) if dead else ""),
            directions=tuple(location.directions),
            direction_known=location.direction_known,
            sessions=tuple(lossy.harmed[:MAX_SYMPTOMS].tolist()),
            instead_of=lossy.instead_of,
        )

    def forget(self, slots: Ints) -> list[Subject]:
        """Leave out sessions that are gone; what stood by these alone stands no more: nothing measures it."""
        gone = [subject for subject, lossy in self.standing.items() if not lossy.forget(slots)]
        for subject in gone:
            del self.standing[subject]
        return gone

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays (the counts are `runs`' own)."""
        queues = [[asdict(queue), last_ns] for queue, last_ns in self._queues.values()]
        return {"standing": [asdict(x) for x in self.standing.values()], "normal": self.normal, "queues": queues}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        standing = [LossySubject.revived(saved) for saved in state["standing"]]
        self.standing = {x.location.subject: x for x in standing}
        self.normal = None if state["normal"] is None else float(state["normal"])
        known = [(revived(queue), int(ns)) for queue, ns in state.get("queues", ())]  # a release before had none
        self._queues = {queue.subject: (queue, last_ns) for queue, last_ns in known}
