"""What the network did to the IP header: CE marks, and DSCP or ECN that arrive other than they were sent.

Marks of a queue are information: its paths are not slow yet. Where the marked probes did not wait, there is none, and
the threshold is wrong (`compare.waits`): that is a warning. So is a queue that marks almost everything: its senders do
not yield. (On paths whose own delay varies much, as a job's bursts make it, it may be seen by its marks alone.) While
load grows everywhere (`queues.surges`) all yield, to each other, and some port is marked all the time; so that is
information for as long as a surge's queue is.

CE instead of ECT is a mark, not a rewrite (RFC 3168 section 5). A reflector that answers in the class in which the
probe arrived is not blamed for the reverse direction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.compare.waits import MarkedWaits, Waits
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.detections import MAX_SYMPTOMS, Detection, symptom
from sdfstream.detect.inferred.hidden import evidence_of
from sdfstream.detect.instant import Instant
from sdfstream.detect.localise import Location, locate
from sdfstream.detect.problem import Observations
from sdfstream.detect.queues.surges import SURGE_NS, Surges
from sdfstream.detect.recent import LocationCache
from sdfstream.detect.root.port_rates import PortRates
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.binomial import wilson
from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Ecn

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_BINS = 20
MARKS_NS = _BINS * 100 * NS_PER_MS
"""Arrivals and marks are counted over this time."""
_LEAST = 8
_FLOODED = 0.9
_AFTER_NS = 2500 * NS_PER_MS
"""Marks of a queue are counted for so long after its delay is over: of a backlog both are read in one."""
_MARKING_NS = 3600 * NS_PER_S
"""A class of which something was marked within this time is marked in this fabric."""
_Z = 3.09
_CE, _NOT_ECT = int(Ecn.CE), int(Ecn.NOT_ECT)


class MarkDetector:
    """Arrivals, CE marks and rewritten headers of every directed path in the last 2 s."""

    def __init__(
        self,
        config: DetectConfig,
        sessions: Sessions,
        cabling: Cabling,
        delays: DelayBaselines,
        rates: PortRates,
    ) -> None:
        self.config, self.sessions, self.cabling, self.delays = config, sessions, cabling, delays
        self.window = RingBins(_BINS, 100 * NS_PER_MS, ("arrived", "marked", "rewritten"))
        self.table = Table({"dscp_seen": np.int64(-1), "slow_ns": np.int64(ABSENT_NS)})
        """Per directed path: the DSCP it last arrived with when that was not the one sent; when it was last slow, bus
        time."""
        self._marked_ns: dict[int, int] = {}
        """Bus time of the last mark in each class."""
        self.waits = MarkedWaits(sessions, delays)
        self.blamed: frozenset[str] = frozenset()
        self._mistuned: frozenset[str] = frozenset()
        """Of `blamed` those that mark what hardly waited."""
        self._flooded_ns: dict[str, int] = {}
        """Of `blamed` those that mark almost everything: since when, bus time."""
        self._surges = Surges(delays, cabling, rates)
        self._caches = (LocationCache(), LocationCache())
        """Of marks, and of rewriting."""

    def ensure(self) -> None:
        """Have a row for both directions of every session."""
        self.window.ensure(2 * self.sessions.count)
        self.table.ensure(2 * self.sessions.count)
        self.waits.ensure()

    def forget(self, slots: Ints) -> None:
        """Start anew for these sessions."""
        both = np.concatenate([2 * slots, 2 * slots + 1])
        self.window.reset(both)
        self.table.reset(both)
        self.waits.forget(slots)

    def take_rows(self, batch: pa.RecordBatch, slots: Ints, at_ns: int) -> None:
        """Take probe rows (`slots`: their sessions, −1 refused)."""
        self.window.advance(at_ns)
        sent, ecn_sent = (columns.values(batch, c) for c in ("dscp_sent", "ecn_sent"))
        dscp_fwd, ecn_fwd, dscp_rev, ecn_rev = (
            columns.filled(batch, c, 255) for c in ("dscp_fwd", "ecn_fwd", "dscp_rev", "ecn_rev")
        )
        strange = (ecn_fwd != 255) & (ecn_fwd != ecn_sent) & ((ecn_fwd != _CE) | (ecn_sent == _NOT_ECT))
        wrong_fwd = ((dscp_fwd != 255) & (dscp_fwd != sent)) | strange
        wrong_rev = (dscp_rev != 255) & (dscp_rev != sent) & (dscp_rev != dscp_fwd)
        marked_fwd = (ecn_fwd == _CE) & (ecn_sent != _NOT_ECT)
        for direction, there, ce, wrong, dscp in (
            (0, (dscp_fwd != 255) | (ecn_fwd != 255), marked_fwd, wrong_fwd, dscp_fwd),
            (1, (dscp_rev != 255) | (ecn_rev != 255), ecn_rev == _CE, wrong_rev, dscp_rev),
        ):
            known = there & (slots >= 0)
            number = 2 * slots + direction
            self.window.add("arrived", number if known.all() else number[known])
            if ce.any():
                self.window.add("marked", number[ce & known])
                self._marked_ns |= dict.fromkeys(np.unique(sent[ce & known]).tolist(), at_ns)
            if wrong.any():
                self.window.add("rewritten", number[wrong & known])
                self.table["dscp_seen"][number[wrong & known]] = dscp[wrong & known]
        self.waits.take(batch, slots, (marked_fwd, ecn_rev == _CE), at_ns)

    def marks_class(self, dscp: int, now_ns: int) -> bool:
        """Whether anything in the fabric marked packets of this class lately."""
        return now_ns - self._marked_ns.get(dscp, -_MARKING_NS) < _MARKING_NS

    def share(self, now_ns: int) -> Floats:
        """(2·sessions,) share of arrivals with CE, NaN where nothing arrived."""
        self.window.advance(now_ns)
        arrived = self.window.totals("arrived").astype(np.float64)
        return np.where(arrived > 0, self.window.totals("marked") / np.maximum(arrived, 1.0), np.nan)

    def detections(self, now: Instant) -> list[Detection]:
        """Elements that mark or rewrite now.

        Marks on paths that are slow already, or of subjects that have a queue, are evidence there and no detection of
        their own.
        """
        now_ns, left_out, slow = now.now_ns, now.left_out, self.delays.slow(now.reached_ns)
        queues = now.findings.open_ids(("congestion",))
        queues |= {suspect for queue in now.found.get("congestion", ()) for suspect, _ in queue.suspects}
        self.window.advance(now_ns)
        if not (self.window.holds("marked") or self.window.holds("rewritten")):
            self.blamed = self._mistuned = frozenset()
            self._flooded_ns.clear()
            return []
        self.table["slow_ns"][: slow.size][slow] = now_ns
        slow_ns = self.table["slow_ns"][: slow.size]
        slow = slow | ((slow_ns != ABSENT_NS) & (now_ns - slow_ns <= _AFTER_NS))
        arrived = self.window.totals("arrived")
        usable = (arrived >= _LEAST) & ~np.repeat(left_out, 2)
        marked, rewritten = self.window.totals("marked"), self.window.totals("rewritten")
        detections: list[Detection] = []
        if marked.any():
            low, _ = wilson(marked, arrived, _Z)
            sick = usable & (low > self.config.ce_share) & ~slow
            well = usable & (marked <= self.config.ce_share * arrived)
            locations = self._locate(sick, well, marked, arrived, self.config.ce_share, now_ns)
            of_marks = [self._marks_detection(p, now) for p in locations if not queues & _names(p)]
            self._mistuned = frozenset(d.subject.id for d in of_marks if d.cause == "ecn-mistuned")
            detections += of_marks
        if rewritten.any():
            sick = usable & (rewritten >= self.config.rewrite_share * arrived)
            locations = self._locate(sick, usable & (rewritten == 0), rewritten, arrived, 1e-3, now_ns)
            detections += [self._rewrite_detection(p, now_ns) for p in locations]
        self.blamed = frozenset(c.subject.id for c in detections)
        self._flooded_ns = {name: since_ns for name, since_ns in self._flooded_ns.items() if name in self.blamed}
        return detections

    def _locate(self, sick: Bools, well: Bools, hit: Ints, arrived: Ints, noise: float, now_ns: int) -> list[Location]:
        observed = []
        for number in (np.flatnonzero(sick), np.flatnonzero(well)):
            for direction, code in (("fwd", 0), ("rev", 1)):
                mine = number[number % 2 == code]
                observed.append(
                    Observations.of(mine // 2, direction, hit[mine].astype(float), arrived[mine].astype(float))
                )
        if not sick.any():
            return []
        least = 0.5 * float(np.median(hit[sick] / arrived[sick]))  # an element treats all paths over it alike
        cache = self._caches[noise != self.config.ce_share]
        return cache.recall(
            Observations.join(observed),
            now_ns,
            lambda seen: locate(self.cabling, seen, noise=noise, least_share=least, incumbents=self.blamed),
        )

    def _symptoms(self, kind: str, number: Ints, since_ns: int) -> tuple[dict[str, Any], ...]:
        paths = [self.sessions.path_id(n // 2, "rev" if n % 2 else "fwd") for n in number[:MAX_SYMPTOMS].tolist()]
        return tuple(symptom(kind, Subject("path", str(p)), since_ns) for p in paths)

    def _marks_detection(self, location: Location, now: Instant) -> Detection:
        number, where, now_ns = location.directed_paths(), " ".join(location.directions), now.now_ns
        marked = int(self.window.totals("marked")[number].sum())
        arrived = int(self.window.totals("arrived")[number].sum())
        self.waits.ask_neighbours(number)
        waits = self.waits.of(number, now_ns)
        mistuned = self._is_mistuned(location.subject.id, waits, marked)
        flooded = marked >= _FLOODED * arrived and waits is not None and waits.surely
        evidence = [
            Evidence("ce-share", round(marked / max(1, arrived), 3), "1", where, 0.0),
            Evidence("arrived", float(arrived), "1", where),
            *evidence_of(location.beside),
        ]
        if waits is not None:
            trip_us, normal_us = round(waits.normal_us + waits.mean_us, 1), round(waits.normal_us, 1)
            evidence.append(Evidence("marked-round-trip", trip_us, "µs", where, normal_us))
            evidence.append(Evidence("marked-timed", float(waits.timed), "1", where))
        return Detection(
            "ecn-marks",
            location.subject,
            self._since(number, "marked"),
            "ecn-mistuned" if mistuned else "queueing",
            location.probability,
            tuple(evidence),
            severity="warning" if mistuned or (flooded and not self._is_of_a_surge(location, now)) else "info",
            suspects=tuple(location.suspects),
            symptoms=self._symptoms("ecn-marks", number, now_ns),
            confirm_ns=int(self.config.ce_only_s * NS_PER_S),
            hold_ns=2 * NS_PER_S,
            detail=f"marks {where}",
            directions=tuple(location.directions),
            direction_known=location.direction_known,
            classes=self._classes(number),
        )

    def _is_of_a_surge(self, location: Location, now: Instant) -> bool:
        """Whether what marks almost everything has done so for no longer than a surge's queue may stand in one."""
        since_ns = self._flooded_ns.setdefault(location.subject.id, now.now_ns)
        grown = self._surges.stands_in_one(location, now)
        return grown and now.now_ns - since_ns < SURGE_NS

    def _is_mistuned(self, subject_id: str, waits: Waits | None, marked: int) -> bool:
        """Whether what is marked there did not wait; what was told stays until the contrary is sure."""
        if subject_id in self._mistuned:
            return waits is None or not waits.surely
        return waits is not None and 2 * waits.timed >= marked and waits.hardly

    def _rewrite_detection(self, location: Location, now_ns: int) -> Detection:
        number, where = location.directed_paths(), " ".join(location.directions)
        rewritten = int(self.window.totals("rewritten")[number].sum())
        arrived = int(self.window.totals("arrived")[number].sum())
        sent = int(self.sessions.table["dscp"][number[0] // 2])
        evidence = (
            Evidence("rewritten-share", round(rewritten / max(1, arrived), 3), "1", where, 0.0),
            Evidence("dscp-arrived", float(self.table["dscp_seen"][number[0]]), "DSCP", where, float(sent)),
            Evidence("paths", float(number.size), "paths", where, 0.0),
            *evidence_of(location.beside),
        )
        return Detection(
            "class-rewritten",
            location.subject,
            self._since(number, "rewritten"),
            "remarking",
            location.probability,
            evidence,
            suspects=tuple(location.suspects),
            symptoms=self._symptoms("class-rewritten", number, now_ns),
            confirm_ns=500 * NS_PER_MS,
            hold_ns=2 * NS_PER_S,
            detail=f"rewrites {where}",
            directions=tuple(location.directions),
            direction_known=location.direction_known,
            classes=self._classes(number),
        )

    def _classes(self, number: Ints) -> tuple[int, ...]:
        return tuple(np.unique(self.sessions.table["dscp"][number // 2]).tolist())

    def _since(self, number: Ints, field: str) -> int:
        """Start of the oldest bin of the window in which it happened."""
        first = int(np.flatnonzero(self.window.ordered(field, number))[0])
        return (self.window.now_bin - _BINS + 1 + first) * self.window.width_ns

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "window": self.window.snapshot(),
            "table": self.table.snapshot(),
            "marking": [[dscp, at_ns] for dscp, at_ns in self._marked_ns.items()],
            "blamed": sorted(self.blamed),
            "waits": self.waits.snapshot(),
            "mistuned": sorted(self._mistuned),
            "flooded": [[name, since_ns] for name, since_ns in self._flooded_ns.items()],
            "surges": self._surges.snapshot(),
            "caches": [m.snapshot() for m in self._caches],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.window.restore(state["window"])
        self.table.restore(state["table"])
        self._marked_ns = {int(dscp): int(at_ns) for dscp, at_ns in state["marking"]}
        self.blamed = frozenset(state["blamed"])
        if "waits" in state:  # saved by a version that timed them
            self.waits.restore(state["waits"])
            self._mistuned = frozenset(state["mistuned"])
        self.waits.ensure()
        self._flooded_ns = {name: int(since_ns) for name, since_ns in state.get("flooded", ())}
        if "surges" in state:  # a release before held it otherwise
            self._surges.restore(state["surges"])
        for cache, saved in zip(self._caches, state["caches"], strict=True):
            cache.restore(saved)


def _names(location: Location) -> set[str]:
    """What a queue that explains these marks may be called: the subject, a direction of it, a switch at its ends."""
    return {location.subject.id, *location.directions, *location.subject.id.split("--")}
